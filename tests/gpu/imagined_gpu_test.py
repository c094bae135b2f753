"""Nothing is made on the CPU that must be on the GPU: the tables of tests/parity once more, on a GPU that LibTorch is made to believe in
(tests/parity/imagined_gpu.h). Runs everywhere; what needs kernels that only CUDA has is left to a real one."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from gpus import BUILD, ROOT

PROBE = BUILD / ("warm/trainrun_probe" if (BUILD / "warm/trainrun_probe").exists() else "bin/trainrun_probe")  # tests/warm
TABLES = {
    "layers": "float and not Conv and not LSTM and not GRU",
    "losses": "fp32 and not CTC",
    "metrics": "metric",
    "optimizers": "test_state_taken_back",
}


@pytest.mark.parametrize("table", TABLES)
def test_every_component_computes_on_one_device(table):
    if not (BUILD / "bin/trainrun_probe").exists():
        pytest.skip("no trainrun_probe: build all")
    done = subprocess.run([sys.executable, "-B", ROOT / "tests/page.py", "run", BUILD / "pages.sock", f"tests/parity/{table}_parity_test.py", "1", "--tb=line",
                           "-k", TABLES[table]], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
                          env=os.environ | {"TRAINRUN_IMAGINED_GPU": "1", "TRAINRUN_BUILD_DIR": str(BUILD)})
    assert done.returncode == 0, "\n".join(line for line in done.stdout.splitlines() if "Error" in line or line.startswith("FAILED"))
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 40


# What a step does on a GPU: 20 steps of two batches each, a line of the log every seventh.
NUM_STEPS, EVERY = 20, 7
RECIPE = "tests/recipes/digits_small.yaml"
STEPS = ["model.layers=[Flatten, {type: Linear, out_features: 32}, BatchNorm1d, ReLU, {type: Linear, out_features: 10}]",
         f"training={{num_epochs: null, max_steps: {NUM_STEPS}, gradient_accumulation_steps: 2, max_grad_norm: 0.5}}",
         f"logging={{every_steps: {EVERY}, report_to: [jsonl, GpuWaits]}}", "scheduler={type: LinearLR, start_factor: 0.1, total_iters: 20}",
         "checkpoint.every=null", "evaluation.every=null"]
LINES = {step for step in range(1, NUM_STEPS + 1) if step % EVERY == 0 or step == NUM_STEPS}


def train_all(tmp_path, runs, device="cuda:0", recipes=None, steps=STEPS):
    """For each run of {name: overrides}, made in one process: the probe's reply, and the lines of metrics.jsonl. `recipes`: of those that have
    another recipe, its path."""
    requests = [{"op": "train", "recipe": (recipes or {}).get(name, RECIPE), "overrides": [*steps, f"output_dir={tmp_path / name}", *overrides], "results": str(tmp_path / "results")}
                | ({} if device == "cpu" else {"device": device}) for name, overrides in runs.items()]
    done = subprocess.run([PROBE], input="".join(json.dumps(request) + "\n" for request in requests), cwd=ROOT,
                          capture_output=True, text=True, timeout=600, check=True,
                          env=os.environ | ({} if device == "cpu" else {"TRAINRUN_IMAGINED_GPU": "1"}))
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    files = [tmp_path / name / "metrics.jsonl" for name in runs]
    lines = [[json.loads(line) for line in file.read_text().splitlines()] if file.exists() else [] for file in files]
    return dict(zip(runs, zip(replies, lines, strict=True), strict=True))


def train(tmp_path, *overrides, name="run", device="cuda:0"):
    return train_all(tmp_path, {name: overrides}, device)[name]


def waited_after(reply):
    """The steps in which the host waited for the GPU."""
    before = [0, *reply["waits"]]
    return {step for step in range(1, len(before)) if before[step] > before[step - 1]}


@pytest.mark.parametrize("optimizer", ["{type: SGD, lr: 0.1, momentum: 0.9}", "{type: AdamW, lr: 3e-3}", "{type: RMSprop, lr: 1e-3}"])
@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_between_two_lines_of_the_log_the_host_does_not_wait_for_the_gpu(tmp_path, optimizer, precision):
    reply, lines = train(tmp_path, f"optimizer={optimizer}", f"mixed_precision={precision}",
                         "loss=[CrossEntropyLoss, {type: MultiMarginLoss, loss_weight: 0.5}]")
    assert len(reply["waits"]) == NUM_STEPS
    assert waited_after(reply) == {1, *LINES}
    assert {line["step"] for line in lines} == LINES


# One of each, but LBFGS, which has to know the loss.
OPTIMIZERS = {
    "SGD": "lr: 0.1, momentum: 0.9", "dampened SGD": "lr: 0.1, momentum: 0.9, dampening: 0.5", "Adam": "lr: 3e-3", "AdamW": "lr: 3e-3",
    "Adamax": "lr: 3e-3", "NAdam": "lr: 3e-3", "RAdam": "lr: 3e-3", "Lion": "lr: 1e-3", "ASGD": "lr: 0.1", "Rprop": "lr: 1e-3", "RMSprop": "lr: 1e-3",
    "Adagrad": "lr: 1e-2", "Adadelta": "lr: 1", "LAMB": "lr: 1e-2", "LARS": "lr: 1, momentum: 0.9, trust_coefficient: 0.01", "Adafactor": "lr: 1e-2",
    "Lookahead": "k: 2, optimizer: {type: RMSprop, lr: 1e-3}", "GradientCentralization": "optimizer: {type: NAdam, lr: 3e-3}",
    "ChainedOptimizer": "optimizers: [{match: '^[14].*weight', optimizer: {type: Muon, lr: 0.01}}, {optimizer: {type: AdamW, state_dtype: bf16, lr: 3e-3}}]"}


def test_in_fp16_no_optimizer_makes_the_host_wait_and_all_skip_what_overflows_as_on_the_cpu(tmp_path):
    """On the CPU the host reads whether a step overflows, and does not call the optimizer: as PyTorch's GradScaler does."""
    scale = ["mixed_precision=fp16", "grad_scaler={init_scale: 4194304, growth_interval: 6}"]
    recipes = {}
    for name, options in OPTIMIZERS.items():  # an override would be merged with the recipe's own optimizer
        recipes[name] = str(tmp_path / f"{name.replace(' ', '_')}.yaml")
        text = (ROOT / RECIPE).read_text().replace("optimizer: {type: AdamW, lr: 3e-3}", f"optimizer: {{type: {name.split()[-1]}, {options}}}")
        pathlib.Path(recipes[name]).write_text(text)
    on_gpu, on_cpu = (train_all(tmp_path / device, dict.fromkeys(OPTIMIZERS, scale), device, recipes) for device in ("cuda:0", "cpu"))
    for name in OPTIMIZERS:
        (reply, lines), (_, expected) = on_gpu[name], on_cpu[name]
        assert "waits" in reply, (name, reply)
        assert waited_after(reply) == {1, *LINES}, name
        assert lines[0]["train/skipped_steps"] >= 2 and lines[-1]["train/skipped_steps"] > lines[0]["train/skipped_steps"], name
        tolerance = 1e-3 if "Muon" in OPTIMIZERS[name] else 1e-4  # it rounds to bfloat16: a gradient's last bit may become 0.4 % of an update
        for mine, cpu in zip(lines, expected, strict=True):
            for key in ("train/loss", "train/skipped_steps", "train/loss_scale"):
                assert mine[key] == pytest.approx(cpu[key], rel=tolerance), (name, key, mine["step"])


