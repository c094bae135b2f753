"""DPO on pairs of answers, against a loop in PyTorch over transformers' Llama: with a frozen copy, and with peft's adapters switched off."""

import contextlib
import json
import math
import re
import subprocess

import peft
import pytest
import safetensors.torch
import tokenizers
import torch
import transformers
from torch.nn import functional

import reference
from language_models import LLAMA, LLAMA_3, QWEN, VOCABULARY
from probe import ProbeError, assert_same
from tests.program import CALLED

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

    return [{"prompt": text(1, 6), "chosen": " " + text(1, 5), "rejected": " " + text(1, 12)} for _ in range(16)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preference")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0, "</s>": 1, **{word: i + 2 for i, word in enumerate(WORDS)}}, unk_token="<pad>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["<pad>", "</s>"])
    for name, model in (("base", LLAMA_3), ("tied", QWEN)):
        model.saved(folder / name)
        made.save(str(folder / name / "tokenizer.json"))
        (folder / name / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "pad_token": "<pad>"}))
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs()))
    return folder


def write_recipe(folder, adapters: str, after: str = "") -> str:
    """`after`: layers between the model and the loss, the last of them called scores."""
    path = folder / f"{'lora' if 'LoRA' in adapters else 'full'}{'_more' if after else ''}.yaml"
    recipe = RECIPE.format(folder=folder, adapters=adapters)
    path.write_text(recipe.replace("/base}\n  adapters", f"/base}}\n{after}  adapters").replace("[llama, ", "[scores, ") if after else recipe)
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
    """`frozen()`: a context that gives the reference, which stays as it is: `model` without its adapters, or a copy."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, eps=1e-4)
    losses, rows = [], pairs()
    batches = [rows[first:first + 4] for first in range(0, len(rows), 4)]
    with torch.no_grad(), frozen() as reference_model:
        of_reference = [[log_probabilities(reference_model, batch, answer) for answer in ("chosen", "rejected")] for batch in batches]
    for step in range(STEPS):
        batch, before = batches[step % 4], of_reference[step % 4]
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


@pytest.mark.parametrize("model, saved", [(LLAMA_3, None), (LLAMA_3, ["lm_head"]), (LLAMA_3, ["embed_tokens", "lm_head"]), (QWEN, None), (QWEN, ["lm_head"]),
                                          (QWEN, ["embed_tokens"])], ids=lambda value: "_".join(value) if isinstance(value, list) else str(value))
def test_adapters_learn_and_the_reference_is_the_model_without_them_as_in_peft(folder, tmp_path, model, saved):
    """What modules_to_save trains, the reference has as it was, also where it shared its weight with another layer."""
    recipe = tmp_path / "r.yaml"
    text = RECIPE.format(folder=folder, adapters=ADAPTERS if saved is None else ADAPTERS.replace("]}", f"], modules_to_save: {saved}}}"))
    recipe.write_text(text if model is LLAMA_3 else text.replace("LlamaForCausalLM", model.type).replace("/base", "/tied"))
    lines, run = reference.run_trainrun(str(recipe), tmp_path / "run", "checkpoint={every: 1, keep_last: null}")
    first = safetensors.torch.load_file(run / "checkpoints/step-00000001/model.safetensors")
    peer = peft.get_peft_model(model.make(), peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"], modules_to_save=saved))
    with torch.no_grad():
        for name, parameter in peer.named_parameters():
            # After one step lora_A is what it was drawn as: lora_B was 0, so it had no gradient, and nothing decays at this rate.
            if "lora_A" in name:
                parameter.copy_(first[name.replace("base_model.model.", "llama.").replace(".default", "")])

    @contextlib.contextmanager
    def without_adapters():
        with peer.disable_adapter():
            yield peer

    expected = train_in_python(peer.train(), without_adapters)
    assert expected[0] == pytest.approx(math.log(2), rel=1e-5) and expected[-1] < 0.6
    assert reference.losses_of(lines) == pytest.approx(expected, abs=1e-4)


DROPOUT_LAYER = "    - {type: Dropout, name: scores, p: 0.5}\n"
DROPOUTS = [("null", "", ["model.layers[2].attention_dropout=0.5"]), ("null", DROPOUT_LAYER, []),
            (ADAPTERS.replace("r: 4", "r: 4, dropout: 0.5"), "", ["model.layers[2].attention_dropout=0.5"])]


@pytest.mark.parametrize("adapters, after, dropout", DROPOUTS, ids=["attention", "layer", "adapters"])
def test_dropout_is_off_unless_asked_for(folder, tmp_path, adapters, after, dropout):
    """As trl's disable_dropout: the losses are those of a model that has no dropout, from ln 2 on."""
    few = ["training.max_steps=5", "checkpoint.every=null"]
    without = re.sub("dropout: [^,]*, ", "", adapters)
    plain, _ = reference.run_trainrun(write_recipe(folder, without), tmp_path / "plain", *few)
    off, _ = reference.run_trainrun(write_recipe(folder, adapters, after), tmp_path / "off", *few, *dropout)
    assert reference.losses_of(off)[0] == pytest.approx(math.log(2), abs=1e-6)
    assert reference.losses_of(off) == pytest.approx(reference.losses_of(plain), abs=1e-6)
    on, _ = reference.run_trainrun(write_recipe(folder, adapters, after), tmp_path / "on", *few, *dropout, "loss.disable_dropout=false")
    assert abs(reference.losses_of(on)[0] - math.log(2)) > 1e-3


