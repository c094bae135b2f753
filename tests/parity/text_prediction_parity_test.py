"""`trainrun predict` on files of texts, against transformers' pipeline with the trained model."""

import csv
import gzip
import io
import json
import subprocess

import pytest

from tests.program import CALLED

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")
tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")

from language_models import BERT  # noqa: E402
from word_pieces import bert_tokenizer  # noqa: E402

FIRST = ["a fine day", "it rained, again", 'he said "no"', "words and words and more words"]
SECOND = ["what weather", "rain", "he refused", "a b c d e f g h i j k l m n o p"]
CLASSES = ["bad", "good", "so-so"]
MORE = [("rain and words", "a fine b"), ('"more" weather', "he, again"), ("it", "it"), ("d e f " * 20, "words")]
RECIPE = """
version: 1
name: texts
model: {layers: [{type: BertForSequenceClassification, pretrained: PEER, num_labels: 3}]}
loss: CrossEntropyLoss
dataset: {train: {type: TextClassification, path: train.csv, text_columns: COLUMNS, tokenizer: PEER/tokenizer.json, max_length: 24}}
dataloader: {batch_size: 2, eval_batch_size: 3}
optimizer: {type: AdamW, lr: 1e-3}
training: {max_steps: 5}
output_dir: run
"""


def trainrun(folder, *arguments, fails=False):
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def trained(folder, columns):
    made = bert_tokenizer([*FIRST, *SECOND], 90)
    made.decoder = tokenizers.decoders.WordPiece()
    BERT.saved(folder / "peer")
    made.save(str(folder / "peer/tokenizer.json"))
    with (folder / "train.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("label", "first", "second"), *zip([*CLASSES, "good"], FIRST, SECOND, strict=True)])
    (folder / "recipe.yaml").write_text(RECIPE.replace("PEER", str(folder / "peer")).replace("COLUMNS", columns))
    trainrun(folder, "--quiet", "recipe.yaml")
    trainrun(folder, "export", "run", "--format", "huggingface", "--output", "trained")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "trained").eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "peer/tokenizer.json"), pad_token="[PAD]", unk_token="[UNK]",
                                                     cls_token="[CLS]", sep_token="[SEP]",
                                                     model_input_names=["input_ids", "token_type_ids", "attention_mask"])  # the second text is of type 1
    return transformers.TextClassificationPipeline(model=model, tokenizer=tokenizer, device="cpu")


@pytest.fixture(name="pairs", scope="module")
def folder_and_pipeline_of_pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    return folder, trained(folder, "[first, second]")


def expected_of(pipeline, texts):
    """The probability of each class, in the order of the classes."""
    rows = []
    for text in texts:
        scores = pipeline(text, top_k=None, function_to_apply="softmax", truncation="longest_first", max_length=24)
        rows.append([score["score"] for score in sorted(scores, key=lambda score: score["label"])])
    return rows


def write(path, rows, columns):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))
        return
    with path.open("w", newline="") as file:
        if path.suffix == ".csv":
            csv.writer(file).writerows([columns, *rows])
        else:
            file.write("".join("\t".join(row) + "\n" for row in [columns, *rows]))


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl"])
def test_pairs_of_texts_get_the_probabilities_of_transformers(pairs, kind):
    folder, pipeline = pairs
    path = folder / f"more.{kind}"
    write(path, [(second, "7", first) for first, second in MORE], ("second", "id", "first"))  # no labels, another order
    expected = expected_of(pipeline, [{"text": first, "text_pair": second} for first, second in MORE])
    rows = [json.loads(line) for line in trainrun(folder, "predict", "run", path, "--format", "jsonl").splitlines()]
    for row, probabilities in zip(rows, expected, strict=True):
        assert [row["probabilities"][name] for name in CLASSES] == pytest.approx(probabilities, abs=1e-5)
        assert row["label"] == CLASSES[probabilities.index(max(probabilities))]
    assert [(row["line"], row["id"]) for row in rows] == [(i + (kind != "jsonl"), "7") for i in range(1, 5)]
    assert max(max(row) - min(row) for row in expected) > 0.1, "the model says nothing"
    trainrun(folder, "predict", "run", path, "--output", "out.csv")
    table = list(csv.DictReader(io.StringIO((folder / "out.csv").read_text())))
    found = [[float(row[f"p({name})"]) for name in CLASSES] for row in table]
    assert found == [pytest.approx(row, abs=1e-5) for row in expected]


