"""Jobs on pictures, tables, series and arrays: what each can do, and that it is right (the columns are in jobs.py; those on texts in
text_jobs_parity_test.py, a plugin's in tests/plugins/plugin_job_test.py). To add a job, add a row to JOBS."""

import csv
import dataclasses
import functools
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.nn import functional

from tests.parity.jobs import (CELLS, Job, Refused, accuracy, classes_columns, classes_report, labels_columns, linear, numbers_columns,
                               numbers_figures, numbers_report, rows_of, train, trainrun)

SEEDS = {"train": 1, "eval": 2, "other": 3, "new": 4}
COUNTS = {"train": 26, "eval": 9, "other": 7, "new": 5}


def draws(part):
    return np.random.default_rng(SEEDS[part]), COUNTS[part]


# --- Pictures --------------------------------------------------------------------------------------------------------

ANIMALS = ["ant", "bee, honey", "cat"]
SKY = ["rain", "snow, ice", "sun"]
PALETTE = [0, 0, 0, 200, 30, 30, 10, 120, 240]


def pictures(part):
    """[N, 5, 4, 3]"""
    draw, count = draws(part)
    return draw.integers(0, 256, (count, 5, 4, 3), dtype=np.uint8)


def classes_of(part):
    """Another order in each part, and a class less where it is not for training."""
    draw, count = draws(part)
    return (np.arange(count) % 3 if part == "train" else np.full(count, 2) if part == "other" else draw.integers(1, 3, count)).tolist()


def labels_of(part):
    draw, count = draws(part)
    return draw.integers(0, 2, (count, 3))


def pixels_of(part, order=slice(None)):
    return torch.tensor(pictures(part)).permute(0, 3, 1, 2).double()[order] / 255


def save(folder, part, names):
    for pixels, name in zip(pictures(part), names, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / name)


def numbered(part):
    return [f"{part}/{i:02}.png" for i in range(COUNTS[part])]


def in_folders(folder, part):
    names = [f"{part}/{ANIMALS[label]}/{i:02}.png" for i, label in enumerate(classes_of(part))]
    save(folder, part, numbered(part) if part == "new" else names)


def read_folders(folder, part, known):
    order = np.argsort(classes_of(part), kind="stable") if part != "new" else np.arange(COUNTS[part])
    return {"x": pixels_of(part, order.copy()), "target": torch.tensor(classes_of(part))[order]}


def in_list(columns, folder, part):
    save(folder, part, numbered(part))
    with (folder / f"{part}.csv").open("w", newline="") as file:
        rows = [[ANIMALS[label]] for label in classes_of(part)] if columns == ["kind"] else labels_of(part).tolist()
        csv.writer(file).writerows([["image", *columns], *([name, *row] for name, row in zip(numbered(part), rows, strict=True))])


def with_masks(folder, part):
    save(folder, part, numbered(part) if part == "new" else [f"{part}/images/{i:02}.png" for i in range(COUNTS[part])])
    for i, mask in enumerate(masks_of(part) if part != "new" else []):
        image = Image.fromarray(mask, mode="P")
        image.putpalette(PALETTE)
        (folder / part / "masks").mkdir(exist_ok=True)
        image.save(folder / part / "masks" / f"{i:02}.png")


def masks_of(part):
    draw, count = draws(part)
    return draw.integers(0, 3, (count, 5, 4), dtype=np.uint8)


def masks_columns(output, folder):
    return {"mask": Masks(folder, output.argmax(1).numpy())}


class Masks(list):
    """Names of files that hold these masks, with the palette: compared when they are read."""

    def __init__(self, folder, masks):
        super().__init__(["a file"] * len(masks))
        self.folder, self.masks = folder, masks

    def __eq__(self, names):
        images = [Image.open(self.folder / name) for name in names]
        assert all(image.mode == "P" and image.getpalette()[:9] == PALETTE for image in images)
        return np.array_equal([np.asarray(image) for image in images], self.masks)


def flat(state, fields):
    return linear(state, fields["x"].flatten(1), "1")


def files(folder, part):
    return {"file": numbered(part)}


FLAT = "model: {layers: [Flatten, {type: Linear, out_features: 3}]}"


def sets(source, more=""):
    """dataset, of whose train and eval PART is the only difference."""
    return f"dataset:\n  train: {source.replace('PART', 'train')}\n  eval: {source.replace('PART', 'eval')}\n{more}"


def cross_entropy(output, fields):
    return functional.cross_entropy(output, fields["target"])


