"""Adapters against the package peft: initial values, trainings, folders in both directions, merged weights, resumes and ranks."""

import json
import pathlib
import subprocess
import warnings

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import reference
from probe import ProbeError, assert_same, named

from tests.program import CALLED

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")
peft = pytest.importorskip("peft", reason="peft is not installed: tools/setup --tests fetches it")

from adapter_cases import (  # noqa: E402
    CASES, ONE_OF_EACH, STEPS, Case, begun_by_peft, data_of, into_peft, logits_of, opened_by_peft, saved_by_peft,
    state_of, trained, write_recipe,
)
from language_models import BERT, LLAMA_3, QWEN  # noqa: E402

TOLERANCE = 1e-5


def program(folder: pathlib.Path, *arguments: str, code: int = 0) -> str:
    done = subprocess.run([CALLED, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def assert_near(actual: dict, expected: dict, tolerance=1e-4) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", CASES)
def test_a_training_gives_the_losses_and_the_weights_of_peft(probe, tmp_path, name):
    case = CASES[name]
    peer = case.make_peer(tmp_path / "base")
    recipe = write_recipe(tmp_path, case)
    _, results = probe.ask("model", recipe=recipe, overrides=[])
    begun = results.under("state")
    drawn = saved_by_peft(peer)
    into_peft(peer, begun)
    losses = trained(case, peer)

    lines, run = reference.run_trainrun(recipe, tmp_path / "run")

    found = reference.losses_of(lines)
    assert len(found) == STEPS and losses[16] < losses[0], "of the same batch"
    assert found == pytest.approx(losses, rel=TOLERANCE)
    state = state_of(run)
    own = saved_by_peft(peer)
    assert not any(torch.allclose(tensor, begun[key], rtol=1e-2, atol=1e-3) for key, tensor in own.items())
    assert {key: tensor.shape for key, tensor in own.items()} == {key: tensor.shape for key, tensor in drawn.items()}
    assert_near({key: state[key] for key in own}, own)
    frozen = [key for key in state if key not in own]
    assert_same({key: state[key] for key in frozen}, {key: begun[key] for key in frozen}, "frozen weights")
    optimizer = safetensors.torch.load_file(run / "checkpoints" / "latest" / "optimizer.safetensors")
    assert any(key.startswith(tuple(own)) for key in optimizer)
    assert not [key for key in optimizer if key.startswith(tuple(frozen)) and not key.startswith(tuple(own))]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.body, self.head = nn.Embedding(11, 6), nn.Linear(6, 9), nn.Linear(9, 3)


@pytest.mark.parametrize("type", ONE_OF_EACH)
def test_initial_values_are_those_that_peft_draws_from_the_same_seed(probe, tmp_path, type):
    target = ["body", "head"] if type != "LoRA" else ["words", "body", "head"]
    config = peft.IA3Config(target_modules=target, feedforward_modules=["head"]) if type == "IA3" else peft.LoraConfig(
        r=4, target_modules=target, use_dora=type == "DoRA")
    torch.manual_seed(6)
    peer = peft.get_peft_model(Net(), config)
    np.savez(tmp_path / "data.npz", ids=np.zeros((4, 5), np.int64), label=np.zeros(4, np.int64))
    recipe = tmp_path / "net.yaml"
    adapters = f"{{type: {type}, target: {json.dumps(target)}{', feedforward: [head]' if type == 'IA3' else ', r: 4'}}}"
    recipe.write_text(f"""
version: 1
name: net
seed: 6
model:
  layers:
    - {{type: Embedding, name: words, num_embeddings: 11, embedding_dim: 6}}
    - {{type: Linear, name: body, out_features: 9}}
    - {{type: Linear, name: head, out_features: 3}}
  adapters: {adapters}
loss: {{type: OutputLoss, inputs: [head]}}
dataset: {{train: {{type: TensorFile, path: {tmp_path / 'data.npz'}, target: label}}}}
dataloader: {{batch_size: 4}}
optimizer: {{type: SGD, lr: 0.1}}
training: {{max_steps: 1}}
""")
    _, results = probe.ask("model", recipe=str(recipe), overrides=[])
    state = results.under("state")
    expected = saved_by_peft(peer)
    assert_same({name: state[name] for name in expected}, {name: tensor.detach() for name, tensor in expected.items()}, "initial values")


@pytest.mark.parametrize("name", CASES)
def test_a_folder_of_peft_loads_and_goes_on_as_in_peft(probe, tmp_path, name):
    case = CASES[name]
    peer = begun_by_peft(case, tmp_path)
    recipe = write_recipe(tmp_path, case, f"{{type: {case.type}, weights: {tmp_path / 'adapter'}}}", steps=8)
    fields, labels = data_of(case.model)
    reply, results = probe.ask("model", named("input", fields | {"labels": labels}), recipe=recipe, overrides=[])
    assert not reply["passed_over"]
    expected = logits_of(peer, fields)
    torch.testing.assert_close(results["output.0"], expected, rtol=TOLERANCE, atol=TOLERANCE * max(1, expected.abs().max().item()))

    lines, run = reference.run_trainrun(recipe, tmp_path / "run")

    assert reference.losses_of(lines) == pytest.approx(trained(case, peer, steps=8), rel=TOLERANCE)
    state = state_of(run)
    own = saved_by_peft(peer)
    assert_near({key: state[key] for key in own}, own)


@pytest.mark.parametrize("name", CASES)
def test_peft_opens_what_is_exported_and_merged_weights_give_the_same_logits(probe, tmp_path, name):
    case = CASES[name]
    case.model.saved(tmp_path / "base")
    recipe = write_recipe(tmp_path, case, steps=6)
    _, run = reference.run_trainrun(recipe, tmp_path / "run")
    fields, labels = data_of(case.model)

    program(tmp_path, "export", "run", "--format", "peft")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        peer = opened_by_peft(case, tmp_path / "base", tmp_path / "adapter")
    assert not [str(w.message) for w in warned if "adapter keys" in str(w.message)]
    own = saved_by_peft(peer)
    state = state_of(run)
    assert_same({key: state[key] for key in own}, own, "adapters")
    logits = logits_of(peer, fields)
    _, results = probe.ask("model", named("input", fields | {"labels": labels}), recipe=recipe,
                           overrides=[f"model.weights={run}/checkpoints/latest/model.safetensors"])
    scale = TOLERANCE * max(1, logits.abs().max().item())
    torch.testing.assert_close(results["output.0"], logits, rtol=TOLERANCE, atol=scale)

    program(tmp_path, "export", "run", "--format", "huggingface", "--output", "whole")
    merged, info = case.model.kind.from_pretrained(tmp_path / "whole", output_loading_info=True)
    assert not any(info.values()), info
    torch.testing.assert_close(logits_of(merged, fields), logits, rtol=TOLERANCE, atol=scale)

    program(tmp_path, "export", "run", "--merge")
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    base = case.model.kind.from_pretrained(tmp_path / "base")
    assert tensors.keys() <= set(base.state_dict())
    assert_near({key: merged.state_dict()[key] for key in tensors}, tensors, 1e-7)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_resumed_run_ends_in_the_same_bits(tmp_path, name):
    case = CASES[name]
    case.model.saved(tmp_path / "base")
    adapters = case.adapters if name == "IA3" else case.adapters.replace("r: 4", "r: 4, dropout: 0.3")
    recipe = write_recipe(tmp_path, case, adapters, steps=6, every=1)
    lines, whole = reference.run_trainrun(recipe, tmp_path / "whole", "checkpoint.keep_last=null")
    for step in (2, 5):
        checkpoint = whole / "checkpoints" / f"step-{step:08}"
        rest, run = reference.run_trainrun(recipe, tmp_path / f"from-{step}", f"checkpoint.resume={checkpoint}")
        assert reference.losses_of(rest) == reference.losses_of(lines)[step:]
        assert_same(state_of(run), state_of(whole), f"weights of a run resumed at step {step}")


MODES = {"DDP": ["distributed_type=MULTI_CPU"], "FSDP": ["distributed_type=FSDP"],
         "FSDP by pattern": ["distributed_type=FSDP", "sharding={wrap: ['model\\.layers\\.\\d+']}"]}


@pytest.mark.parametrize("name", [*ONE_OF_EACH, "LoRA of GPT-2", "LoRA and a classifier"])
def test_two_ranks_train_to_the_losses_of_one(tmp_path, name):
    case = CASES[name]
    case.model.saved(tmp_path / "base", **dict.fromkeys(case.model.dropout, 0.0))
    recipe = write_recipe(tmp_path, case, steps=6)
    alone, one = reference.run_trainrun(recipe, tmp_path / "alone")
    for mode, settings in MODES.items():
        if "pattern" in mode and name not in ONE_OF_EACH:
            continue  # it is of Llama's layers
        ranks, several = reference.run_trainrun(recipe, tmp_path / mode, *settings, "num_processes=2", "dataloader.batch_size=2")
        assert reference.losses_of(ranks) == pytest.approx(reference.losses_of(alone), rel=TOLERANCE), mode
        assert_near(state_of(several), state_of(one))


def test_recomputed_layers_and_pieces_of_batches_change_nothing(tmp_path):
    case = CASES["DoRA"]
    case.model.saved(tmp_path / "base")
    recipe = write_recipe(tmp_path, case, steps=6)
    whole, _ = reference.run_trainrun(recipe, tmp_path / "whole")
    again, _ = reference.run_trainrun(recipe, tmp_path / "again", "model.checkpoint_activations=['^model.layers.[0-9]+$']")
    assert reference.losses_of(again) == reference.losses_of(whole)
    pieces, _ = reference.run_trainrun(recipe, tmp_path / "pieces", "dataloader.batch_size=2", "training.gradient_accumulation_steps=2")
    assert reference.losses_of(pieces) == pytest.approx(reference.losses_of(whole), rel=TOLERANCE)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_mixed_precision_is_that_of_peft_under_autocast(tmp_path, name):
    case = CASES[name]
    peer = begun_by_peft(case, tmp_path)
    recipe = write_recipe(tmp_path, case, f"{{type: {case.type}, weights: {tmp_path / 'adapter'}}}", steps=8)
    lines, _ = reference.run_trainrun(recipe, tmp_path / "run", "mixed_precision=bf16", "optimizer.lr=1e-3")
    assert reference.losses_of(lines) == pytest.approx(trained(case, peer, steps=8, lr=1e-3, bf16=True), rel=0.02)


def test_explain_counts_what_is_trained(tmp_path):
    case = CASES["LoRA and a classifier"]
    case.model.saved(tmp_path / "base")
    peer = peft.get_peft_model(case.model.make(), case.config)
    trainable, total = peer.get_nb_trainable_parameters()
    recipe = write_recipe(tmp_path, case)
    found = json.loads(program(tmp_path, "explain", recipe, "--json"))
    classifier = sum(tensor.numel() for name, tensor in peer.state_dict().items() if "original_module" in name)
    assert found["trainable_parameters"] == trainable
    assert found["parameters"] == total - classifier  # peft keeps another copy of what it trains whole
    assert found["memory_bytes"]["gradients"] == 4 * trainable
    assert found["memory_bytes"]["optimizer_state"] == pytest.approx(2 * 4 * trainable, rel=0.01)
    rows = {row["name"]: row["type"] for row in found["layers"]}
    assert rows["bert.encoder.layer.0.attention.self.query"] == "LoRA Linear"


# What is written for `adapters`, and what the refusal says.
WRONG = [
    ("{type: LoRA, target: ['quary$']}", "model.adapters.target[0]: 'quary$' matches no layer with weights; did you mean query?"),
    ("{type: LoRA, target: [query, LayerNorm]}", "model.adapters.target[1]: LoRA cannot be built: LoRA adapts Linear and TransposedLinear"),
    ("{type: DoRA, target: [word_embeddings]}", "DoRA adapts Linear and TransposedLinear, but bert.embeddings.word_embeddings is of type Embedding"),
    ("{type: LoRA, target: [query], modules_to_save: [clasifier]}", "model.adapters.modules_to_save[0]: 'clasifier' matches no layer"),
    ("{type: LoRA, target: [query, classifier], modules_to_save: [classifier]}", "classifier cannot be adapted and be one of modules_to_save"),
    ("{type: IA3, target: [key], feedforward: [dense]}", "'dense' matches no adapted layer"),
    ("{type: LoRA}", "either target or weights must be given"),
    ("{type: LoRA, target: [query], weights: somewhere}", "either target or weights must be given, and not both"),
    ("{type: LoRA, target: ['[']}", "is not a regular expression"),
    ("{type: LoRA, target: [query], lora_alpha: 4}", "did you mean alpha?"),
    ("{type: LoRA, target: [query], r: 0}", "model.adapters.r: must be >= 1"),
    ("{type: Lora, target: [query]}", "did you mean LoRA?"),
    ("{type: LoRA, weights: /nowhere}", "there is no folder /nowhere"),
]


@pytest.mark.parametrize("adapters, message", WRONG, ids=[adapters for adapters, _ in WRONG])
def test_what_does_not_fit_is_refused_with_its_place(tmp_path, adapters, message):
    BERT.saved(tmp_path / "base")
    recipe = write_recipe(tmp_path, Case(BERT, adapters, None))
    said = program(tmp_path, "validate", recipe, code=1 if "/nowhere" in adapters else 2)
    assert message in said
    assert "/nowhere" in adapters or "adapters.yaml:5:" in said


def change(path: pathlib.Path, **settings) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def change_tensors(folder: pathlib.Path, edit) -> None:
    path = folder / "adapter_model.safetensors"
    safetensors.torch.save_file(edit(safetensors.torch.load_file(path)), path)


def without(tensors: dict, name: str) -> dict:
    return {key: tensor for key, tensor in tensors.items() if key != name}


A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
CONFIG = "adapter_config.json"
HOSTILE = {
    "no config": (lambda f: (f / CONFIG).unlink(), CONFIG),
    "no tensors": (lambda f: (f / "adapter_model.safetensors").unlink(), "neither adapter_model.safetensors nor adapter_model.bin"),
    "half a config": (lambda f: (f / CONFIG).write_text("{"), "is not JSON"),
    "a list": (lambda f: (f / CONFIG).write_text("[1]"), "expected a mapping"),
    "deep": (lambda f: (f / CONFIG).write_text("[" * 100_000), "nested too deeply"),
    "bytes": (lambda f: (f / CONFIG).write_bytes(b'{"peft_type": "\xff"}'), "is not JSON"),
    "other type": (lambda f: change(f / CONFIG, peft_type="VERA"), "peft_type: expected \"LORA\""),
    "no type": (lambda f: change(f / CONFIG, peft_type=7), "peft_type: expected \"LORA\""),
    "dora": (lambda f: change(f / CONFIG, use_dora=True), "write type: DoRA"),
    "bias": (lambda f: change(f / CONFIG, bias="all"), "bias"),
    "pissa": (lambda f: change(f / CONFIG, init_lora_weights="pissa"), "init_lora_weights"),
    "alphas": (lambda f: change(f / CONFIG, alpha_pattern={"q": 3}), "alpha_pattern"),
    "text": (lambda f: change(f / CONFIG, lora_alpha="16"), "lora_alpha: expected a number"),
    "huge": (lambda f: change(f / CONFIG, lora_alpha=1e300), "lora_alpha"),
    "dropout": (lambda f: change(f / CONFIG, lora_dropout=2), "lora_dropout"),
    "flag": (lambda f: change(f / CONFIG, use_rslora="yes"), "use_rslora: expected true or false"),
    "missing": (lambda f: change_tensors(f, lambda t: without(t, A)), "q_proj.lora_A.weight"),
    "missing b": (lambda f: change_tensors(f, lambda t: without(t, A.replace("_A", "_B"))), "has no model.layers.0.self_attn.q_proj.lora_B.weight"),
    "shape": (lambda f: change_tensors(f, lambda t: t | {A: torch.zeros(4, 31)}), "q_proj.lora_A.weight is [4, 31], but must be [4, 32]"),
    "empty": (lambda f: change_tensors(f, lambda t: t | {A: torch.zeros(0, 32)}), "q_proj.lora_A.weight"),
    "flat": (lambda f: change_tensors(f, lambda t: t | {A: torch.zeros(32)}), "q_proj.lora_A.weight"),
    "integers": (lambda f: change_tensors(f, lambda t: t | {A: torch.zeros(4, 32).long()}), "floating-point"),
    "stranger": (lambda f: change_tensors(f, lambda t: t | {A.replace("layers.0", "layers.9"): torch.zeros(4, 32)}), "belongs to no layer"),
    "more": (lambda f: change_tensors(f, lambda t: t | {A.replace("weight", "bias"): torch.zeros(4)}), "is not a tensor of this adapter"),
    "base weight": (lambda f: change_tensors(f, lambda t: t | {"base_model.model.lm_head.weight": torch.zeros(3, 3)}), "lm_head.weight is [3, 3]"),
    "cut": (lambda f: (f / "adapter_model.safetensors").write_bytes((f / "adapter_model.safetensors").read_bytes()[:-8]), "adapter_model.safetensors"),
    "length": (lambda f: (f / "adapter_model.safetensors").write_bytes(b"\xff" * 64), "adapter_model.safetensors"),
    "pickle": (lambda f: ((f / "adapter_model.safetensors").unlink(), torch.save(Net(), f / "adapter_model.bin")), "adapter_model.bin"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_folder_is_refused_with_a_reason(probe, tmp_path, name):
    case = CASES["LoRA"]
    edit, message = HOSTILE[name]
    case.make_peer(tmp_path / "base").save_pretrained(tmp_path / "adapter")
    edit(tmp_path / "adapter")
    recipe = write_recipe(tmp_path, case, f"{{type: LoRA, weights: {tmp_path / 'adapter'}}}")
    with pytest.raises(ProbeError) as refused:
        probe.ask("model", recipe=recipe, overrides=[])
    assert message in str(refused.value)


def test_a_pickle_of_peft_loads_as_data(probe, tmp_path):
    case = CASES["LoRA"]
    peer = begun_by_peft(case, tmp_path)
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    torch.save(safetensors.torch.load_file(path), path.with_suffix(".bin"))
    path.unlink()
    recipe = write_recipe(tmp_path, case, f"{{type: LoRA, weights: {tmp_path / 'adapter'}}}")
    _, results = probe.ask("model", recipe=recipe, overrides=[])
    own = {name: tensor.detach() for name, tensor in saved_by_peft(peer).items()}
    assert_same({name: results.under("state")[name] for name in own}, own, "adapters")


def test_ranks_may_differ_by_layer(probe, tmp_path):
    case = Case(LLAMA_3, "", peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], rank_pattern={"v_proj": 2}))
    begun_by_peft(case, tmp_path)
    recipe = write_recipe(tmp_path, case, f"{{type: LoRA, weights: {tmp_path / 'adapter'}}}", steps=2)
    _, run = reference.run_trainrun(recipe, tmp_path / "run")
    program(tmp_path, "export", "run", "--format", "peft", "--output", "out")
    assert_same(saved_by_peft(opened_by_peft(case, tmp_path / "base", tmp_path / "out")),
                {name: tensor for name, tensor in state_of(run).items() if "lora_" in name}, "adapters")


def test_only_adapters_are_exported_for_peft(tmp_path):
    case = CASES["LoRA"]
    case.model.saved(tmp_path / "base")
    recipe = pathlib.Path(write_recipe(tmp_path, case, steps=1))
    recipe.write_text(recipe.read_text().replace(f", adapters: {case.adapters}", ""))
    reference.run_trainrun(str(recipe), tmp_path / "run")
    assert "has no adapters" in program(tmp_path, "export", "run", "--format", "peft", code=1)
    assert "has no adapters" in program(tmp_path, "export", "run", "--merge", code=1)
    assert "--merge is for" in program(tmp_path, "export", "run", "--merge", "--format", "torchscript", code=1)
    assert not (tmp_path / "adapter").exists() and not (tmp_path / "model.safetensors").exists()


def test_a_weight_that_layers_share_is_not_merged(tmp_path):
    case = Case(QWEN, "{type: LoRA, target: [lm_head]}", None)
    case.model.saved(tmp_path / "base")
    reference.run_trainrun(write_recipe(tmp_path, case, steps=2), tmp_path / "run")
    said = program(tmp_path, "export", "run", "--format", "huggingface", code=1)
    assert "cannot be merged into that weight, which is model.embed_tokens.weight, too" in said


def test_a_weight_that_peft_keeps_tied_is_one_and_stays_it(probe, tmp_path):
    """peft saves it twice; a training, and what is exported, go on with one."""
    case = Case(QWEN, "", peft.LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True))
    peer = begun_by_peft(case, tmp_path)
    recipe = write_recipe(tmp_path, case, f"{{type: LoRA, weights: {tmp_path / 'adapter'}}}", steps=6)
    lines, run = reference.run_trainrun(recipe, tmp_path / "run")
    assert reference.losses_of(lines) == pytest.approx(trained(case, peer, steps=6), rel=TOLERANCE)
    state = state_of(run)
    assert torch.equal(state["lm_head.weight"], state["model.embed_tokens.weight"])
    program(tmp_path, "export", "run", "--format", "peft", "--output", "out")
    opened = opened_by_peft(case, tmp_path / "base", tmp_path / "out")
    fields, _ = data_of(case.model)
    torch.testing.assert_close(logits_of(opened, fields), logits_of(peer, fields), rtol=1e-4, atol=1e-4)
