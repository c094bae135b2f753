"""The matrix of jobs: what trainrun does with each kind of job, cell by cell, against the same computed in Python from the exported weights and
the data's files. A job is a row (class Job) of a table in a page of tests; this file has the columns: each is a function `check_…` of a trained run.
What a job cannot do is a row's text instead of a computation: what the program says of it. A page of docs/guide must say it, too (`told`)."""

import csv
import dataclasses
import io
import json
import pathlib
import subprocess
from collections.abc import Callable

import numpy as np
import pytest
import safetensors
import safetensors.torch
import sklearn.metrics
import torch

from tests.program import CALLED

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs/guide"
STEPS, LR, SEED, EVAL_BATCH = 3, 0.05, 4, 3
Tensors = dict[str, torch.Tensor]
# Three steps of plain gradient descent, each on all samples, and a checkpoint after each of them.
TAIL = f"""
dataloader: {{batch_size: 1000, eval_batch_size: {EVAL_BATCH}, drop_last: false}}
optimizer: {{type: SGD, lr: {LR}}}
training: {{max_steps: {STEPS}}}
checkpoint: {{every: 1, keep_last: null}}
output_dir: run
"""


@dataclasses.dataclass
class Refused:
    """What the program says where it does not do something, and what the guide says of it: a text in the page `page`."""

    said: str
    page: str
    told: str


NO_FOLDER = Refused("export: --format huggingface needs a model that is one registered language model", "exporting.md",
                    "The model must be one registered language model")


@dataclasses.dataclass
class Job:
    recipe: str  # its model, loss, metrics and dataset, whose files are named as `write` names them
    write: Callable[[pathlib.Path, str], None]  # the files of a part: train, eval, other (with labels), new (without)
    read: Callable[[pathlib.Path, str, list[int]], Tensors]  # these again, read in Python by what the numbered training samples tell: inputs and
    # "target", as the loss reads it but for Standardize
    forward: Callable[[Tensors, Tensors], torch.Tensor]  # the output, of weights and inputs; differentiable
    loss: Callable[[torch.Tensor, Tensors], torch.Tensor]
    other: list[str]  # what `eval` is given for other data
    figures: Callable[[torch.Tensor, Tensors], dict[str, float]] = lambda output, fields: {}  # without eval/
    report: Callable[[torch.Tensor, Tensors], dict] | Refused | None = None  # what the report has at least
    new: list[str] | Refused = dataclasses.field(default_factory=list)  # what `predict` is given for data without labels
    predicted: Callable[[torch.Tensor, pathlib.Path], dict[str, list]] | Refused | None = None  # columns of predictions
    of_eval: Callable[[torch.Tensor, pathlib.Path], dict[str, list]] | None = None  # of those for dataset.eval, where they are others
    from_fields: Callable[[torch.Tensor, Tensors], dict[str, list]] | None = None  # instead of `predicted`, where the fields tell what is written
    array: list[str] | None = None  # what `predict` is given to write the output as an array, where it is no table
    beside: Callable[[pathlib.Path, str], dict[str, list]] | None = None  # columns that tell which sample it is
    ids: bool = False  # whether these are columns of every part, so that predictions of dataset.eval have them, too
    drawn: Callable[[Tensors], Tensors] = lambda fields: fields  # what transforms draw for the samples of a set
    wrapped: list[str] | Refused = dataclasses.field(default_factory=lambda: ["dataset.eval=null", "dataset.fold=2/3"])
    scaled: tuple[str, ...] = ()  # fields that Standardize scales, by what the training samples have
    script: tuple[str, ...] = ("x",)  # the inputs of the exported TorchScript, or Refused
    length: int | None = None  # of its texts, where they must have one
    opened: Callable[[pathlib.Path, pathlib.Path, Tensors], torch.Tensor] | None = None  # by the library for the job's export
    export: list[str] = dataclasses.field(default_factory=list)  # options of `export` for it
    by_batch: bool = False  # the loss of an evaluation is the mean over batches, as the guide says of a few losses
    folds: int = 0  # that one call trains; the cells are those of the second
    steps: bool = True  # whether `loss` says what training minimizes, so that its steps can be followed


