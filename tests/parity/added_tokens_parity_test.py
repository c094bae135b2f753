"""Tokens added to a tokenizer: ids, resized embeddings, training, adapters and exports, against transformers and peft."""

import functools
import json
import pathlib
import re
import shutil
import subprocess

import pytest
import safetensors.torch
import torch
from torch.nn import functional

import reference

from tests.program import CALLED

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")

import peft  # noqa: E402
import tokenizer_kinds  # noqa: E402
from language_models import ALL, BERT, GPT, LLAMA_3, LanguageModel, bert  # noqa: E402
from probe import ProbeError, assert_same  # noqa: E402
from tokenizer_texts import Encoded, decoded, mrpc_pairs  # noqa: E402
from tokenizers import AddedToken, Tokenizer  # noqa: E402
from transformers import AutoTokenizer, BertForMaskedLM, PreTrainedTokenizerFast  # noqa: E402

TEMPLATE = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
FLAGS = [{"content": "<left>", "lstrip": True}, {"content": "<right>", "rstrip": True}, {"content": "cat", "single_word": True},
         {"content": "<Raw>", "normalized": False}]
WRITTEN = {"add_tokens": ["<a>", "<Ab>", "New Tok", "the", *FLAGS],
           "add_special_tokens": {"pad_token": "<padding>", "additional_special_tokens": ["<|im_start|>", "<|im_end|>", {"content": "<S>", "lstrip": True, "rstrip": True}]}}
TEXTS = ["", " ", "<a>", "a<a>b", "x <a> y", "<a><a> <a>", "<A>", "<ab> <Ab> <AB>", "new tok", "a New Tok here", "NewTok", "the theatre and the", "The THE other",
         "some <left> text", "some\t <left>text", "some <right> text", "some<right>   text", "cat concat cats a cat.", "cat-cat cat_cat cat", "<Raw> <raw> <RAW>",
         "<padding> <padding>", "<|im_start|>user\nhello<|im_end|>\n", "<|im_start|><|im_end|>", "<|IM_START|>", "a  <S>  b<S>c", "<S><S>", "<a", "a>", "<<a>>",
         "\u00e9<a>\u00e9 \u4e16<Ab>\u754c", "\U0001F600<a>\U0001F600", "line\n<a>\nline", "<left><right>", "<left> <right> <S> <a>", "[CLS] <a> [SEP]", "</s><a><pad>",
         "New  Tok", "new\ntok", "<a>" * 20, "word <a> " * 30]  # fmt: skip


def peer_tokens(tokens: list) -> list:
    return [token if isinstance(token, str) else AddedToken(**token) for token in tokens]


def grown(tokenizer, written: dict):
    """The tokenizer, after transformers has added the same."""
    tokenizer.add_tokens(peer_tokens(written.get("add_tokens", [])))
    special = written.get("add_special_tokens", {})
    if isinstance(special, list):
        special = {"additional_special_tokens": special}
    tokenizer.add_special_tokens({key: peer_tokens(value) if isinstance(value, list) else value for key, value in special.items()})
    return tokenizer


@pytest.fixture(name="corpus", scope="module")
def sentences():
    return [text for pair in mrpc_pairs() for text in pair][:2000]


def saved_tokenizer(folder: pathlib.Path, made, **config):
    PreTrainedTokenizerFast(tokenizer_object=made, **config).save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def wordpiece(texts):
    """BERT's uncased kind, whose normalizer says which tokens are normalized."""
    made = tokenizer_kinds.bert_cased(texts)
    made.normalizer = tokenizer_kinds.normalizers.BertNormalizer(lowercase=True)
    return made


@pytest.fixture(name="trained", scope="module")
def kinds_of_tokenizers(corpus):
    """kind -> a tokenizer of it; each kind is trained once."""
    text_of = functools.cache(lambda kind: kind(corpus).to_str())
    return lambda kind: Tokenizer.from_str(text_of(kind))


