"""The keys of Hugging Face's files, taken from transformers' own classes: each is read as transformers reads it, known to mean nothing here, or
refused where it would change numbers; any other is named in a note. A newer transformers with a new key fails these tests."""

import inspect
import json
import re
import subprocess

import numpy as np
import pytest
import torch

from probe import ProbeError, named

from tests.program import CALLED

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")

import tokenizer_kinds  # noqa: E402
from generating import GPT_LONG, generated, greedy, prompts, trainrun  # noqa: E402
from language_models import (DISTILLED, GPT, LLAMA, QWEN, VOCABULARY, BertForMaskedLM, DistilBertConfig, DistilBertModel, LanguageModel,  # noqa: E402
                             LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM, RobertaForMaskedLM, bert,
                             decoder, roberta)
from language_model_recipes import OF_THE_OUTPUT, assert_close, expected_of, write_recipe  # noqa: E402
from tokenizer_texts import Encoded, decoded  # noqa: E402

UNKNOWN = "frobnicate is a key that is not known here; nothing follows from it"
WORDS = ["to be or not to be, that is the question: \u00fcber \u4f60\u597d"] * 3


# --- config.json

FAMILIES = [bert(BertForMaskedLM), roberta(RobertaForMaskedLM), LanguageModel(DistilBertModel, DistilBertConfig, DISTILLED), GPT,
            decoder(LlamaForCausalLM, LlamaConfig, LLAMA), QWEN, decoder(Qwen3ForCausalLM, Qwen3Config, LLAMA | {"head_dim": 8}),
            decoder(MistralForCausalLM, MistralConfig, LLAMA)]
# What a key may be that is null where nobody says otherwise; a null is never noted.
INSTEAD_OF_NULL = {"architectures": ["X"], "bos_token_id": 1, "classifier_dropout": 0.1, "dtype": "float32", "eos_token_id": 2, "n_inner": 128,
                   "pad_token_id": 0, "problem_type": "regression", "sliding_window": 64, "summary_activation": "tanh"}
OLDER = {"_name_or_path": "x", "torch_dtype": "float16", "gradient_checkpointing": False, "use_cache": False, "max_length": 20, "do_sample": False,
         "num_beams": 1, "torchscript": False, "finetuning_task": None, "pruned_heads": {}, "tokenizer_class": "X", "sep_token_id": None}


@pytest.mark.parametrize("model", FAMILIES, ids=str)
def test_each_key_of_a_config_is_accounted_for(probe, tmp_path, model):
    model.saved(tmp_path / "peer")
    path = tmp_path / "peer" / "config.json"
    config = model.config(**model.settings).to_dict() | json.loads(path.read_text()) | OLDER
    own = {name for name in model.config.__annotations__ if not name.startswith("_")}
    assert own <= config.keys() and "model_type" in config
    config |= {key: INSTEAD_OF_NULL[key] for key, value in config.items() if value is None and key not in OLDER}
    path.write_text(json.dumps(config | {"frobnicate": 1, "nothing": None}))
    recipe = write_recipe(tmp_path, f"{{type: {model.type}, pretrained: {tmp_path}/peer}}", model.fields() | {"labels": torch.zeros(4).long()},
                          loss=OF_THE_OUTPUT)
    reply, _ = probe.ask("model", recipe=recipe, overrides=[])
    assert reply["notes"] == [f"{path}: {UNKNOWN}"]


