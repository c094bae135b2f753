"""A plugin with a component of every kind does what its components say."""

import functools
import json
import os
import re
import subprocess

import jsonschema
import numpy
import pytest
import safetensors.numpy
import yaml

from plugin_runs import PROGRAMS, RECIPE, assert_fails_with, lines_of, output_of, put, tensors_of, trainrun
from tests.program import BINARY

COMPONENTS = {
    "layer": "Gain", "loss": "HalfSquaredError", "metric": "Bias", "dataset": "Line", "transform": "Shift",
    "optimizer": "SignDescent", "scheduler": "Halving", "comm_hook": "ScaledMean", "callback": "Farewell", "logger": "history",
    "adapter": "Offset",
}


def points(num_samples):
    """x and y as Line makes them and Shift changes them."""
    return [(i + 1, 3 * i + 0.5) for i in range(num_samples)]


def by_hand():
    """What the run of RECIPE comes to: of each step loss, rate, the gain after it, and the evaluation that follows."""
    gain, steps = 1.0, []
    for t in range(3):
        errors = [(gain * x - y, x) for x, y in points(4)]
        gradient = sum(error * x for error, x in errors) / 4
        rate = 0.5**t
        gain -= rate if gradient > 0 else -rate
        evaluated = [gain * x - y for x, y in points(5)]
        steps.append({
            "loss": sum(error**2 for error, _ in errors) / 4 / 2, "rate": rate, "sign": 1 if gradient > 0 else -1, "gain": gain,
            "figures": {"eval/loss": sum(error**2 for error in evaluated) / 5 / 2, "eval/bias": sum(evaluated) / 5},
        })
    assert [step["gain"] for step in steps] == [2, 2.5, 2.25]  # up, up, and down again
    return steps


@pytest.fixture(scope="module", name="runs")
def trained_runs(tmp_path_factory):
    """program -> a folder in which it has trained RECIPE."""

    def trained(program):
        folder = tmp_path_factory.mktemp("every_kind")
        put("libevery_kind.so", folder)
        (folder / "line.yaml").write_text(RECIPE)
        output_of("line.yaml", folder=folder, program=program)
        return folder

    return functools.cache(trained)


@pytest.fixture(scope="module", params=PROGRAMS, name="trained")
def run_of_each_program(request, runs):
    return request.param, runs(request.param)


@pytest.fixture(scope="module", name="folder")
def run_of_the_build(runs):
    """For what the installed program does in the same way."""
    return runs("the build's")


def test_a_plugins_communication_hook_makes_the_gradients(tmp_path):
    """Descent along the gradient itself, so that a hook that triples it shows."""
    put("libevery_kind.so", tmp_path)
    recipe = RECIPE.replace("{type: SignDescent, lr: 8, param_groups: [{match: '^scale\\.gain$', lr: 1}]}", "{type: SGD, lr: 0.01}")
    assert recipe != RECIPE
    (tmp_path / "line.yaml").write_text(recipe)
    gains = []
    for name, overrides in {
        "alone": ["optimizer.lr=0.03"],
        "two": ["distributed_type=MULTI_CPU", "num_processes=2", "dataloader.batch_size=2", "distributed.comm_hook={type: ScaledMean, by: 3}"],
    }.items():
        output_of("line.yaml", f"output_dir={name}", *overrides, folder=tmp_path)
        gains.append(tensors_of(tmp_path / name / "checkpoints/epoch-0003", "model")["scale.gain"])
    assert gains[1] == pytest.approx(gains[0], rel=1e-6)


@pytest.mark.parametrize("distributed_type", ["NO", "MULTI_CPU", "FSDP"])
def test_a_layer_that_changes_its_parameter_while_it_computes_is_refused_where_several_ranks_train(tmp_path, distributed_type):
    put("libevery_kind.so", tmp_path)
    (tmp_path / "line.yaml").write_text(RECIPE.replace("name: scale}", "name: scale, limit: 1.5}"))
    ranks = [f"distributed_type={distributed_type}", f"num_processes={1 if distributed_type == 'NO' else 2}", "dataloader.batch_size=2"]
    done = trainrun("line.yaml", *ranks, "optimizer={type: SGD, lr: 0.1}", folder=tmp_path)
    assert done.returncode == (0 if distributed_type == "NO" else 1), done.stderr
    refusal = ("line.yaml:5:7: model.layers[0]: Gain failed in training step 1 (epoch 0, batch 0): the forward pass changes the parameter scale.gain, "
               "which only the optimizer may do where several ranks train")
    assert (refusal in done.stderr) == (distributed_type != "NO"), done.stderr
    assert not list(tmp_path.glob("runs/line/checkpoints/*")) or distributed_type == "NO"


