"""The program from outside: exit codes and what the verbs print."""

import contextlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest

from tests import recipe_data
from tests.program import BINARY, CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KINDS = ["layer", "initializer", "loss", "metric", "dataset", "transform", "optimizer", "scheduler", "comm_hook", "callback", "logger", "adapter"]


def trainrun(*arguments, **environment):
    return subprocess.run(
        [CALLED, *map(str, arguments)], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=300, check=False)


def output_of(*arguments):
    result = trainrun(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def plural(kind):
    return kind + ("es" if kind.endswith("s") else "s")


def test_version_and_help_exit_0():
    assert output_of("--version").startswith("trainrun ")
    for arguments in [["--help"], ["explain", "--help"], ["list", "--help"]]:
        assert "--help" in output_of(*arguments)


@pytest.mark.parametrize("arguments", [
    [], ["--unknown"], ["explain"], ["explain", "recipes/no_such.yaml"], ["recipes/no_such.yaml"], ["no_such_verb"],
    ["explain", "recipes/digits_mlp.yaml", "optimizer.lr=fast"], ["list", "layers", "Linear", "too", "many"],
])
def test_a_wrong_command_line_exits_2_and_says_why(arguments):
    result = trainrun(*arguments)
    assert result.returncode == 2
    assert result.stderr.strip()
    assert "terminate" not in result.stderr


# --- list ---

def test_list_counts_every_kind():
    lines = output_of("list").splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [plural(kind) for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS)
def test_list_takes_singular_and_plural(kind):
    assert output_of("list", kind) == output_of("list", plural(kind)) != ""


def test_list_describes_one_component():
    text = output_of("list", "layers", "Conv2d")
    for word in ["out_channels", "required", ">= 1", "reflect", "number of feature maps", "{type: Conv2d", "inputs"]:
        assert word in text, word


@pytest.mark.parametrize("arguments, hint", [
    (["layer", "Conv2D"], "did you mean Conv2d?"),
    (["layers", "Lineer"], "did you mean Linear?"),
    (["optimisers"], "did you mean optimizers?"),
    (["nonsense"], "layers, initializers, losses"),
])
def test_list_of_the_unknown_exits_2_with_a_near_match(arguments, hint):
    result = trainrun("list", *arguments)
    assert result.returncode == 2
    assert hint in result.stderr
    assert result.stdout == ""


def test_a_plugin_that_is_none_exits_2():
    for verb in ["list", "schema"]:
        result = trainrun(verb, "--plugin", "no/such/lib.so")
        assert result.returncode == 2
        assert "no/such/lib.so" in result.stderr


# --- schema and reference: generated, checked in ---

def test_the_checked_in_schema_is_the_programs():
    assert (ROOT / "schemas/recipe.schema.json").read_text() == output_of("schema"), "run tools/generate"


def test_the_schema_knows_every_component():
    definitions = json.loads(output_of("schema"))["definitions"]
    for kind in KINDS:
        for line in output_of("list", kind).splitlines():
            if not line.startswith(" "):
                assert f"{kind}.{line.split()[0]}" in definitions


def test_the_checked_in_reference_is_the_programs(tmp_path):
    output_of("list", "--markdown", tmp_path / "reference")
    made = {path.name: path.read_text() for path in (tmp_path / "reference").iterdir()}
    assert set(made) == {"README.md", "errors.md", "recipe.md", *(plural(kind) + ".md" for kind in KINDS)}
    assert made == {path.name: path.read_text() for path in (ROOT / "docs/reference").iterdir()}, "run tools/generate"


def alternatives(schema):
    """A schema and what it is any of, or one of by the value's type."""
    inner = [*schema.get("anyOf", []), *(schema[key] for key in ["then", "else"] if key in schema)]
    return [schema, *(found for one in inner for found in alternatives(one))]


def test_the_recipes_reference_has_every_section():
    schema = json.loads(output_of("schema"))
    page = (ROOT / "docs/reference/recipe.md").read_text()

    def check(properties, path):
        for name, part in properties.items():
            if path or name != "base":
                assert f"| `{name}` |" in page
            for one in alternatives(part):
                if "properties" in one and one.get("additionalProperties") is False:
                    assert f"## {path}{name}\n" in page
                    check(one["properties"], f"{path}{name}.")

    check(schema["definitions"]["recipe"]["properties"], "")


# --- explain and validate ---

@pytest.mark.parametrize("recipe", sorted(path.name for path in (ROOT / "recipes").glob("*.yaml") if recipe_data.is_fetched(path)))
def test_every_recipe_validates_and_explains_without_data(recipe):
    nowhere = {"TRAINRUN_DATA": "/nowhere"}
    validated = trainrun("validate", f"recipes/{recipe}", **nowhere)
    assert validated.returncode == 0, validated.stderr
    explained = trainrun("explain", f"recipes/{recipe}", "--json", **nowhere)
    assert explained.returncode == 0, explained.stderr
    explanation = json.loads(explained.stdout)
    assert explanation["parameters"] == sum(layer["parameters"] for layer in explanation["layers"]) > 0
    assert explanation["flops"] > 0


def test_explain_shows_the_wide_net():
    text = output_of("explain", "recipes/mnist_wide_cnn.yaml")
    for words in ["[N, 512, 26, 26]", "5,120", "[N, 256, 9, 9]", "3,277,056", "3,316,362", "OneCycleLR",
                  "1,024 = batch_size 1,024 x num_processes 1 x gradient_accumulation_steps 1", "total 290 in 5 epochs"]:
        assert words in text, words


def test_explain_of_a_bad_recipe_names_every_fault():
    result = trainrun("explain", "recipes/digits_mlp.yaml", "optimizer.weight_decey=0", "dataloader.drop_lst=true")
    assert result.returncode == 2
    assert "did you mean weight_decay?" in result.stderr
    assert "did you mean drop_last?" in result.stderr


# --- env ---

def test_env_names_what_a_bug_report_needs():
    text = output_of("env")
    torch = importlib.metadata.version("torch").partition("+")[0]  # the Python tests run where it is the program's
    for word in ["trainrun", "LibTorch", torch, "compiler", "glibc", "CPU", "vector extensions", "threads", "memory",
                 "GPU", "container", "limits"]:
        assert word in text, word


@pytest.mark.parametrize(("wanted", "used"), [("default", "generic"), ("avx2", "AVX2")])
def test_own_kernels_heed_what_limits_those_of_libtorch(wanted, used):
    text = trainrun("env", ATEN_CPU_CAPABILITY=wanted).stdout
    line = next(line for line in text.splitlines() if line.startswith("trainrun's kernels"))
    assert line.split()[-1] == used or "avx2" not in text


def test_explain_defaults_prints_a_recipe_that_is_the_same_job(tmp_path):
    text = output_of("explain", "recipes/digits_mlp.yaml", "optimizer.lr=0.01", "--defaults")
    for line in ["lr: 0.01", "eps: 1e-08", "every_steps: 100", "max_grad_norm: null", "bias: true", "keep_last: 2"]:
        assert line in text
    (tmp_path / "complete.yaml").write_text(text)
    complete = output_of("explain", tmp_path / "complete.yaml", "--json")
    plain = output_of("explain", "recipes/digits_mlp.yaml", "optimizer.lr=0.01", "--json")
    without_path = [{key: value for key, value in json.loads(one).items() if key not in ["recipe", "path"]} for one in [complete, plain]]
    assert without_path[0] == without_path[1]


# --- what people try first ---

@pytest.mark.parametrize("arguments, usage", [
    (["help"], "Usage: trainrun [OPTIONS]"), (["help", "explain"], "Usage: trainrun explain"), (["run", "--help"], "Usage: trainrun run"),
    (["help", "run"], "Usage: trainrun run"), (["help", "nothing"], "Usage: trainrun [OPTIONS]"),
])
def test_help_is_given_however_it_is_asked_for(arguments, usage):
    text = output_of(*arguments)
    assert usage in text and "--verbose (-v)" in text


def test_list_takes_a_components_name_alone():
    assert output_of("list", "Conv2d") == output_of("list", "layers", "Conv2d")
    several = output_of("list", "Standardize")
    assert "Standardize (transform)" in several


def test_verbose_says_more(tmp_path):
    short = ["recipes/digits_mlp.yaml", "training={max_steps: 1}"]
    plain = output_of(*short, f"output_dir={tmp_path}/plain")
    verbose = output_of(*short, f"output_dir={tmp_path}/verbose", "-v", "num_threads=2")
    assert "threads within an operation: 2" in verbose and "threads within an operation" not in plain


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["list"], ["schema"], ["env"], ["--version"], ["explain", "recipes/digits_mlp.yaml"], ["validate", "recipes/digits_mlp.yaml"]])
def test_output_that_cannot_be_written_exits_1(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run([BINARY, *arguments], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "standard output cannot be written" in done.stderr


# --- waiting threads ---

def variables_of_a_run(tmp_path, name, **environment):
    """What the program's own process has in its environment once it trains, by what `env` and -v say and /proc shows."""
    clean = {key: value for key, value in os.environ.items() if key not in ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"]} | environment
    done = subprocess.run([BINARY, "-v", "recipes/digits_mlp.yaml", "training={max_steps: 1}", f"output_dir={tmp_path}/{name}"], cwd=ROOT, env=clean,
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_threads_of_a_run_wait_passively_unless_somebody_says_otherwise(tmp_path):
    assert "wait passively, after 16000 turns, or 1000 while others want the CPUs" in variables_of_a_run(tmp_path, "own")
    assert "wait busily, for milliseconds" in variables_of_a_run(tmp_path, "active", OMP_WAIT_POLICY="active")
    assert "wait passively (OMP_WAIT_POLICY)" in variables_of_a_run(tmp_path, "passive", OMP_WAIT_POLICY="passive")
    assert "waiting threads" in output_of("env")


def names_of_threads(pid):
    names = set()
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            names.add((task / "comm").read_text().strip())
    return names


def test_threads_sleep_sooner_while_others_want_the_cpus(tmp_path):
    clean = {key: value for key, value in os.environ.items() if key not in ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"]}
    job = subprocess.Popen([BINARY, "recipes/digits_mlp.yaml", "training={max_steps: 10000000}", "num_threads=2", f"output_dir={tmp_path}/job"], cwd=ROOT, env=clean,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    others = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(2 * os.cpu_count())]
    try:
        latest = time.monotonic() + 60
        while "short waits" not in names_of_threads(job.pid) and time.monotonic() < latest and job.poll() is None:
            time.sleep(0.05)
        assert {"wait watch", "short waits"} <= names_of_threads(job.pid)
    finally:
        for process in [job, *others]:
            process.kill()
            process.wait()


def openmp_of_a_run(tmp_path, name, **environment):
    """What libgomp itself says of its settings as it is loaded."""
    clean = {key: value for key, value in os.environ.items() if key not in ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"]} | environment
    done = subprocess.run([BINARY, "recipes/digits_mlp.yaml", "training={max_steps: 1}", f"output_dir={tmp_path}/{name}"], cwd=ROOT,
                          env=clean | {"OMP_DISPLAY_ENV": "verbose"}, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"(OMP_WAIT_POLICY|GOMP_SPINCOUNT) = '(\w+)'", done.stderr))


def test_openmp_hears_of_it_before_main_and_by_starting_once(tmp_path):
    assert openmp_of_a_run(tmp_path, "own") == {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "16000"}
    assert openmp_of_a_run(tmp_path, "turns", GOMP_SPINCOUNT="17")["GOMP_SPINCOUNT"] == "17"
    assert openmp_of_a_run(tmp_path, "active", OMP_WAIT_POLICY="active")["OMP_WAIT_POLICY"] == "ACTIVE"
    calls = tmp_path / "calls"
    subprocess.run(["strace", "-f", "--seccomp-bpf", "-e", "trace=execve", "-o", calls, BINARY, "recipes/digits_mlp.yaml", "training={max_steps: 1}", f"output_dir={tmp_path}/traced"],
                   cwd=ROOT, env={key: value for key, value in os.environ.items() if key not in ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"]}, check=True,
                   stdout=subprocess.DEVNULL, timeout=300)
    assert calls.read_text().count("execve(") == 1


def test_the_heap_begins_with_huge_pages_and_what_only_the_start_reads_is_given_back(tmp_path):
    calls = tmp_path / "calls"
    traced = subprocess.run(["strace", "-e", "trace=madvise,brk", "-o", calls, BINARY, "env"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=300).stdout
    lines = calls.read_text().splitlines()
    advised = next(i for i, line in enumerate(lines) if re.search(r"MADV_(HUGEPAGE|POPULATE_WRITE)\) = 0", line))
    huge = "HUGEPAGE" in lines[advised]  # by the system's free memory
    assert int(re.search(r", (\d+), MADV_", lines[advised]).group(1)) >= (192 if huge else 48) << 20
    assert not [line for line in lines[advised:] if line.startswith("brk")]  # what LibTorch registers fits in it
    assert re.search(r"process: huge pages +" + ("installed; " if huge else "not installed: the system has few blocks of 2 MB free; 48 MB of"), traced)
    assert "not installed: a debugger looks on, whose breakpoints would be lost" in traced
    said = subprocess.run([BINARY, "env"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=300).stdout
    assert re.search(r"process: start's pages +installed; ", said)


# --- going on with a finished run ---

def test_a_finished_run_says_how_to_go_on_and_a_runs_folder_is_enough(tmp_path):
    run = ["recipes/digits_mlp.yaml", "training.num_epochs=null", f"output_dir={tmp_path}/run"]
    output_of(*run, "training.max_steps=2")
    longer = output_of(*run, "training.max_steps=4")
    assert f"holds a finished run; to go on from where it ended, add checkpoint.resume={tmp_path}/run; this one goes to {tmp_path}/run-2" in longer
    resumed = output_of(*run, "training.max_steps=4", f"checkpoint.resume={tmp_path}/run")
    assert "resumed at step 2/4" in resumed and "step 4/4" in resumed
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/recipe.yaml").write_text("name: x\n")
    failed = trainrun(*run, "training.max_steps=4", f"checkpoint.resume={tmp_path}/empty")
    assert failed.returncode == 1 and "has no complete checkpoint" in failed.stderr
    shutil.copytree(tmp_path / "run-2", tmp_path / "empty-2")
    failed = trainrun("eval", tmp_path / "empty")
    assert f"has no complete checkpoint: it stopped before one was saved; {tmp_path}/empty-2 has one" in failed.stderr


def test_fifty_thousand_layers_are_validated_in_seconds_of_processor_time(tmp_path):
    """Once it took 20 s of it; the limit is of processor time, which other programs do not use up."""
    recipe = (ROOT / "tests/recipes/digits_small.yaml").read_text()
    assert "model:" in recipe
    (tmp_path / "deep.yaml").write_text(f"base: {ROOT}/tests/recipes/digits_small.yaml\nname: deep\n")
    layers = "[Flatten, {type: Linear, out_features: 10}, {type: Sequential, repeat: 50000, layers: [ReLU]}]"
    limited = ["bash", "-c", 'ulimit -t 10; exec "$@"', "bash", BINARY, "validate", str(tmp_path / "deep.yaml"), f"model.layers={layers}"]
    done = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("words", "message"), [
    (["profile", "recipes/digits_cnn.yaml", "--steps", "0"], "--steps: expected a whole number >= 1, found '0'"),
    (["profile", "recipes/digits_cnn.yaml", "--steps", "2.5"], "--steps: expected a whole number >= 1, found '2.5'"),
    (["lr-find", "recipes/digits_cnn.yaml", "--min", "0"], "--min: expected a number > 0, found '0'"),
    (["lr-find", "recipes/digits_cnn.yaml", "--steps", "3"], "--steps: expected a whole number from 15 to 1000000, found '3'"),
    (["generate", "runs/a", "--temperature", "-1"], "--temperature: expected a number >= 0, found '-1'"),
    (["predict", "runs/a", "a.csv", "--threshold", "nan"], "--threshold: expected a number from 0 to 1, found 'nan'"),
])
def test_a_number_out_of_range_is_told_what_was_expected(words, message):
    done = subprocess.run([CALLED, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and message in done.stderr, done.stderr