def test_single_texts(single):
    tmp_path, pipeline = single
    write(tmp_path / "more.tsv", [(first,) for first, _ in MORE], ("first",))
    rows = [json.loads(line) for line in trainrun(tmp_path, "predict", "run", "more.tsv", "--format", "jsonl").splitlines()]
    expected = expected_of(pipeline, [first for first, _ in MORE])
    assert [[row["probabilities"][name] for name in CLASSES] for row in rows] == [pytest.approx(row, abs=1e-5) for row in expected]


def test_every_line_is_a_text_where_no_column_is_named(single):
    tmp_path, pipeline = single
    texts = ["a fine day", "it rained, again", 'he said "no"\tor not'.replace("\t", " "), "words"]
    (tmp_path / "more.txt").write_text("".join(text + "\n" for text in texts))
    expected = [pytest.approx(row, abs=1e-5) for row in expected_of(pipeline, texts)]
    for arguments, given in ((["more.txt"], None), (["-"], (tmp_path / "more.txt").read_text())):
        done = subprocess.run([CALLED, "predict", "run", *arguments, "--format", "jsonl"], cwd=tmp_path, input=given, capture_output=True, text=True, timeout=60,
                              check=True)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert [[row["probabilities"][name] for name in CLASSES] for row in rows] == expected
        assert [row["line"] for row in rows] == [1, 2, 3, 4]


WORDS = ["a fine day", "it rained", "he said no", "Zürich rain"]


def in_csv(rows, end="\n", delimiter=",", quoting=csv.QUOTE_MINIMAL):
    text = io.StringIO()
    csv.writer(text, lineterminator=end, delimiter=delimiter, quoting=quoting).writerows(rows)
    return text.getvalue()


def in_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


# A file's name, what is in it, and the texts that it means, or what is said of it.
TEXT_FILES = {
    "a column": ("a.csv", in_csv([["first"], *([text] for text in WORDS)]), WORDS),
    "columns turned": ("a.csv", in_csv([["label", "note", "first"], *(["bad", i, text] for i, text in enumerate(WORDS))]), WORDS),
    "labels of other classes": ("a.csv", in_csv([["first", "label"], *([text, "dreadful"] for text in WORDS)]), WORDS),
    "empty labels": ("a.csv", in_csv([["first", "label"], *([text, ""] for text in WORDS)]), WORDS),
    "quotation marks": ("a.csv", in_csv([["first"], *([text] for text in WORDS)], quoting=csv.QUOTE_ALL), WORDS),
    "Windows line ends": ("a.csv", in_csv([["first"], *([text] for text in WORDS)], end="\r\n"), WORDS),
    "a byte-order mark": ("a.csv", "\ufeff" + in_csv([["first"], *([text] for text in WORDS)]), WORDS),
    "compressed": ("a.csv.gz", gzip.compress(in_csv([["first"], *([text] for text in WORDS)]).encode()), WORDS),
    "tabulators": ("a.tsv", in_csv([["note", "first"], *([i, text] for i, text in enumerate(WORDS))], delimiter="\t"), WORDS),
    "a table called .txt": ("a.txt", "label\tfirst\n" + "".join(f"good\t{text}\n" for text in WORDS), WORDS),
    "lines": ("a.txt", "".join(text + "\n" for text in WORDS), WORDS),
    "lines without an end": ("a.txt", "\r\n".join(WORDS), WORDS),
    "JSON lines": ("a.jsonl", in_lines({"id": i, "first": text} for i, text in enumerate(WORDS)), WORDS),
    "keys in turn": ("a.json", in_lines({"first": text, "id": i} if i % 2 else {"id": i, "first": text} for i, text in enumerate(WORDS)), WORDS),
    "an unknown column": ("a.csv", in_csv([["text"], *([text] for text in WORDS)]), "a.csv:1:first: there is no such column"),
    "a key that is missing": ("a.jsonl", in_lines([{"first": "a"}, {"other": "b"}]), "a.jsonl:2:first: the value is missing, expected a string"),
    "a number for a text": ("a.jsonl", in_lines([{"first": "a"}, {"first": 7}]), "a.jsonl:2:first: expected a string, found a number"),
    "latin-1": ("a.csv", in_csv([["first"], *([text] for text in WORDS)]).encode("latin-1"), "a.csv:5"),
    "UTF-16": ("a.txt", "\n".join(WORDS).encode("utf-16"), "a.txt"),
    "a short row": ("a.csv", in_csv([["first", "note"], ["a", "b"], ["a"]]), "a.csv:3: 1 columns, the first line has 2"),
    "nothing": ("a.txt", "", "a.txt: is empty"),
    "names alone": ("a.csv", "first\n", "a.csv: has no rows"),
}


@pytest.fixture(name="single", scope="module")
def folder_and_pipeline_of_texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("single")
    return folder, trained(folder, "first")


