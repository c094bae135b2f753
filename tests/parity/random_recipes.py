"""Random recipes: small nets of every kind on random data, each a function of its seed."""

import random
import re

import torch

import torch_recipes

ACTIVATIONS = ["ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "Sigmoid", "Tanh", "LogSigmoid", "Softsign",
               "Tanhshrink", "GELU", {"type": "GELU", "approximate": "tanh"}, {"type": "LeakyReLU", "negative_slope": 0.2}, "PReLU",
               {"type": "ELU", "alpha": 0.7}, "CELU", "Hardtanh", {"type": "Softplus", "beta": 2}, {"type": "Softshrink", "lambd": 0.1},
               {"type": "Threshold", "threshold": 0.1, "value": 0.05}]
BASE_RATES = {"SGD": 0.05, "Adam": 3e-3, "AdamW": 3e-3, "RMSprop": 1e-3, "Adagrad": 0.01, "Adadelta": 0.5, "Adamax": 5e-3, "NAdam": 2e-3,
              "RAdam": 5e-3, "ASGD": 0.05, "Rprop": 1e-3, "Adafactor": 0.01, "LBFGS": 0.1}
NO_DECAY = ("Rprop", "LBFGS")


class RandomRecipe:
    """Draws a recipe and its data. `recipe` is what goes into the file, but for the paths of the data."""

    def __init__(self, seed: int):
        self.random, self.generator = random.Random(seed), torch.Generator().manual_seed(seed)
        self.seed, self.blocks, self.layers, self.names = seed, {}, [], {}
        kind = self.random.choice(["image", "image", "vector", "sequence", "tokens"])
        self.train, self.eval = self.data(kind, self.random.randint(18, 40)), self.data(kind, self.random.randint(5, 14))
        self.x = self.train["image"][:2]
        self.body(kind)
        self.head()
        self.draw_job()

    # --- data

    def data(self, kind: str, size: int) -> dict[str, torch.Tensor]:
        if not hasattr(self, "shape"):
            r = self.random
            self.vocabulary = r.randint(5, 20)
            self.shape = {"image": (r.randint(1, 4), r.randint(6, 9), r.randint(6, 9)), "vector": (r.randint(3, 12),),
                          "sequence": (r.randint(3, 7), 2 * r.randint(1, 4)), "tokens": (r.randint(3, 7),)}[kind]
            self.num_classes = r.randint(2, 6)
            self.target = r.choice(["class", "class", "number", "bits"])
            self.tied = kind == "tokens" and self.target == "class" and r.random() < 0.5  # the head is the Embedding's table
            if self.tied:
                self.num_classes = self.vocabulary
        if kind == "tokens":
            x = torch.randint(self.vocabulary, (size, *self.shape), generator=self.generator)
        else:
            x = torch.randn(size, *self.shape, generator=self.generator)
        if self.target == "class":
            label = torch.randint(self.num_classes, (size,), generator=self.generator)
        elif self.target == "number":
            label = torch.randn(size, self.num_classes, generator=self.generator)
        else:
            label = (torch.rand(size, self.num_classes, generator=self.generator) < 0.5).float()
        return {"image": x, "label": label}

    # --- layers

    def body(self, kind: str):
        if kind == "tokens":
            options = {"padding_idx": 0} if self.random.random() < 0.3 else {}
            options |= {"name": "table"} if self.tied else {}
            self.add({"type": "Embedding", "num_embeddings": self.vocabulary, "embedding_dim": 2 * self.random.randint(2, 4)} | options)
        for _ in range(self.random.randint(2, 7)):
            for _ in range(20):  # until one fits
                if self.add(self.candidate()):
                    break

    def add(self, spec, smallest: int = 6) -> bool:
        """Appends the layer where PyTorch takes it, and what comes out is small and of use."""
        layers = spec if isinstance(spec, list) else [spec]
        state = self.random.getstate()
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                net = torch_recipes.Net(self.layers + layers, {"image": self.train["image"][:2]}, self.blocks)
        except (RuntimeError, ValueError, AssertionError, IndexError, TypeError, NotImplementedError):
            self.random.setstate(state)
            return False
        x = net.example
        if x.dim() < 2 or x.numel() > 4000 or x.numel() < smallest or not x.isfinite().all() or not x.is_floating_point():
            return False
        self.layers += layers
        self.x = x
        for name, module in net.scope_modules.items():
            if not name.isdigit():
                self.names[name] = net.example_of[name]
        return True

    def candidate(self):
        drawn = self.random.random()
        if drawn < 0.25:
            return self.composite()
        if drawn < 0.40 and self.names:
            return self.wired()
        return self.named(self.simple(self.x))

    def named(self, spec):
        """Often under a name, which others may then read or share."""
        spec = torch_recipes.named_spec(spec)
        if self.random.random() < 0.7:
            spec = {"name": self.new_name()} | spec
        return spec

    def new_name(self) -> str:
        self.num_names = getattr(self, "num_names", 0) + 1
        return f"n{self.num_names}"

    def simple(self, x: torch.Tensor):
        r = self.random
        if r.random() < 0.25:
            return r.choice(ACTIVATIONS)
        if r.random() < 0.1:
            return {"type": "Dropout", "p": r.choice([0.1, 0.5])}
        return r.choice({2: self.on_vectors, 3: self.on_sequences, 4: self.on_images}.get(x.dim(), self.on_vectors))(self, x)

    def conv(self, x, dims: int):
        r = self.random
        groups = r.choice([1, 1, 1, x.shape[1]])
        kernel = r.randint(1, 3) if dims == 1 or r.random() < 0.7 else [r.randint(1, 3), r.randint(1, 3)]
        spec = {"type": f"Conv{dims}d", "out_channels": groups * r.randint(1, 6 // groups + 1), "kernel_size": kernel}
        options = {"stride": 2, "padding": r.randint(0, 2), "dilation": 2, "bias": False,
                   "padding_mode": r.choice(["reflect", "circular", "replicate"])}
        spec |= self.some(options, 0.3)
        if r.random() < 0.15 and "stride" not in spec:
            spec["padding"] = "same"
        if groups > 1:
            spec["groups"] = groups
        if r.random() < 0.2:
            kept = ("out_channels", "kernel_size", "stride", "bias")
            spec = {k: v for k, v in spec.items() if k in kept} | {"type": f"ConvTranspose{dims}d"}
        return spec

    def some(self, options: dict, share: float) -> dict:
        return {k: v for k, v in options.items() if self.random.random() < share}

    def norm(self, x, dims: int):
        r = self.random
        return r.choice([
            {"type": f"BatchNorm{dims}d"} | self.some(
                {"eps": 1e-3, "momentum": r.choice([0.3, None]), "affine": False, "track_running_stats": False}, 0.2),
            {"type": f"InstanceNorm{dims}d"} | self.some({"affine": True, "track_running_stats": True}, 0.3),
            {"type": "GroupNorm", "num_groups": r.choice([1, x.shape[1]])} | self.some({"eps": 1e-2, "affine": False}, 0.3),
            {"type": "LayerNorm"} | self.some({"eps": 1e-3, "bias": False}, 0.3), "RMSNorm"])

    def pool(self, x, dims: int):
        r = self.random
        return r.choice([
            {"type": f"MaxPool{dims}d", "kernel_size": 2} | self.some({"stride": 1, "ceil_mode": True}, 0.4),
            {"type": f"AvgPool{dims}d", "kernel_size": 3} | self.some({"stride": 2, "padding": 1, "count_include_pad": False}, 0.4),
            {"type": f"AdaptiveAvgPool{dims}d", "output_size": r.randint(1, 3)},
            {"type": f"AdaptiveMaxPool{dims}d", "output_size": r.randint(1, 3)},
            {"type": f"LPPool{dims}d", "norm_type": 2, "kernel_size": 2}])

    def recurrent(self, x):
        r = self.random
        spec = {"type": r.choice(["LSTM", "GRU", "RNN"]), "hidden_size": r.randint(2, 6), "batch_first": True}
        return spec | self.some({"num_layers": 2, "bidirectional": True, "bias": False}, 0.3)

    def attention(self, x):
        r = self.random
        heads = r.choice([h for h in (1, 2, 4) if x.shape[2] % h == 0])
        if r.random() < 0.5:
            return {"type": "MultiheadAttention", "num_heads": heads, "batch_first": True} | self.some({"bias": False}, 0.3)
        spec = {"type": "TransformerEncoderLayer", "nhead": heads, "dim_feedforward": r.randint(3, 9), "batch_first": True, "dropout": 0.0}
        return spec | self.some({"norm_first": True, "activation": "gelu", "bias": False, "layer_norm_eps": 1e-3}, 0.3)

    def linear(self, x):
        return {"type": "Linear", "out_features": self.random.randint(2, 9)} | self.some({"bias": False}, 0.2)

    def other_on_images(self, x):
        return self.random.choice([
            {"type": "Dropout2d", "p": 0.2}, {"type": "Upsample", "scale_factor": 2}, {"type": "ZeroPad2d", "padding": [1, 0, 2, 1]},
            {"type": "ReflectionPad2d", "padding": 1}, {"type": "Softmax", "dim": 1}, {"type": "LocalResponseNorm", "size": 2}])

    def other_on_sequences(self, x):
        return self.random.choice([
            {"type": "Permute", "dims": [0, 2, 1]}, {"type": "Transpose", "dim0": 1, "dim1": 2}, {"type": "Softmax", "dim": 2}])

    def other_on_vectors(self, x):
        return self.random.choice(
            ["BatchNorm1d", "LayerNorm", "RMSNorm", {"type": "GroupNorm", "num_groups": 1}, {"type": "Softmax", "dim": 1}])

    on_images = [
        lambda s, x: s.conv(x, 2), lambda s, x: s.conv(x, 2), lambda s, x: s.conv(x, 2), lambda s, x: s.norm(x, 2),
        lambda s, x: s.pool(x, 2), lambda s, x: {"type": "Flatten", "start_dim": 2}, other_on_images]
    on_sequences = [
        recurrent, attention, linear, lambda s, x: s.norm(x, 1), lambda s, x: s.conv(x, 1), lambda s, x: s.pool(x, 1), other_on_sequences]
    on_vectors = [linear, linear, other_on_vectors]

    def composite(self):
        r = self.random
        inner = [self.simple(self.x)]
        kind = r.choice(["Sequential", "Residual", "Parallel", "block", "repeat", "share"])
        if kind == "Sequential":
            return self.named({"type": "Sequential", "layers": inner + [r.choice(ACTIVATIONS)]})
        if kind == "Residual":
            spec = {"type": "Residual", "main": inner + [r.choice(ACTIVATIONS)]}
            return self.named(spec | ({"shortcut": inner} if r.random() < 0.5 else {}))
        if kind == "Parallel":
            merge = r.choice(["concat", "add", "stack"])
            return self.named({"type": "Parallel", "layers": [inner, [*inner, "Tanh"], "Sigmoid"][:r.randint(1, 3)], "merge": merge})
        if kind == "block":
            return self.block()
        if kind == "repeat":
            return self.named({"type": "Linear", "out_features": self.x.shape[-1], "repeat": r.randint(2, 3)})
        return self.shared()

    def block(self):
        if not self.blocks or self.random.random() < 0.3:
            name = f"unit{len(self.blocks)}"
            self.blocks[name] = {"parameters": {"width": None, "bias": True}, "layers": [
                {"type": "Linear", "out_features": "${width}", "bias": "${bias}", "name": "fc"}, self.random.choice(ACTIVATIONS)]}
        spec = {"type": self.random.choice(list(self.blocks)), "width": self.random.randint(2, 7)}
        return self.named(spec | self.some({"bias": False}, 0.3))

    def shared(self):
        """A layer used twice, or a container that uses one outside it."""
        r = self.random
        spec = torch_recipes.named_spec(self.simple(self.x))
        name = self.new_name()
        again = spec | {"share": name}
        if r.random() < 0.3:
            again = {"type": "Sequential", "layers": [r.choice(ACTIVATIONS), again]}
        return [spec | {"name": name}, r.choice(ACTIVATIONS), again]

    def wired(self):
        """A layer that reads an earlier one by name, as well as what is before it."""
        r = self.random
        other = r.choice(list(self.names))
        spec = torch_recipes.named_spec(self.simple(self.x)) | {"name": self.new_name()}
        kind = r.choice(["Add", "Mul", "Sub", "Concat", "Stack"])
        return [spec, {"type": kind, "inputs": [spec["name"], other]}] if r.random() < 0.7 else [
            torch_recipes.named_spec(self.simple(self.names[other])) | {"inputs": other}]

    def head(self):
        r = self.random
        if self.x.dim() == 3 and r.random() < 0.5:
            self.add(r.choice([{"type": "Mean", "dim": 1}, {"type": "Select", "dim": 1, "index": -1}, {"type": "Max", "dim": 1}]))
        if self.x.dim() > 2:
            assert self.add("Flatten", 1)
        head = {"type": "Linear", "out_features": self.num_classes, "name": "head"}
        if self.tied:
            assert self.add({"type": "Linear", "out_features": self.layers[0]["embedding_dim"]}, 1)
            head |= {"share": "table"} | self.some({"bias": False}, 0.5)
        assert self.add(head, 1)

    # --- the job

    def loss(self):
        r = self.random
        reduction = self.some({"reduction": "sum"}, 0.2)
        if self.target == "class":
            weights = [round(r.uniform(0.5, 2), 3) for _ in range(self.num_classes)]
            kind = r.choice(["CrossEntropyLoss", "CrossEntropyLoss", "MultiMarginLoss"])
            options = self.some({"weight": weights}, 0.2) | (self.some({"label_smoothing": 0.1}, 0.3) if kind == "CrossEntropyLoss" else {})
            return {"type": kind} | options | reduction
        if self.target == "bits":
            return {"type": r.choice(["BCEWithLogitsLoss", "MultiLabelSoftMarginLoss", "SoftMarginLoss"])} | reduction
        kind = r.choice(["MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss"])
        return {"type": kind} | ({"delta": 0.7} if kind == "HuberLoss" else {"beta": 0.5} if kind == "SmoothL1Loss" else {}) | reduction

    def optimizer(self):
        r = self.random
        kind = r.choice([*BASE_RATES, "SGD", "Adam", "AdamW"])
        spec = {"type": kind, "lr": BASE_RATES[kind]}
        if kind == "SGD":
            spec |= r.choice([{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.5, "dampening": 0.2}])
        if kind in ("Adam", "AdamW"):
            spec |= self.some({"amsgrad": True, "betas": [0.8, 0.9], "eps": 1e-6}, 0.3)
        if kind == "RMSprop":
            spec |= self.some({"momentum": 0.5, "centered": True, "alpha": 0.9}, 0.3)
        if kind == "LBFGS":
            return spec | {"max_iter": r.randint(1, 4)} | self.some({"history_size": 2, "line_search_fn": "strong_wolfe"}, 0.5)
        if kind not in NO_DECAY:
            spec |= self.some({"weight_decay": 0.05}, 0.4)
        if r.random() < 0.4:
            patterns = [pattern for pattern in ("bias$", "^head", "weight$") if self.has_parameter(pattern)]
            group = {"match": r.choice(patterns), "lr": spec["lr"] / 4}
            spec["param_groups"] = [group | ({"weight_decay": 0.0} if kind != "Rprop" and r.random() < 0.5 else {})]
        return spec

    def scheduler(self, depth: int = 0):
        r = self.random
        specs = [
            {"type": "StepLR", "step_size": r.randint(1, 4), "gamma": 0.5},
            {"type": "ExponentialLR", "gamma": 0.8},
            {"type": "ConstantLR", "factor": 0.5, "total_iters": r.randint(0, 3)},
            {"type": "LinearLR", "start_factor": 0.3, "total_iters": r.randint(1, 5)},
            {"type": "CosineAnnealingLR", "T_max": r.randint(2, 9), "eta_min": 1e-4},
            {"type": "MultiStepLR", "milestones": [2, 5], "gamma": 0.3},
            {"type": "PolynomialLR", "total_iters": r.randint(4, 20), "power": 2},
            {"type": "CosineAnnealingWarmRestarts", "T_0": r.randint(2, 5)}]
        if depth == 0 and r.random() < 0.2:
            return {"type": "SequentialLR", "schedulers": [r.choice(specs), r.choice(specs)], "milestones": [r.randint(1, 5)]}
        if depth == 0 and r.random() < 0.1:
            return {"type": "ChainedScheduler", "schedulers": [r.choice(specs[:4]), r.choice(specs[:4])]}
        return r.choice(specs)

    def draw_job(self):
        r = self.random
        fields = {"image": "image", "label": "label"}
        training = {"num_epochs": r.randint(1, 3)} | self.some(
            {"gradient_accumulation_steps": r.randint(2, 4), "max_grad_norm": r.choice([0.1, 1.0])}, 0.4)
        self.recipe = {
            "version": 1, "name": f"random_{self.seed}", "seed": r.randint(0, 10**6), "model": {"layers": self.layers},
            "loss": self.loss(),
            "dataset": {split: {"type": "TensorFile", "fields": fields, "target": "label"} for split in ("train", "eval")},
            "dataloader": {"batch_size": r.randint(3, 9), "eval_batch_size": r.randint(3, 8), "shuffle": r.random() < 0.8,
                           "drop_last": r.random() < 0.3},
            "optimizer": self.optimizer(), "training": training}
        if self.blocks:
            self.recipe["model"]["blocks"] = self.blocks
        if r.random() < 0.25:
            self.recipe["model"]["init"] = self.initializers()
        if r.random() < 0.6:
            self.recipe["scheduler"] = self.scheduler() | self.some({"interval": "epoch"}, 0.3)
        if r.random() < 0.12:
            self.recipe["mixed_precision"] = "bf16"
        self.resumed = r.random() < 0.2  # stopped half way, and gone on with
        if r.random() < 0.2:
            self.recipe["loss"] = [self.recipe["loss"], self.second_loss()]

    def initializers(self):
        """One for all weights that it fits, or rules for the head's, which every net has."""
        r = self.random
        weights = r.choice([
            {"type": "Normal", "std": 0.2}, {"type": "TruncNormal", "std": 0.3}, "XavierUniform", {"type": "XavierNormal", "gain": 0.7},
            {"type": "KaimingNormal", "nonlinearity": "relu"}, {"type": "KaimingUniform", "a": 0.3}, {"type": "Orthogonal", "gain": 0.8}])
        biases = r.choice(["Zeros", {"type": "Constant", "val": 0.1}, {"type": "Uniform", "a": -0.1, "b": 0.1}])
        rules = [{"match": r"^table\.weight$" if self.tied else r"^head\.weight$"} | torch_recipes.named_spec(weights)]
        if "bias" not in self.layers[-1]:
            rules.append({"match": r"^head\.bias$"} | torch_recipes.named_spec(biases))
        return rules + ([{"match": "weight", "type": "Normal", "std": 0.3}] if r.random() < 0.5 and self.has_parameter("^(?!head|table).*weight") else [])

    def has_parameter(self, pattern: str) -> bool:
        net = torch_recipes.Net(self.layers, {"image": self.train["image"][:2]}, self.blocks)
        return any(re.search(pattern, name) for name, _ in net.named_parameters())

    def second_loss(self):
        kind = {"class": "MultiMarginLoss", "bits": "SoftMarginLoss", "number": "MSELoss"}[self.target]
        return {"type": kind, "name": "second", "loss_weight": 0.3} | self.some({"reduction": "sum", "inputs": ["head", "label"]}, 0.5)
