"""Training on the answers of chats, packed and not, whole and by LoRA, against loops over transformers and peft that see one conversation at a time."""

import json

import peft
import pytest
import safetensors.torch
import tokenizers
import torch
from torch.nn import functional

import reference
from chat_data_parity_test import packed
from chat_templates import CHATML
from language_models import ALL, GPT, LLAMA_3, VOCABULARY, LanguageModel
from probe import assert_same

STEPS, LR, MAX_LENGTH, BATCH = 20, 2e-3, 40, 4
MARKS = ["<pad>", "</s>", "<|im_start|>", "<|im_end|>", "user", "assistant", "\n"]
WORDS = [f"w{i}" for i in range(VOCABULARY - len(MARKS))]
RECIPE = """
version: 1
name: chat
seed: 3
model:
  layers: [{{type: {type}, pretrained: {folder}/{type}{settings}}}]
  adapters: {adapters}
loss: CausalLMLoss
dataset: {{train: {{type: Chat, path: {folder}/chats.jsonl, tokenizer: {folder}/tokenizer, max_length: 40, packing: {packing}}}}}
dataloader: {{batch_size: 4, shuffle: false}}
optimizer: {{type: AdamW, lr: 2e-3, eps: 1e-4}}
training: {{max_steps: 20}}
evaluation: {{every: null}}
checkpoint: {{every: 5, keep_last: null}}
"""
LORA = "{type: LoRA, r: 4, alpha: 16, target: [q_proj, v_proj]}"
[WINDOWS] = [model for model in ALL if str(model) == "Qwen2ForCausalLM_windows"]


def conversations() -> list[list[dict]]:
    generator = torch.Generator().manual_seed(12)

    def number(least: int, most: int) -> int:
        return int(torch.randint(least, most + 1, (), generator=generator))

    def text() -> str:
        return " ".join(WORDS[number(0, len(WORDS) - 1)] for _ in range(number(1, 4)))

    return [[{"role": ("user", "assistant")[i % 2], "content": text()} for i in range(2 * number(1, 2))] for _ in range(32)]


def encoded(chat: list[dict]) -> tuple[list[int], list[int]]:
    """Ids, and each one's label: itself in an answer, with what ends it."""
    vocabulary = {token: i for i, token in enumerate([*MARKS, *WORDS])}
    ids, labels = [], []
    for message in chat:
        head = [vocabulary[token] for token in ("<|im_start|>", message["role"], "\n")]
        said = [vocabulary[token] for token in [*message["content"].split(), "<|im_end|>", "\n"]]
        ids += head + said
        labels += [-100] * len(head) + (said if message["role"] == "assistant" else [-100] * len(said))
    return ids, labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    for model in (LLAMA_3, GPT, WINDOWS):
        model.saved(folder / model.type, **dict.fromkeys(model.dropout, 0.0))
    (folder / "tokenizer").mkdir()
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({token: i for i, token in enumerate([*MARKS, *WORDS])}, unk_token="<pad>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([tokenizers.pre_tokenizers.Split(" ", "removed"), tokenizers.pre_tokenizers.Split("\n", "isolated")])
    made.add_special_tokens(["<pad>", "</s>", "<|im_start|>", "<|im_end|>"])
    made.save(str(folder / "tokenizer/tokenizer.json"))
    (folder / "tokenizer/tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "pad_token": "<pad>", "chat_template": CHATML}))
    (folder / "chats.jsonl").write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in conversations()))
    return folder


def write_recipe(folder, packing: bool, adapters: str = "null", model: LanguageModel = LLAMA_3) -> str:
    path = folder / f"{model.type}_{packing}_{'lora' if 'LoRA' in adapters else 'full'}.yaml"
    settings = "".join(f", {name}: 0" for name in model.dropout)
    path.write_text(RECIPE.format(folder=folder, packing=str(packing).lower(), adapters=adapters, type=model.type, settings=settings))
    return str(path)


def batches(packing: bool) -> list[list[tuple]]:
    """The conversations of each batch."""
    chats = [encoded(chat) for chat in conversations()]
    samples = packed([len(ids) for ids, _ in chats], MAX_LENGTH) if packing else [[i] for i in range(len(chats))]
    assert not packing or len(samples) < len(chats) * 0.8
    rows = [[chats[i] for i in sample] for sample in samples]
    return [sum(rows[at:at + BATCH], []) for at in range(0, len(rows), BATCH)]


def loss_alone(model, batch) -> torch.Tensor:
    """The mean over all targets of a batch whose conversations the model reads one by one."""
    total, count = 0, 0
    for ids, labels in batch:
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1]
        following = torch.tensor(labels[1:])
        total = total + functional.cross_entropy(logits, following, ignore_index=-100, reduction="sum")
        count += int((following >= 0).sum())
    return total / count


def loss_packed(model, batch) -> torch.Tensor:
    """The same as transformers packs: one row, whose positions tell where conversations begin."""
    ids = torch.tensor([sum((ids for ids, _ in batch), [])])
    positions = torch.tensor([sum((list(range(len(ids))) for ids, _ in batch), [])])
    following = torch.tensor(sum((labels[1:] + [-100] for _, labels in batch), []))
    logits = model(input_ids=ids, position_ids=positions, use_cache=False).logits[0]
    return functional.cross_entropy(logits, following, ignore_index=-100)