def test_which_way_a_plugins_figure_is_better_must_be_written_where_its_metric_does_not_say(tmp_path):
    put("libevery_kind.so", tmp_path)
    (tmp_path / "line.yaml").write_text(RECIPE)
    result = trainrun("validate", "line.yaml", "checkpoint.keep_best={monitor: eval/bias}", folder=tmp_path)
    assert result.returncode == 2
    assert "checkpoint.keep_best.monitor: whether a smaller or a larger 'eval/bias' is better is not known; write mode: min or mode: max" in result.stderr
    output_of("validate", "line.yaml", "checkpoint.keep_best={monitor: eval/bias, mode: min}", folder=tmp_path)


def test_a_plugins_adapter_is_trained_in_the_place_of_the_layer(tmp_path):
    put("libevery_kind.so", tmp_path)
    (tmp_path / "line.yaml").write_text(RECIPE)
    output_of("line.yaml", "model.adapters={type: Offset, target: [scale]}", "optimizer={type: SGD, lr: 0.1}", "training.num_epochs=1", folder=tmp_path)
    trained = tensors_of(tmp_path / "runs/line/checkpoints/epoch-0001", "model")
    assert trained["scale.gain"] == [1]
    assert trained["scale.offset"][0] == pytest.approx(-0.1 * sum(x - y for x, y in points(4)) / 4, rel=1e-6)
    output_of("export", "runs/line", "--merge", folder=tmp_path)
    assert list(safetensors.numpy.load_file(tmp_path / "model.safetensors")) == ["scale.gain"]


# --- components that say what they are

LANGUAGE_MODEL = """\
version: 1
plugins: [libsays_what_it_is.so]
seed: 3
model:
  layers:
    - {type: Embedding, name: table, num_embeddings: 6, embedding_dim: 4}
    - {type: Mix, name: first, features: 4}
    - {type: RunningMean, name: mean}
    - {type: Mix, name: again, features: 4, given: 4, share: first}
    - {type: Mix, name: lone, features: 4}
    - {type: Mix, name: head, features: 6, share: table}
  adapters: {type: LoRA, target: [lone], r: 2}
loss: CausalLMLoss
dataset:
  train: {type: TextLM, path: text.txt, block_size: 8}
dataloader: {batch_size: 4}
optimizer: {type: SGD, lr: 0.5}
training: {max_steps: 3}
"""


def test_a_plugins_layers_decode_with_a_cache_take_lora_and_share_weights(tmp_path):
    put("libsays_what_it_is.so", tmp_path)
    (tmp_path / "text.txt").write_text("abcdef" * 40)
    (tmp_path / "model.yaml").write_text(LANGUAGE_MODEL)
    output_of("model.yaml", "output_dir=run", folder=tmp_path)
    saved = tensors_of(tmp_path / "run/checkpoints/latest", "model")
    assert [len(saved["lone.lora_A.weight"]), len(saved["lone.lora_B.weight"])] == [2, 4]
    assert any(number != 0 for row in saved["lone.lora_B.weight"] for number in row)  # it was trained
    texts = {}
    for options in ([], ["--no-cache"]):
        done = trainrun("generate", "run", "--prompt", "abc", "--max-new-tokens", 12, *options, folder=tmp_path)
        assert done.returncode == 0 and "no key-value cache" not in done.stderr, done.stderr
        texts[len(options)] = done.stdout
    assert texts[0] == texts[1] and len(texts[0]) == 3 + 12 + 1
    output_of("export", "run", "--merge", folder=tmp_path)
    merged = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    assert not [name for name in merged if "lora" in name]
    (tmp_path / "model.yaml").write_text(LANGUAGE_MODEL.replace("share: table", "share: first"))
    assert "the parameters of Mix" in trainrun("validate", "model.yaml", folder=tmp_path).stderr


def test_a_plugins_fusion_joins_its_layer_to_a_linear(tmp_path):
    put("libsays_what_it_is.so", tmp_path)
    (tmp_path / "text.txt").write_text("abcdef" * 40)
    linear = "- {type: Linear, name: before, out_features: 4}\n    - {type: Mix, name: first, features: 4}"
    (tmp_path / "model.yaml").write_text(LANGUAGE_MODEL.replace("- {type: Mix, name: first, features: 4}", linear))
    explained = json.loads(output_of("explain", "model.yaml", "--json", folder=tmp_path))
    assert explained["fused"] == [{"layers": "before + first", "types": "Linear + Mix", "fusion": "LinearMix"}]
    weights = {}
    for fuse in ("true", "false"):
        output_of("model.yaml", f"output_dir=fuse_{fuse}", f"training.fuse={fuse}", folder=tmp_path)
        weights[fuse] = tensors_of(tmp_path / f"fuse_{fuse}" / "checkpoints/latest", "model")
    assert weights["true"] == weights["false"]


