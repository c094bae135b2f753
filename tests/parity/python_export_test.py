"""`trainrun export --format python`: the programs that it writes train as trainrun does, and pass ruff; what cannot be written is refused.

TRAINRUN_PYTHON_ALL=1 also writes the table of all shipped recipes, program_table.py's.
"""

import os
import pathlib
import re
import subprocess
import sys

import numpy
import pytest
import torch  # noqa: F401  the programs run in copies of this process
import torchvision  # noqa: F401

from tests.parity.forked_python import forked_python
from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 20

DIGITS = """
dataset:
  train: {type: Digits, split: train}
  eval: {type: Digits, split: test}
dataloader: {batch_size: 32, eval_batch_size: 360}
training: {num_epochs: 2}
"""
MLP = "model: {layers: [Flatten, {type: Linear, out_features: 24}, Tanh, {type: Linear, out_features: 10}]}\nloss: CrossEntropyLoss\nmetrics: [Accuracy]\n"
RECIPES = {
    "lstm": """
model:
  layers:
    - {type: Reshape, shape: [8, 8]}
    - {type: LSTM, hidden_size: 12, num_layers: 2, batch_first: true, outputs: [sequence, hidden, cell]}
    - {type: Select, inputs: hidden, dim: 0, index: -1}
    - {type: Linear, out_features: 10}
loss: CrossEntropyLoss
metrics: [Accuracy]
optimizer: {type: RAdam, lr: 5e-3}
scheduler: {type: StepLR, step_size: 7, gamma: 0.5}
""" + DIGITS,
    "accumulation": MLP + """
optimizer: {type: SGD, lr: 0.1, momentum: 0.9, param_groups: [{match: 'bias$', weight_decay: 0, lr: 0.05}], weight_decay: 1e-3}
scheduler: {type: CosineWithHardRestarts, warmup_ratio: 0.1, num_cycles: 2}
dataset:
  train: {type: Digits, split: train}
  eval: {type: Digits, split: test}
dataloader: {batch_size: 16, eval_batch_size: 360, drop_last: true}
training: {num_epochs: 2, gradient_accumulation_steps: 3, max_grad_norm: 0.5}
""",
    "weighted": MLP.replace("loss: CrossEntropyLoss", "loss: {type: CrossEntropyLoss, weight: [1, 2, 1, 1, 1, 1, 1, 1, 1, 0.5], label_smoothing: 0.1}") + """
optimizer: {type: Adadelta, lr: 1.0}
scheduler: {type: ChainedScheduler, schedulers: [{type: ConstantLR, factor: 0.5, total_iters: 4}, {type: ExponentialLR, gamma: 0.95}]}
callbacks: [{type: EMA, decay: 0.9}]
""" + DIGITS,
    "margins": """
model:
  blocks:
    half: {parameters: {size: 8}, layers: [{type: Linear, out_features: '${size}'}, {type: GELU, approximate: tanh}]}
  layers:
    - Flatten
    - {type: half, name: left, size: 16}
    - {type: half, name: right, inputs: left, size: 12}
    - {type: Concat, inputs: [left, right], name: both}
    - {type: Parallel, layers: [{type: Linear, out_features: 10, bias: false}, [{type: LayerNorm}, {type: Linear, out_features: 10}]], merge: add}
    - {type: Mul, other: 0.5}
loss: MultiMarginLoss
optimizer: {type: Adamax, lr: 1e-2}
scheduler: {type: WarmupStableDecay, warmup_steps: 3, num_decay_steps: 5}
""".replace("scheduler: {type: WarmupStableDecay, warmup_steps: 3, num_decay_steps: 5}", "scheduler: {type: PolynomialLR, total_iters: 30, power: 2}") + DIGITS,
    "tied": f"""
model:
  layers:
    - {{type: Embedding, name: wte, num_embeddings: 256, embedding_dim: 16}}
    - {{type: Linear, name: head, out_features: 256, bias: false, share: wte}}
loss: CausalLMLoss
optimizer: {{type: AdamW, lr: 1e-2}}
dataset:
  train: {{type: TextLM, path: {ROOT}/recipes/README.md, block_size: 32}}
  eval: {{type: TextLM, path: {ROOT}/recipes/README.md, block_size: 32}}
dataloader: {{batch_size: 4, eval_batch_size: 32}}
training: {{num_epochs: 1}}
""",
    "repeated": """
model:
  layers:
    - Flatten
    - {type: Linear, name: hidden, out_features: 24, repeat: 3}
    - {type: Tanh, name: squashed, repeat: 2}
    - {type: LayerNorm, repeat: 2}
    - {type: Linear, inputs: hidden, name: other, out_features: 24}
    - {type: Linear, name: head, out_features: 10}
loss: CrossEntropyLoss
optimizer: {type: AdamW, lr: 1e-2}
""" + DIGITS,
    "lbfgs": MLP + "optimizer: {type: LBFGS, lr: 0.1, max_iter: 3}\n" + DIGITS,
    "lbfgs_accumulation": MLP + "optimizer: {type: LBFGS, lr: 0.1, max_iter: 3}\n" + DIGITS.replace("num_epochs: 2", "num_epochs: 1, gradient_accumulation_steps: 2"),
    "adapters": """
model:
  layers:
    - Flatten
    - {type: Linear, name: first, out_features: 24}
    - Tanh
    - {type: Sequential, name: inner, layers: [{type: Linear, name: first, out_features: 24}, Tanh, {type: Linear, name: second, out_features: 24}]}
    - {type: Linear, name: head, out_features: 10}
  adapters: {type: LoRA, r: 4, alpha: 6, dropout: 0.2, use_rslora: true, target: [inner.first, 'sec.nd$'], modules_to_save: [head]}
loss: CrossEntropyLoss
metrics: [Accuracy]
optimizer: {type: AdamW, lr: 1e-2, param_groups: [{match: lora_B, lr: 5e-2}]}
""" + DIGITS,
    "preferences": f"""
model:
  layers:
    - {{type: Concat, name: input_ids, inputs: [chosen_input_ids, rejected_input_ids], dim: 0}}
    - {{type: Concat, name: attention_mask, inputs: [chosen_attention_mask, rejected_attention_mask], dim: 0}}
    - {{type: LlamaForCausalLM, name: llama, inputs: [input_ids, attention_mask], fields: [input_ids, attention_mask], vocab_size: 72,
       hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, max_position_embeddings: 64}}
  adapters: {{type: LoRA, r: 4, target: [q_proj, v_proj], modules_to_save: [lm_head, norm]}}
models: {{reference: {{from: model}}}}
loss: {{type: DPOLoss, beta: 0.3, inputs: [llama, chosen_labels, rejected_labels, reference]}}
optimizer: {{type: SGD, lr: 0.5}}
dataset:
  train: {{type: PreferencePairs, path: {ROOT}/recipes/data/preferences/test.jsonl, tokenizer: {ROOT}/recipes/data/preferences, max_length: 64}}
dataloader: {{batch_size: 4}}
training: {{num_epochs: 2}}
""",
    "chats": f"""
model:
  layers: [{{type: Qwen2ForCausalLM, vocab_size: 79, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2}}]
  adapters: {{type: LoRA, target: [q_proj, gate_proj]}}
loss: CausalLMLoss
metrics: [{{type: Perplexity, class_dim: -1}}]
optimizer: {{type: SGD, lr: 0.5}}
dataset:
  train: {{type: Chat, path: {ROOT}/recipes/data/chats/test.jsonl, tokenizer: {ROOT}/recipes/data/chats, max_length: 40, train_on: all}}
  eval: {{type: Chat, path: {ROOT}/recipes/data/chats/test.jsonl, tokenizer: {ROOT}/recipes/data/chats, max_length: 40, train_on: all}}
dataloader: {{batch_size: 6, eval_batch_size: 64}}
training: {{num_epochs: 1}}
""",
    "unfrozen": """
model:
  layers: [Flatten, {type: Linear, name: first, out_features: 24}, Tanh, {type: Linear, name: head, out_features: 10}]
  freeze: [first]
  unfreeze_at_epoch: 1
loss: CrossEntropyLoss
optimizer: {type: AdamW, lr: 1e-2}
""" + DIGITS.replace("batch_size: 32", "batch_size: 128"),
    "bf16": MLP + "optimizer: {type: Adagrad, lr: 1e-2}\nmixed_precision: bf16\n" + DIGITS,
}
pandas = pytest.importorskip("pandas", reason="pandas is not installed: tools/setup --tests fetches it")
# Copies of this process compute by its own instructions, not by those that --verify asks for; what makes much of a last bit, such as LBFGS, is left
# to the table.
SHIPPED = ["cancer_logistic", "cars_embeddings", "cars_uncertainty", "digits_autoencoder", "digits_cnn", "digits_gru", "digits_transformer",
           "digits_two_heads", "digits_vae", "lora_chat", "weather_backtest", "weather_balanced", "wine_folds"]
