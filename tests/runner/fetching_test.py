"""Recipes fetch what data they lack: checked, into a cache that they share. Servers are local; what is not there is told with where to put it."""

import functools
import http.server
import os
import pathlib
import re
import subprocess
import sys
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BINARY = os.environ.get("TRAINRUN_BINARY", str(ROOT / "build/release/bin/trainrun"))
sys.path.insert(0, str(ROOT / "tests"))
import recipe_data  # noqa: E402

RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))
NO_NETWORK = {name: "http://127.0.0.1:9" for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"]} | {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
SHORT = ["training.max_steps=2", "training.num_epochs=null", "evaluation.every=null", "checkpoint.every=null", "checkpoint.keep_best=null", "--quiet"]


def train(recipe, folder, data, cache, *arguments):
    environment = os.environ | NO_NETWORK | {"TRAINRUN_DATA": str(data), "TRAINRUN_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    return subprocess.run([BINARY, f"recipes/{recipe}.yaml", f"output_dir={folder}", *SHORT, *arguments], cwd=ROOT, env=environment, capture_output=True,
                          text=True, timeout=300, check=False)


@pytest.fixture
def server():
    """A mirror with the real files; the paths that were asked of it."""
    real = pathlib.Path(os.environ.get("TRAINRUN_DATA", "data")) / "mnist"
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=real)) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}/", asked
        running.shutdown()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_shipped_recipe_fetches_what_does_not_come_along_or_says_what_it_wants(path):
    if re.search(r"^#.* Wants ", path.read_text(), re.MULTILINE):
        return  # vision_recipes_test.py and language_recipes_test.py train these
    for data in re.findall(r"\{type: [^{}]*\$\{env:TRAINRUN_DATA[^{}]*\}[^{}]*\}", path.read_text()):
        assert "download: true" in data


def test_the_readme_and_its_recipe_say_the_same_of_data():
    readme, recipe = ((ROOT / name).read_text() for name in ["README.md", "recipes/mnist_cnn.yaml"])
    datasets = re.findall(r"\{type: MNIST,[^\n]*\}", recipe)
    assert len(datasets) == 2 and all(dataset in readme for dataset in datasets)


def test_what_one_recipe_fetched_another_finds(tmp_path, server):
    recipe_data.skip_without_data(ROOT / "recipes/mnist_cnn.yaml")
    url, asked = server
    mirrors = [f"dataset.{split}.mirrors=[{url}]" for split in ["train", "eval"]]
    first = train("mnist_cnn", tmp_path / "first", tmp_path / "data", tmp_path / "cache", *mirrors)
    assert first.returncode == 0, first.stderr
    assert sorted(asked) == sorted(set(asked)) and len(asked) == 4
    assert len(list((tmp_path / "data/mnist").glob("*.gz"))) == 4
    second = train("mnist_residual", tmp_path / "second", tmp_path / "elsewhere", tmp_path / "cache", *mirrors)
    assert second.returncode == 0, second.stderr
    third = train("mnist_cnn", tmp_path / "third", tmp_path / "data", tmp_path / "no_cache", *mirrors)
    assert third.returncode == 0, third.stderr
    assert len(asked) == 4


@pytest.mark.parametrize("recipe, kind", [("mnist_cnn", "train-images"), ("mnist_cnn_ddp", "train-images"), ("fashion_cnn", "train-images")])
def test_without_a_network_every_mirror_is_named_and_where_the_file_goes(tmp_path, recipe, kind):
    done = train(recipe, tmp_path / "run", tmp_path / "data", tmp_path / "cache")
    assert done.returncode == 1
    mirrors = re.findall(rf"  (https?://\S+){kind}\S+: ", done.stderr)
    assert len({mirror.split("/")[2] for mirror in mirrors}) >= 3
    assert not any("yann.lecun.com" in mirror for mirror in mirrors)  # it answers no longer
    assert re.search(r"To use a copy of the file, put it at \S+\.gz", done.stderr)
    assert "frame #" not in done.stderr
