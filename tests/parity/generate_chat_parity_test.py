"""`trainrun generate --chat` against transformers: conversations written by the model's chat template, single and in batches, at a terminal, of runs that
trained adapters or preferences; and where an answer ends."""

import json
import subprocess

import pytest
import torch

import reference

from tests.program import CALLED

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")

import tokenizers  # noqa: E402
from chat_templates import CHATML, PUBLISHED, said  # noqa: E402
from generate_parity_test import generated, trainrun  # noqa: E402
from language_models import GPT, LLAMA, LLAMA_3, MistralConfig, MistralForCausalLM, QWEN, QWEN_3, VOCABULARY, decoder  # noqa: E402

FAMILIES = [decoder(GPT.kind, GPT.config, GPT.settings | {"n_positions": 120}), LLAMA_3, QWEN, QWEN_3,
            decoder(MistralForCausalLM, MistralConfig, LLAMA | {"sliding_window": 5})]
NEW = 24
SPECIAL = ["<pad>", "<|im_start|>", "<|im_end|>", "</s>"]
EOS = 3
WORDS = ["user", "assistant", "system"] + [f"w{i}" for i in range(VOCABULARY - len(SPECIAL) - 3)]
CHATS = [said("w1 w2"), said("w3", "w4 w5 w6", "w7 w8 w9 w1", system="w2 w2"), said("w9", "w1", "w10"), said("w4 w4 w4 w4 w4 w4 w4 w4 w4", system="w5")]


def save_tokenizer(folder, template=CHATML, end=2, **config):
    """Whole words; `end`: the number of <|im_end|>, which changes places with the token that has it."""
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *WORDS])}
    other = next(token for token, number in vocabulary.items() if number == end)
    vocabulary[other], vocabulary["<|im_end|>"] = 2, end
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<pad>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(SPECIAL)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "pad_token": "<pad>", "chat_template": template} | config))
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


def asked(tokenizer, chats):
    """Filled up on the left, as transformers wants them."""
    tokenizer.padding_side = "left"
    return tokenizer.apply_chat_template(chats, add_generation_prompt=True, padding=True, return_dict=True, return_tensors="pt")


def answers(peer, tokenizer, chats, end, count=NEW):
    """The tokens of each answer, without the one that ends it, of all chats in one batch."""
    batch = asked(tokenizer, chats)
    with torch.no_grad():
        ids = peer.generate(**batch, do_sample=False, max_new_tokens=count, pad_token_id=0, eos_token_id=end or None)
    rows = ids[:, batch["input_ids"].shape[1]:].tolist()
    return [row[:next((i for i, token in enumerate(row) if token in end), count)] for row in rows]


def of_chats(folder, model, chats, *options):
    (folder / "chats.jsonl").write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    trainrun("generate", model, "--prompts", folder / "chats.jsonl", "--output", folder / "out.jsonl", "--max-new-tokens", NEW, *options)
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("model", FAMILIES, ids=str)
def test_greedy_answers_are_those_of_transformers(tmp_path, model):
    """In a batch, filled up on the left, and each alone; the template's end of turn ends an answer, whatever eos is."""
    peer = model.saved(tmp_path / "peer")
    likely = answers(peer, save_tokenizer(tmp_path / "peer"), CHATS, [])
    for end in sorted({token for row in likely for token in row if token > EOS}):  # one that comes before long
        tokenizer = save_tokenizer(tmp_path / "peer", end=end)
        expected = answers(peer, tokenizer, CHATS[:1], [end, EOS])
        if 0 < len(expected[0]) < NEW:
            break
    expected = answers(peer, tokenizer, CHATS, [end, EOS])
    assert min(map(len, expected)) < NEW
    assert [answers(peer, tokenizer, [chat], [end, EOS])[0] for chat in CHATS] == expected
    for options in ([], ["--batch-size", 1], ["--batch-size", 3, "--no-cache"]):
        lines = of_chats(tmp_path, tmp_path / "peer", CHATS, *options)
        assert [line["tokens"] for line in lines] == expected, options
        assert [line["finish"] for line in lines] == ["length" if len(tokens) == NEW else "end" for tokens in expected]
    for line, chat, tokens in zip(lines, CHATS, expected, strict=True):
        assert line["messages"] == [*chat, {"role": "assistant", "content": tokenizer.decode(tokens, skip_special_tokens=True)}]
        assert "prompt" not in line


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    peer = LLAMA_3.saved(folder)
    return folder, peer, save_tokenizer(folder)


MARKS = {"llama_2": "</s>", "llama_3": "<|eot_id|>", "llama_3_1": "<|eot_id|>", "mistral": "</s>", "chatml": "<|im_end|>", "qwen_2_5": "<|im_end|>",
         "qwen_3": "<|im_end|>", "gemma": "<end_of_turn>", "zephyr": "</s>", "phi_3": "<|end|>", "deepseek_v2": "</s>", "deepseek_r1": "</s>"}
