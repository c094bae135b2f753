"""`trainrun generate` against transformers' generate and nanoGPT's loop: the tokens of a greedy text, the logits with and
without the key-value cache, what the logits become before a token is drawn, and texts that are longer than the model."""

import json
import pathlib

import numpy as np
import pytest
import safetensors.torch
import torch

import reference
from language_model_parity_test import NanoGPT
from probe import ProbeError, named

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")

import tokenizer_kinds  # noqa: E402
from generating import (  # noqa: E402
    BLOCKS, CHARACTERS, FALLING_BACK, GPT_LONG, GROUPED, LENGTHS, LETTERS, MODELS, NEW, WRITTEN, characters_recipe,
    generated, greedy, prompts, trainrun,
)
from language_models import BERT, GPT, VOCABULARY  # noqa: E402

TOLERANCE = 1e-5


# --- Tokens


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_greedy_tokens_are_those_of_transformers(tmp_path, model):
    """Together, padded to one length, as each alone; Mistral's window is smaller than the texts."""
    peer = model.saved(tmp_path / "peer")
    texts = prompts()
    expected = [greedy(peer, text) for text in texts]
    assert len(set(map(tuple, expected))) == len(texts)
    for options in ([], ["--batch-size", 1], ["--no-cache"]):
        lines = generated(tmp_path, tmp_path / "peer", texts, "--max-new-tokens", NEW, *options)
        assert [line["tokens"] for line in lines] == expected, options
        assert {line["finish"] for line in lines} == {"length"}


def test_texts_go_on_from_the_weights_of_a_training(tmp_path):
    """A run whose model reads an attention mask; greedy tokens are those of the exported model in transformers."""
    GPT_LONG.saved(tmp_path / "peer")
    fields = GPT_LONG.fields()
    fields["labels"] = fields["input_ids"]
    np.savez(tmp_path / "data.npz", **{name: tensor.numpy() for name, tensor in fields.items()})
    (tmp_path / "recipe.yaml").write_text(f"""
version: 1
name: language
model: {{layers: [{{type: GPT2LMHeadModel, pretrained: {tmp_path}/peer}}]}}
loss: {{type: CrossEntropyLoss, class_dim: -1}}
dataset: {{train: {{type: TensorFile, path: {tmp_path}/data.npz, target: labels}}}}
dataloader: {{batch_size: 2}}
optimizer: {{type: AdamW, lr: 1e-2}}
training: {{max_steps: 3}}
""")
    reference.run_trainrun(str(tmp_path / "recipe.yaml"), tmp_path / "run")
    trainrun("export", tmp_path / "run", "--format", "huggingface", "--output", tmp_path / "trained")
    peer = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "trained").eval()
    texts = prompts()
    lines = generated(tmp_path, tmp_path / "run", texts, "--max-new-tokens", 20)
    assert [line["tokens"] for line in lines] == [greedy(peer, text, 20) for text in texts]


# --- Logits


def logits_of(probe, use_cache, texts, following, **model):
    reply, results = probe.ask("next_logits", texts=texts, following=following, use_cache=use_cache, **model)
    return reply["undecodable"], [results[f"logits.{i}"] for i in range(len(results))]


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=TOLERANCE, atol=TOLERANCE * max(1, expected.abs().max().item()))


def write_blocks(folder, positions, layers):
    path = folder / "blocks.yaml"
    path.write_text(BLOCKS.replace("POSITIONS", positions).replace("LAYERS", layers))
    return {"recipe": str(path)}


@pytest.mark.parametrize("model", [*MODELS, *WRITTEN], ids=str)
def test_logits_with_the_cache_are_those_without(probe, tmp_path, model):
    if isinstance(model, str):
        of_model = write_blocks(tmp_path, *WRITTEN[model])
    else:
        peer = model.saved(tmp_path / "peer")
        of_model = {"folder": str(tmp_path / "peer")}
    texts, following = prompts(), prompts([20] * len(LENGTHS))
    undecodable, with_cache = logits_of(probe, True, texts, following, **of_model)
    _, without = logits_of(probe, False, texts, following, **of_model)
    assert undecodable is None
    assert len(with_cache) == len(without) == 21
    for found, expected in zip(with_cache, without, strict=True):
        close(found, expected)
    for row, (text, more) in enumerate(zip(texts, following, strict=True)):
        _, alone = logits_of(probe, True, [text], [more], **of_model)
        for found, expected in zip(alone, with_cache, strict=True):
            close(found[0], expected[row])
        if not isinstance(model, str):
            with torch.no_grad():
                whole = peer(torch.tensor([text + more])).logits[0, len(text) - 1:]
            close(torch.stack([logits[row] for logits in with_cache]), whole)


