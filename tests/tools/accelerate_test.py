"""`trainrun run --accelerate-config`: a file of Accelerate says how many processes there are."""

import json
import pathlib
import subprocess

import pytest

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECIPE = "tests/recipes/digits_small.yaml"


def run(config, *arguments, verb=("run",)):
    return subprocess.run([CALLED, *verb, "--accelerate-config", str(config), RECIPE, *map(str, arguments)], cwd=ROOT,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, check=False)


@pytest.mark.parametrize("verb", [("run",), ()])
def test_a_multi_cpu_file_starts_its_processes(tmp_path, verb):
    folder = tmp_path / "run"
    result = run("tests/accelerate/multi_cpu.yaml", f"output_dir={folder}", "training={num_epochs: null, max_steps: 3}", "logging.every_steps=1",
                 verb=verb)
    assert result.returncode == 0, result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("note: ")]) == 1
    assert "note: tests/accelerate/multi_cpu.yaml:1:1: without meaning here: main_training_function, same_network" in result.stderr
    resolved = (folder / "recipe.yaml").read_text()
    assert "distributed_type: MULTI_CPU" in resolved and "num_processes: 2" in resolved and "device: cpu" in resolved
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in steps if line["split"] == "train"] == [1, 2, 3]
    repeated = subprocess.run([CALLED, "--quiet", str(folder / "recipe.yaml"), f"output_dir={tmp_path / 'again'}"], cwd=ROOT, capture_output=True,
                              text=True, timeout=300, check=False)
    assert repeated.returncode == 0, repeated.stderr
    again = [json.loads(line) for line in (tmp_path / "again/metrics.jsonl").read_text().splitlines()]
    assert [line.get("train/loss") for line in again] == [line.get("train/loss") for line in steps]


def test_quiet_leaves_the_notes_out(tmp_path):
    result = run("tests/accelerate/no.yaml", f"output_dir={tmp_path / 'run'}", "training={num_epochs: null, max_steps: 1}", "--quiet")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


@pytest.mark.parametrize("name, reasons", [
    ("tpu.yaml", ["tpu.yaml:3:19: distributed_type: XLA: TPUs need XLA"]),
    ("sagemaker.yaml", ["compute_environment: a SageMaker job"]),
    ("fp8_dynamo.yaml", ["mixed_precision: fp8", "dynamo_backend", "CUDA_VISIBLE_DEVICES=0,1", "optimizer.lr"]),
    ("no_such.yaml", ["no_such.yaml: cannot open: No such file"]),
])
def test_what_cannot_be_had_exits_2_with_every_reason(tmp_path, name, reasons):
    result = run(f"tests/accelerate/{name}", f"output_dir={tmp_path / 'run'}", "optimizer.lr=fast")
    assert result.returncode == 2
    for reason in reasons:
        assert reason in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", ["validate", "explain"])
def test_validate_and_explain_read_the_file_too(verb):
    result = run("tests/accelerate/multi_cpu.yaml", verb=(verb,))
    assert result.returncode == 0, result.stderr
    assert "note: tests/accelerate/multi_cpu.yaml:1:1: without meaning here: main_training_function, same_network" in result.stderr
    alone = subprocess.run([CALLED, verb, RECIPE], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    if verb == "explain":  # two processes: twice the effective batch
        assert "64" in result.stdout and result.stdout != alone.stdout
    refused = run("tests/accelerate/tpu.yaml", verb=(verb,))
    assert refused.returncode == 2
    assert "tpu.yaml:3:19: distributed_type: XLA: TPUs need XLA" in refused.stderr