LORA = "  adapters: {type: LoRA, target: [head]}"
REFUSED_ADAPTERS = {
    "  adapters: {type: DoRA, target: [head]}": "DoRA is not written; use LoRA",
    "  adapters: {type: LoRA, target: [embedding]}": "LoRA is written for Linear layers alone, and embedding is another",
    "  freeze: [embedding]\n" + LORA: "adapters beside freeze are not written",
    "  adapters: {type: LoRA, target: [own]}": "the adapter of tied.own, which is other.own, too, is not written",
    "  adapters: {type: LoRA, target: [own], modules_to_save: [head]}": "modules_to_save is not written for head, which shares its weight with embedding",
}
REFUSED = {
    "optimizer: {type: Lion}": "optimizer: export --format python: torch.optim has no Lion; use one that it has, such as AdamW",
    "callbacks: [{type: SWA, start_step: 1}]": "the callback SWA is not written; leave it out",
}


def export(recipe, *arguments, folder=ROOT):
    return subprocess.run([CALLED, "export", str(recipe), "--format", "python", *map(str, arguments)], cwd=folder, capture_output=True, text=True,
                          timeout=600, check=False)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    with forked_python(tmp_path_factory.mktemp("python")) as script:
        yield script


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Where the programs are that tests write, for ruff."""
    return tmp_path_factory.mktemp("programs")


def written(name, tmp_path):
    path = tmp_path / f"{name}.yaml"
    path.write_text(f"version: 1\nname: {name}\nseed: 3\n" + RECIPES[name])
    return path


def verified(recipe, program, python, steps=STEPS, tolerance=1e-5):
    done = export(recipe, "--output", program, "--verify", steps, "--python", python, "--tolerance", tolerance)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", RECIPES)
def test_a_program_trains_as_its_recipe(name, tmp_path, python, programs):
    verified(written(name, tmp_path), programs / f"{name}.py", python, tolerance=1e-4 if "LBFGS" in RECIPES[name] else 1e-5)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_program_of_a_shipped_recipe_trains_as_it_does(name, python, programs):
    found = verified(ROOT / f"recipes/{name}.yaml", programs / f"{name}.py", python)
    figures = re.findall(r"^eval/(\S+) +(\S+) +(\S+)$", found, re.MULTILINE)
    assert figures
    for figure, own, other in figures:
        assert float(other) == pytest.approx(float(own), rel=1e-3, abs=2e-3), figure


@pytest.mark.parametrize("name", ["segmentation_unet", "digits_mlp", "regression_csv"])
def test_a_recipe_that_is_never_evaluated_is_a_program_that_runs(name, tmp_path, python):
    overrides = ["evaluation.every=null", "training.num_epochs=null", "training.max_steps=2", "checkpoint.keep_best=null", "checkpoint.every=null"]
    assert export(f"recipes/{name}.yaml", *overrides, "--output", tmp_path / "a.py").returncode == 0
    done = subprocess.run([python, tmp_path / "a.py", "--output", tmp_path / "a.pt"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "eval_data" not in (tmp_path / "a.py").read_text()


def test_fields_may_have_any_names(tmp_path, python, programs):
    """Names that Python does not take become others, each its own, and none is one that the program uses itself."""
    names = ["größe", "gro e", "gro_e", "net", "loss", "batch", "class"]
    random = numpy.random.default_rng(5)
    inputs = random.standard_normal((64, 5), dtype=numpy.float32)
    numpy.savez(tmp_path / "rows.npz", x=inputs, **{name: random.standard_normal((64, 1), dtype=numpy.float32) for name in names})
    losses = ", ".join(f"{{type: MSELoss, inputs: [head, {name}], loss_weight: {i + 1}}}" for i, name in enumerate(names))
    fields = ", ".join(f"{name}: {name}" for name in ["x", *names])
    recipe = tmp_path / "names.yaml"
    recipe.write_text(f"""version: 1
