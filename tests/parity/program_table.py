"""The table of all shipped recipes as PyTorch programs, docs/python_programs.md: how far 50 steps of a program are from trainrun's.

    TRAINRUN_DATA=data python -B tests/parity/program_table.py FOLDER [PYTHON]    # keeps the programs in FOLDER
"""

import datetime
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tests.parity import stand_in_data  # noqa: E402
from tests.program import CALLED  # noqa: E402

STEPS = 50
FEW_SAMPLES = ["dataloader.batch_size=8", "dataloader.eval_batch_size=20", "dataset.eval.subset=40"]
FEW_PICTURES = ["dataloader.batch_size=2", "dataset.eval.subset=4"]
SHORT_TEXTS = ["dataloader.batch_size=1", "dataset.train.block_size=256", "dataset.eval.block_size=256"]
# What would take an hour otherwise is compared with smaller batches.
SMALLER = {
    "cifar10_onecycle": FEW_SAMPLES, "cifar10_resnet18": FEW_SAMPLES, "mnist_wide_cnn": FEW_SAMPLES, "mnist_wide_cnn_ddp": FEW_SAMPLES,
    "image_folder_finetune": FEW_PICTURES, "pets_resnet50": FEW_PICTURES, "gpt2_clm": SHORT_TEXTS, "gpt2_clm_fsdp": SHORT_TEXTS,
    "shakespeare_gpt": ["dataloader.batch_size=2"],
}
HEAD = """# Recipes as PyTorch programs

`trainrun export --format python --verify {steps}` of every shipped recipe: the largest difference of the losses of a step, relative to their size, between trainrun and the program
([how they are compared](guide/exporting.md#your-recipe-as-a-pytorch-program)). Made on {date} by `tests/parity/program_table.py`.
For want of the real data, these were small stand-ins of the same form: {made}.

| recipe | worst difference over {steps} steps | compared with |
|---|---|---|
"""


def compared(name: str, folder: pathlib.Path, python: str, environment: dict) -> tuple[str, str]:
    """The worst difference or the reason why there is none, and what was changed for the comparison."""
    command = [CALLED, "export", f"recipes/{name}.yaml", *SMALLER.get(name, []), "--format", "python", "--output", folder / f"{name}.py",
               "--verify", STEPS, "--python", python]
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, env=os.environ | environment, check=False)
    changes = re.findall(r"^compared with (.*)$", done.stdout, re.MULTILINE) + [word for word in SMALLER.get(name, []) if "eval" not in word]
    found = re.search(r"differ by at most (\S+), relative to their size: (.*)$", done.stdout, re.MULTILINE)
    if found:
        return found[1] + ("" if done.returncode == 0 else f": {found[2]}"), "; ".join(changes)
    return "refused: " + done.stderr.strip().splitlines()[0].replace("export --format python: ", "") if done.returncode == 2 else "fails: " + done.stderr[-300:], ""


def make_table(folder: pathlib.Path, python: str) -> list[str]:
    data = folder / "data"
    made = stand_in_data.make(data, pathlib.Path(os.environ["TRAINRUN_DATA"]))
    lines = []
    for recipe in sorted((ROOT / "recipes").glob("*.yaml")):
        found, changes = compared(recipe.stem, folder, python, {"TRAINRUN_DATA": str(data)})
        lines.append(f"| `{recipe.stem}` | {found} | {changes} |")
        print(lines[-1], flush=True)
    head = HEAD.format(steps=STEPS, date=datetime.date.today().isoformat(), made=", ".join(made) or "none")
    (ROOT / "docs/python_programs.md").write_text(head + "\n".join(lines) + "\n")
    return lines


if __name__ == "__main__":
    make_table(pathlib.Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else sys.executable)
