"""What is wrong with a plugin, or with one of its components, is said in one line."""

import hashlib
import os
import pathlib
import re

import pytest

from plugin_runs import PLUGINS, RECIPE, assert_fails_with, output_of, put
from tests.include_direction_test import public_headers_of

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ["TRAINRUN_BUILD_DIR"])


def digest_of_public_headers():
    lines = [f"{header} {hashlib.sha256((ROOT / header).read_bytes()).hexdigest()}\n" for header in public_headers_of(ROOT)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:12]


ABI = "trainrun {}, LibTorch {}, headers {}".format(
    re.search(r"project\(trainrun VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1],
    re.search(r"TRAINRUN_LIBTORCH_RELEASES (\d+\.\d+)", (BUILD / "trainrunConfig.cmake").read_text())[1],
    digest_of_public_headers())


# --- plugins that cannot be loaded ---

NO_PLUGIN = {
    "wrong_abi": f"the plugin libwrong_abi.so was built for trainrun 0.0.1, LibTorch 2.0.0, this is {ABI}; build it again",
    "no_entry_point": "libno_entry_point.so is not a trainrun plugin, or one for an older trainrun; write TRAINRUN_PLUGIN(catalog) { … } "
                      "in it, and build it again",
    "undefined_symbol": "the plugin libundefined_symbol.so cannot be opened: undefined symbol: trainrun_test_function_that_is_gone; "
                        "build it with trainrun_add_plugin() of this trainrun's CMake package",
    "constructor_throws": "the plugin libconstructor_throws.so failed while its global objects were initialised: there is no device; "
                          "correct them and build it again",
    "registration_throws": "the plugin libregistration_throws.so failed while it registered its components: there is no licence; "
                           "correct its TRAINRUN_PLUGIN(catalog) { … } and build it again",
    "taken_name": "the plugin libtaken_name.so: a layer called ReLU is already registered by trainrun itself; libtaken_name.so must "
                  "choose another name",
    "text": "the plugin libtext.so cannot be opened: it is not a shared library; build it with trainrun_add_plugin() of this trainrun's CMake "
            "package",
    "empty": "the plugin libempty.so cannot be opened: it is not a shared library; build it with trainrun_add_plugin() of this trainrun's CMake "
             "package",
    "cut_off": "the plugin libcut_off.so cannot be opened: the end of the file is missing; build it with trainrun_add_plugin() of this "
               "trainrun's CMake package",
    "folder": "the plugin libfolder.so cannot be opened: expected a file, found a folder; build it with trainrun_add_plugin() of "
              "this trainrun's CMake package",
    "pipe": "the plugin libpipe.so cannot be opened: expected a file, found a pipe; build it with trainrun_add_plugin() of this "
            "trainrun's CMake package",
    "absent": "there is no plugin libabsent.so",
}


@pytest.fixture(scope="module", name="bad")
def folder_of_bad_plugins(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    for plugin in PLUGINS.glob("lib*.so"):
        put(plugin.name, folder)
    (folder / "libtext.so").write_text("a text, though it is named like a shared library\n" * 10)
    (folder / "libempty.so").touch()
    (folder / "libcut_off.so").write_bytes((PLUGINS / "libevery_kind.so").read_bytes()[:20000])
    (folder / "libfolder.so").mkdir()
    os.mkfifo(folder / "libpipe.so")
    return folder


# Of the installed program, what depends on the headers and libraries beside it.
@pytest.mark.parametrize("plugin, program", [*((plugin, "the build's") for plugin in NO_PLUGIN), ("wrong_abi", "the installed"), ("undefined_symbol", "the installed")])
def test_a_plugin_that_cannot_be_loaded_is_one_error(bad, plugin, program):
    recipe = RECIPE.replace("[libevery_kind.so]", f"[lib{plugin}.so]")  # none of its components is known then
    (bad / "bad.yaml").write_text(recipe)
    assert_fails_with(f"bad.yaml:2:11: plugins[0]: {NO_PLUGIN[plugin]}", "validate", "bad.yaml", folder=bad, program=program)
    assert_fails_with(f"--plugin: {NO_PLUGIN[plugin]}", "list", "--plugin", f"lib{plugin}.so", folder=bad, program=program)


def test_every_plugin_that_cannot_be_loaded_is_reported(bad):
    plugins = list(NO_PLUGIN)
    lines = [f"  - lib{plugin}.so" for plugin in plugins]
    (bad / "all.yaml").write_text(RECIPE.replace("[libevery_kind.so]", "\n" + "\n".join(lines)))
    expected = [f"all.yaml:{number}:5: plugins[{number - 3}]: {NO_PLUGIN[plugin]}" for number, plugin in enumerate(plugins, 3)]
    assert_fails_with("\n".join(expected), "validate", "all.yaml", folder=bad)


def test_a_plugin_that_cannot_be_loaded_stops_a_run_before_it_leaves_anything(bad):
    (bad / "run.yaml").write_text(RECIPE.replace("[libevery_kind.so]", "[libevery_kind.so, libconstructor_throws.so]"))
    message = f"run.yaml:2:29: plugins[1]: {NO_PLUGIN['constructor_throws']}"
    for verb in ["run", "explain"]:
        assert_fails_with(message, verb, "run.yaml", folder=bad)
    assert not (bad / "runs").exists()


def test_plugins_are_looked_for_beside_the_recipe_and_then_here(bad):
    (bad / "sub").mkdir()
    (bad / "sub/here.yaml").write_text(RECIPE)
    assert output_of("validate", "sub/here.yaml", folder=bad) == "sub/here.yaml: valid\n"
    (bad / "sub/absent.yaml").write_text(RECIPE.replace("[libevery_kind.so]", "[libabsent.so]"))
    assert_fails_with("sub/absent.yaml:2:11: plugins[0]: there is no plugin sub/libabsent.so, nor libabsent.so", "validate",
                      "sub/absent.yaml", folder=bad)


def test_two_plugins_may_not_take_one_name(bad):
    put("libevery_kind.so", bad, "libcopy.so")
    (bad / "two.yaml").write_text(RECIPE.replace("[libevery_kind.so]", "[libevery_kind.so, libcopy.so]"))
    assert_fails_with(
        "two.yaml:2:29: plugins[1]: the plugin libcopy.so: an adapter called Offset is already registered by libevery_kind.so; libcopy.so "
        "must choose another name", "validate", "two.yaml", folder=bad)


def test_a_plugin_may_not_be_named_twice(bad):
    (bad / "liblink.so").symlink_to("libevery_kind.so")
    for again in ["libevery_kind.so", "liblink.so"]:
        (bad / "twice.yaml").write_text(RECIPE.replace("[libevery_kind.so]", f"[libevery_kind.so, {again}]"))
        message = f"the plugin {again} is loaded already; name it once"
        assert_fails_with(f"twice.yaml:2:29: plugins[1]: {message}", "validate", "twice.yaml", folder=bad)
        assert_fails_with(f"--plugin: {message}", "list", "--plugin", "libevery_kind.so", "--plugin", again, folder=bad)


# --- components that cannot be built ---

BROKEN = {  # what Broken stands for, and what is said before its own words
    "layer": ("{type: Gain, name: scale}", "5:7: model.layers[0]: Broken does not fit its input [N, 1] from 'x': "),
    "loss": ("HalfSquaredError", "6:7: loss: Broken does not fit [N, 1] and [N, 1]: "),
    "metric": ("Bias", "7:11: metrics[0]: Broken does not fit [N, 1] and [N, 1]: "),
    "dataset": ("{type: Line, num_samples: 4, slope: 3, intercept: 0.5}", "9:10: dataset.train: "),
    "transform": ("{type: Shift, by: 1}", "11:16: dataset.transforms[0]: "),
    "optimizer": ("SignDescent", "13:12: optimizer: Broken cannot be built: "),
    "scheduler": ("Halving", "14:12: scheduler: Broken cannot be built: "),
    "logger": ("history", "16:55: logging.report_to[2]: Broken cannot be built: "),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_component_whose_build_throws_is_an_error_at_its_place(bad, kind):
    component, fault = BROKEN[kind]
    recipe = RECIPE.replace("[libevery_kind.so]", "[libevery_kind.so, libbuild_throws.so]").replace(component, "Broken", 1)
    (bad / "broken.yaml").write_text(recipe)
    assert_fails_with(f"broken.yaml:{fault}there is no device", "run", "broken.yaml", "--quiet", f"output_dir={kind}", folder=bad)


def test_a_component_whose_build_throws_hides_no_other_error(bad):
    recipe = RECIPE.replace("[libevery_kind.so]", "[libevery_kind.so, libbuild_throws.so]").replace("Halving", "Broken")
    (bad / "broken.yaml").write_text(recipe.replace("name: scale", "initial: high"))
    assert_fails_with(
        "broken.yaml:5:29: model.layers[0].initial: expected a number, found 'high'\n"
        "broken.yaml:14:12: scheduler: Broken cannot be built: there is no device", "validate", "broken.yaml", folder=bad)
