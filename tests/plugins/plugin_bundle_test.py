"""A run whose model, data and optimizer are a plugin's, taken to a place where that plugin is not."""

import shutil
import subprocess

from plugin_runs import PLUGINS, RECIPE
from tests.program import BINARY


def run(*command, folder):
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_the_plugin_goes_along_and_predicts_and_trains(tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    shutil.copy(PLUGINS / "libevery_kind.so", here)
    (here / "r.yaml").write_text(RECIPE.replace("version: 1", "version: 1\nname: plugged"))
    run(BINARY, "r.yaml", "--quiet", folder=here)
    predicted = run(BINARY, "predict", "runs/plugged", folder=here)
    run(BINARY, "bundle", "runs/plugged", "-o", tmp_path / "plugged.run", "--level", "1", folder=here)
    figures = [line.split('"split"')[1] for line in (here / "runs/plugged/metrics.jsonl").read_text().splitlines() if '"eval"' in line]
    shutil.rmtree(here)
    called = [tmp_path / "plugged.run", "--unpack", "unpacked"]
    assert run(*called, "predict", folder=tmp_path) == predicted and predicted.count("\n") == 6
    run(*called, "run", "--quiet", folder=tmp_path)
    again = (tmp_path / "runs/plugged/metrics.jsonl").read_text().splitlines()
    assert [line.split('"split"')[1] for line in again if '"eval"' in line] == figures and figures
