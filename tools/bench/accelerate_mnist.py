"""The job of recipes/mnist_cnn.yaml, one epoch, as users write it with Hugging Face Accelerate. Prints figures as JSON."""

import argparse
import gzip
import json
import pathlib
import time

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUM_EPOCHS = 8
WARMUP_STEPS = 500


class Mnist(Dataset):
    """Images held as bytes, a transform for each sample, as torchvision's data sets do."""

    def __init__(self, folder: pathlib.Path, transform):
        images = gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes())
        labels = gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes())
        self.images = torch.tensor(np.frombuffer(images, np.uint8, offset=16).reshape(-1, 1, 28, 28))
        self.labels = torch.tensor(np.frombuffer(labels, np.uint8, offset=8)).long()
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.labels[index]


def to_normalized_tensor(image: torch.Tensor) -> torch.Tensor:
    return image.float().div(255).sub(0.1307).div(0.3081)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="the folder of MNIST's .gz files")
    parser.add_argument("--num-workers", type=int, default=2)
    arguments = parser.parse_args()

    torch.manual_seed(42)
    accelerator = Accelerator()
    data = Mnist(arguments.folder, to_normalized_tensor)
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=arguments.num_workers)
    model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(5408, 128), nn.ReLU(),
                          nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    total = NUM_EPOCHS * len(loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda t: min(t / WARMUP_STEPS, (total - t) / (total - WARMUP_STEPS)))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    loss_function = nn.CrossEntropyLoss()

    model.train()
    start = time.perf_counter()
    for step, (images, labels) in enumerate(loader, start=1):
        optimizer.zero_grad()
        loss = loss_function(model(images), labels)
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        if step % 100 == 0:
            last_loss = loss.item()
    print(json.dumps({"epoch_seconds": time.perf_counter() - start, "loss": last_loss}))


if __name__ == "__main__":
    main()
