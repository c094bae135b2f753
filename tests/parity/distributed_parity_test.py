"""Several processes against one, and against DistributedDataParallel over Gloo in Python: the loss of every step, the weights, evaluation."""

import json
import os
import socket
import subprocess
import sys
import textwrap

import pytest
import safetensors.torch
import torch

import reference

LAYERS = "[{type: Conv2d, out_channels: 8, kernel_size: 3}, ReLU, Flatten, {type: Linear, out_features: 32}, ReLU, {type: Linear, out_features: 10}]"
RECIPE = "tests/recipes/digits_small.yaml"


def distributed(num_processes: int) -> list[str]:
    return [f"distributed_type={'MULTI_CPU' if num_processes > 1 else 'NO'}", f"num_processes={num_processes}"]


def train(folder, num_processes, *overrides):
    """The lines of metrics.jsonl, and the weights."""
    lines, _ = reference.run_trainrun(RECIPE, folder, *distributed(num_processes), f"model.layers={LAYERS}", *overrides)
    checkpoint = sorted((folder / "checkpoints").glob("*-*"))[-1]
    return lines, safetensors.torch.load_file(checkpoint / "model.safetensors")


def losses(lines):
    return [line["train/loss"] for line in lines if line["split"] == "train"]


@pytest.mark.parametrize("num_processes", [2, 4])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_ranks_train_as_one_process_with_the_same_global_batch(tmp_path, num_processes, accumulation):
    def run(n):
        return train(tmp_path / str(n), n, f"dataloader={{batch_size: {32 // n}}}", "training={num_epochs: null, max_steps: 20, "
                     f"gradient_accumulation_steps: {accumulation}, max_grad_norm: 0.5}}", "optimizer={type: SGD, lr: 0.2, momentum: 0.9}")

    one, one_weights = run(1)
    several, weights = run(num_processes)
    assert losses(several) == pytest.approx(losses(one), rel=1e-5)
    assert losses(one)[-1] < 0.9 * losses(one)[0]
    for name, weight in weights.items():
        assert torch.allclose(weight, one_weights[name], rtol=1e-4, atol=1e-6), name
    norms = [[line["train/grad_norm"] for line in lines if line["split"] == "train"] for lines in (one, several)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)


DDP = textwrap.dedent("""
    import json, sys
    sys.path.insert(0, "tests/parity")
    import torch, torch.distributed as dist
    import reference
    from torch import nn
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    images, labels = reference.digits("train")
    data = TensorDataset(images, labels)
    sampler = DistributedSampler(data, seed=3)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    epoch = 0
    while len(losses) < 100:
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=16, sampler=sampler):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item() / dist.get_world_size())
            if len(losses) == 100:
                break
        epoch += 1
    if dist.get_rank() == 0:
        print(json.dumps(losses))
    dist.destroy_process_group()
""")


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def test_losses_equal_distributed_data_parallel(tmp_path):
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "PYTHONDONTWRITEBYTECODE": "1"}
    ranks = [subprocess.Popen([sys.executable, "-c", DDP], env=environment | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
             for rank in range(2)]
    expected = json.loads([rank.communicate(timeout=300)[0] for rank in ranks][0])
    layers = "[{type: Conv2d, out_channels: 8, kernel_size: 3}, BatchNorm2d, ReLU, Flatten, {type: Linear, out_features: 10}]"
    lines, _ = reference.run_trainrun(RECIPE, tmp_path / "run", *distributed(2), f"model.layers={layers}", "dataloader={batch_size: 16}",
                                      "training={num_epochs: null, max_steps: 100}", "evaluation.every=null")
    assert losses(lines) == pytest.approx(expected, rel=1e-4)
    assert expected[-1] < 0.2 * expected[0]


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
