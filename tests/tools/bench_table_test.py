"""tools/bench/all: the form of its JSON and of its page, and that trainrun and its peers do the same job; never how fast anything is."""

import copy
import json
import os
import pathlib
import subprocess
import sys

import pytest
from torch import nn

from tests.program import BINARY

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ROW = "unet fp32"
PEERS = ["PyTorch", "Accelerate"]

sys.path.insert(0, str(ROOT / "tools/bench"))
from table import peer_tasks, results, rows  # noqa: E402


def table(*words, code=0):
    command = [sys.executable, ROOT / "tools/bench/all", "--binary", BINARY, "--python", sys.executable, *words]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT, env=os.environ | {"OMP_WAIT_POLICY": "passive"}, timeout=800, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A quick table of one row, whose data are made on the spot."""
    path = tmp_path_factory.mktemp("table") / "table.json"
    said = table("--quick", "--only", ROW, "--peers", *PEERS, "--json", path)
    assert "1 row to measure, about" in said
    return path


def test_a_quick_row_has_every_program_its_floor_and_the_machine(measured):
    found = json.loads(measured.read_text())
    assert found["version"] == 1 and found["quick"] and found["left_out"] == {}
    assert {"processor", "processors", "of", "features", "commit", "program", "versions"} <= set(found["machine"])
    assert {"Python", "torch", "accelerate", "lightning"} <= set(found["machine"]["versions"])
    [(name, row)] = found["rows"].items()
    assert name == ROW and row["unit"] == "ms" and row["rounds"] == 1
    assert row["floor"]["fp32"] > 0 and row["floor"]["bf16"] > 0 and row["prepared"]["layout"] in ("first", "last")
    assert sorted((run["program"], run["round"]) for run in row["runs"]) == sorted((program, 0) for program in ["trainrun", *PEERS])
    for run in row["runs"]:
        assert run["value"] > 0 and run["peak_mib"] > 0 and run["load"] >= 0 and run["seconds"] > 0


def test_trainrun_and_its_peers_train_the_same_net(measured):
    row = json.loads(measured.read_text())["rows"][ROW]
    [mine, *theirs] = (run["loss"] for run in sorted(row["runs"], key=lambda run: run["program"] != "trainrun"))
    assert theirs == pytest.approx([mine] * len(PEERS), rel=1e-3)
    assert results.summary(row)["losses"] == "equal within 0.5 %"


def test_peers_train_with_dropout_where_the_pretrained_model_comes_without(monkeypatch):
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).eval()  # as `from_pretrained` returns it
    monkeypatch.setitem(peer_tasks.TASKS, "pretrained", lambda wish: peer_tasks.Task(model, None, None, None))
    task = peer_tasks.make("pretrained", peer_tasks.Wish(pathlib.Path(), batch=1, steps=1))
    assert all(module.training for module in task.model.modules())


def test_what_the_json_has_is_not_measured_again(measured):
    before = json.loads(measured.read_text())
    said = table("--quick", "--only", ROW, "--peers", *PEERS, "--json", measured)
    assert "0 rows to measure" in said
    assert json.loads(measured.read_text()) == before


def test_figures_of_another_build_are_not_mixed_in(measured, tmp_path):
    found = json.loads(measured.read_text())
    found["machine"]["program"] = "another"
    (tmp_path / "table.json").write_text(json.dumps(found))
    said = table("--quick", "--only", ROW, "--json", tmp_path / "table.json", code=1)
    assert "which a table may not mix; give another --json" in said and "program: another there" in said


def test_the_page_has_the_figures_of_the_json(measured, tmp_path):
    said = table("--budget", "0", "--json", measured, "--write", "--page", tmp_path / "performance.md")
    text = (tmp_path / "performance.md").read_text()
    assert f"wrote {tmp_path / 'performance.md'}" in said
    row = json.loads(measured.read_text())["rows"][ROW]
    for run in row["runs"]:
        assert f" {results.shown(row, run['value'])} |" in text
    assert "figures of `--quick`" in text and "equal within 0.5 %" in text
    assert f"not measured this time: {', '.join(other.name for other in rows.all_rows() if other.name != ROW)}" in text


def test_rows_of_an_earlier_build_say_so_on_the_page(measured, tmp_path):
    found = json.loads(measured.read_text())
    row = found["rows"].pop(ROW)
    found["rows"] = {"unet bf16": row}
    found["machine"] |= {"program": "another", "commit": "0123abcd"}
    found["date"] = "2026-01-02"
    (tmp_path / "old.json").write_text(json.dumps(found))
    table("--budget", "0", "--json", measured, "--beside", tmp_path / "old.json", "--write", "--page", tmp_path / "page.md")
    lines = (tmp_path / "page.md").read_text().splitlines()
    [earlier] = [line for line in lines if line.startswith("| unet bf16:")]
    [own] = [line for line in lines if line.startswith(f"| {ROW}:")]
    assert "(2026-01-02, trainrun 0123abcd)" in earlier and "trainrun 0123abcd" not in own
    assert not any("not measured this time" in line and "unet bf16" in line for line in lines)
    found["machine"]["processor"] = "another"
    (tmp_path / "old.json").write_text(json.dumps(found))
    said = table("--budget", "0", "--json", measured, "--beside", tmp_path / "old.json", code=1)
    assert "another kind of machine" in said and "processor: " in said


def test_a_page_keeps_the_rows_that_are_not_measured_again(measured, tmp_path):
    page, figures = tmp_path / "page.md", tmp_path / "page" / "figures.json"
    table("--budget", "0", "--json", measured, "--write", "--page", page)
    found = json.loads(measured.read_text())
    date, commit = found["date"], found["machine"]["commit"]
    found["rows"] = {"unet bf16": found["rows"].pop(ROW)}
    found["machine"] |= {"program": "another", "commit": "0123abcd"}
    new = tmp_path / "new.json"
    new.write_text(json.dumps(found))

    def lines():
        table("--budget", "0", "--json", new, "--write", "--page", page)
        return [line for line in page.read_text().splitlines() if line.startswith("| unet ")]

    from_figures = lines()
    assert [line.partition(":")[0] for line in from_figures] == ["| unet fp32", "| unet bf16"]
    assert f"({date}, trainrun {commit})" in from_figures[0] and "(20" not in from_figures[1]
    assert lines() == from_figures
    figures.unlink()
    kept = lines()
    assert kept[1] == from_figures[1]
    assert f"({date}, trainrun {commit})" in kept[0] and f"; {results.rounds_text(1)} |" in kept[0]
    assert lines() == kept


def test_a_page_of_another_kind_of_machine_begins_anew(measured, tmp_path):
    page = tmp_path / "page.md"
    table("--budget", "0", "--json", measured, "--write", "--page", page)
    found = json.loads(measured.read_text())
    found["rows"] = {"unet bf16": found["rows"].pop(ROW)}
    found["machine"]["processor"] = "another"
    (tmp_path / "new.json").write_text(json.dumps(found))
    said = table("--budget", "0", "--json", tmp_path / "new.json", "--write", "--page", page)
    assert "is of another kind of machine" in said and "begins anew" in said
    assert f"| {ROW}:" not in page.read_text() and "| unet bf16:" in page.read_text()


def test_a_row_without_its_data_is_named_as_left_out(tmp_path):
    said = table("--quick", "--only", "ranks nanogpt", "--data", tmp_path, "--json", tmp_path / "table.json")
    assert f"left out: ranks nanogpt: there is no tinyshakespeare in {tmp_path}" in said
    assert "ranks nanogpt" in json.loads((tmp_path / "table.json").read_text())["left_out"]


def test_no_row_begins_that_the_budget_does_not_hold(tmp_path):
    said = table("--quick", "--only", ROW, "--peers", "PyTorch", "--budget", "1s", "--json", tmp_path / "table.json")
    assert f"left out: {ROW}: the budget was used up (a round takes about" in said


def test_an_unknown_row_is_refused():
    assert "no row's name contains vgg99; --list prints them" in table("--only", "vgg99", code=1)


def made_row(values, **more):
    """A row of whole rounds: program -> its values."""
    runs = [{"program": program, "round": number, "value": value, "loss": 2.0, "load": 0.5} for program, each in values.items() for number, value in enumerate(each)]
    programs = {program: None if program.startswith("trainrun") else program.split(",")[0] for program in values}
    return {"group": "A training step", "title": "a net", "unit": "ms", "scale": 1e3, "ours": "trainrun", "base": {}, "bf16": False, "programs": programs,
            "losses_differ": "", "x": None, "rounds": 3, "runs": runs} | more


def test_the_better_peer_decides_round_by_round():
    row = made_row({"trainrun": [1.0, 2.0, 1.0], "PyTorch": [3.0, 3.0, 3.0], "Accelerate": [2.0, 5.0, 2.4]})
    found = results.summary(row)
    assert (found["better"], found["ratio"], found["low"], found["high"]) == ("Accelerate", 2.4, 2.0, 2.5)
    assert found["medians"] == {"trainrun": 1.0, "PyTorch": 3.0, "Accelerate": 2.4}


def test_a_round_that_a_program_lacks_is_compared_with_no_other():
    row = made_row({"trainrun": [1.0, 2.0, 4.0], "PyTorch": [3.0, 4.0]})
    assert results.ratios(row, "PyTorch", "trainrun") == [3.0, 2.0]


def test_where_trainrun_loses_is_said():
    slower = made_row({"trainrun": [2.0, 2.0, 2.0], "PyTorch": [1.0, 1.0, 1.0]})
    unsure = made_row({"trainrun": [2.0, 2.0, 2.0], "PyTorch": [3.0, 1.9, 3.0]})
    faster = made_row({"trainrun": [1.0, 1.0, 1.0], "PyTorch": [3.0, 3.0, 3.0]})
    alone = made_row({"trainrun, 2 ranks": [1.0, 1.0], "trainrun, 1 rank": [0.8, 0.8], "torch DDP, 2 ranks": [2.0, 2.0], "PyTorch, 1 rank": [0.5, 0.5]},
                     ours="trainrun, 2 ranks", base={"trainrun, 2 ranks": "trainrun, 1 rank", "torch DDP, 2 ranks": "PyTorch, 1 rank"})
    found = {"rows": {"slower": slower, "unsure": unsure, "faster": faster, "ranks": alone}}
    lines = results.losing(found)
    assert [line.split(":")[0] for line in lines] == ["slower", "unsure", "ranks"]
    assert "takes 0.50 times trainrun's 2,000 ms" in lines[0] and "two ranks are slower than one (0.80)" in lines[2]
    assert results.summary(alone)["better"] == "torch DDP, 2 ranks" and results.summary(alone)["over_base"]["torch DDP, 2 ranks"] == 0.25


def test_losses_that_are_apart_are_not_called_equal():
    row = made_row({"trainrun": [1.0], "PyTorch": [3.0]})
    assert results.summary(row)["losses"] == "equal within 0.5 %"
    far = copy.deepcopy(row)
    far["runs"][0]["loss"] = 2.1
    assert results.summary(far)["losses"] == "5.0 % apart"
    assert results.summary(row | {"losses_differ": "weights"})["losses"] == "not compared: weights"


@pytest.mark.parametrize("value, text", [(0.00123, "1.23"), (0.0456, "45.6"), (0.678, "678"), (12.3456, "12,346")])
def test_figures_are_shown_with_three_digits(value, text):
    assert results.shown(made_row({"trainrun": [1.0]}), value) == text


def test_every_row_says_what_it_takes_and_what_it_is():
    found = rows.all_rows()
    assert len({row.name for row in found}) == len(found)
    for row in found:
        assert set(row.seconds) == set(row.programs) and row.ours in row.programs and all(value > 0 for value in row.seconds.values()), row.name
        assert set(row.base) | set(row.base.values()) <= set(row.programs)
