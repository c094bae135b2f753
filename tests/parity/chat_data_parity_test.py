"""The data set Chat: tokens and labels of transformers' apply_chat_template, its mask of answers, and packing."""

import gzip
import json
import random
import re

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")

import pyarrow  # noqa: E402
import pyarrow.parquet  # noqa: E402
import tokenizers  # noqa: E402

from chat_templates import CHATML, CLOCK, CONVERSATIONS, LLAMA_3_1, MARKED, MARKED_LINES, PUBLISHED, QWEN_2_5, WEATHER, said  # noqa: E402
from probe import ProbeError, assert_same, missing_rows  # noqa: E402

USED = []  # what the tests below say of the data set: every parameter must be among it
MARKS = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>",
         "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
WORDS = ["Hello", "hello", "what", "is", "the", "weather", "\n", "\n\n", " ", "in", "Zürich", "日本", "?", "!", "I", "don't", "know", "...", "12", "345", "A\tb", "é", "😀"]


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    """A tokenizer whose tokens run over the borders of what templates put together."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=500, special_tokens=MARKS, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
                                             show_progress=False)
    made.train_from_iterator([content(random.Random(i), 30) for i in range(300)] + ["assistant\n\n Assistant: [/INST] user\n"] * 50, trainer)
    peer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    peer.folder = tmp_path_factory.mktemp("tokenizer")
    peer.save_pretrained(peer.folder)
    return peer


def content(draw: random.Random, most: int) -> str:
    return draw.choice(["", "", " ", "\n", "\n\n"]) + " ".join(draw.choices(WORDS, k=draw.randint(1, most))) + draw.choice(["", "", " ", "\n"])


def conversations(seed: int, count: int = 40) -> list[list[dict]]:
    draw = random.Random(seed)
    return [said(*[content(draw, 12) for _ in range(2 * draw.randint(1, 4))]) for _ in range(count)]


def written(folder, rows, name="chats.jsonl"):
    text = json.dumps(rows) if ".json" in name and ".jsonl" not in name else "".join(json.dumps(row, ensure_ascii=i % 2 == 0) + "\n" for i, row in enumerate(rows))
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


def read(probe, peer, path, template=None, **options):
    spec = {"type": "Chat", "path": path, "tokenizer": str(peer.folder)} | ({"template": template} if template else {}) | options
    USED.append(spec)
    _, results = probe.ask("dataset", spec=spec)
    return results.under("output")


def error_of(probe, peer, path, template=CHATML, **options):
    with pytest.raises(ProbeError) as error:
        read(probe, peer, path, template, **options)
    return str(error.value)


def padded(samples, length=None):
    """Fields of samples, each a list of ids and a list of whether each counts, without packing."""
    longest = length or max(len(ids) for ids, _ in samples)
    fields = {"input_ids": torch.zeros(len(samples), longest, dtype=torch.long), "attention_mask": torch.zeros(len(samples), longest, dtype=torch.long),
              "labels": torch.full((len(samples), longest), -100)}
    for i, (ids, counts) in enumerate(samples):
        ids, counts = torch.tensor(ids[:longest]), torch.tensor(counts[:longest]).bool()
        fields["input_ids"][i, :len(ids)] = ids
        fields["attention_mask"][i, :len(ids)] = 1
        fields["labels"][i, :len(ids) - 1] = torch.where(counts, ids, -100)[1:]
    return fields


def marked(peer, template, messages, tools=None):
    """Ids and mask as transformers gives them for a template with {% generation %}."""
    found = peer.apply_chat_template(messages, tools=tools, chat_template=template, return_dict=True, return_assistant_tokens_mask=True)
    return found["input_ids"], found["assistant_masks"]


@pytest.mark.parametrize("template", [MARKED, MARKED_LINES], ids=["marked", "marked_lines"])
def test_ids_and_marked_answers_are_those_of_transformers(probe, peer, tmp_path, template):
    chats = conversations(1) + [c for c in CONVERSATIONS if c[-1]["role"] == "assistant" and not any("thinking" in m for m in c)]
    samples = [marked(peer, template, chat) for chat in chats]
    samples = [sample for sample in samples if any(sample[1][1:])]
    assert len(samples) > 45
    path = written(tmp_path, [{"messages": chat} for chat in chats])
    expected = padded(samples)
    assert_same(read(probe, peer, path, template, max_length=expected["labels"].shape[1]), expected, "marked")


def by_prefixes(peer, template, messages):
    """Ids, and whether each lies in an answer, by the offsets of tokens in the text and the texts of shorter conversations."""
    def text(count, prompt=False):
        return peer.apply_chat_template(messages[:count], chat_template=template, tokenize=False, add_generation_prompt=prompt)

    whole = text(len(messages))
    encoded = peer.backend_tokenizer.encode(whole, add_special_tokens=False)
    counts = [0] * len(encoded.ids)
    for i, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before, after = text(i, prompt=True), text(i + 1)
        assert whole.startswith(before)
        shared = next((k for k, (a, b) in enumerate(zip(whole, after, strict=False)) if a != b), min(len(whole), len(after)))
        for number, (begin, end) in enumerate(encoded.offsets):
            within = begin < shared if shared == len(after) else end <= shared
            counts[number] |= end > len(before) and within
    return encoded.ids, counts


@pytest.mark.parametrize("name", ["llama_2", "llama_3", "llama_3_1", "mistral", "chatml", "qwen_2_5", "gemma", "zephyr", "phi_3", "deepseek_v2"])
def test_answers_are_found_in_templates_that_do_not_mark_them(probe, peer, tmp_path, name):
    chats = [[message | {"content": message["content"].strip() or "x"} for message in chat] for chat in conversations(2)]
    samples = [by_prefixes(peer, PUBLISHED[name], chat) for chat in chats]
    path = written(tmp_path, [{"messages": chat} for chat in chats])
    expected = padded(samples)
    assert (expected["labels"] >= 0).sum() > 800
    assert_same(read(probe, peer, path, PUBLISHED[name], max_length=expected["labels"].shape[1]), expected, name)


def test_an_answer_that_the_template_changes_later_is_refused(probe, peer, tmp_path):
    path = written(tmp_path, [{"messages": said("a", "b")}, {"messages": said("a", "b", "c", "d")}])
    said_ = error_of(probe, peer, path, PUBLISHED["qwen_3"])  # <think> is put before the last answer alone
    assert "chats.jsonl:2: template does not tell where the answer in message 1 ends" in said_ and "{% generation %}" in said_
    said_ = error_of(probe, peer, path, PUBLISHED["deepseek_r1"])
    assert "chats.jsonl:1: template does not tell where the answer in message 1 begins" in said_
    one = written(tmp_path, [{"messages": said("a", "b", "c", "d")}], "one.jsonl")
    ids = peer.apply_chat_template(said("a", "b", "c", "d"), chat_template=PUBLISHED["qwen_3"], return_dict=False)
    assert read(probe, peer, one, PUBLISHED["qwen_3"], train_on="last_answer", max_length=len(ids))["input_ids"].tolist() == [ids]


ONE = said("What is it?", "It is this.", system="Be brief.")
SAME = {
    "messages": {"messages": ONE},
    "sharegpt": {"conversations": [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "What is it?"}, {"from": "gpt", "value": "It is this."}]},
    "sharegpt with its system apart": {"system": "Be brief.", "conversations": [{"from": "user", "value": "What is it?"}, {"from": "assistant", "value": "It is this."}]},
    "alpaca": {"system": "Be brief.", "instruction": "What is it?", "input": "", "output": "It is this."},
    "prompt and completion": {"prompt": ONE[:2], "completion": ONE[2:]},
    "more keys": {"id": 7, "messages": ONE, "source": "x"},
}


@pytest.mark.parametrize("name", ["chats.jsonl", "chats.json", "chats.jsonl.gz", "chats.json.gz"])
def test_all_forms_of_a_conversation_are_the_same(probe, peer, tmp_path, name):
    sample = marked(peer, MARKED, ONE)
    path = written(tmp_path, list(SAME.values()), name)
    assert_same(read(probe, peer, path, MARKED, max_length=len(sample[0])), padded([sample] * len(SAME)), name)


def test_an_input_follows_its_instruction_after_an_empty_line(probe, peer, tmp_path):
    sample = marked(peer, MARKED, said("Translate.\n\nBonjour", "Hello"))
    path = written(tmp_path, [{"instruction": "Translate.", "input": "Bonjour", "output": "Hello"}])
    assert_same(read(probe, peer, path, MARKED, max_length=len(sample[0])), padded([sample]), "input")


def test_which_answers_are_learnt(probe, peer, tmp_path):
    chat = said("a", "first answer", "b", "second answer", "c", "third answer", "d")
    ids, counts = marked(peer, MARKED, chat)
    runs = [i for i in range(1, len(counts)) if counts[i] and not counts[i - 1]]
    path = written(tmp_path, [{"messages": chat}])

    def labels(template=MARKED, file=path, **options):
        return read(probe, peer, file, template, max_length=len(ids), **options)["labels"][0].tolist()

    def expected(kept):
        return padded([(ids, kept)])["labels"][0].tolist()

    last = [counts[i] and i >= runs[-1] for i in range(len(ids))]
    assert len(runs) == 3 and labels() == expected(counts)
    assert labels(train_on="last_answer") == expected(last)
    assert labels(train_on="all") == expected([1] * len(ids)) == ids[1:] + [-100]
    weighted = written(tmp_path, [{"messages": [m | ({"weight": int(i != 1)} if m["role"] == "assistant" else {}) for i, m in enumerate(chat)]}], "weighted.jsonl")
    assert labels(file=weighted) == expected([counts[i] and i >= runs[1] for i in range(len(ids))])
    turns = [{"from": {"user": "human", "assistant": "gpt"}[m["role"]], "value": m["content"], "weight": int(i != 1) if i % 2 else None} for i, m in enumerate(chat)]
    shared = written(tmp_path, [{"conversations": turns}], "shared.jsonl")
    assert labels(file=shared) == expected([counts[i] and i >= runs[1] for i in range(len(ids))])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"conversations": turns}]), tmp_path / "shared.parquet")
    assert labels(file=str(tmp_path / "shared.parquet")) == labels(file=shared)
    after = by_prefixes(peer, CHATML, chat)[1]
    assert labels(CHATML) == expected(after)
    assert labels(CHATML, weighted) == expected([after[i] and i >= runs[1] for i in range(len(ids))])
    assert labels(CHATML, train_on="last_answer") == expected([after[i] and i >= runs[-1] for i in range(len(ids))])


def test_a_system_message_is_said_where_there_is_none(probe, peer, tmp_path):
    path = written(tmp_path, [{"messages": said("a", "b")}, {"messages": said("a", "b", system="own")}])
    samples = [marked(peer, MARKED, said("a", "b", system="given")), marked(peer, MARKED, said("a", "b", system="own"))]
    fields = padded(samples)
    assert_same(read(probe, peer, path, MARKED, system="given", max_length=fields["labels"].shape[1]), fields, "system")


@pytest.mark.parametrize("template", [QWEN_2_5, LLAMA_3_1], ids=["qwen", "llama"])
def test_tools_are_the_templates(probe, peer, tmp_path, template):
    chat = said("Weather?", "It rains.")
    ids = peer.apply_chat_template(chat, tools=[WEATHER, CLOCK], chat_template=template, return_dict=False)
    path = written(tmp_path, [{"messages": chat, "tools": [WEATHER, CLOCK]}])
    assert read(probe, peer, path, template, max_length=len(ids))["input_ids"].tolist() == [ids]


def test_variables_are_given_to_the_template(probe, peer, tmp_path):
    chat = said("Weather?", "It rains.")
    variables = {"date_string": "1 Jan 2030", "tools_in_user_message": False}
    ids = peer.apply_chat_template(chat, tools=[CLOCK], chat_template=LLAMA_3_1, return_dict=False, **variables)
    path = written(tmp_path, [{"messages": chat, "tools": [CLOCK]}])
    assert read(probe, peer, path, LLAMA_3_1, max_length=len(ids), template_variables=variables)["input_ids"].tolist() == [ids]
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ bos_token }}|{{ a }}|{{ b }}|{{ c }}|{{ d is none }}{{ e is defined }}"
    variables = {"a": True, "b": 3, "c": 2.5, "d": "none", "bos_token": "<pad>"}
    ids = peer.apply_chat_template(chat, chat_template=template, return_dict=False, **variables)
    fields = read(probe, peer, path, template, train_on="all", max_length=len(ids), template_variables=variables)
    assert fields["input_ids"].tolist() == [ids]
    assert "template_variables: 'messages' comes from the data" in error_of(probe, peer, path, template_variables={"messages": 3})


@pytest.mark.parametrize("around", ["$A", "<s> $A", "<s> $A </s>"])
def test_a_prompt_and_its_completion_need_no_template(probe, peer, tmp_path, around):
    rows = [{"prompt": "What is the", "completion": " weather?"}, {"prompt": "", "completion": "Hello</s>"}, {"prompt": "Hello ", "completion": "\n\nhello"},
            {"prompt": "a\n\n", "completion": "b"}, {"prompt": "wea", "completion": "ther"}]
    backend = tokenizers.Tokenizer.from_str(peer.backend_tokenizer.to_str())
    backend.post_processor = tokenizers.processors.TemplateProcessing(single=around, special_tokens=[("<s>", 1), ("</s>", 2)])
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text((peer.folder / "tokenizer_config.json").read_text())
    samples = []
    for row in rows:
        whole = backend.encode(row["prompt"] + row["completion"])
        ids = whole.ids + ([] if whole.ids[-1] == peer.eos_token_id else [peer.eos_token_id])
        counts = [end > len(row["prompt"]) or ids[i] == peer.eos_token_id for i, (_, end) in enumerate(whole.offsets)]
        samples.append((ids, counts + [True] * (len(ids) - len(counts))))
    fields = padded(samples)
    path = written(tmp_path, rows)
    assert_same(read(probe, peer, path, tokenizer=str(tmp_path), max_length=fields["labels"].shape[1]), fields, "plain")
    everything = padded([(ids, [True] * len(ids)) for ids, _ in samples])
    assert_same(read(probe, peer, path, tokenizer=str(tmp_path), train_on="all", max_length=fields["labels"].shape[1]), everything, "all")


def test_what_is_too_long_is_cut_or_left_out(probe, peer, tmp_path):
    chats = conversations(3)
    samples = [marked(peer, MARKED, chat) for chat in chats]
    path = written(tmp_path, [{"messages": chat} for chat in chats])
    for length in (12, 18):
        cut = [(ids[:length], counts[:length]) for ids, counts in samples if any(counts[1:length])]
        assert len(cut) < len(samples) and any(len(ids) > length for ids, _ in samples)
        assert_same(read(probe, peer, path, MARKED, max_length=length), padded(cut, length), "truncate")
    whole = [sample for sample in samples if len(sample[0]) <= 60]
    fields = padded(whole)
    kept = read(probe, peer, path, MARKED, max_length=fields["labels"].shape[1], too_long="drop")
    assert len(whole) < len(samples)
    assert_same(kept, padded([s for s in samples if len(s[0]) <= fields["labels"].shape[1]]), "drop")


def packed(lengths: list[int], room: int) -> list[list[int]]:
    """Best fit, the longest first, as trl's "bfd" has it: into the block with the least room that is enough."""
    blocks, left = [], []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fits = [b for b in range(len(blocks)) if left[b] >= lengths[i]]
        if fits:
            best = min(fits, key=lambda b: left[b])
            blocks[best].append(i)
            left[best] -= lengths[i]
        else:
            blocks.append([i])
            left.append(room - lengths[i])
    return blocks


