"""What models learn from what people prefer, beside DPO: messages as pairs, ORPO, SimPO, KTO and reward models. The losses over 20 steps are those of trl
1.16's formulas, written again below: ORPOTrainer.odds_ratio_loss, CPOTrainer.cpo_loss (simpo), KTOTrainer._compute_loss, RewardTrainer.compute_loss."""

import json
import re
import subprocess

import pytest
import torch
from torch.nn import functional

import reference
from probe import ProbeError, assert_same

from tests.program import CALLED

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")

from chat_templates import CHATML, MARKED, PUBLISHED, said  # noqa: E402
from generate_chat_parity_test import EOS, WORDS, save_tokenizer  # noqa: E402
from language_models import LLAMA_3, REWARD  # noqa: E402

STEPS, LR, SIZE, MAX_LENGTH = 20, 2e-3, 4, 14


def text(generator, least, most):
    length = int(torch.randint(least, most + 1, (), generator=generator))
    return " ".join(WORDS[3 + i] for i in torch.randint(len(WORDS) - 3, (length,), generator=generator))


def pairs():
    draw = torch.Generator().manual_seed(12)
    return [{"prompt": text(draw, 1, 6), "chosen": " " + text(draw, 1, 5), "rejected": " " + text(draw, 1, 12), "better": i / 8} for i in range(16)]


def judged():
    draw = torch.Generator().manual_seed(13)
    return [{"prompt": text(draw, 1, 6), "completion": " " + text(draw, 1, 11), "label": bool(i * 7 % 3)} for i in range(16)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alignment")
    for name, model in (("base", LLAMA_3), ("reward", REWARD)):
        model.saved(folder / name, pad_token_id=0)
        save_tokenizer(folder / name)
    for name, rows in (("pairs", pairs()), ("judged", judged())):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


# --- The same in Python


def ids_of(words):
    return [len(["<pad>", "<|im_start|>", "<|im_end|>", "</s>"]) + WORDS.index(word) for word in words.split()]


def padded(prompts, answers):
    """ids, mask and labels (not shifted) of prompts with their answers."""
    rows = [((p + a)[:MAX_LENGTH], ([-100] * len(p) + a)[:MAX_LENGTH]) for p, a in zip(prompts, answers, strict=True)]
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in rows])
    labels = torch.tensor([labels + [-100] * (longest - len(labels)) for _, labels in rows])
    mask = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in rows])
    return ids, mask, labels


def log_probabilities(model, batch, mean=False):
    ids, mask, labels = batch
    logits, labels = model(input_ids=ids, attention_mask=mask).logits[:, :-1], labels[:, 1:]
    each = logits.log_softmax(-1).gather(2, labels.clamp(min=0)[..., None])[..., 0] * (labels != -100)
    return each.sum(1) / ((labels != -100).sum(1) if mean else 1)


def nll(model, batch, labels):
    logits = model(input_ids=batch[0], attention_mask=batch[1]).logits[:, :-1]
    return functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())


def batches_of(rows, *keys):
    """Of each batch, for each key the ids, mask and labels of its answers."""
    for begin in range(0, len(rows), SIZE):
        part = rows[begin:begin + SIZE]
        prompts = [ids_of(row["prompt"]) for row in part]
        yield part, [padded(prompts, [ids_of(row[key]) + [EOS] for row in part]) for key in keys]


def orpo(model, _, part, chosen, rejected):
    good, bad = log_probabilities(model, chosen, mean=True), log_probabilities(model, rejected, mean=True)
    log_odds = (good - bad) - (torch.log1p(-good.exp()) - torch.log1p(-bad.exp()))
    whole = torch.where(chosen[1] == 1, chosen[0], -100)  # the prompt, too
    return nll(model, chosen, whole) - 0.3 * functional.logsigmoid(log_odds).mean()


def simpo(model, _, part, chosen, rejected, beta=2.0, gamma=1.0):
    logits = log_probabilities(model, chosen, mean=True) - log_probabilities(model, rejected, mean=True) - gamma / beta
    return -functional.logsigmoid(beta * logits).mean()