def test_a_batch_norm_learns_its_statistics_without_dropout(folder, tmp_path):
    """Only what draws at random is as in evaluation."""
    normed = ("    - {type: Permute, dims: [0, 2, 1]}\n    - {type: BatchNorm1d, name: norm}\n"
              "    - {type: Permute, name: scores, dims: [0, 2, 1]}\n")
    _, run = reference.run_trainrun(write_recipe(folder, "null", normed), tmp_path / "run", "training.max_steps=2", "checkpoint.every=1")
    saved = safetensors.torch.load_file(run / "checkpoints/latest/model.safetensors")
    assert saved["norm.num_batches_tracked"] == 2 and saved["norm.running_mean"].abs().max() > 0


MERGES = ["a payment", "the payment", "he paying", "pay me", "I pay", "payment now", "repayment", "now or later", "paying", "he pays", "ment"]
BORDERS = [{"prompt": "he pay", "chosen": "ment", "rejected": " now"}, {"prompt": "I pay", "chosen": " me", "rejected": "ing now"},
           {"prompt": "now or later?", "chosen": " later", "rejected": ""}, {"prompt": "pay", "chosen": " me</s>", "rejected": " nobody at all"}]


@pytest.fixture(scope="module")
def merging(tmp_path_factory):
    """A byte-level BPE with a token before each text, as Llama 3's, which merges across the end of a prompt."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.train_from_iterator(MERGES * 5, tokenizers.trainers.BpeTrainer(vocab_size=330, special_tokens=["<s>", "</s>", "<pad>"],
                                                                        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    folder = tmp_path_factory.mktemp("merging")
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "bos_token": "<s>", "pad_token": "<pad>"}))
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in BORDERS))
    return folder, transformers.PreTrainedTokenizerFast.from_pretrained(folder)


def fields_of(rows, pad, longest):
    """Fields of rows, each of the prompt's ids and the two answers'."""
    fields = {}
    for which, answer in enumerate(["chosen", "rejected"], 1):
        ids = [(row[0] + row[which])[:longest] for row in rows]
        labels = [([-100] * (len(row[0]) - 1) + row[which])[:longest - 1] for row in rows]
        fields[f"{answer}_input_ids"] = torch.tensor([each + [pad] * (longest - len(each)) for each in ids])
        fields[f"{answer}_attention_mask"] = torch.tensor([[1] * len(each) + [0] * (longest - len(each)) for each in ids])
        fields[f"{answer}_labels"] = torch.tensor([each + [-100] * (longest - len(each)) for each in labels])
    return fields


def by_trl(tokenizer, pair):
    """DPOTrainer._prepare_dataset of trl 1.16 for texts: tokenize_fn after add_eos."""
    prompt = tokenizer(text=pair["prompt"])["input_ids"]
    wholes = [tokenizer(text=pair["prompt"] + pair[answer] + ("" if pair[answer].endswith("</s>") else "</s>"))["input_ids"] for answer in ("chosen", "rejected")]
    length = min(next((i for i, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), min(len(prompt), len(whole))) for whole in wholes)
    return prompt[:length], wholes[0][length:], wholes[1][length:]


def apart(tokenizer, pair):
    return [tokenizer(text=pair[key], add_special_tokens=False)["input_ids"] + ([1] if key != "prompt" else []) for key in ("prompt", "chosen", "rejected")]


@pytest.mark.parametrize("tokenize, by_peer", [(None, by_trl), ("together", by_trl), ("apart", apart)])
@pytest.mark.parametrize("max_length", [None, 6])
def test_prompts_and_answers_are_tokenized_as_by_trl(probe, merging, tokenize, by_peer, max_length):
    folder, tokenizer = merging
    rows = [by_peer(tokenizer, pair) for pair in BORDERS]
    longest = max_length or max(len(row[0]) + max(len(row[1]), len(row[2])) for row in rows)
    spec = {"type": "PreferencePairs", "path": str(folder / "pairs.jsonl"), "tokenizer": str(folder), "max_length": longest}
    _, found = probe.ask("dataset", spec=spec | ({"tokenize": tokenize} if tokenize else {}))
    assert_same(found.under("output"), fields_of(rows, tokenizer.pad_token_id, longest), "pairs")
    assert by_peer is apart or any(len(row[0]) < len(tokenizer(text=pair["prompt"])["input_ids"]) for row, pair in zip(rows, BORDERS, strict=True))


def test_prompts_that_lose_their_end_are_counted(merging, tmp_path):
    folder, tokenizer = merging
    lost = sum(len(by_trl(tokenizer, pair)[0]) < len(tokenizer(text=pair["prompt"])["input_ids"]) for pair in BORDERS)
    recipe = tmp_path / "r.yaml"
    recipe.write_text(f"""
