"""trainrun against plain PyTorch programs given the same seed, order and hyper-parameters: the loss at every step."""

import json
import subprocess

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler

import reference

TOLERANCE = 1e-4  # relative, of the loss at each step
NUM_STEPS = 200
QUIET = ["checkpoint.every=null", "checkpoint.keep_best=null", "evaluation.every=null"]


def train_lines(lines: list[dict]) -> list[dict]:
    return [line for line in lines if line["split"] == "train"]


def assert_same_losses(lines: list[dict], expected: list[float]):
    lines = train_lines(lines)
    assert [line["step"] for line in lines] == list(range(1, len(expected) + 1))
    far = [f"step {line['step']}: {line['train/loss']}, expected {loss}" for line, loss in zip(lines, expected)
           if abs(line["train/loss"] - loss) > TOLERANCE * abs(loss)]
    assert not far, f"{len(far)} steps differ, the first: {far[0]}"
    assert expected[-1] < 0.7 * expected[0], "nothing was learned: the comparison says little"


def normalized(images: torch.Tensor) -> torch.Tensor:
    return (images - 0.1307) / 0.3081


@pytest.fixture
def one_thread(monkeypatch):
    """For jobs of small operations: two threads that share a machine with others take five times as long for them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    torch.set_num_threads(before)


def test_mnist_cnn(mnist_folder, tmp_path):
    total = 8 * 1875
    expected = reference.train(
        reference.mnist_cnn, lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01),
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda t: min(t / 500, (total - t) / (total - 500))),
        reference.mnist(mnist_folder, "train"), seed=42, batch_size=32, num_steps=NUM_STEPS, transform=normalized)
    lines, _ = reference.run_trainrun("recipes/mnist_cnn.yaml", tmp_path / "run", f"training.max_steps={NUM_STEPS}",
                                      f"scheduler.total_steps={total}", *QUIET)
    assert_same_losses(lines, expected)


@pytest.mark.usefixtures("one_thread")
def test_residual_net_with_parameter_groups(mnist_folder, tmp_path):
    def make_optimizer(model):
        plain = [p for name, p in model.named_parameters() if "bn" in name or name.endswith("bias")]
        rest = [p for name, p in model.named_parameters() if not ("bn" in name or name.endswith("bias"))]
        return torch.optim.SGD([{"params": plain, "weight_decay": 0}, {"params": rest}], lr=0.02, momentum=0.9,
                               nesterov=True, weight_decay=1e-4)

    expected = reference.train(
        reference.residual_net, make_optimizer, lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, NUM_STEPS),
        reference.mnist(mnist_folder, "train"), seed=11, batch_size=16, num_steps=NUM_STEPS, transform=normalized,
        loss=lambda output, target: functional.cross_entropy(output, target, label_smoothing=0.1))
    lines, _ = reference.run_trainrun("tests/recipes/parity_residual.yaml", tmp_path / "run", "dataloader.batch_size=16", *QUIET)
    assert_same_losses(lines, expected)


def winograd_net() -> nn.Module:
    """Convolutions that trainrun computes by Winograd's algorithm: two of 3x3, one of 5x5."""
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.GELU(), nn.MaxPool2d(2), nn.Conv2d(32, 48, 3, padding=1), nn.BatchNorm2d(48), nn.GELU(),
                         nn.Conv2d(48, 32, 5, padding=2, bias=False), nn.BatchNorm2d(32), nn.GELU(), nn.Conv2d(32, 32, 3), nn.GELU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


@pytest.fixture(scope="module")
def losses_of_winograd_net(mnist_folder):
    return reference.train(winograd_net, lambda model: torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9),
                           lambda optimizer: lr_scheduler.ConstantLR(optimizer, factor=1), reference.mnist(mnist_folder, "train"), seed=9,
                           batch_size=16, num_steps=NUM_STEPS, transform=normalized)