def test_packed_conversations_are_numbered_and_begin_anew(probe, peer, tmp_path):
    chats = conversations(4)
    samples = [marked(peer, MARKED, chat) for chat in chats]
    length = max(len(ids) for ids, _ in samples)
    fields = read(probe, peer, written(tmp_path, [{"messages": chat} for chat in chats]), MARKED, max_length=length, packing=True)
    assert set(fields) == {"attention_mask", "input_ids", "labels", "position_ids"}
    seen = []
    for row in range(len(fields["input_ids"])):
        mask = fields["attention_mask"][row]
        numbers = mask[mask > 0].unique().tolist()
        assert numbers == list(range(1, len(numbers) + 1)) and mask[mask > 0].tolist() == sorted(mask[mask > 0].tolist())
        assert (fields["labels"][row][mask == 0] == -100).all()
        for number in numbers:
            own = mask == number
            ids = fields["input_ids"][row][own].tolist()
            assert fields["position_ids"][row][own].tolist() == list(range(len(ids)))
            seen.append((ids, fields["labels"][row][own].tolist()))
    alone = padded(samples)
    expected = [(ids, alone["labels"][i, :len(ids)].tolist()) for i, (ids, _) in enumerate(samples)]
    assert sorted(seen) == sorted(expected)
    blocks = packed([len(ids) for ids, _ in samples], length)
    assert len(blocks) < len(samples) * 0.7 and len(fields["input_ids"]) == len(blocks)
    first = sum((samples[i][0] for i in blocks[-1]), [])
    assert fields["input_ids"][len(blocks) - 1, :len(first)].tolist() == first


