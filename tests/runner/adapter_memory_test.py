"""What adapters are for: the memory that training needs is predicted by `explain`, and measured from outside."""

import json
import re
import subprocess

import pytest

from tests.program import BINARY, CALLED, peak_memory

RECIPE = """\
version: 1
name: memory
model:
  layers:
    - {type: LlamaForCausalLM, vocab_size: 1000, hidden_size: 512, intermediate_size: 1536, num_hidden_layers: 12, num_attention_heads: 8, max_position_embeddings: 64}
  adapters: {type: LoRA, r: 8, target: ['q_proj$', 'v_proj$']}
loss: CausalLMLoss
dataset: {train: {type: TextLM, path: text.txt, tokenizer: characters, block_size: 64}}
dataloader: {batch_size: 1}
optimizer: {type: AdamW, lr: 1e-3}
training: {max_steps: 3}
checkpoint: {every: null}
logging: {report_to: []}
"""
SMALL = "model={layers: [{type: LlamaForCausalLM, vocab_size: 1000, hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 1}]}"
ALL = "model.adapters=null"


def predicted(folder, *overrides: str) -> float:
    """In bytes, as `explain` says it: "memory about 209 MB at batch size 1"."""
    done = subprocess.run([CALLED, "explain", "recipe.yaml", *overrides], cwd=folder, capture_output=True, text=True, check=True)
    number, unit = re.search(r"^memory +about ([0-9.]+) ([kMG])B", done.stdout, re.MULTILINE).groups()
    return float(number) * {"k": 1e3, "M": 1e6, "G": 1e9}[unit]


def peak(folder, *overrides: str) -> int:
    """The most resident bytes of a process that trains."""
    return peak_memory([BINARY, "--quiet", "recipe.yaml", *overrides], cwd=folder)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "text.txt").write_text("All that glisters is not gold. " * 100)
    return tmp_path


def test_lora_needs_the_memory_that_is_predicted_and_a_third_of_full_fine_tuning(folder):
    without = peak(folder, SMALL)
    measured = {"LoRA": peak(folder) - without, "all": peak(folder, ALL) - without}
    foreseen = {"LoRA": predicted(folder), "all": predicted(folder, ALL)}
    print(json.dumps({"measured": measured, "predicted": foreseen}))
    for name, bytes_needed in measured.items():
        assert bytes_needed == pytest.approx(foreseen[name], rel=0.25), name
    assert measured["LoRA"] < measured["all"] / 3
