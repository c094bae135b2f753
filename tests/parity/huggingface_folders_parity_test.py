"""`trainrun export --format huggingface` and `peft`: folders that transformers, peft and the hub's library open with nothing added, and that give what
the run itself gives: labels by name, scores, tokens."""

import hashlib
import json
import math
import re
import subprocess

import pytest
import torch

from tests.program import CALLED

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")
tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")
peft = pytest.importorskip("peft", reason="peft is not installed: tools/setup --tests fetches it")

import huggingface_hub  # noqa: E402
import safetensors  # noqa: E402
from chat_templates import CHATML, said  # noqa: E402
from language_models import BERT, LLAMA_3, VOCABULARY  # noqa: E402
from word_pieces import bert_tokenizer  # noqa: E402

TEXTS = ["a fine day", "it rained, again", "words and words and more words", "what weather", "he refused it", "a b c d e f g h i j k l m n o p q r s t u v w"]
CLASSES = ["bad", "good", "so: so"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 40}
RECIPE = {"version": 1, "name": "texts", "dataloader": {"batch_size": 3, "eval_batch_size": 4}, "optimizer": {"type": "AdamW", "lr": 3e-3},
          "training": {"max_steps": 12}, "output_dir": "run"}


def trainrun(folder, *arguments, fails=False):
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_jsonl(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def trained(folder, layer, data, loss, **more):
    """A run of one layer, evaluated on its training data, and its export."""
    dataset = {"train": data, "eval": data} | more.pop("dataset", {})
    recipe = RECIPE | {"model": {"layers": [layer]}, "loss": loss, "dataset": dataset} | more
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    trainrun(folder, "--quiet", "recipe.yaml")
    trainrun(folder, "export", "run", "--format", "huggingface", "--output", "out")
    return folder / "out"


def evaluated(folder):
    return json.loads(trainrun(folder, "eval", "run", "--json"))


@pytest.fixture(name="words", scope="module")
def folder_of_a_tokenizer(tmp_path_factory):
    """A tokenizer.json alone, as the library tokenizers saves it."""
    made = bert_tokenizer(TEXTS, 90, SPECIAL, lowercase=False)  # lowercase: unlike transformers' class for BERT
    folder = tmp_path_factory.mktemp("words")
    made.save(str(folder / "tokenizer.json"))
    return folder


def test_a_fine_tuned_classifier(tmp_path, words):
    BERT.saved(tmp_path / "peer")
    rows = [{"text": text, "label": CLASSES[i % 3]} for i, text in enumerate(TEXTS)]
    jsonl(tmp_path / "reviews.jsonl", rows)
    data = {"type": "TextClassification", "path": "reviews.jsonl", "tokenizer": f"{words}/tokenizer.json", "max_length": 12}
    out = trained(tmp_path, {"type": "BertForSequenceClassification", "pretrained": "peer", "num_labels": 3}, data, "CrossEntropyLoss", metrics=["Accuracy"])
    ask = transformers.pipeline("text-classification", model=str(out), device="cpu")
    assert ask.model.config.id2label == dict(enumerate(CLASSES)) and ask.model.config.label2id == {name: i for i, name in enumerate(CLASSES)}
    assert ask.model.config.problem_type == "single_label_classification" and ask.tokenizer.model_max_length == 12
    trainrun(tmp_path, "predict", "run", "reviews.jsonl", "--output", "found.jsonl")
    for text, row in zip(TEXTS, read_jsonl(tmp_path / "found.jsonl"), strict=True):
        found = {one["label"]: one["score"] for one in ask(text, top_k=None, truncation=True)}
        assert found == pytest.approx(row["probabilities"], abs=1e-5) and max(found, key=found.get) == row["label"]
    assert ask(TEXTS[:3], batch_size=3)[0]["score"] == pytest.approx(ask(TEXTS[0])[0]["score"], abs=1e-5), "padding changes nothing"
    card = huggingface_hub.ModelCard.load(out / "README.md")
    accuracy = evaluated(tmp_path)["eval/accuracy"]
    assert card.data.pipeline_tag == "text-classification" and card.data.library_name == "transformers" and "trainrun" in card.data.tags
    assert card.data.base_model is None  # a folder of this machine is none on the hub
    [result] = card.data.eval_results
    assert (result.metric_type, result.metric_value, result.dataset_name) == ("accuracy", pytest.approx(accuracy), "reviews.jsonl")
    assert "so: so" in card.text and "reviews.jsonl" in card.text and "trainrun recipe.yaml" in card.text and torch.__version__.split("+")[0] in card.text


def test_several_labels_from_scratch(tmp_path, words):
    """Of DistilBERT, which reads no types of tokens."""
    rows = [{"text": text, "label": CLASSES[i % 3]} for i, text in enumerate(TEXTS)]
    jsonl(tmp_path / "reviews.jsonl", rows)
    data = {"type": "TextClassification", "path": "reviews.jsonl", "tokenizer": str(words), "max_length": 20}
    layer = {"type": "DistilBertForSequenceClassification", "vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48,
             "max_position_embeddings": 40, "num_labels": 3}
    out = trained(tmp_path, layer, data, "BCEWithLogitsLoss", dataset={"transforms": [{"type": "OneHot", "field": "labels", "num_classes": 3}]})
    ask = transformers.pipeline("text-classification", model=str(out), device="cpu")
    assert ask.model.config.problem_type == "multi_label_classification" and ask.tokenizer.model_max_length == 20
    loss = 0
    for row in rows:
        scores = {one["label"]: one["score"] for one in ask(row["text"], top_k=None, truncation=True)}
        loss -= sum(math.log(score if name == row["label"] else 1 - score) for name, score in scores.items())
    assert loss / (3 * len(rows)) == pytest.approx(evaluated(tmp_path)["eval/loss"], abs=1e-5)
    assert huggingface_hub.ModelCard.load(out / "README.md").data.base_model is None


def test_scaled_numbers(tmp_path, words):
    rows = [{"text": text, "price": 10 + 3.5 * i} for i, text in enumerate(TEXTS)]
    jsonl(tmp_path / "prices.jsonl", rows)
    data = {"type": "TextClassification", "path": "prices.jsonl", "label": "price", "tokenizer": f"{words}/tokenizer.json", "max_length": 16}
    out = trained(tmp_path, {"type": "BertForSequenceClassification", "num_labels": 1, **SIZES}, data, "MSELoss",
                  dataset={"transforms": [{"type": "Standardize", "field": "labels"}]})
    ask = transformers.pipeline("text-classification", model=str(out), device="cpu")
    assert ask.model.config.problem_type == "regression"
    with safetensors.safe_open(out / "model.safetensors", "pt") as file:
        contract = json.loads(file.metadata()["trainrun.contract"])
    [scaling] = [field["scaling"] for field in contract["fields"] if field["name"] == "labels"]
    way_back = re.search(r"The target .* was scaled for training\. .* output × ([\d.]+) \+ ([\d.]+)\.", (out / "README.md").read_text())
    assert [float(number) for number in way_back.groups()] == pytest.approx([scaling["scale"][0], scaling["offset"][0]])
    assert scaling["offset"][0] == pytest.approx(10 + 3.5 * 2.5)
    trainrun(tmp_path, "predict", "run", "prices.jsonl", "--output", "found.jsonl")
    for row, found in zip(rows, read_jsonl(tmp_path / "found.jsonl"), strict=True):
        scaled = ask(row["text"], truncation=True)[0]["score"]
        assert scaled * scaling["scale"][0] + scaling["offset"][0] == pytest.approx(found["price"], rel=1e-5)


def test_classes_of_words(tmp_path, words):
    rows = [{"tokens": text.split(), "ner_tags": ["B-X" if word in "again words day" else "O" for word in text.split()]} for text in ("a fine day", "it rained again", "words and more words")]
    jsonl(tmp_path / "tags.jsonl", rows)
    data = {"type": "TokenClassification", "path": "tags.jsonl", "tokenizer": str(words), "max_length": 24}
    out = trained(tmp_path, {"type": "BertForTokenClassification", "num_labels": 2, **SIZES}, data, {"type": "CrossEntropyLoss", "class_dim": -1})
    ask = transformers.pipeline("token-classification", model=str(out), device="cpu", ignore_labels=[])
    assert ask.model.config.id2label == {0: "B-X", 1: "O"}
    loss, count = 0, 0
    for row in rows:
        starts = [sum(len(word) + 1 for word in row["tokens"][:i]) for i in range(len(row["tokens"]))]
        first = {one["start"]: one for one in ask(" ".join(row["tokens"])) if one["start"] in starts}
        assert len(first) == len(starts)
        for start, label in zip(starts, row["ner_tags"], strict=True):
            score = first[start]["score"]
            loss -= math.log(score if first[start]["entity"] == label else 1 - score)
            count += 1
    assert loss / count == pytest.approx(evaluated(tmp_path)["eval/loss"], abs=1e-5)


def test_hidden_words(tmp_path, words):
    """What fills a gap, as the run's TorchScript has it."""
    (tmp_path / "lines.txt").write_text("".join(text + "\n" for text in TEXTS))
    (tmp_path / "names").mkdir()
    (tmp_path / "names/tokenizer_config.json").write_text(json.dumps({"mask_token": "[MASK]", "pad_token": "[PAD]"}))
    (tmp_path / "names/tokenizer.json").write_bytes((words / "tokenizer.json").read_bytes())
    out = trained(tmp_path, {"type": "BertForMaskedLM", **SIZES}, {"type": "Texts", "path": "lines.txt", "tokenizer": "names", "max_length": 24}, "CausalLMLoss",
                  dataset={"transforms": [{"type": "MaskTokens", "tokenizer": "names"}]})
    ask = transformers.pipeline("fill-mask", model=str(out), device="cpu", top_k=5)
    text = "a [MASK] day"
    trainrun(tmp_path, "export", "run", "--format", "torchscript")
    traced = torch.jit.load(tmp_path / "model.pt")
    fields = ask.tokenizer(text, return_tensors="pt", padding="max_length")  # of the module's length
    with torch.no_grad():
        scores = traced(*[fields[name] for name in ("input_ids", "attention_mask", "token_type_ids")])[0].softmax(-1)
    [gap] = [i for i, token in enumerate(fields["input_ids"][0].tolist()) if token == SPECIAL.index("[MASK]")]
    best = scores[gap].topk(5)
    assert [one["token"] for one in ask(text)] == best.indices.tolist()
    assert [one["score"] for one in ask(text)] == pytest.approx(best.values.tolist(), abs=1e-5)


CHAT_SPECIAL = ["<pad>", "<|im_start|>", "<|im_end|>", "</s>"]
CHAT_WORDS = ["user", "assistant", "system"] + [f"w{i}" for i in range(VOCABULARY - len(CHAT_SPECIAL) - 3)]
CHATS = [said(f"w{i}", f"w{i + 1} w{i + 2}") for i in range(8)]
ANSWERS = {"type": "Chat", "path": "chats.jsonl", "tokenizer": "peer", "template": CHATML, "max_length": 64}


def save_llama(folder):
    """A model with a tokenizer that has another chat template than the recipe's."""
    LLAMA_3.saved(folder)
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({token: i for i, token in enumerate([*CHAT_SPECIAL, *CHAT_WORDS])}, unk_token="<pad>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(CHAT_SPECIAL)
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "pad_token": "<pad>", "chat_template": "{{ 'other' }}", "padding_side": "left"}))
    (folder / "generation_config.json").write_text(json.dumps({"repetition_penalty": 1.2, "watermarking_config": None, "some_new_key": 7, "eos_token_id": 3}))


