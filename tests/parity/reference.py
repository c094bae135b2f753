"""The jobs of the training tests as plain PyTorch programs: data, models and loops of their own."""

import functools
import gzip
import json
import os
import pathlib
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator

import numpy as np
import sklearn.datasets
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))  # where a script is run that imports this
from tests.program import CALLED  # noqa: E402


class Residual(nn.Module):
    def __init__(self, main: OrderedDict, shortcut: OrderedDict):
        super().__init__()
        self.main = nn.Sequential(main)
        self.shortcut = nn.Sequential(shortcut)

    def forward(self, x):
        return self.main(x) + self.shortcut(x)


class LstmClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(28, 48, num_layers=2, batch_first=True, dropout=0.2)
        self.fc = nn.Linear(48, 10)

    def forward(self, images):
        sequence, _ = self.lstm(images.reshape(-1, 28, 28))
        return self.fc(sequence[:, -1])


def mnist_cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(5408, 128), nn.ReLU(),
                         nn.Linear(128, 10))


def basic_block(before: int, channels: int, stride: int = 1, project: bool = False) -> nn.Module:
    main = OrderedDict(conv1=nn.Conv2d(before, channels, 3, stride, padding=1, bias=False), bn1=nn.BatchNorm2d(channels),
                       act=nn.GELU(), conv2=nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                       bn2=nn.BatchNorm2d(channels))
    shortcut = OrderedDict()
    if project:
        shortcut = OrderedDict(conv=nn.Conv2d(before, channels, 1, stride, bias=False), bn=nn.BatchNorm2d(channels))
    return nn.Sequential(OrderedDict(body=Residual(main, shortcut), act=nn.GELU()))


def residual_net() -> nn.Module:
    return nn.Sequential(OrderedDict(
        stem=nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False), bn=nn.BatchNorm2d(8), act=nn.GELU(),
        layer1=nn.Sequential(basic_block(8, 8), basic_block(8, 8)), layer2=basic_block(8, 16, stride=2, project=True),
        pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), fc=nn.Linear(16, 10)))


def digits_mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))


@functools.cache
def mnist(folder: pathlib.Path, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images [N, 1, 28, 28] in [0, 1], labels [N]."""
    prefix = {"train": "train", "test": "t10k"}[split]
    images = np.frombuffer(gzip.decompress((folder / f"{prefix}-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress((folder / f"{prefix}-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    return torch.tensor(images.reshape(-1, 1, 28, 28)) / 255.0, torch.tensor(labels).long()


def digits(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images [N, 1, 8, 8] in [0, 1], labels [N]; of each class the first fifth of a seeded permutation is for testing."""
    images, labels = (torch.tensor(a) for a in sklearn.datasets.load_digits(return_X_y=True))
    generator = torch.Generator().manual_seed(0)
    for_testing = torch.zeros(len(labels), dtype=torch.bool)
    for digit in range(10):
        rows = (labels == digit).nonzero().ravel()
        order = torch.randperm(len(rows), generator=generator)
        for_testing[rows[order[: round(0.2 * len(rows))]]] = True
    chosen = for_testing if split == "test" else ~for_testing
    return images[chosen].float().reshape(-1, 1, 8, 8) / 16, labels[chosen].long()


def batches(num_samples: int, batch_size: int, seed: int) -> Iterator[tuple[int, torch.Tensor]]:
    """Epoch and indices of one batch after the other, for ever."""
    epoch = 0
    while True:
        order = torch.randperm(num_samples, generator=torch.Generator().manual_seed(seed + epoch))
        for indices in order.split(batch_size):
            yield epoch, indices
        epoch += 1


def train(make_model: Callable[[], nn.Module], make_optimizer, make_scheduler, data, *, seed: int, batch_size: int,
          num_steps: int, loss=nn.functional.cross_entropy, transform=lambda images: images) -> list[float]:
    """The loss of each step."""
    torch.manual_seed(seed)
    model = make_model()
    optimizer = make_optimizer(model)
    scheduler = make_scheduler(optimizer)
    images, labels = data
    losses = []
    model.train()
    for step, (_, indices) in enumerate(batches(len(labels), batch_size, seed)):
        optimizer.zero_grad()
        value = loss(model(transform(images[indices])), labels[indices])
        value.backward()
        optimizer.step()
        losses.append(value.item())
        if step + 1 == num_steps:
            return losses
        scheduler.step()


def run_trainrun(recipe: str, folder: pathlib.Path, *overrides: str) -> tuple[list[dict], pathlib.Path]:
    """Trains `recipe` into `folder`, a line of figures each step; those lines, and the folder."""
    command = [CALLED, "--quiet", recipe, f"output_dir={folder}", "logging.every_steps=1", *overrides]
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}  # sums over other parts would round otherwise
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | threads)
    assert done.returncode == 0, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()], folder


def losses_of(lines: list[dict]) -> list[float]:
    """Of the steps, from a run's lines of figures."""
    return [line["train/loss"] for line in lines if line["split"] == "train"]


def training_losses(recipe: str, folder: pathlib.Path, *overrides: str) -> list[float]:
    """The same; the losses of its steps."""
    return losses_of(run_trainrun(recipe, folder, *overrides)[0])
