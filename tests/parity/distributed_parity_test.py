"""Several processes against one, and against DistributedDataParallel over Gloo in Python: the loss of every step, the weights, evaluation."""

import json
import os
import socket
import subprocess

import pytest
import safetensors.torch
import torch

import reference
from tests.forked import forked

LAYERS = "[{type: Conv2d, out_channels: 8, kernel_size: 3}, ReLU, Flatten, {type: Linear, out_features: 32}, ReLU, {type: Linear, out_features: 10}]"
RECIPE = "tests/recipes/digits_small.yaml"


def distributed(num_processes: int) -> list[str]:
    return [f"distributed_type={'MULTI_CPU' if num_processes > 1 else 'NO'}", f"num_processes={num_processes}"]


def train(folder, num_processes, *overrides):
    """The lines of metrics.jsonl, and the weights."""
    lines, _ = reference.run_trainrun(RECIPE, folder, *distributed(num_processes), f"model.layers={LAYERS}", *overrides)
    checkpoint = sorted((folder / "checkpoints").glob("*-*"))[-1]
    return lines, safetensors.torch.load_file(checkpoint / "model.safetensors")


@pytest.mark.parametrize("accumulation", [1, 2])
def test_ranks_train_as_one_process_with_the_same_global_batch(tmp_path, accumulation):
    def run(n):
        return train(tmp_path / str(n), n, f"dataloader={{batch_size: {32 // n}}}", "training={num_epochs: null, max_steps: 20, "
                     f"gradient_accumulation_steps: {accumulation}, max_grad_norm: 0.5}}", "optimizer={type: SGD, lr: 0.2, momentum: 0.9}")

    one, one_weights = run(1)
    assert reference.losses_of(one)[-1] < 0.9 * reference.losses_of(one)[0]
    for num_processes in (2, 4):
        several, weights = run(num_processes)
        assert reference.losses_of(several) == pytest.approx(reference.losses_of(one), rel=1e-5), num_processes
        for name, weight in weights.items():
            assert torch.allclose(weight, one_weights[name], rtol=1e-4, atol=1e-6), (num_processes, name)
        norms = [[line["train/grad_norm"] for line in lines if line["split"] == "train"] for lines in (one, several)]
        assert norms[1] == pytest.approx(norms[0], rel=1e-4), num_processes


# {name: overrides}; all of them must give what one process gives that sees the whole batch.
MODES = {
    "DDP": ["distributed_type=MULTI_CPU"],
    "small buckets": ["distributed_type=MULTI_CPU", "distributed.bucket_cap_mb=1"],
    "FULL_SHARD": ["distributed_type=FSDP"],
    "FULL_SHARD, patterns": ["distributed_type=FSDP", "sharding={wrap: ['body\\.(0|1)', fc], prefetch: false}"],
    "SHARD_GRAD_OP": ["distributed_type=FSDP", "sharding={strategy: SHARD_GRAD_OP}"],
    "ZeRO stage 1": ["distributed_type=FSDP", "sharding={zero_stage: 1}"],
    "NO_SHARD": ["distributed_type=FSDP", "sharding={strategy: NO_SHARD}"],
}
BODY = ("[{name: body, type: Sequential, layers: [{type: Conv2d, out_channels: 8, kernel_size: 3, bias: false}, NORM, ReLU, "
        "{type: Conv2d, out_channels: 12, kernel_size: 3}]}, Flatten, {type: Linear, out_features: 32}, ReLU, "
        "{type: Dropout, p: 0.0}, {name: fc, type: Linear, out_features: 10}]")


LARGE = 1e5  # a learning rate beside whose step the weights before hardly count: g = (w0 - w1) / lr, to seven digits