def test_what_a_plugins_loss_says_of_itself_is_heard(tmp_path):
    """Its sum over a step does not depend on how the step is cut into batches, and its target is a number."""
    put("libsays_what_it_is.so", tmp_path)
    (tmp_path / "rows.csv").write_text("x,y\n" + "".join(f"{i},{3 * i % 5}\n" for i in range(8)))
    (tmp_path / "sum.yaml").write_text("""\
version: 1
plugins: [libsays_what_it_is.so]
model: {layers: [{type: Linear, name: map, out_features: 1, bias: false, init: Zeros}]}
loss: SquaredError
dataset:
  train: {type: CSV, path: rows.csv, label: y}
  eval: {type: CSV, path: rows.csv, label: y}
dataloader: {batch_size: 8, shuffle: false}
optimizer: {type: SGD, lr: 1e-3}
training: {max_steps: 1}
""")
    maps = []
    for name, cut in {"whole": [], "cut": ["dataloader.batch_size=4", "training.gradient_accumulation_steps=2"]}.items():
        output_of("sum.yaml", f"output_dir={name}", *cut, folder=tmp_path)
        maps.append(tensors_of(tmp_path / name / "checkpoints/latest", "model")["map.weight"][0])
    assert maps[1] == pytest.approx(maps[0], rel=1e-6)
    assert maps[0][0] == pytest.approx(1e-3 * 2 * sum(i * (3 * i % 5) for i in range(8)), rel=1e-5)  # of a sum, not a mean
    report = json.loads(output_of("eval", "whole", "--json", "--report", folder=tmp_path))["report"]["eval"]
    assert set(report) == {"rmse", "mae", "r2"}


def test_a_plugins_callback_takes_part_in_evaluations_ends_the_training_and_goes_on_from_a_checkpoint(tmp_path):
    put("libevery_kind.so", tmp_path)
    (tmp_path / "line.yaml").write_text(RECIPE)
    steps = by_hand()
    callbacks = "callbacks=[{type: Farewell, add: 0.25}]"
    output_of("line.yaml", "output_dir=whole", callbacks, folder=tmp_path)
    output_of("line.yaml", "output_dir=first", callbacks, "training.num_epochs=1", folder=tmp_path)
    output_of("line.yaml", "output_dir=second", callbacks, "checkpoint.resume=first", folder=tmp_path)
    for run in ("whole", "second"):
        lines = [json.loads(line) for line in (tmp_path / run / "metrics.jsonl").read_text().splitlines()]
        assert lines[-1]["step"] == 2 and lines[-1]["split"] == "eval"  # of three
        assert lines[-1]["eval/bias"] == pytest.approx(steps[1]["figures"]["eval/bias"] + 0.25, rel=1e-6)
        assert json.loads((tmp_path / run / "summary.json").read_text())["stopped"] == "farewell"
        assert "training ends after step 2: farewell" in (tmp_path / run / "log.txt").read_text()
        saved = tensors_of(tmp_path / run / "checkpoints/latest", "optimizer")
        assert saved["callbacks[0].steps"] == 2
        assert saved["callbacks[0].losses"] == pytest.approx(steps[0]["loss"] + steps[1]["loss"], rel=1e-6)
    evaluated = json.loads(output_of("eval", "whole", "--json", folder=tmp_path))
    assert evaluated["eval/bias"] == pytest.approx(steps[1]["figures"]["eval/bias"] + 0.25, rel=1e-6)


def test_a_recipe_of_a_plugins_components_is_valid_and_explained(trained):
    program, folder = trained
    assert output_of("validate", "line.yaml", folder=folder, program=program) == "line.yaml: valid\n"
    explained = json.loads(output_of("explain", "line.yaml", "--json", folder=folder, program=program))
    rows = [(row["name"], row["type"], row["output_shapes"], row["parameters"]) for row in explained["layers"]]
    assert rows == [("x", "input", ["[N, 1] float32"], 0), ("y", "target", ["[N, 1] float32"], 0), ("scale", "Gain", ["[N, 1]"], 1)]
    assert explained["loss"] == "HalfSquaredError"
    assert explained["metrics"] == ["Bias"]
    assert explained["optimizer"] == "SignDescent"
    assert explained["param_groups"] == [{"match": "^scale\\.gain$", "overrides": "lr: 1", "tensors": 1, "parameters": 1, "lr": 1.0}]
    assert explained["memory_bytes"]["optimizer_state"] == 4  # one sum of signs
    assert explained["scheduler"] == "Halving"
    assert {point["step"]: point["lr"] for point in explained["learning_rate"]} == {0: [1], 1: [0.5], 2: [0.25]}
    assert (explained["length"]["train_samples"], explained["length"]["eval_samples"]) == (4, 5)