# Values that are not those of `language_models.py`, where all sizes differ from the defaults.
OTHER_VALUES = {
    "use_cache": False, "chunk_size_feed_forward": 4, "is_decoder": True, "add_cross_attention": True, "is_encoder_decoder": True,
    "tie_word_embeddings": "other",
    "layer_norm_eps": 0.1, "layer_norm_epsilon": 0.1, "rms_norm_eps": 0.1, "pad_token_id": 3, "bos_token_id": 3, "eos_token_id": 3, "pretraining_tp": 2,
    "scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True, "sinusoidal_pos_embds": True, "qa_dropout": 0.7,
    "hidden_act": "relu", "activation": "relu", "activation_function": "relu", "attention_bias": True, "mlp_bias": True, "use_sliding_window": True,
    "sliding_window": 3, "max_window_layers": 1, "layer_types": "other", "output_attentions": True, "output_hidden_states": True, "return_dict": True,
    "problem_type": "regression", "rope_parameters": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0}, "initializer_range": 0.5,
    "summary_type": "last", "summary_use_proj": False, "summary_activation": "tanh", "summary_proj_to_labels": False, "summary_first_dropout": 0.3,
    "hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3, "classifier_dropout": 0.3, "attention_dropout": 0.3, "seq_classif_dropout": 0.3,
    "dropout": 0.3, "resid_pdrop": 0.3, "embd_pdrop": 0.3, "attn_pdrop": 0.3, "type_vocab_size": 3, "num_key_value_heads": 4, "n_inner": 64,
    "dtype": "bfloat16",
    "architectures": None, "id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0, "b": 1}, "transformers_version": "4.0", "_name_or_path": "x"}
LATER = {"is_encoder_decoder", "chunk_size_feed_forward", "add_cross_attention", "output_attentions"}
SIZES = {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings", "n_positions",
         "n_embd", "n_layer", "n_head", "dim", "n_layers", "n_heads", "hidden_dim", "head_dim", "model_type"}


def other_config(model, key):
    """The model's settings with another value under `key`."""
    value = OTHER_VALUES[key]
    if key == "tie_word_embeddings":
        value = not model.config(**model.settings).tie_word_embeddings
    if key == "layer_types":
        value = ["full_attention"] * model.settings["num_hidden_layers"]
    return model.settings | {key: value}


@pytest.mark.parametrize("model", [FAMILIES[i] for i in (0, 2, 3, 4, 6)], ids=str)  # the others differ by sizes, and are compared where all models are
def test_each_value_of_a_config_gives_the_logits_of_transformers_or_is_refused(probe, tmp_path, model):
    refused, fields = set(), model.fields()
    fields.pop("token_type_ids", None)
    for key in sorted(set(model.config(**model.settings).to_dict()) - SIZES):
        folder = tmp_path / key
        settings = other_config(model, key)
        if key in LATER:  # transformers makes no such model, or does not write the key
            settings = model.settings
        torch.manual_seed(3)
        peer = model.kind(model.config(**settings)).float().eval()
        with torch.no_grad():
            for parameter in peer.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        peer.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text())
        if key in LATER:
            config[key] = OTHER_VALUES[key]
        (folder / "config.json").write_text(json.dumps(config))
        recipe = write_recipe(tmp_path, f"{{type: {model.type}, pretrained: {folder}}}", fields | {"labels": torch.zeros(4).long()}, loss=OF_THE_OUTPUT)
        try:
            reply, results = probe.ask("model", named("input", fields | {"labels": torch.zeros(4).long()}), recipe=recipe, overrides=[])
        except ProbeError as error:
            name = "rope_type" if key == "rope_parameters" else key
            assert name in str(error), (key, error)
            refused.add(key)
            continue
        assert not reply["notes"] and (key == "tie_word_embeddings" or not reply["passed_over"]), (key, reply)
        per_token = results["output.0"].dim() == 3
        assert_close(results["output.0"], expected_of(peer, fields), fields["attention_mask"] if per_token else None)
    assert refused <= {"is_encoder_decoder", "add_cross_attention", "is_decoder", "scale_attn_weights", "scale_attn_by_inverse_layer_idx",
                       "sinusoidal_pos_embds", "rope_parameters"}


@pytest.mark.parametrize("key, value, said", [
    ("quantization_config", {"quant_method": "bitsandbytes", "load_in_4bit": True}, "quantized (bitsandbytes), which cannot be read"),
    ("compression_config", {"format": "int8"}, "quantized, which cannot be read"),
    ("pruned_heads", {"0": [1]}, "heads that were taken out"), ("per_layer_config", {"0": {"hidden_size": 8}}, "layers of different sizes")])
