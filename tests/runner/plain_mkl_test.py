"""What MKL is told of an AMD processor changes how fast matrix products are, and of numbers the last bits alone. On other processors both
runs are the same."""

import json
import os
import subprocess

import pytest

from tests.program import BINARY


def trained(folder, **variables: str) -> tuple[list[float], dict[str, float]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRAINRUN_PLAIN_MKL"} | variables
    subprocess.run([BINARY, "--quiet", "recipes/digits_transformer.yaml", f"output_dir={folder}", "training={num_epochs: 1}", "logging.every_steps=1"],
                   check=True, env=environment)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["train/loss"] for line in lines if line["split"] == "train"], lines[-1]


def test_a_job_trains_alike_with_mkl_as_it_is(tmp_path):
    fast, plain = trained(tmp_path / "fast"), trained(tmp_path / "plain", TRAINRUN_PLAIN_MKL="1")
    assert fast[0] == pytest.approx(plain[0], rel=1e-3) and len(fast[0]) > 10
    assert fast[1]["eval/loss"] == pytest.approx(plain[1]["eval/loss"], rel=1e-3)
    assert trained(tmp_path / "again")[0] == fast[0]


def test_the_environment_tells_which_of_the_two_is_in_use():
    for variables, is_plain in (({}, False), ({"TRAINRUN_PLAIN_MKL": "1"}, True)):
        environment = {name: value for name, value in os.environ.items() if name != "TRAINRUN_PLAIN_MKL"} | variables
        told = subprocess.run([BINARY, "env"], capture_output=True, text=True, check=True, env=environment).stdout
        line = next(line for line in told.splitlines() if line.startswith("matrix products"))
        with open("/proc/cpuinfo", encoding="utf-8") as cpus:
            is_amd = "AuthenticAMD" in cpus.read()
        assert ("as on Intel's" in line) == (is_amd and not is_plain) and ("TRAINRUN_PLAIN_MKL" in line) == (is_amd and is_plain)
