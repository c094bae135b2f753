"""What a new user is told of a mistake: at its place, in a line or a few, with what to do, and never a backtrace. The table: mistakes.py."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import mistakes  # noqa: E402

from tests.program import BINARY, CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# What only somebody who works on trainrun could make sense of.
INSIDES = re.compile(r"frame #|terminate called|Exception raised from|what\(\):|\[json\.exception|c10::|std::|at::|most recent call first|\.cpp:\d|stoi|stoll")
MOST_LINES = 12


def test_there_are_enough_mistakes_and_no_two_alike():
    assert len(mistakes.ROWS) >= 120
    assert len({row.what for row in mistakes.ROWS}) == len(mistakes.ROWS)


def told(row, folder):
    """Makes the mistake; its exit code, and what standard error says, with RECIPE and DATA for the paths of those files."""
    data = folder / "data.csv"
    paths = {"DATA.safetensors": str(folder / "data.safetensors"), "DATA": str(data)}
    if row.data is not None:
        content = row.data if isinstance(row.data, bytes) else row.data.encode()
        data.write_bytes(content)
        (folder / "data.safetensors").write_bytes(content)

    def with_paths(text):
        for name, path in paths.items():
            text = text.replace(name, path)
        return text

    arguments = [with_paths(argument) for argument in row.arguments]
    recipe = folder / "recipe.yaml"
    if row.recipe is not None:
        recipe.write_bytes(row.recipe if isinstance(row.recipe, bytes) else with_paths(row.recipe).encode())
        arguments.insert(0, str(recipe))
        if row.verb == "run":
            arguments.append(f"output_dir={folder}/run")
    environment = {key: value for key, value in os.environ.items() if key != "TRAINRUN_TEST_NO_SUCH_VARIABLE"}
    done = subprocess.run([CALLED, row.verb, *arguments], cwd=ROOT, env=environment | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=120, check=False)
    said = done.stderr.replace(str(recipe), "RECIPE").replace(str(folder / "data"), "DATA")
    return done.returncode, said


@pytest.mark.parametrize("row", mistakes.ROWS, ids=lambda row: row.what.replace(" ", "_"))
def test_a_mistake_is_told(row, tmp_path):
    exit_code, said = told(row, tmp_path)
    is_note = said.startswith("note: ")
    assert exit_code == (0 if is_note else row.exit_code), said
    for message in [row.message] if isinstance(row.message, str) else row.message:
        assert message in said
    assert not INSIDES.search(said), said
    assert said.strip() and len(said.splitlines()) <= MOST_LINES, said


@pytest.mark.parametrize("number, name", [(signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM")])
def test_whoever_stops_a_run_is_told_that_it_was_saved_and_goes_on(tmp_path, number, name):
    command = [BINARY, "recipes/digits_mlp.yaml", "training.num_epochs=1000000", "evaluation.every=null", "checkpoint.every=null", "logging.every_steps=1",
               f"output_dir={tmp_path}/run"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        for line in running.stdout:  # until it trains
            if line.startswith("step "):
                break
        running.send_signal(number)
        said, faults = running.communicate(timeout=120)
    assert running.returncode == 128 + number
    assert f"stopped by {name} at step" in said and "the same command resumes it" in said
    assert not INSIDES.search(said + faults)