def weights_after_a_step(folder, norm, lr, num_processes, accumulation, *overrides):
    batch_size = 32 // num_processes // accumulation
    _, weights = train_plain(
        folder, f"model.layers={BODY.replace('NORM', norm)}", f"num_processes={num_processes}", f"dataloader={{batch_size: {batch_size}}}",
        f"training={{num_epochs: null, max_steps: 1, gradient_accumulation_steps: {accumulation}}}", "evaluation.every=null",
        f"optimizer={{type: SGD, lr: {lr}}}", *overrides)
    return weights


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The weights before and after a step of one process: (norm, accumulation) -> two state dicts."""
    known = {}

    def run(norm, accumulation):
        if (norm, accumulation) not in known:
            folder = tmp_path_factory.mktemp("alone")
            known[norm, accumulation] = [weights_after_a_step(folder / str(lr), norm, lr, 1, accumulation) for lr in (0, LARGE)]
        return known[norm, accumulation]

    return run


GROUP_NORM = "{type: GroupNorm, num_groups: 2}"
# Each mode with two ranks and with four, alone and in windows; the common ones with each of these together.
CASES = [(mode, overrides, GROUP_NORM, GROUP_NORM, accumulation, num_processes) for mode, overrides in MODES.items()
         for accumulation, num_processes in ((1, 2), (2, 4), *([(2, 2), (1, 4)] if mode in ("DDP", "FULL_SHARD") else []))]
# A window's batches are normalized one by one, so these have windows of one.
CASES += [(*case, 1, num_processes) for num_processes in (2, 4) for case in (("SyncBatchNorm", ["distributed_type=MULTI_CPU"], "SyncBatchNorm", "BatchNorm2d"),
                                                                             ("sync_batchnorm", ["distributed_type=FSDP", "sync_batchnorm=true"], "BatchNorm2d", "BatchNorm2d"))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}, window of {case[4]}, {case[5]} ranks")
def test_gradients_equal_those_of_one_process(tmp_path, alone, case):
    _, overrides, norm, norm_alone, accumulation, num_processes = case
    before, after = alone(norm_alone, accumulation)
    several = weights_after_a_step(tmp_path / "several", norm, LARGE, num_processes, accumulation, *overrides)
    assert several.keys() == before.keys()
    for name, start in before.items():
        if name.endswith(("running_mean", "running_var", "num_batches_tracked")):
            assert torch.allclose(several[name], after[name], rtol=1e-5, atol=1e-6), name
            continue
        expected, found = [(start.double() - end[name].double()) / LARGE for end in (after, several)]
        assert expected.norm() > 1e-5, name
        assert (found - expected).norm() < 1e-5 * expected.norm(), name


def test_sharded_training_equals_one_process(tmp_path):
    """Clipping, parameter groups and frozen layers included; Adam's running means are those of a whole run."""
    common = [f"model.layers={BODY.replace('NORM', 'Identity')}", "training={num_epochs: null, max_steps: 20, max_grad_norm: 0.5, "
              "gradient_accumulation_steps: 2}", "evaluation.every=10", "optimizer={type: AdamW, lr: 3e-3, param_groups: [{match: 'bias$', weight_decay: 0}]}"]

    def state_of(run):
        return safetensors.torch.load_file(next((tmp_path / run / "checkpoints").glob("step-*20")) / "optimizer.safetensors")

    one, _ = reference.run_trainrun(RECIPE, tmp_path / "one", *common, "dataloader.batch_size=32")
    expected = state_of("one")
    for mode in ("FULL_SHARD", "SHARD_GRAD_OP", "ZeRO stage 1"):
        several, _ = reference.run_trainrun(RECIPE, tmp_path / mode.replace(" ", "_"), *common, "dataloader.batch_size=8", "num_processes=4", *MODES[mode])
        assert reference.losses_of(several) == pytest.approx(reference.losses_of(one), rel=1e-4), mode
        state = state_of(mode.replace(" ", "_"))
        assert state.keys() == expected.keys()
        for name, tensor in expected.items():
            assert state[name].shape == tensor.shape
            assert torch.allclose(state[name].double(), tensor.double(), rtol=1e-2, atol=1e-5), (mode, name)


