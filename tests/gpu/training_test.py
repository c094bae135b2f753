"""What must be shown on a GPU: the same losses as on the CPU and as PyTorch's, 16-bit arithmetic, TF32, resuming, NCCL, kept samples."""

import json
import os
import pathlib
import socket
import subprocess

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional

import recipe_data
import reference
from gpus import BINARY, ROOT, needs_gpu, trainrun

pytestmark = needs_gpu

RECIPE = "tests/recipes/digits_small.yaml"
NUM_STEPS = 50
# In float32 the two devices add up in other orders: after some twenty steps the losses part, though they keep together.
EARLY, CLOSE, TOLERANCE = 15, 1e-4, 1e-2
LAYERS = ("model.layers=[{type: Conv2d, out_channels: 8, kernel_size: 3, padding: 1, bias: false}, BatchNorm2d, ReLU, {type: MaxPool2d, kernel_size: 2}, "
          "Flatten, {type: Linear, out_features: 32}, ReLU, {type: Linear, out_features: 10}]")
STEPS = f"training={{num_epochs: null, max_steps: {NUM_STEPS}}}"
QUIET = ["checkpoint.every=null", "evaluation.every=null"]
VALID = sorted(path.relative_to(ROOT) for path in (ROOT / "tests/recipes/valid").glob("*.yaml"))


def make_model():
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 10))


def run(folder, *overrides):
    lines, folder = reference.run_trainrun(RECIPE, pathlib.Path(folder), LAYERS, STEPS, *overrides)
    return [line for line in lines if line["split"] == "train"]


def losses(folder, *overrides):
    return [line["train/loss"] for line in run(folder, *QUIET, *overrides)]


def assert_alike(actual, expected):
    assert actual[:EARLY] == pytest.approx(expected[:EARLY], rel=CLOSE)
    assert actual == pytest.approx(expected, rel=TOLERANCE)


def summary(folder):
    return json.loads((pathlib.Path(folder) / "summary.json").read_text())


def test_the_losses_are_those_of_the_cpu(tmp_path):
    on_gpu = losses(tmp_path / "gpu", "device=cuda")
    assert_alike(on_gpu, losses(tmp_path / "cpu", "device=cpu"))
    assert on_gpu[-1] < 0.5 * on_gpu[0]
    assert summary(tmp_path / "gpu")["peak_gpu_memory"] > 0


def test_auto_takes_the_gpu(tmp_path):
    losses(tmp_path / "run")
    assert "device cuda:0 (" in (tmp_path / "run/log.txt").read_text()
    result = trainrun(RECIPE, f"output_dir={tmp_path}/none", "device=cuda:99")
    assert result.returncode == 1 and "cuda:99 does not exist" in result.stderr


