"""What `trainrun explain --world-size` foresees against what real ranks, and a dry run without the others, held and sent."""

import json
import os
import pathlib
import resource
import subprocess

import pytest
import torch
from torch.utils.data import DistributedSampler

import reference

from tests.program import CALLED

RECIPE = str(pathlib.Path("tests/recipes/digits_small.yaml").resolve())
LAYERS = ("model.layers=[Flatten, {type: Linear, out_features: 400}, BatchNorm1d, ReLU, {type: Linear, out_features: 700}, ReLU, "
          "{type: Linear, out_features: 10}]")
PARAMETERS = 65 * 400 + 2 * 400 + 401 * 700 + 701 * 10
COPIES = ["distributed_type=MULTI_CPU", "distributed.bucket_cap_mb=1"]
SHARDS = ["distributed_type=FSDP"]
KINDS = {
    "copies": COPIES,
    "copies, half precision": [*COPIES, "distributed.comm_hook=FP16Compression"],
    "copies, BatchNorm over ranks": [*COPIES, "sync_batchnorm=true"],
    "stage 3": SHARDS,
    "stage 3, clipped": [*SHARDS, "training.max_grad_norm=1", "sharding.prefetch=false"],
    "copies, by the clock": [*COPIES, "training.max_time=10h", "training.max_grad_value=1"],
    "stage 3, two units": [*SHARDS, "sharding.wrap=['1', '4']"],
    "stage 2": [*SHARDS, "sharding.strategy=SHARD_GRAD_OP"],
    "stage 1": [*SHARDS, "sharding.zero_stage=1"],
    "two losses": [*COPIES, "loss=[CrossEntropyLoss, {type: MultiMarginLoss, loss_weight: 0.5}]"],
    "bfloat16 state": [*SHARDS, "optimizer.state_dtype=bf16"],
}
HELD = ["parameters_bytes", "gradients_bytes", "optimizer_state_bytes"]


