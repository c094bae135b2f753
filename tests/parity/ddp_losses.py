"""A rank of Python's DistributedDataParallel over Gloo: trains with each communication hook, and rank 0 prints the losses."""

import json

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import reference


def compressing(model: nn.Module, hook: str) -> nn.Module:
    model = nn.parallel.DistributedDataParallel(model)
    if hook == "FP16Compression":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "BF16Compression":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    elif hook.startswith("PowerSGD"):
        rank = int(hook[8:])
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=5, min_compression_rate=1.1)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return model


def losses(data: TensorDataset, hook: str, steps: int) -> list[float]:
    """Of each step, the mean over the ranks."""
    sampler = DistributedSampler(data, seed=3)
    torch.manual_seed(3)
    model = compressing(nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)), hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    found = []
    epoch = 0
    while len(found) < steps:
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=16, sampler=sampler):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total)
            found.append(total.item() / dist.get_world_size())
            if len(found) == steps:
                break
        epoch += 1
    return found


def main(arguments: list[str]) -> None:
    """`arguments`: JSON of the steps for each hook."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    data = TensorDataset(*reference.digits("train"))
    of_hooks = {hook: losses(data, hook, steps) for hook, steps in json.loads(arguments[0]).items()}
    if dist.get_rank() == 0:
        print(json.dumps(of_hooks))
    dist.destroy_process_group()