name: names
seed: 3
model: {{layers: [{{type: Linear, inputs: x, out_features: 1, name: head}}]}}
loss: [{losses}]
optimizer: {{type: SGD, lr: 0.1}}
dataset:
  train: &rows {{type: TensorFile, path: {tmp_path}/rows.npz, target: net, fields: {{{fields}}}}}
  eval: *rows
dataloader: {{batch_size: 16}}
training: {{num_epochs: 3}}
""")
    verified(recipe, programs / "names.py", python)


def test_programs_pass_ruff(programs):
    for name in RECIPES:
        if not (programs / f"{name}.py").exists():
            assert export(written(name, programs), "--output", programs / f"{name}.py").returncode == 0
    ruff = pathlib.Path(sys.executable).with_name("ruff")
    done = subprocess.run([ruff, "check", "--isolated", "--select", "E,F,W,I,B", "--ignore", "E501", programs], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_written_is_refused_with_its_place(line, tmp_path):
    recipe = tmp_path / "a.yaml"
    recipe.write_text("version: 1\nname: a\n" + MLP + ("" if "optimizer" in line else "optimizer: SGD\n") + line + DIGITS)
    done = export(recipe, "--output", tmp_path / "a.py")
    assert done.returncode == 2 and REFUSED[line] in done.stderr, done.stderr
    assert re.search(r"a\.yaml:\d+:\d+: ", done.stderr) and not (tmp_path / "a.py").exists()


@pytest.mark.parametrize("lines", REFUSED_ADAPTERS)
def test_adapters_that_cannot_be_written_are_refused(lines, tmp_path):
    recipe = tmp_path / "a.yaml"
    recipe.write_text(f"""version: 1
