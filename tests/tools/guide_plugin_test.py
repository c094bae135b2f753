"""The plugin of docs/guide/layer_plugin.md, built and used as the guide says."""

import os
import pathlib
import shutil

import pytest

from plugin_guide import GUIDE, build_plugin, check_explained_and_trained, run

INSTALLED = pathlib.Path(os.environ.get("TRAINRUN_TEST_PLUGINS", "/nowhere")).parent / "installed"
TRAINRUN = INSTALLED / "bin/trainrun"


@pytest.fixture(scope="module", name="folder")
def built_plugin():
    """A folder with the guide's files, the plugin built: beside the installed tree, so that ccache knows both in any clone."""
    folder = INSTALLED.parent / "guide"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    build_plugin(folder, INSTALLED)
    return folder


def test_the_guides_layer_is_explained_and_trains(folder):
    check_explained_and_trained(TRAINRUN, folder)


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