@pytest.mark.parametrize("optimizer", ["{type: SGD, lr: 0.1, momentum: 0.9}", "{type: AdamW, lr: 3e-3}"])
def test_nor_does_it_for_the_scale_of_the_loss_and_steps_that_overflow(tmp_path, optimizer):
    """A scale that is far too large: the first steps overflow, and count for neither the schedule nor the optimizer."""
    scale = [f"optimizer={optimizer}", "mixed_precision=fp16", "grad_scaler={init_scale: 4194304, growth_interval: 1000}"]
    reply, lines = train(tmp_path, *scale)
    assert waited_after(reply) == {1, *LINES}
    last = lines[-1]
    assert lines[0]["train/skipped_steps"] >= 2
    base = 0.1 if "SGD" in optimizer else 3e-3
    for line in lines:
        made = line["step"] - line["train/skipped_steps"]  # the step of the line itself may be one that was skipped
        assert any(line["train/lr"] == pytest.approx(base * (0.1 + 0.9 * t / 20)) for t in (made - 1, made))
        assert line["train/loss_scale"] == 4194304 / 2**line["train/skipped_steps"]
    assert last["train/loss"] < lines[0]["train/loss"]


def test_the_figures_are_those_of_the_cpu(tmp_path):
    losses = "loss=[CrossEntropyLoss, {type: MultiMarginLoss, loss_weight: 0.5}]"
    # A bias before a norm has gradients of 0 but for rounding, which AdamW makes steps of.
    layers = STEPS[0].replace("out_features: 32", "out_features: 32, bias: false")
    on_gpu, on_cpu = (train(tmp_path, layers, losses, "evaluation.every=10", name=device, device=device)[1] for device in ("cuda:0", "cpu"))
    assert len(on_gpu) == len(on_cpu) == len(LINES) + 2
    for mine, expected in zip(on_gpu, on_cpu, strict=True):
        assert mine.keys() == expected.keys()
        for key in mine.keys() - {"time", "train/samples_per_second", "split"}:
            assert mine[key] == pytest.approx(expected[key], rel=5e-6), key  # the CPU's own kernels sum in another order


