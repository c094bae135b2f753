"""Jobs on texts: what each can do, and that it is right, against transformers with the exported weights (the columns are in jobs.py; jobs on other
data in jobs_parity_test.py). To add a job, add a row to JOBS."""

import functools
import json

import numpy as np
import pytest
import torch
from torch.nn import functional

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")
tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")
peft = pytest.importorskip("peft", reason="peft is not installed: tools/setup --tests fetches it")

from chat_templates import CHATML  # noqa: E402
from draws import Draws  # noqa: E402
from language_models import BERT, BERT_DROPOUT, LLAMA_3, REWARD, VOCABULARY, BertForMaskedLM, BertForTokenClassification, BertModel, bert  # noqa: E402
from masked_lm_parity_test import hidden  # noqa: E402
from sentence_losses import pooled, ranking  # noqa: E402
from tests.parity.jobs import (CELLS, Job, Refused, accuracy, classes_columns, classes_report, numbers_columns, numbers_figures, numbers_report,  # noqa: E402
                               train)

SEEDS = {"train": 1, "eval": 2, "other": 3, "new": 4}
COUNTS = {"train": 14, "eval": 7, "other": 5, "new": 4}
SPECIAL = ["[PAD]", "<pad2>", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "</s>", "<|im_start|>", "<|im_end|>", "user", "assistant", "\n"]
WORDS = [f"w{i}" for i in range(VOCABULARY - len(SPECIAL))]
NUMBERS = {token: i for i, token in enumerate([*SPECIAL, *WORDS])}
PAD, CLS, SEP, END = (NUMBERS[token] for token in ("[PAD]", "[CLS]", "[SEP]", "</s>"))
KINDS = ["bad", "good", "so-so"]
TAGS = ["B-LOC", "B-PER", "I-PER", "O"]
MODELS = {"bert": BERT, "score": bert(type(BERT.make()), num_labels=1), "tags": bert(BertForTokenClassification, num_labels=4), "masked": bert(BertForMaskedLM),
          "sentences": bert(BertModel), "llama": LLAMA_3, "reward": REWARD}


def draw_text(draw, least=1, most=6):
    return " ".join(WORDS[i] for i in draw.integers(0, len(WORDS), draw.integers(least, most)))


@functools.cache
def rows_of(part):
    """What a sample of any of the jobs is made of."""
    draw, count = np.random.default_rng(SEEDS[part]), COUNTS[part]
    return [{"first": draw_text(draw), "second": draw_text(draw, 1, 9), "kind": KINDS[i % 3 if part == "train" else draw.integers(1, 3)], "score": round(float(draw.normal(3, 1)), 3),
             "tags": [TAGS[k] for k in draw.integers(0, 4, 9)], "third": draw_text(draw, 1, 7)} for i in range(count)]


def tokenizer():
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(NUMBERS, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([tokenizers.pre_tokenizers.Split(" ", "removed"), tokenizers.pre_tokenizers.Split("\n", "isolated")])
    made.add_special_tokens(SPECIAL[:9])
    return made


def write_peers(folder, recipe):
    """The folders of the models that it names, with a tokenizer that makes a word a token."""
    for name, model in MODELS.items():
        if f" {name}" not in recipe:
            continue
        settings = dict.fromkeys(model.dropout, 0.0) | ({"pad_token_id": PAD} if name == "reward" else {})
        model.saved(folder / name, **settings)
        made = tokenizer()
        if name not in ("llama", "reward"):
            made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
        made.save(str(folder / name / "tokenizer.json"))
        more = {"eos_token": "</s>", "chat_template": CHATML} if name == "llama" else {"eos_token": "</s>"} if name == "reward" else {
            "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
        (folder / name / "tokenizer_config.json").write_text(json.dumps({"pad_token": "[PAD]"} | more))


def write(make, end, folder, part):
    (folder / f"{part}.{end}").write_text("".join(make(row, part == "new") for row in rows_of(part)))


def in_json(names, labels):
    return lambda row, is_new: json.dumps({name: row[name] for name in names if not (is_new and name in labels)}) + "\n"


def ids_of(text):
    return [NUMBERS[word] for word in text.split(" ")]


def padded(rows, value=0):
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])


