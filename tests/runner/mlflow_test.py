"""The logger mlflow, against a server that stands in for MLflow's, and against MLflow's own where TRAINRUN_MLFLOW names a Python that has it
(`python -m venv V && V/bin/pip install mlflow`, TRAINRUN_MLFLOW=V/bin/python): what the server shows is what metrics.jsonl and recipe.yaml say."""

import json
import os
import signal
import subprocess

import pytest

from tests.program import BINARY, CALLED
from tests.runner.mlflow_server import Mlflow, StandIn

FIELDS = ("step", "epoch", "time", "split")
# Figures that a run which goes on computes anew, from the clock.
OF_THE_CLOCK = ("train/samples_per_second",)


def command(program, folder, uri, *arguments):
    return [program, "tests/recipes/digits_small.yaml", f"output_dir={folder}", f"logging={{every_steps: 10, report_to: [console, jsonl, {{type: mlflow, tracking_uri: '{uri}'}}]}}",
            *arguments]


def train(folder, uri, *arguments, status=0, environment=None):
    done = subprocess.run(command(CALLED, folder, uri, *arguments), capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, **(environment or {})})
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def stop_at(line, folder, uri, *arguments, how=signal.SIGKILL):
    """Starts a job, and sends the signal once it has said so."""
    job = subprocess.Popen(command(BINARY, folder, uri, *arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = ""
    for text in job.stdout:
        said += text
        if text.startswith(line):
            job.send_signal(how)
            break
    said += job.stdout.read()
    job.wait(timeout=300)
    return said


def figures_of(folder):
    figures = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        line = json.loads(line)
        for name in line.keys() - FIELDS:
            figures[name, line["step"]] = line[name]
    return figures


def assert_shows(server, folder):
    """One run, with every figure of metrics.jsonl, each once."""
    (run,) = server.seen()
    expected = figures_of(folder)
    assert run["points"].keys() == expected.keys()
    for key, values in run["points"].items():
        assert len(values) == 1, (key, values)
        if key[0] not in OF_THE_CLOCK:
            assert values == [expected[key]], key
    return run


@pytest.fixture(name="own_server", scope="module")
def mlflow_s_own_server(tmp_path_factory):
    if not os.environ.get("TRAINRUN_MLFLOW"):
        pytest.skip("TRAINRUN_MLFLOW names no Python that has MLflow")
    server = Mlflow(os.environ["TRAINRUN_MLFLOW"], tmp_path_factory.mktemp("mlflow"))
    yield server
    server.close()


@pytest.fixture(name="server", params=["stand-in", "mlflow"])
def server_of_a_kind(request):
    if request.param == "stand-in":
        server = StandIn()
        yield server
        server.close()
    else:
        server = request.getfixturevalue("own_server")
        server.begin()
        yield server


@pytest.fixture(name="stand_in")
def server_that_stands_in():
    server = StandIn()
    yield server
    server.close()


def test_the_server_shows_figures_parameters_and_artifacts(server, tmp_path):
    folder = tmp_path / "run"
    said = train(folder, server.uri, "name=digits", "training={num_epochs: 2}", "logging.report_to[2].experiment=a b", "logging.report_to[2].log_model=true")
    run = assert_shows(server, folder)
    assert (run["name"], run["status"], run["experiment"]) == ("digits", "FINISHED", "a b")
    assert {"train/loss", "eval/accuracy", "train/lr"} <= {key for key, _ in run["points"]}
    params = run["params"]
    assert (params["optimizer.lr"], params["model.layers.0.type"], params["model.layers.0.out_channels"]) == ("3e-3", "Conv2d", "8")
    assert params["training.num_epochs"] == "2"
    assert run["artifacts"]["recipe.yaml"] == (folder / "recipe.yaml").read_bytes()
    assert run["artifacts"]["model.safetensors"] == (folder / "checkpoints/latest/model.safetensors").read_bytes()
    assert {"log.txt", "summary.json"} <= run["artifacts"].keys()
    assert run["tags"]["trainrun.output_dir"] == str(folder)
    assert f"mlflow: the run is {server.uri}/#/experiments/" in said


def test_a_run_that_was_killed_and_goes_on_is_one_run(server, tmp_path):
    folder = tmp_path / "run"
    arguments = ["training={num_epochs: 50, max_steps: 200}", "checkpoint.every=40"]
    stop_at("step 70/", folder, server.uri, *arguments)
    train(folder, server.uri, *arguments)
    run = assert_shows(server, folder)
    assert run["status"] == "FINISHED"
    assert {step for _, step in run["points"]} >= {10, 40, 50, 70, 200}


def test_figures_of_a_run_without_its_server_come_to_it_when_the_run_goes_on(stand_in, tmp_path):
    folder = tmp_path / "run"
    stand_in.close()
    arguments = ["training={num_epochs: 50, max_steps: 200}", "checkpoint.every=40"]
    said = stop_at("step 70/", folder, stand_in.uri, *arguments, how=signal.SIGTERM)
    kept = [json.loads(line)["step"] for line in (folder / "mlflow/unsent.jsonl").read_text().splitlines()]
    assert said.count("training continues, and what is not sent is kept in") == 1
    assert f"mlflow: {len(kept)} lines, of the steps {kept[0]} to {kept[-1]}, were not sent, and are kept in {folder}/mlflow; a resumed run sends them" in said
    server = StandIn(port=stand_in.port)
    train(folder, server.uri, *arguments)
    assert assert_shows(server, folder)["status"] == "FINISHED"
    assert not (folder / "mlflow/sending.jsonl").exists()
    server.close()


def test_a_server_that_is_busy_for_a_while_gets_everything(stand_in, tmp_path):
    stand_in.failing = 2
    said = train(tmp_path / "run", stand_in.uri, "training={num_epochs: 200, max_steps: 3000}", "evaluation.every=1000", "checkpoint.every=null")
    assert said.count("it answers 503: not now; training continues") == 1
    assert_shows(stand_in, tmp_path / "run")


def test_a_token_is_sent_and_not_shown(tmp_path):
    server = StandIn(token="a-token-of-one-s-own")
    said = train(tmp_path / "run", server.uri, "training={num_epochs: 1}", environment={"MLFLOW_TRACKING_TOKEN": "a-token-of-one-s-own"})
    assert_shows(server, tmp_path / "run")
    files = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert "a-token-of-one-s-own" not in said and b"a-token-of-one-s-own" not in files
    said = train(tmp_path / "other", server.uri, "training={num_epochs: 1}")
    assert "it answers 401; give MLFLOW_TRACKING_TOKEN" in said
    server.close()


def test_a_run_that_fails_is_a_failed_one_and_one_that_is_stopped_a_killed_one(stand_in, tmp_path):
    train(tmp_path / "bad", stand_in.uri, "optimizer={type: SGD, lr: 1e30}", status=1)
    stop_at("step 70/", tmp_path / "stopped", stand_in.uri, "training={num_epochs: 50}", how=signal.SIGTERM)
    assert [run["status"] for run in stand_in.seen()] == ["FAILED", "KILLED"]


def test_what_mlflow_does_not_take_is_cut_and_that_is_said(stand_in, tmp_path):
    said = train(tmp_path / "run", stand_in.uri, "training={num_epochs: 1}", "logging.report_to[2].run_name=" + "x" * 7000)
    (run,) = stand_in.seen()
    assert "mlflow: 1 of the recipe's" in said
    assert run["params"]["logging.report_to.2.run_name"] == "x" * 6000


def test_a_server_s_address_is_checked(tmp_path):
    said = train(tmp_path / "run", "file:///tmp/mlruns", status=2)
    assert 'tracking_uri: must be a server\'s, http://… or https://…, and is "file:///tmp/mlruns"' in said
    done = subprocess.run([CALLED, "tests/recipes/digits_small.yaml", f"output_dir={tmp_path / 'other'}", "logging.report_to=[mlflow]"],
                          capture_output=True, text=True, timeout=300, check=False, env={key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"})
    assert done.returncode != 0 and "no server: write tracking_uri, or set MLFLOW_TRACKING_URI" in done.stderr