def test_what_would_change_numbers_and_cannot_be_had_is_refused(probe, tmp_path, key, value, said):
    GPT.saved(tmp_path / "peer")
    path = tmp_path / "peer" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    layers = f"{{type: GPT2LMHeadModel, pretrained: {tmp_path}/peer}}"
    with pytest.raises(ProbeError) as error:
        probe.ask("model", recipe=write_recipe(tmp_path, layers, GPT.fields() | {"labels": torch.zeros(4).long()}, loss=OF_THE_OUTPUT), overrides=[])
    assert f"{path}: {key}: " in str(error.value) and said in str(error.value)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_weights_of_a_quantized_model_are_refused_though_no_key_says_so(probe, tmp_path, dtype):
    import safetensors.torch
    GPT.saved(tmp_path / "peer")
    path = tmp_path / "peer" / "model.safetensors"
    state = safetensors.torch.load_file(path)
    name = "transformer.h.0.mlp.c_fc.weight"
    safetensors.torch.save_file(state | {name: state[name].to(dtype)}, path)
    layers = f"{{type: GPT2LMHeadModel, pretrained: {tmp_path}/peer}}"
    with pytest.raises(ProbeError, match=f"{name} is of .*, as in a quantized model"):
        probe.ask("model", recipe=write_recipe(tmp_path, layers, GPT.fields() | {"labels": torch.zeros(4).long()}, loss=OF_THE_OUTPUT), overrides=[])


def test_gpt2_knows_its_sizes_by_the_names_of_other_families(probe, tmp_path):
    peer = GPT.saved(tmp_path / "peer")
    path = tmp_path / "peer" / "config.json"
    config = json.loads(path.read_text())
    for alias, key in transformers.GPT2Config.attribute_map.items():
        config[alias] = config.pop(key)
    path.write_text(json.dumps(config))
    fields = GPT.fields()
    recipe = write_recipe(tmp_path, f"{{type: GPT2LMHeadModel, pretrained: {tmp_path}/peer}}", fields | {"labels": torch.zeros(4).long()}, loss=OF_THE_OUTPUT)
    reply, results = probe.ask("model", named("input", fields | {"labels": torch.zeros(4).long()}), recipe=recipe, overrides=[])
    assert not reply["notes"]
    assert_close(results["output.0"], expected_of(peer, fields), fields["attention_mask"])


# --- generation_config.json

# How each key of GenerationConfig is met here, with a value that is not neutral.
READ = {
    "max_new_tokens": 4, "max_length": 15, "min_length": 16, "min_new_tokens": 12, "do_sample": False, "eos_token_id": [97, 98], "repetition_penalty": 1.7,
    "no_repeat_ngram_size": 2, "bad_words_ids": "bad", "sequence_bias": "bias", "suppress_tokens": "first", "begin_suppress_tokens": "first",
    "forced_bos_token_id": 7, "forced_eos_token_id": [5, 9], "exponential_decay_length_penalty": [2, 1.5], "stop_strings": None, "num_return_sequences": None}
DRAWN = {"temperature": 0.6, "top_k": 5, "top_p": 0.4, "min_p": 0.3, "top_h": 0.4, "typical_p": 0.3, "epsilon_cutoff": 0.02, "eta_cutoff": 0.1}
MEANS_NOTHING = {
    "early_stopping": True, "length_penalty": 0.3, "use_cache": False, "cache_config": {}, "max_cache_len": 64, "low_memory": True, "prefill_chunk_size": 4,
    "compile_config": {}, "disable_compile": True, "continuous_batching_config": {}, "is_assistant": True, "num_assistant_tokens": 3,
    "num_assistant_tokens_schedule": "heuristic", "assistant_confidence_threshold": 0.1, "assistant_early_exit": 1, "assistant_lookbehind": 3,
    "target_lookbehind": 3, "assistant_ensemble_weight": 0.4, "speculation_type": "x", "max_matching_ngram_size": 4, "output_attentions": True,
    "output_hidden_states": True, "output_logits": True, "output_scores": True, "return_dict_in_generate": True, "bos_token_id": 3, "pad_token_id": 3,
    "decoder_start_token_id": 3, "_from_model_config": True, "transformers_version": "4.0", "renormalize_logits": True, "remove_invalid_values": True,
    "cache_implementation": "static"}