def masked(rows):
    return {"input_ids": padded(rows, PAD), "attention_mask": padded([[1] * len(row) for row in rows])}


def encoded(columns, target, folder, part, known):
    """BERT's: [CLS] first [SEP] second [SEP]."""
    rows = rows_of(part)
    pieces = [[[CLS, *ids_of(row[columns[0]]), SEP], *([*ids_of(row[name]), SEP] for name in columns[1:])] for row in rows]
    fields = masked([sum(row, []) for row in pieces]) | {"token_type_ids": padded([[i for i, piece in enumerate(row) for _ in piece] for row in pieces])}
    targets = {"kind": lambda: torch.tensor([KINDS.index(row["kind"]) for row in rows]), "score": lambda: torch.tensor([[row["score"]] for row in rows]).double(),
               "tags": lambda: padded([[-100, *(TAGS.index(tag) for tag in row["tags"][:len(row["first"].split())]), -100] for row in rows], -100)}
    return fields | {"target": targets[target]() if target else fields["input_ids"]}


def with_masks(fields):
    made = tokenizer()
    numbers = range(len(fields["input_ids"]))
    rows = [hidden(fields["input_ids"][i].tolist(), fields["attention_mask"][i].tolist(), made, Draws(4, 0), i, False, p=0.4) for i in numbers]
    return fields | {"input_ids": torch.tensor([ids for ids, _ in rows]), "target": torch.tensor([labels for _, labels in rows])}


@functools.cache
def peer(name):
    settings = {"pad_token_id": PAD} if name == "reward" else {}
    return MODELS[name].make(**settings).double()


def by_transformers(name, prefix="", inputs=("input_ids", "attention_mask", "token_type_ids"), output="logits"):
    def forward(state, fields):
        own = {key.removeprefix(prefix): tensor for key, tensor in state.items() if key.startswith(prefix)}
        if "cls.predictions.bias" in own:  # it is the decoder's, too
            own["cls.predictions.decoder.bias"] = own["cls.predictions.bias"]
        return torch.func.functional_call(peer(name), own, (), {key: fields[key] for key in inputs if key in fields}, tie_weights=False)[output]

    return forward


def opened_by(kind, inputs=("input_ids", "attention_mask", "token_type_ids"), names=None):
    """`names`: what the model calls its classes, by their numbers."""
    def opened(exported, folder, fields):
        model = kind.from_pretrained(exported).double().eval()
        assert names is None or [model.config.id2label[i] for i in range(len(names))] == names
        return model(**{key: fields[key] for key in inputs if key in fields}).logits

    return opened


def of_tokens(output, fields):
    return functional.cross_entropy(output.flatten(0, 1), fields["target"].flatten())


def following(output, fields):
    return functional.cross_entropy(output[:, :-1].flatten(0, 1), fields["target"][:, 1:].flatten())


def sets(source, more=""):
    return f"dataset:\n  train: {source.replace('PART', 'train')}\n  eval: {source.replace('PART', 'eval')}\n{more}"


BERT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")  # in the order of a batch
DECODER_INPUTS = ("input_ids", "attention_mask")
HUGGING_FACE = ["--format", "huggingface"]


def line_numbers(folder, part):
    return {"line": [str(1 + i) for i in range(COUNTS[part])]}


def of_bert(columns, name, label, recipe, **more):
    labels = "" if label == "kind" else ", task: regression"
    return Job(
        f"model: {{layers: [{{type: BertForSequenceClassification, pretrained: {name}}}]}}\n{recipe}"
        + sets(f"{{type: TextClassification, path: PART.jsonl, text_columns: [{', '.join(columns)}], label: {label}, tokenizer: {name}, max_length: 30{labels}}}"),
        write=functools.partial(write, in_json([*columns, label], [label]), "jsonl"), read=functools.partial(encoded, columns, label), forward=by_transformers(name),
        other=["dataset.eval.path=other.jsonl"], new=["new.jsonl"], beside=line_numbers,
        script=BERT_INPUTS, length=30, opened=opened_by(transformers.AutoModelForSequenceClassification, names=KINDS if label == "kind" else None), export=HUGGING_FACE, **more)