HOSTILE = [
    ("{", "chats.jsonl:1: is not JSON"),
    ("[1]", "chats.jsonl:1: expected an object, found array"),
    ("", "chats.jsonl: has no conversations"),
    ('{"text": "a"}', "chats.jsonl:1: expected the keys messages, or conversations, or prompt and completion, or instruction and output"),
    ('{"messages": "a"}', "chats.jsonl:1:messages: expected a list, found string"),
    ('{"messages": []}', "chats.jsonl:1:messages: is empty"),
    ('{"messages": [3]}', "chats.jsonl:1:messages[0]: expected an object, found number"),
    ('{"messages": [{"content": "a"}]}', "chats.jsonl:1:messages[0]: has no key 'role'"),
    ('{"messages": [{"role": 1, "content": "a"}]}', "chats.jsonl:1:messages[0]: role: expected a string, found number"),
    ('{"messages": [{"role": "user"}]}', "chats.jsonl:1:messages[0]: has no key 'content'"),
    ('{"messages": [{"role": "user", "content": 3}]}', "chats.jsonl:1:messages[0]: content: expected a string or a list of parts"),
    ('{"messages": [{"role": "user", "content": "a"}]}', "chats.jsonl:1: there is no answer of the assistant to be learnt"),
    ('{"messages": [{"role": "assistant", "content": "a", "weight": 0}]}', "chats.jsonl:1: there is no answer of the assistant to be learnt"),
    ('{"messages": [{"role": "assistant", "content": "a", "weight": 2}]}', "chats.jsonl:1:messages[0]: weight: expected 0 or 1"),
    ('{"messages": [{"role": "user", "content": ["a"]}, {"role": "assistant", "content": "b"}]}', "chats.jsonl:1: template, line 1: there is no str + list"),
    ('{"messages": [{"role": "user", "content": null}, {"role": "assistant", "content": "b"}]}', "chats.jsonl:1: template, line 1: 'dict object' has no attribute 'content'"),
    ('{"messages": [{"role": "user", "content": "a"}], "tools": 3}', "chats.jsonl:1:tools: expected a list, found number"),
    ('{"conversations": [{"from": "human"}]}', "chats.jsonl:1:conversations[0]: has no key 'value'"),
    ('{"conversations": [{"from": "alien", "value": "a"}]}', "from: 'alien' is not known; known: assistant, gpt, human"),
    ('{"conversations": [{"from": "gpt", "value": "a", "weight": 0.5}]}', "chats.jsonl:1:conversations[0]: weight: expected 0 or 1"),
    ('{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b", "weight": 0}]}', "chats.jsonl:1: there is no answer of the assistant to be learnt"),
    ('{"conversations": []}', "chats.jsonl:1:conversations: is empty"),
    ('{"instruction": "a", "output": 3}', "chats.jsonl:1:output: expected a string, found number"),
    ('{"instruction": "a", "output": "b", "history": [["c", "d"]]}', "chats.jsonl:1:history: is not supported; write the conversation as messages"),
    ('{"prompt": "a", "completion": ""}', "chats.jsonl:1:completion: is empty"),
    ('{"prompt": "a", "completion": []}', "chats.jsonl:1:completion: expected a string, found array"),
    ('{"prompt": [], "completion": "a"}', "chats.jsonl:1:completion: expected a list, found string"),
    ('{"messages": [{' + ", ".join(f'"k{i}": 1' for i in range(5000)) + "}]}", "chats.jsonl:1: an object has more than 4096 keys"),
    ('{"messages": ' + "[" * 100000, "chats.jsonl:1: is nested too deeply: its lists and objects are nested more than 64 deep"),
    ('{"messages": [{"role": "user", "content": "' + "a " * 90 + '"}, {"role": "assistant", "content": "b"}]}',
     "chats.jsonl: 1 of 1 conversations is left out, since there is no token to learn within the max_length of 64 tokens"),
    ('{"messages": [{"role": "user", "content": "\\ud800"}]}', "chats.jsonl:1: is not JSON"),
]


