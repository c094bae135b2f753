"""DPO on pairs of answers, against a loop in PyTorch over transformers' Llama: with a frozen copy, and with peft's adapters switched off."""

import contextlib
import json
import re

import peft
import pytest
import safetensors.torch
import tokenizers
import torch
from torch.nn import functional

import reference
from language_models import LLAMA, LLAMA_3, VOCABULARY
from probe import ProbeError, assert_same

assert LLAMA["vocab_size"] == VOCABULARY
STEPS, BETA, LR, MAX_LENGTH = 20, 0.3, 2e-3, 14
WORDS = [f"w{i}" for i in range(VOCABULARY - 2)]
RECIPE = """
version: 1
name: preference
seed: 3
model:
  layers:
    - {{type: Concat, name: input_ids, inputs: [chosen_input_ids, rejected_input_ids], dim: 0}}
    - {{type: Concat, name: attention_mask, inputs: [chosen_attention_mask, rejected_attention_mask], dim: 0}}
    - {{type: LlamaForCausalLM, name: llama, inputs: [input_ids, attention_mask], fields: [input_ids, attention_mask], pretrained: {folder}/base}}
  adapters: {adapters}
models: {{reference: {{from: model}}}}
loss: {{type: DPOLoss, beta: 0.3, inputs: [llama, chosen_labels, rejected_labels, reference]}}
dataset: {{train: {{type: PreferencePairs, path: {folder}/pairs.jsonl, tokenizer: {folder}/base, max_length: 14}}}}
dataloader: {{batch_size: 4, shuffle: false}}
optimizer: {{type: AdamW, lr: 2e-3, eps: 1e-4}}
training: {{max_steps: 20}}
evaluation: {{every: null}}
checkpoint: {{every: 5, keep_last: null}}
"""
ADAPTERS = "{type: LoRA, r: 4, alpha: 16, target: [q_proj, v_proj]}"


def pairs() -> list[dict[str, str]]:
    generator = torch.Generator().manual_seed(12)

    def text(least: int, most: int) -> str:
        length = int(torch.randint(least, most + 1, (), generator=generator))
        return " ".join(WORDS[i] for i in torch.randint(len(WORDS), (length,), generator=generator))

    return [{"prompt": text(1, 6), "chosen": text(1, 5), "rejected": text(1, 12)} for _ in range(16)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preference")
    LLAMA_3.saved(folder / "base")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0, "</s>": 1, **{word: i + 2 for i, word in enumerate(WORDS)}}, unk_token="<pad>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["<pad>", "</s>"])
    made.save(str(folder / "base/tokenizer.json"))
    (folder / "base/tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "pad_token": "<pad>"}))
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs()))
    return folder


def write_recipe(folder, adapters: str) -> str:
    path = folder / f"{'lora' if 'LoRA' in adapters else 'full'}.yaml"
    path.write_text(RECIPE.format(folder=folder, adapters=adapters))
    return str(path)


def ids_of(text: str) -> list[int]:
    return [WORDS.index(word) + 2 for word in text.split()]