def trainrun(folder, *arguments, refused=None, **options):
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120, check=False, **options)
    if refused is None:
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    assert done.returncode != 0 and refused in done.stderr and not done.stdout, done.stdout + done.stderr
    return done.stderr


def check_refused(refusal: Refused, folder, *arguments):
    trainrun(folder, *arguments, refused=refusal.said)
    assert refusal.told in (GUIDE / refusal.page).read_text(), f"{refusal.page} does not say: {refusal.told}"


def weights_of(folder, checkpoint="latest") -> Tensors:
    state = safetensors.torch.load_file(folder / "checkpoints" / checkpoint / "model.safetensors")
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def rows_of(text: str) -> list[dict]:
    return list(csv.DictReader(io.StringIO(text)))


def chosen(fields: Tensors, numbers) -> Tensors:
    return {name: tensor[torch.as_tensor(numbers)] for name, tensor in fields.items()}


class Trained:
    """A job's run and what is known of its data."""

    def __init__(self, job: Job, folder: pathlib.Path, run: str = "run", folds: int = 0):
        self.job, self.folder, self.run, self.numbers, self.held_out = job, folder, run, None, None
        if folds:  # this is the second of them
            count = len(job.read(folder, "train", None)["target"])
            self.numbers, self.held_out = held_out(count, 1, folds, SEED)
        known = self.unscaled("train")
        self.scales = {name: (known[name].mean(0), known[name].std(0, unbiased=False)) for name in job.scaled}
        self.state = weights_of(folder / run)

    def scale(self, fields: Tensors) -> Tensors:
        return fields | {name: (fields[name] - mean) / torch.where(std == 0, 1, std) for name, (mean, std) in self.scales.items() if name in fields}

    def unscaled(self, part: str) -> Tensors:
        """Of a fold, "train" and "eval" are what it learns from, and the rest."""
        if self.numbers is None or part not in ("train", "eval"):
            return self.job.drawn(self.job.read(self.folder, part, self.numbers))
        return self.job.drawn(chosen(self.job.read(self.folder, "train", self.numbers), self.numbers if part == "train" else self.held_out))

    def beside(self, part: str) -> dict[str, list]:
        if self.numbers is None:
            return self.job.beside(self.folder, part)
        rows = self.numbers if part == "train" else self.held_out
        return {name: [values[row] for row in rows] for name, values in self.job.beside(self.folder, "train").items()}

    def fields(self, part: str) -> Tensors:
        return self.scale(self.unscaled(part))

    def output(self, fields: Tensors, state: Tensors | None = None) -> torch.Tensor:
        return self.job.forward(state or self.state, fields)

    def in_units(self, output: torch.Tensor) -> torch.Tensor:
        if "target" not in self.scales:
            return output
        mean, std = self.scales["target"]
        if output.shape[-1] == 2 * len(mean):  # a mean and a variance
            return torch.cat([output[:, : len(mean)] * std + mean, output[:, len(mean):] * std**2], 1)
        return output * std + mean


def train(job: Job, folder: pathlib.Path) -> Trained:
    for part in ("train", "eval", "other", "new"):
        job.write(folder, part)
    (folder / "recipe.yaml").write_text(f"version: 1\nname: job\nseed: {SEED}\n" + job.recipe.strip() + TAIL)
    trainrun(folder, "--quiet", "recipe.yaml")
    return Trained(job, folder, "run/fold-1", job.folds) if job.folds else Trained(job, folder)


# --- The columns of the matrix ---------------------------------------------------------------------------------------