def test_a_run_of_a_plugins_components_gives_what_they_say(trained):
    _, folder = trained
    lines = [json.loads(line) for line in (folder / "runs/line/metrics.jsonl").read_text().splitlines()]
    steps = by_hand()
    assert [line["train/loss"] for line in lines if line["split"] == "train"] == [step["loss"] for step in steps]
    assert [line["train/lr"] for line in lines if line["split"] == "train"] == [step["rate"] for step in steps]
    figures = [{name: line[name] for name in line if name.startswith("eval/")} for line in lines if line["split"] == "eval"]
    assert figures == [pytest.approx(step["figures"], rel=1e-12) for step in steps]
    latest = folder / "runs/line/checkpoints/latest"
    assert tensors_of(latest, "model") == {"scale.gain": [steps[-1]["gain"]]}
    assert tensors_of(latest, "optimizer") == {"scale.gain.sign_sum": [sum(step["sign"] for step in steps)]}


def test_a_plugins_logger_is_told_everything(trained):
    _, folder = trained
    history = "start line\n"
    for number, step in enumerate(by_hand(), 1):
        history += f"progress {number}\nstep {number} lr {step['rate']:g}\n"
        history += f"checkpoint epoch-{number:04}\nevaluation eval/loss eval/bias\n"
    assert (folder / "runs/line/history.txt").read_text() == history + "end 3\n"


