"""What is wrong with the first rows of a file, or with the sizes of an evaluation set, is said before training: by `validate` where a recipe's column or
key is missing, and at the start where a picture has another size."""

import json
import subprocess

import pytest

from tests.program import CALLED

VOCABULARY = "\n".join("[PAD] [UNK] [CLS] [SEP] [MASK] good bad film the a was it".split()) + "\n"
TEXTS = "[{type: Embedding, inputs: input_ids, num_embeddings: 12, embedding_dim: 4}, {type: Mean, dim: 1}, {type: Linear, out_features: 2}]"


def trainrun(folder, *arguments, status=0):
    done = subprocess.run([CALLED, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == status, text
    return text


def recipe(folder, train, layers=TEXTS, loss="CrossEntropyLoss", evaluation=""):
    (folder / "words").mkdir(exist_ok=True)
    (folder / "words/vocab.txt").write_text(VOCABULARY)
    (folder / "r.yaml").write_text(
        f"version: 1\nmodel: {{layers: {layers}}}\nloss: {loss}\ndataset:\n  train: {{{train}}}\n{evaluation}"
        "dataloader: {batch_size: 2}\noptimizer: {type: SGD, lr: 0.01}\ntraining: {num_epochs: 1}\noutput_dir: run\n")
    return "r.yaml"


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


LANGUAGE = "[{type: Embedding, inputs: input_ids, num_embeddings: 12, embedding_dim: 4}, {type: Linear, out_features: 12}, {type: Permute, dims: [0, 2, 1]}]"
CASES = {
    "classes": ("t.csv", "text,class\ngood film,0\n", "type: TextClassification, path: t.csv, tokenizer: words, label: label, max_length: 8", "t.csv: has no column 'label'"),
    "classes of JSON": ("t.jsonl", lines({"texts": "good film", "label": 0}), "type: TextClassification, path: t.jsonl, tokenizer: words, max_length: 8",
                        "t.jsonl:1: has no key 'text'; did you mean texts? Then write text_columns: texts"),
    "chats": ("t.jsonl", lines({"dialogue": []}), "type: Chat, path: t.jsonl, tokenizer: words, max_length: 8", "t.jsonl:1"),
    "corpus": ("t.jsonl", lines({"body": "good film"}), "type: TextLM, path: t.jsonl, tokenizer: words, block_size: 2", "t.jsonl:1: has no key 'text'; write text_column: body"),
    "texts": ("t.tsv", "body\tid\ngood film\t1\n", "type: Texts, path: t.tsv, tokenizer: words, max_length: 8", "t.tsv: has no column 'text'"),
    "tags": ("t.jsonl", lines({"words": ["good"], "ner_tags": ["O"]}), "type: TokenClassification, path: t.jsonl, tokenizer: words, max_length: 8", "t.jsonl:1: has no key 'tokens'"),
    "pairs": ("t.jsonl", lines({"prompt": "a", "choosen": "b", "rejected": "c"}), "type: PreferencePairs, path: t.jsonl, tokenizer: words, max_length: 8",
              "t.jsonl:1: has no key 'chosen'; did you mean choosen?"),
}


@pytest.mark.parametrize("case", CASES)
def test_validate_finds_that_a_column_or_key_is_missing(tmp_path, case):
    name, content, train, message = CASES[case]
    recipe(tmp_path, train, LANGUAGE if case in ("chats", "corpus") else TEXTS)
    trainrun(tmp_path, "validate", "r.yaml", status=0 if case not in ("tags", "pairs", "texts") else 2)  # a file that is not there may come yet
    (tmp_path / name).write_text(content)
    said = trainrun(tmp_path, "validate", "r.yaml", status=2)
    assert message in said, said


def test_only_the_first_rows_are_looked_at(tmp_path):
    rows = [{"text": "good film", "label": i % 2} for i in range(30)]
    (tmp_path / "t.jsonl").write_text(lines(*rows, {"text": "good film"}))
    recipe(tmp_path, "type: TextClassification, path: t.jsonl, tokenizer: words, max_length: 8")
    trainrun(tmp_path, "validate", "r.yaml")
    assert "t.jsonl:31: has no key 'label'" in trainrun(tmp_path, "r.yaml", status=1)


@pytest.mark.parametrize("key", ["time", "group"])
def test_validate_finds_that_a_column_of_windows_is_missing(tmp_path, key):
    (tmp_path / "t.csv").write_text("day,shop,y\n" + "".join(f"2024-01-{i + 1:02},a,{i}\n" for i in range(9)))
    train = "type: Windows, length: 3, %s: %s, dataset: {type: CSV, path: t.csv, label: y, task: regression, features: [y2], id: [day, shop]}".replace("features: [y2], ", "")
    recipe(tmp_path, train % (key, "days" if key == "time" else "shops"), "[Flatten, {type: Linear, out_features: 1}]", "MSELoss")
    said = trainrun(tmp_path, "validate", "r.yaml", status=2)
    assert "there is no such column; did you mean " + ("day?" if key == "time" else "shop?") in said
    recipe(tmp_path, train % (key, "day" if key == "time" else "shop"), "[Flatten, {type: Linear, out_features: 1}]", "MSELoss")
    trainrun(tmp_path, "validate", "r.yaml")
    trainrun(tmp_path, "r.yaml")


def test_a_picture_of_another_size_in_the_evaluation_set_is_found_before_training(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    for part in ("train", "test"):
        for name in ("ant", "bee"):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for i in range(3):
                Image.new("RGB", (8, 8), (i * 40, 0, 0)).save(folder / f"{i}.png")
    Image.new("RGB", (9, 8)).save(tmp_path / "test/bee/2.png")
    layers = "[Flatten, {type: Linear, out_features: 2}]"
    recipe(tmp_path, "type: ImageFolder, root: train", layers, evaluation="  eval: {type: ImageFolder, root: test}\n")
    said = trainrun(tmp_path, "r.yaml", status=1)
    assert "test/bee/2.png: the image has 8x9 pixels, others 8x8; add image_transforms that make them alike" in said
    metrics = tmp_path / "run/metrics.jsonl"
    assert not metrics.exists() or "train/loss" not in metrics.read_text()
    trainrun(tmp_path, "r.yaml", "dataset.eval.image_transforms=[{type: Resize, size: [8, 8]}]")


# --- A loss that does not go with conversations -----------------------------------------------------------------


@pytest.fixture
def chats(tmp_path):
    (tmp_path / "t.jsonl").write_text(lines({"prompt": "good", "completion": "bad film"}))
    layers = "[{type: Embedding, inputs: input_ids, num_embeddings: 12, embedding_dim: 4}, {type: Linear, out_features: 12, name: scores}]"
    recipe(tmp_path, "type: Chat, path: t.jsonl, tokenizer: words, max_length: 8", layers)
    return tmp_path


def test_cross_entropy_of_tokens_is_told_what_fits(chats):
    said = trainrun(chats, "validate", "r.yaml", status=2)
    assert "classes are the last dimension of [N, 8, 12], the loss wants them second; write loss: CausalLMLoss where they are the next tokens, else class_dim: -1" in said
    for loss in ("CausalLMLoss", "{type: CrossEntropyLoss, class_dim: -1}"):
        trainrun(chats, "r.yaml", f"loss={loss}")


def test_a_model_that_gives_one_answer_for_all_tokens_is_told_so(chats):
    layers = "[{type: Embedding, inputs: input_ids, num_embeddings: 12, embedding_dim: 4}, {type: Mean, dim: 1}, {type: Linear, out_features: 12}]"
    said = trainrun(chats, "validate", "r.yaml", f"model.layers={layers}", status=2)
    assert "needs labels [N], but has [N, 8]: each sample has several, as of its tokens, so that the model must give classes for each: [N, T, C]" in said


def test_tokens_that_are_compared_with_themselves_are_told(chats):
    note = "compares with 'input_ids', the tokens that the model reads itself, so that it learns to copy them; the tokens that come next are 'labels': write inputs: [scores, labels]"
    assert note in trainrun(chats, "validate", "r.yaml", "loss={type: CausalLMLoss, inputs: [scores, input_ids]}")
    assert "learns to copy" not in trainrun(chats, "validate", "r.yaml", "loss={type: CausalLMLoss, inputs: [scores, labels]}")