def check_train(run: Trained):
    """Each step is that of gradient descent in PyTorch, and the evaluation at the end that of the last weights."""
    check_figures(run, {name: value for line in (run.folder / run.run / "metrics.jsonl").read_text().splitlines() for name, value in json.loads(line).items()}, "eval")
    checkpoints = sorted(path.name for path in (run.folder / run.run / "checkpoints").iterdir() if path.name != "latest")
    states = [weights_of(run.folder / run.run, checkpoint) for checkpoint in checkpoints]
    assert len(states) == STEPS
    learnt = [name for name in states[0] if not torch.equal(states[0][name], states[-1][name])]
    assert learnt, "nothing is learnt"
    if not run.job.steps:
        return
    fields = run.fields("train")
    for before, after in zip(states, states[1:], strict=False):
        variables = {name: tensor.clone().requires_grad_() for name, tensor in before.items() if tensor.is_floating_point()}
        loss = run.job.loss(run.output(fields, before | variables), fields)
        gradients = torch.autograd.grad(loss, [variables[name] for name in learnt])
        for name, gradient in zip(learnt, gradients, strict=True):
            torch.testing.assert_close(after[name], before[name] - LR * gradient, rtol=1e-4, atol=2e-6, msg=lambda text, name=name: f"{name}: {text}")


def loss_of_batches(run: Trained, fields: Tensors) -> float:
    batches = torch.arange(len(fields["target"])).split(EVAL_BATCH)
    return sum(len(rows) * run.job.loss(run.output(chosen(fields, rows)), chosen(fields, rows)).item() for rows in batches) / len(fields["target"])


def check_figures(run: Trained, found: dict, part: str):
    fields = run.fields(part)
    with torch.no_grad():
        output = run.output(fields)
        expected = {"loss": loss_of_batches(run, fields) if run.job.by_batch else run.job.loss(output, fields).item()}
        expected |= run.job.figures(run.in_units(output), run.unscaled(part))
    for name, value in expected.items():
        assert found[f"eval/{name}"] == pytest.approx(float(value), rel=1e-4, abs=1e-5), name


def check_eval(run: Trained):
    check_figures(run, json.loads(trainrun(run.folder, "eval", run.run, "--json")), "eval")


def check_eval_of_other_data(run: Trained):
    check_figures(run, json.loads(trainrun(run.folder, "eval", run.run, *run.job.other, "--json")), "other")


def check_report(run: Trained):
    arguments = ("eval", run.run, "--report", "--json")
    if isinstance(run.job.report, Refused):
        check_refused(run.job.report, run.folder, *arguments)
        return
    report = json.loads(trainrun(run.folder, *arguments))["report"]["eval"]
    with torch.no_grad():
        expected = run.job.report(run.in_units(run.output(run.fields("eval"))), run.unscaled("eval"))
    for name, value in expected.items():
        if name in ("classes", "labels"):
            assert [row["name"] for row in report[name]] == [row.pop("name") for row in value]
            assert [{key: row[key] for key in value[0]} for row in report[name]] == [pytest.approx(row) for row in value]
        else:
            assert report[name] == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value), name


def check_rows(run: Trained, text: str, part: str):
    rows = rows_of(text)
    with torch.no_grad():
        fields = run.fields(part)
        output = run.in_units(run.output(fields))
        if run.job.from_fields:
            columns = run.job.from_fields(output, fields)
        else:
            columns = (run.job.of_eval if part != "new" and run.job.of_eval else run.job.predicted)(output, run.folder)
    for name, values in columns.items():
        found = [row[name] for row in rows]
        if isinstance(values[0], str):
            assert found == values, name
        elif isinstance(values[0], list):
            expected = values if isinstance(values[0][0], str) else [pytest.approx(row, rel=1e-4, abs=1e-5) for row in values]
            assert [json.loads(value) for value in found] == expected, name
        else:
            assert [float(value) for value in found] == pytest.approx(values, rel=1e-4, abs=1e-5), name
    if run.job.beside and part == "new":
        expected = run.job.beside(run.folder, part)
        assert list(rows[0]) == [*expected, *columns]
        for name, values in expected.items():
            assert [row[name] for row in rows] == values, name
    else:
        expected = run.beside(part) if run.job.ids else {}
        assert list(rows[0]) == ["sample", *expected, *columns]
        assert [int(row["sample"]) for row in rows] == list(range(len(rows)))
        for name, values in expected.items():
            assert [row[name] for row in rows] == values, name


