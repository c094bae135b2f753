"""`trainrun report`: one page of runs, which needs no network; its numbers are those of the runs' files."""

import json
import math
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest
import sklearn.metrics

from tests.program import CALLED
from tests.tools.report_pages import Page, axe_source, evaluated, needs_browser, screenshot

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECIPE = str(ROOT / "tests/recipes/digits_small.yaml")
HOSTILE = "</script><script>alert(1)</script>\"'<img src=x onerror=alert(2)>&amp;"


def called(folder, *arguments):
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def report(folder, *arguments):
    said = called(folder, "report", *arguments)
    assert "report.html: " in said
    return Page(folder / "report.html")


@pytest.fixture(name="folder", scope="module")
def folder_of_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    for name, lr in (("first", "1e-3"), ("second", "0.01")):
        called(folder, "run", RECIPE, f"output_dir={name}", f"optimizer.lr={lr}", "logging.every_steps=5", "training.num_epochs=3",
               "checkpoint.keep_best={monitor: eval/accuracy, mode: max}", "training.max_grad_norm=1")
    return folder


def lines_of(run, split):
    return [line for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if line["split"] == split]


def test_the_curves_are_the_figures_of_metrics_jsonl(folder):
    page = report(folder, "first", "second")
    for run, name in zip(page.data["runs"], ("first", "second"), strict=True):
        for split in ("train", "eval"):
            lines = lines_of(folder / name, split)
            assert run[split]["step"] == [line["step"] for line in lines]
            assert run[split]["seconds"] == [line["time"] for line in lines]
            figures = {key for line in lines for key in line if "/" in key}
            assert set(run[split]["figures"]) == figures and "train/grad_norm" in figures | {"train/grad_norm"}
            for figure in figures:
                assert run[split]["figures"][figure] == [line.get(figure) for line in lines], figure
    titles = {chart["title"]: chart for chart in page.data["charts"]}
    assert {"loss", "accuracy", "learning rate", "samples per second", "norm of the gradients"} <= set(titles)
    assert {series["figure"] for series in titles["loss"]["series"]} == {"train/loss", "eval/loss"} and len(titles["loss"]["series"]) == 4


def test_tables_say_what_the_runs_are_and_how_they_differ(folder):
    page = report(folder, "first", "second")
    runs = {row[0]: row for row in page.tables["the runs, as their folders have them"]}
    evaluation = {row[0]: row for row in page.tables["the last evaluation"]}
    for i, name in enumerate(("first", "second"), 1):
        summary = json.loads((folder / name / "summary.json").read_text())
        best = max(line["eval/accuracy"] for line in lines_of(folder / name, "eval"))
        assert runs[name][1:3] == ["finished", str(summary["step"])] and runs[name][4] == f"eval/accuracy {best:.5g}"
        assert evaluation["eval/loss"][i] == f"{summary['metrics']['eval/loss']:.6g}"
    keys = {row[0]: row[1:] for row in page.tables["keys of the recipes that differ; ≠: from the first run's"]}
    assert keys == {"key": ["first", "second"], "optimizer.lr": ["1e-3", "0.01"]}
    assert "second: another run than first, by optimizer.lr" in page.text
    shares = page.tables["where the time went, and the most that a rank held"]
    assert [row[0] for row in shares[1:]] == ["first", "second"] and all("%" in cell for row in shares[1:] for cell in row[2:5])
    assert "type: AdamW" in page.text and "trainrun first/recipe.yaml" in page.text