def test_clipping_by_value_and_several_sets_of_evaluation_data_are_the_same_on_pieces_and_over_ranks(tmp_path):
    """And a job that is out of time ends on all ranks after the same step."""
    sets = "{clean: {type: Digits, split: test}, noisy: {type: Synthetic, num_samples: 50, shape: [1, 8, 8], num_classes: 10}}"
    common = [f"model.layers={BODY.replace('NORM', 'Identity')}", "training={num_epochs: null, max_steps: 10, max_grad_value: 0.002, max_time: 10h}",
              "optimizer={type: SGD, lr: 0.5}", "dataset.eval=null", f"dataset.eval={sets}", "evaluation.every=5", "checkpoint={every: 10h, keep_best: {monitor: eval/noisy/loss, mode: min}}"]
    one, _ = reference.run_trainrun(RECIPE, tmp_path / "one", *common, "dataloader.batch_size=24")
    for name, mode in {"whole": ["distributed_type=MULTI_CPU"], "pieces": MODES["FULL_SHARD"]}.items():
        several, _ = reference.run_trainrun(RECIPE, tmp_path / name, *common, "dataloader.batch_size=8", "num_processes=3", *mode)
        assert [line.keys() for line in several] == [line.keys() for line in one]
        for mine, expected in zip(several, one, strict=True):
            for key in mine.keys() & {"train/loss", "eval/clean/loss", "eval/clean/accuracy", "eval/noisy/loss", "eval/noisy/accuracy"}:
                assert mine[key] == pytest.approx(expected[key], rel=1e-4), (name, key)
    assert {"eval/clean/accuracy", "eval/noisy/accuracy"} <= one[-1].keys()
    late, folder = reference.run_trainrun(RECIPE, tmp_path / "late", *common, "training.max_steps=1000000", "training.max_time=0.001s", "evaluation.every=null",
                                          "checkpoint.keep_best=null", "dataloader.batch_size=8", "num_processes=2", "distributed_type=MULTI_CPU")
    assert [line["step"] for line in late] == [1]
    assert json.loads((folder / "summary.json").read_text())["stopped"] == "training.max_time, 0.001s, is over"


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_sharding_and_mixed_precision_go_together(tmp_path, precision):
    """In fp16 the first steps overflow: every rank must skip them, also one whose own piece is finite."""
    common = [f"model.layers={BODY.replace('NORM', 'Identity')}", "training={num_epochs: null, max_steps: 12, max_grad_norm: 1}", "num_processes=3",
              "evaluation.every=null", f"mixed_precision={precision}", "dataloader.batch_size=8", "grad_scaler={init_scale: 16777216}"]
    runs = [reference.run_trainrun(RECIPE, tmp_path / kind, *common, f"distributed_type={kind}")[0] for kind in ("MULTI_CPU", "FSDP")]
    assert reference.losses_of(runs[1]) == pytest.approx(reference.losses_of(runs[0]), rel=1e-3)
    figures = [[(line.get("train/loss_scale"), line.get("train/skipped_steps")) for line in run if line["split"] == "train"] for run in runs]
    assert figures[0] == figures[1]
    if precision == "fp16":
        assert figures[0][-1][1] > 0


def test_bfloat16_state_is_gathered_and_goes_on(tmp_path):
    common = [*MODES["FULL_SHARD"], "num_processes=3", f"model.layers={BODY.replace('NORM', 'Identity')}", "dataloader={batch_size: 8}",
              "optimizer={type: AdamW, lr: 3e-3, state_dtype: bf16}", "training={num_epochs: null, max_steps: 8}", "evaluation.every=null",
              "checkpoint={every: 4, keep_last: null}"]
    _, whole = train_plain(tmp_path / "whole", *common)
    _, part = train_plain(tmp_path / "part", *common, f"checkpoint.resume={tmp_path / 'whole/checkpoints/step-00000004'}")
    assert all(torch.equal(part[name], tensor) for name, tensor in whole.items())
    state = safetensors.torch.load_file(tmp_path / "whole/checkpoints/step-00000008/optimizer.safetensors")
    assert state["fc.weight.exp_avg"].dtype == torch.bfloat16 and state["fc.weight.exp_avg"].shape == (10, 32)


@pytest.mark.parametrize("recipe", ["digits_triplet", "digits_transformer", "digits_gru", "digits_unet", "tied", "class_token"])
def test_sharding_any_net_changes_nothing(tmp_path, recipe):
    """Weights that several layers share, attention, recurrent layers, skips: as with whole copies."""
    path, common = f"recipes/{recipe}.yaml", ["checkpoint.keep_best=null", "metrics=[]"]  # Adam would make much of a gradient that is 0 but for rounding
    if recipe == "class_token":  # free parameters, which are layers without a module
        path = "tests/recipes/valid/class_token.yaml"
    if recipe == "tied":
        path = RECIPE
        common = ["model.layers=[Flatten, {type: Linear, out_features: 16}, {name: a, type: Linear, out_features: 16}, ReLU, "
                  "{name: b, type: Linear, out_features: 16, share: a}, {type: Linear, out_features: 10}]"]
    common += ["optimizer={type: SGD, lr: 0.1}", "num_processes=2", "dataloader.batch_size=16", "training={num_epochs: null, max_steps: 6}", "evaluation.every=3"]
    runs = [train_plain(tmp_path / kind, *common, f"distributed_type={kind}", path=path) for kind in ("MULTI_CPU", "FSDP")]
    assert reference.losses_of(runs[1][0]) == pytest.approx(reference.losses_of(runs[0][0]), rel=1e-5)
    assert runs[0][1].keys() == runs[1][1].keys()
    for name, tensor in runs[0][1].items():
        assert torch.allclose(runs[1][1][name], tensor, rtol=1e-3, atol=1e-6), name