def cross_entropy(output, fields):
    return functional.cross_entropy(output, fields["target"])


CLASSES = {"name": "bert", "label": "kind", "recipe": "loss: CrossEntropyLoss\nmetrics: [Accuracy]\n", "loss": cross_entropy, "figures": accuracy,
           "report": classes_report(KINDS), "predicted": classes_columns(KINDS, "kind")}

NO_TABLE = Refused("for each sample, which is no row of a table; write --format npz", "predicting.md", "An output with more than one dimension for each sample")
TWO_TEXTS = Refused("samples, and not a row for each", "predicting.md", "models that read two texts for each sample have no predictions")
ONLY_EVAL = Refused("data cannot be read without labels", "predicting.md", "Other kinds of data are predicted for as `dataset.eval`")
GENERATES = Refused("goes on with texts: trainrun generate RUN", "predicting.md", "Language models generate text instead")
OF_TOKENS = Refused("this model gives one for each token", "evaluating.md", "classes of tokens (`class_dim: -1`")
OF_OTHERS = Refused("--report is for classifiers", "evaluating.md", "language models, and what learns from preferences")
PADDED = ["dataset.eval.padding=max_length"]
SEQUENCES = {"predicted": NO_TABLE, "new": ONLY_EVAL, "report": OF_TOKENS, "array": PADDED}


def tags_columns(output, fields):
    """Of each word, which is one token."""
    best = output.softmax(-1).max(-1)
    words = [(row != -100).nonzero()[:, 0] for row in fields["target"]]
    return {"tags": [[TAGS[i] for i in classes[own]] for classes, own in zip(best.indices, words)],
            "probabilities": [values[own].tolist() for values, own in zip(best.values, words)]}


def lines_and_words(folder, part):
    lines, words, line = [], [], 1
    for row in rows_of(part):
        lines.append(str(line))
        words.append(json.dumps(row["first"].split(), ensure_ascii=False, separators=(",", ":")))
        line += len(row["first"].split()) + 1
    return {"line": lines, "words": words}


JOBS = {
    "text classes": of_bert(["first"], **CLASSES),
    "text pairs": of_bert(["first", "second"], **CLASSES),
    "text scores": of_bert(["first"], "score", "score", "loss: MSELoss\nmetrics: [MAE, RMSE]\n", loss=lambda output, fields: functional.mse_loss(output, fields["target"]),
                           figures=numbers_figures, report=numbers_report, predicted=numbers_columns(["score"])),
    "token tags": Job(
        "model: {layers: [{type: BertForTokenClassification, pretrained: tags}]}\nloss: {type: CrossEntropyLoss, class_dim: -1}\n"
        + sets("{type: TokenClassification, path: PART.conll, tokenizer: tags, max_length: 30}"),
        write=functools.partial(write, lambda row, is_new: "".join(f"{word}\t{tag}\n" for word, tag in zip(row["first"].split(), row["tags"])) + "\n", "conll"),
        read=functools.partial(encoded, ["first"], "tags"), forward=by_transformers("tags"), loss=of_tokens, other=["dataset.eval.path=other.conll"],
        script=BERT_INPUTS, length=30, opened=opened_by(transformers.AutoModelForTokenClassification, names=TAGS), export=HUGGING_FACE,
        from_fields=tags_columns, new=["new.conll"], beside=lines_and_words, report=OF_TOKENS),
    "masked language model": Job(
        "model: {layers: [{type: BertForMaskedLM, pretrained: masked}]}\nloss: {type: CrossEntropyLoss, class_dim: -1}\n"
        + sets("{type: Texts, path: PART.txt, tokenizer: masked, max_length: 30, documents: separate}", "  transforms: [{type: MaskTokens, tokenizer: masked, mlm_probability: 0.4}]\n"),
        write=functools.partial(write, lambda row, is_new: row["first"] + "\n", "txt"), read=functools.partial(encoded, ["first"], None), drawn=with_masks,
        forward=by_transformers("masked"), loss=of_tokens,
        other=["dataset.eval.path=other.txt"], script=BERT_INPUTS, length=30, opened=opened_by(transformers.AutoModelForMaskedLM), export=HUGGING_FACE, steps=False,
        **SEQUENCES),
}

