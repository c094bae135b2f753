"""`trainrun export --format gguf`: files that the package gguf reads and that transformers opens, with the weights, the tokens and the template of the run."""

import json

import numpy
import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")
tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")
gguf = pytest.importorskip("gguf", reason="gguf is not installed: tools/setup --tests fetches it")

from chat_templates import CHATML  # noqa: E402
from generating import MISTRAL, trainrun  # noqa: E402
from language_models import LLAMA, LLAMA3, LLAMA_3, QWEN, QWEN_3, VOCABULARY, BertForMaskedLM, LlamaConfig, LlamaForCausalLM, MistralForCausalLM, bert, decoder  # noqa: E402

TEXT = "the cat sat on the mat, said 12 men; they'll see\n" * 8
SPECIAL = ["<pad>", "<|im_start|>", "<|im_end|>"]
LLAMA_3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PLAIN = decoder(LlamaForCausalLM, LlamaConfig, LLAMA)
MISTRAL_ALL = decoder(MistralForCausalLM, MISTRAL.config, LLAMA | {"sliding_window": None})
WIDE = decoder(QWEN_3.kind, QWEN_3.config, LLAMA | {"head_dim": 128}, "_wide")  # of a file of Qwen3's transformers takes no other
MODELS = [PLAIN, LLAMA_3, QWEN, WIDE, MISTRAL_ALL]
DTYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16, "bf16": gguf.GGMLQuantizationType.BF16,
          "q8_0": gguf.GGMLQuantizationType.Q8_0}