def test_a_sharded_checkpoint_goes_on_under_other_ranks(tmp_path):
    """Four ranks, then one, then three: the losses are those of one process all along."""
    common = [f"model.layers={BODY.replace('NORM', 'Identity')}", "optimizer={type: AdamW, lr: 3e-3}", "evaluation.every=null",
              "checkpoint={every: 4, keep_last: null}", "scheduler={type: StepLR, step_size: 5, gamma: 0.5}"]

    def run(name, num_processes, steps, start=None):
        batch = {1: 24, 3: 8, 4: 6}[num_processes]
        kind = "NO" if num_processes == 1 else "FSDP"
        lines, folder = reference.run_trainrun(
            RECIPE, tmp_path / name, *common, f"distributed_type={kind}", f"num_processes={num_processes}", f"dataloader.batch_size={batch}",
            f"training={{num_epochs: null, max_steps: {steps}}}", *([f"checkpoint.resume={start}"] if start else []))
        return reference.losses_of(lines), folder / "checkpoints" / f"step-{steps:08d}"

    whole, _ = run("whole", 1, 12)
    first, checkpoint = run("four", 4, 4)
    second, checkpoint = run("one", 1, 8, checkpoint)
    third, _ = run("three", 3, 12, checkpoint)
    assert first + second + third == pytest.approx(whole, rel=1e-4)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


HOOKS = {"none": None, "FP16Compression": "FP16Compression", "BF16Compression": "BF16Compression",
         "PowerSGD1": "{type: PowerSGD, start_powerSGD_iter: 5, min_compression_rate: 1.1}",
         "PowerSGD3": "{type: PowerSGD, matrix_approximation_rank: 3, start_powerSGD_iter: 5, min_compression_rate: 1.1}"}


HOOK_STEPS = {hook: 60 if hook == "none" else 40 for hook in HOOKS}


@pytest.fixture(scope="module")
def losses_of_ddp():
    """Those of each hook in Python, from one pair of processes."""
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [forked("ddp_losses", "main", [json.dumps(HOOK_STEPS)], env=environment | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
             for rank in range(2)]
    return json.loads([rank.communicate(timeout=300)[0] for rank in ranks][0])


@pytest.mark.parametrize("hook", HOOKS)
def test_losses_equal_distributed_data_parallel(tmp_path, losses_of_ddp, hook):
    steps = HOOK_STEPS[hook]
    layers = "[{type: Conv2d, out_channels: 8, kernel_size: 3}, BatchNorm2d, ReLU, Flatten, {type: Linear, out_features: 10}]"
    chosen = [f"distributed.comm_hook={HOOKS[hook]}"] if HOOKS[hook] else []
    lines, _ = reference.run_trainrun(RECIPE, tmp_path / "run", *distributed(2), f"model.layers={layers}", "dataloader={batch_size: 16}",
                                      f"training={{num_epochs: null, max_steps: {steps}}}", "evaluation.every=null", *chosen)
    assert reference.losses_of(lines) == pytest.approx(losses_of_ddp[hook], rel=1e-4 if hook in ("none", "FP16Compression") else 2e-3)
    assert losses_of_ddp[hook][-1] < 0.5 * losses_of_ddp[hook][0]


def test_a_layer_without_part_in_the_loss(tmp_path):
    layers = ("[{name: flat, type: Flatten}, {name: idle, type: Linear, out_features: 3}, {type: Linear, out_features: 10, inputs: flat}]")
    common = [f"model.layers={layers}", "dataloader={batch_size: 16}", "training={num_epochs: null, max_steps: 5}", "evaluation.every=null"]
    done = subprocess.run([os.environ["TRAINRUN_BINARY"], RECIPE, f"output_dir={tmp_path / 'bad'}", *distributed(2), *common], capture_output=True, text=True)
    assert done.returncode == 1
    assert "find_unused_parameters: true" in done.stderr
    good, weights = train_plain(tmp_path / "good", *distributed(2), *common, "distributed.find_unused_parameters=true")
    alone, alone_weights = train_plain(tmp_path / "alone", *distributed(1), *common, "dataloader={batch_size: 32}")
    assert reference.losses_of(good) == pytest.approx(reference.losses_of(alone), rel=1e-5)
    assert torch.equal(weights["idle.weight"], alone_weights["idle.weight"])  # untouched: no weight decay either


def train_plain(folder, *overrides, path=RECIPE):
    lines, _ = reference.run_trainrun(path, folder, *overrides)
    return lines, safetensors.torch.load_file(sorted((folder / "checkpoints").glob("*-*"))[-1] / "model.safetensors")


def test_an_evaluation_counts_every_sample_once_whatever_the_ranks(tmp_path):
    """360 samples, not divisible by 7 ranks; also what is gathered, and what is summed up."""
    figures = {}
    for n in (1, 3, 7):
        lines, _ = reference.run_trainrun(
            RECIPE, tmp_path / str(n), *distributed(n), "optimizer={type: SGD, lr: 0}", "training={num_epochs: null, max_steps: 1}",
            "metrics=[Accuracy, {type: F1, average: macro}, AUROC, ConfusionMatrix, Perplexity]", "checkpoint.every=null",
            "dataloader={batch_size: 8, eval_batch_size: 11}")
        figures[n] = {k: v for k, v in next(line for line in lines if line["split"] == "eval").items() if k.startswith("eval/")}
    for n in (3, 7):
        assert figures[n].keys() == figures[1].keys()
        for name, value in figures[1].items():
            exact = name not in ("eval/loss", "eval/perplexity", "eval/auroc")
            assert figures[n][name] == (value if exact else pytest.approx(value, rel=1e-6)), name


def test_the_accuracy_over_three_ranks_of_10007_samples_is_that_of_one(tmp_path):
    data = "{type: Synthetic, num_samples: 10007, shape: [6], num_classes: 5}"
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"""
model: {{layers: [{{type: Linear, out_features: 5}}]}}
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset: {{train: {data}, eval: {data}}}
dataloader: {{batch_size: 64}}
optimizer: {{type: SGD, lr: 0}}
training: {{max_steps: 1}}
checkpoint: {{every: null}}
""")
    found = []
    for n in (1, 3):
        lines, _ = reference.run_trainrun(str(recipe), tmp_path / str(n), *distributed(n))
        found.append(next(line["eval/accuracy"] for line in lines if line["split"] == "eval"))
    assert found[0] == found[1]
    assert found[0] * 10007 == pytest.approx(round(found[0] * 10007), abs=1e-6)


