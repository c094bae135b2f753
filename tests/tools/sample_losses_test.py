"""The callback SampleLosses, and the suspect labels of `trainrun report`."""

import json
import pathlib
import random
import re
import shutil
import subprocess

import pytest
import safetensors.torch
import torch

from tests.program import CALLED
from tests.tools.replayed_runs import RECIPE as TABLE
from tests.tools.replayed_runs import write_table

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

RECIPE = """
version: 1
name: digits
seed: 3
model:
  layers:
    - {type: Linear, out_features: 64}
    - ReLU
    - {type: Dropout, p: 0.2}
    - {type: Linear, out_features: 10}
loss: CrossEntropyLoss
dataset:
  train: {type: CSV, path: train.csv, label: digit, task: classification, columns: {digit: category}}
  transforms: [Standardize]
dataloader: {batch_size: 32}
optimizer: {type: AdamW, lr: 2e-3}
callbacks: [SampleLosses]
training: {num_epochs: 6}
checkpoint: {every: 7, keep_last: null}
"""


def called(folder, *arguments):
    return subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=200, check=False)


def trained(folder, name, *changes, recipe=RECIPE):
    (folder / "recipe.yaml").write_text(recipe)
    done = called(folder, "run", "recipe.yaml", f"output_dir={name}", *changes)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / name


def losses_of(run):
    files = sorted((run / "sample_losses").iterdir())
    assert [file.name for file in files] == [f"epoch-{epoch:04}.safetensors" for epoch in range(len(files))]
    return torch.stack([safetensors.torch.load_file(file)["loss"] for file in files])


@pytest.fixture(name="planted", scope="module")
def digits_with_wrong_labels(tmp_path_factory):
    """scikit-learn's digits; 3 % of the labels are others."""
    from sklearn.datasets import load_digits  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("suspects")
    digits = load_digits()
    draw = random.Random(11)
    labels = digits.target.tolist()
    wrong = draw.sample(range(len(labels)), len(labels) * 3 // 100)
    for i in wrong:
        labels[i] = (labels[i] + draw.randrange(1, 10)) % 10
    rows = [",".join(map(str, [*map(int, pixels), label])) for pixels, label in zip(digits.data, labels, strict=True)]
    (folder / "train.csv").write_text(",".join([f"p{i}" for i in range(64)] + ["digit"]) + "\n" + "\n".join(rows) + "\n")
    return folder, wrong, trained(folder, "run")


def test_planted_labels_are_among_the_first(planted):
    folder, wrong, run = planted
    losses = losses_of(run)
    assert losses.shape == (6, 1797) and not losses.isnan().any()
    first = set(losses.double().mean(0).topk(1797 // 20).indices.tolist())
    assert len(first & set(wrong)) >= 0.8 * len(wrong)
    done = called(folder, "report", run)
    assert done.returncode == 0, done.stderr
    page = (folder / "report.html").read_text()
    section = page[page.index("<h2>Suspect labels</h2>") :]
    section = section[: section.index("</table>")]
    rows = re.findall(r'<tr><th scope="row">([\d,]+)</th><td>train\.csv:(\d+)</td><td>(\d)</td>', section)
    told = [int(number.replace(",", "")) for number, _, _ in rows]
    assert set(told) == first and len(told) == 89
    assert all(int(line) == number + 2 for number, (_, line, _) in zip(told, rows, strict=True))
    given = [line.split(",")[-1] for line in (folder / "train.csv").read_text().splitlines()[1:]]
    assert all(label == given[number] for number, (_, _, label) in zip(told, rows, strict=True))


def test_the_losses_of_an_epoch_are_those_of_its_steps(planted):
    """Each batch's mean of what is written is the loss that the log has of its step."""
    folder, _, _ = planted
    run = trained(folder, "logged", "logging.every_steps=1", "training.num_epochs=2")
    losses = losses_of(run)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for epoch in range(2):
        order = torch.randperm(1797, generator=torch.Generator().manual_seed(3 + epoch))
        for batch, line in enumerate(line for line in lines if line["epoch"] == epoch):
            own = losses[epoch][order[32 * batch : 32 * batch + 32]].double().mean().item()
            assert own == pytest.approx(line["train/loss"], rel=1e-5)


@pytest.mark.parametrize("loss", ["MSELoss", "L1Loss", "{type: SmoothL1Loss, beta: 0.3}", "{type: HuberLoss, delta: 0.5}", "{type: PoissonNLLLoss, log_input: true}"])
def test_losses_of_numbers_are_kept_as_well(tmp_path, loss):
    write_table(tmp_path / "train.csv")
    recipe = TABLE.replace("loss: MSELoss", f"loss: {loss}\ncallbacks: [SampleLosses]").replace("num_epochs: 6", "num_epochs: 1")
    run = trained(tmp_path, "run", recipe=recipe)
    losses = losses_of(run)[0]
    order = torch.randperm(256, generator=torch.Generator().manual_seed(5))
    for batch, line in enumerate(map(json.loads, (run / "metrics.jsonl").read_text().splitlines())):
        own = losses[order[16 * batch : 16 * batch + 16]].double().mean().item()
        assert own == pytest.approx(line["train/loss"], rel=1e-5)


@pytest.mark.parametrize("step", [7, 56, 63, 119])
def test_a_run_that_was_killed_ends_with_the_same_losses(planted, step):
    folder, _, run = planted
    copy = folder / f"resumed-{step}"
    shutil.copytree(run, copy, symlinks=True)
    (copy / "summary.json").unlink()
    for path in list((copy / "checkpoints").iterdir()):
        if path.is_symlink():
            path.unlink()
        elif json.loads((path / "state.json").read_text())["step"] > step:
            shutil.rmtree(path)
    trained(folder, copy.name)
    assert losses_of(copy).equal(losses_of(run))


def test_two_ranks_have_all_samples(planted):
    folder, wrong, _ = planted
    run = trained(folder, "ranks", "distributed_type=MULTI_CPU", "num_processes=2", "dataloader.batch_size=16")
    losses = losses_of(run)
    assert losses.shape == (6, 1797) and not losses.isnan().any()
    first = set(losses.double().mean(0).topk(1797 // 20).indices.tolist())
    assert len(first & set(wrong)) >= 0.8 * len(wrong)


def test_an_epoch_that_a_limit_ended_is_marked(planted):
    folder, _, _ = planted
    run = trained(folder, "limited", "training.max_steps=60")
    losses = losses_of(run)
    assert losses.shape == (2, 1797) and losses[1].isnan().sum() == 1797 - 3 * 32
    with safetensors.safe_open(run / "sample_losses/epoch-0001.safetensors", "pt") as file:
        assert file.metadata()["whole_epoch"] == "no"


def test_two_of_them_are_refused(planted):
    folder, _, _ = planted
    done = called(folder, "run", "recipe.yaml", "output_dir=refused", "callbacks=[SampleLosses, SampleLosses]")
    assert done.returncode == 1 and "one keeps all losses" in done.stderr


def test_a_loss_that_compares_samples_is_refused_by_name(tmp_path):
    done = called(tmp_path, "run", ROOT / "recipes/digits_triplet.yaml", "callbacks=[SampleLosses]", "output_dir=triplet")
    assert done.returncode == 1 and re.search(r"Triplet\w*Loss has no loss of single samples", done.stderr)


def test_mixed_samples_are_refused(tmp_path):
    done = called(tmp_path, "run", ROOT / "recipes/digits_mixup.yaml", "callbacks=[SampleLosses]", "output_dir=mixed")
    assert done.returncode == 1 and "mixes each sample with another one" in done.stderr