@pytest.mark.parametrize("kind", [tokenizer_kinds.gpt2, tokenizer_kinds.llama2, wordpiece, tokenizer_kinds.t5, tokenizer_kinds.word_level], ids=lambda make: make.__name__)
@pytest.mark.parametrize("written", [WRITTEN, {"add_tokens": ["<a>", "<a>", "cat"]}, {"add_special_tokens": ["<S>", "<a>", "the"]}], ids=["all", "plain", "special"])
def test_ids_and_texts_are_those_of_transformers(probe, tmp_path, corpus, trained, kind, written):
    peer = grown(saved_tokenizer(tmp_path, trained(kind)), written)
    texts = TEXTS + corpus[:50]
    ours = Encoded(probe, tmp_path, texts, new_tokens=json.dumps(written))
    expected = peer(texts)["input_ids"]
    for text, mine, other in zip(texts, ours.ids, expected, strict=True):
        assert mine == other, repr(text)
    assert ours.reply["vocab_size"] == len(peer)
    assert ours.reply["special_ids"].get("pad") == peer.pad_token_id
    for skip in (True, False):
        theirs = peer.backend_tokenizer.decode_batch(expected, skip_special_tokens=skip)
        assert decoded(probe, tmp_path, ours.ids, skip_special_tokens=skip, new_tokens=json.dumps(written)) == theirs
    assert any(id >= len(AutoTokenizer.from_pretrained(tmp_path)) for row in expected for id in row), "new tokens occur"


def test_only_a_tokenizer_json_can_grow(probe, tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")
    with pytest.raises(ProbeError, match="vocab.txt: tokens can only be added to a tokenizer.json"):
        Encoded(probe, tmp_path, ["the"], new_tokens='{"add_tokens": ["<a>"]}')


# ---- models

ADDED = {"add_tokens": ["<a>", "<b>"], "add_special_tokens": {"pad_token": "<pad>", "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}}
ROWS = 600  # of the tokenizers below, without what is added
DATASET = "add_tokens: [<a>, <b>], add_special_tokens: {pad_token: <pad>, additional_special_tokens: [<|im_start|>, <|im_end|>]}"
RECIPE = """
version: 1
name: tokens
seed: 3
model:
  layers: [{{type: {type}, pretrained: {folder}/{model}{settings}}}]
  adapters: {adapters}
loss: {loss}
dataset:
  train: {data}
  {added}
dataloader: {{batch_size: 4, shuffle: false}}
optimizer: {{type: AdamW, lr: 2e-3, eps: 1e-4}}
training: {{max_steps: 20}}
evaluation: {{every: null}}
checkpoint: {{every: 5, keep_last: null}}
"""
MASKED = bert(BertForMaskedLM)
[DISTILLED] = [model for model in ALL if model.type == "DistilBertForMaskedLM"]
LOOSE = LanguageModel(DISTILLED.kind, DISTILLED.config, DISTILLED.settings | {"tie_word_embeddings": False}, "_untied", DISTILLED.dropout)
UNTIED = LLAMA_3
STEPS = 20


def conversations() -> list[list[dict]]:
    words = "the <a> of company <b> said that it would<a> share <b>, percent".split(" ")
    draw = torch.Generator().manual_seed(4)

    def text() -> str:
        return " ".join(words[int(torch.randint(len(words), (), generator=draw))] for _ in range(5))

    return [[{"role": ("user", "assistant")[i % 2], "content": text()} for i in range(2)] for _ in range(24)]


@pytest.fixture(name="folder", scope="module")
def folder_of_models(tmp_path_factory, corpus):
    folder = tmp_path_factory.mktemp("models")
    old, tokenizer_kinds.VOCAB = tokenizer_kinds.VOCAB, ROWS
    try:
        decoder = saved_tokenizer(folder / "bpe", tokenizer_kinds.gpt2(corpus), eos_token="<|endoftext|>", chat_template=TEMPLATE)
        encoder = saved_tokenizer(folder / "wordpiece", wordpiece(corpus), pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    finally:
        tokenizer_kinds.VOCAB = old
    assert len(decoder) == len(encoder) == ROWS
    for model in (UNTIED, GPT, BERT, MASKED, DISTILLED, LOOSE):
        positions = {"n_positions" if model is GPT else "max_position_embeddings": 256}
        model.saved(folder / str(model), vocab_size=ROWS, **positions, **dict.fromkeys(model.dropout, 0.0))
    UNTIED.saved(folder / "roomy", vocab_size=640)
    (folder / "chats.jsonl").write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in conversations()))
    labelled = [(chat[0]["content"], i % 3) for i, chat in enumerate(conversations())]
    (folder / "labelled.csv").write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in labelled))
    return folder