# --- Vectors of texts ------------------------------------------------------------------------------------------------

TEXTS = ("anchor", "positive")


def two_texts(folder, part, known):
    fields = {}
    for name, column in zip(TEXTS, ("first", "second")):
        rows = [[CLS, *ids_of(row[column]), SEP] for row in rows_of(part)]
        own = {key: functional.pad(value, (0, 30 - value.shape[1]), value=PAD if "ids" in key else 0) for key, value in masked(rows).items()}
        fields |= {f"{name}_{key}": value for key, value in (own | {"token_type_ids": torch.zeros_like(own["input_ids"])}).items()}
    return fields | {"target": fields["anchor_input_ids"]}


def vectors(of_tokens_of):
    """[N, 2, D]: the means of the tokens' vectors."""
    def forward(state, fields):
        each = []
        for name in TEXTS:
            own = {key: fields[f"{name}_{key}"] for key in DECODER_INPUTS}
            each.append(pooled(of_tokens_of(state, own), own["attention_mask"], "mean"))
        return torch.stack(each, 1)

    return forward


def alike(output, folder):
    return {"cosine": functional.cosine_similarity(output[:, 0], output[:, 1]).tolist()}


def recall(output, fields):
    unit = functional.normalize(output, dim=2)
    similar = unit[:, 0] @ unit[:, 1].T
    return {"recall_at_k": (similar.argmax(1) == torch.arange(len(similar))).double().mean().item()}


JOBS["sentence embeddings"] = Job(
    "model: {layers: [{type: SentenceTransformer, pretrained: sentences, pooling: mean}]}\nloss: MultipleNegativesRankingLoss\nmetrics: [{type: RecallAtK, k: 1}]\n"
    + sets("{type: SentencePairs, path: PART.jsonl, columns: [first, second], tokenizer: sentences, max_length: 30}"),
    write=functools.partial(write, in_json(["first", "second"], ["second"]), "jsonl"), read=two_texts,
    forward=vectors(by_transformers("sentences", "auto_model.", DECODER_INPUTS, output="last_hidden_state")), loss=lambda output, fields: ranking()(output), by_batch=True,
    figures=recall, other=["dataset.eval.path=other.jsonl"], report=OF_OTHERS, new=["new.jsonl"], of_eval=alike,
    predicted=lambda output, folder: {f"embedding[{i}]": output[:, 0, i].tolist() for i in range(output.shape[2])}, beside=line_numbers, length=30,
    script=tuple(f"{name}_{key}" for name in TEXTS for key in BERT_INPUTS), export=HUGGING_FACE,
    opened=lambda exported, folder, fields: vectors(lambda state, own: transformers.AutoModel.from_pretrained(exported).double().eval()(**own).last_hidden_state)({}, fields))

# --- Models that go on with a text -----------------------------------------------------------------------------------

BLOCK = 6


def blocks(folder, part, known):
    tokens = torch.tensor([NUMBERS[word] for row in rows_of(part) for word in [*row["second"].split(), "\n"]])
    count = (len(tokens) - 1) // BLOCK
    return {"input_ids": tokens[: count * BLOCK].view(count, BLOCK), "target": tokens[1: count * BLOCK + 1].view(count, BLOCK)}


def messages(row, is_new):
    return json.dumps({"messages": [{"role": "user", "content": row["first"]}, {"role": "assistant", "content": row["second"]}]}) + "\n"


