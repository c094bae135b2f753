"""The data set TensorFile reads what NumPy and safetensors wrote."""

import zipfile

import numpy as np
import pytest
import safetensors.torch
import torch

from dataset_reading import USED, error_of, read, save
from probe import ProbeError, assert_same, missing_rows


@pytest.fixture
def arrays():
    random = np.random.default_rng(0)
    return {"image": random.integers(0, 256, (7, 3, 4, 5), dtype=np.uint8), "label": random.integers(0, 3, 7),
            "weight": random.standard_normal((7, 2))}


def given(name, array):
    """What a field of this array is given as."""
    if array.dtype == np.uint8 and name != "label":
        return torch.from_numpy(array).float() / 255
    if array.dtype == bool and name != "label":
        return torch.from_numpy(array)
    if array.dtype.kind == "f":
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="))).float()
    return torch.from_numpy(array.astype(np.int64))


@pytest.mark.parametrize("kind", ["npz", "deflated npz", "safetensors"])
def test_all_tensors_of_a_file_are_fields_the_target_last(probe, tmp_path, arrays, kind):
    path = tmp_path / "data"
    if kind == "safetensors":
        safetensors.torch.save_file({k: torch.from_numpy(v) for k, v in arrays.items()}, path)
    else:
        with open(path, "wb") as file:
            (np.savez if kind == "npz" else np.savez_compressed)(file, **arrays)
    fields, reply = read(probe, {"type": "TensorFile", "path": str(path)})
    assert_same(fields, {k: given(k, v) for k, v in arrays.items()}, kind)
    assert reply["fields"][-1] == reply["target"] == "label"

    named = {"type": "TensorFile", "path": str(path), "fields": {"input": "weight", "label": "label"}, "num_classes": 3}
    fields, reply = read(probe, named)
    assert_same(fields, {"input": given("x", arrays["weight"]), "label": given("label", arrays["label"])}, kind)
    assert reply["fields"] == ["input", "label"]  # (the probe sorts keys)
    assert "class 2 is not from 0 to 1" in error_of(probe, named | {"num_classes": 2})
    assert "there is no tensor 'wieght'; did you mean weight?" in error_of(probe, named | {"fields": {"x": "wieght", "label": "label"}})
    assert "target: there is no field 'y'" in error_of(probe, named | {"target": "y"})


def test_masks_stay_masks_and_only_images_are_scaled(probe, tmp_path):
    random = np.random.default_rng(2)
    arrays = {"image": random.integers(0, 256, (5, 3, 4, 4), dtype=np.uint8), "mask": random.integers(0, 2, (5, 4, 4), dtype=np.uint8),
              "flags": random.integers(0, 256, (5, 6), dtype=np.uint8), "padding": random.random((5, 6)) < 0.5,
              "label": random.random(5) < 0.5}
    path = tmp_path / "data.safetensors"
    safetensors.torch.save_file({k: torch.from_numpy(v) for k, v in arrays.items()}, path)
    spec = {"type": "TensorFile", "path": str(path)}
    whole = {k: torch.from_numpy(v.astype(np.int64)) for k, v in arrays.items()} | {"padding": torch.from_numpy(arrays["padding"])}
    scaled = {k: torch.from_numpy(arrays[k]).float() / 255 for k in arrays}
    assert_same(read(probe, spec)[0], whole | {"image": scaled["image"]}, "by default")
    assert_same(read(probe, spec | {"images": []})[0], whole, "no images")
    chosen = {"x": "flags", "again": "flags", "mask": "mask", "label": "label"}  # a signal of bytes, the model's input
    signals = {"x": scaled["flags"], "again": scaled["flags"], "mask": whole["mask"], "label": whole["label"]}
    assert_same(read(probe, spec | {"fields": chosen})[0], signals, "the first field and those of its shape")
    assert_same(read(probe, spec | {"images": ["mask", "flags"]})[0], whole | {k: scaled[k] for k in ("mask", "flags")}, "chosen")
    assert "images: there is no field 'imag'; did you mean image?" in error_of(probe, spec | {"images": ["imag"]})
    assert "images: field 'padding' holds Bool, not bytes (uint8)" in error_of(probe, spec | {"images": ["padding"]})
    assert "images: there is no field 'y'" in error_of(
        probe, spec | {"fields": {"x": "flags", "label": "label"}, "images": ["y"]})


@pytest.mark.parametrize("dtype", "<f2 <f4 <f8 >f4 >f8 >i2 >u4 |i1 |u1 <i2 <i4 <i8 <u2 <u4 <u8 |b1 =f4".split())
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_dtype_of_npy_is_read(probe, tmp_path, dtype, order):
    random = np.random.default_rng(1)
    array = np.array(random.integers(0, 2 if dtype == "|b1" else 100, (4, 2, 3)).astype(dtype), order=order)
    fields = {"x": save(tmp_path, "x", array), "y": save(tmp_path, "y", array[:, 0, 0].astype(np.int64))}
    read_fields, _ = read(probe, {"type": "TensorFile", "fields": fields, "target": "y"})
    assert_same(read_fields, {"x": given("x", array), "y": given("y", array[:, 0, 0].astype(np.int64))}, dtype)


