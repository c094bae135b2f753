"""ONNX files that trainrun wrote: checked by PyPI's onnx, run by onnxruntime, compared with what trainrun computes."""

import pathlib

import onnx
import onnxruntime
import torch

from probe import Probe, named

TOLERANCE = 1e-5  # of the largest number of an output
SEED = 7


class OnnxFile:
    """A file that the checker has passed; `path` may lie beside its weights."""

    def __init__(self, path: pathlib.Path):
        onnx.checker.check_model(str(path), full_check=True)
        self.model = onnx.load(str(path), load_external_data=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    @property
    def open_dimensions(self) -> dict[str, dict[int, str]]:
        """Of each input: the dimensions that may have any size, and what they are called."""
        return {value.name: {i: dim.dim_param for i, dim in enumerate(value.type.tensor_type.shape.dim) if not dim.HasField("dim_value")}
                for value in self.model.graph.input}

    def run(self, fields: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        names = {value.name for value in self.model.graph.input}
        outputs = self.session.run(None, {name: tensor.numpy() for name, tensor in fields.items() if name in names})
        for output, value in zip(outputs, self.model.graph.output, strict=True):
            dims = value.type.tensor_type.shape.dim
            assert len(dims) == output.ndim, f"{value.name} is {output.shape}, the file says {dims}"
            assert all(not dim.HasField("dim_value") or dim.dim_value == size for dim, size in zip(dims, output.shape, strict=True)), (
                f"{value.name} is {output.shape}, the file says {dims}")
        return [torch.from_numpy(output) for output in outputs]


def assert_close(found: list[torch.Tensor], expected: dict[str, torch.Tensor], what: str, tolerance: float = TOLERANCE):
    assert len(found) == len(expected)
    for i, output in enumerate(found):
        own = expected[str(i)]
        assert output.dtype == own.dtype and output.shape == own.shape, f"{what} {i}: {output.dtype} {output.shape}, not {own.dtype} {own.shape}"
        if not own.is_floating_point():
            assert torch.equal(output, own), f"{what} {i}"
            continue
        largest = own[own.isfinite()].abs().max().item() if own.isfinite().any() else 1
        torch.testing.assert_close(output, own, rtol=0, atol=tolerance * max(largest, 1e-6), equal_nan=True, msg=lambda text, i=i: f"{what} {i}: {text}")


def resized(tensor: torch.Tensor, sizes: dict[int, int], number: int) -> torch.Tensor:
    """The tensor, repeated or cut to these sizes; numbers of floating point are others, of the same sign."""
    for dim, size in sizes.items():
        times = -(-size // max(tensor.shape[dim], 1))
        tensor = torch.cat([tensor] * times, dim).narrow(dim, 0, size)
    if tensor.is_floating_point():
        tensor = tensor * (0.5 + torch.rand(tensor.shape, generator=torch.Generator().manual_seed(number)))
    return tensor.contiguous()


def with_one_value_each(fields: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What is unpooled to the same place, as from windows that overlap, is the same number, as after pooling: else either may stay."""
    values, places = fields["a"].flatten(2), fields["b"].flatten(2)
    plane = torch.zeros(*values.shape[:2], int(places.max()) + 1).scatter_(2, places, values)
    return fields | {"a": plane.gather(2, places).view_as(fields["a"])}


def batches_of(opened: dict[str, dict[int, str]], fields: dict[str, torch.Tensor], other_size, number: int) -> dict[str, torch.Tensor]:
    """The same with other sizes in the open dimensions: `other_size` says which, of a size and its name."""
    return {name: resized(tensor, {dim: other_size(tensor.shape[dim], called) for dim, called in opened.get(name, {}).items()}, number)
            for name, tensor in fields.items()}


# What open dimensions become, of which a layer may take some only: a window must fit, positions may end.
LONGER = [lambda size: 2 * size, lambda size: size + 1, lambda size: size - 1, lambda size: size // 2]


def check_layer(probe: Probe, folder: pathlib.Path, spec: dict, fields: dict[str, torch.Tensor], opened: dict[str, dict[int, str]] | None = None,
                **request) -> OnnxFile:
    """Writes the layer, and compares it for the fields, for other batches of one and of more samples, and for other lengths or sizes. `opened`: the open
    dimensions that the file must have; where they are not known, it is written once more, to see them."""
    path = folder / "model.onnx"
    request |= {"spec": spec, "seed": SEED, "path": str(path)}
    tolerance = request.pop("tolerance", TOLERANCE)
    file = None
    if opened is None:
        probe.ask("onnx", named("input", fields), **request)
        file = OnnxFile(path)
        opened = file.open_dimensions
    batches = {f"batch{i}": batches_of(opened, fields, lambda size, called, of=of: of if called == "batch" else size, i) for i, of in enumerate((1, 5))}
    if spec["type"].startswith("MaxUnpool"):
        batches = {name: with_one_value_each(own) for name, own in batches.items()}
    for change in LONGER:
        longer = batches_of(opened, fields, lambda size, called, change=change: 2 if called == "batch" else max(1, change(size)), 9)
        try:
            given = {name: tensor for batch, own in (batches | {"longer": longer}).items() for name, tensor in named(batch, own).items()}
            _, results = probe.ask("onnx", named("input", fields) | given, batches=[*batches, "longer"], **request)
        except Exception:  # noqa: BLE001, PERF203
            if change is LONGER[-1]:
                raise
            continue
        break
    file = file or OnnxFile(path)
    assert file.open_dimensions == opened
    assert_close(file.run(fields), results.under("evaluated"), "output", tolerance)
    for batch, own in (batches | {"longer": longer}).items():
        assert_close(file.run(own), results.under(batch), f"output of {batch}", tolerance)
    return file