def chats(folder) -> str:
    return f"{{type: Chat, path: {folder}/chats.jsonl, tokenizer: {folder}/bpe, max_length: 200, train_on: all}}"


def write_recipe(folder, path: pathlib.Path, model: LanguageModel, adapters: str = "null", added: str = DATASET, named: str | None = None, data: str | None = None) -> str:
    settings = "".join(f", {name}: 0" for name in model.dropout)
    is_chat = model in (UNTIED, GPT)
    data = data or chats(folder) if is_chat or data else f"{{type: TextClassification, path: {folder}/labelled.csv, text_columns: [text], tokenizer: {folder}/wordpiece}}"
    path.write_text(RECIPE.format(folder=folder, type=model.type, model=named or str(model), settings=settings, adapters=adapters, data=data,
                                  loss="CausalLMLoss" if is_chat else "CrossEntropyLoss", added=added.replace("add_special", "\n  add_special").replace(", \n", "\n")))
    return str(path)


def with_mean_rows(model, rows: int):
    """Resized by transformers; then the new rows, which it draws, are their mean."""
    def of_vocabulary():
        tensors = {"in": model.get_input_embeddings().weight}
        if (head := model.get_output_embeddings()) is not None:
            tensors |= {"out": head.weight} | ({"bias": head.bias} if head.bias is not None else {})
        return tensors

    before = {name: tensor.detach().clone() for name, tensor in of_vocabulary().items()}
    model.resize_token_embeddings(rows)
    with torch.no_grad():
        for name, tensor in of_vocabulary().items():
            is_padded = name == "bias" and model.config.tie_word_embeddings  # with 0, when it is tied again
            mean = torch.zeros(()) if is_padded else before[name].mean(0)
            drawn = tensor[len(before[name]):]
            assert (drawn - mean).abs().max() < 1e-3 * before[name].std(), "transformers draws them close to the mean"
            tensor[len(before[name]):] = mean
    return model.train()


def loaded(folder, model: LanguageModel, rows: int = ROWS + 5):
    return with_mean_rows(model.kind.from_pretrained(folder / str(model), dtype=torch.float32), rows)


