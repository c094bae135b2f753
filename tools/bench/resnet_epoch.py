#!/usr/bin/env python3
"""An epoch of ResNet-18 from a folder of small JPEGs (CIFAR-10's): trainrun beside Hugging Face Accelerate, in turns.

    tools/bench/resnet_epoch.py FOLDER [--images 2560] [--precision no bf16] [--repetitions 3]

FOLDER has a folder of images of 32x32 for each class. Both decode, crop and mirror every image, with two workers, and train in batches of 128 on the CPU. Accelerate
trains in both layouts, channels first and channels last, and the faster one counts. An epoch is timed from the request for the first batch to the end of the last step.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECIPE = """\
version: 1
model: {layers: [{type: ResNet18, num_classes: CLASSES, stem: cifar}]}
loss: CrossEntropyLoss
dataset:
  train: {type: ImageFolder, root: FOLDER, subset: SUBSET}
  transforms: [{type: RandomCrop, size: 32, padding: 4}, RandomHorizontalFlip, {type: Normalize, mean: [0.4914, 0.4822, 0.4465], std: [0.2470, 0.2435, 0.2616]}]
dataloader: {batch_size: 128, num_workers: 2}
optimizer: {type: SGD, lr: 0.01, momentum: 0.9, nesterov: true, weight_decay: 1e-4}
training: {num_epochs: 1}
checkpoint: {every: null}
logging: {every_steps: 1, report_to: [jsonl]}
"""
PEER = """\
import json, sys, time, torch, torchvision
from accelerate import Accelerator
from torchvision.transforms import v2
folder, stride, precision, layout = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
transform = v2.Compose([v2.ToImage(), v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
                        v2.Normalize([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616])])
data = torchvision.datasets.ImageFolder(folder, transform)
data = torch.utils.data.Subset(data, range(0, len(data), stride))
torch.manual_seed(0)
model = torchvision.models.resnet18(num_classes=len(data.dataset.classes))
model.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
model.maxpool = torch.nn.Identity()
memory_format = torch.channels_last if layout == "last" else torch.contiguous_format
model = model.to(memory_format=memory_format)
accelerator = Accelerator(mixed_precision=precision, cpu=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
loader = torch.utils.data.DataLoader(data, batch_size=128, shuffle=True, num_workers=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
loss_function = torch.nn.CrossEntropyLoss()
model.train()
start = time.perf_counter()
for images, labels in loader:
    optimizer.zero_grad()
    loss = loss_function(model(images.to(memory_format=memory_format)), labels)
    accelerator.backward(loss)
    optimizer.step()
print(json.dumps({"seconds": time.perf_counter() - start, "loss": loss.item()}))
"""


def ours(folder: pathlib.Path, stride: int, precision: str) -> float:
    count = len(sorted(path for path in folder.glob("*/*") if path.is_file()))
    text = RECIPE.replace("FOLDER", str(folder)).replace("SUBSET", str(list(range(0, count, stride))))
    with tempfile.TemporaryDirectory() as place:
        recipe = pathlib.Path(place, "recipe.yaml")
        recipe.write_text(text.replace("CLASSES", str(sum(1 for path in folder.iterdir() if path.is_dir()))) + f"mixed_precision: '{precision}'\n")
        subprocess.run([ROOT / "build/release/bin/trainrun", "--quiet", recipe, f"output_dir={place}/run"], check=True)
        return json.loads(pathlib.Path(place, "run/metrics.jsonl").read_text().splitlines()[-1])["time"]


def peers(folder: pathlib.Path, stride: int, precision: str, layout: str) -> float:
    done = subprocess.run([sys.executable, "-c", PEER, str(folder), str(stride), precision, layout], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])["seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=2560)
    parser.add_argument("--precision", nargs="+", default=["no", "bf16"], choices=["no", "bf16", "fp16"])
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    stride = max(1, sum(1 for path in folder.glob("*/*")) // arguments.images)
    for precision in arguments.precision:
        ratios = []
        for repetition in range(arguments.repetitions):
            load = os.getloadavg()[0]
            mine = ours(folder, stride, precision)
            theirs = {layout: peers(folder, stride, precision, layout) for layout in ("first", "last")}
            ratios.append(min(theirs.values()) / mine)
            print(f"{precision} {repetition + 1}: trainrun {mine:.2f} s, Accelerate {theirs['first']:.2f} s (channels first), "
                  f"{theirs['last']:.2f} s (channels last), load {load:.1f}", flush=True)
        print(f"{precision}: trainrun is {statistics.median(ratios):.2f} times as fast (median of {len(ratios)}, {min(ratios):.2f} to {max(ratios):.2f})", flush=True)


if __name__ == "__main__":
    main()