def check_predict(run: Trained):
    """Data without labels and, where none are named, those of dataset.eval."""
    if isinstance(run.job.predicted, Refused):
        check_refused(run.job.predicted, run.folder, "predict", run.run)
        check_refused(run.job.new, run.folder, "predict", run.run, "recipe.yaml")
        check_array(run)
        return
    check_rows(run, trainrun(run.folder, "predict", run.run, *masks(run.job, "of_eval")), "eval")
    if isinstance(run.job.new, Refused):
        check_refused(run.job.new, run.folder, "predict", run.run, "recipe.yaml")
    else:
        check_rows(run, trainrun(run.folder, "predict", run.run, *run.job.new), "new")


def check_array(run: Trained):
    if run.job.array is None:
        return
    trainrun(run.folder, "predict", run.run, *run.job.array, "--output", "out.npz")
    found = torch.tensor(np.load(run.folder / "out.npz")["output"]).double()
    with torch.no_grad():
        expected = run.output(run.fields("eval")).double()
    torch.testing.assert_close(found[:, :expected.shape[1]], expected, rtol=1e-4, atol=1e-5)


def held_out(count: int, fold: int, folds: int, seed: int):
    """As scikit-learn's KFold divides the samples in the order that the seed gives."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    parts = list(torch.tensor_split(order, folds))
    return torch.cat(parts[:fold] + parts[fold + 1:]).sort().values, parts[fold].sort().values


def check_through_a_fold(run: Trained):
    """A run on two thirds of the training data knows them as the other does, and predicts for the third that it did not see."""
    if isinstance(run.job.wrapped, Refused):
        check_refused(run.job.wrapped, run.folder, "--quiet", "recipe.yaml", "output_dir=fold", "dataset.eval=null", "dataset.fold=2/3")
        return
    if run.job.folds:
        check_predictions_of_folds(run)
        return
    trainrun(run.folder, "--quiet", "recipe.yaml", "output_dir=fold", "training.max_steps=1", *run.job.wrapped)
    fold = Trained(run.job, run.folder, "fold", 3)
    check_figures(fold, json.loads(trainrun(run.folder, "eval", "fold", "--json")), "eval")
    if isinstance(run.job.predicted, Refused):
        return
    check_rows(fold, trainrun(run.folder, "predict", "fold", *masks(run.job, "folded")), "eval")
    if not isinstance(run.job.new, Refused):
        check_rows(fold, trainrun(run.folder, "predict", "fold", *run.job.new), "new")


def check_predictions_of_folds(run: Trained):
    check_refused(Refused("holds a run for each fold; name one of them", "predicting.md", "each fold is a run of its own"), run.folder, "eval", "run")
    rows = rows_of((run.folder / "run/predictions.csv").read_text())
    with torch.no_grad():
        columns = run.job.predicted(run.in_units(run.output(run.fields("eval"))), run.folder)
    assert [i for i, row in enumerate(rows) if row["fold"] == "1"] == run.held_out.tolist()
    for name, values in columns.items():
        found = [rows[i][name] for i in run.held_out]
        assert (found if isinstance(values[0], str) else list(map(float, found))) == (values if isinstance(values[0], str) else pytest.approx(values, rel=1e-4))


def masks(job: Job, folder: str):
    return ["--masks", folder] if isinstance(job.new, list) and "--masks" in job.new else []


def check_weights(run: Trained):
    """`export`: safetensors opens the weights, by the names and values of the checkpoint."""
    trainrun(run.folder, "export", run.run, "--output", "weights.safetensors")
    found = safetensors.torch.load_file(run.folder / "weights.safetensors")
    assert found.keys() == run.state.keys() and all(torch.equal(found[name].double(), run.state[name].double()) for name in found)
    with safetensors.safe_open(run.folder / "weights.safetensors", "pt") as file:
        contract = json.loads(file.metadata()["trainrun.contract"])
    assert contract["fields"], "the export does not say how its data are read"


def check_script(run: Trained):
    """`export --format torchscript`: torch.jit gives what the model gives."""
    arguments = ("export", run.run, "--format", "torchscript", "--output", "model.pt")
    if isinstance(run.job.script, Refused):
        check_refused(run.job.script, run.folder, *arguments)
        return
    trainrun(run.folder, *arguments)
    fields = run.fields("new")
    given = [fields[name].float() if fields[name].is_floating_point() else fields[name] for name in run.job.script]
    if run.job.length:  # texts are padded to it
        given = [torch.nn.functional.pad(tensor, (0, run.job.length - tensor.shape[1])) for tensor in given]
    with torch.no_grad():
        found, expected = torch.jit.load(run.folder / "model.pt")(*given), run.output(fields)
    found = torch.cat(found, 1) if isinstance(found, tuple) else found
    found = found[:, :expected.shape[1]] if run.job.length and found.dim() == 3 else found
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-4, atol=1e-5)


def check_opened(run: Trained):
    """The folder for another library gives there what the model gives; or the model is none of that library's."""
    job = run.job
    if job.opened is None:
        check_refused(NO_FOLDER, run.folder, "export", run.run, "--format", "huggingface", "--output", "peer")
        return
    trainrun(run.folder, "export", run.run, *job.export, "--output", "peer")
    fields = run.fields("new")
    with torch.no_grad():
        torch.testing.assert_close(job.opened(run.folder / "peer", run.folder, fields).double(), run.output(fields).double(), rtol=1e-4, atol=1e-5)