OTHERS = ["<s>", "<|im_start|>", "<|start_header_id|>", "<|end_header_id|>", "<start_of_turn>", "<|system|>", "<|user|>", "<|assistant|>"]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_templates_ask_as_in_transformers_and_end_at_their_end_of_turn(tmp_path, name):
    special = ["<pad>", *OTHERS, *sorted(set(MARKS.values()))]
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.train_from_iterator(["a few words"], tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=special, show_progress=False,
                                                                              initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="<pad>", chat_template=PUBLISHED[name])
    tokenizer.save_pretrained(tmp_path)
    peer = LLAMA_3.make(vocab_size=len(tokenizer))
    end = tokenizer.convert_tokens_to_ids(MARKS[name])
    with torch.no_grad():
        peer.lm_head.weight[end] = 0
    peer.save_pretrained(tmp_path)
    chats = [said("Who is it?"), said("Hello", "Hi.", "And now?")]
    for often in (False, True):
        expected = answers(peer, tokenizer, chats, [end], count=NEW)
        lines = of_chats(tmp_path, tmp_path, chats)
        assert [line["tokens"] for line in lines] == expected
        if often:
            assert expected == [[], []] and {line["finish"] for line in lines} == {"end"}
            return
        with torch.no_grad():  # the end comes at once: its logit is that of the likeliest token, and a little more
            batch = asked(tokenizer, chats)
            first = peer(**batch).logits[:, -1]
            hidden = peer.model(**batch).last_hidden_state[:, -1]
            peer.lm_head.weight[end] = torch.linalg.lstsq(hidden, (first.max(1).values + 5)[:, None]).solution[:, 0]
        peer.save_pretrained(tmp_path)


def test_a_prompt_is_what_the_user_says(llama, tmp_path):
    folder, peer, tokenizer = llama

    def answer(chat):
        return tokenizer.decode(answers(peer, tokenizer, [chat], [2, EOS])[0], skip_special_tokens=True)

    options = ["--chat", "--max-new-tokens", NEW]
    assert trainrun("generate", folder, "--prompt", "w1 w2", *options) == answer(said("w1 w2")) + "\n"
    assert trainrun("generate", folder, "--prompt", "w1", "--system", "w9 w8", *options) == answer(said("w1", system="w9 w8")) + "\n"
    several = trainrun("generate", folder, "--prompt", "w1", "--prompt", "w2 w3", *options)
    assert several == f"{answer(said('w1'))}\n---------------\n{answer(said('w2 w3'))}\n"
    rows = [{"prompt": "w1"}, {"prompt": said("w5", system="w6")}, {"messages": said("w7")}, {"input_ids": [5, 6]}]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    trainrun("generate", folder, "--prompts", tmp_path / "prompts.jsonl", "--output", tmp_path / "out.jsonl", "--system", "w4", *options)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines[:3]] == [answer(said("w1", system="w4")), answer(said("w5", system="w6")), answer(said("w7", system="w4"))]
    assert "messages" not in lines[3] and lines[3]["prompt"]