def test_conversations(tmp_path):
    save_llama(tmp_path / "peer")
    jsonl(tmp_path / "chats.jsonl", [{"messages": chat} for chat in CHATS])
    out = trained(tmp_path, {"type": "LlamaForCausalLM", "pretrained": "peer"}, ANSWERS, "CausalLMLoss", optimizer={"type": "AdamW", "lr": 1e-2})
    ask = transformers.pipeline("text-generation", model=str(out), device="cpu")
    made = json.loads((out / "generation_config.json").read_text())
    assert made["repetition_penalty"] == 1.2 and made["some_new_key"] == 7 and made["eos_token_id"] == [3, 2]
    asked = [said("w1"), said("w4"), said("w3", "w4 w5", "w6")]
    jsonl(tmp_path / "asked.jsonl", [{"messages": chat} for chat in asked])
    trainrun(tmp_path, "generate", "run", "--prompts", "asked.jsonl", "--output", "answers.jsonl", "--max-new-tokens", 12)
    lines = read_jsonl(tmp_path / "answers.jsonl")
    assert min(len(line["tokens"]) for line in lines) < 12, "an answer ends where the template ends a turn"
    for chat, line in zip(asked, lines, strict=True):
        [found] = ask(chat, max_new_tokens=12, do_sample=False)
        assert found["generated_text"][-1] == line["messages"][-1]
    card = huggingface_hub.ModelCard.load(out / "README.md")
    assert card.data.pipeline_tag == "text-generation" and "fine-tuned from the local folder `peer`" in card.text
    trainrun(tmp_path, "generate", "out", "--prompts", "asked.jsonl", "--output", "again.jsonl", "--max-new-tokens", 12)
    assert (tmp_path / "again.jsonl").read_text() == (tmp_path / "answers.jsonl").read_text()