REFUSED = {
    "num_beams": 3, "num_beam_groups": 2, "diversity_penalty": 0.5, "penalty_alpha": 0.6, "constraints": [1], "force_words_ids": [[3]], "dola_layers": "low",
    "prompt_lookup_num_tokens": 3, "use_mtp": True, "token_healing": True, "guidance_scale": 1.5, "watermarking_config": {"bias": 2.5}, "max_time": 10.0,
    "encoder_repetition_penalty": 1.2, "encoder_no_repeat_ngram_size": 2}


def test_each_key_of_a_generation_config_is_accounted_for():
    known = set(transformers.GenerationConfig().to_dict()) | set(transformers.GenerationConfig._get_default_generation_params())
    tables = [set(table) for table in (READ, DRAWN, MEANS_NOTHING, REFUSED)]
    assert set().union(*tables) == known and sum(map(len, tables)) == len(known)


@pytest.fixture(scope="module")
def going_on(tmp_path_factory):
    """A model, and a function that gives the tokens with which our program goes on from a folder with these settings."""
    folder = tmp_path_factory.mktemp("generation")
    peer = GPT_LONG.saved(folder / "peer")
    text = prompts([6])[0]

    def go_on(config, text=text, *options):
        (folder / "peer" / "generation_config.json").write_text(json.dumps(config))
        (line,) = generated(folder, folder / "peer", [text], *options)
        return line["tokens"]

    return peer, text, greedy(peer, text, 10), go_on


def by_transformers(peer, text, config):
    generation = transformers.GenerationConfig(**({"pad_token_id": 0} | config))
    with torch.no_grad():
        ids = peer.generate(torch.tensor([text]), attention_mask=torch.ones(1, len(text)).long(), generation_config=generation)[0, len(text):].tolist()
    ends = config.get("eos_token_id") or []
    return ids[:-1] if ids and ids[-1] in ends else ids


@pytest.mark.parametrize("key", sorted(key for key, value in READ.items() if value is not None))
def test_tokens_are_those_of_transformers_with_each_key(going_on, key):
    peer, text, tokens, go_on = going_on
    value = READ[key]
    if value == "bad":
        value = [[tokens[0]], tokens[1:3], [tokens[6]]]
    elif value == "bias":
        value = [[[tokens[0]], -90.0], [[tokens[2], tokens[3]], -4.0], [[88], 2.0]]
    elif value == "first":
        value = [tokens[0], 5]
    config = {"max_new_tokens": 10, "eos_token_id": [tokens[6]]}
    if key in ("no_repeat_ngram_size", "forced_eos_token_id"):
        config["eos_token_id"] = [97]
    if key == "eos_token_id":
        value = [97, tokens[4]]
    if key == "max_length":
        config.pop("max_new_tokens")
    if key == "forced_bos_token_id":
        text = text[:1]
    expected = by_transformers(peer, text, config | {key: value})
    assert go_on(config | {key: value}, text) == expected
    if key != "do_sample":
        assert expected != by_transformers(peer, text, config if "max_new_tokens" in config else {"max_new_tokens": 10})


