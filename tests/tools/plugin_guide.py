"""The steps of docs/guide/layer_plugin.md, for the tests that follow them."""

import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GUIDE = ROOT / "docs/guide/layer_plugin.md"


def run(*command, folder, code=0, **options):
    """Runs a command in `folder`, checks its exit code and returns what it says."""
    result = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, timeout=600, check=False, **options)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout + result.stderr


def ccache_launcher(*folders):
    """CMake's option for ccache, where there is one: what lies in `folders` is known by its path relative to their parent."""
    if not shutil.which("ccache"):
        return []
    settings = [f"CCACHE_BASEDIR={os.path.commonpath(folders)}", "CCACHE_NOHASHDIR=1"]
    return ["-DCMAKE_CXX_COMPILER_LAUNCHER=" + ";".join(["env", *settings, shutil.which("ccache")])]


def build_plugin(folder, prefix):
    """Writes the guide's files into `folder` and builds the plugin against the trainrun installed in `prefix`."""
    files = re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == ["gated_linear.cpp", "CMakeLists.txt", "gated.yaml"]
    for name, text in files:
        (folder / name).write_text(text)
    run("cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={prefix}", *ccache_launcher(folder, prefix), folder=folder)
    run("cmake", "--build", "build", folder=folder)


def check_explained_and_trained(trainrun, folder):
    """The layer is explained as the guide says, and trains."""
    text = run(trainrun, "explain", "gated.yaml", folder=folder)
    assert "8,320" in text and "8,320" in GUIDE.read_text()
    run(trainrun, "gated.yaml", "training={max_steps: 3}", "--quiet", folder=folder)
    assert (folder / "runs/gated/checkpoints/latest/model.safetensors").is_file()
