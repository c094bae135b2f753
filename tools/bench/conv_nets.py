#!/usr/bin/env python3
"""Steps of convolutional nets on the CPU: trainrun beside plain PyTorch, in turns; see README.md.

    tools/bench/conv_nets.py [--cases resnet18 vgg11] [--precision fp32 bf16] [--repetitions 5] [OVERRIDE …]

trainrun reads random images of three channels from files, as its users do, which gives tensors in channels-last layout; PyTorch has them in memory. PyTorch runs with its tensors as they are and with channels last, and with
torch.compile where --compile is given; its fastest counts. OVERRIDEs change the recipe, for trainrun alone (training.convolutions=direct).
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

from turns import BENCH, ROOT, add_arguments, output_of, processor, spread, take_turns

WIDE = """[{type: Conv2d, out_channels: 512, kernel_size: 3}, {type: MaxPool2d, kernel_size: 2}, {type: Conv2d, out_channels: 256, kernel_size: 5},
    {type: MaxPool2d, kernel_size: 2}, {type: Dropout2d, p: 0.1}, {type: AdaptiveMaxPool2d, output_size: 1}, Flatten,
    {type: Linear, out_features: 128}, ReLU, {type: Linear, out_features: 10}]"""
CASES = {  # layers, shape of an image, images in a batch
    "resnet18": ("[{type: ResNet18, num_classes: 10, stem: cifar}]", [3, 32, 32], 128),
    "resnet50": ("[{type: ResNet50, num_classes: 10}]", [3, 64, 64], 64),
    "vgg11": ("[{type: VGG11, num_classes: 10}]", [3, 64, 64], 64),
    "unet": ("[{type: UNet, num_classes: 10, channels: 32, depth: 3}, {type: AdaptiveAvgPool2d, output_size: 1}, Flatten]", [3, 64, 64], 16),
    "wide_cnn": (WIDE, [1, 28, 28], 128),
}
RECIPE = """\
version: 1
model: {layers: LAYERS}
loss: CrossEntropyLoss
dataset: {train: DATA}
dataloader: {batch_size: BATCH, num_workers: 1}
optimizer: {type: SGD, lr: 0.01, momentum: 0.9}
training: {num_epochs: 1}
checkpoint: {every: null}
logging: {every_steps: 1, report_to: [jsonl]}
"""


def layers_of(case: str):
    """The net as PyTorch has it."""
    import torch
    import torchvision

    nn = torch.nn
    if case == "wide_cnn":
        return nn.Sequential(nn.Conv2d(1, 512, 3), nn.MaxPool2d(2), nn.Conv2d(512, 256, 5), nn.MaxPool2d(2), nn.Dropout2d(0.1), nn.AdaptiveMaxPool2d(1),
                             nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    if case == "unet":
        sys.path.insert(0, str(ROOT / "tests" / "parity"))
        from vision_models import UNet

        return nn.Sequential(UNet(10, 32, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = getattr(torchvision.models, case)(num_classes=10)
    if case == "resnet18":
        model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return model


def train(case: str, precision: str, layout: str, steps: int, compiled: bool) -> None:
    """One of PyTorch's runs; prints the milliseconds of a step, of the second half of them."""
    import time

    import torch

    torch.manual_seed(0)
    shape, batch = CASES[case][1:]
    memory_format = torch.channels_last if layout == "last" else torch.contiguous_format
    model = layers_of(case).to(memory_format=memory_format)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    forward = torch.compile(model) if compiled else model
    loss_function = torch.nn.CrossEntropyLoss()
    batches = [(torch.randn(batch, *shape).to(memory_format=memory_format), torch.randint(10, (batch,))) for _ in range(2)]
    times = []
    for step in range(steps):
        start = time.perf_counter()
        images, labels = batches[step % 2]
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_function(forward(images), labels)
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    half = times[steps // 2 :]
    print(json.dumps({"ms": 1e3 * sum(half) / len(half), "loss": loss.item()}))


def run_pytorch(arguments, case: str) -> dict:
    name, precision = case.split()
    ways = [("first", False), ("last", False)] + [("last", True)] * arguments.compile
    times = {}
    for layout, compiled in ways:
        command = [arguments.python, BENCH / "conv_nets.py", "--train", name, precision, layout, str(arguments.steps), str(int(compiled))]
        times["compiled" if compiled else layout] = json.loads(output_of(command).splitlines()[-1])["ms"]
    return {"ms": min(times.values())} | times


def write_images(folder: pathlib.Path, count: int, size: int) -> None:
    import numpy
    import PIL.Image

    random = numpy.random.default_rng(0)
    for number in range(count):
        place = folder / str(number % 10)
        place.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(random.integers(0, 256, (size, size, 3), dtype=numpy.uint8)).save(place / f"{number}.png")


def run_trainrun(arguments, case: str) -> dict:
    name, precision = case.split()
    layers, shape, batch = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        data = f"{{type: Synthetic, num_samples: {batch * arguments.steps}, shape: {shape}}}"
        if shape[0] == 3:
            write_images(pathlib.Path(folder, "images"), batch * arguments.steps, shape[1])
            data = f"{{type: ImageFolder, root: {folder}/images}}"
        text = RECIPE
        for word, value in {"LAYERS": layers, "DATA": data, "BATCH": batch}.items():
            text = text.replace(word, str(value))
        recipe = pathlib.Path(folder, "recipe.yaml")
        recipe.write_text(text)
        output_of([arguments.binary, "--quiet", recipe, f"output_dir={folder}/run", f"mixed_precision={'bf16' if precision == 'bf16' else 'no'}",
                   *arguments.overrides])
        lines = [json.loads(line) for line in pathlib.Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    times = [line["time"] for line in lines if line["split"] == "train" and "train/loss" in line]
    half = times[len(times) // 2 - 1 :]
    return {"ms": 1e3 * (half[-1] - half[0]) / (len(half) - 1)}


def main() -> None:
    if sys.argv[1:2] == ["--train"]:
        case, precision, layout, steps, compiled = sys.argv[2:]
        return train(case, precision, layout, int(steps), compiled == "1")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--precision", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--steps", type=int, default=8, help="of which the second half is timed")
    parser.add_argument("--compile", action="store_true", help="with torch.compile, too")
    parser.add_argument("overrides", nargs="*", help="more of the recipe's values, for trainrun alone")
    arguments = parser.parse_args()

    print(f"{processor()}; milliseconds a step; load: of the last minute, before")
    cases = [f"{name} {precision}" for name in arguments.cases for precision in arguments.precision]
    programs = {"trainrun": lambda case, _: run_trainrun(arguments, case), "PyTorch": lambda case, _: run_pytorch(arguments, case)}
    results = take_turns(programs, arguments.repetitions, cases)
    print("\nmin / median / max")
    for case in cases:
        times = {name: [figures["ms"] for figures in results[name, case]] for name in programs}
        ratios = [theirs / ours for ours, theirs in zip(times["trainrun"], times["PyTorch"])]
        print(f"{case:<14}  trainrun {spread(times['trainrun'], 0)} ms, PyTorch {spread(times['PyTorch'], 0)} ms: {spread(ratios)} times as fast")


if __name__ == "__main__":
    main()
