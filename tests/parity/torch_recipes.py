"""A recipe as a plain PyTorch program: modules of torch.nn in the recipe's order, torch's optimizers and schedulers, a loop.

Knows what random_recipes.py writes; nothing of trainrun's own code. Sizes that a recipe leaves out follow from examples.
"""

import copy
import re
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.optim import lr_scheduler

COMMON = {"type", "name", "inputs", "outputs", "repeat", "share"}  # what any layer may say besides its own options
# The argument of torch.nn's modules that a recipe may leave out, and the dimension of the input it is the size of.
SIZES = {"Linear": ("in_features", -1), "LayerNorm": ("normalized_shape", -1), "RMSNorm": ("normalized_shape", -1),
         "GroupNorm": ("num_channels", 1), "LSTM": ("input_size", -1), "GRU": ("input_size", -1), "RNN": ("input_size", -1),
         "TransformerEncoderLayer": ("d_model", 2), "MultiheadAttention": ("embed_dim", 2)}
SIZES |= {f"{kind}{dims}d": (size, 1) for dims in (1, 2) for kind, size in
          [("Conv", "in_channels"), ("ConvTranspose", "in_channels"), ("BatchNorm", "num_features"), ("InstanceNorm", "num_features")]}

FUNCTIONS = {
    "Add": lambda inputs, _: sum(inputs[1:], inputs[0]),
    "Mul": lambda inputs, _: torch.prod(torch.stack(inputs), 0) if len(inputs) > 2 else inputs[0] * inputs[1],
    "Sub": lambda inputs, _: inputs[0] - inputs[1],
    "MatMul": lambda inputs, _: inputs[0] @ inputs[1],
    "Concat": lambda inputs, o: torch.cat(inputs, o.get("dim", 1)),
    "Stack": lambda inputs, o: torch.stack(inputs, o.get("dim", 1)),
    "Mean": lambda inputs, o: inputs[0].mean(o["dim"]),
    "Max": lambda inputs, o: inputs[0].max(o["dim"]).values,
    "Select": lambda inputs, o: inputs[0].select(o["dim"], o["index"]),
    "Permute": lambda inputs, o: inputs[0].permute(o["dims"]),
    "Transpose": lambda inputs, o: inputs[0].transpose(o["dim0"], o["dim1"]),
    "Reshape": lambda inputs, o: inputs[0].reshape(inputs[0].shape[0], *o["shape"]),
}


def substitute(value, parameters: dict):
    """`value` with each "${name}" replaced."""
    if isinstance(value, dict):
        return {key: substitute(item, parameters) for key, item in value.items()}
    if isinstance(value, list):
        return [substitute(item, parameters) for item in value]
    if isinstance(value, str) and value.startswith("${"):
        return parameters[value[2:-1]]
    return value


def named_spec(spec) -> dict:
    return {"type": spec} if isinstance(spec, str) else spec


class Function(nn.Module):
    def __init__(self, kind: str, options: dict):
        super().__init__()
        self.kind, self.options = kind, options

    def forward(self, *inputs):
        return FUNCTIONS[self.kind](inputs, self.options)


class GroupNorm(nn.GroupNorm):
    """Evaluates a batch of one value a group, too: PyTorch refuses it whatever the mode, trainrun while training."""

    def forward(self, x):
        return super().forward(x) if self.training else torch.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class OwnStatistics:
    """Evaluates a batch of one value a channel with the statistics of that batch, too, as GroupNorm."""

    def forward(self, x):
        if self.training or self.track_running_stats:
            return super().forward(x)
        return torch.batch_norm(x, self.weight, self.bias, None, None, True, 0.0, self.eps, False)


class BatchNorm1d(OwnStatistics, nn.BatchNorm1d):
    pass


class BatchNorm2d(OwnStatistics, nn.BatchNorm2d):
    pass


OWN_MODULES = {"GroupNorm": GroupNorm, "BatchNorm1d": BatchNorm1d, "BatchNorm2d": BatchNorm2d}


class Residual(nn.Module):
    def __init__(self, main: "Net", shortcut: "Net"):
        super().__init__()
        self.main, self.shortcut = main, shortcut

    def forward(self, x):
        main, shortcut = self.main(x), self.shortcut(x)
        if main.shape != shortcut.shape:
            raise ValueError("a residual is of one shape with what it is added to")
        return main + shortcut