@pytest.mark.parametrize("model", FALLING_BACK)
def test_a_model_that_cannot_go_on_computes_the_whole_text_anew(probe, tmp_path, model):
    *layers, culprit = FALLING_BACK[model]
    of_model = write_blocks(tmp_path, *layers)
    texts, following = prompts(), prompts([5] * len(LENGTHS))
    undecodable, found = logits_of(probe, True, texts, following, **of_model)
    assert undecodable == f"model.layers[2]: {culprit}"
    for row, (text, more) in enumerate(zip(texts, following, strict=True)):
        for step in range(6):
            _, alone = logits_of(probe, False, [text + more[:step]], [[]], **of_model)
            close(found[step][row], alone[0][0])


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_text_longer_than_the_model_is_seen_by_its_end(probe, tmp_path, use_cache):
    """As nanoGPT has it; 40 positions."""
    peer = GPT.saved(tmp_path / "peer")
    texts, following = prompts([50, 30, 38]), prompts([6] * 3)
    _, found = logits_of(probe, use_cache, texts, following, folder=str(tmp_path / "peer"))
    for row, (text, more) in enumerate(zip(texts, following, strict=True)):
        for step in range(7):
            with torch.no_grad():
                expected = peer(torch.tensor([(text + more[:step])[-40:]])).logits[0, -1]
            close(found[step][row], expected)


# --- What is drawn


@pytest.mark.parametrize("options", [
    {"temperature": 0.7}, {"top_k": 5}, {"top_k": 1}, {"top_k": 0}, {"top_p": 0.9}, {"top_p": 0.05}, {"repetition_penalty": 1.3},
    {"temperature": 1.8, "top_k": 20, "top_p": 0.7, "repetition_penalty": 0.8}, {"temperature": 0.2, "top_k": 0, "top_p": 0.99}],
    ids=str)
def test_scores_are_those_of_transformers_processors(probe, options):
    text = prompts([12])[0]
    settings = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, "repetition_penalty": 1.0} | options
    processors = transformers.LogitsProcessorList()
    if settings["repetition_penalty"] != 1:
        processors.append(transformers.RepetitionPenaltyLogitsProcessor(settings["repetition_penalty"]))
    processors.append(transformers.TemperatureLogitsWarper(settings["temperature"]))
    if settings["top_k"]:
        processors.append(transformers.TopKLogitsWarper(settings["top_k"]))
    if settings["top_p"] < 1:
        processors.append(transformers.TopPLogitsWarper(settings["top_p"]))
    for seed in range(5):
        logits = 3 * torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed))
        expected = processors(torch.tensor([text]), logits[None].clone())[0]
        probabilities = expected.double().softmax(0)
        for uniform in (0.0, 0.3, 0.77, 0.9999999):
            reply, results = probe.ask("next_scores", named("input", {"logits": logits}), text=text, options=options | {"do_sample": True}, uniform=uniform)
            torch.testing.assert_close(results["next.scores"], expected, rtol=1e-6, atol=1e-6)
            assert reply["token"] == (probabilities.cumsum(0) > uniform * probabilities.sum()).nonzero()[0].item()
            assert probabilities[reply["token"]] > 0
        reply, results = probe.ask("next_scores", named("input", {"logits": logits}), text=text, options=options | {"do_sample": False})
        penalized = processors[0](torch.tensor([text]), logits[None].clone())[0] if settings["repetition_penalty"] != 1 else logits
        torch.testing.assert_close(results["next.scores"], penalized)
        assert reply["token"] == penalized.argmax().item()


def test_a_text_depends_on_its_prompt_seed_and_sample_alone(tmp_path):
    GROUPED.saved(tmp_path / "peer")
    texts = prompts()

    def drawn(texts, *options):
        lines = generated(tmp_path, tmp_path / "peer", texts, "--temperature", 1.5, "--max-new-tokens", 12, "--num-samples", 3, *options)
        return [line["tokens"] for line in lines]

    all_at_once = drawn(texts)
    assert len(set(map(tuple, all_at_once))) == 3 * len(texts)
    assert drawn(texts) == all_at_once
    assert drawn(texts, "--batch-size", 1) == all_at_once
    assert drawn(texts[2:3]) == all_at_once[6:9]
    assert drawn(texts, "--seed", 1) != all_at_once


