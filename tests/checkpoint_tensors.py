"""What the checkpoints of a run hold, for tests that compare two runs."""

import pathlib

from safetensors.torch import load_file


def tensors_of(folder: pathlib.Path) -> dict:
    """Of every checkpoint of a run, by file and name."""
    found = {}
    for path in sorted(folder.glob("checkpoints/step-*/*.safetensors")):
        found |= {f"{path.parent.name}/{path.name}: {name}": tensor for name, tensor in load_file(path).items()}
    return found
