"""Makes what a job reads and no folder has, by the peers' Python: `peer_data.py images FOLDER COUNT SIZE`, or `gpt2 FOLDER TEXT`, or `where MODULE`, or `versions`."""

import importlib.util
import json
import pathlib
import sys


def images(folder: str, count: str, size: str) -> None:
    """Random pictures of ten classes; the same ones each time."""
    import numpy
    import PIL.Image

    random = numpy.random.default_rng(0)
    for number in range(int(count)):
        place = pathlib.Path(folder, str(number % 10))
        place.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(random.integers(0, 256, (int(size), int(size), 3), dtype=numpy.uint8)).save(place / f"{number:05}.png")


def gpt2(folder: str, text: str) -> None:
    """GPT-2's sizes with random weights, and a tokenizer of the text's own."""
    import tokenizers
    import torch
    import transformers

    torch.manual_seed(42)
    transformers.GPT2LMHeadModel(transformers.GPT2Config()).save_pretrained(folder)
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train([text], vocab_size=8000, show_progress=False)
    tokenizer.save(folder + "/tokenizer.json")


def where(module: str) -> None:
    """The folder of the checkpoint that a package carries, or nothing."""
    found = importlib.util.find_spec(module)
    for path in pathlib.Path(found.origin).parent.rglob("model.safetensors") if found else []:
        print(path.parent)


def versions(*names: str) -> None:
    import importlib.metadata

    def version(name: str) -> str | None:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return None

    print(json.dumps({"Python": sys.version.split()[0]} | {name: version(name) for name in names}))


{"images": images, "gpt2": gpt2, "where": where, "versions": versions}[sys.argv[1]](*sys.argv[2:])