def cpo_simpo(model, _, part, chosen, rejected, beta=2.0, gamma=1.0):
    logits = beta * (log_probabilities(model, chosen, mean=True) - log_probabilities(model, rejected, mean=True) - gamma / beta)
    losses = -functional.logsigmoid(logits) * 0.9 - functional.logsigmoid(-logits) * 0.1
    return losses.mean() + 0.5 * nll(model, chosen, chosen[2])


def kto(model, frozen, part, own, beta=0.3, weights=(1.5, 0.7)):
    prompts = [ids_of(row["prompt"]) for row in part]
    answers = [ids_of(row["completion"]) + [EOS] for row in part]
    mismatched = padded(prompts, answers[-1:] + answers[:-1])
    with torch.no_grad():
        gain = log_probabilities(model, mismatched) - log_probabilities(frozen, mismatched)
        before = log_probabilities(frozen, own)
    kl = gain.mean().clamp(min=0)
    ratio = log_probabilities(model, own) - before
    good = torch.tensor([row["label"] for row in part])
    return torch.cat([weights[0] * (1 - torch.sigmoid(beta * (ratio[good] - kl))), weights[1] * (1 - torch.sigmoid(beta * (kl - ratio[~good])))]).mean()


def apo(model, frozen, part, own, beta=0.3):
    with torch.no_grad():
        before = log_probabilities(frozen, own)
    ratio = log_probabilities(model, own) - before
    good = torch.tensor([row["label"] for row in part])
    return torch.cat([1 - torch.sigmoid(beta * ratio[good]), torch.sigmoid(beta * ratio[~good])]).mean()


def scores(model, chosen, rejected):
    return [model(input_ids=batch[0], attention_mask=batch[1]).logits[:, 0] for batch in (chosen, rejected)]


def bradley_terry(model, _, part, chosen, rejected):
    good, bad = scores(model, chosen, rejected)
    return -functional.logsigmoid(good - bad).mean()


def bradley_terry_with_margin(model, _, part, chosen, rejected):
    good, bad = scores(model, chosen, rejected)
    margin = torch.tensor([row["better"] for row in part])
    return -functional.logsigmoid(good - bad - margin).mean() + 0.01 * ((good + bad) ** 2).mean()