def test_generation_config_holds_where_no_option_says_otherwise(tmp_path):
    peer = GROUPED.saved(tmp_path / "peer")
    text = prompts([6])[0]
    tokens = greedy(peer, text, 20)
    folder = tmp_path / "peer"

    def go_on(config, *options):
        (folder / "generation_config.json").write_text(json.dumps(config))
        return generated(tmp_path, folder, [text], *options)[0]

    assert go_on({"max_new_tokens": 7})["tokens"] == tokens[:7]
    assert go_on({"do_sample": True, "top_k": 1, "max_new_tokens": 20})["tokens"] == tokens
    assert go_on({"do_sample": True, "temperature": 9.0, "top_k": 0}, "--max-new-tokens", 20)["tokens"] != tokens
    assert go_on({"do_sample": True, "temperature": 9.0}, "--temperature", 0, "--max-new-tokens", 20)["tokens"] == tokens
    ended = go_on({"eos_token_id": [98, tokens[4]]}, "--max-new-tokens", 20)
    assert ended["tokens"] == tokens[:tokens.index(tokens[4])] and ended["finish"] == "end"
    with torch.no_grad():
        expected = peer.generate(torch.tensor([text]), do_sample=False, max_new_tokens=20, repetition_penalty=1.4, pad_token_id=0)[0, 6:].tolist()
    assert expected != tokens
    assert go_on({"repetition_penalty": 1.4}, "--max-new-tokens", 20)["tokens"] == expected
    assert "generation_config.json: top_p: expected a number" in failed(go_on, {"top_p": 1.5})
    assert "num_beams: 4 is not supported" in failed(go_on, {"num_beams": 4})


def failed(function, *arguments):
    with pytest.raises(AssertionError) as error:
        function(*arguments)
    return str(error.value)


# --- Texts


@pytest.fixture(scope="module")
def with_tokenizer(tmp_path_factory):
    """A GPT-2 with a byte-level tokenizer, as a folder."""
    folder = tmp_path_factory.mktemp("texts")
    tokenizer = tokenizer_kinds.gpt2(["to be or not to be, that is the question: \u00fcber \u4f60\u597d"] * 3)
    peer = GPT_LONG.saved(folder, vocab_size=tokenizer.get_vocab_size())
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder, peer, tokenizer


def test_texts_are_printed_as_tokens_come_and_written_as_lines(with_tokenizer, tmp_path):
    folder, peer, tokenizer = with_tokenizer
    texts = ["to be", "\u00fcber", "that is the question: to be"]
    expected = [tokenizer.decode(greedy(peer, tokenizer.encode(text).ids, 30)) for text in texts]
    options = ["--max-new-tokens", 30]
    assert trainrun("generate", folder, "--prompt", texts[0], *options) == texts[0] + expected[0] + "\n"
    assert trainrun("generate", folder, *options, stdin=texts[2] + "\n") == texts[2] + expected[2] + "\n"
    several = trainrun("generate", folder, "--prompt", texts[0], "--prompt", texts[1], *options)
    assert several == f"{texts[0]}{expected[0]}\n---------------\n{texts[1]}{expected[1]}\n"
    (tmp_path / "prompts.txt").write_text("\n".join(texts))
    trainrun("generate", folder, "--prompts", tmp_path / "prompts.txt", "--output", tmp_path / "out.jsonl", *options)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(line["prompt"], line["text"]) for line in lines] == list(zip(texts, expected, strict=True))


def test_a_text_ends_before_a_stop(with_tokenizer):
    folder, peer, tokenizer = with_tokenizer
    text = tokenizer.decode(greedy(peer, tokenizer.encode("to be").ids, 30))
    for begin, size in ((5, 2), (9, 4), (0, 1)):
        stop = text[begin: begin + size]
        printed = trainrun("generate", folder, "--prompt", "to be", "--max-new-tokens", 30, "--stop", stop, "--stop", "never comes")
        assert printed == "to be" + text[: text.index(stop)] + "\n"


@pytest.fixture(scope="module")
def with_special_tokens(tmp_path_factory):
    """A GPT-2 that writes special tokens within ordinary ones."""
    folder = tmp_path_factory.mktemp("special")
    tokenizer = tokenizer_kinds.gpt2(["to be or not to be, that is the question"] * 3)
    size = tokenizer.get_vocab_size()
    peer = GPT_LONG.saved(folder, vocab_size=size)
    ids = greedy(peer, tokenizer.encode("to be").ids, 30)
    names = [tokenizer.id_to_token(ids[5]), tokenizer.id_to_token(ids[11])]
    assert ids.index(ids[5]) == 5 and ids.index(ids[11]) == 11
    content = json.loads(tokenizer.to_str())
    for number, (name, new) in enumerate(zip(names, ("<|user|>", "<|stop|>"), strict=True)):  # these two tokens are called otherwise, and special
        vocabulary = content["model"]["vocab"]
        vocabulary[new] = vocabulary.pop(name)
        content["model"]["merges"] = [merge for merge in content["model"]["merges"] if name not in (*merge, "".join(merge))]
        content["added_tokens"].append({"id": ids[(5, 11)[number]], "content": new, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                                        "special": True})
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder, transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json")), ids