def test_keys_that_mean_nothing_change_no_token_and_unknown_ones_are_named(going_on, tmp_path):
    peer, text, tokens, go_on = going_on
    assert go_on({"max_new_tokens": 10} | MEANS_NOTHING | dict.fromkeys(REFUSED)) == tokens
    neutral = transformers.GenerationConfig._get_default_generation_params()
    assert go_on(neutral | {"max_new_tokens": 10, "guidance_scale": 1.0, "use_mtp": False}) == tokens
    folder = tmp_path / "peer"
    peer.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"max_new_tokens": 2, "frobnicate": 3, "nothing": None}))
    (tmp_path / "prompts.jsonl").write_text('{"input_ids": [3]}\n')
    done = subprocess.run([CALLED, "generate", folder, "--prompts", tmp_path / "prompts.jsonl", "--output", tmp_path / "out.jsonl"],
                          capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == [f"{folder}/generation_config.json: {UNKNOWN}"]


@pytest.mark.parametrize("key", sorted(REFUSED))
def test_what_would_change_tokens_and_cannot_be_had_is_refused(going_on, key):
    _, text, _, go_on = going_on
    with pytest.raises(AssertionError, match=rf"generation_config.json: {key}: .* is not supported"):
        go_on({key: REFUSED[key]})


@pytest.mark.parametrize("key", sorted(DRAWN))
def test_scores_are_those_of_transformers_with_each_key(probe, going_on, tmp_path, key):
    peer = going_on[0]
    config = {"do_sample": True, "max_new_tokens": 10, "top_k": 0, key: DRAWN[key]}
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    prepared, _ = peer._prepare_generation_config(transformers.GenerationConfig(**config))
    peer._prepare_special_tokens(prepared, True, device="cpu")
    text = prompts([12])[0]
    processors = peer._get_logits_processor(generation_config=prepared, input_ids_seq_length=len(text), device="cpu")
    for seed in range(4):
        logits = 3 * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed))
        expected = processors(torch.tensor([text]), logits[None].clone())[0]
        assert not torch.equal(expected, logits)
        _, results = probe.ask("next_scores", named("input", {"logits": logits}), text=text, folder=str(tmp_path), options={"do_sample": True})
        torch.testing.assert_close(results["next.scores"], expected, rtol=1e-6, atol=1e-6)


def test_several_texts_and_a_length_that_the_prompt_fills(going_on, tmp_path):
    peer, text, tokens, go_on = going_on
    folder = tmp_path / "peer"
    peer.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, "top_k": 1, "num_return_sequences": 3, "max_new_tokens": 4}))
    assert [line["tokens"] for line in generated(tmp_path, folder, [text])] == [tokens[:4]] * 3
    assert len(generated(tmp_path, folder, [text], "--num-samples", 2)) == 2
    for config, said in [({"num_return_sequences": 3}, "num_return_sequences: expected 1"), ({"max_length": 6}, "says max_length: 6 for the whole text"),
                         ({"bad_words_ids": [[3, 99]]}, "bad_words_ids: 99 is not a token"), ({"temperature": -1}, "temperature: expected a number"),
                         ({"do_sample": True, "temperature": 0.0}, "temperature: expected a number greater than 0")]:
        with pytest.raises(AssertionError, match=said):
            go_on(config)
    assert go_on({"max_length": 6}, text, "--max-new-tokens", 4) == tokens[:4]


def test_a_temperature_of_zero_counts_only_where_tokens_are_drawn(going_on):
    _, text, tokens, go_on = going_on
    config = {"do_sample": False, "temperature": 0.0, "max_new_tokens": 10}
    assert go_on(config) == tokens
    assert go_on(config, text, "--temperature", 0.01) == tokens
    with pytest.raises(AssertionError, match="tokens are drawn, but the temperature is 0"):
        go_on(config, text, "--top-k", 3)


def test_older_models_keep_the_same_keys_in_config_json(going_on, tmp_path):
    peer, text, tokens, _ = going_on
    folder = tmp_path / "peer"
    peer.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_new_tokens": 10, "repetition_penalty": 1.7, "eos_token_id": 98}))
    expected = by_transformers(peer, text, {"max_new_tokens": 10, "repetition_penalty": 1.7, "eos_token_id": [98]})
    assert expected != tokens
    assert generated(tmp_path, folder, [text])[0]["tokens"] == expected


# --- tokenizer_config.json

CLASSES = [transformers.BertTokenizer, transformers.DistilBertTokenizer, transformers.GPT2Tokenizer, transformers.RobertaTokenizer, transformers.LlamaTokenizer,
           transformers.Qwen2Tokenizer]