def train_in_python(model, frozen, rows, keys, loss_of):
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, eps=1e-4)
    losses, batches = [], list(batches_of(rows, *keys))
    for step in range(STEPS):
        part, answers = batches[step % len(batches)]
        loss = loss_of(model, frozen, part, *answers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# --- Recipes

RECIPE = """
version: 1
name: alignment
seed: 3
model:
  layers:
    - {{type: Concat, name: input_ids, inputs: [{first}input_ids, {second}input_ids], dim: 0}}
    - {{type: Concat, name: attention_mask, inputs: [{first}attention_mask, {second}attention_mask], dim: 0}}
    - {{type: {model}, name: llama, inputs: [input_ids, attention_mask], fields: [input_ids, attention_mask], pretrained: {folder}}}
{models}
loss: {loss}
metrics: [{metric}]
dataset:
  train: &data {data}
  eval: *data
dataloader: {{batch_size: 4, shuffle: false}}
optimizer: {{type: AdamW, lr: 2e-3, eps: 1e-4}}
training: {{max_steps: 20}}
"""
PAIRS = {"first": "chosen_", "second": "rejected_", "model": "LlamaForCausalLM", "models": "", "rows": "pairs", "keys": ("chosen", "rejected")}
OF_PAIRS = "[llama, chosen_labels, rejected_labels]"
JUDGED = {"first": "", "second": "kl_", "model": "LlamaForCausalLM", "models": "models: {reference: {from: model}}", "rows": "judged", "keys": ("completion",)}
OF_JUDGED = "[llama, labels, kl_labels, label, reference]"
SCORED = PAIRS | {"model": "LlamaForSequenceClassification"}
REWARDS, JUDGMENTS = "PreferenceRewards, name: rewards, beta: ", "DesirableRewards, name: rewards, beta: 0.3, inputs: " + OF_JUDGED
LEARNT = {
    "orpo": (orpo, PAIRS, "ORPOLoss, beta: 0.3, inputs: [llama, chosen_labels, rejected_labels, chosen_input_ids, chosen_attention_mask]", REWARDS + "0.3, inputs: " + OF_PAIRS),
    "simpo": (simpo, PAIRS, "SimPOLoss, beta: 2, gamma: 1, inputs: " + OF_PAIRS, REWARDS + "2, inputs: " + OF_PAIRS),
    "cpo_simpo": (cpo_simpo, PAIRS, "SimPOLoss, beta: 2, gamma: 1, alpha: 0.5, label_smoothing: 0.1, inputs: " + OF_PAIRS, REWARDS + "2, inputs: " + OF_PAIRS),
    "kto": (kto, JUDGED, "KTOLoss, beta: 0.3, desirable_weight: 1.5, undesirable_weight: 0.7, inputs: " + OF_JUDGED, JUDGMENTS),
    "apo": (apo, JUDGED, "KTOLoss, beta: 0.3, loss_type: apo_zero_unpaired, inputs: " + OF_JUDGED, JUDGMENTS),
    "reward": (bradley_terry, SCORED, "BradleyTerryLoss, inputs: [llama]", "RewardScores, name: reward, inputs: [llama]"),
    "margin": (bradley_terry_with_margin, SCORED, "BradleyTerryLoss, center_rewards_coefficient: 0.01, inputs: [llama, margin]", "RewardScores, name: reward, inputs: [llama]"),
}


def write_recipe(folder, path, name):
    _, kind, loss, metric = LEARNT[name]
    model = "reward" if kind is SCORED else "base"
    data = {"pairs": f"{{type: PreferencePairs, path: {folder}/pairs.jsonl, tokenizer: {folder}/base, max_length: {MAX_LENGTH}{', margin: better' if name == 'margin' else ''}}}",
            "judged": f"{{type: DesirableAnswers, path: {folder}/judged.jsonl, tokenizer: {folder}/base, max_length: {MAX_LENGTH}}}"}[kind["rows"]]
    path.write_text(RECIPE.format(folder=folder / model, data=data, loss=f"{{type: {loss}}}", metric=f"{{type: {metric}}}",
                                  **{key: kind[key] for key in ("first", "second", "model", "models")}))
    return str(path)


def figures(name, model, frozen):
    """What trl logs of all rows, by the trained model."""
    _, kind, _, _ = LEARNT[name]
    rows = pairs() if kind["rows"] == "pairs" else judged()
    with torch.no_grad():
        if kind is JUDGED:
            own, mismatched = [], []
            for part, (batch,) in batches_of(rows, "completion"):
                prompts, answers = [ids_of(row["prompt"]) for row in part], [ids_of(row["completion"]) + [EOS] for row in part]
                own.append(log_probabilities(model, batch) - log_probabilities(frozen, batch))
                other = padded(prompts, answers[-1:] + answers[:-1])
                mismatched.append(log_probabilities(model, other) - log_probabilities(frozen, other))
            own, good = 0.3 * torch.cat(own), torch.tensor([row["label"] for row in rows])
            chosen, rejected = own[good].mean().item(), own[~good].mean().item()
            return {"rewards/chosen": chosen, "rewards/rejected": rejected, "rewards/margins": chosen - rejected, "rewards/kl": max(torch.cat(mismatched).mean().item(), 0)}
        if kind is SCORED:
            good, bad = (torch.cat(each) for each in zip(*[scores(model, *batch) for _, batch in batches_of(rows, *kind["keys"])], strict=True))
            return {"reward/accuracy": (good > bad).float().mean().item(), "reward/margin": (good - bad).mean().item(), "reward/mean_reward": torch.cat([good, bad]).mean().item()}
        beta = 0.3 if name == "orpo" else 2
        good, bad = (beta * torch.cat(each) for each in zip(*[[log_probabilities(model, b, mean=True) for b in batch] for _, batch in batches_of(rows, *kind["keys"])], strict=True))
        return {"rewards/chosen": good.mean().item(), "rewards/rejected": bad.mean().item(), "rewards/margins": (good - bad).mean().item(),
                "rewards/accuracies": (good > bad).float().mean().item()}


@pytest.mark.parametrize("name", LEARNT)
def test_losses_and_figures_are_those_of_trl(folder, tmp_path, name):
    loss_of, kind, _, _ = LEARNT[name]
    source = REWARD if kind is SCORED else LLAMA_3
    model, frozen = source.make(pad_token_id=0), source.make(pad_token_id=0)
    expected = train_in_python(model.train(), frozen, pairs() if kind["rows"] == "pairs" else judged(), kind["keys"], loss_of)
    lines, _ = reference.run_trainrun(write_recipe(folder, tmp_path / "recipe.yaml", name), tmp_path / "run")
    assert reference.losses_of(lines) == pytest.approx(expected, abs=1e-4)
    assert abs(expected[0] - expected[-1]) > 0.03
    last = [line for line in lines if line.get("split") == "eval"][-1]
    wanted = figures(name, model.eval(), frozen)
    assert {key: last["eval/" + key] for key in wanted} == pytest.approx(wanted, abs=1e-3)


def test_ranks_measure_together_how_far_the_model_has_moved(folder, tmp_path):
    """KTO's KL is the mean over ranks, as trl's KTOTrainer gathers it before it is cut off at 0, here in two ranks with two of the four answers of each batch."""
    model, frozen = LLAMA_3.make(pad_token_id=0).train(), LLAMA_3.make(pad_token_id=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, eps=1e-4)
    rows, beta, weights = judged(), 0.3, (1.5, 0.7)
    expected, own_kls = [], []
    for step in range(STEPS):
        whole = rows[step * SIZE % len(rows):][:SIZE]
        parts = []
        for rank in range(2):
            part = whole[rank::2]
            prompts, answers = [ids_of(row["prompt"]) for row in part], [ids_of(row["completion"]) + [EOS] for row in part]
            own, mismatched = padded(prompts, answers), padded(prompts, answers[-1:] + answers[:-1])
            with torch.no_grad():
                gain = log_probabilities(model, mismatched) - log_probabilities(frozen, mismatched)
                before = log_probabilities(frozen, own)
            parts.append((log_probabilities(model, own) - before, torch.tensor([row["label"] for row in part]), gain.mean()))
        kl = torch.stack([gain for _, _, gain in parts]).mean().clamp(min=0)
        own_kls.append([gain.clamp(min=0).item() for _, _, gain in parts])
        losses = [torch.where(good, weights[0] * (1 - torch.sigmoid(beta * (ratio - kl))), weights[1] * (1 - torch.sigmoid(beta * (kl - ratio)))).mean() for ratio, good, _ in parts]
        loss = sum(losses) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert max(abs(a - b) for a, b in own_kls) > 0.1  # a rank's own would be another
    lines, _ = reference.run_trainrun(write_recipe(folder, tmp_path / "recipe.yaml", "kto"), tmp_path / "run", "distributed_type=MULTI_CPU", "num_processes=2", "dataloader.batch_size=2")
    assert reference.losses_of(lines) == pytest.approx(expected, abs=1e-4)


# --- Messages


def by_trl(tokenizer, prompt, answers):
    """DPOTrainer._prepare_dataset of trl 1.16 for messages: tokenize_fn."""
    first = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
    wholes = [tokenizer.apply_chat_template(prompt + answer, return_dict=False) for answer in answers]
    assert all(whole[:len(first)] == first for whole in wholes)
    return first, *[whole[len(first):] for whole in wholes]


ASK, GOOD, BAD = said("w1 w2", system="w9"), said("x", "w3 w4")[1:], said("x", "w5 w6 w7 w8")[1:]
ROWS = [{"prompt": ASK, "chosen": GOOD, "rejected": BAD}, {"chosen": ASK + GOOD, "rejected": ASK + BAD}, {"prompt": "w1 w2", "chosen": ASK + GOOD, "rejected": ASK + BAD},
        {"prompt": ASK + said("x", "w1")[1:] + said("w2"), "chosen": BAD, "rejected": GOOD}]


@pytest.mark.parametrize("template", [CHATML, MARKED, PUBLISHED["zephyr"]], ids=["chatml", "marked", "zephyr"])
def test_messages_are_pairs_as_by_trl(probe, tmp_path, template):
    tokenizer = save_tokenizer(tmp_path, template)
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    rows = [by_trl(tokenizer, prompt, (row["chosen"][len(row["chosen"]) - 1:], row["rejected"][len(row["rejected"]) - 1:]))
            for row, prompt in zip(ROWS, [ASK, ASK, ASK, ROWS[3]["prompt"]], strict=True)]
    longest = max(len(row[0]) + max(len(row[1]), len(row[2])) for row in rows)
    _, found = probe.ask("dataset", spec={"type": "PreferencePairs", "path": str(tmp_path / "pairs.jsonl"), "tokenizer": str(tmp_path), "max_length": longest})
    expected = {}
    for which, answer in enumerate(("chosen", "rejected"), 1):
        ids = [row[0] + row[which] for row in rows]
        labels = [[-100] * (len(row[0]) - 1) + row[which] for row in rows]
        expected[f"{answer}_input_ids"] = torch.tensor([each + [0] * (longest - len(each)) for each in ids])
        expected[f"{answer}_attention_mask"] = torch.tensor([[1] * len(each) + [0] * (longest - len(each)) for each in ids])
        expected[f"{answer}_labels"] = torch.tensor([each + [-100] * (longest - len(each)) for each in labels])
    assert_same(found.under("output"), expected, "pairs of messages")


def test_what_texts_begin_with_alike_is_their_prompt(probe, folder, tmp_path):
    """As trl's extract_prompt, by characters: here within a word, "w3" and "w50", which the prompt then loses."""
    rows = [{"chosen": "w1 w2 w3", "rejected": "w1 w2 w50 w4"}]
    for name, given in (("implicit", rows), ("explicit", [{"prompt": "w1 w2", "chosen": " w3", "rejected": " w50 w4"}])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    found = [probe.ask("dataset", spec={"type": "PreferencePairs", "path": str(tmp_path / f"{name}.jsonl"), "tokenizer": str(folder / "base"), "max_length": 5})[1].under("output")
             for name in ("implicit", "explicit")]
    assert_same(found[0], found[1], "prompt")


@pytest.mark.parametrize("kind, row, message", [
    ("PreferencePairs", {"prompt": ASK, "chosen": GOOD, "rejected": "w1"}, ":1:rejected: expected a list of messages, found string"),
    ("PreferencePairs", {"prompt": ASK, "chosen": [{"role": "assistant"}], "rejected": BAD}, ":1:chosen[0]: expected an object with role and content"),
    ("PreferencePairs", {"chosen": GOOD, "rejected": BAD}, ":1:prompt: is empty, but an answer needs a message before it"),
    ("DesirableAnswers", {"prompt": "w1", "completion": "w2"}, ":1: has no key 'label'"),
    ("DesirableAnswers", {"prompt": "w1", "completion": "w2", "label": 2}, ":1:label: expected true or false, found 2"),
    ("DesirableAnswers", {"completion": GOOD, "label": True}, ":1: has no key 'prompt'"),
])
def test_a_row_that_cannot_be_read_is_named(probe, folder, tmp_path, kind, row, message):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(ProbeError, match=re.escape(message)):
        probe.ask("dataset", spec={"type": kind, "path": str(path), "tokenizer": str(folder / "base"), "max_length": 14})


def test_answers_that_are_cut_off_are_counted(folder, tmp_path):
    write_recipe(folder, tmp_path / "recipe.yaml", "simpo")
    done = subprocess.run([CALLED, "data", str(tmp_path / "recipe.yaml")], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    cut = sum(len(ids_of(row["prompt"])) + len(ids_of(row[key])) + 1 > MAX_LENGTH for row in pairs() for key in ("chosen", "rejected"))
    assert cut > 0 and f"{cut} of 32 answers are cut off at the max_length of {MAX_LENGTH} tokens" in " ".join(done.stdout.split())
