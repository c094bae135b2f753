"""Nothing is made on the CPU that must be on the GPU: the tables of tests/parity once more, on a GPU that LibTorch is made to believe in
(tests/parity/imagined_gpu.h). Runs everywhere; what needs kernels that only CUDA has is left to a real one."""

import json
import os
import re
import subprocess
import sys

import pytest

from gpus import BUILD, ROOT

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
    done = subprocess.run([sys.executable, "-B", "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "-k", TABLES[table],
                           f"tests/parity/{table}_parity_test.py"], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
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


def train(tmp_path, *overrides, name="run", device="cuda:0"):
    """The probe's reply, and the lines of metrics.jsonl."""
    folder = tmp_path / name
    request = {"op": "train", "recipe": RECIPE, "overrides": [*STEPS, f"output_dir={folder}", *overrides], "results": str(tmp_path / "results")}
    if device != "cpu":
        request["device"] = device
    done = subprocess.run([BUILD / "bin/trainrun_probe"], input=json.dumps(request) + "\n", cwd=ROOT, capture_output=True, text=True, timeout=600,
                          check=True, env=os.environ | ({} if device == "cpu" else {"TRAINRUN_IMAGINED_GPU": "1"}))
    lines = folder / "metrics.jsonl"
    return json.loads(done.stdout), [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []


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
    on_gpu, on_cpu = (train(tmp_path, losses, "evaluation.every=10", name=device, device=device)[1] for device in ("cuda:0", "cpu"))
    assert len(on_gpu) == len(on_cpu) == len(LINES) + 2
    for mine, expected in zip(on_gpu, on_cpu, strict=True):
        assert mine.keys() == expected.keys()
        for key in mine.keys() - {"time", "train/samples_per_second", "split"}:
            assert mine[key] == pytest.approx(expected[key], rel=1e-6), key


@pytest.mark.parametrize("due", ["a line", "an evaluation", "a checkpoint"])
def test_a_loss_that_is_not_finite_is_named_with_its_step_and_batch_when_something_is_due_and_is_not_saved(tmp_path, due):
    diverges = "optimizer={type: SGD, lr: 3.0e+38}"
    rest = {"a line": [], "an evaluation": ["evaluation.every=5"], "a checkpoint": ["checkpoint.every=5"]}[due]
    expected = train(tmp_path, diverges, name="cpu", device="cpu")[0]["error"]
    reply, _ = train(tmp_path, diverges, *rest, name="gpu")
    named = re.match(r"the loss is (-?nan|-?inf|\S+) at step (\d+), epoch 0, batch (\d+); ", expected)
    assert named and 1 < int(named[2]) < 5, expected  # after the first step's figures were read, before anything is due
    assert reply["error"] == expected
    assert not (tmp_path / "gpu/checkpoints").exists()


def test_a_checkpoint_of_the_gpu_goes_on_to_the_same_figures(tmp_path):
    overrides = ["mixed_precision=fp16", "grad_scaler={init_scale: 4194304, growth_interval: 5}", "checkpoint.every=6"]
    whole = train(tmp_path, *overrides, name="whole")[1][-1]
    train(tmp_path, *overrides, "training={num_epochs: null, max_steps: 12, gradient_accumulation_steps: 2, max_grad_norm: 0.5}", name="first")
    rest = train(tmp_path, *overrides, f"checkpoint.resume={tmp_path / 'first'}", name="rest")[1][-1]
    assert rest["step"] == whole["step"] == NUM_STEPS
    assert {key: rest[key] for key in rest.keys() - {"time", "train/samples_per_second"}} == \
        {key: whole[key] for key in whole.keys() - {"time", "train/samples_per_second"}}