class Parallel(nn.ModuleList):
    def __init__(self, branches: list["Net"], merge: str, dim: int):
        super().__init__(branches)
        self.merge, self.dim = merge, dim

    def forward(self, x):
        outputs = [branch(x) for branch in self]
        return {"concat": lambda: torch.cat(outputs, self.dim), "stack": lambda: torch.stack(outputs, self.dim),
                "add": lambda: sum(outputs[1:], outputs[0])}[self.merge]()


class Net(nn.Module):
    """A list of layers wired by name; its children have the recipe's names, so that state dicts agree."""

    def __init__(self, layers: list, examples: dict[str, torch.Tensor], blocks: dict, outside: tuple = ()):
        """`examples`: what the list may read by name, the first by default. `outside`: the lists around this one."""
        super().__init__()
        self.blocks, self.scope = blocks, (self, *outside)
        self.scope_modules: dict[str, nn.Module] = {}
        self.fields, self.steps = list(examples), []  # (name, inputs)
        values, last = dict(examples), next(iter(examples))
        for spec in expanded(layers):
            name = spec.get("name", str(len(self.steps)))
            inputs = spec.get("inputs", [last])
            inputs = [inputs] if isinstance(inputs, str) else inputs
            module = self.make(spec, [values[i] for i in inputs])
            self.add_module(name, module)
            self.scope_modules[name] = module
            self.steps.append((name, inputs))
            values[name] = without_trace(module, [values[i] for i in inputs])
            last = name
        self.example, self.example_of = values[last], {name: values[name] for name, _ in self.steps}
        self.scope = ()  # of use while it is built alone

    def make(self, spec: dict, inputs: list[torch.Tensor]) -> nn.Module:
        kind, x = spec["type"], inputs[0]
        options = {key: value for key, value in spec.items() if key not in COMMON}
        if "repeat" in spec:  # under a name: a list of layers
            inner = {key: value for key, value in spec.items() if key not in ("name", "repeat", "inputs", "outputs")}
            return self.inner([inner] * spec["repeat"], x)
        if "share" in spec and (shared := self.shared(kind, spec["share"])) is not None:
            return shared
        if kind in self.blocks:
            block = self.blocks[kind]
            return self.inner(substitute(block["layers"], block["parameters"] | options), x)
        if kind == "Sequential":
            return self.inner(options["layers"], x)
        if kind == "Residual":
            return Residual(self.inner(options["main"], x), self.inner(options.get("shortcut", []), x))
        if kind == "Parallel":
            branches = [self.inner(branch if isinstance(branch, list) else [branch], x) for branch in options["layers"]]
            return Parallel(branches, options.get("merge", "concat"), options.get("dim", 1))
        if kind in FUNCTIONS:
            return Function(kind, options)
        if kind in SIZES:
            argument, dim = SIZES[kind]
            options = {argument: x.shape[dim]} | options
        if kind == "Bilinear":
            options = {"in1_features": x.shape[-1], "in2_features": inputs[1].shape[-1]} | options
        module = (OWN_MODULES[kind] if kind in OWN_MODULES else getattr(nn, kind))(**options)
        if "share" in spec:  # tied
            module.weight = self.find(spec["share"]).weight
        return module

    def inner(self, layers: list, x: torch.Tensor) -> "Net":
        return Net(layers, {"": x}, self.blocks, self.scope)

    def find(self, name: str) -> nn.Module:
        first, *rest = name.split(".")
        module = next(net.scope_modules[first] for net in self.scope if first in net.scope_modules)
        for step in rest:
            module = getattr(module, step)
        return module

    def shared(self, kind: str, name: str) -> nn.Module | None:
        """The very module where it is of the same type."""
        module = self.find(name)
        return module if type(module).__name__ == kind or isinstance(module, (Net, Residual, Parallel)) else None

    def forward(self, *fields):
        values = dict(zip(self.fields, fields))
        last = self.fields[0]
        for name, inputs in self.steps:
            values[name] = call(self.scope_modules[name], [values[i] for i in inputs])
            last = name
        self.values = values
        return values[last]


