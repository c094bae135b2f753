#!/usr/bin/env python3
"""Reads a folder of images once, as training does: trainrun's ImageFolder and loader beside torchvision's, both with two workers.

    tools/bench/image_folder.py FOLDER [--repetitions 3] [--size 224]

FOLDER has a folder for each class. With --size both resize each image; without, all must be of one size. Needs torchvision, which the tests'
environment does not have. Prints images per second of each, alternating, and the ratio of the medians.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BATCH = 128
RECIPE = """\
version: 1
model: {layers: [{type: AdaptiveAvgPool2d, output_size: 1}, Flatten, {type: Linear, out_features: CLASSES}]}
loss: CrossEntropyLoss
dataset:
  train: {type: ImageFolder, root: FOLDER, image_transforms: TRANSFORMS}
dataloader: {batch_size: 128, num_workers: 2}
optimizer: {type: SGD, lr: 0.01}
training: {num_epochs: 1}
checkpoint: {every: null}
"""
PEER = """\
import sys, time, torch, torchvision
from torchvision.transforms import v2
folder, size = sys.argv[1], int(sys.argv[2])
steps = [v2.Resize((size, size))] if size else []
transform = v2.Compose([v2.ToImage(), *steps, v2.ToDtype(torch.float32, scale=True)])
data = torchvision.datasets.ImageFolder(folder, transform)
start = time.perf_counter()
count = 0
for images, labels in torch.utils.data.DataLoader(data, batch_size=128, shuffle=True, num_workers=2):
    images.mean(dim=(2, 3)).sum()
    count += len(labels)
print(count / (time.perf_counter() - start))
"""


def ours(folder: pathlib.Path, size: int, place: pathlib.Path) -> float:
    """Images per second, start and end of the program included."""
    count = sum(1 for path in folder.rglob("*.*"))
    transforms = f"[{{type: Resize, size: [{size}, {size}]}}]" if size else "[]"
    classes = sum(1 for path in folder.iterdir() if path.is_dir())
    recipe = place / "recipe.yaml"
    recipe.write_text(RECIPE.replace("FOLDER", str(folder)).replace("TRANSFORMS", transforms).replace("CLASSES", str(classes)))
    start = time.perf_counter()
    subprocess.run([ROOT / "build/release/bin/trainrun", "--quiet", recipe, f"output_dir={place / 'run'}"], check=True)
    return count / (time.perf_counter() - start)


def peers(folder: pathlib.Path, size: int) -> float:
    """Images per second, without the imports."""
    done = subprocess.run([sys.executable, "-c", PEER, str(folder), str(size)], check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--size", type=int, default=0)
    arguments = parser.parse_args()
    figures = []
    for repetition in range(arguments.repetitions):
        with tempfile.TemporaryDirectory() as place:
            mine = ours(arguments.folder.resolve(), arguments.size, pathlib.Path(place))
        figures.append((mine, peers(arguments.folder, arguments.size)))
        print(f"{repetition + 1}: trainrun {figures[-1][0]:.0f} images/s, torchvision {figures[-1][1]:.0f} images/s", flush=True)
    medians = [statistics.median(column) for column in zip(*figures, strict=True)]
    print(f"ratio of the medians: {medians[0] / medians[1]:.2f}")


if __name__ == "__main__":
    main()