@pytest.mark.parametrize("convolutions", ["fast", "direct"])
def test_convolutions_by_winograds_algorithm(losses_of_winograd_net, tmp_path, convolutions):
    expected = losses_of_winograd_net
    lines, _ = reference.run_trainrun("tests/recipes/parity_winograd.yaml", tmp_path / "run", f"training.convolutions={convolutions}", *QUIET)
    assert_same_losses(lines, expected)
    command = [reference.CALLED, "explain", "tests/recipes/parity_winograd.yaml", f"training.convolutions={convolutions}", "--json"]
    explained = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    found = [fused["layers"] for fused in explained["fused"] if fused["fusion"] == "WinogradConv2d"]
    assert found == (["3", "6", "9"] if convolutions == "fast" else [])


@pytest.mark.usefixtures("one_thread")
def test_lstm_with_one_cycle(mnist_folder, tmp_path):
    expected = reference.train(
        reference.LstmClassifier, lambda model: torch.optim.Adam(model.parameters()),
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.001, total_steps=NUM_STEPS),
        reference.mnist(mnist_folder, "train"), seed=5, batch_size=32, num_steps=NUM_STEPS)
    lines, _ = reference.run_trainrun("tests/recipes/parity_lstm.yaml", tmp_path / "run", "dataloader.batch_size=32", *QUIET)
    assert_same_losses(lines, expected)


@pytest.mark.usefixtures("one_thread")
def test_accumulation_clipping_rates_by_epoch_and_evaluation(tmp_path):
    """45 batches an epoch in windows of 4: the last window is one batch, of 30 samples. The reference takes a window at once."""
    seed, accumulation, batch_size, epochs = 3, 4, 32, 6
    images, labels = reference.digits("train")
    torch.manual_seed(seed)
    model = reference.digits_mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    losses, norms, rates, evaluations = [], [], [], []
    for epoch in range(epochs):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed + epoch))
        for window in order.split(batch_size * accumulation):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images[window]), labels[window])
            loss.backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.4).item())
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
        test_images, test_labels = reference.digits("test")
        with torch.no_grad():
            logits = model(test_images)
        evaluations.append((functional.cross_entropy(logits, test_labels).item(),
                            (logits.argmax(1) == test_labels).double().mean().item()))

    lines, _ = reference.run_trainrun(
        "tests/recipes/digits_small.yaml", tmp_path / "run",
        "model.layers=[Flatten, {type: Linear, out_features: 24}, ReLU, {type: Linear, out_features: 10}]",
        "optimizer={type: SGD, lr: 0.5, momentum: 0.5}", "scheduler={type: StepLR, interval: epoch, step_size: 2, gamma: 0.5}",
        f"training={{num_epochs: {epochs}, gradient_accumulation_steps: {accumulation}, max_grad_norm: 0.4}}",
        "dataloader.eval_batch_size=100")

    assert len(losses) == 12 * epochs
    assert_same_losses(lines, losses)
    steps = train_lines(lines)
    assert [line["train/grad_norm"] for line in steps] == pytest.approx(norms, rel=TOLERANCE)
    assert max(norms) > 0.4 > min(norms), "clipping must act on some steps and not on others"
    assert [line["train/lr"] for line in steps] == pytest.approx(rates, rel=1e-9)
    evaluated = [(line["eval/loss"], line["eval/accuracy"]) for line in lines if line["split"] == "eval"]
    assert len(evaluated) == epochs
    for actual, expected in zip(evaluated, evaluations):
        assert actual == pytest.approx(expected, rel=TOLERANCE)


# Options that differ from the defaults where these would learn nothing in 50 steps.
ACCUMULATED = [("SGD", {"lr": 0.2, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}), ("Adam", {"lr": 0.01}),
               ("AdamW", {"lr": 0.01, "weight_decay": 0.1}), ("RMSprop", {"lr": 0.003, "momentum": 0.5}), ("Adagrad", {"lr": 0.05}),
               ("Adadelta", {"lr": 1.0}), ("Adamax", {"lr": 0.02}), ("NAdam", {"lr": 0.01}), ("RAdam", {"lr": 0.05}), ("ASGD", {"lr": 0.3}),
               ("Rprop", {"lr": 0.01}), ("Adafactor", {"lr": 0.1})]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name, options", ACCUMULATED, ids=[name for name, _ in ACCUMULATED])
