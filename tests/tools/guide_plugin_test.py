"""The plugin of docs/guide/layer_plugin.md, built and used as the guide says."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GUIDE = ROOT / "docs/guide/layer_plugin.md"
INSTALLED = pathlib.Path(os.environ.get("TRAINRUN_TEST_PLUGINS", "/nowhere")).parent / "installed"
TRAINRUN = INSTALLED / "bin/trainrun"


def run(*command, folder, code=0):
    result = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout + result.stderr


@pytest.fixture(scope="module", name="folder")
def built_plugin(tmp_path_factory):
    """A folder with the guide's files, the plugin built."""
    folder = tmp_path_factory.mktemp("guide")
    files = re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == ["gated_linear.cpp", "CMakeLists.txt", "gated.yaml"]
    for name, text in files:
        (folder / name).write_text(text)
    launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={shutil.which('ccache')}"] if shutil.which("ccache") else []
    run("cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={INSTALLED}", *launcher, folder=folder)
    run("cmake", "--build", "build", folder=folder)
    return folder


def test_the_guides_layer_is_explained_and_trains(folder):
    text = run(TRAINRUN, "explain", "gated.yaml", folder=folder)
    assert "8,320" in text and "8,320" in GUIDE.read_text()
    run(TRAINRUN, "gated.yaml", "training={max_steps: 3}", "--quiet", folder=folder)
    assert (folder / "runs/gated/checkpoints/latest/model.safetensors").is_file()


def test_the_guides_layer_is_listed_and_in_the_schema(folder):
    plugin = folder / "build/libgated_linear.so"
    assert "adds learned vectors to value and gate" in run(TRAINRUN, "list", "layers", "GatedLinear", "--plugin", plugin, folder=folder)
    assert '"layer.GatedLinear"' in run(TRAINRUN, "schema", "--plugin", plugin, folder=folder)


def test_the_guides_error_is_the_programs(folder):
    recipe = (folder / "gated.yaml").read_text()
    (folder / "wrong").mkdir()
    (folder / "wrong/gated.yaml").write_text(recipe.replace("out_features: 64", "out_feature: 64").replace("build/", "../build/"))
    error = run(TRAINRUN, "validate", "gated.yaml", folder=folder / "wrong", code=2).strip()
    assert error in GUIDE.read_text()