def test_a_conversation_goes_on_line_by_line(llama):
    folder, peer, tokenizer = llama

    def talk(*lines, system=None):
        chat, printed = [] if system is None else [{"role": "system", "content": system}], ""
        for line in lines:
            chat.append({"role": "user", "content": line})
            chat.append({"role": "assistant", "content": tokenizer.decode(answers(peer, tokenizer, [chat], [2, EOS])[0], skip_special_tokens=True)})
            printed += chat[-1]["content"] + "\n"
        return printed

    options = ["--chat", "--max-new-tokens", NEW]
    first = trainrun("generate", folder, *options, stdin="w1 w2\n\n  w3\nw4 w5\n")
    assert first == talk("w1 w2", "w3", "w4 w5")
    assert trainrun("generate", folder, *options, stdin="w1 w2\n/reset\nw4 w5\n/exit\nw3\n") == talk("w1 w2") + talk("w4 w5")
    assert trainrun("generate", folder, *options, "--system", "w8", stdin="w1\nw2") == talk("w1", "w2", system="w8")
    drawn = [trainrun("generate", folder, *options, "--temperature", 2, "--seed", seed, stdin="w1\nw2\n") for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_what_cannot_be_a_conversation_is_said(llama, tmp_path):
    folder, _, _ = llama

    def error(*arguments, stdin=""):
        return trainrun("generate", *arguments, stdin=stdin, fails=True)

    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": said("w1", "w2")}) + "\n")
    assert "chats.jsonl:1: the last message is the assistant's" in error(folder, "--prompts", tmp_path / "chats.jsonl")
    assert "--system is for conversations" in error(folder, "--prompt", "w1", "--system", "w2")
    assert "--output is for --prompt and --prompts" in error(folder, "--chat", "--output", tmp_path / "o.jsonl")
    assert "a conversation goes on from one answer" in error(folder, "--chat", "--num-samples", 2)
    bare = tmp_path / "bare"
    LLAMA_3.saved(bare)
    assert "no tokenizer and chat template" in error(bare, "--chat", "--prompt", "w1")
    (bare / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    assert "there is no chat_template.jinja" in error(bare, "--chat", "--prompt", "w1")
    (tmp_path / "own.jinja").write_text(CHATML)
    given = trainrun("generate", bare, "--chat", "--prompt", "w1", "--template", tmp_path / "own.jinja", "--max-new-tokens", 5)
    assert given == trainrun("generate", folder, "--chat", "--prompt", "w1", "--max-new-tokens", 5)


CHAT = """
version: 1
name: chat
model:
  layers: [{{type: LlamaForCausalLM, pretrained: {folder}}}]
  adapters: {{type: LoRA, r: 4, target: ['_proj$']}}
loss: CausalLMLoss
dataset: {{train: {{type: Chat, path: {data}/chats.jsonl, tokenizer: {folder}, system: w3, max_length: 64}}}}
dataloader: {{batch_size: 4}}
optimizer: {{type: AdamW, lr: 1e-2}}
training: {{max_steps: 3}}
evaluation: {{every: null}}
"""
DPO = """
version: 1
name: dpo
model:
  layers:
    - {{type: Concat, name: input_ids, inputs: [chosen_input_ids, rejected_input_ids], dim: 0}}
    - {{type: Concat, name: attention_mask, inputs: [chosen_attention_mask, rejected_attention_mask], dim: 0}}
    - {{type: LlamaForCausalLM, name: llama, inputs: [input_ids, attention_mask], fields: [input_ids, attention_mask], pretrained: {folder}}}
  adapters: {{type: LoRA, r: 4, target: ['_proj$']}}
models: {{reference: {{from: model}}}}
loss: {{type: DPOLoss, inputs: [llama, chosen_labels, rejected_labels, reference]}}
dataset: {{train: {{type: PreferencePairs, path: {data}/pairs.jsonl, tokenizer: {folder}, max_length: 64}}}}
dataloader: {{batch_size: 4}}
optimizer: {{type: AdamW, lr: 1e-2}}
training: {{max_steps: 3}}
evaluation: {{every: null}}
"""


@pytest.mark.parametrize("recipe, system", [(CHAT, "w3"), (DPO, None)], ids=["lora", "dpo"])
def test_runs_of_adapters_and_of_preferences_answer_as_their_exports_do(llama, tmp_path, recipe, system):
    folder, _, tokenizer = llama
    chats = [said(f"w{i}", f"w{i + 1} w{i + 2}") for i in range(8)]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    pairs = [{"prompt": chat[:1], "chosen": chat[1:], "rejected": said("x", "w50")[1:]} for chat in chats]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    (tmp_path / "recipe.yaml").write_text(recipe.format(folder=folder, data=tmp_path))
    reference.run_trainrun(str(tmp_path / "recipe.yaml"), tmp_path / "run")
    trainrun("export", tmp_path / "run", "--format", "huggingface", "--output", tmp_path / "trained")
    peer = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "trained").eval()
    asked_ = [said("w1 w2", system=system), said("w9", "w1", "w7", system=system)]
    expected = answers(peer, tokenizer, asked_, [2, EOS])
    lines = of_chats(tmp_path, tmp_path / "run", [[m for m in chat if m["role"] != "system"] for chat in asked_])
    assert [line["tokens"] for line in lines] == expected
    assert [line["messages"][:-1] for line in lines] == asked_


@pytest.mark.parametrize("template, warns", [
    ("{% for m in messages %}<|im_start|> {{ m.role }} {% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %} "
     "<|im_end|> {% endfor %}{% if add_generation_prompt %}<|im_start|> assistant {% endif %}", True),
    (CHATML, False)], ids=["masked", "learnt"])
def test_the_data_page_warns_where_the_end_of_a_turn_is_never_learnt(tmp_path, template, warns):
    LLAMA_3.saved(tmp_path / "llama")
    save_tokenizer(tmp_path / "llama", template)
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps({"messages": said(f"w{i}", f"w{i + 1} w{i + 2}")}) + "\n" for i in range(8)))
    (tmp_path / "recipe.yaml").write_text(CHAT.format(folder=tmp_path / "llama", data=tmp_path))
    done = subprocess.run([CALLED, "data", str(tmp_path / "recipe.yaml")], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert ("never learnt: <|im_end|>" in " ".join(done.stdout.split())) == warns
