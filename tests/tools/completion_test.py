"""`trainrun completion`: scripts that a shell reads, and a manual page that groff does."""

import re
import shutil
import subprocess

import pytest

from tests.program import CALLED


def printed(what):
    done = subprocess.run([CALLED, "completion", what], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


@pytest.fixture(name="script", scope="module")
def script_for_bash():
    return printed("bash")


def completed(script, folder, *words):
    """What bash offers for the last of these words."""
    line = " ".join(f"'{word}'" for word in ("trainrun", *words))
    asked = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _trainrun; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-u", "-c", asked], cwd=folder, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(("words", "offered"), [
    (["ex"], {"explain", "export"}),
    (["export", "--form"], {"--format"}),
    (["export", "--format", "tor"], {"torchscript"}),
    (["export", "--format", "=", "tor"], {"torchscript"}),
    (["export", "run", "--format", "gg"], {"gguf"}),
    (["tokenizer", "tr"], {"train"}),
    (["tokenizer", "train", "--vocab"], {"--vocab-size"}),
    (["run", "net.yaml", "training.max_s"], {"training.max_steps="}),
    (["net.yaml", "optim"], {"optimizer="}),
    (["net.yaml", "--acc"], {"--accelerate-config"}),
    (["completion", "ba"], {"bash"}),
    (["explain", "ne"], {"net.yaml"}),
    (["export", "--output", "ne"], {"net.yaml"}),
    (["export", "--format", "ne"], set()),
])
def test_bash_offers_what_may_stand_there(script, tmp_path, words, offered):
    (tmp_path / "net.yaml").touch()
    assert completed(script, tmp_path, *words) == offered


def helped(*verb):
    return subprocess.run([CALLED, *verb, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout


def test_every_verb_and_option_of_the_help_is_offered(script, tmp_path):
    verbs = set(re.findall(r"^  ([a-z-]+) ", helped().split("Subcommands:")[1], re.MULTILINE))
    assert len(verbs) > 10 and verbs <= completed(script, tmp_path, "")
    for verb in verbs:
        options = set(re.findall(r"^  .*?(--[a-z][a-z-]*)", helped(verb).split("Options:")[1], re.MULTILINE))
        assert options <= completed(script, tmp_path, verb, "--"), verb


@pytest.mark.parametrize(("shell", "check"), [("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"]), ("bash", ["bash", "-n"])])
def test_the_script_is_one(shell, check, tmp_path):
    path = tmp_path / "script"
    path.write_text(printed(shell))
    assert "gguf" in path.read_text() and "training.max_steps=" in path.read_text()
    if shutil.which(check[0]) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([*check, str(path)], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_the_manual_page(tmp_path):
    page = tmp_path / "trainrun.1"
    page.write_text(printed("man"))
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", str(page)], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    text = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
    assert "trainrun export run [overrides ...] [options]" in text and "--format" in text and "stopped by signal N" in text
