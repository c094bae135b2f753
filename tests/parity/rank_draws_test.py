"""Random transforms and dropout over ranks: the same global batch trains alike however it is cut, and no two ranks draw alike."""

import json

import pytest
import safetensors.torch
import torch

import reference

RECIPE = "tests/recipes/digits_small.yaml"
AUGMENTED = ("dataset.train_transforms=[{type: RandomRotation, degrees: 20, interpolation: bilinear}, {type: RandomCrop, size: 8, padding: 2}, "
             "RandomHorizontalFlip, {type: RandomErasing, p: 0.3, value: random}, {type: GaussianNoise, sigma: 0.05}, {type: Mixup, alpha: 0.4}]")


def distributed(num_processes: int) -> list[str]:
    return [f"distributed_type={'MULTI_CPU' if num_processes > 1 else 'NO'}", f"num_processes={num_processes}"]


def augmented(folder, num_processes, batch_size, *overrides):
    window = 64 // num_processes // batch_size
    lines, _ = reference.run_trainrun(
        RECIPE, folder, *distributed(num_processes), "model.layers=[Flatten, {type: Linear, out_features: 32}, ReLU, {type: Linear, out_features: 10}]",
        AUGMENTED, f"dataloader={{batch_size: {batch_size}, drop_last: true}}", "evaluation.every=null", "optimizer={type: SGD, lr: 0.1}",
        f"training={{num_epochs: null, max_steps: 30, gradient_accumulation_steps: {window}}}", *overrides)
    return reference.losses_of(lines)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return augmented(tmp_path_factory.mktemp("alone") / "run", 1, 64)


@pytest.mark.parametrize("num_processes, batch_size", [(2, 32), (4, 16), (1, 16), (2, 8)], ids=lambda n: str(n))
def test_random_transforms_do_not_depend_on_how_a_batch_is_cut(tmp_path, alone, num_processes, batch_size):
    found = augmented(tmp_path / "run", num_processes, batch_size)
    assert found[:20] == pytest.approx(alone[:20], rel=1e-5)
    assert augmented(tmp_path / "plain", 1, 64, "dataset.train_transforms=[]") != pytest.approx(alone, rel=1e-2)


def random_states(run):
    return json.loads((sorted((run / "checkpoints").glob("*"))[-1] / "state.json").read_text())["random"]


def test_each_rank_drops_out_its_own(tmp_path):
    """Rank 0 draws as one process does; resumed on more ranks, a new one draws its own."""
    common = ["evaluation.every=null", "dataloader={batch_size: 8}", "training={num_epochs: null, max_steps: 4}", "checkpoint={every: 2, keep_last: null}"]
    for n in (1, 2):
        reference.run_trainrun(RECIPE, tmp_path / str(n), *distributed(n), *common)
    one, two = random_states(tmp_path / "1"), random_states(tmp_path / "2")
    assert len({state["cpu"] for state in two}) == 2
    assert two[0] == one[0]

    resumed = tmp_path / "resumed"
    reference.run_trainrun(RECIPE, resumed, *distributed(3), *common, f"checkpoint.resume={tmp_path / '2/checkpoints/step-00000002'}")
    three = random_states(resumed)
    assert len({state["cpu"] for state in three}) == 3


def test_dropout_over_two_ranks_is_the_mean_over_two_masks(tmp_path):
    """Both ranks see the same sample: with one mask for both, the loss were that of one process."""
    torch.manual_seed(1)
    safetensors.torch.save_file({"x": torch.ones(2, 64), "y": torch.zeros(2, 1)}, tmp_path / "two.safetensors")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"""
model: {{layers: [{{type: Dropout, p: 0.5}}, {{type: Linear, out_features: 1}}]}}
loss: MSELoss
dataset: {{train: {{type: TensorFile, path: {tmp_path / 'two.safetensors'}, target: y}}}}
dataloader: {{batch_size: 1, shuffle: false}}
optimizer: {{type: SGD, lr: 0}}
training: {{max_steps: 1}}
""")
    found = [reference.losses_of(reference.run_trainrun(str(recipe), tmp_path / str(n), *distributed(n))[0])[0] for n in (1, 2)]
    assert found[0] != pytest.approx(found[1], rel=1e-3)
