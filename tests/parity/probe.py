"""Asks trainrun_probe (probe.cpp) what a component does, and compares the answer with PyTorch's."""

import json
import os
import pathlib
import subprocess

import safetensors
import safetensors.torch
import torch


class ProbeError(Exception):
    """What the component, or the recipe that names it, was refused for."""


# The operations that the probe does on another device: with TRAINRUN_IMAGINED_GPU set, on a GPU that is made believe.
ON_A_DEVICE = {"layer", "loss", "metric", "optimizer"} if os.environ.get("TRAINRUN_IMAGINED_GPU") else set()


class Probe:
    """One trainrun_probe process."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        build = pathlib.Path(os.environ["TRAINRUN_BUILD_DIR"])
        called = build / "warm" / "trainrun_probe"  # which takes a start that was made before (tests/warm)
        program = called if called.exists() else build / "bin" / "trainrun_probe"
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise ProbeError(f"trainrun_probe ended with {self.process.returncode}")

    def ask(self, op: str, tensors: dict[str, torch.Tensor] | None = None, **request):
        """The probe's reply, and the tensors that came with it."""
        request |= {"op": op, "tensors": str(self.folder / "tensors"), "results": str(self.folder / "results")}
        if op in ON_A_DEVICE:
            request["device"] = "cuda:0"
        save(tensors or {}, request["tensors"])
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise ProbeError(f"trainrun_probe died of {request}: exit status {self.process.wait()}")
        reply = json.loads(line)
        if reply and "error" in reply:
            raise ProbeError(reply["error"])
        if op == "catalog":
            return reply["kinds"]
        return reply, Tensors(safetensors.torch.load_file(request["results"]))


def save(tensors: dict[str, torch.Tensor], path: str):
    """As safetensors.torch.save_file does, which takes ten times as long for the thousands of small tensors that there are."""
    kept = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    if any(tensor.numel() == 0 for tensor in kept.values()):  # which lies nowhere
        safetensors.torch.save_file(kept, path)
        return
    places = {name: safetensors.TensorSpec(dtype=str(tensor.dtype).removeprefix("torch."), shape=list(tensor.shape), data_ptr=tensor.data_ptr(), data_len=tensor.nbytes)
              for name, tensor in kept.items()}
    safetensors.serialize_file(places, path)


class Tensors(dict):
    """Tensors by name."""

    def under(self, prefix: str) -> dict[str, torch.Tensor]:
        """Those called PREFIX.NAME, by NAME."""
        return {k.removeprefix(prefix + "."): v for k, v in self.items() if k.startswith(prefix + ".")}


def named(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def are_close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    """As assert_close finds them; that takes ten times as long, and there are thousands."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    return torch.equal(actual, expected) or (actual.is_floating_point() and torch.allclose(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True))


def assert_same(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], what: str, tolerance: float = 0):
    """The same names, shapes, dtypes and, within `tolerance` (relative and absolute), values."""
    assert actual.keys() == expected.keys(), f"{what}: {sorted(actual)}, expected {sorted(expected)}"
    for name, tensor in expected.items():
        if are_close(actual[name], tensor, tolerance):
            continue
        torch.testing.assert_close(actual[name], tensor.detach(), rtol=tolerance, atol=tolerance, equal_nan=True,
                                   msg=lambda text, name=name: f"{what} {name}: {text}")


OF_EVERY_TOKENIZER = {"add_tokens", "add_special_tokens"}  # the recipe says them once: added_tokens_parity_test.py


def missing_rows(known: dict[str, list[str]], specs: list, ignored: set[str] = frozenset()) -> list[str]:
    """Components, and parameters of components, that no spec of a table uses: "Conv2d", "Conv2d.stride"."""
    used: dict[str, set[str]] = {}
    for spec in specs:
        used.setdefault(spec["type"], set()).update(spec)
    missing = []
    for name, parameters in known.items():
        if name not in used:
            missing.append(name)
        else:
            missing += [f"{name}.{p}" for p in parameters if p not in used[name] | OF_EVERY_TOKENIZER and f"{name}.{p}" not in ignored]
    return missing