def test_a_text_ends_before_a_special_token(with_special_tokens):
    folder, tokenizer, ids = with_special_tokens

    def text_of(count):
        return "to be" + tokenizer.decode(ids[:count], skip_special_tokens=True) + "\n"

    def go_on(*options):
        return trainrun("generate", folder, "--prompt", "to be", "--max-new-tokens", 30, *options)

    assert go_on() == text_of(30)
    assert go_on("--stop", "<|user|>") == text_of(5)
    assert go_on("--stop", "<|stop|>") == text_of(11)
    assert go_on("--stop", "<|stop|>", "--stop", "<|user|>") == text_of(5)
    before = tokenizer.decode(ids[4:5])
    assert go_on("--stop", before[-1] + "<|user|>") == text_of(5)[:-2] + "\n"  # of both kinds
    (folder / "generation_config.json").write_text(json.dumps({"stop_strings": ["<|user|>", "never comes"]}))
    assert go_on() == text_of(5)
    (folder / "generation_config.json").unlink()


@pytest.fixture(scope="module")
def characters(tmp_path_factory):
    """A run of nanoGPT's model, and that model."""
    folder = tmp_path_factory.mktemp("characters")
    reference.run_trainrun(characters_recipe(folder), folder / "run")
    peer = NanoGPT(layers=2, heads=4, size=32, context=16, vocabulary=27)
    saved = safetensors.torch.load_file(folder / "run/checkpoints/latest/model.safetensors")
    state = {}
    for name, ours in zip(peer.state_dict(), peer.state_for_recipe(), strict=True):
        state[name] = saved[ours] if ours in saved else saved["wte.weight"]
    peer.load_state_dict(state)
    return folder, peer.eval()


def nano_gpt_text(peer, text, count):
    """nanoGPT's generate, greedy."""
    alphabet = sorted(LETTERS)
    ids = torch.tensor([[alphabet.index(c) for c in text]])
    with torch.no_grad():
        for _ in range(count):
            ids = torch.cat([ids, peer(ids[:, -16:])[:, -1].argmax(-1, keepdim=True)], 1)
    return "".join(alphabet[i] for i in ids[0])


def test_a_run_of_characters_goes_on_as_nano_gpt_does(characters):
    folder, peer = characters
    for prompt in ("ab", "the text is longer than the context"):
        expected = nano_gpt_text(peer, prompt, 40)
        assert trainrun("generate", folder / "run", "--prompt", prompt, "--max-new-tokens", 40) == expected + "\n"
    assert trainrun("generate", folder / "run/checkpoints/latest", "--prompt", "ab", "--max-new-tokens", 40) == nano_gpt_text(peer, "ab", 40) + "\n"


@pytest.mark.parametrize("end", ["character", "word", "token"])
def test_a_text_ends_where_documents_of_the_data_do(tmp_path, end):
    """`end_of_document` of TextLM ends a text, which is not run past; with characters it may be any text."""
    mark = {"character": "#", "word": "##\n", "token": "<|endoftext|>"}[end]
    documents = ["".join(LETTERS[(start + step) % 5] for step in range(6)) for start in range(5)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents * 20))
    tokenizer = tokenizer_kinds.gpt2([" ".join(documents)] * 3)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    source = f"{{type: TextLM, path: {tmp_path}/texts.jsonl, tokenizer: {tmp_path / 'tokenizer.json' if end == 'token' else 'characters'}, block_size: 16, "
    recipe = CHARACTERS.replace("27", str(tokenizer.get_vocab_size() if end == "token" else 5 + len(set(mark))))
    begin = recipe.index("dataset:")
    recipe = recipe[:begin] + f"""dataset: {{train: {source}end_of_document: {json.dumps(mark)}}}}}
dataloader: {{batch_size: 16}}
optimizer: {{type: AdamW, lr: 1e-2}}
training: {{max_steps: 60}}
"""
    (tmp_path / "recipe.yaml").write_text(recipe)
    reference.run_trainrun(str(tmp_path / "recipe.yaml"), tmp_path / "run")
    trainrun("generate", tmp_path / "run", "--prompt", "ab", "--max-new-tokens", 40, "--output", tmp_path / "out.jsonl")
    line = json.loads((tmp_path / "out.jsonl").read_text())
    assert line["finish"] == ("stop" if end == "word" else "end") and mark not in line["text"] and len(line["tokens"]) < 40


