"""`trainrun config`: questions on standard error, answers on standard input, the recipe's keys as YAML."""

import pathlib
import subprocess

import pytest
import yaml

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def config(answers, *arguments):
    return subprocess.run([CALLED, "config", *map(str, arguments)], cwd=ROOT, input="".join(answer + "\n" for answer in answers), capture_output=True,
                          text=True, timeout=60, check=False)


def keys_of(*answers):
    result = config(answers)
    assert result.returncode == 0, result.stderr
    return yaml.safe_load(result.stdout)


def test_empty_answers_give_one_process():
    assert keys_of("", "", "") == {"distributed_type": "NO", "device": "auto", "mixed_precision": "no"}


def test_several_machines_are_asked_for_their_meeting_place():
    assert keys_of("MULTI_GPU", "2", "1", "10.0.0.1", "", "16", "bf16") == {
        "distributed_type": "MULTI_GPU", "machine_rank": 1, "main_process_ip": "10.0.0.1", "main_process_port": 29500, "num_machines": 2,
        "num_processes": 16, "mixed_precision": "bf16"}


def test_answers_by_number_and_in_any_case():
    assert keys_of("4", "1", "", "yes", "shard_grad_op", "3") == {
        "distributed_type": "FSDP", "num_machines": 1, "num_processes": 2, "device": "cpu", "sharding": {"strategy": "SHARD_GRAD_OP"},
        "mixed_precision": "fp16"}


@pytest.mark.parametrize("answers, complaint, keys", [
    (["MULTI_CPUS", "MULTI_CPU", "", "", ""], "there is no 'MULTI_CPUS'; did you mean MULTI_CPU?", {"num_processes": 2}),
    (["2", "two", "1", "", ""], "expected a whole number, found 'two'", {"num_machines": 1}),
    (["2", "0", "1", "", ""], "at least 1", {"num_machines": 1}),
    (["2", "2", "2", "0", "", "node a", "a", "70000", "", "4", ""], "an answer is needed", {"main_process_ip": "a"}),
    (["2", "2", "2", "0", "a", "70000", "", "4", ""], "at most 65535", {"main_process_port": 29500}),
    (["2", "2", "0", "a", "", "3", "4", ""], "3 processes cannot be divided evenly over 2 machines", {"num_processes": 4}),
    (["", "maybe", "no", ""], "answer yes or no", {"device": "auto"}),
    (["", "", "fp8", "no"], "fp8 is not available", {"mixed_precision": "no"}),
])
def test_a_wrong_answer_is_asked_for_again_with_the_reason(answers, complaint, keys):
    result = config(answers)
    assert result.returncode == 0, result.stderr
    assert complaint in result.stderr
    assert keys.items() <= yaml.safe_load(result.stdout).items()


@pytest.mark.parametrize("answers", [[], ["MULTI_CPU"], ["MULTI_CPU", "1", "wrong"]])
def test_an_input_that_ends_too_early_exits_2_and_writes_nothing(tmp_path, answers):
    path = tmp_path / "processes.yaml"
    for result in [config(answers), config(answers, "--output", path)]:
        assert result.returncode == 2
        assert result.stdout == ""
        assert "the input ended before every question had an answer" in result.stderr
    assert not path.exists()


def test_the_file_is_a_base_for_a_recipe(tmp_path):
    path = tmp_path / "processes.yaml"
    assert config(["MULTI_CPU", "", "3", "bf16"], "--output", path).returncode == 0
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"base: [{ROOT / 'tests/recipes/digits_small.yaml'}, processes.yaml]\n")
    result = subprocess.run([CALLED, "validate", str(recipe)], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    emitted = subprocess.run([CALLED, "launch", "--emit", "torchrun", str(recipe)], capture_output=True, text=True, timeout=60, check=False)
    assert "--nproc-per-node=3" in emitted.stdout


def test_a_file_is_replaced_only_where_the_answer_is_yes(tmp_path):
    path = tmp_path / "processes.yaml"
    path.write_text("seed: 1\n")
    for answers in [[], [""], ["no"]]:
        result = config(answers, "--output", path)
        assert result.returncode == 2
        assert path.read_text() == "seed: 1\n"
    assert config(["yes", "", "", ""], "--output", path).returncode == 0
    assert yaml.safe_load(path.read_text())["distributed_type"] == "NO"
