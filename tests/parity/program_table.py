"""The table of all shipped recipes as PyTorch programs, docs/python_programs.md: how far 50 steps of a program are from trainrun's.

    TRAINRUN_DATA=data python -B tests/parity/program_table.py FOLDER [--python PYTHON]    # keeps the programs in FOLDER

What FOLDER/rows.json holds of an earlier call is not compared again; a recipe that is not compared within --limit seconds is left for a later call.
"""

import argparse
import datetime
import json
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
WITHOUT_EVALUATION = ["evaluation.every=null", "checkpoint.keep_best=null"]
FEW_SAMPLES = ["dataloader.batch_size=8", *WITHOUT_EVALUATION]
FEW_PICTURES = ["dataloader.batch_size=2", *WITHOUT_EVALUATION]
SHORT_TEXTS = ["dataloader.batch_size=1", "dataset.train.block_size=256", "dataset.eval.block_size=256", *WITHOUT_EVALUATION]


def cropped(size: int) -> str:
    """Not resized: for the instructions that --verify asks for, torchvision resizes bytes as floats, and rounds one pixel in five otherwise."""
    return f"dataset.train.image_transforms=[{{type: CenterCrop, size: {size}}}]"


# What would take an hour otherwise is compared with smaller batches, rates that fit these where large ones diverge,
# and without the evaluation at the end.
SMALLER = {
    "cifar10_fast": FEW_SAMPLES, "cifar10_onecycle": [*FEW_SAMPLES, "optimizer.lr=6e-3", "scheduler.max_lr=6e-3"], "cifar10_resnet18": FEW_SAMPLES, "fashion_cnn": FEW_SAMPLES,
    "mnist_wide_cnn": FEW_SAMPLES, "mnist_wide_cnn_ddp": FEW_SAMPLES, "image_folder_finetune": [*FEW_PICTURES, cropped(48)],
    "pets_resnet50": [*FEW_PICTURES, cropped(96), "optimizer.lr=4e-5", "scheduler.max_lr=1e-3"],
    "gpt2_clm": SHORT_TEXTS, "gpt2_clm_fsdp": SHORT_TEXTS, "shakespeare_gpt": ["dataloader.batch_size=2", *WITHOUT_EVALUATION],
    "mrpc_bert": FEW_PICTURES, "mrpc_minilm": FEW_SAMPLES,
}
HEAD = """# Recipes as PyTorch programs

`trainrun export --format python --verify {steps}` of every shipped recipe: the largest difference of the losses of a step, relative to their size, between trainrun and the program
([how they are compared](guide/exporting.md#your-recipe-as-a-pytorch-program)). Made on {date} by `tests/parity/program_table.py`.
For want of the real data, these were small stand-ins of the same form: {made}. Of {count} recipes, {equal} are within 1e-5, {far} by more, {refused} are refused,
and {waiting} are written but were not compared yet.

| recipe | worst difference over {steps} steps | compared with |
|---|---|---|
"""

# What a reader asks who sees such rows.
TAIL = """
## shakespeare_gpt: the order of a sum

`clip_grad_norm_` adds up the squares of the parameters' norms in the order of the parameters. transformers' Llama has the norms of a block behind its attention and its MLP, trainrun has them in the order of computation: the gradient's
norm parts by its last bit (7.8477793 and 7.8477788 in the first step), and Muon, which computes in bfloat16, makes some 3e-4 of that in 50 steps. With the parameters sorted as trainrun's where they are clipped, the losses
of the same program are those of trainrun, bit for bit.

## Two recipes without their Resize

`--verify` has both sides compute by the instructions that every processor has (`ATEN_CPU_CAPABILITY=default`). For these, torchvision resizes bytes as floats and rounds them afterwards: one pixel in five is another than with AVX2,
where it resizes them as bytes, as trainrun always does. `pets_resnet50` parts by 1 % in the first step so; with torchvision's other way chosen, the loss of that step is trainrun's, bit for bit. Both recipes are therefore compared over crops.
"""


def compared(name: str, folder: pathlib.Path, python: str, environment: dict, limit: float | None) -> list[str] | None:
    """The worst difference or the reason why there is none, and what was changed for the comparison; None if it takes longer than `limit` seconds."""
    command = [CALLED, "export", f"recipes/{name}.yaml", *SMALLER.get(name, []), "--format", "python", "--output", folder / f"{name}.py",
               "--verify", STEPS, "--python", python]
    (folder / f"{name}.py").unlink(missing_ok=True)  # of an earlier call
    try:
        done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, env=os.environ | environment, timeout=limit,
                              check=False)
    except subprocess.TimeoutExpired:
        return None
    changes = re.findall(r"^compared with (.*)$", done.stdout, re.MULTILINE) + [word for word in SMALLER.get(name, []) if "eval" not in word and "keep_best" not in word]
    found = re.search(r"differ by at most (\S+), relative to their size: (.*)$", done.stdout, re.MULTILINE)
    if found:
        return [found[1] + ("" if done.returncode == 0 else f": {found[2]}"), "; ".join(changes)]
    if done.returncode == 2:
        return ["refused: " + done.stderr.strip().splitlines()[0].replace("export --format python: ", ""), ""]
    return ["fails: " + done.stderr[-300:], ""]


def make_table(folder: pathlib.Path, python: str, limit: float | None = None, only: list[str] | None = None) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    data, kept = folder / "data", folder / "rows.json"
    made = stand_in_data.make(data, pathlib.Path(os.environ["TRAINRUN_DATA"]))
    rows = json.loads(kept.read_text()) if kept.exists() else {}
    names = sorted(path.stem for path in (ROOT / "recipes").glob("*.yaml"))
    for name in names:
        if name in (only or names) and (only or name not in rows):
            found = compared(name, folder, python, {"TRAINRUN_DATA": str(data)}, limit)
            if found is None:
                print(f"{name}: not compared within {limit:g} s", flush=True)
                continue
            rows[name] = found
            kept.write_text(json.dumps(rows, indent=1))
            print(name, *found, flush=True)
    lines = ["| `{}` | {} | {} |".format(name, *rows.get(name, ["written, not compared yet", ""])) for name in names]
    far = sum("more than" in row[0] for row in rows.values())
    refused = sum(row[0].startswith(("refused", "fails")) for row in rows.values())
    head = HEAD.format(steps=STEPS, date=datetime.date.today().isoformat(), made=", ".join(made) or "none", count=len(names),
                       equal=len(rows) - far - refused, far=far, refused=refused, waiting=len(names) - len(rows))
    (ROOT / "docs/python_programs.md").write_text(head + "\n".join(lines) + "\n" + TAIL)
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--limit", type=float, help="seconds for one recipe")
    parser.add_argument("--only", nargs="+", help="recipes to compare, even if they were before")
    options = parser.parse_args()
    make_table(options.folder, options.python, options.limit, options.only)
