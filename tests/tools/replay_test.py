"""`trainrun replay`: one step of a run, made again; and what is said of a loss that is not finite."""

import csv

import pytest
import torch

from tests.tools.replayed_runs import RECIPE, called, checkpoint_of, files_of, json_of, lines_of, trained, weights_of, write_table


@pytest.fixture(name="run", scope="module")
def run_over_a_table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replay")
    write_table(folder / "train.csv")
    return trained(folder, "run", "checkpoint.every=1")


@pytest.mark.parametrize("step", [1, 2, 17, 57, 96])
def test_a_step_made_again_has_the_loss_that_was_logged(run, step):
    found = json_of(run.parent, "replay", run, "--step", step)
    assert found["as_logged"] is True and found["loss"] == lines_of(run)[step]["train/loss"]
    assert found["from"]["step"] == step - 1
    assert found["lr"] == [lines_of(run)[step]["train/lr"]]


def test_it_starts_from_the_beginning_where_there_is_no_checkpoint(run):
    sparse = trained(run.parent, "sparse", "checkpoint.every=null")
    found = json_of(run.parent, "replay", sparse, "--step", 57)
    assert found["from"] == {"checkpoint": "", "step": 0} and found["as_logged"] is True
    near = json_of(run.parent, "replay", run, "--step", 57)
    assert found["layers"] == near["layers"] and found["parameters"] == near["parameters"]


def test_it_goes_on_from_the_nearest_checkpoint_that_is_older(run):
    other = trained(run.parent, "every19")
    found = json_of(run.parent, "replay", other, "--step", 57)
    assert found["from"]["step"] == 38
    assert found["layers"] == json_of(run.parent, "replay", run, "--step", 57)["layers"]


def test_every_figure_is_pytorchs(run):
    """The weights of the checkpoint before the step, and the rows that the replay names, in PyTorch."""
    step = 57
    found = json_of(run.parent, "replay", run, "--step", step)
    before, after = weights_of(checkpoint_of(run, step - 1)), weights_of(checkpoint_of(run, step))
    rows = [list(map(float, row)) for row in list(csv.reader((run.parent / "train.csv").open()))[1:]]
    chosen = torch.tensor([rows[sample["number"]] for sample in found["samples"]])
    layers = [torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16), torch.nn.Linear(16, 12), torch.nn.Tanh(), torch.nn.Linear(12, 1)]
    net = torch.nn.Sequential(*layers)
    net.load_state_dict(before)
    outputs = [chosen[:, :4]]
    for layer in net:
        outputs.append(layer(outputs[-1]))
        outputs[-1].retain_grad()
    loss = torch.nn.functional.mse_loss(outputs[-1].squeeze(1), chosen[:, 4])
    loss.backward()
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert [layer["name"] for layer in found["layers"]] == [str(i) for i in range(6)]
    for layer, output in zip(found["layers"], outputs[1:], strict=True):
        assert layer["output"]["norm"] == pytest.approx(output.norm().item(), rel=1e-4)
        assert layer["output"]["mean"] == pytest.approx(output.mean().item(), rel=1e-3, abs=1e-5)
        assert layer["output"]["abs_max"] == pytest.approx(output.abs().max().item(), rel=1e-4)
        assert layer["output"]["not_finite"] == 0
        assert layer["gradient"]["norm"] == pytest.approx(output.grad.norm().item(), rel=1e-4)
    gradients = dict(net.named_parameters())
    assert [one["name"] for one in found["parameters"]] == list(gradients)
    for one in found["parameters"]:
        name = one["name"]
        assert one["weight"]["norm"] == pytest.approx(before[name].norm().item(), rel=1e-5)
        assert one["gradient"]["norm"] == pytest.approx(gradients[name].grad.norm().item(), rel=1e-4)
        assert one["update"] == pytest.approx((after[name].double() - before[name].double()).norm().item(), rel=1e-5)
    total = torch.nn.utils.get_total_norm([parameter.grad for parameter in gradients.values()])
    assert found["grad_norm"] == pytest.approx(total.item(), rel=1e-4)