def binary_cross_entropy(output, fields):
    return functional.binary_cross_entropy_with_logits(output, fields["target"])


def subset_accuracy(output, fields):
    return {"accuracy": ((output > 0).double() == fields["target"]).double().mean().item()}


def labels_report(output, fields):
    found, target = output > 0, fields["target"].bool()
    counts = [[int((found & target)[:, i].sum()), int(found[:, i].sum()), int(target[:, i].sum())] for i in range(3)]
    rates = [(both / predicted if predicted else 0, both / there if there else 0, there) for both, predicted, there in counts]
    return {"labels": [{"name": name, "precision": p, "recall": r, "f1": 2 * p * r / (p + r) if p + r else 0, "samples": n} for name, (p, r, n) in zip(SKY, rates)]}


FOLDERS = Job(
    recipe=f"{FLAT}\nloss: CrossEntropyLoss\nmetrics: [Accuracy]\n" + sets("{type: ImageFolder, root: PART}"),
    write=in_folders, read=read_folders, forward=flat, loss=cross_entropy, figures=accuracy, other=["dataset.eval.root=other"],
    report=classes_report(ANIMALS), new=["new"], predicted=classes_columns(ANIMALS), beside=files)

JOBS = {
    "image classes from folders": FOLDERS,
    "image classes from a CSV": Job(
        recipe=f"{FLAT}\nloss: CrossEntropyLoss\nmetrics: [Accuracy]\n" + sets("{type: ImageCSV, path: PART.csv, image: image, label: kind}"),
        write=functools.partial(in_list, ["kind"]), read=lambda folder, part, known: {"x": pixels_of(part), "target": torch.tensor(classes_of(part))},
        forward=flat, loss=cross_entropy, figures=accuracy, other=["dataset.eval.path=other.csv"],
        report=classes_report(ANIMALS), new=["new"], predicted=classes_columns(ANIMALS, "kind"), beside=files),
    "several labels of pictures": Job(
        recipe=f"{FLAT}\nloss: BCEWithLogitsLoss\nmetrics: [Accuracy]\n" + sets("{type: ImageCSV, path: PART.csv, image: image, label: [rain, 'snow, ice', sun]}"),
        write=functools.partial(in_list, SKY), read=lambda folder, part, known: {"x": pixels_of(part), "target": torch.tensor(labels_of(part)).double()},
        forward=flat, loss=binary_cross_entropy, figures=subset_accuracy, other=["dataset.eval.path=other.csv"], report=labels_report,
        new=["new"], predicted=labels_columns(SKY), beside=files),
    "segmentation": Job(
        recipe="model: {layers: [{type: Conv2d, out_channels: 3, kernel_size: 1}]}\nloss: CrossEntropyLoss\nmetrics: [Accuracy]\n"
               + sets("{type: SegmentationFolder, root: PART, num_classes: 3}"),
        write=with_masks, read=lambda folder, part, known: {"x": pixels_of(part), "target": torch.tensor(masks_of(part)).long()},
        forward=lambda state, fields: functional.conv2d(fields["x"], state["0.weight"], state["0.bias"]), loss=cross_entropy, figures=accuracy,
        other=["dataset.eval.root=other"], report=classes_report([None, None, None]), new=["new", "--masks", "out"], predicted=masks_columns, beside=files),
}

# --- Tables ----------------------------------------------------------------------------------------------------------

CITIES, KINDS = ["Oslo", "Paris", "Rome"], ["ant", "bee, honey", "cat"]
TABLE = "type: CSV, path: PART.csv, id: order, features: [age, city, member]"
COLUMNS = "columns: {city: {type: category, categories: [Oslo, Paris, Rome], one_hot: true}, member: boolean, age: {missing: median}"
SCALED = "  transforms: [Standardize, {type: Standardize, field: label}]\n"


def people(part):
    draw, count = draws(part)
    kinds = np.arange(count) % 3 if part == "train" else draw.integers(1, 3, count)
    return [{"order": f"{part}-{i}", "age": "" if i % 7 == 3 else int(draw.integers(18, 90)), "city": CITIES[draw.integers(3)],
             "member": "yes" if draw.integers(2) else "no", "kind": KINDS[kinds[i]], "rain": int(draw.integers(2)), "snow, ice": int(draw.integers(2)),
             "sun": int(draw.integers(2)), "price": round(float(draw.normal(5000, 900)), 2), "weight": round(float(draw.normal(2, 1)), 3),
             "visits": int(draw.poisson(4))} for i in range(count)]