def python_losses(kind):
    """The job in PyTorch, on the GPU, with initial weights drawn on the CPU."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    images, labels = (tensor.cuda() for tensor in reference.digits("train"))
    torch.manual_seed(3)
    model = make_model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=kind == torch.float16)
    result = []
    for _, indices in reference.batches(len(labels), 32, seed=3):
        optimizer.zero_grad()
        with torch.autocast("cuda", kind, enabled=kind is not None):
            output = model(images[indices.cuda()])
        loss = functional.cross_entropy(output.float(), labels[indices.cuda()])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        result.append(loss.item())
        if len(result) == NUM_STEPS:
            return result


@pytest.mark.parametrize("name, kind, early", [("no", None, 1e-4), ("bf16", torch.bfloat16, 2e-3), ("fp16", torch.float16, 2e-3)])
def test_the_losses_are_pytorchs_on_the_gpu(tmp_path, name, kind, early):
    actual, expected = losses(tmp_path / "run", "device=cuda", f"mixed_precision='{name}'"), python_losses(kind)
    assert actual[:EARLY] == pytest.approx(expected[:EARLY], rel=early)
    assert actual == pytest.approx(expected, rel=3e-2)


def test_an_overflow_is_skipped_on_the_gpu(tmp_path):
    lines = run(tmp_path / "run", *QUIET, "device=cuda", "mixed_precision=fp16", "grad_scaler={init_scale: 1e35}")
    assert lines[0]["train/skipped_steps"] == 1 and lines[0]["train/loss_scale"] == pytest.approx(5e34)
    assert lines[-1]["train/skipped_steps"] < NUM_STEPS and lines[-1]["train/loss"] < lines[0]["train/loss"]


def test_tf32_rounds_products_and_only_when_asked_to(tmp_path):
    if torch.cuda.get_device_capability()[0] < 8:
        pytest.skip("this GPU has no TensorFloat-32")
    exact, rounded = (losses(tmp_path / f"tf32_{word}", "device=cuda", "deterministic=true", f"tf32={word}") for word in ["false", "true"])
    assert_alike(exact, python_losses(None))
    assert rounded != exact
    assert rounded == pytest.approx(exact, rel=3e-2)


@pytest.mark.parametrize("mixed_precision", ["no", "fp16"])
def test_a_resumed_run_ends_with_the_same_weights_bit_for_bit(tmp_path, mixed_precision):
    common = ["device=cuda", "deterministic=true", f"mixed_precision='{mixed_precision}'", "checkpoint={every: 20, keep_last: null}",
              "training={num_epochs: null, max_steps: 60}"]  # with dropout, whose numbers the GPU draws
    reference.run_trainrun(RECIPE, tmp_path / "whole", *common)
    state = json.loads((tmp_path / "whole/checkpoints/step-00000020/state.json").read_text())
    assert set(state["random"][0]) == {"cpu", "cuda"}
    reference.run_trainrun(RECIPE, tmp_path / "resumed", *common[:3], common[4], "checkpoint={every: 20, keep_last: null, resume: "
                           f"{tmp_path}/whole/checkpoints/step-00000020}}")
    for file in ["model.safetensors", "optimizer.safetensors"]:
        whole, resumed = (safetensors.torch.load_file(tmp_path / run / "checkpoints/step-00000060" / file) for run in ["whole", "resumed"])
        assert whole.keys() == resumed.keys()
        assert all(torch.equal(whole[name], resumed[name]) for name in whole), file


def test_a_run_of_the_cpu_goes_on_and_is_evaluated_on_the_gpu(tmp_path):
    reference.run_trainrun(RECIPE, tmp_path / "cpu", "device=cpu", "training.num_epochs=2")
    on_cpu, on_gpu = (json.loads(trainrun("eval", tmp_path / "cpu", "--json", f"device={device}").stdout) for device in ["cpu", "cuda"])
    assert on_gpu["eval/accuracy"] == on_cpu["eval/accuracy"]
    assert on_gpu["eval/loss"] == pytest.approx(on_cpu["eval/loss"], rel=1e-4)
    reference.run_trainrun(RECIPE, tmp_path / "gpu", "device=cuda", "training.num_epochs=3", f"checkpoint.resume={tmp_path}/cpu/checkpoints/epoch-0002")
    assert (tmp_path / "gpu/checkpoints/epoch-0003").exists()


OPTIMIZERS = ["{type: Adam, lr: 0.003}", "{type: AdamW, lr: 0.003, amsgrad: true}", "{type: SGD, lr: 0.05, momentum: 0.9, nesterov: true}",
              "{type: Adagrad, lr: 0.01}", "{type: Adadelta}", "{type: RMSprop, lr: 0.001, centered: true}", "{type: Adamax}", "{type: NAdam}",
              "{type: RAdam}", "{type: Lion, lr: 0.0003}", "{type: ASGD, lr: 0.05}", "{type: Rprop}", "{type: Adafactor}", "{type: LAMB}",
              "{type: LARS, lr: 0.1, momentum: 0.9}", "{type: LBFGS, lr: 0.1, max_iter: 3}",
              "{type: Lookahead, optimizer: {type: AdamW, lr: 0.003}}", "{type: GradientCentralization, optimizer: {type: AdamW, lr: 0.003}}",
              "{type: AdamW, lr: 0.003, state_dtype: bf16}"]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_optimizer_steps_as_on_the_cpu_and_resumes(tmp_path, optimizer):
    options = [f"optimizer={optimizer}", "training={num_epochs: null, max_steps: 8}", "evaluation.every=null", "deterministic=true"]
    every = "checkpoint={every: 4, keep_last: null"
    on_cpu = [line["train/loss"] for line in run(tmp_path / "cpu", *options, every + "}", "device=cpu")]
    on_gpu = [line["train/loss"] for line in run(tmp_path / "gpu", *options, every + "}", "device=cuda")]
    assert on_gpu == pytest.approx(on_cpu, rel=5e-3)
    run(tmp_path / "resumed", *options, f"{every}, resume: {tmp_path}/gpu/checkpoints/step-00000004}}", "device=cuda")
    whole, resumed = (safetensors.torch.load_file(tmp_path / name / "checkpoints/step-00000008/model.safetensors") for name in ["gpu", "resumed"])
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_every_good_recipe_trains_on_the_gpu(tmp_path, path):
    if "distributed_type" in (ROOT / path).read_text():
        pytest.skip("of several processes")
    recipe_data.skip_without_data(ROOT / path)
    result = trainrun(path, "training.max_steps=3", f"output_dir={tmp_path}/run", "--quiet", "device=cuda")
    assert result.returncode == 0, result.stderr


MOST_OF_IT = ["dataset={train: {type: Synthetic, shape: [1, 64, 64], num_samples: 4000}}", "metrics=[]",
              "model.layers=[Flatten, {type: Linear, out_features: 10}]", "training={num_epochs: null, max_steps: 4}", *QUIET, "device=cuda"]
ALL_SAMPLES = 4000 * 64 * 64 * 4  # bytes


def test_samples_that_stay_the_same_are_kept_on_the_gpu_and_others_not(tmp_path):
    kept, _ = reference.run_trainrun(RECIPE, tmp_path / "kept", *MOST_OF_IT)
    moved, _ = reference.run_trainrun(RECIPE, tmp_path / "moved", *MOST_OF_IT,  # draws, and changes nothing
                                      "dataset.transforms=[{type: RandomHorizontalFlip, p: 0}]", "dataloader.num_workers=2")
    assert summary(tmp_path / "kept")["peak_gpu_memory"] > ALL_SAMPLES
    assert summary(tmp_path / "moved")["peak_gpu_memory"] < ALL_SAMPLES / 2
    assert [line["train/loss"] for line in kept] == pytest.approx([line["train/loss"] for line in moved], rel=1e-6)


def test_one_rank_of_nccl_trains_as_no_rank_does(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NCCL_DEBUG": "INFO"}
    done = subprocess.run([BINARY, "--quiet", RECIPE, f"output_dir={tmp_path}/nccl", LAYERS, STEPS, *QUIET, "distributed_type=MULTI_GPU",
                           "deterministic=true", "logging.every_steps=1", "sync_batchnorm=true"],
                          cwd=ROOT, env=os.environ | ranks, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "NCCL version" in done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "nccl/metrics.jsonl").read_text().splitlines()]
    assert_alike([line["train/loss"] for line in lines], losses(tmp_path / "plain", "device=cuda", "deterministic=true"))