def test_optimizers_step_alike_on_accumulated_gradients(tmp_path, name, options):
    """Windows of three batches, biases in a group of their own with half the learning rate."""
    seed, batch_size, num_steps = 3, 32, 50
    images, labels = reference.digits("train")
    torch.manual_seed(seed)
    model = reference.digits_mlp()
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    others = [p for name, p in model.named_parameters() if not name.endswith("bias")]
    optimizer = getattr(torch.optim, name)([{"params": biases, "lr": options["lr"] / 2}, {"params": others}], **options)
    losses = []
    for epoch in range(-(-num_steps // 15)):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed + epoch))
        for window in order.split(batch_size * 3):
            optimizer.zero_grad()
            total = 0.0
            for batch in window.split(batch_size):
                loss = functional.cross_entropy(model(images[batch]), labels[batch]) * (len(batch) / len(window))
                loss.backward()
                total += loss.item()
            optimizer.step()
            losses.append(total)

    recipe = {"type": name} | options | {"param_groups": [{"match": "bias$", "lr": options["lr"] / 2}]}
    lines, _ = reference.run_trainrun(
        "tests/recipes/digits_small.yaml", tmp_path / "run",
        "model.layers=[Flatten, {type: Linear, out_features: 24}, ReLU, {type: Linear, out_features: 10}]",
        f"optimizer={json.dumps(recipe)}", "training={num_epochs: null, max_steps: 50, gradient_accumulation_steps: 3}", *QUIET)
    assert_same_losses(lines, losses[:num_steps])


@pytest.mark.parametrize("ranks", [1, 2])
def test_losses_that_sum_add_up_over_batches_and_ranks(tmp_path, ranks):
    """A mean and a sum, in windows of three batches: the sums of PyTorch's micro-batches simply add up."""
    seed, batch_size, num_steps = 3, 32, 30
    images, labels = reference.digits("train")
    test_images, test_labels = reference.digits("test")
    torch.manual_seed(seed)
    model = reference.digits_mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

    def losses_of(batch, logits):
        return functional.cross_entropy(logits, batch), functional.multi_margin_loss(logits, batch, reduction="sum")

    losses, parts = [], []
    for epoch in range(2):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed + epoch))
        for window in order.split(batch_size * 3):
            optimizer.zero_grad()
            mean, total = 0.0, 0.0
            for batch in window.split(batch_size):
                cross_entropy, margins = losses_of(labels[batch], model(images[batch]))
                loss = cross_entropy * (len(batch) / len(window)) + 0.1 * margins
                loss.backward()
                mean, total = mean + cross_entropy.item() * len(batch) / len(window), total + margins.item()
            optimizer.step()
            losses.append(mean + 0.1 * total)
            parts.append((mean, total))
    model.eval()
    with torch.no_grad():
        whole = [loss.item() for loss in losses_of(test_labels, model(test_images))]

    lines, _ = reference.run_trainrun(
        "tests/recipes/digits_small.yaml", tmp_path / "run",
        "model.layers=[Flatten, {type: Linear, out_features: 24}, ReLU, {type: Linear, out_features: 10, name: out}]",
        "loss=[CrossEntropyLoss, {type: MultiMarginLoss, reduction: sum, loss_weight: 0.1}]", "dataloader.eval_batch_size=100",
        f"dataloader.batch_size={batch_size // ranks}", "optimizer={type: SGD, lr: 0.02}",
        f"training={{num_epochs: null, max_steps: {num_steps}, gradient_accumulation_steps: 3}}", "metrics=[]", "checkpoint.every=null", *([] if ranks == 1 else [f"num_processes={ranks}", "distributed_type=MULTI_CPU"]))
    assert_same_losses(lines, losses[:num_steps])
    steps = train_lines(lines)
    for line, expected in zip(steps, parts):
        assert (line["train/loss/cross_entropy_loss"], line["train/loss/multi_margin_loss"]) == pytest.approx(expected, rel=TOLERANCE)
    last = [line for line in lines if line["split"] == "eval"][-1]
    assert (last["eval/loss/cross_entropy_loss"], last["eval/loss/multi_margin_loss"]) == pytest.approx(whole, rel=TOLERANCE)
    assert last["eval/loss"] == pytest.approx(whole[0] + 0.1 * whole[1], rel=TOLERANCE)
