"""Optimizers that PyTorch lacks, as their papers write them, one parameter at a time, in double precision."""

import torch


class Paper(torch.optim.Optimizer):
    """`update(group, p, g, state)` is the paper's: the new value of `p`. `g`: the gradient to descend along."""

    def __init__(self, params, **options):
        super().__init__(params, {"maximize": False} | self.defaults_of_paper | options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                assert p.dtype == torch.float64
                state = self.state[p]
                state["t"] = state.get("t", 0) + 1
                p.copy_(self.update(group, p, -p.grad if group["maximize"] else p.grad, state))


class Lion(Paper):
    """Chen et al. 2023, algorithm 2."""

    defaults_of_paper = {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0}

    def update(self, group, p, g, state):
        (beta1, beta2), m = group["betas"], state.get("m", torch.zeros_like(p))
        c = beta1 * m + (1 - beta1) * g
        state["m"] = beta2 * m + (1 - beta2) * g
        return p - group["lr"] * (c.sign() + group["weight_decay"] * p)


class LAMB(Paper):
    """You et al. 2020, algorithm 2, phi(z) = z; a ratio of 1 where either norm is 0."""

    defaults_of_paper = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0}

    def update(self, group, p, g, state):
        beta1, beta2 = group["betas"]
        m = state["m"] = beta1 * state.get("m", torch.zeros_like(p)) + (1 - beta1) * g
        v = state["v"] = beta2 * state.get("v", torch.zeros_like(p)) + (1 - beta2) * g**2
        r = (m / (1 - beta1 ** state["t"])) / ((v / (1 - beta2 ** state["t"])).sqrt() + group["eps"])
        u = r + group["weight_decay"] * p
        ratio = p.norm() / u.norm() if p.norm() > 0 and u.norm() > 0 else 1
        return p - group["lr"] * ratio * u


class LARS(Paper):
    """You, Gitman & Ginsburg 2017, algorithm 1; a ratio of 1 where either norm is 0, or no trust coefficient is given."""

    defaults_of_paper = {"lr": 1e-3, "momentum": 0, "weight_decay": 0, "trust_coefficient": 1e-3, "eps": 1e-8}

    def update(self, group, p, g, state):
        decay, ratio = group["weight_decay"], 1
        if group["trust_coefficient"] is not None and p.norm() > 0 and g.norm() > 0:
            ratio = group["trust_coefficient"] * p.norm() / (g.norm() + decay * p.norm() + group["eps"])
        v = state["v"] = group["momentum"] * state.get("v", torch.zeros_like(p)) + group["lr"] * ratio * (g + decay * p)
        return p - v


class Wrapper:
    """Another optimizer, made by `make(params)`."""

    def __init__(self, params, make):
        self.inner = make(params)
        self.param_groups = self.inner.param_groups

    def parameters(self):
        return [p for group in self.param_groups for p in group["params"]]


class Lookahead(Wrapper):
    """Zhang et al. 2019, algorithm 1."""

    def __init__(self, params, make, k=5, alpha=0.5):
        super().__init__(params, make)
        self.k, self.alpha, self.t = k, alpha, 0
        self.slow = [p.detach().clone() for p in self.parameters()]

    @torch.no_grad()
    def step(self):
        self.inner.step()
        self.t += 1
        if self.t % self.k == 0:
            for i, fast in enumerate(self.parameters()):
                self.slow[i] = self.slow[i] + self.alpha * (fast - self.slow[i])
                fast.copy_(self.slow[i])


class GradientCentralization(Wrapper):
    """Yong et al. 2020, equation 1."""

    @torch.no_grad()
    def step(self):
        for p in self.parameters():
            if p.grad is not None and p.dim() > 1:
                p.grad = p.grad - p.grad.flatten(1).mean(1).view(-1, *[1] * (p.dim() - 1))
        self.inner.step()


WRAPPERS = {"Lookahead": Lookahead, "GradientCentralization": GradientCentralization}
PAPERS = {"Lion": Lion, "LAMB": LAMB, "LARS": LARS}