def test_a_plugins_logger_that_throws_is_named_once_and_the_job_goes_on(tmp_path):
    put("libevery_kind.so", tmp_path)
    (tmp_path / "line.yaml").write_text(RECIPE.replace("history]", "Troubled]"))
    done = trainrun("line.yaml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    place = "line.yaml:16:55: logging.report_to[2]"
    assert done.stderr == (f"warning: {place}: Troubled failed and receives nothing from now on; training continues: "
                           "no step is good enough, nor is step 1\n")
    assert [line["step"] for line in lines_of(tmp_path / "runs/line") if line["split"] == "train"] == [1, 2, 3]


def test_a_job_trains_to_its_end_while_a_plugins_logger_hangs(tmp_path):
    """The logger waits for a pipe that is written to once the run has ended; until then nothing is told to it."""
    put("libevery_kind.so", tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "line.yaml").write_text(RECIPE.replace("history]", "{type: Troubled, pipe: pipe}]"))
    job = subprocess.Popen([BINARY, "line.yaml"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    said = []
    for line in job.stdout:  # "done" comes before the wait for loggers
        said.append(line)
        if line.startswith("done"):
            break
    assert said[-1].startswith("done 3 steps"), said
    assert (tmp_path / "runs/line/summary.json").exists()
    assert len(lines_of(tmp_path / "runs/line")) == 6
    with open(tmp_path / "pipe", "w") as pipe:
        pipe.write("...")
    job.stdout.read()
    assert job.wait(timeout=120) == 0


def test_a_plugins_logger_that_hangs_for_good_is_left_behind(tmp_path):
    put("libevery_kind.so", tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "line.yaml").write_text(RECIPE.replace("history]", "{type: Troubled, pipe: pipe}]"))
    done = trainrun("line.yaml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Troubled has not finished 10.0 s after the end of the run; it is abandoned, with " in done.stderr
    assert len(lines_of(tmp_path / "runs/line")) == 6


def test_a_plugins_fusion_takes_the_place_of_layers_and_changes_no_bit(tmp_path):
    put("libevery_kind.so", tmp_path)
    recipe = RECIPE.replace("- {type: Gain, name: scale}", "- {type: Gain, name: scale}\n    - {type: Gain, name: again}")
    (tmp_path / "line.yaml").write_text(recipe)
    explained = json.loads(output_of("explain", "line.yaml", "--json", folder=tmp_path))
    assert explained["fused"] == [{"layers": "scale + again", "types": "Gain + Gain", "fusion": "TwoGains"}]
    runs = []
    for fuse in ["true", "false"]:
        output_of("line.yaml", f"output_dir=fuse_{fuse}", f"training.fuse={fuse}", folder=tmp_path)
        runs.append(tensors_of(tmp_path / f"fuse_{fuse}" / "checkpoints/latest", "model"))
    assert runs[0] == runs[1]
    assert set(runs[0]) == {"scale.gain", "again.gain"}


@pytest.mark.parametrize("what, step", [("", 3), ("/checkpoints/latest", 3), ("/checkpoints/epoch-0002", 2)])
def test_a_checkpoint_of_a_plugins_components_is_evaluated_again(trained, what, step):
    program, folder = trained
    figures = json.loads(output_of("eval", f"runs/line{what}", "--json", folder=folder, program=program))
    del figures["checkpoint"]
    assert figures == pytest.approx(by_hand()[step - 1]["figures"], rel=1e-12)


def test_a_run_of_a_plugins_components_goes_on_from_a_checkpoint(trained):
    program, folder = trained
    output_of("line.yaml", "output_dir=resumed", "checkpoint.resume=runs/line/checkpoints/epoch-0002", folder=folder,
              program=program)
    for file in ["model", "optimizer"]:
        latest = [tensors_of(folder / run / "checkpoints/latest", file) for run in ["runs/line", "resumed"]]
        assert latest[0] == latest[1]
    assert (folder / "resumed/history.txt").read_text().startswith("start line\nprogress 3\n")


def test_a_plugins_components_are_listed_with_their_origin(folder):
    for kind, name in COMPONENTS.items():
        listed = output_of("list", kind, "--plugin", "libevery_kind.so", folder=folder)
        assert re.search(rf"^{name} .*(\n +.*)*\(libevery_kind\.so\)$", listed, re.MULTILINE)
        assert len(listed.splitlines()) > len(output_of("list", kind, folder=folder).splitlines())
        shown = output_of("list", kind, name, "--plugin", "libevery_kind.so", folder=folder)
        assert shown.startswith(f"{name} ({kind}): ")
        assert "\nfrom libevery_kind.so\n" in shown


def test_a_plugins_components_are_in_the_schema(folder):
    schema = output_of("schema", "--plugin", "libevery_kind.so", folder=folder)
    component = re.compile(rf'"((?:{"|".join(COMPONENTS)})\.\w+)":')
    added = set(component.findall(schema)) - set(component.findall(output_of("schema", folder=folder)))
    assert added == {f"{kind}.{name}" for kind, name in COMPONENTS.items()} | {"logger.Troubled"}
    checker = jsonschema.Draft7Validator(json.loads(schema))
    recipe = yaml.safe_load(RECIPE)
    assert not list(checker.iter_errors(recipe))
    for section in [recipe["dataset"]["train"], recipe["optimizer"], recipe["dataset"]["transforms"][0]]:
        section["slop"] = 1
        assert list(checker.iter_errors(recipe))
        del section["slop"]


def test_a_plugins_components_are_checked_like_any(folder):
    (folder / "wrong.yaml").write_text(RECIPE.replace("slope: 3", "slop: 3", 1).replace("by: 1", "by: far"))
    assert_fails_with(
        "wrong.yaml:9:39: dataset.train.slop: unknown parameter of Line; did you mean slope?\n"
        "wrong.yaml:11:34: dataset.transforms[0].by: expected a number, found 'far'",
        "validate", "wrong.yaml", folder=folder)


def test_a_plugins_layer_has_a_form_in_onnx(folder):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: tools/setup --tests fetches it")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: tools/setup --tests fetches it")
    path = folder / "line.onnx"
    output_of("export", "runs/line", "--format", "onnx", "--output", path, folder=folder)
    onnx.checker.check_model(str(path), full_check=True)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for samples in (1, 6):
        x = numpy.linspace(-1, 1, samples, dtype=numpy.float32).reshape(samples, 1)
        assert numpy.allclose(session.run(None, {session.get_inputs()[0].name: x})[0], 2.25 * x)


def test_options_without_a_form_in_onnx_are_refused_by_the_plugins_words(tmp_path):
    put("libevery_kind.so", tmp_path)
    (tmp_path / "line.yaml").write_text(RECIPE.replace("{type: Gain, name: scale}", "{type: Gain, name: scale, limit: 9}"))
    output_of("line.yaml", folder=tmp_path)
    refused = trainrun("export", "runs/line", "--format", "onnx", folder=tmp_path)
    assert refused.returncode == 2 and "Gain cannot be written as ONNX: limit changes the gains as the layer computes" in refused.stderr