name: a
model:
  layers:
    - {{type: Embedding, name: embedding, num_embeddings: 256, embedding_dim: 16}}
    - {{type: Sequential, name: other, layers: [{{type: Linear, name: own, out_features: 16}}]}}
    - {{type: Sequential, name: tied, layers: [{{type: Linear, name: own, out_features: 16}}], share: other}}
    - {{type: Linear, name: head, out_features: 256, bias: false, share: embedding}}
{lines}
loss: CausalLMLoss
optimizer: SGD
dataset: {{train: {{type: TextLM, path: {ROOT}/recipes/README.md, block_size: 32}}}}
training: {{num_epochs: 1}}
""")
    done = export(recipe, "--output", tmp_path / "a.py")
    assert done.returncode == 2 and REFUSED_ADAPTERS[lines] in done.stderr, done.stderr
    assert re.search(r"a\.yaml:\d+:\d+: ", done.stderr) and not (tmp_path / "a.py").exists()


def test_pictures_lie_in_memory_as_those_of_trainrun(tmp_path):
    """Sums in another order part by the last bit, and training makes a hundred-thousandth of it in eight steps: not in one order."""
    done = export("recipes/segmentation_unet.yaml", "evaluation.every=null", "dataloader.batch_size=2", "--output", tmp_path / "a.py", "--verify", 10, "--python", sys.executable,
                  "--tolerance", 1e-6)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif("TRAINRUN_PYTHON_ALL" not in os.environ, reason="takes an hour: TRAINRUN_PYTHON_ALL=1")
def test_programs_of_all_shipped_recipes(tmp_path, python):
    from tests.parity.program_table import make_table

    failed = [line for line in make_table(tmp_path, python) if "more than" in line or "fails" in line]
    assert not failed


def test_a_difference_is_noticed(tmp_path, python):
    """A Python that trains another net is told apart."""
    other = tmp_path / "other"
    other.write_text(f"""#!/bin/sh
case "$1" in *.py) sed -i 's/nn.Tanh()/nn.ReLU()/' "$1";; esac
exec {python} "$@"
""")
    other.chmod(0o755)
    done = export(written("bf16", tmp_path), "--output", tmp_path / "a.py", "--verify", 3, "--python", other)
    assert done.returncode == 1 and "more than the tolerance" in done.stdout, done.stdout + done.stderr


def test_a_run_is_exported_by_its_own_recipe(tmp_path):
    recipe = written("accumulation", tmp_path)
    assert subprocess.run([CALLED, "--quiet", "run", recipe, "training.max_steps=1", f"output_dir={tmp_path}/run"], cwd=ROOT, check=False).returncode == 0
    assert export(tmp_path / "run", "--output", tmp_path / "a.py").returncode == 0
    assert "MAX_STEPS = 1\n" in (tmp_path / "a.py").read_text()