def chats(folder, part, known):
    ids, labels = [], []
    for row in rows_of(part):
        ids.append([]), labels.append([])
        for role, text in (("user", row["first"]), ("assistant", row["second"])):
            head = [NUMBERS[token] for token in ("<|im_start|>", role, "\n")]
            said = [*ids_of(text), NUMBERS["<|im_end|>"], NUMBERS["\n"]]
            ids[-1] += head + said
            labels[-1] += [-100] * len(head) + (said if role == "assistant" else [-100] * len(said))
    return masked(ids) | {"target": padded(labels, -100)}


LORA = "adapters: {type: LoRA, r: 4, alpha: 16, target: [q_proj, v_proj]}"


def with_lora(state, fields):
    merged = {}
    for name, tensor in state.items():
        layer = name.removesuffix(".weight")
        own = f"{layer}.lora_B.weight" in state
        if "lora_" not in name:
            merged[name] = tensor + 4 * state[f"{layer}.lora_B.weight"] @ state[f"{layer}.lora_A.weight"] if own else tensor
    return by_transformers("llama", inputs=DECODER_INPUTS)(merged, fields)


def opened_by_peft(exported, folder, fields):
    base = transformers.AutoModelForCausalLM.from_pretrained(folder / "llama")
    return peft.PeftModel.from_pretrained(base, exported).double().eval()(**{name: fields[name] for name in DECODER_INPUTS}).logits


def in_pairs(row, is_new):
    answers = {"completion": " " + row["second"]} if is_new else {"chosen": " " + row["second"], "rejected": " " + row["third"]}
    return json.dumps({"prompt": row["first"]} | answers) + "\n"


def pairs(folder, part, known):
    """Texts that are chosen, and behind them in the batch those that are rejected."""
    fields = {}
    for name, key in (("chosen", "second"), ("rejected", "third")):
        rows = [[*ids_of(row["first"]), *ids_of(row[key]), END] for row in rows_of(part)]
        labels = [[-100] * len(row["first"].split()) + ids[len(row["first"].split()):] for row, ids in zip(rows_of(part), rows)]
        fields |= {f"{name}_{key}": value for key, value in (masked(rows) | {"labels": padded(labels, -100)}).items()}
    longest = max(fields[f"{name}_input_ids"].shape[1] for name in ("chosen", "rejected"))
    for name, value in fields.items():
        fields[name] = functional.pad(value, (0, longest - value.shape[1]), value=PAD if "ids" in name else 0 if "mask" in name else -100)
    return fields | {"target": fields["chosen_labels"]}


def both(forward):
    return lambda state, fields: forward(state, {name: torch.cat([fields[f"chosen_{name}"], fields[f"rejected_{name}"]]) for name in DECODER_INPUTS})


def orpo(output, fields):
    scores = []
    for logits, name in zip(output.chunk(2), ("chosen", "rejected")):
        labels = fields[f"{name}_labels"][:, 1:]
        each = logits[:, :-1].log_softmax(-1).gather(2, labels.clamp(min=0)[..., None])[..., 0] * (labels != -100)
        scores.append(each.sum(1) / (labels != -100).sum(1))
    log_odds = (scores[0] - scores[1]) - (torch.log1p(-scores[0].exp()) - torch.log1p(-scores[1].exp()))
    whole = torch.where(fields["chosen_attention_mask"] == 1, fields["chosen_input_ids"], -100)
    nll = functional.cross_entropy(output.chunk(2)[0][:, :-1].flatten(0, 1), whole[:, 1:].flatten())
    return nll - 0.3 * functional.logsigmoid(log_odds).mean()


def bradley_terry(output, fields):
    chosen, rejected = output.flatten().chunk(2)
    return -functional.logsigmoid(chosen - rejected).mean()