HARMLESS = {"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder": {}, "extra_special_tokens": [], "model_specific_special_tokens": {},
            "additional_special_tokens": [], "truncation_side": "right", "padding_side": "right", "split_special_tokens": False, "never_split": None}


def keys_of_tokenizers():
    base = transformers.PreTrainedTokenizerBase
    fast = inspect.getmodule(transformers.PreTrainedTokenizerFast)
    sources = [inspect.getsource(base.__init__), inspect.getsource(base._from_pretrained), inspect.getsource(fast.TokenizersBackend.__init__)]
    keys = set(base.SPECIAL_TOKENS_ATTRIBUTES)
    for source in sources:
        keys |= set(re.findall(r'(?<!local_)(?:init_)?kwargs(?:\.pop|\.get|\.setdefault)\(\s*"(\w+)"', source))
        keys |= set(re.findall(r'(?:init_)?kwargs\["(\w+)"\]', source))
    for kind in CLASSES:
        keys |= set(inspect.signature(kind.__init__).parameters)
    # What Python hands on between its own functions, never written to a file.
    inner = {"self", "args", "kwargs", "tokenizer", "tokenizer_object", "tokenizer_padding", "tokenizer_truncation", "post_processor", "gguf_file",
             "fix_mistral_regex", "_json_padding", "_json_truncation", "_spm_precompiled_charsmap", "tokenizer_config_file", "chat_template_file"}
    return keys - inner


@pytest.fixture(scope="module")
def with_tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer = tokenizer_kinds.gpt2(WORDS)
    GPT_LONG.saved(folder, vocab_size=tokenizer.get_vocab_size() + 4)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_each_key_of_a_tokenizer_config_is_accounted_for(with_tokenizer):
    keys = keys_of_tokenizers()
    assert {"truncation_side", "model_max_length", "pad_token", "add_prefix_space", "do_lower_case"} <= keys
    config = {key: HARMLESS.get(key, "<|endoftext|>" if key.endswith("_token") and not key.startswith("add_") else "x") for key in keys}
    path = with_tokenizer / "tokenizer_config.json"
    path.write_text(json.dumps(config | {"frobnicate": 1, "nothing": None}))
    done = subprocess.run([CALLED, "generate", with_tokenizer, "--prompt", "to be", "--max-new-tokens", "1"], capture_output=True, text=True, check=False)
    path.unlink()
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [f"{path}: {UNKNOWN}"]


@pytest.mark.parametrize("config, said", [
    ({"split_special_tokens": True}, "split_special_tokens: special tokens that are read as ordinary text are not available"),
    ({"truncation_side": "middle"}, "truncation_side: expected left or right"), ({"padding_side": 3}, "padding_side: expected a string"),
    ({"never_split": ["a"]}, "never_split: words that are never split")])
def test_settings_of_a_tokenizer_that_cannot_be_had_are_refused(probe, tmp_path, config, said):
    tokenizer_kinds.gpt2(WORDS).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ProbeError, match=f"tokenizer_config.json: {said}"):
        Encoded(probe, tmp_path, ["a"])


@pytest.mark.parametrize("sides", [{"truncation_side": "left"}, {"padding_side": "left"}, {"truncation_side": "left", "padding_side": "left"},
                                   "of tokenizer.json"], ids=str)
def test_texts_are_cut_and_filled_on_the_side_that_the_files_say(probe, tmp_path, sides):
    tokenizer = tokenizer_kinds.bert_cased(WORDS)
    if sides == "of tokenizer.json":
        tokenizer.enable_truncation(512, direction="left")
        tokenizer.enable_padding(direction="left", pad_token="[PAD]", pad_id=tokenizer.token_to_id("[PAD]"))
        sides = {}
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    roles = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(roles | sides))
    texts = ["to be or not to be", "that", "the question is: to be, that is"]
    (tmp_path / "texts.csv").write_text("text,label\n" + "".join(f'"{text}",a\n' for text in texts))
    _, results = probe.ask("dataset", spec={"type": "TextClassification", "path": str(tmp_path / "texts.csv"), "tokenizer": str(tmp_path), "max_length": 6},
                           learnt={"classes": ["a"]})
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    expected = peer(texts, truncation=True, max_length=6, padding=True, return_tensors="pt")
    assert results["output.input_ids"].tolist() == expected["input_ids"].tolist()
    assert results["output.attention_mask"].tolist() == expected["attention_mask"].tolist()