def train_in_python(folder, model, is_chat: bool) -> list[float]:
    tokenizer = grown(AutoTokenizer.from_pretrained(folder / ("bpe" if is_chat else "wordpiece")), ADDED)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3, eps=1e-4)
    if is_chat:
        texts = [tokenizer.apply_chat_template(chat, tokenize=False) for chat in conversations()]
    else:
        texts = [chat[0]["content"] for chat in conversations()]
    losses = []
    for step in range(STEPS):
        at = step * 4 % len(texts)
        batch = tokenizer(texts[at:at + 4], padding=True, return_tensors="pt", add_special_tokens=not is_chat)
        if is_chat:
            targets = torch.where(batch["attention_mask"].bool(), batch["input_ids"], -100)[:, 1:]
            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
            loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
        else:
            loss = functional.cross_entropy(model(**batch).logits, torch.arange(at, at + 4) % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trainrun(*arguments, cwd) -> str:
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refused(recipe, cwd, *overrides) -> str:
    done = subprocess.run([CALLED, recipe, f"output_dir={cwd}/refused", *overrides], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (1, 2), done.stdout
    return done.stderr


def logits_of(model, tokenizer) -> torch.Tensor:
    batch = tokenizer("the <a> of <b> company<|im_end|>", return_tensors="pt")
    with torch.no_grad():
        return model.eval()(**batch).logits


@pytest.mark.parametrize("model", [UNTIED, GPT, BERT], ids=str)
def test_training_and_the_exported_folder_are_those_of_transformers(folder, tmp_path, model):
    is_chat = model in (UNTIED, GPT)
    peer = loaded(folder, model)
    expected = train_in_python(folder, peer, is_chat)
    lines, run = reference.run_trainrun(write_recipe(folder, tmp_path / "r.yaml", model), tmp_path / "run")
    assert expected[-1] < 0.9 * expected[0]
    assert reference.losses_of(lines) == pytest.approx(expected, abs=1e-4)
    log = (run / "log.txt").read_text()
    assert f"{folder}/{model}: resized embeddings from 600 to 605 rows: the new ones are the mean of the old ones" in log
    assert re.search(r"(bpe|wordpiece): (5 new tokens, ids 600 to 604)", log)
    trainrun("export", run, "--format", "huggingface", "--output", tmp_path / "out", cwd=tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    own = grown(AutoTokenizer.from_pretrained(folder / ("bpe" if is_chat else "wordpiece")), ADDED)
    assert tokenizer(TEXTS)["input_ids"] == own(TEXTS)["input_ids"]
    assert (tokenizer.pad_token_id, len(tokenizer)) == (own.pad_token_id, 605)
    assert [tokenizer.decode(ids, skip_special_tokens=True) for ids in own(TEXTS)["input_ids"]] == [own.decode(ids, skip_special_tokens=True) for ids in own(TEXTS)["input_ids"]]
    exported = model.kind.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert exported.config.vocab_size == 605
    torch.testing.assert_close(logits_of(exported, tokenizer), logits_of(peer, own), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("model", [MASKED, DISTILLED, LOOSE], ids=str)
def test_a_masked_model_s_bias_grows_too(folder, tmp_path, model):
    """One step without a rate, so that what is exported is what was resized; head and embedding are one weight."""
    (folder / "texts.txt").write_text("\n".join(chat[0]["content"] for chat in conversations()) + "\n")
    recipe = write_recipe(folder, tmp_path / "r.yaml", model, data=f"{{type: Texts, path: {folder}/texts.txt, tokenizer: {folder}/wordpiece}}")
    masking = f"dataset.transforms=[{{type: MaskTokens, tokenizer: {folder}/wordpiece}}]"
    still = ("loss={type: CrossEntropyLoss, class_dim: -1}", "optimizer.lr=1e-30", "optimizer.weight_decay=0", "training.max_steps=1")
    _, run = reference.run_trainrun(recipe, tmp_path / "run", masking, *still)
    trainrun("export", run, "--format", "huggingface", "--output", tmp_path / "out", cwd=tmp_path)
    peer = loaded(folder, model).eval()
    assert_same(dict(model.kind.from_pretrained(tmp_path / "out", dtype=torch.float32).state_dict()), dict(peer.state_dict()), "resized", 1e-6)


def test_a_vocabulary_with_room_keeps_its_size(folder, tmp_path):
    _, run = reference.run_trainrun(write_recipe(folder, tmp_path / "r.yaml", UNTIED, named="roomy"), tmp_path / "run", "training.max_steps=1")
    assert "roomy: its 640 rows have room for the new tokens; embeddings are not resized" in (run / "log.txt").read_text()
    assert len(safetensors.torch.load_file(run / "checkpoints/latest/model.safetensors")["lm_head.weight"]) == 640


def test_a_model_from_scratch_has_as_many_rows_as_the_tokenizer_tokens(folder, tmp_path):
    recipe = write_recipe(folder, tmp_path / "r.yaml", UNTIED)
    layer = "{type: LlamaForCausalLM, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 1, num_attention_heads: 2"
    _, run = reference.run_trainrun(recipe, tmp_path / "run", f"model.layers=[{layer}}}]", "training.max_steps=1")
    assert len(safetensors.torch.load_file(run / "checkpoints/latest/model.safetensors")["lm_head.weight"]) == 605
    said = refused(recipe, tmp_path, f"model.layers=[{layer}, vocab_size: 604}}]")
    assert "vocab_size: is 604, but the tokenizer has 605 tokens; write vocab_size: 605" in said


LORA = "{type: LoRA, r: 4, alpha: 16, target: [q_proj, v_proj]%s}"
SAVED = LORA % ", modules_to_save: [embed_tokens, lm_head]"


def test_adapters_with_saved_modules_learn_as_in_peft_which_opens_them(folder, tmp_path):
    lines, run = reference.run_trainrun(write_recipe(folder, tmp_path / "r.yaml", UNTIED, SAVED), tmp_path / "run", "checkpoint={every: 1, keep_last: null}")
    first = safetensors.torch.load_file(run / "checkpoints/step-00000001/model.safetensors")
    config = peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj"], modules_to_save=["embed_tokens", "lm_head"])
    peer = peft.get_peft_model(loaded(folder, UNTIED), config)
    names = peft.get_peft_model_state_dict(peer)
    peft.set_peft_model_state_dict(peer, {name: first[name.replace("base_model.model.", "")] if "lora_A" in name else tensor for name, tensor in names.items()})
    expected = train_in_python(folder, peer.train(), True)
    assert expected[-1] < 0.9 * expected[0]
    assert reference.losses_of(lines) == pytest.approx(expected, abs=1e-4)
    trainrun("export", run, "--format", "peft", "--output", tmp_path / "out", cwd=tmp_path)
    base = UNTIED.kind.from_pretrained(folder / str(UNTIED), dtype=torch.float32)
    usage = (tmp_path / "out/README.md").read_text()
    assert "base.resize_token_embeddings(605)\nmodel = PeftModel" in usage
    base.resize_token_embeddings(605)
    opened = peft.PeftModel.from_pretrained(base, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") == 604
    torch.testing.assert_close(logits_of(opened, tokenizer), logits_of(peer, tokenizer), rtol=2e-3, atol=2e-3)


def test_new_tokens_that_would_never_learn_are_refused_and_the_advice_works(folder, tmp_path):
    recipe = write_recipe(folder, tmp_path / "r.yaml", UNTIED, LORA % "")
    said = refused(recipe, tmp_path)
    assert "model.adapters: the embeddings of the 5 new tokens of dataset.add_tokens would never learn" in said and re.search(r"r\.yaml:\d+:\d+: ", said)
    advice = re.search(r"write (modules_to_save: \[embed_tokens, lm_head\])", said)[1]
    recipe = write_recipe(folder, tmp_path / "r.yaml", UNTIED, LORA % f", {advice}")
    reference.run_trainrun(recipe, tmp_path / "run", "training.max_steps=1")
    _, run = reference.run_trainrun(recipe, tmp_path / "half", "training.max_steps=1", "model.adapters.modules_to_save=[embed_tokens]")
    assert "lm_head is frozen: the model can learn to read the new tokens" in (run / "log.txt").read_text()
    tied = write_recipe(folder, tmp_path / "tied.yaml", GPT, "{type: LoRA, target: [c_attn]}")
    advice = re.search(r"write modules_to_save: (\[.*?\]),", refused(tied, tmp_path))[1]
    reference.run_trainrun(tied, tmp_path / "tied", "training.max_steps=1", f"model.adapters.modules_to_save={advice}")
    assert "model.freeze: the embeddings of the 5 new tokens" in refused(write_recipe(folder, tmp_path / "f.yaml", UNTIED), tmp_path, "model.freeze=[embed_tokens]")


def test_tokens_that_are_there_already_are_counted_and_change_nothing(folder, tmp_path):
    """The exported folder has them, so that its adapters need not train the embedding."""
    recipe = write_recipe(folder, tmp_path / "r.yaml", UNTIED)
    lines, run = reference.run_trainrun(recipe, tmp_path / "run", "training.max_steps=1")
    trainrun("export", run, "--format", "huggingface", "--output", tmp_path / "out", cwd=tmp_path)
    again = (f"model.layers=[{{type: LlamaForCausalLM, pretrained: {tmp_path}/out}}]", f"dataset.train.tokenizer={tmp_path}/out", "training.max_steps=1")
    _, second = reference.run_trainrun(recipe, tmp_path / "again", *again, f"model.adapters={LORA % ''}")
    log = (second / "log.txt").read_text()
    assert "out: no new token; 5 that it had already" in log and "resized" not in log
    assert not reference.losses_of(lines) == []


def test_a_resume_ends_in_the_same_bits_also_where_the_tokenizer_is_gone(folder, tmp_path):
    shutil.copytree(folder / "bpe", tmp_path / "bpe")
    recipe = write_recipe(folder, tmp_path / "r.yaml", UNTIED)
    own = (f"dataset.train.tokenizer={tmp_path}/bpe",)
    lines, whole = reference.run_trainrun(recipe, tmp_path / "whole", *own)
    rest, run = reference.run_trainrun(recipe, tmp_path / "rest", *own, f"checkpoint.resume={whole}/checkpoints/step-00000010")
    assert reference.losses_of(rest) == reference.losses_of(lines)[10:]
    last = [safetensors.torch.load_file(each / "checkpoints/latest/model.safetensors") for each in (run, whole)]
    assert_same(last[0], last[1], "weights of the resumed run")
    prompt = ("generate", whole, "--prompt", "<|im_start|>user\nthe <a>", "--max-new-tokens", 8, "--temperature", 0)
    before = trainrun(*prompt, cwd=tmp_path)
    shutil.rmtree(tmp_path / "bpe")
    assert trainrun(*prompt, cwd=tmp_path) == before
    peer = loaded(folder, UNTIED)
    train_in_python(folder, peer, True)
    tokenizer = grown(AutoTokenizer.from_pretrained(folder / "bpe"), ADDED)
    ids = tokenizer("<|im_start|>user\nthe <a>", return_tensors="pt")["input_ids"]
    made = peer.eval().generate(ids, do_sample=False, max_new_tokens=8, pad_token_id=0)[0, ids.shape[1]:]
    assert tokenizer.decode(made, skip_special_tokens=True).strip() in before


def test_weights_of_another_vocabulary_are_refused(folder, tmp_path):
    grown_recipe = write_recipe(folder, tmp_path / "grown.yaml", UNTIED)
    plain_recipe = write_recipe(folder, tmp_path / "plain.yaml", UNTIED, added="")
    plain_chats = f"dataset.train={chats(folder)}"
    runs = [reference.run_trainrun(recipe, tmp_path / name, plain_chats, "training.max_steps=1")[1] for name, recipe in (("grown", grown_recipe), ("plain", plain_recipe))]
    weights = [f"model.weights={run}/checkpoints/latest/model.safetensors" for run in runs]
    assert re.search(r"embed_tokens.weight.*600.*605|embed_tokens.weight.*605.*600", refused(grown_recipe, tmp_path, weights[1]))
    assert re.search(r"embed_tokens.weight.*600.*605|embed_tokens.weight.*605.*600", refused(plain_recipe, tmp_path, weights[0]))


@pytest.mark.parametrize(("override", "said"), [
    ("dataset.train.add_tokens=[x]", "dataset.train.add_tokens: is written once for all data sets, as dataset.add_tokens"),
    ("dataset.add_special_tokens={pad: x}", "there is no special token pad; did you mean pad_token?"),
    ("dataset.add_tokens=['']", "dataset.add_tokens: a token cannot be empty"),
    ("dataset.add_special_tokens={pad_token: [x]}", "pad_token is one token, not a list"),
])  # fmt: skip
def test_what_cannot_be_added_is_refused(folder, tmp_path, override, said):
    assert said in refused(write_recipe(folder, tmp_path / "r.yaml", UNTIED), tmp_path, override)


def test_data_without_a_tokenizer_have_nothing_to_add_to(folder, tmp_path):
    recipe = write_recipe(folder, tmp_path / "r.yaml", UNTIED, data="{type: Synthetic, num_samples: 8, shape: [8], vocab_size: 600}")
    assert "dataset.add_tokens: no data set of this recipe has a tokenizer" in refused(recipe, tmp_path)