def train_in_python(model, packing: bool, loss_of=loss_alone) -> list[float]:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, eps=1e-4)
    losses, parts = [], batches(packing)
    for step in range(STEPS):
        loss = loss_of(model, parts[step % len(parts)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("packing", [False, True], ids=["apart", "packed"])
def test_all_weights_learn_as_in_python(folder, tmp_path, packing):
    expected = train_in_python(LLAMA_3.make().train(), packing)
    lines, _ = reference.run_trainrun(write_recipe(folder, packing), tmp_path / "run")
    assert expected[-1] < 0.8 * expected[0]
    assert reference.losses_of(lines) == pytest.approx(expected, abs=1e-4)
    if packing:
        assert reference.losses_of(lines) == pytest.approx(train_in_python(LLAMA_3.make().train(), packing, loss_packed), abs=1e-4)


@pytest.mark.parametrize("packing", [False, True], ids=["apart", "packed"])
def test_adapters_learn_as_in_peft(folder, tmp_path, packing):
    lines, run = reference.run_trainrun(write_recipe(folder, packing, LORA), tmp_path / "run", "checkpoint={every: 1, keep_last: null}")
    first = safetensors.torch.load_file(run / "checkpoints/step-00000001/model.safetensors")
    peer = peft.get_peft_model(LLAMA_3.make(), peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"]))
    names = peft.get_peft_model_state_dict(peer)
    # After one step lora_A is what it was drawn as: lora_B was 0, so it had no gradient, and nothing decays at this rate.
    own = {name: tensor if "lora_B" in name else first[name.replace("base_model.model.", "")] for name, tensor in names.items()}
    peft.set_peft_model_state_dict(peer, own)
    assert reference.losses_of(lines) == pytest.approx(train_in_python(peer.train(), packing), abs=1e-4)


@pytest.mark.parametrize("model", [LLAMA_3, GPT, WINDOWS], ids=str)
def test_packing_changes_no_token_s_loss(folder, tmp_path, model):
    """All conversations in one batch: the mean over their tokens is the same, however they lie in it, and it is transformers'."""
    settings = ("dataloader.batch_size=32", "training.max_steps=1")
    found = [reference.losses_of(reference.run_trainrun(write_recipe(folder, packing, model=model), tmp_path / str(packing), *settings)[0]) for packing in (False, True)]
    with torch.no_grad():
        expected = loss_alone(model.make(**dict.fromkeys(model.dropout, 0.0)), [encoded(chat) for chat in conversations()]).item()
    assert found[0] == pytest.approx([expected], rel=1e-5)
    assert found[1] == pytest.approx([expected], rel=1e-5)


def test_without_the_numbers_of_the_mask_conversations_would_see_each_other(folder, tmp_path):
    """The test above can fail: a model that does not read the mask gives another loss."""
    path = write_recipe(folder, True, model=LLAMA_3)
    blind = tmp_path / "blind.yaml"
    with open(path) as file:
        blind.write_text(file.read().replace("LlamaForCausalLM, pretrained", "LlamaForCausalLM, fields: [input_ids], pretrained"))
    settings = ("dataloader.batch_size=32", "training.max_steps=1")
    seeing = reference.losses_of(reference.run_trainrun(path, tmp_path / "seeing", *settings)[0])
    assert abs(reference.losses_of(reference.run_trainrun(str(blind), tmp_path / "run", *settings)[0])[0] - seeing[0]) > 1e-3


@pytest.mark.parametrize("adapters", ["null", LORA], ids=["full", "lora"])
def test_a_resume_ends_in_the_same_bits_and_two_ranks_in_the_same_losses(folder, tmp_path, adapters):
    recipe = write_recipe(folder, True, adapters)
    shuffled = ("dataloader.shuffle=true",)
    lines, whole = reference.run_trainrun(recipe, tmp_path / "whole", *shuffled)
    rest, run = reference.run_trainrun(recipe, tmp_path / "rest", *shuffled, f"checkpoint.resume={whole}/checkpoints/step-00000010")
    assert reference.losses_of(rest) == reference.losses_of(lines)[10:]
    last = [safetensors.torch.load_file(each / "checkpoints/latest/model.safetensors") for each in (run, whole)]
    assert_same(last[0], last[1], "weights of the resumed run")
    two, _ = reference.run_trainrun(recipe, tmp_path / "two", *shuffled, "distributed_type=MULTI_CPU", "num_processes=2", "dataloader.batch_size=2")
    assert reference.losses_of(two) == pytest.approx(reference.losses_of(lines), abs=1e-4)


def test_what_is_cut_off_is_told(folder, tmp_path):
    _, run = reference.run_trainrun(write_recipe(folder, False), tmp_path / "run", "dataset.train.max_length=20", "training.max_steps=1")
    lengths = [len(encoded(chat)[0]) for chat in conversations()]
    cut = sum(length > 20 for length in lengths)
    assert 0 < cut < 32
    assert f"{cut} of 32 conversations are cut off at the max_length of 20 tokens" in (run / "log.txt").read_text()