def explain(*arguments: str, recipe=RECIPE, cwd=None):
    done = subprocess.run([CALLED, "explain", recipe, "--json", *arguments], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def train(folder, num_processes, *overrides):
    """What each rank held and sent, as the summary of the run says."""
    common = [f"num_processes={num_processes}", "evaluation.every=null", "checkpoint.every=null", "logging.every_steps=1"]
    reference.run_trainrun(RECIPE, folder, *common, *overrides)
    return json.loads((folder / "summary.json").read_text())["ranks"]


def after(plan, steps: int):
    """{(purpose, operation): (calls, bytes)} of so many steps."""
    total = {}
    for lines, times in ((plan["traffic"]["start"], 1), (plan["traffic"]["first_step"], 1), (plan["traffic"]["step"], steps - 1)):
        for line in lines:
            calls, size = total.get((line["purpose"], line["operation"]), (0, 0))
            total[line["purpose"], line["operation"]] = (calls + times * line["calls"], size + times * line["bytes"])
    return total


# A few numbers when the ranks meet, save and end: no part of the steps that are foreseen.
BESIDE_STEPS = ("checkpoint", "the comparison of the ranks' recipes and data", "the check of the weights")


def sent(lines):
    return {(line["purpose"], line["operation"]): (line["calls"], line["bytes"]) for line in lines
            if not any(purpose in line["purpose"] for purpose in BESIDE_STEPS)}


@pytest.mark.parametrize("kind, num_processes, accumulation", [*((kind, 4, 3) for kind in KINDS), ("copies", 2, 1), ("stage 3", 2, 1), ("stage 1", 2, 1)])
def test_real_ranks_hold_and_send_what_is_foreseen(tmp_path, kind, num_processes, accumulation):
    overrides = [LAYERS, "training={num_epochs: null, max_steps: 3, gradient_accumulation_steps: %d}" % accumulation,
                 "dataloader={batch_size: 8}", *KINDS[kind]]
    ranks = train(tmp_path / "run", num_processes, *overrides)
    assert [rank["rank"] for rank in ranks] == list(range(num_processes))
    for rank in ranks:
        plan = explain(*overrides, "--world-size", str(num_processes), "--rank", str(rank["rank"]))
        assert sent(rank["traffic"]) == after(plan, 3)
        for name in HELD:
            assert rank[name] == pytest.approx(plan["held"][name], rel=0.05), name
    whole = 4 * PARAMETERS * (num_processes if "copies" in kind or kind == "two losses" else 1)
    assert sum(rank["parameters_bytes"] for rank in ranks) == pytest.approx(whole, rel=0.01)
    assert sum(rank["gradients_bytes"] for rank in ranks) == pytest.approx(whole, rel=0.01)


@pytest.mark.parametrize("losses", [[], KINDS["two losses"][-1:]])
def test_ranks_make_one_collective_a_step_besides_those_of_the_gradients(tmp_path, losses):
    """Without running means, which rank 0 hands out: the losses, the tokens and the signals that came travel together."""
    ranks = train(tmp_path / "run", 2, LAYERS.replace("BatchNorm1d, ", ""), "training={num_epochs: null, max_steps: 5, max_grad_norm: 1}", *COPIES, *losses)
    numbers = 3 + 1 + 1 + (3 if losses else 1)  # signals, whether trainrun ctl asks for something, tokens, losses
    for rank in ranks:
        besides = {key: counts for key, counts in sent(rank["traffic"]).items() if key[0] not in ("gradients", "initial weights")}
        assert besides == {("the end of the step", "all_reduce"): (5, 5 * 8 * numbers)}


def test_the_summary_of_one_process_says_what_it_held(tmp_path):
    ranks = train(tmp_path / "run", 1, LAYERS, "training={num_epochs: null, max_steps: 2}")
    assert len(ranks) == 1
    assert ranks[0]["traffic"] == [] and ranks[0]["steps"] == 2
    assert ranks[0]["parameters_bytes"] == ranks[0]["gradients_bytes"] == 4 * PARAMETERS
    num_tensors = 8
    assert ranks[0]["optimizer_state_bytes"] == 2 * 4 * PARAMETERS + 4 * num_tensors  # Adam's two means, and its step


@pytest.mark.parametrize("world_size", [2, 64, 4096])
@pytest.mark.parametrize("kind", ["copies", "stage 3"])
def test_a_dry_run_of_one_rank_holds_and_sends_what_is_foreseen(tmp_path, kind, world_size):
    rank = min(7, world_size - 1)
    layers = LAYERS.replace("BatchNorm1d, ", "")  # it cannot normalize over one sample, which is all that 4,096 ranks have each
    plan = explain(layers, *KINDS[kind], "dataloader={batch_size: 8}", "--world-size", str(world_size), "--rank", str(rank), "--dry-run",
                   cwd=tmp_path)
    found = plan["dry_run"]
    assert found["rank"] == rank and found["steps"] == 2
    assert sent(found["traffic"]) == after(plan, 2)
    for name in HELD:
        assert found[name] == plan["held"][name], name
    num_samples = len(reference.digits("train")[1])
    sampler = DistributedSampler(range(num_samples), num_replicas=world_size, rank=rank, seed=3)
    per_epoch = len(sampler)
    assert plan["samples"]["per_rank_and_epoch"] == per_epoch
    assert plan["samples"]["added"] == per_epoch * world_size - num_samples
    assert found["first_samples"] == list(sampler)[:8]
    batches = [min(8, per_epoch - start) for start in range(0, per_epoch, 8)] * 2
    assert found["samples_seen"] == sum(batches[:2])
    assert list(tmp_path.iterdir()) == []


def test_samples_and_steps_are_those_of_pytorch():
    for drop_last in (False, True):
        overrides = ["dataset.train.num_samples=10007", "model.layers=[{type: Linear, out_features: 10}]", "distributed_type=MULTI_CPU",
                     f"dataloader={{batch_size: 32, drop_last: {str(drop_last).lower()}}}"]
        plan = explain(*overrides, "--world-size", "3", recipe="tests/recipes/hundred_million.yaml")
        sampler = DistributedSampler(range(10007), num_replicas=3, rank=1)
        loader = torch.utils.data.DataLoader(range(10007), batch_size=32, sampler=sampler, drop_last=drop_last)
        assert plan["samples"]["per_rank_and_epoch"] == len(sampler)
        assert plan["samples"]["steps_per_epoch"] == len(loader)
        assert plan["samples"]["left_out"] == (3 * (len(sampler) - 32 * len(loader)) if drop_last else 0)


@pytest.mark.parametrize("arguments, message", [
    (["--world-size", "2"], "distributed_type"),
    (["distributed_type=MULTI_CPU", "--world-size", "2", "--rank", "2"], "there is no rank 2"),
    (["distributed_type=MULTI_CPU", "--world-size", "10", "--ranks-per-node", "4"], "cannot be divided evenly"),
    (["--rank", "1"], "--world-size"),
    (["distributed_type=FSDP", "optimizer={type: LARS, lr: 0.1}", "--world-size", "2"], "only pieces"),
])
def test_what_cannot_be_is_refused(arguments, message):
    done = subprocess.run([CALLED, "explain", RECIPE, *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stderr


def test_ranks_may_have_more_connections_than_the_system_allows_unasked(tmp_path):
    few = 16

    def allow_few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    command = [os.environ["TRAINRUN_BINARY"], "--quiet", RECIPE, f"output_dir={tmp_path / 'run'}", "distributed_type=MULTI_CPU", "num_processes=4",
               "training={num_epochs: null, max_steps: 1}", "evaluation.every=null", "checkpoint.every=null"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=allow_few)
    assert done.returncode == 0, done.stderr