def test_samples_are_named_by_their_rows(run):
    found = json_of(run.parent, "replay", run, "--step", 3)
    order = torch.randperm(256, generator=torch.Generator().manual_seed(5))
    assert [sample["number"] for sample in found["samples"]] == order[32:48].tolist()
    assert all(sample["place"] == f"train.csv:{sample['number'] + 2}" for sample in found["samples"])


def test_it_writes_nothing_into_the_runs_folder(run):
    before = files_of(run)
    assert called(run.parent, "replay", run, "--step", 40).returncode == 0
    assert files_of(run) == before


def test_accumulated_batches_are_one_step(run):
    other = trained(run.parent, "accumulated", "training.gradient_accumulation_steps=3", "training.max_grad_norm=0.5")
    found = json_of(run.parent, "replay", other, "--step", 25)
    assert found["as_logged"] is True and len(found["samples"]) == 48
    assert found["grad_norm"] == lines_of(other)[25]["train/grad_norm"]


def test_a_run_that_was_changed_from_outside_is_told(run):
    other = trained(run.parent, "changed")
    lines = (other / "metrics.jsonl").read_text().splitlines()
    lines[49] = lines[49].replace('"train/loss": ', '"train/loss": 1')
    (other / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    done = called(run.parent, "replay", other, "--step", 50)
    assert done.returncode == 0 and " was logged" in done.stdout and "changed from outside" in done.stdout
    assert json_of(run.parent, "replay", other, "--step", 50)["as_logged"] is False


def test_a_step_that_the_run_has_not_made_is_refused(run):
    done = called(run.parent, "replay", run, "--step", 97)
    assert done.returncode == 1 and "has 96 steps: there is no step 97" in done.stderr


def test_other_data_are_refused(run):
    folder = run.parent / "moved"
    folder.mkdir()
    write_table(folder / "train.csv")
    other = trained(folder, "run")
    write_table(folder / "train.csv", changed=3)
    done = called(folder, "replay", other, "--step", 20)
    assert done.returncode == 1 and "has changed since the checkpoint was made" in done.stderr


def failing(folder, *changes):
    write_table(folder / "train.csv")
    (folder / "recipe.yaml").write_text(RECIPE)
    done = called(folder, "run", "recipe.yaml", "output_dir=bad", "optimizer={type: SGD, lr: 1e-2}", *changes)
    assert done.returncode == 1, done.stdout
    return done.stderr


def test_the_layer_is_named_whose_output_is_not_finite_first(tmp_path):
    told = failing(tmp_path, "optimizer.lr=1e25")
    assert "the loss is nan at step 2" in told or "the loss is inf at step 2" in told
    assert "the output of model.layers[2] (Linear) is the first that is not finite" in told or "model.layers[3] (Linear) is the first" in told
    assert "its input lies between" in told and "weight between" in told


def test_the_step_is_made_again_where_weights_were_not_finite_before_it(tmp_path):
    told = failing(tmp_path, "optimizer.lr=1e39", "checkpoint.every=null")
    assert "was not finite before the step" in told
    check_that_step_1_is_named(tmp_path, told)


def test_the_step_is_made_again_where_weights_that_are_not_finite_would_be_saved(tmp_path):
    told = failing(tmp_path, "optimizer.lr=1e39", "checkpoint.every=1")
    assert "the weights are not finite after step 1" in told
    check_that_step_1_is_named(tmp_path, told)


def check_that_step_1_is_named(folder, told):
    assert "at step 1, made again, parameter " in told and "after the step is the first that is not finite" in told
    assert "--step 1` shows every layer" in told
    shown = called(folder, "replay", "bad", "--not-finite")
    assert shown.returncode == 0 and "bad, step 1 " in shown.stdout and "is the first that is not finite" in shown.stdout


def test_a_run_whose_numbers_are_finite_has_no_step_to_find(run):
    done = called(run.parent, "replay", run, "--not-finite")
    assert done.returncode == 1 and "all weights and losses are finite" in done.stderr