CELLS = {
    "train": check_train, "eval": check_eval, "eval of other data": check_eval_of_other_data, "report": check_report, "predict": check_predict,
    "through a fold": check_through_a_fold, "export": check_weights, "torch.jit": check_script, "opened": check_opened,
}


# --- What several jobs have in common --------------------------------------------------------------------------------


def linear(state: Tensors, x: torch.Tensor, name: str) -> torch.Tensor:
    return x @ state[f"{name}.weight"].to(x.dtype).T + state[f"{name}.bias"].to(x.dtype)


def classes_report(names: list[str]):
    def report(output, fields):
        target, found = fields["target"].flatten().tolist(), output.argmax(1).flatten().tolist()
        rows = sklearn.metrics.classification_report(target, found, labels=range(len(names)), output_dict=True, zero_division=0)
        rows = [rows[str(i)] for i in range(len(names))]
        return {"confusion_matrix": sklearn.metrics.confusion_matrix(target, found, labels=range(len(names))).tolist(), "accuracy": float(np.mean(np.equal(target, found))),
                "classes": [{"name": name, "precision": row["precision"], "recall": row["recall"], "f1": row["f1-score"], "samples": row["support"]} for name, row in zip(names, rows)]}

    return report


def classes_columns(names: list[str], title: str = "label"):
    def columns(output, folder):
        p = output.softmax(1)
        return {title: [names[i] for i in p.argmax(1)], "probability": p.max(1).values.tolist(), **{f"p({name})": p[:, i].tolist() for i, name in enumerate(names)}}

    return columns


def labels_columns(names: list[str]):
    def columns(output, folder):
        p = output.sigmoid()
        return {name: [str(value >= 0.5).lower() for value in p[:, i].tolist()] for i, name in enumerate(names)} | {f"p({name})": p[:, i].tolist() for i, name in enumerate(names)}

    return columns


def numbers_columns(names: list[str]):
    return lambda output, folder: {name: output[:, i].tolist() for i, name in enumerate(names)}


def numbers_figures(output, fields):
    errors = output - fields["target"]
    return {"mae": errors.abs().mean().item(), "rmse": (errors**2).mean().sqrt().item()}


def numbers_report(output, fields):
    target = fields["target"]
    figures = numbers_figures(output, fields)
    return figures | {"r2": sklearn.metrics.r2_score(target.reshape(len(target), -1), output.reshape(len(target), -1))}


def accuracy(output, fields):
    return {"accuracy": (output.argmax(1) == fields["target"]).double().mean().item()}