PICTURES = """\
version: 1
model: {layers: [{type: Conv2d, out_channels: 4, kernel_size: 5, stride: 3}, ReLU, Flatten, {type: Linear, out_features: 3}]}
loss: CrossEntropyLoss
dataset:
  train: {type: ImageFolder, root: FOLDER, image_transforms: [{type: RandomResizedCrop, size: 32}]}
  transforms: [{type: RandomCrop, size: 32, padding: 4}, RandomHorizontalFlip, {type: Normalize, mean: [0.5, 0.4, 0.3], std: [0.2, 0.3, 0.4]}]
dataloader: {batch_size: 8, num_workers: 1}
optimizer: {type: SGD, lr: 0.01}
"""


def test_pixels_are_bytes_until_they_are_on_the_gpu_which_is_not_waited_for(tmp_path):
    (tmp_path / "pictures.yaml").write_text(PICTURES.replace("FOLDER", str(ROOT / "recipes/data/shapes/train/images")))
    found = {}
    for device in ("cuda:0", "cpu"):
        (tmp_path / device).mkdir()
        found[device] = train_all(tmp_path / device, {"pictures": []}, device, {"pictures": str(tmp_path / "pictures.yaml")}, STEPS[1:])["pictures"]
    (reply, on_gpu), (_, on_cpu) = found["cuda:0"], found["cpu"]
    assert waited_after(reply) == {1, *LINES}
    most_pixels = NUM_STEPS * 2 * 8 * 3 * 32 * 32  # of float32, they would be four times as many bytes
    assert 0.5 * most_pixels < reply["bytes_sent"] < 1.1 * most_pixels
    assert [line["train/loss"] for line in on_gpu] == pytest.approx([line["train/loss"] for line in on_cpu], rel=1e-6)


@pytest.mark.parametrize("due", ["a line", "an evaluation", "a checkpoint"])
def test_a_loss_that_is_not_finite_is_named_with_its_step_and_batch_when_something_is_due_and_is_not_saved(tmp_path, due):
    diverges = "optimizer={type: SGD, lr: 3.0e+38}"
    rest = {"a line": [], "an evaluation": ["evaluation.every=5"], "a checkpoint": ["checkpoint.every=5"]}[due]
    expected = train(tmp_path, diverges, name="cpu", device="cpu")[0]["error"]
    reply, _ = train(tmp_path, diverges, *rest, name="gpu")
    named = re.match(r"the loss is (-?nan|-?inf|\S+) at step (\d+), epoch 0, batch (\d+)[:;] ", expected)
    assert named and 1 < int(named[2]) < 5, expected  # after the first step's figures were read, before anything is due
    assert re.match(re.escape(named[0][:-2]) + "; try a lower", reply["error"])  # the batch is gone by then: no layer is named
    assert not (tmp_path / "gpu/checkpoints").exists()


def test_a_checkpoint_of_the_gpu_goes_on_to_the_same_figures(tmp_path):
    overrides = ["mixed_precision=fp16", "grad_scaler={init_scale: 4194304, growth_interval: 5}", "checkpoint.every=6"]
    whole = train(tmp_path, *overrides, name="whole")[1][-1]
    train(tmp_path, *overrides, "training={num_epochs: null, max_steps: 12, gradient_accumulation_steps: 2, max_grad_norm: 0.5}", name="first")
    rest = train(tmp_path, *overrides, f"checkpoint.resume={tmp_path / 'first'}", name="rest")[1][-1]
    assert rest["step"] == whole["step"] == NUM_STEPS
    assert {key: rest[key] for key in rest.keys() - {"time", "train/samples_per_second"}} == \
        {key: whole[key] for key in whole.keys() - {"time", "train/samples_per_second"}}
