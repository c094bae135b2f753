"""`trainrun generate` as the tests call it, models of transformers for it, and recipes of models that generate."""

import json
import pathlib
import subprocess

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")

from language_models import (  # noqa: E402
    GPT, LLAMA, LLAMA_3, QWEN, QWEN_3, VOCABULARY, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
    decoder,
)
from tests.program import CALLED  # noqa: E402

NEW = 50
MISTRAL = decoder(MistralForCausalLM, MistralConfig, LLAMA | {"sliding_window": 5})
GROUPED = decoder(LlamaForCausalLM, LlamaConfig, LLAMA)
GPT_LONG = decoder(GPT.kind, GPT.config, GPT.settings | {"n_positions": 80})
MODELS = [GPT_LONG, GROUPED, LLAMA_3, QWEN, QWEN_3, MISTRAL]
LENGTHS = [9, 1, 4, 12]


def prompts(lengths=LENGTHS):
    generator = torch.Generator().manual_seed(11)
    return [torch.randint(0, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


def trainrun(*arguments, stdin=None, fails=False):
    given = None if stdin is None else stdin.encode()
    done = subprocess.run([CALLED, *map(str, arguments)], capture_output=True, input=given, timeout=600, check=False)  # bytes: a text may hold \r
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return (done.stderr if fails else done.stdout).decode()


def generated(folder: pathlib.Path, model, texts, *options):
    """The lines of the output file for prompts of these tokens."""
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"input_ids": text}) + "\n" for text in texts))
    trainrun("generate", model, "--prompts", folder / "prompts.jsonl", "--output", folder / "out.jsonl", *options)
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def greedy(peer, text, count=NEW):
    with torch.no_grad():
        ids = peer.generate(torch.tensor([text]), attention_mask=torch.ones(1, len(text)).long(), do_sample=False, max_new_tokens=count, pad_token_id=0)
    return ids[0, len(text):].tolist()


BLOCKS = """
version: 1
name: blocks
seed: 3
model:
  blocks:
    block:
      inputs: [x]
      layers:
        - {type: LayerNorm, name: ln_1}
        - {type: MultiheadAttention, name: attn, num_heads: 4, is_causal: true, batch_first: true}
        - {type: Add, name: x_1, inputs: [x, attn]}
        - {type: LayerNorm, name: ln_2}
        - {type: Linear, name: c_fc, out_features: 64}
        - {type: GELU, name: gelu}
        - {type: Linear, name: c_proj, out_features: 32}
        - {type: Add, name: x_2, inputs: [x_1, c_proj]}
  layers:
    - {type: Embedding, name: wte, num_embeddings: 99, embedding_dim: 32}
    - POSITIONS
    - LAYERS
    - {type: Linear, name: lm_head, out_features: 99}
  init: [{match: 'weight$', type: Normal, std: 0.3}]
loss: CausalLMLoss
dataset: {train: {type: TokenFile, path: none.bin, block_size: 40}}
optimizer: AdamW
training: {max_steps: 1}
"""
WRITTEN = {
    "blocks": ("{type: PositionalEncoding, name: wpe, encoding: learned, max_len: 40, dropout: 0, batch_first: true}",
               "{type: block, name: h, repeat: 2}"),
    "sinusoidal": ("{type: PositionalEncoding, name: wpe, max_len: 40, dropout: 0, batch_first: true}",
                   "{type: TransformerEncoder, name: h, nhead: 4, num_layers: 2, dim_feedforward: 48, batch_first: true, is_causal: true, norm_first: true}"),
}
FALLING_BACK = {
    "recurrent": ("Identity", "{type: LSTM, name: h, hidden_size: 24, batch_first: true}", "LSTM"),
    "not_causal": ("Identity", "{type: MultiheadAttention, name: h, num_heads: 4, batch_first: true}", "MultiheadAttention"),
}


CHARACTERS = """
version: 1
name: characters
seed: 4
model:
  blocks:
    block:
      inputs: [x]
      layers:
        - {type: LayerNorm, name: ln_1, bias: false}
        - {type: MultiheadAttention, name: attn, num_heads: 4, is_causal: true, batch_first: true, bias: false}
        - {type: Add, name: x_1, inputs: [x, attn]}
        - {type: LayerNorm, name: ln_2, bias: false}
        - {type: Linear, name: c_fc, out_features: 128, bias: false}
        - {type: GELU, name: gelu}
        - {type: Linear, name: c_proj, out_features: 32, bias: false}
        - {type: Add, name: x_2, inputs: [x_1, c_proj]}
  layers:
    - {type: Embedding, name: wte, num_embeddings: 27, embedding_dim: 32}
    - {type: PositionalEncoding, name: wpe, encoding: learned, max_len: 16, dropout: 0, batch_first: true}
    - {type: block, name: h, repeat: 2}
    - {type: LayerNorm, name: ln_f, bias: false}
    - {type: Linear, name: lm_head, out_features: 27, bias: false, share: wte}
loss: CausalLMLoss
dataset:
  train: {type: TextLM, path: PATH, block_size: 16}
  eval: {type: TextLM, path: PATH, block_size: 16}
dataloader: {batch_size: 16}
optimizer: {type: AdamW, lr: 1e-2}
training: {max_steps: 12}
evaluation: {every: 4}
"""
LETTERS = "abcdefghijklmnopqrstuvwxyz "


def characters_recipe(folder, callbacks=""):
    generator = torch.Generator().manual_seed(0)
    words = ["".join(LETTERS[i] for i in torch.randint(0, 26, (4,), generator=generator)) for _ in range(20)]
    order = torch.randint(0, 20, (800,), generator=generator)
    (folder / "text.txt").write_text("abcdefghijklmnopqrstuvwxyz " + " ".join(words[i] for i in order))
    path = folder / "recipe.yaml"
    path.write_text(CHARACTERS.replace("PATH", str(folder / "text.txt")) + callbacks)
    return str(path)