def test_an_adapter_of_a_model_from_the_hub(tmp_path, monkeypatch):
    commit = "0123456789abcdef0123456789abcdef01234567"
    snapshot = tmp_path / "hub/models--org--llama/snapshots" / commit
    save_llama(snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs/main").write_text(commit)
    jsonl(tmp_path / "chats.jsonl", [{"messages": chat} for chat in CHATS])
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = {"layers": [{"type": "LlamaForCausalLM", "pretrained": "org/llama"}], "adapters": {"type": "LoRA", "r": 4, "target": ["_proj$"]}}
    whole = trained(tmp_path, None, ANSWERS | {"tokenizer": "org/llama"}, "CausalLMLoss", model=model)
    trainrun(tmp_path, "export", "run", "--format", "peft", "--output", "adapter")
    config = json.loads((tmp_path / "adapter/adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "org/llama" and config["revision"] == commit
    adapted = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(snapshot), tmp_path / "adapter").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "adapter")
    fields = tokenizer.apply_chat_template(CHATS[0], return_tensors="pt", return_dict=True)
    merged = transformers.AutoModelForCausalLM.from_pretrained(whole).eval()
    with torch.no_grad():
        torch.testing.assert_close(adapted(**fields).logits, merged(**fields).logits, rtol=1e-4, atol=1e-5)
    card = huggingface_hub.ModelCard.load(tmp_path / "adapter/README.md")
    assert card.data.base_model == "org/llama" and card.data.library_name == "peft" and card.data.base_model_relation == "adapter"
    assert huggingface_hub.ModelCard.load(whole / "README.md").data.base_model_relation == "finetune"
    with safetensors.safe_open(tmp_path / "adapter/adapter_model.safetensors", "pt") as file:
        assert file.metadata()["format"] == "pt" and len(file.metadata()["trainrun.tokenizer_sha256"]) == 64


def test_characters_from_scratch(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat\nthe Ärmel é {ok} \"q\"\n" * 20)
    layer = {"type": "GPT2LMHeadModel", "vocab_size": 40, "n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": 4}
    out = trained(tmp_path, layer, {"type": "TextLM", "path": "text.txt", "block_size": 16}, "CausalLMLoss")
    ask = transformers.pipeline("text-generation", model=str(out), device="cpu")
    expected = trainrun(tmp_path, "generate", "run", "--prompt", "the Ä", "--max-new-tokens", 20)
    assert ask("the Ä", max_new_tokens=20, do_sample=False)[0]["generated_text"] == expected.removesuffix("\n")


def test_what_transformers_has_no_class_for_is_refused_with_a_way_out(tmp_path, words):
    jsonl(tmp_path / "reviews.jsonl", [{"text": text, "label": CLASSES[i % 3]} for i, text in enumerate(TEXTS)])
    recipe = RECIPE | {"model": {"layers": [{"type": "Embedding", "num_embeddings": 99, "embedding_dim": 8, "inputs": "input_ids"}, {"type": "Mean", "dim": 1},
                                            {"type": "Linear", "out_features": 3}]}, "loss": "CrossEntropyLoss",
                       "dataset": {"train": {"type": "TextClassification", "path": "reviews.jsonl", "tokenizer": str(words)}}}
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    trainrun(tmp_path, "--quiet", "recipe.yaml")
    error = trainrun(tmp_path, "export", "run", "--format", "huggingface", fails=True)
    assert "one registered language model" in error and "--format torchscript" in error and not (tmp_path / "model").exists()
    trainrun(tmp_path, "export", "run", "--format", "torchscript")
    extra = {"trainrun.contract": "", "trainrun.tokenizer_sha256": "", "trainrun.version": ""}
    torch.jit.load(tmp_path / "model.pt", _extra_files=extra)
    trainrun(tmp_path, "export", "run")
    with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
        metadata = file.metadata()
    assert {"format": "pt"} | {name: content.decode() for name, content in extra.items()} == metadata
    assert json.loads(extra["trainrun.contract"])["classes"]["labels"] == CLASSES
    assert hashlib.sha256((words / "tokenizer.json").read_bytes()).hexdigest() == metadata["trainrun.tokenizer_sha256"]