def write_people(folder, part):
    columns = list(people(part)[0])
    columns = [name for name in columns if name in ("member", "city", "age", "order")][::-1] if part == "new" else columns if part == "train" else columns[::-1]
    with (folder / f"{part}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(people(part))


def read_people(targets, folder, part, known):
    ages = [row["age"] for row in people("train")]
    median = float(np.median([ages[i] for i in (range(len(ages)) if known is None else known) if ages[i] != ""]))
    rows = people(part)
    x = [[median if row["age"] == "" else row["age"], *(row["city"] == city for city in CITIES), row["member"] == "yes"] for row in rows]
    target = torch.tensor([KINDS.index(row["kind"]) for row in rows]) if targets == ["kind"] else torch.tensor([[row[name] for name in targets] for row in rows]).double()
    return {"x": torch.tensor(x).double(), "target": target}


def orders(folder, part):
    return {"order": [row["order"] for row in people(part)]}


def table(recipe, targets, **more):
    single = {"other": ["dataset.eval.path=other.csv"], "new": ["new.csv"], "beside": orders, "ids": True, "write": write_people,
              "read": functools.partial(read_people, targets), "forward": lambda state, fields: linear(state, fields["x"], "0")}
    return Job(recipe, **(single | more))


def outputs(count):
    return f"model: {{layers: [{{type: Linear, out_features: {count}}}]}}\n"


def mse(output, fields):
    return functional.mse_loss(output, fields["target"])


HEADS = """model:
  layers:
    - {type: Linear, out_features: 4, name: hidden}
    - {type: Linear, out_features: 1, name: mean, inputs: hidden}
    - {type: Linear, out_features: 1, name: raw, inputs: hidden}
    - {type: Softplus, name: variance, inputs: raw}
"""


def mean_and_variance(state, fields):
    hidden = linear(state, fields["x"], "hidden")
    return torch.cat([linear(state, hidden, "mean"), functional.softplus(linear(state, hidden, "raw"))], 1)


def gaussian(output, fields):
    return functional.gaussian_nll_loss(output[:, :1], fields["target"], output[:, 1:])


def with_deviation(output, folder):
    return {"price": output[:, 0].tolist(), "std(price)": output[:, 1].sqrt().tolist()}


def of_the_mean(compute):
    return lambda output, fields: compute(output[:, :1], fields)


def repository_rows(part):
    draw, count = draws(part)
    kinds = np.arange(count) % 3 if part == "train" else draw.integers(1, 3, count)
    return {"order": [f"{part}-{i}" for i in range(count)], "age": draw.normal(size=count), "kind": kinds, "pay": draw.normal(size=count).astype(np.float32)}


def write_repository(folder, part):
    """As `push_to_hub` lays a data set out, the names of its classes in the card; and a file without labels."""
    rows = pa.table(repository_rows(part))
    if part == "new":
        pq.write_table(rows.select(["pay", "order", "age"]), folder / "new.parquet")
        return
    (folder / part / "data").mkdir(parents=True)
    names = "".join(f"          '{i}': \"{name}\"\n" for i, name in enumerate(KINDS))
    (folder / part / "README.md").write_text("---\ndataset_info:\n  features:\n  - name: kind\n    dtype:\n      class_label:\n        names:\n" + names
                                             + "configs:\n- config_name: default\n  data_files:\n  - split: main\n    path: data/main-*\n---\n")
    for i, shard in enumerate((rows.slice(0, 4), rows.slice(4))):
        pq.write_table(shard, folder / part / "data" / f"main-0000{i}-of-00002.parquet")


def read_repository(folder, part, known):
    rows = repository_rows(part)
    return {"x": torch.stack([torch.tensor(rows["age"]), torch.tensor(rows["pay"]).double()], 1), "target": torch.tensor(rows["kind"])}


JOBS |= {
    "data set of the hub": Job(
        outputs(3) + "loss: CrossEntropyLoss\nmetrics: [Accuracy]\n"
        + sets("{type: HubDataset, path: PART, split: main, label: kind, id: order}", "  transforms: [Standardize]\n"),
        write=write_repository, read=read_repository, forward=lambda state, fields: linear(state, fields["x"], "0"), loss=cross_entropy, figures=accuracy,
        other=["dataset.eval.path=other"], report=classes_report(KINDS), new=["new.parquet"], predicted=classes_columns(KINDS, "kind"), scaled=("x",),
        beside=lambda folder, part: {"order": repository_rows(part)["order"]}, ids=True),
    "table classes": table(
        outputs(3) + "loss: CrossEntropyLoss\nmetrics: [Accuracy]\n" + sets(f"{{{TABLE}, label: kind, {COLUMNS}, kind: category}}}}", "  transforms: [Standardize]\n"),
        ["kind"], loss=cross_entropy, figures=accuracy, report=classes_report(KINDS), predicted=classes_columns(KINDS, "kind"), scaled=("x",)),
    "table of several labels": table(
        outputs(3) + "loss: BCEWithLogitsLoss\nmetrics: [Accuracy]\n" + sets(f"{{{TABLE}, label: [rain, 'snow, ice', sun], {COLUMNS}}}}}", "  transforms: [Standardize]\n"),
        SKY, loss=binary_cross_entropy, figures=subset_accuracy, report=labels_report, predicted=labels_columns(SKY), scaled=("x",)),
    "regression": table(
        outputs(1) + "loss: MSELoss\nmetrics: [MAE, RMSE]\n" + sets(f"{{{TABLE}, label: price, {COLUMNS}}}}}", SCALED),
        ["price"], loss=mse, figures=numbers_figures, report=numbers_report, predicted=numbers_columns(["price"]), scaled=("x", "target")),
    "several targets": table(
        outputs(2) + "loss: MSELoss\nmetrics: [MAE, RMSE]\n" + sets(f"{{{TABLE}, label: [price, weight], task: regression, {COLUMNS}}}}}", SCALED),
        ["price", "weight"], loss=mse, figures=numbers_figures, report=numbers_report, predicted=numbers_columns(["price", "weight"]), scaled=("x", "target")),
    "mean and variance": table(
        HEADS + "loss: {type: GaussianNLLLoss, inputs: [mean, label, variance]}\nmetrics: [{type: MAE, inputs: [mean, label]}]\n"
        + sets(f"{{{TABLE}, label: price, {COLUMNS}}}}}", SCALED),
        ["price"], forward=mean_and_variance, loss=gaussian, figures=lambda output, fields: {"mae": numbers_figures(output[:, :1], fields)["mae"]},
        report=of_the_mean(numbers_report), predicted=with_deviation, scaled=("x", "target")),
    "counts": table(
        outputs(1) + "loss: PoissonNLLLoss\n" + sets(f"{{{TABLE}, label: visits, task: regression, {COLUMNS}}}}}", "  transforms: [Standardize]\n"),
        ["visits"], loss=lambda output, fields: functional.poisson_nll_loss(output, fields["target"]), predicted=lambda output, folder: {"visits": output[:, 0].exp().tolist()},
        report=Refused("this model is trained by PoissonNLLLoss", "evaluating.md", "Other models have no report"), scaled=("x",)),
}

# --- Series, arrays, and ways to train -------------------------------------------------------------------------------

LENGTH, HORIZON = 3, 2


def sales(part):
    """Two shops' rows; those that are new end with the days to come, of which only the holidays are known."""
    draw, count = draws(part)
    rows = [{"shop": shop, "day": f"2024-05-{1 + i:02}", "price": round(float(draw.normal(1, 1)), 3), "holiday": int(draw.integers(2)),
             "sales": round(float(draw.normal(3, 2)), 2)} for shop in ("north", "south") for i in range(count)]
    return [row | {"price": "", "sales": ""} if part == "new" and i % count >= count - HORIZON else row for i, row in enumerate(rows)]


def write_sales(folder, part):
    with (folder / f"{part}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(sales(part)[0]))
        writer.writeheader()
        writer.writerows(sales(part))


def read_sales(folder, part, known):
    past, target = [], []
    for shop in ("north", "south"):
        rows = [row for row in sales(part) if row["shop"] == shop]
        for end in range(LENGTH, len(rows) - HORIZON + 1) if part != "new" else [len(rows) - HORIZON]:
            past.append([*(row[name] for row in rows[end - LENGTH:end] for name in ("price", "holiday", "sales")), *(row["holiday"] for row in rows[end:end + HORIZON])])
            target.append([row["sales"] or 0 for row in rows[end:end + HORIZON]])
    x = torch.tensor(past).double()
    return {"features": x[:, :-HORIZON].reshape(-1, LENGTH, 3), "known": x[:, -HORIZON:, None], "x": x, "target": torch.tensor(target).double()}


def steps_to_come(folder, part):
    days = [f"2024-05-{COUNTS['new'] - HORIZON + 1 + i:02}" for i in range(HORIZON)]
    return {"shop": [shop for shop in ("north", "south") for _ in days], "day": days * 2, "step": [str(1 + i) for i in range(HORIZON)] * 2}


FORECAST = """model:
  layers:
    - {type: Flatten, name: past, inputs: features}
    - {type: Flatten, name: coming, inputs: known}
    - {type: Concat, dim: 1, inputs: [past, coming]}
    - {type: Linear, name: head, out_features: 2}
loss: MSELoss
metrics: [MAE, RMSE]
"""
WINDOWS = "{type: Windows, length: 3, horizon: 2, group: shop, time: day, known: [holiday], " \
          "dataset: {type: CSV, path: PART.csv, label: sales, task: regression, features: [price, holiday]}}"


def write_arrays(folder, part):
    draw, count = draws(part)
    arrays = {"x": draw.normal(0, 1, (count, 4)).astype(np.float32), "kind": np.arange(count) % 3, "size": draw.normal(0, 1, (count, 2)).astype(np.float32)}
    np.savez(folder / f"{part}.npz", **({"x": arrays["x"]} if part == "new" else arrays))


def read_arrays(target, folder, part, known):
    arrays = {name: torch.tensor(array) for name, array in np.load(folder / f"{part}.npz").items()}
    x = arrays["x"].double()
    return {"x": x, "target": arrays.get(target, torch.zeros(len(x))) if target != "x" else x}


ARRAYS = Refused("TensorFile data cannot be read without labels", "predicting.md", "Other kinds of data are predicted for as `dataset.eval`")
BOTH = "model: {layers: [{type: Linear, name: inner, out_features: 2}, {type: Linear, name: outer, out_features: 4}]}\n"


def array_job(recipe, target, loss, **more):
    return Job(recipe + sets(f"{{type: TensorFile, path: PART.npz, target: {target}}}"), write=write_arrays, read=functools.partial(read_arrays, target), loss=loss,
               other=["dataset.eval.path=other.npz"], new=ARRAYS, **more)


def rebuilt(state, fields):
    return linear(state, linear(state, fields["x"], "inner"), "outer")


TABLE_OF_CLASSES = JOBS["table classes"]
JOBS |= {
    "forecasts": Job(
        FORECAST + sets(WINDOWS, "  transforms: [{type: Standardize, field: label}]\n"), write=write_sales, read=read_sales,
        forward=lambda state, fields: linear(state, fields["x"], "head"), loss=mse, figures=numbers_figures, report=numbers_report, other=["dataset.eval.dataset.path=other.csv"],
        new=["new.csv"], predicted=lambda output, folder: {"sales": output.flatten().tolist()},
        of_eval=numbers_columns(["sales[1]", "sales[2]"]), beside=steps_to_come, scaled=("target",), script=("features", "known")),
    "npz arrays": array_job(
        outputs(3) + "loss: CrossEntropyLoss\nmetrics: [Accuracy]\n", "kind", cross_entropy, forward=lambda state, fields: linear(state, fields["x"], "0"),
        figures=accuracy, report=classes_report([None] * 3), predicted=classes_columns(["0", "1", "2"])),
    "autoencoder": array_job(
        BOTH + "loss: {type: MSELoss, inputs: [outer, x]}\n", "size", lambda output, fields: functional.mse_loss(output, fields["x"]), forward=rebuilt,
        report=lambda output, fields: numbers_report(output, fields | {"target": fields["x"]}), predicted=numbers_columns([f"prediction[{i}]" for i in range(4)])),
    "folds in one call": dataclasses.replace(
        TABLE_OF_CLASSES, folds=3, recipe=re.sub(r"  eval: .*\n", "  fold: {folds: 3}\n", TABLE_OF_CLASSES.recipe),
        other=["dataset.fold=null", "dataset.eval=" + re.search("eval: (.*)", TABLE_OF_CLASSES.recipe)[1].replace("eval.csv", "other.csv")]),
    "two processes": dataclasses.replace(TABLE_OF_CLASSES, recipe=TABLE_OF_CLASSES.recipe + "distributed_type: MULTI_CPU\nnum_processes: 2\n"),
}


@pytest.fixture(name="runs", scope="module")
def runs_of_jobs(tmp_path_factory):
    """Each job is trained when its first cell is looked at."""
    return functools.cache(lambda name: train(JOBS[name], tmp_path_factory.mktemp("job")))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", JOBS)
def test_each_job_is_right_or_refused(runs, name, cell):
    CELLS[cell](runs(name))