def log_probabilities(model, batch: list[dict[str, str]], answer: str) -> torch.Tensor:
    """Of each pair's answer, text by text, without padding."""
    sums = []
    for pair in batch:
        prompt = ids_of(pair["prompt"])
        ids = (prompt + ids_of(pair[answer]) + [1])[:MAX_LENGTH]
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        each = logits[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
        sums.append(each[len(prompt) - 1:].sum())
    return torch.stack(sums)


def train_in_python(model, frozen) -> list[float]:
    """`frozen()`: a context in which `model` is the reference, or None and the reference."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, eps=1e-4)
    losses, rows = [], pairs()
    for step in range(STEPS):
        batch = rows[4 * (step % 4):4 * (step % 4) + 4]
        with torch.no_grad(), frozen() as reference_model:
            before = [log_probabilities(reference_model, batch, answer) for answer in ("chosen", "rejected")]
        now = [log_probabilities(model, batch, answer) for answer in ("chosen", "rejected")]
        loss = -functional.logsigmoid(BETA * ((now[0] - before[0]) - (now[1] - before[1]))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_all_weights_learn_beside_a_frozen_copy_as_in_python(folder, tmp_path):
    model, copy = LLAMA_3.make(), LLAMA_3.make()
    expected = train_in_python(model.train(), lambda: contextlib.nullcontext(copy))
    lines, _ = reference.run_trainrun(write_recipe(folder, "null"), tmp_path / "run")
    assert expected[0] == pytest.approx(0.6931472, rel=1e-5) and expected[-1] < 0.3
    assert reference.losses_of(lines) == pytest.approx(expected, abs=1e-4)


def test_adapters_learn_and_the_reference_is_the_model_without_them_as_in_peft(folder, tmp_path):
    recipe = write_recipe(folder, ADAPTERS)
    lines, run = reference.run_trainrun(recipe, tmp_path / "run", "checkpoint={every: 1, keep_last: null}")
    first = safetensors.torch.load_file(run / "checkpoints/step-00000001/model.safetensors")
    peer = peft.get_peft_model(LLAMA_3.make(), peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"]))
    names = peft.get_peft_model_state_dict(peer)
    # After one step lora_A is what it was drawn as: lora_B was 0, so it had no gradient, and nothing decays at this rate.
    own = {name: tensor if "lora_B" in name else first[name.replace("base_model.model.", "llama.")] for name, tensor in names.items()}
    peft.set_peft_model_state_dict(peer, own)

    @contextlib.contextmanager
    def without_adapters():
        with peer.disable_adapter():
            yield peer

    expected = train_in_python(peer.train(), without_adapters)
    assert reference.losses_of(lines) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("adapters", ["null", ADAPTERS], ids=["full", "lora"])
def test_a_resume_ends_in_the_same_bits_and_two_ranks_in_the_same_losses(folder, tmp_path, adapters):
    recipe = write_recipe(folder, adapters)
    lines, whole = reference.run_trainrun(recipe, tmp_path / "whole")
    rest, run = reference.run_trainrun(recipe, tmp_path / "rest", f"checkpoint.resume={whole}/checkpoints/step-00000010")
    assert reference.losses_of(rest) == reference.losses_of(lines)[10:]
    last = [safetensors.torch.load_file(each / "checkpoints/latest/model.safetensors") for each in (run, whole)]
    assert_same(last[0], last[1], "weights of the resumed run")
    two, _ = reference.run_trainrun(recipe, tmp_path / "two", "distributed_type=MULTI_CPU", "num_processes=2", "dataloader.batch_size=2")
    assert reference.losses_of(two) == pytest.approx(reference.losses_of(lines), abs=1e-4)


@pytest.mark.parametrize("row, message", [
    ("{", "pairs.jsonl:1: is not JSON"),
    ("[1]", "pairs.jsonl:1: expected an object"),
    ('{"prompt": "w1", "chosen": "w2"}', "pairs.jsonl:1: has no key 'rejected'"),
    ('{"prompt": 3, "chosen": "w2", "rejected": "w3"}', "pairs.jsonl:1:prompt: expected a text, found number"),
    ('{"prompt": " ", "chosen": "w2", "rejected": "w3"}', "pairs.jsonl:1:prompt: is empty, but an answer needs a token before it"),
    ('{"prompt": "' + "w1 " * 14 + '", "chosen": "w2", "rejected": "w3"}', "pairs.jsonl:1:chosen: its prompt alone has 14 tokens, and max_length is 14"),
    ("", "pairs.jsonl: has no rows"),
])
def test_a_row_that_is_no_pair_is_named(folder, tmp_path, probe, row, message):
    path = tmp_path / "pairs.jsonl"
    path.write_text(row + "\n")
    with pytest.raises(ProbeError, match=re.escape(message)):
        probe.ask("dataset", spec={"type": "PreferencePairs", "path": str(path), "tokenizer": str(folder / "base"), "max_length": 14})


def test_adapters_cannot_be_taken_off_a_sharded_model(probe, folder):
    with pytest.raises(ProbeError, match="with FSDP no rank has the whole model to take the adapters off"):
        probe.ask("model", recipe=write_recipe(folder, ADAPTERS), overrides=["distributed_type=FSDP"])