def of_pairs(layer, trained_by, **more):
    names = "[input_ids, attention_mask]"
    concats = "".join(f"    - {{type: Concat, name: {name}, inputs: [chosen_{name}, rejected_{name}], dim: 0}}\n" for name in DECODER_INPUTS)
    return Job(
        f"model:\n  layers:\n{concats}    - {{type: {layer}, name: llama, inputs: {names}, fields: {names}, pretrained: {more.pop('name')}}}\nloss: {trained_by}\n"
        + sets("{type: PreferencePairs, path: PART.jsonl, tokenizer: llama, max_length: 40}"),
        write=functools.partial(write, in_pairs, "jsonl"), read=pairs, other=["dataset.eval.path=other.jsonl"],
        script=("chosen_input_ids", "chosen_attention_mask", "rejected_input_ids", "rejected_attention_mask"), length=40, export=HUGGING_FACE,
        report=OF_OTHERS, **{"predicted": TWO_TEXTS, "new": GENERATES} | more)


def rewards(output, folder):
    return dict(zip(("reward(chosen)", "reward(rejected)"), map(torch.Tensor.tolist, output.flatten().chunk(2))))


JOBS |= {
    "causal language model": Job(
        "model: {layers: [{type: LlamaForCausalLM, pretrained: llama, fields: [input_ids]}]}\nloss: {type: CrossEntropyLoss, class_dim: -1}\n"
        + sets("{type: TextLM, path: PART.txt, tokenizer: llama, block_size: 6}"),
        write=functools.partial(write, lambda row, is_new: row["second"] + "\n", "txt"), read=blocks, forward=by_transformers("llama", inputs=("input_ids",)), loss=of_tokens,
        other=["dataset.eval.path=other.txt"], script=("input_ids",), opened=opened_by(transformers.AutoModelForCausalLM, ("input_ids",)), export=HUGGING_FACE,
        **SEQUENCES | {"array": []}),
    "chat with LoRA": Job(
        f"model:\n  layers: [{{type: LlamaForCausalLM, pretrained: llama}}]\n  {LORA}\nloss: CausalLMLoss\n" + sets("{type: Chat, path: PART.jsonl, tokenizer: llama, max_length: 60}"),
        write=functools.partial(write, messages, "jsonl"), read=chats, forward=with_lora, loss=following, other=["dataset.eval.path=other.jsonl"],
        script=DECODER_INPUTS, length=60, opened=opened_by_peft, export=["--format", "peft"], **SEQUENCES | {"new": GENERATES, "report": OF_OTHERS, "array": None}),
    "ORPO": of_pairs(
        "LlamaForCausalLM", "{type: ORPOLoss, beta: 0.3, inputs: [llama, chosen_labels, rejected_labels, chosen_input_ids, chosen_attention_mask]}", name="llama",
        forward=both(by_transformers("llama", "llama.", DECODER_INPUTS)), loss=orpo, by_batch=True,
        opened=lambda exported, folder, fields: both(lambda state, fields: opened_by(transformers.AutoModelForCausalLM)(exported, folder, fields))({}, fields)),
    "reward model": of_pairs(
        "LlamaForSequenceClassification", "{type: BradleyTerryLoss, inputs: [llama]}", name="reward", forward=both(by_transformers("reward", "llama.", DECODER_INPUTS)),
        loss=bradley_terry, of_eval=rewards, predicted=lambda output, folder: {"reward": rewards(output, folder)["reward(chosen)"]}, new=["new.jsonl"],
        beside=line_numbers,
        opened=lambda exported, folder, fields: both(lambda state, fields: opened_by(transformers.AutoModelForSequenceClassification)(exported, folder, fields))({}, fields)),
}


@pytest.fixture(name="runs", scope="module")
def runs_of_jobs(tmp_path_factory):
    """Each job is trained when its first cell is looked at."""
    def trained(name):
        folder = tmp_path_factory.mktemp("job")
        write_peers(folder, JOBS[name].recipe)
        return train(JOBS[name], folder)

    return functools.cache(trained)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", JOBS)
def test_each_job_is_right_or_refused(runs, name, cell):
    CELLS[cell](runs(name))
