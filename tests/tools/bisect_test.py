"""`trainrun bisect`: the first step, layer and tensor in which two runs part."""

import json
import shutil
import subprocess

import pytest
import torch

from tests.program import BINARY
from tests.tools.replayed_runs import called, change_weights, checkpoint_of, files_of, json_of, number_in, stopped_after, trained, write_table

PLANTED = ("5.weight", "0.weight", "3.weight")


@pytest.fixture(name="a", scope="module")
def first_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bisect")
    write_table(folder / "train.csv")
    return trained(folder, "a")


def bisect(a, b, *arguments):
    return json_of(a.parent, "bisect", a, b, *arguments, code=(0, 1))


def resumed_with(a, name, change, step=57, *changes):
    """A copy of run `a` that was stopped after `step`, amended, and went on."""
    b = stopped_after(a, step, name)
    change_weights(checkpoint_of(b, step), change)
    return trained(a.parent, name, *changes)


def test_runs_that_are_alike_do_not_part(a):
    b = trained(a.parent, "alike")
    done = called(a.parent, "bisect", a, b)
    assert done.returncode == 0 and "the runs do not part up to step 96" in done.stdout


@pytest.mark.parametrize("name", PLANTED)
def test_a_weight_that_was_changed_at_step_57_is_named(a, name):
    def plant(weights):
        weights[name].view(-1)[5] += 1e-3

    b = resumed_with(a, f"planted-{name}", plant)
    before = files_of(a), files_of(b)
    found = bisect(a, b)
    parting = found["parting"]
    assert (parting["step"], parting["name"], parting["layer"]) == (57, name, name.split(".")[0])
    assert parting["run"] == str(b) and parting["checkpoint"].endswith("step-00000057")
    assert parting["greatest"] == pytest.approx(1e-3, rel=1e-3) and parting["differing"] == 1
    columns = torch.Size([12, 16]) if name == "3.weight" else torch.Size([16, 4]) if name == "0.weight" else torch.Size([1, 12])
    assert parting["at"] == [5 // columns[1], 5 % columns[1]]
    assert "changed from outside after step 57" in parting["remark"]
    assert found["logged"]["last_equal"] == 57 and found["logged"]["first_other"] == 58
    assert found["checkpoints"] == {"last_equal": 38, "first_other": 57}
    assert (files_of(a), files_of(b)) == before
    text = called(a.parent, "bisect", a, b).stdout
    assert f"step 57: weight {name} differs" in text and "layer: " + name.split(".")[0] in text


def test_the_order_of_the_runs_does_not_matter(a):
    def plant(weights):
        weights["3.weight"][3, 7] += 1e-3

    b = resumed_with(a, "turned", plant)
    parting = bisect(b, a)["parting"]
    assert (parting["step"], parting["name"], parting["run"], parting["at"]) == (57, "3.weight", str(b), [3, 7])


def test_a_change_whose_checkpoint_is_gone_is_put_between_two_steps(a):
    def plant(weights):
        weights["3.weight"][3, 7] += 1e-3

    b = resumed_with(a, "gone", plant)
    shutil.rmtree(checkpoint_of(b, 57))
    parting = bisect(a, b)["parting"]
    assert (parting["kind"], parting["step"], parting["run"]) == ("logged", 58, str(b))
    assert "changed from outside after step 57" in parting["remark"]


def test_a_run_that_began_with_an_amended_checkpoint_is_found(a):
    copy = a.parent / "amended"
    shutil.copytree(checkpoint_of(a, 57), copy)

    def plant(weights):
        weights["3.weight"][3, 7] += 1e-3

    change_weights(copy, plant)
    b = trained(a.parent, "from-amended", f"checkpoint.resume={copy}")
    parting = bisect(a, b)["parting"]
    assert (parting["step"], parting["name"], parting["layer"], parting["at"]) == (57, "3.weight", "3", [3, 7])
    assert parting["greatest"] == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("row", [0, 100, 255])
def test_a_sample_that_was_changed_is_named_with_its_step(a, row):
    write_table(a.parent / "other.csv", changed=row)
    b = trained(a.parent, f"sample-{row}", "dataset.train.path=other.csv")
    found = bisect(a, b)
    place = torch.randperm(256, generator=torch.Generator().manual_seed(5)).tolist().index(row)
    parting = found["parting"]
    assert found["changes"] == ["dataset.train.path"]
    assert parting["step"] == place // 16 + 1 and parting["kind"] == "step"
    assert parting["what"].startswith("the batch's ")
    assert number_in(r"sample (\d+) of 16", parting["difference"]) == place % 16 + 1
    assert f"(number {row}, other.csv:{row + 2}" in parting["difference"]
    assert parting["at"] == [place % 16, 2] and parting["greatest"] == pytest.approx(0.25, rel=1e-4)


def test_another_learning_rate_is_the_first_difference_of_step_1(a):
    b = trained(a.parent, "rate", "optimizer.lr=1.1e-2")
    found = bisect(a, b)
    assert found["changes"] == ["optimizer.lr"]
    assert (found["parting"]["step"], found["parting"]["what"]) == (1, "the learning rate")


def test_other_initial_weights_are_named(a):
    b = trained(a.parent, "seed", "seed=6")
    parting = bisect(a, b)["parting"]
    assert (parting["step"], parting["name"]) == (1, "0.weight") and "before the step" in parting["what"]


def test_a_schedule_that_differs_later_is_found_where_it_differs(a):
    schedule = "scheduler={type: MultiStepLR, milestones: [%d], gamma: 0.5}"
    b = trained(a.parent, "late-b", schedule % 40)
    c = trained(a.parent, "late-c", schedule % 70)
    parting = bisect(b, c)["parting"]
    assert (parting["step"], parting["what"]) == (41, "the learning rate")


def changed_after(a, step, name, **settings):
    """A copy of run `a` in which `trainrun ctl` changed something after `step`: stopped before it, it goes on by the history."""
    b = stopped_after(a, 19, name)
    change = {"step": step, "time": 0, "key": "optimizer.lr", "before": "0.01", "value": "1e-4", "of_recipe": "0.01", **settings}
    (b / "recipe_history.jsonl").write_text(json.dumps(change) + "\n")
    return trained(a.parent, name)


def test_a_change_by_trainrun_ctl_is_named_as_what_made_the_runs_part(a):
    b = changed_after(a, 40, "controlled")
    named = {"run": str(b), "step": 40, "key": "optimizer.lr", "before": "0.01", "value": "1e-4"}
    for found in (bisect(a, b), bisect(b, a)):
        parting = found["parting"]
        assert (parting["kind"], parting["step"], parting["what"]) == ("step", 41, "the learning rate")
        assert found["changes"] == [] and found["controls"] == parting["controls"] == [named]
        assert found["checkpoints"] == {"last_equal": 38, "first_other": 57}
    said = f"trainrun ctl changed optimizer.lr of {b} from 0.01 to 1e-4 after step 40\n"
    text = called(a.parent, "bisect", a, b).stdout
    assert f"while they ran  {said}" in text and f"step 41: the learning rate differs\n" in text and text.endswith("  " + said)
    found = json_of(a.parent, "diff", a, b, code=(1,))
    assert found["controls"] == [{"name": "optimizer.lr after step 40", "a": "", "b": "0.01 → 1e-4", "differs": True}]
    assert "* optimizer.lr after step 40" in called(a.parent, "diff", a, b).stdout
    assert called(a.parent, "report", a, b).returncode == 0
    assert "controlled: trainrun ctl changed optimizer.lr from 0.01 to 1e-4 after step 40" in (a.parent / "report.html").read_text()


def test_a_change_that_both_runs_have_does_not_part_them(a):
    b, c = changed_after(a, 40, "controlled-b"), changed_after(a, 40, "controlled-c", value="0.0001")
    found = bisect(b, c)
    assert found["equal"] and found["controls"] == []
    shutil.rmtree(checkpoint_of(c, 57))
    change_weights(checkpoint_of(c, 76), lambda weights: weights["3.weight"].add_(1))
    assert (bisect(b, c)["parting"]["step"], bisect(b, c)["parting"]["kind"]) == (76, "checkpoint")


def test_of_two_changes_the_one_that_parts_the_runs_is_named(a):
    b, c = changed_after(a, 40, "early"), changed_after(a, 60, "late", value="0.02")
    found = bisect(b, c)
    assert [(one["run"], one["step"]) for one in found["controls"]] == [(str(b), 40), (str(c), 60)]
    assert found["parting"]["step"] == 41 and found["parting"]["controls"] == found["controls"][:1]


def test_a_change_of_what_is_logged_and_saved_is_not_what_parts_two_runs(a):
    b = changed_after(a, 40, "logged", key="logging.every_steps", before="1", value="5", of_recipe="1")
    found = bisect(a, b)
    assert found["equal"] and found["controls"] == []


@pytest.mark.parametrize("step", [40, 41, 57, 58, 90])
def test_a_step_after_a_change_by_trainrun_ctl_is_made_again_with_it(a, step):
    b = a.parent / "controlled"
    if not b.exists():
        changed_after(a, 40, "controlled")
    found = json_of(a.parent, "replay", b, "--step", step)
    assert found["as_logged"] is True and found["lr"] == [1e-4 if step > 40 else 1e-2]


def test_a_running_job_that_is_changed_parts_after_that_step(a):
    """The change comes when it comes. The run that is changed kept no checkpoint until then."""
    length = ["training={num_epochs: 1000000, max_steps: 5000}", "logging.every_steps=100", "checkpoint.every=null"]
    plain, b = trained(a.parent, "plain", *length), a.parent / "live"
    job = subprocess.Popen([BINARY, "run", "recipe.yaml", "output_dir=live", *length], cwd=a.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert any(line.startswith("step 100/") for line in job.stdout)
    done = called(a.parent, "ctl", b, "set", "optimizer.lr=1e-4", "checkpoint.every=2000")
    assert done.returncode == 0, done.stdout + done.stderr
    job.communicate(timeout=120)
    assert job.returncode == 0
    step = json.loads((b / "recipe_history.jsonl").read_text().splitlines()[0])["step"]
    before = files_of(b)
    parting = bisect(plain, b)["parting"]
    assert (parting["step"], parting["what"]) == (step + 1, "the learning rate")
    assert [(one["run"], one["step"], one["value"]) for one in parting["controls"]] == [(str(b), step, "1e-4")]
    for made in (step // 100 * 100 + 100, 4100):
        found = json_of(a.parent, "replay", b, "--step", made)
        assert found["as_logged"] is True and found["lr"] == [1e-4], made
    assert files_of(b) == before


def test_what_is_no_run_is_refused(a):
    done = called(a.parent, "bisect", a, "train.csv")
    assert done.returncode == 2 and "is not a run's folder" in done.stderr