version: 1
model: {{layers: [{{type: Embedding, inputs: [chosen_input_ids], num_embeddings: 330, embedding_dim: 4}}, {{type: Linear, out_features: 330}},
                  {{type: Permute, name: scores, dims: [0, 2, 1]}}]}}
loss: {{type: CrossEntropyLoss, inputs: [scores, chosen_labels]}}
dataset: {{train: {{type: PreferencePairs, path: {folder}/pairs.jsonl, tokenizer: {folder}, max_length: 32}}}}
dataloader: {{batch_size: 4}}
optimizer: {{type: SGD, lr: 0.1}}
training: {{max_steps: 1}}
""")
    for more, count in (([], lost), (["dataset.train.tokenize=apart"], 0)):
        done = subprocess.run([CALLED, "data", str(recipe), *more], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        found = re.search(r"(\d) of 4 prompts end within a token that continues into an answer", " ".join(done.stdout.split()))
        assert (int(found.group(1)) if found else 0) == count and lost > 0


@pytest.mark.parametrize("adapters", ["null", ADAPTERS, ADAPTERS.replace("]}", "], modules_to_save: [lm_head]}")], ids=["full", "lora", "saved"])
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
    ('{"prompt": 3, "chosen": "w2", "rejected": "w3"}', "pairs.jsonl:1:prompt: expected a string, found number"),
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


def test_a_model_with_adapters_begins_where_its_reference_is_bit_for_bit(tmp_path):
    """Whatever is computed as one in the reference is so in the model, too: the first loss is ln 2."""
    done = subprocess.run([CALLED, "recipes/dpo_tiny.yaml", "training={max_steps: 1, num_epochs: null}", f"output_dir={tmp_path}/run", "evaluation.every=null",
                           "logging={every_steps: 1, report_to: [jsonl]}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[0])
    assert first["train/loss"] == torch.tensor(2.0).log().item()