def save_tokenizer(folder, split=None):
    """Pairs of bytes, of which there are less than the model has rows."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    by_bytes = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    made.pre_tokenizer = by_bytes if split is None else tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Split(tokenizers.Regex(split), "isolated"), by_bytes])
    made.decoder = tokenizers.decoders.ByteLevel()
    made.train_from_iterator([TEXT], tokenizers.trainers.BpeTrainer(vocab_size=90, special_tokens=SPECIAL, show_progress=False))
    made.add_tokens(["mat,"])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": "<pad>", "eos_token": "<|im_end|>", "chat_template": CHATML}))


def trained(folder, model, split=None):
    model.saved(folder / "peer")
    save_tokenizer(folder / "peer", split)
    (folder / "text.txt").write_text(TEXT)
    recipe = {"version": 1, "name": "told", "model": {"layers": [{"type": model.type, "pretrained": str(folder / "peer")}]}, "loss": "CausalLMLoss",
              "dataset": {"train": {"type": "TextLM", "path": str(folder / "text.txt"), "tokenizer": str(folder / "peer"), "block_size": 16}},
              "dataloader": {"batch_size": 4}, "optimizer": {"type": "AdamW", "lr": 1e-3}, "training": {"max_steps": 3}, "output_dir": str(folder / "run")}
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    trainrun("--quiet", folder / "recipe.yaml")
    trainrun("export", folder / "run", "--format", "huggingface", "--output", folder / "out")


def exported(folder, dtype="f32"):
    (folder / dtype).mkdir()
    trainrun("export", folder / "run", "--format", "gguf", "--dtype", dtype, "--output", folder / dtype / "model.gguf")
    return gguf.GGUFReader(folder / dtype / "model.gguf")


def values_of(reader):
    return {name: field.contents() for name, field in reader.fields.items()}


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_transformers_opens_the_file_and_computes_the_same(model, tmp_path):
    trained(tmp_path, model)
    reader = exported(tmp_path)
    peer = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "f32", gguf_file="model.gguf").eval()
    state, expected = found.state_dict(), peer.state_dict()
    assert state.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(state[name], tensor, rtol=0, atol=0)
    values = values_of(reader)
    assert values["general.name"] == "told" and values[f"{values['general.architecture']}.block_count"] == 3
    rope = peer.config.rope_parameters
    assert values[f"{values['general.architecture']}.rope.freq_base"] == rope["rope_theta"]
    if rope["rope_type"] == "default":
        ids = model.fields()["input_ids"]
        with torch.no_grad():
            torch.testing.assert_close(found(ids).logits, peer(ids).logits)


def test_frequencies_of_llama_3_are_divided_as_transformers_does(tmp_path):
    trained(tmp_path, LLAMA_3, LLAMA_3_SPLIT)
    reader = exported(tmp_path)
    peer = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    plain = LLAMA3["rope_parameters"]["rope_theta"] ** -(torch.arange(0, 8, 2) / 8)
    [divisors] = [tensor.data for tensor in reader.tensors if tensor.name == "rope_freqs.weight"]
    torch.testing.assert_close(torch.from_numpy(divisors.copy()), plain / peer.model.rotary_emb.inv_freq)
    assert values_of(reader)["tokenizer.ggml.pre"] == "llama-bpe"


def test_yarn_is_said(tmp_path):
    trained(tmp_path, QWEN_3)
    values = values_of(exported(tmp_path))
    assert (values["qwen3.rope.scaling.type"], values["qwen3.rope.scaling.factor"], values["qwen3.rope.scaling.original_context_length"]) == ("yarn", 4.0, 16)


def test_every_type_of_weights_is_the_packages(tmp_path):
    trained(tmp_path, PLAIN)
    plain = {tensor.name: tensor.data for tensor in exported(tmp_path).tensors}
    for dtype, kind in list(DTYPES.items())[1:]:
        reader = exported(tmp_path, dtype)
        for tensor in reader.tensors:
            own = kind if plain[tensor.name].ndim == 2 and (dtype != "q8_0" or plain[tensor.name].shape[-1] % 32 == 0) else gguf.GGMLQuantizationType.F32
            if dtype == "q8_0" and plain[tensor.name].ndim == 2 and own != kind:
                own = gguf.GGMLQuantizationType.F16
            assert tensor.tensor_type == own, tensor.name
            numpy.testing.assert_array_equal(tensor.data.view(numpy.uint8), gguf.quants.quantize(plain[tensor.name], own).view(numpy.uint8), tensor.name)


def test_a_rest_that_does_not_divide_is_counted(tmp_path):
    trained(tmp_path, PLAIN)  # 48 features of a gate
    (tmp_path / "q8").mkdir()
    done = trainrun("export", tmp_path / "run", "--format", "gguf", "--dtype", "q8_0", "--output", tmp_path / "q8/model.gguf")
    assert "model.gguf" in done
    sizes = [tensor.tensor_type for tensor in gguf.GGUFReader(tmp_path / "q8/model.gguf").tensors]
    assert sizes.count(gguf.GGMLQuantizationType.F16) == 3, "ffn_down of three layers"


@pytest.mark.parametrize("split", [None, LLAMA_3_SPLIT], ids=["gpt2", "llama3"])
def test_tokens_and_template_come_along(split, tmp_path):
    trained(tmp_path, QWEN, split)
    values = values_of(exported(tmp_path))
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "out/tokenizer.json"))
    tokens, count = values["tokenizer.ggml.tokens"], peer.get_vocab_size()
    assert len(tokens) == VOCABULARY > count and tokens[:count] == [peer.id_to_token(i) for i in range(count)]
    kinds = dict(zip(tokens, values["tokenizer.ggml.token_type"], strict=True))
    assert [kinds[token] for token in SPECIAL] == [3, 3, 3] and kinds["mat,"] == 4
    assert set(values["tokenizer.ggml.token_type"][count:]) == {5}, "rows without a token are unused"
    written = json.loads((tmp_path / "out/tokenizer.json").read_text())["model"]["merges"]
    assert values["tokenizer.ggml.merges"] == [merge if isinstance(merge, str) else " ".join(merge) for merge in written]
    assert tokens[values["tokenizer.ggml.eos_token_id"]] == "<|im_end|>" and tokens[values["tokenizer.ggml.padding_token_id"]] == "<pad>"
    assert values["tokenizer.chat_template"] == CHATML and not values["tokenizer.ggml.add_bos_token"]
    found = transformers.AutoTokenizer.from_pretrained(tmp_path / "f32", gguf_file="model.gguf")
    for text in ["the cat said", "on the mat\nthey see 12"]:
        if split is None:  # transformers has one way to split for every file
            assert found(text, add_special_tokens=False)["input_ids"] == peer.encode(text).ids


def test_what_gguf_cannot_say_is_refused_with_a_way_out(tmp_path):
    trained(tmp_path, MISTRAL)
    error = trainrun("export", tmp_path / "run", "--format", "gguf", fails=True)
    assert "a window of the text" in error and "--format huggingface" in error
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    trained(tmp_path / "b", PLAIN, r"\p{L}+|\s")
    error = trainrun("export", tmp_path / "b/run", "--format", "gguf", "--output", tmp_path / "x.gguf", fails=True)
    assert "splits texts in a way that GGUF has no name for" in error and not (tmp_path / "x.gguf").exists()
    assert [path.name for path in tmp_path.iterdir() if "incomplete" in path.name] == []
    trained(tmp_path / "c", bert(BertForMaskedLM))
    error = trainrun("export", tmp_path / "c/run", "--format", "gguf", fails=True)
    assert "LlamaForCausalLM" in error and "the model is of bert" in error
    assert "--dtype is for --format gguf" in trainrun("export", tmp_path / "c/run", "--dtype", "f16", fails=True)
