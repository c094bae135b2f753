"""A loss that takes autocast's bfloat16 as it is computes what one does that is given float32."""

import json
import os
import pathlib
import subprocess

import pytest

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The second loss takes float32 alone, so that the first, too, is given the output in float32; it adds nothing.
BESIDE = "[{type: CausalLMLoss, name: own}, {type: CausalLMLoss, name: other, label_smoothing: 0.1, loss_weight: 1.0e-30}]"


def losses(folder: pathlib.Path, loss: str, precision: str) -> list[float]:
    words = ["--quiet", "recipes/lora_chat.yaml", f"output_dir={folder}", f"loss={loss}", f"mixed_precision={precision}"]
    words += ["training.max_steps=8", "evaluation.every=null", "checkpoint={every: null, keep_best: null}"]
    words += ["logging={every_steps: 1, report_to: [jsonl]}"]
    subprocess.run([CALLED, *words], cwd=ROOT, check=True, env=dict(os.environ, OMP_NUM_THREADS="2"))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found = [line.get("train/loss/own", line["train/loss"]) for line in lines]
    assert len(found) == 8 and found[-1] < found[0]
    return found


def test_bits_are_those_of_a_float32_output(tmp_path):
    assert losses(tmp_path / "narrow", "CausalLMLoss", "bf16") == losses(tmp_path / "wide", BESIDE, "bf16")


def test_bfloat16_is_float32_but_for_its_digits(tmp_path):
    exact = losses(tmp_path / "exact", "CausalLMLoss", "no")
    assert losses(tmp_path / "narrow", "CausalLMLoss", "bf16") == pytest.approx(exact, rel=0.02)
