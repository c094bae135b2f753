"""Tensor files go both ways between Python (safetensors, torch.save) and trainrun, bit for bit; harmful ones do no harm."""

import argparse
import os
import pathlib
import pickle
import random
import subprocess
import tarfile
import zipfile
from collections import OrderedDict

import pytest
import safetensors
import safetensors.torch
import torch

DTYPES = """float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz int64 int32 int16 int8
uint8 bool uint16 uint32 uint64 complex64""".split()


def any_tensor(dtype: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Any bytes at all (NaNs among them); zeros and ones for bool."""
    kind = getattr(torch, dtype)
    count = int(torch.Size(shape).numel())
    if kind == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    return torch.randint(0, 256, (count * kind.itemsize,), dtype=torch.uint8, generator=generator).view(kind).reshape(shape)


def bits(tensor: torch.Tensor) -> bytes:
    tensor = tensor.detach().contiguous()
    return bytes(tensor.reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


def assert_bits_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert sorted(found) == sorted(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert bits(found[name]) == bits(tensor), name


def rewrite(folder: pathlib.Path, *paths: pathlib.Path) -> None:
    """Has trainrun read each file and write it as FILE.safetensors, or the error to FILE.error."""
    program = pathlib.Path(os.environ["TRAINRUN_BUILD_DIR"]) / "bin" / "trainrun_tests"
    listing = folder / "files.txt"
    listing.write_text("".join(f"{path}\n" for path in paths))
    command = [program, "--no-skip", "--test-case=helper: rewrites weights", "--source-file=*/files_test.cpp"]
    subprocess.run(command, check=True, env={**os.environ, "TRAINRUN_TEST_FILES": str(listing)}, stdout=subprocess.DEVNULL)


def rewritten(path: pathlib.Path) -> dict[str, torch.Tensor]:
    error = pathlib.Path(f"{path}.error")
    assert not error.exists(), error.read_text()
    return safetensors.torch.load_file(f"{path}.safetensors")


def error_of(path: pathlib.Path) -> str:
    assert not pathlib.Path(f"{path}.safetensors").exists(), f"{path} was read without an error"
    message = pathlib.Path(f"{path}.error").read_text()
    assert message.startswith(f"{path}: ")
    return message


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = [(), (0,), (3, 0, 2), (7,), (3, 5), (2, 3, 4, 5)]
    made = {f"{dtype}.{i}": any_tensor(dtype, shape, generator) for dtype in DTYPES for i, shape in enumerate(shapes)}
    made['näme "with" \\escapes\n\t\x01'] = torch.ones(1)
    return made


def test_python_and_trainrun_write_the_same_safetensors_bytes(tmp_path, tensors):
    path = tmp_path / "python.safetensors"
    shuffled = list(tensors.items())
    random.Random(0).shuffle(shuffled)
    safetensors.torch.save_file(dict(shuffled), path, metadata={"format": "pt"})
    rewrite(tmp_path, path)
    assert_bits_equal(rewritten(path), tensors)
    assert pathlib.Path(f"{path}.safetensors").read_bytes() == path.read_bytes()
    with safetensors.safe_open(f"{path}.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_state_dict_of_every_dtype_is_read_from_torch_save(tmp_path, tensors, protocol):
    path = tmp_path / "weights.pt"
    torch.save(OrderedDict(tensors), path, pickle_protocol=protocol)
    rewrite(tmp_path, path)
    assert_bits_equal(rewritten(path), tensors)


def test_views_parameters_and_modules_are_read_from_torch_save(tmp_path):
    torch.manual_seed(0)
    base = torch.randn(6, 8)
    image = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    named = torch.randn(3)
    named.note = "a tensor with an attribute of its own"
    with_attribute = torch.nn.Parameter(torch.randn(2))
    with_attribute.note = "and a parameter"
    views = {
        "base": base,
        "transposed": base.t(),
        "slice": base[1:5:2, 3:7],
        "scalar": base[2, 3],
        "expanded": torch.arange(3.0).expand(4, 3),
        "channels_last": image,
        "parameter": torch.nn.Parameter(torch.randn(3, 3)),
        "named": named,
        "with_attribute": with_attribute,
        "half_view": torch.randn(4).half()[1:],
    }
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.LSTM(4, 5), torch.nn.Linear(5, 2))
    tied = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    cases = {"views": views, "model": model.state_dict(), "tied": tied.state_dict(), "empty": {}}
    for name, state in cases.items():
        torch.save(state, tmp_path / name)
    rewrite(tmp_path, *(tmp_path / name for name in cases))
    for name, state in cases.items():
        assert_bits_equal(rewritten(tmp_path / name), dict(state))


def test_a_state_dict_inside_a_training_checkpoint_is_found(tmp_path):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    rest = {
        "epoch": 3,
        "optimizer": optimizer.state_dict(),
        "args": argparse.Namespace(lr=0.1, seed=2**70, path=pathlib.Path("x")),
        "history": [0.5, (1, None), {"a", "b"}, b"bytes", True],
        "best": torch.tensor(0.9),
        "rng": torch.get_rng_state(),
    }
    for protocol in (2, 4):
        for key in ("model", "state_dict", "model_state_dict"):
            torch.save({**rest, key: model.state_dict()}, tmp_path / f"{key}.{protocol}", pickle_protocol=protocol)
    torch.save({**rest, "net": model.state_dict()}, tmp_path / "net")
    found = [tmp_path / f"{key}.{protocol}" for protocol in (2, 4) for key in ("model", "state_dict", "model_state_dict")]
    rewrite(tmp_path, *found, tmp_path / "net")
    for path in found:
        assert_bits_equal(rewritten(path), dict(model.state_dict()))
    message = error_of(tmp_path / "net")
    assert "it holds: epoch (an integer), optimizer (a dict), args (a argparse.Namespace), history (a list)" in message
    assert "net (a dict)" in message


class Harmful:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*quant.*:UserWarning")
def test_what_is_no_state_dict_is_an_error_that_says_what_to_do_and_runs_nothing(tmp_path):
    model = torch.nn.Linear(3, 2)
    torch.save(model, tmp_path / "module")
    torch.save(torch.ones(3), tmp_path / "tensor")
    torch.save({"w": torch.ones(3), "hook": Harmful(tmp_path / "harm")}, tmp_path / "harmful")
    torch.save(model.state_dict(), tmp_path / "legacy", _use_new_zipfile_serialization=False)
    torch.jit.script(model).save(tmp_path / "script")
    torch.save({"w": torch.eye(3).to_sparse()}, tmp_path / "sparse")
    torch.save({"w": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)}, tmp_path / "quantized")
    torch.save({"w": torch.ones(2, dtype=torch.complex64).conj()}, tmp_path / "conjugate")
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("a/b.txt", "hello")
    with tarfile.open(tmp_path / "tar", "w") as archive:
        archive.add(tmp_path / "zip")
    (tmp_path / "pickle").write_bytes(pickle.dumps({"w": 1}))
    expected = {
        "module": "found a torch.nn.modules.linear.Linear, a whole Python object",
        "tensor": "expected a state dict, found a tensor",
        "harmful": "it holds: w (a tensor), hook (a posix.mkdir)",
        "legacy": "before PyTorch 1.6",
        "script": "TorchScript archive",
        "sparse": "tensor 'w': it is of a kind that is not read here (torch._utils._rebuild_sparse_tensor)",
        "quantized": "tensor 'w': it is of a kind that is not read here (torch._utils._rebuild_qtensor)",
        "conjugate": "tensor 'w': it is a conjugate or negative view",
        "zip": "was not written by torch.save",
        "tar": "before PyTorch 1.6",
        "pickle": "before PyTorch 1.6",
    }
    rewrite(tmp_path, *(tmp_path / name for name in expected))
    for name, part in expected.items():
        assert part in error_of(tmp_path / name)
    assert not (tmp_path / "harm").exists()


def test_a_changed_bit_of_torch_save_is_found(tmp_path):
    """In the tensors' bytes, which PyTorch itself loads without a word; in an archive without CRCs nobody can tell."""
    state = {"a": torch.randn(200), "b": torch.randn(30, 4)}
    torch.save(state, tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    place = whole.index(bits(state["b"])) + 100
    (tmp_path / "changed").write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
    assert not torch.equal(torch.load(tmp_path / "changed")["b"], state["b"])
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(state, tmp_path / "unchecked")
    finally:
        torch.serialization.set_crc32_options(True)
    rewrite(tmp_path, *(tmp_path / name for name in ("whole", "changed", "unchecked")))
    assert_bits_equal(rewritten(tmp_path / "whole"), state)
    assert_bits_equal(rewritten(tmp_path / "unchecked"), state)
    assert "is a damaged zip archive: member 'changed/data/1' was changed" in error_of(tmp_path / "changed").replace("whole/", "changed/")


def test_damaged_files_of_python_do_no_harm(tmp_path):
    """Cut short, bytes changed, and parts of the zip archive swapped; the program that reads them must not die."""
    source = random.Random(3)
    state = {"model": {"a": torch.randn(5, 3), "b": torch.randn(4).half()[1:], "c": torch.tensor(3)}, "epoch": 1}
    torch.save(state, tmp_path / "weights.pt")
    safetensors.torch.save_file({name: tensor.clone() for name, tensor in state["model"].items()}, tmp_path / "weights.st")
    paths = []
    for name in ("weights.pt", "weights.st"):
        whole = (tmp_path / name).read_bytes()
        for number in range(400):
            content = bytearray(whole)
            if number % 4 == 0:
                del content[source.randrange(len(content)) :]
            for _ in range(source.randrange(1, 5)):
                if content:
                    content[source.randrange(len(content))] = source.choice([0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)])
            if number % 7 == 0:
                place = source.randrange(len(content) + 1)
                content[place:place] = whole[: source.randrange(64)]
            paths.append(tmp_path / f"{name}.{number}")
            paths[-1].write_bytes(content)
    rewrite(tmp_path, *paths)
    for path in paths:
        assert pathlib.Path(f"{path}.error").exists() or pathlib.Path(f"{path}.safetensors").exists()


def test_what_the_reference_refuses_trainrun_refuses(tmp_path):
    """Headers changed one number at a time: the same verdict as the Rust reference's."""
    safetensors.torch.save_file({"a": torch.ones(2, 3), "b": torch.ones(5).half()}, tmp_path / "w")
    whole = (tmp_path / "w").read_bytes()
    paths = []
    for place in range(8 + int.from_bytes(whole[:8], "little")):
        for byte in b'0179"}],:{[ \x00\xff':
            content = bytearray(whole)
            content[place] = byte
            paths.append(tmp_path / f"w.{len(paths)}")
            paths[-1].write_bytes(content)
    rewrite(tmp_path, *paths)
    differences = []
    for path in paths:
        try:
            expected = set(safetensors.torch.load_file(path))
        except Exception:  # whatever the reference raises
            expected = None
        if pathlib.Path(f"{path}.error").exists() != (expected is None):
            differences.append((path.read_bytes()[:130], expected))
        elif expected is not None:
            assert set(rewritten(path)) == expected
    assert differences == []