def test_npy_of_every_version_and_of_no_elements(probe, tmp_path):
    y = save(tmp_path, "y", np.zeros(2, np.int64))
    for version in [(1, 0), (2, 0), (3, 0)]:
        with open(tmp_path / "x.npy", "wb") as file:
            np.lib.format.write_array(file, np.arange(6.0).reshape(2, 3), version=version)
        fields, _ = read(probe, {"type": "TensorFile", "fields": {"x": str(tmp_path / "x.npy"), "y": y}, "target": "y"})
        assert fields["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    fields, _ = read(probe, {"type": "TensorFile", "fields": {"x": save(tmp_path, "e", np.zeros((2, 0))), "y": y}, "target": "y"})
    assert fields["x"].shape == (2, 0)


def test_a_damaged_tensor_file_is_an_error_that_names_it(probe, tmp_path):
    whole = save(tmp_path, "x", np.arange(12, dtype=np.float32).reshape(4, 3))
    content = open(whole, "rb").read()
    y = save(tmp_path, "y", np.zeros(4, np.int64))
    cases = {
        "short": (content[:-1], "has 47 bytes of data, but its shape and type need 48"),
        "long": (content + b"x", "has 49 bytes of data"),
        "header": (content[:60], "ends within the header"),
        "magic": (b"x" + content, "expected a .safetensors, .npy or .npz file"),
        "empty": (b"", "expected a .safetensors, .npy or .npz file"),
        "six": (content[:6], "ends within the header"),
        "version": (content.replace(b"NUMPY\x01", b"NUMPY\x09"), "is of version 9"),
        "dict": (content.replace(b"'shape'", b"'shapo'"), "'shapo' is unknown"),
        "negative": (content.replace(b"(4, 3)", b"(-4,3)"), "a size is not a number"),
        "huge": (content.replace(b"(4, 3), }" + b" " * 20, b"(4000000000000, 30000000000), }"[:29].ljust(29)), ""),
        "record": (content.replace(b"'<f4'", b"[('a'"), "records of several fields"),
        "text": (content.replace(b"'<f4'", b"'<U4'"), "holds numbers of type '<U4'"),
    }
    for name, (damaged, expected) in cases.items():
        path = tmp_path / f"{name}.npy"
        path.write_bytes(damaged)
        message = error_of(probe, {"type": "TensorFile", "fields": {"x": str(path), "y": y}, "target": "y"})
        assert expected in message and str(path) in message
    objects = save(tmp_path, "objects", np.array([{}, None, 1, 2], dtype=object))
    assert "holds Python objects" in error_of(probe, {"type": "TensorFile", "fields": {"x": objects, "y": y}, "target": "y"})
    three = save(tmp_path, "three", np.zeros((3, 2)))
    assert "field 'y' has 4 samples, but 'x' has 3" in error_of(
        probe, {"type": "TensorFile", "fields": {"x": three, "y": y}, "target": "y"})
    scalar = save(tmp_path, "scalar", np.zeros(()))
    assert "is a single number" in error_of(probe, {"type": "TensorFile", "fields": {"x": scalar, "y": y}, "target": "y"})
    assert "must name a file" in error_of(probe, {"type": "TensorFile"})
    assert "No such file" in error_of(probe, {"type": "TensorFile", "path": str(tmp_path / "none.npz")})


def test_a_damaged_npz_file_is_an_error_and_no_crash(probe, tmp_path, arrays):
    rng = np.random.default_rng(5)
    for compressed in (False, True):
        path = tmp_path / "w.npz"
        (np.savez_compressed if compressed else np.savez)(path, **arrays)
        whole = path.read_bytes()
        silent = 0
        for number in range(150):
            content = bytearray(whole)
            if number % 3 == 0:
                del content[rng.integers(len(content)):]
            else:
                content[rng.integers(len(content))] ^= 1 << rng.integers(8)
            path.write_bytes(content)
            try:
                fields, _ = read(probe, {"type": "TensorFile", "path": str(path)})
                assert_same(fields, {k: given(k, v) for k, v in arrays.items()}, "a change in what is not read")
                silent += 1
            except ProbeError as error:
                assert str(path) in str(error)
        assert silent < 60
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "x")
    assert "is a zip archive, but not an .npz file: it holds 'readme.txt'" in error_of(probe, {"type": "TensorFile", "path": str(path)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("x.npy", "x" * 100)
    assert "compressed by method 12" in error_of(probe, {"type": "TensorFile", "path": str(path)})


def test_every_parameter_of_tensor_files_has_a_test(probe):
    known = {"TensorFile": probe.ask("catalog")["dataset"]["TensorFile"]}
    # In dataset_parts_parity_test.py and table_targets_parity_test.py.
    elsewhere = {f"TensorFile.{name}" for name in ("split", "subset", "sequences", "padding")}
    assert missing_rows(known, USED, ignored=elsewhere) == []