@pytest.mark.parametrize("mode", ["PowerSGD", "FULL_SHARD", "SHARD_GRAD_OP"])
def test_resuming_three_ranks_is_exact(tmp_path, mode):
    """Also what a communication hook remembers, and the order of sums, which over three ranks is not indifferent."""
    chosen = {"PowerSGD": ["distributed_type=MULTI_CPU", "distributed.comm_hook={type: PowerSGD, start_powerSGD_iter: 3, min_compression_rate: 1.1}"]}
    common = [*(chosen.get(mode) or MODES[mode]), "num_processes=3", f"model.layers={BODY.replace('NORM', 'BatchNorm2d')}", "dataloader={batch_size: 8}",
              "training={num_epochs: null, max_steps: 12}", "evaluation.every=null", "checkpoint={every: 6, keep_last: null}"]
    train_plain(tmp_path / "whole", *common)
    _, part = train_plain(tmp_path / "part", *common, f"checkpoint.resume={tmp_path / 'whole/checkpoints/step-00000006'}")
    whole = safetensors.torch.load_file(tmp_path / "whole/checkpoints/step-00000012/model.safetensors")
    assert all(torch.equal(part[name], tensor) for name, tensor in whole.items())


@pytest.mark.parametrize("layer", ["Dropout", "BatchNorm1d"])
def test_a_resumed_run_of_ranks_ends_with_the_same_weights(tmp_path, layer):
    layers = f"model.layers=[Flatten, {{type: Linear, out_features: 16}}, {layer}, ReLU, {{type: Linear, out_features: 10}}]"
    common = [*distributed(2), layers, "dataloader={batch_size: 16}", "training={num_epochs: 2}", "evaluation.every=null",
              "checkpoint={every: 20, keep_last: null}"]
    reference.run_trainrun(RECIPE, tmp_path / "whole", *common)
    reference.run_trainrun(RECIPE, tmp_path / "part", *common, f"checkpoint.resume={tmp_path / 'whole/checkpoints/step-00000040'}")
    last = [sorted((tmp_path / run / "checkpoints").glob("epoch-0002*"))[0] for run in ("whole", "part")]
    weights = [safetensors.torch.load_file(path / "model.safetensors") for path in last]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    random = json.loads((last[0] / "state.json").read_text())["random"]
    assert len(random) == 2
