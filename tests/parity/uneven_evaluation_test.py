"""Evaluation where the ranks have different numbers of batches, or one has none: the figures of one process."""

import pytest

import reference

RECIPE = "tests/recipes/digits_small.yaml"
# A norm that works on the ranks' batches together, and layers that are gathered one by one.
LAYERS = ("[{type: Conv2d, out_channels: 8, kernel_size: 3}, BatchNorm2d, ReLU, Flatten, {type: Linear, out_features: 32}, ReLU, "
          "{type: Linear, out_features: 10}]")
METRICS = "[Accuracy, {type: F1, average: macro}, {type: AUROC}]"
MODES = {
    "DDP": ["distributed_type=MULTI_CPU"],
    "FULL_SHARD": ["distributed_type=FSDP"],
    "FULL_SHARD, no prefetch": ["distributed_type=FSDP", "sharding.prefetch=false"],
    "SHARD_GRAD_OP": ["distributed_type=FSDP", "sharding={strategy: SHARD_GRAD_OP}"],
}


def figures(folder, num_processes: int, eval_batch_size: int, samples: int, *overrides: str) -> dict[str, float]:
    """Of the evaluation after one step on a batch of 24, over all ranks."""
    lines, _ = reference.run_trainrun(
        RECIPE, folder, f"num_processes={num_processes}", f"model.layers={LAYERS}", f"metrics={METRICS}", "optimizer={type: SGD, lr: 0.1}",
        f"dataset.eval={{type: Digits, split: test, subset: {samples}}}", "training={num_epochs: null, max_steps: 1}", "sync_batchnorm=true",
        f"dataloader={{batch_size: {24 // num_processes}, eval_batch_size: {eval_batch_size}}}", "distributed.timeout=20", *overrides)
    return {name: value for name, value in lines[-1].items() if name.startswith("eval/")}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    known = {}

    def of(samples):
        if samples not in known:
            known[samples] = figures(tmp_path_factory.mktemp("alone") / "run", 1, 64, samples)
        return known[samples]

    return of


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_processes, samples, eval_batch_size", [(2, 359, 179), (3, 2, 5), (3, 91, 10)])
def test_ranks_with_fewer_batches_keep_pace_and_count_nothing_twice(tmp_path, alone, mode, num_processes, samples, eval_batch_size):
    several = figures(tmp_path / "run", num_processes, eval_batch_size, samples, *MODES[mode])
    assert set(several) >= {"eval/loss", "eval/accuracy", "eval/f1", "eval/auroc"}
    assert several == pytest.approx(alone(samples), rel=1e-4, nan_ok=True)