@pytest.mark.parametrize("name", TEXT_FILES)
def test_texts_are_read_by_name_or_refused(single, tmp_path, name):
    folder, pipeline = single
    file, content, means = TEXT_FILES[name]
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    if isinstance(means, str):
        assert means in trainrun(folder, "predict", "run", tmp_path / file, fails=True)
        return
    rows = [json.loads(line) for line in trainrun(folder, "predict", "run", tmp_path / file, "--format", "jsonl").splitlines()]
    assert [[row["probabilities"][kind] for kind in CLASSES] for row in rows] == [pytest.approx(row, abs=1e-5) for row in expected_of(pipeline, means)]


def test_without_a_file_it_is_for_the_evaluation_data(pairs):
    folder, pipeline = pairs
    source = f"dataset.eval={{type: TextClassification, path: train.csv, text_columns: [first, second], tokenizer: {folder}/peer/tokenizer.json, max_length: 24}}"
    rows = [json.loads(line) for line in trainrun(folder, "predict", "run", source, "--format", "jsonl").splitlines()]
    expected = expected_of(pipeline, [{"text": first, "text_pair": second} for first, second in zip(FIRST, SECOND, strict=True)])
    assert [[row["probabilities"][name] for name in CLASSES] for row in rows] == [pytest.approx(row, abs=1e-5) for row in expected]


def test_what_is_wrong_with_the_file_is_said(pairs):
    folder, _ = pairs
    write(folder / "wrong.csv", MORE, ("first", "secnod"))
    assert "wrong.csv:1:second: there is no such column, which the model reads; did you mean secnod?" in trainrun(folder, "predict", "run", "wrong.csv", fails=True)
    assert "nowhere.csv is not there" in trainrun(folder, "predict", "run", "nowhere.csv", fails=True)
    write(folder / "empty.csv", [], ("first", "second"))
    assert "empty.csv: has no rows" in trainrun(folder, "predict", "run", "empty.csv", fails=True)


def test_a_file_is_not_for_a_model_of_other_data(tmp_path):
    (tmp_path / "recipe.yaml").write_text("""
version: 1
name: digits
model: {layers: [Flatten, {type: Linear, out_features: 10}]}
loss: CrossEntropyLoss
dataset: {train: {type: Digits, split: train}}
optimizer: AdamW
training: {max_steps: 1}
output_dir: run
""")
    trainrun(tmp_path, "--quiet", "recipe.yaml")
    assert "recipe.yaml: this is not a JPEG, PNG, WebP or BMP file" in trainrun(tmp_path, "predict", "run", "recipe.yaml", fails=True)


def test_a_run_reads_by_its_own_copy_of_a_tokenizer_that_is_changed_or_gone(tmp_path):
    trained(tmp_path, "[first]")
    (tmp_path / "new.txt").write_text("a fine day\nit rained, words\n")

    def predicted(fails=False):
        done = subprocess.run([CALLED, "predict", "run", "new.txt"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode != 0) == fails, done.stderr
        return done.stdout, done.stderr

    first, said = predicted()
    assert "tokenizer" not in said
    own = tmp_path / "peer/tokenizer.json"
    changed = json.loads(own.read_text())
    words = [word for word in changed["model"]["vocab"] if not word.startswith("[")]
    for word, number in zip(words, reversed(range(4, 4 + len(words))), strict=True):
        changed["model"]["vocab"][word] = number
    own.write_text(json.dumps(changed))
    second, said = predicted()
    assert second == first and f"the tokenizer {own} is no longer as it was in training; the run's copy of it is used, run/tokenizers/0/tokenizer.json" in said
    own.unlink()
    third, said = predicted()
    assert third == first and f"the tokenizer {own} is no longer there; the run's copy of it is used" in said
    (tmp_path / "run/tokenizers/0/tokenizer.json").unlink()
    _, said = predicted(fails=True)
    assert f"the tokenizer {own} is no longer there, and neither is the run's copy of it, run/tokenizers/0/tokenizer.json" in said


def test_too_few_classes_are_told_by_the_key_of_the_whole_model(single):
    folder, _ = single
    config = json.loads((folder / "peer/config.json").read_text()) | {"id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0, "b": 1}}
    (folder / "two.json").write_text(json.dumps(config))
    model = f"{{type: BertForSequenceClassification, pretrained: {folder}/peer, num_labels: 3}}"
    recipe = (folder / "recipe.yaml").read_text().replace(model, "{type: BertForSequenceClassification, config: two.json}")
    (folder / "fewer.yaml").write_text(recipe.replace("output_dir: run", "output_dir: fewer"))
    assert "classes go up to 2; write model.layers[0].num_labels: 3" in trainrun(folder, "fewer.yaml", fails=True)