PLACES = {
    "tokenizer_config, newer": {"tokenizer_config.json": {"extra_special_tokens": ["<a>", "<b>"]}},
    "tokenizer_config, older": {"tokenizer_config.json": {"additional_special_tokens": ["<a>", {"__type": "AddedToken", "content": "<b>", "lstrip": True, "rstrip": False, "single_word": False,
                                                                                                "normalized": False, "special": True}]}},
    "named": {"tokenizer_config.json": {"extra_special_tokens": {"image_token": "<a>"}, "pad_token": "<b>"}},
    "a key of its own": {"tokenizer_config.json": {"audio_token": "<a>", "sep_token": "<b>"}},
    "a decoder": {"tokenizer_config.json": {"added_tokens_decoder": {
        "NEXT": {"content": "<a>", "special": True}, "NEXT+1": {"content": "<b>", "special": False, "normalized": False}}}},
    "special_tokens_map": {"tokenizer_config.json": {}, "special_tokens_map.json": {"pad_token": "<a>", "additional_special_tokens": ["<b>"]}},
    "special_tokens_map that is ignored": {
        "tokenizer_config.json": {"added_tokens_decoder": {}, "pad_token": "<b>"}, "special_tokens_map.json": {"pad_token": "<a>"}},
    "added_tokens.json": {"tokenizer_config.json": {"pad_token": "<b>"}, "added_tokens.json": {"<a>": "NEXT", "<b>": "NEXT+1"}},
}


@pytest.mark.parametrize("place", PLACES)
def test_tokens_count_in_whichever_place_they_stand(probe, tmp_path, place):
    tokenizer = tokenizer_kinds.gpt2(WORDS)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    for name, content in PLACES[place].items():
        text = json.dumps(content if name != "tokenizer_config.json" else {"tokenizer_class": "PreTrainedTokenizerFast"} | content)
        for word, number in (("NEXT+1", size + 1), ("NEXT", size)):
            text = text.replace(f'"{word}":', f'"{number}":').replace(f'"{word}"', str(number))
        (tmp_path / name).write_text(text)
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = ["to be<a>or not <b>to be", "<b><a>"]
    ours = Encoded(probe, tmp_path, texts)
    assert ours.reply["vocab_size"] == len(peer)
    expected = [peer(text)["input_ids"] for text in texts]
    assert ours.ids == expected
    assert decoded(probe, tmp_path, expected) == [peer.decode(ids, skip_special_tokens=True) for ids in expected]
    roles = {role: getattr(peer, f"{role}_token_id") for role in ("pad", "bos", "eos", "unk", "sep", "cls", "mask")}
    assert ours.reply["special_ids"] == {role: number for role, number in roles.items() if number is not None}


def test_an_id_that_a_token_would_not_get_is_refused(probe, tmp_path):
    tokenizer = tokenizer_kinds.gpt2(WORDS)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<a>": 5000}))
    with pytest.raises(ProbeError, match='"<a>" is to have the id 5000, but would get'):
        Encoded(probe, tmp_path, ["a"])


def test_blanks_before_punctuation_go_where_the_files_say_so(probe, tmp_path):
    tokenizer = tokenizer_kinds.word_level(WORDS)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for cleans in (True, False):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"clean_up_tokenization_spaces": cleans, "tokenizer_class": "PreTrainedTokenizerFast"}))
        peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
        ids = tokenizer.encode("to be , or not to be : that ?").ids
        assert decoded(probe, tmp_path, [ids])[0] == peer.decode(ids, skip_special_tokens=True)