def test_the_page_fetches_nothing_and_says_so_to_the_browser(folder):
    page = report(folder, "first")
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"<(link|iframe|object|embed|base)\b", text)
    for tag, attributes in page.tags:
        for name in ("src", "href", "action", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith(("data:", "#")), (tag, value)
        assert not any(name.startswith("on") for name in attributes), attributes
    [policy] = [attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "Chart.js v3." in text and "Released under the MIT License" in text
    assert len(page.scripts) == 3


def test_names_and_recipes_are_text_whatever_they_say(folder, tmp_path):
    name = HOSTILE.replace("/", "∕")  # no folder can be called otherwise
    shutil.copytree(folder / "first", tmp_path / name)
    recipe = (tmp_path / name / "recipe.yaml").read_text()
    (tmp_path / name / "recipe.yaml").write_text(recipe.replace("name: digits_small", "name: " + json.dumps(HOSTILE)))
    lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
    lines.append(json.dumps({"step": 135, "epoch": 2, "time": 9.0, "split": "eval", f"eval/{HOSTILE}": 1.0}))
    (tmp_path / name / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    shutil.copytree(folder / "second", tmp_path / "second")
    page = report(tmp_path, name, "second")
    assert len(page.scripts) == 3 and not any(tag == "img" for tag, _ in page.tags)
    assert f"eval/{HOSTILE}" in page.data["runs"][0]["eval"]["figures"]
    assert page.data["runs"][0]["name"] == name
    assert name in page.text and "alert(1)" in page.text
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_what_is_not_finite_is_a_gap_and_a_damaged_line_a_note(folder, tmp_path):
    shutil.copytree(folder / "first", tmp_path / "run")
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    third = json.loads(lines[2])
    third["train/loss"] = None
    lines[2] = json.dumps(third)
    (tmp_path / "run/metrics.jsonl").write_text("\n".join(["broken", *lines]) + "\n")
    page = report(tmp_path, "run")
    assert page.data["runs"][0]["train"]["figures"]["train/loss"][2] is None
    assert "1 line cannot be read" in page.text


def test_long_runs_are_thinned_and_their_spikes_stay(folder, tmp_path):
    shutil.copytree(folder / "first", tmp_path / "long")
    losses = [1 / (i + 1) for i in range(30_000)]
    losses[12_345] = 77.0
    text = "\n".join(json.dumps({"step": i + 1, "epoch": 0, "time": i / 10, "split": "train", **{f"train/{k}": losses[i] for k in ("loss", "a", "b", "c")}})
                     for i in range(len(losses)))
    (tmp_path / "long/metrics.jsonl").write_text(text + "\n")
    page = report(tmp_path, "long")
    drawn = page.data["runs"][0]["train"]
    assert len(drawn["step"]) < 25_000 and drawn["step"][0] == 1 and drawn["step"][-1] == 30_000
    assert 77.0 in drawn["figures"]["train/loss"]
    for step, loss in zip(drawn["step"], drawn["figures"]["train/loss"], strict=True):
        assert loss == losses[step - 1]
    assert f"of 30000 logged lines of training, {len(drawn['step'])} are drawn" in page.text


def test_twenty_runs_are_less_than_five_megabytes(folder, tmp_path):
    def lines(i):
        return "\n".join(json.dumps({"step": k + 1, "epoch": 0, "time": k / 7, "split": "train",
                                     **{f"train/{name}": math.sin(k * i + ord(name)) for name in "abcdefgh"}, "train/loss": math.exp(-k / 5e3)})
                         for k in range(5000))

    texts = [lines(i) for i in range(5)]  # four runs of each
    for i in range(20):
        run = tmp_path / f"run{i}"
        shutil.copytree(folder / "first", run)
        (run / "metrics.jsonl").write_text(texts[i % len(texts)] + "\n")
    page = report(tmp_path, *(f"run{i}" for i in range(20)))
    assert len(page.data["runs"]) == 20
    assert (tmp_path / "report.html").stat().st_size < 5e6


def test_folders_that_hold_no_run_are_refused(folder, tmp_path):
    done = subprocess.run([CALLED, "report", str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "is not a run's folder" in done.stderr and not (tmp_path / "report.html").exists()


@pytest.fixture(name="evaluation", scope="module")
def evaluated_page(folder):
    return report(folder, "first", "--evaluate")


def test_the_evaluation_is_scikit_learns(folder, evaluation):
    report_of = json.loads(called(folder, "eval", "first", "--report", "--json"))["report"]["eval"]
    table = next(rows for caption, rows in evaluation.tables.items() if caption.startswith("eval: each class"))
    for row, expected in zip(table[1:], report_of["classes"], strict=True):
        for cell, key in zip(row[1:4], ("precision", "recall", "f1"), strict=True):
            assert math.isclose(float(cell), expected[key], abs_tol=1e-4)
        assert int(row[4]) == expected["samples"]
    matrix = next(rows for caption, rows in evaluation.tables.items() if "rows are the samples' classes" in caption)
    assert [[int(cell) for cell in row[1:]] for row in matrix[1:]] == report_of["confusion_matrix"]


BINARY = """\
version: 1
name: t
model: {layers: [{type: Linear, out_features: 8}, Tanh, {type: Linear, out_features: 2}]}
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset:
  train: {type: CSV, path: t.csv, label: kind, columns: auto}
  eval: {type: CSV, path: t.csv, label: kind, columns: auto}
dataloader: {batch_size: 16, eval_batch_size: 50}
optimizer: {type: Adam, lr: 0.01}
training: {num_epochs: 3}
"""


def test_curves_and_their_areas_are_scikit_learns(tmp_path):
    draw = np.random.default_rng(3)
    values = draw.normal(size=(300, 3))
    kinds = np.where(values[:, 0] + 0.8 * draw.normal(size=300) > 0, "<b>yes</b>", "no & no")
    (tmp_path / "t.csv").write_text("a,b,c,kind\n" + "".join(f"{a:.6f},{b:.6f},{c:.6f},{kind}\n" for (a, b, c), kind in zip(values, kinds, strict=True)))
    (tmp_path / "r.yaml").write_text(BINARY)
    called(tmp_path, "run", "r.yaml", "output_dir=run")
    page = report(tmp_path, "run", "--evaluate")
    called(tmp_path, "predict", "run", "t.csv", "--output", "p.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    second = next(iter(list(rows[0]["probabilities"])[1:]))
    scores, truth = np.array([row["probabilities"][second] for row in rows]), kinds == second
    charts = {chart["title"]: chart for chart in page.data["charts"]}
    roc, pr, calibration = (charts[f"eval: {name}"]["series"][0] for name in ("ROC", "precision and recall", "calibration"))

    def figure(series):
        return float(re.search(r"([\d.]+)\)$", series["label"]).group(1))

    assert math.isclose(figure(roc), sklearn.metrics.roc_auc_score(truth, scores), abs_tol=1e-3)
    assert math.isclose(figure(pr), sklearn.metrics.average_precision_score(truth, scores), abs_tol=1e-3)
    rates = set(zip(*(np.round(rate, 9) for rate in sklearn.metrics.roc_curve(truth, scores, drop_intermediate=False)[:2]), strict=True))
    assert {(round(x, 9), round(y, 9)) for x, y in roc["points"]} <= rates and len(roc["points"]) <= 200
    said = np.maximum(scores, 1 - scores)
    right = (scores > 0.5) == truth
    bins = np.minimum((said * 15).astype(int), 14)
    error = sum(abs(said[bins == i].sum() - right[bins == i].sum()) for i in range(15)) / len(said)
    assert math.isclose(figure(calibration), error, abs_tol=1e-3)
    losses = -np.log(np.where(truth, scores, 1 - scores))
    wrong = sorted((loss for loss, is_right in zip(losses, right, strict=True) if not is_right), reverse=True)
    shown = [float(text) for text in re.findall(r"loss ([\d.]+)", page.text)]
    assert len(shown) == min(24, len(wrong)) and np.allclose(shown, wrong[:24], rtol=1e-3)
    assert "it is <b>yes</b>" in page.text


def test_pictures_of_the_worst_mistakes_are_those_samples(folder, evaluation):
    pictures = [attributes["src"] for tag, attributes in evaluation.tags if tag == "img"]
    wrong = sum(count for i, row in enumerate(json.loads(called(folder, "eval", "first", "--report", "--json"))["report"]["eval"]["confusion_matrix"])
                for k, count in enumerate(row) if i != k)
    assert len(pictures) == min(24, wrong) > 0 and all(source.startswith("data:image/png;base64,") for source in pictures)
    assert all(attributes.get("alt") for tag, attributes in evaluation.tags if tag == "img")


REGRESSION = """\
version: 1
name: t
model: {layers: [{type: Linear, out_features: 1}]}
loss: MSELoss
dataset:
  train: {type: CSV, path: t.csv, label: price, task: regression}
  eval: {type: CSV, path: t.csv, label: price, task: regression}
  transforms: [Standardize, {type: Standardize, field: label}]
dataloader: {batch_size: 16}
optimizer: {type: Adam, lr: 0.01}
training: {num_epochs: 2}
"""


def test_residuals_are_in_the_datas_units(tmp_path):
    draw = np.random.default_rng(4)
    values = draw.normal(size=(120, 2))
    price = 1000 + 300 * values[:, 0] + draw.normal(size=120)
    (tmp_path / "t.csv").write_text("a,b,price\n" + "".join(f"{a:.6f},{b:.6f},{p:.4f}\n" for (a, b), p in zip(values, price, strict=True)))
    (tmp_path / "r.yaml").write_text(REGRESSION)
    called(tmp_path, "run", "r.yaml", "output_dir=run")
    page = report(tmp_path, "run", "--evaluate")
    called(tmp_path, "predict", "run", "t.csv", "--output", "p.jsonl")
    predicted = np.array([json.loads(line)["price"] for line in (tmp_path / "p.jsonl").read_text().splitlines()])
    charts = {chart["title"]: chart for chart in page.data["charts"]}
    pairs = np.array(charts["eval: price, predicted and true"]["series"][0]["points"])
    assert np.allclose(pairs[:, 0], price, atol=1e-2) and np.allclose(pairs[:, 1], predicted, rtol=1e-4)
    residuals = np.array(charts["eval: price, residuals"]["series"][0]["points"])
    assert np.allclose(residuals[:, 1], pairs[:, 1] - pairs[:, 0])
    row = page.tables["eval: errors, in the data's own units"][1]
    expected = [np.sqrt(((predicted - price) ** 2).mean()), np.abs(predicted - price).mean(), sklearn.metrics.r2_score(price, predicted)]
    assert row[0] == "price" and np.allclose([float(cell) for cell in row[1:]], expected, rtol=2e-3)


SALES = """\
version: 1
name: t
model:
  layers:
    - {type: GRU, hidden_size: 4, batch_first: true}
    - {type: Select, dim: 1, index: -1}
    - {type: Linear, out_features: 5}
loss: L1Loss
metrics: [MAE]
dataset:
  train: {type: Windows, length: 8, horizon: 5, group: shop, time: day, holdout: 10, dataset: &days {type: CSV, path: s.csv, label: sales, task: regression, features: [price]}}
  eval: {type: Windows, length: 8, horizon: 5, group: shop, time: day, origins: 2, stride: 5, dataset: *days}
  transforms: [{type: Standardize, dim: -1}, {type: Standardize, field: label}]
dataloader: {batch_size: 16}
optimizer: {type: AdamW, lr: 3e-3}
training: {num_epochs: 1}
"""


def test_forecasts_stand_beside_what_came(tmp_path):
    sales = {shop: [round(20 + 5 * math.sin(day / 3) + day / 9, 3) for day in range(40)] for shop in ("north", "south")}
    rows = [f"{shop},{day},{amount},1" for shop, amounts in sales.items() for day, amount in enumerate(amounts)]
    (tmp_path / "s.csv").write_text("shop,day,sales,price\n" + "\n".join(rows) + "\n")
    (tmp_path / "r.yaml").write_text(SALES)
    called(tmp_path, "run", "r.yaml", "output_dir=run")
    page = report(tmp_path, "run", "--evaluate")
    forecasts = [chart for chart in page.data["charts"] if chart["title"].startswith("eval: forecast for ")]
    assert len(forecasts) == 4 and len({chart["title"] for chart in forecasts}) == 4
    for chart in forecasts:
        truth = next(series["points"] for series in chart["series"] if series["label"] == "true")
        assert [x for x, _ in truth] == [1, 2, 3, 4, 5]
        came = [y for _, y in truth]
        assert any(np.allclose(came, amounts[i:i + 5], atol=1e-3) for amounts in sales.values() for i in (30, 35)), came
    mae = json.loads((tmp_path / "run/summary.json").read_text())["metrics"]["eval/mae"]
    [row] = page.tables["eval: errors, in the data's own units"][1:]
    assert row[0] == "sales" and math.isclose(float(row[2]), mae, rel_tol=1e-3)


LABELS = """\
version: 1
name: t
model: {layers: [{type: Linear, out_features: 3}]}
loss: BCEWithLogitsLoss
metrics: [F1]
dataset:
  train: {type: CSV, path: m.csv, label: [x, y, z]}
  eval: {type: CSV, path: m.csv, label: [x, y, z]}
dataloader: {batch_size: 16}
optimizer: {type: Adam, lr: 0.02}
training: {num_epochs: 3}
"""


def test_several_labels_have_a_line_and_a_curve_each(tmp_path):
    draw = np.random.default_rng(6)
    values = draw.normal(size=(150, 2))
    labels = np.stack([values[:, 0] > 0, values[:, 1] > 0, values.sum(1) > 0], 1).astype(int)
    (tmp_path / "m.csv").write_text("a,b,x,y,z\n" + "".join(f"{a:.6f},{b:.6f},{x},{y},{z}\n" for (a, b), (x, y, z) in zip(values, labels, strict=True)))
    (tmp_path / "r.yaml").write_text(LABELS)
    called(tmp_path, "run", "r.yaml", "output_dir=run")
    page = report(tmp_path, "run", "--evaluate")
    expected = json.loads(called(tmp_path, "eval", "run", "--report", "--json"))["report"]["eval"]
    table = next(rows for caption, rows in page.tables.items() if caption.startswith("eval: each label"))
    for row, own in zip(table[1:4], expected["labels"], strict=True):
        assert np.allclose([float(cell) for cell in row[1:4]], [own["precision"], own["recall"], own["f1"]], atol=1e-4)
    charts = {chart["title"]: chart for chart in page.data["charts"]}
    assert [series["label"].split(" ")[0] for series in charts["eval: ROC"]["series"]] == ["x", "y", "z", "by"]


LANGUAGE = """\
version: 1
name: t
model: {layers: [{type: Embedding, num_embeddings: 17, embedding_dim: 8}, {type: Linear, out_features: 17}]}
loss: CausalLMLoss
dataset:
  train: {type: TextLM, path: t.txt, tokenizer: characters, block_size: 16}
  eval: {type: TextLM, path: t.txt, tokenizer: characters, block_size: 16}
dataloader: {batch_size: 8}
optimizer: {type: Adam, lr: 0.01}
training: {num_epochs: 1}
"""


def test_a_model_without_a_class_of_each_sample_is_named(tmp_path):
    (tmp_path / "t.txt").write_text("the quick brown fox\n" * 40)
    alphabet = len(set("the quick brown fox\n"))
    (tmp_path / "r.yaml").write_text(LANGUAGE.replace("17", str(alphabet)))
    called(tmp_path, "run", "r.yaml", "output_dir=run")
    page = report(tmp_path, "run", "--evaluate")
    assert "no class and no number of each sample to show" in page.text and page.data["runs"][0]["train"]["step"]


PROBLEMS = """
  const errors = window.errors.slice();
  const canvases = [...document.querySelectorAll('canvas')];
  const blank = canvases.filter((canvas) => { const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data; return !pixels.some((value) => value !== 0); });
  return {errors, canvases: canvases.length, blank: blank.length, wide: document.documentElement.scrollWidth - innerWidth};
"""


@needs_browser
@pytest.mark.parametrize("width", [380, 1200])
def test_every_chart_is_drawn_and_nothing_is_wider_than_the_window(folder, evaluation, width):
    found = evaluated(folder / "report.html", PROBLEMS, width)
    assert found["errors"] == [] and found["blank"] == 0 and found["wide"] <= 0, found
    assert found["canvases"] == len(evaluation.data["charts"]) >= 7


@needs_browser
def test_what_is_chosen_changes_what_is_drawn(folder):
    report(folder, "first", "second")
    found = evaluated(folder / "report.html", """
      const chart = Chart.getChart(document.querySelector('canvas'));
      const state = () => ({visible: chart.data.datasets.filter((set) => !set.hidden).length, type: chart.options.scales.y.type, y: chart.data.datasets[0].data.map((point) => point.y), x: chart.data.datasets[0].data.map((point) => point.x)});
      const set = (id, value, event) => { const control = document.getElementById(id); if (control.type === 'checkbox') control.checked = value; else control.value = value; control.dispatchEvent(new Event(event)); };
      const start = state();
      document.querySelector('.runs input').click();
      const hidden = state();
      set('log', true, 'change');
      const log = state();
      set('smoothing', '0.9', 'input');
      const smooth = state();
      set('axis', 'seconds', 'change');
      const seconds = state();
      document.getElementById('theme').click();
      const theme = document.documentElement.dataset.theme;
      document.querySelector('.chart summary').click();
      await new Promise((done) => setTimeout(done, 200));
      return {start, hidden, log, smooth, seconds, theme, rows: document.querySelectorAll('.chart table tbody tr').length, errors: window.errors};
    """)
    assert found["errors"] == []
    assert found["start"]["visible"] == 4 and found["hidden"]["visible"] == 2
    assert (found["start"]["type"], found["log"]["type"]) == ("linear", "logarithmic")
    lines = lines_of(folder / "first", "train")
    assert found["start"]["y"] == [line["train/loss"] for line in lines] and found["seconds"]["x"] == [line["time"] for line in lines]
    mean, weight, expected = 0.0, 0.0, []
    for line in lines:
        mean, weight = 0.9 * mean + 0.1 * line["train/loss"], 0.9 * weight + 0.1
        expected.append(mean / weight)
    assert np.allclose(found["smooth"]["y"], expected)
    assert found["theme"] in ("dark", "light") and found["rows"] == len(lines_of(folder / "second", "train")) + len(lines_of(folder / "second", "eval"))


@needs_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_is_accessible_by_axe(folder, evaluation, theme):
    source = axe_source()
    if source is None:
        pytest.skip("axe-core is not here: pip install --no-deps axe-playwright-python")
    del evaluation
    found = evaluated(folder / "report.html", f"""
      document.documentElement.dataset.theme = '{theme}';
      const found = await axe.run(document, {{runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice']}});
      return found.violations.map((one) => [one.id, one.help, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))]);
    """, before=source)
    assert found == []


@needs_browser
def test_screenshots_can_be_taken(folder, evaluation, tmp_path):
    del evaluation
    shutil.copy(folder / "report.html", tmp_path / "report.html")
    screenshot(tmp_path / "report.html", tmp_path / "light.png", 1200, 1000)
    screenshot(tmp_path / "report.html", tmp_path / "dark.png", 1200, 1000, dark=True)
    assert (tmp_path / "light.png").read_bytes() != (tmp_path / "dark.png").read_bytes()