def expanded(layers: list):
    """The layers one by one: those repeated without a name, several times; those after the first read what is before."""
    for spec in map(named_spec, layers):
        if "name" in spec or "repeat" not in spec:
            yield spec
            continue
        once = {key: value for key, value in spec.items() if key != "repeat"}
        yield once
        for _ in range(spec["repeat"] - 1):
            yield {key: value for key, value in once.items() if key != "inputs"}


def call(module: nn.Module, inputs: list[torch.Tensor]) -> torch.Tensor:
    if isinstance(module, nn.MultiheadAttention):
        return module(inputs[0], inputs[0], inputs[0], need_weights=False)[0]
    result = module(*inputs)
    return result[0] if isinstance(result, tuple) else result


def without_trace(module: nn.Module, inputs: list[torch.Tensor]) -> torch.Tensor:
    """What the module gives for examples, its state and the random generator left as they are."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        copied = copy.deepcopy(module).train()
        return call(copied, inputs)


# --- Losses, optimizers, the loop


@dataclass
class Run:
    losses: list[float] = field(default_factory=list)  # of each step
    evaluations: list[float] = field(default_factory=list)  # of each epoch
    state: dict[str, torch.Tensor] = field(default_factory=dict)


class Criterion:
    """The losses of a recipe: what is minimized of a batch, as a part of a window of batches."""

    def __init__(self, specs):
        self.parts = []
        for spec in specs if isinstance(specs, list) else [specs]:
            spec = named_spec(spec)
            options = {k: v for k, v in spec.items() if k not in ("type", "inputs", "loss_weight", "name")}
            if "weight" in options:
                options["weight"] = torch.tensor(options["weight"])
            self.parts.append((getattr(nn, spec["type"])(**options), spec.get("inputs"), spec.get("loss_weight", 1)))

    def __call__(self, values: dict, last: torch.Tensor, target: torch.Tensor, share: float) -> tuple[torch.Tensor, float]:
        """What is minimized, and its value. `share`: of the window's samples; a mean counts as much, sums add up.

        Means and sums come together in double precision in the value: as in trainrun, where a line search reads it.
        """
        means, sums = torch.zeros(()), torch.zeros(())
        for module, inputs, weight in self.parts:
            output, goal = (last, target) if inputs is None else (values[inputs[0]].float(), values[inputs[1]])
            if not isinstance(module, (nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss)):
                goal = goal.to(output.dtype)
            loss = module(output, goal) * weight
            if module.reduction == "sum":
                sums = sums + loss
            else:
                means = means + loss
        return means * share + sums, means.item() * share + sums.item()


def make_optimizer(spec: dict, net: Net) -> torch.optim.Optimizer:
    options = {k: v for k, v in spec.items() if k not in ("type", "param_groups")}
    groups, taken = [], set()
    parameters = dict(net.named_parameters())
    for group in spec.get("param_groups", []):
        chosen = [name for name in parameters if name not in taken and re.search(group["match"], name)]
        taken.update(chosen)
        groups.append({"params": [parameters[name] for name in chosen]} | {k: v for k, v in group.items() if k != "match"})
    groups.append({"params": [p for name, p in parameters.items() if name not in taken]})
    groups = [group for group in groups if group["params"]]
    return getattr(torch.optim, spec["type"])(groups, **options)


def make_scheduler(spec: dict | None, optimizer):
    if spec is None:
        return None
    options = {k: v for k, v in spec.items() if k not in ("type", "interval")}
    if "schedulers" in options:
        parts = [make_scheduler(part, optimizer) for part in options.pop("schedulers")]
        if spec["type"] == "ChainedScheduler":
            return lr_scheduler.ChainedScheduler(parts)
        return lr_scheduler.SequentialLR(optimizer, parts, options["milestones"])
    return getattr(lr_scheduler, spec["type"])(optimizer, **options)


INITIALIZERS = {"Normal": nn.init.normal_, "TruncNormal": nn.init.trunc_normal_, "Uniform": nn.init.uniform_, "Zeros": nn.init.zeros_,
                "Constant": nn.init.constant_, "Orthogonal": nn.init.orthogonal_, "XavierUniform": nn.init.xavier_uniform_,
                "XavierNormal": nn.init.xavier_normal_, "KaimingUniform": nn.init.kaiming_uniform_, "KaimingNormal": nn.init.kaiming_normal_}


def initialize(net: Net, rules: list):
    """Overwrites the parameters in their order, each by the first rule that matches its name."""
    for name, parameter in net.named_parameters():
        rule = next((rule for rule in rules if re.search(rule["match"], name)), None)
        if rule:
            INITIALIZERS[rule["type"]](parameter, **{k: v for k, v in rule.items() if k not in ("match", "type")})


def train(recipe: dict, train_data: dict, eval_data: dict, noise: float = 0, noise_seed: int = 0) -> Run:
    """`noise`: relative, of the initial weights and of the data's numbers, to see how far rounding may lead."""
    run, target = Run(), recipe["dataset"]["train"]["target"]
    generator = torch.Generator().manual_seed(noise_seed)

    def noisy(tensor: torch.Tensor) -> torch.Tensor:
        return tensor * (1 + noise * torch.randn(tensor.shape, generator=generator))

    if noise:
        train_data = {name: noisy(tensor) if tensor.is_floating_point() else tensor for name, tensor in train_data.items()}
    fields = {name: tensor for name, tensor in train_data.items() if name != target}
    torch.manual_seed(recipe["seed"])
    net = Net(recipe["model"]["layers"], {name: tensor[:2] for name, tensor in fields.items()}, recipe["model"].get("blocks", {}))
    initialize(net, recipe["model"].get("init", []))
    if noise:
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.copy_(noisy(parameter))
    criterion = Criterion(recipe["loss"])
    optimizer = make_optimizer(recipe["optimizer"], net)
    scheduler = make_scheduler(recipe.get("scheduler"), optimizer)
    bf16 = recipe.get("mixed_precision") == "bf16"

    def loss_of(data: dict, indices: torch.Tensor, share: float) -> tuple[torch.Tensor, float]:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            last = net(*(data[name][indices] for name in fields))
        return criterion(net.values | {target: data[target][indices]}, last.float(), data[target][indices], share)

    clip = recipe["training"].get("max_grad_norm")
    read = {name for _, inputs, _ in criterion.parts for name in inputs or [] if name != target}

    def evaluated(data: dict) -> float:
        """The loss of one batch, of what the net gives for the batches of an evaluation."""
        outputs: list[dict[str, torch.Tensor]] = []
        for piece in torch.arange(len(data[target])).split(recipe["dataloader"]["eval_batch_size"]):
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                last = net(*(data[name][piece] for name in fields))
            outputs.append({"": last.float()} | {name: net.values[name] for name in read})
        whole = {name: torch.cat([values[name] for values in outputs]) for name in outputs[0]}
        return criterion(whole | {target: data[target]}, whole[""], data[target], 1.0)[1]

    by_epoch = scheduler is not None and recipe["scheduler"].get("interval") == "epoch"
    for epoch in range(recipe["training"]["num_epochs"]):
        net.train()
        for window in windows(recipe, len(train_data[target]), epoch):
            def closure(window=window):
                optimizer.zero_grad()
                size, value = sum(len(batch) for batch in window), 0.0
                for batch in window:
                    loss, share = loss_of(train_data, batch, len(batch) / size)
                    loss.backward()
                    value += share
                if clip:
                    nn.utils.clip_grad_norm_(net.parameters(), clip)
                return value

            run.losses.append(float(optimizer.step(closure)))
            if scheduler and not by_epoch:
                scheduler.step()
        if by_epoch:
            scheduler.step()
        net.eval()
        with torch.no_grad():
            run.evaluations.append(evaluated(eval_data))
    run.state = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
    return run


def windows(recipe: dict, num_samples: int, epoch: int):
    """The batches of each optimizer step of an epoch."""
    loop, accumulation = recipe["dataloader"], recipe["training"].get("gradient_accumulation_steps", 1)
    order = torch.arange(num_samples)
    if loop["shuffle"]:
        order = torch.randperm(num_samples, generator=torch.Generator().manual_seed(recipe["seed"] + epoch))
    batches = [batch for batch in order.split(loop["batch_size"]) if len(batch) == loop["batch_size"] or not loop["drop_last"]]
    return [batches[i:i + accumulation] for i in range(0, len(batches), accumulation)]