# --- Errors


def test_what_cannot_go_on_is_said(characters, with_tokenizer, tmp_path):
    folder, _ = characters
    run = folder / "run"

    def error(*arguments, model=run):
        return trainrun("generate", model, *arguments, fails=True)

    assert "prompt 2 is empty" in error("--prompt", "a", "--prompt", "")
    assert "prompt 1: the character 'Z' (U+005A) does not occur in the training text" in error("--prompt", "aZ")
    (tmp_path / "prompts.txt").write_text("ab\n\ncd\n")
    assert "prompts.txt:2 is empty" in error("--prompts", tmp_path / "prompts.txt")
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "ab"}\n{"text": "ab"}\n')
    assert "prompts.jsonl:2: has no key 'prompt', 'messages' or 'input_ids'" in error("--prompts", tmp_path / "prompts.jsonl")
    (tmp_path / "prompts.jsonl").write_text('{"input_ids": [3, 27]}\n')
    assert "prompts.jsonl:1: 27 is not a token: the model has those from 0 to 26" in error("--prompts", tmp_path / "prompts.jsonl")
    assert "is neither a run's folder" in error("--prompt", "a", model=tmp_path)
    assert "--top-p" in error("--prompt", "a", "--top-p", 2)
    assert "--stop" in error("--prompt", "a", "--stop", "")
    assert "has no tokenizer" in error("--prompt", "a", model=saved_without_tokenizer(tmp_path))
    BERT.saved(tmp_path / "bert")
    assert "is not a language model: it gives [N, 3]" in error("--prompts", tmp_path / "prompts.jsonl", model=tmp_path / "bert")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"architectures": ["GPT5"]}')
    assert "config.json: the architecture GPT5 is not a registered model" in error("--prompt", "a", model=tmp_path / "other")
    larger, _, tokenizer = with_tokenizer
    smaller = saved_without_tokenizer(tmp_path)
    (smaller / "tokenizer.json").write_text((larger / "tokenizer.json").read_text())
    assert f"gives 99 logits for each token, but the tokenizer has {tokenizer.get_vocab_size()}" in error("--prompt", "a", model=smaller)


def saved_without_tokenizer(folder):
    if not (folder / "plain").exists():
        GPT.saved(folder / "plain")
    return folder / "plain"


def test_nan_logits_are_an_error(tmp_path):
    peer = GPT.make()
    with torch.no_grad():
        peer.transformer.wpe.weight[5].fill_(float("nan"))
    peer.save_pretrained(tmp_path / "peer")
    (tmp_path / "prompts.jsonl").write_text('{"input_ids": [3, 4]}\n')
    error = trainrun("generate", tmp_path / "peer", "--prompts", tmp_path / "prompts.jsonl", "--output", tmp_path / "out", fails=True)
    assert "the model's logits are NaN for token 5 after" in error
    assert not (tmp_path / "out").exists()


def test_a_model_whose_weights_are_not_all_there_is_refused(tmp_path):
    GROUPED.saved(tmp_path / "peer")
    weights = safetensors.torch.load_file(tmp_path / "peer" / "model.safetensors")
    del weights["lm_head.weight"]
    safetensors.torch.save_file(weights, tmp_path / "peer" / "model.safetensors", {"format": "pt"})
    assert "has no weights for lm_head.weight" in trainrun("generate", tmp_path / "peer", "--prompt", "a", fails=True)


def test_the_probe_refuses_a_model_that_reads_more_than_tokens(probe, tmp_path):
    path = write_blocks(tmp_path, "Identity", "{type: Linear, name: h, inputs: [wte], out_features: 32}")
    recipe = pathlib.Path(path["recipe"])
    recipe.write_text(recipe.read_text().replace("- {type: Linear, name: lm_head, out_features: 99}",
                                                 "- {type: Embedding, name: of_labels, inputs: [labels], num_embeddings: 99, embedding_dim: 32}\n"
                                                 "    - {type: Add, name: both, inputs: [h, of_labels]}\n    - {type: Linear, name: lm_head, out_features: 99}"))
    with pytest.raises(ProbeError, match="also reads 'labels', which a text that is generated does not have"):
        logits_of(probe, True, prompts(), prompts([1] * len(LENGTHS)), **path)