@pytest.mark.parametrize("row, message", HOSTILE)
def test_a_row_that_is_no_conversation_is_named(probe, peer, tmp_path, row, message):
    (tmp_path / "chats.jsonl").write_text(row + "\n")
    assert message in error_of(probe, peer, str(tmp_path / "chats.jsonl"), max_length=64)


def test_errors_say_which_line_and_template(probe, peer, tmp_path):
    good = json.dumps({"messages": said("a", "b")})
    (tmp_path / "chats.jsonl").write_text(f"{good}\n\n{good}\n{{\"messages\": [{{\"role\": \"assistant\", \"content\": \"x\"}}]}}\n")
    assert "chats.jsonl:4: template, line 1: Conversation roles must alternate" in error_of(probe, peer, str(tmp_path / "chats.jsonl"), PUBLISHED["mistral"])
    (tmp_path / "chats.json").write_text(f"[{good}, 3]")
    assert "chats.json[1]: expected an object, found number" in error_of(probe, peer, str(tmp_path / "chats.json"))
    (tmp_path / "chats.json").write_text(f"{good}\n3\n")  # not a list: an object in each line
    assert "chats.json:2: expected an object, found number" in error_of(probe, peer, str(tmp_path / "chats.json"))
    assert "there is no chat_template.jinja" in error_of(probe, peer, str(tmp_path / "chats.jsonl"), None)
    assert re.search("nowhere.jsonl.*No such file", error_of(probe, peer, str(tmp_path / "nowhere.jsonl")))
    kept = "{% for m in messages %}{% set x %}{% generation %}{{ m.content }}{% endgeneration %}{% endset %}{{ x }}{% endfor %}"
    assert "{% generation %} lies in a macro" in error_of(probe, peer, str(tmp_path / "chats.jsonl"), kept)
    unmarked = "{% for m in messages %}{{ m.content }}{% endfor %}{% if false %}{% generation %}{% endgeneration %}{% endif %}"
    assert "marks 0 answers by {% generation %}, but 1 messages are the assistant's" in error_of(probe, peer, str(tmp_path / "chats.jsonl"), unmarked)


def test_every_parameter_has_a_test(probe):
    known = probe.ask("catalog")["dataset"]
    assert missing_rows({"Chat": [p for p in known["Chat"] if p not in ("subset", "cache")]}, USED) == []  # cache: token_cache_parity_test.py
