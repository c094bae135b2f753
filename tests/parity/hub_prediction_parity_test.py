"""Predictions, evaluations and exports with data of Hugging Face's hub: paths with hf://, patterns of files, folders of pictures. Against a server on this
machine (hub_server.py)."""

import csv
import io
import json
import shutil

import numpy as np
import PIL.Image
import pytest

from hub_place import NAME, SECONDS, SHARDS, ended, joined, place_with_a_hub, rows, write  # noqa: F401: a fixture
from hub_server import COMMIT


def predictions(place, *arguments, code=0, **environment):
    output, errors = ended(place.start("predict", *arguments, **environment), code)
    return list(csv.DictReader(io.StringIO(output))) if code == 0 else errors


def without_rows(found):
    return [{name: value for name, value in row.items() if name not in ("file", "row")} for row in found]


def test_predictions_for_what_the_hub_has_are_those_for_the_same_rows_in_a_file(place):
    url = f"hf://datasets/{NAME}"
    place.trainrun("run", "local.yaml")
    expected = predictions(place, "local", "test.parquet")
    assert len(expected) == 8
    assert predictions(place, "local", f"{url}/data/test-00000-of-00001.parquet") == expected
    assert predictions(place, "local", f"{url}@{COMMIT}/data/test-*.parquet", HF_HUB_OFFLINE="1") == expected
    assert predictions(place, "local", url, "--split", "test") == expected
    whole = predictions(place, "local", "train.parquet")
    assert without_rows(predictions(place, "local", f"{url}@main", "--split", "train")) == without_rows(whole)
    assert without_rows(predictions(place, "local", f"{url}/**/train-*.parquet")) == without_rows(whole)
    assert without_rows(predictions(place, "local", "test.parquet", f"{url}/data/train-00001-of-00002.parquet")) == without_rows(expected + whole[10:])
    place.trainrun("run", "hub.yaml")
    assert predictions(place, "hub", url, "--split=test") == predictions(place, "hub", "test.parquet")
    assert f"predict: {url} is a data set; say which of its splits: --split test" in predictions(place, "local", url, code=1)
    assert "has no split tset; did you mean test?" in predictions(place, "local", url, "--split", "tset", code=1)
    assert "has no config de" in predictions(place, "local", url, "--split", "test", "--config", "de", code=1)
    assert "--split chooses among the rows of a data set" in predictions(place, "local", "test.parquet", "--split", "test", code=1)
    assert f"{NAME}: has no file data/tset.parquet" in predictions(place, "local", f"{url}/data/tset.parquet", code=1)
    assert "** stands for folders" in predictions(place, "local", f"{url}/data/**.parquet", code=1)


def test_a_pattern_does_not_pass_over_files_that_the_cache_may_lack(place):
    place.trainrun("run", "local.yaml")
    place.python(f"import huggingface_hub; huggingface_hub.hf_hub_download({NAME!r}, {SHARDS[1]!r}, repo_type='dataset')")
    pattern = f"hf://datasets/{NAME}/data/train-*.parquet"
    said = predictions(place, "local", pattern, code=1, HF_HUB_OFFLINE="1")
    assert "does not tell whether it has all files of data/train-*.parquet" in said and "name the files one by one" in said
    one = predictions(place, "local", f"hf://datasets/{NAME}/{SHARDS[1]}", HF_HUB_OFFLINE="1")
    assert len(one) == 11 and without_rows(predictions(place, "local", pattern))[10:] == without_rows(one)


def test_patterns_take_the_files_that_huggingface_hub_takes_for_them(place):
    files = ["a.csv", "b.csv", "data/a.csv", "data/^.csv", "data/b1.csv", "data/c.CSV", "data/x/a.csv", "data/x/y/a.csv", "data/x/y/b.csv", "more/x/a.csv", "x/a.csv"]
    for number, file in enumerate(files):
        (place.source / file).parent.mkdir(parents=True, exist_ok=True)
        (place.source / file).write_text(f"a,b,number\n{number},1,{number}\n")
    place.publish()
    place.trainrun("run", "local.yaml")
    patterns = ["*.csv", "*/*.csv", "**/*.csv", "data/*.csv", "data/**/*.csv", "data/**/a.csv", "**/a.csv", "**/x/*.csv", "data/?.csv", "data/[!a].csv", "data/[^a].csv",
                "data/[a-b]*.csv", "d*/x/*.csv", "**/y/**/*.csv", "data/x/**/b.csv", "*/x/**/[ab].csv", "data/[].csv", "data/**/?[0-9].csv", "data/**/x/*.csv"]
    asked = f"import huggingface_hub; system = huggingface_hub.HfFileSystem(); print([system.glob('hf://datasets/{NAME}/' + one) for one in {patterns!r}])"
    expected = json.loads(place.python(asked).replace("'", '"'))
    for pattern, paths in zip(patterns, expected, strict=True):
        wanted = [str(files.index(path.removeprefix(f"datasets/{NAME}/"))) for path in paths]
        url = f"hf://datasets/{NAME}/{pattern}"
        if wanted:
            assert [row["number"] for row in predictions(place, "local", url)] == wanted, pattern
        else:
            assert f"{NAME}: has no file {pattern}" in predictions(place, "local", url, code=1)
    assert sum(map(bool, expected)) >= 15
    with pytest.raises(AssertionError, match="can only be an entire path component"):
        place.python(asked.replace(repr(patterns), "['data/**.csv']"))


def test_parquet_files_in_folders_of_folders_are_one_table(place):
    for i, folder in enumerate(("a", "a/b", "c")):
        write(place.source / f"deep/{folder}/rows.parquet", rows(20 + i, 5))
    write(place.folder / "train.parquet", joined(*(rows(20 + i, 5) for i in (1, 0, 2))))  # a/b/rows comes before a/rows
    place.publish()
    place.recipe("deep", f"{{type: Parquet, path: 'hf://datasets/{NAME}/deep/**/*.parquet', label: kind, num_classes: 3}}")
    place.trainrun("run", "local.yaml", "dataset.eval=null")
    place.trainrun("run", "deep.yaml", "dataset.eval=null")
    place.trainrun("run", "deep.yaml", "dataset.eval=null", f"dataset.train.path={place.source}/deep/**/*.parquet", "output_dir=here")
    assert place.losses("deep") == place.losses("local") == place.losses("here")


def test_folders_of_pictures_on_the_hub_are_evaluated_and_predicted_for(place):
    draw = np.random.default_rng(5)
    for part in ("train", "test"):
        for kind in ("cat", "dog"):
            for i in range(3):
                path = place.source / f"{part}/{kind}/{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                PIL.Image.fromarray(draw.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(path)
    place.publish()
    (place.folder / "pictures.yaml").write_text(f"""\
model: {{layers: [Flatten, {{type: Linear, out_features: 2}}]}}
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset:
  train: {{type: ImageFolder, root: {place.source}/train}}
  eval: {{type: ImageFolder, root: {place.source}/train}}
dataloader: {{batch_size: 2}}
optimizer: {{type: SGD, lr: 0.01}}
training: {{num_epochs: 1}}
output_dir: pictures
device: cpu
""")
    place.trainrun("run", "pictures.yaml")
    url = f"hf://datasets/{NAME}/test"
    here, hub = (place.start("eval", "pictures", "--json", f"dataset.eval.root={root}").communicate(timeout=SECONDS)[0] for root in (place.source / "test", url))
    assert json.loads(hub) == json.loads(here)
    assert f"{NAME}: has no file tset" in place.trainrun("eval", "pictures", f"dataset.eval.root={url[:-4]}tset", code=2)
    mine, theirs = (predictions(place, "pictures", root) for root in (str(place.source / "test"), url))
    assert len(mine) == 6 and [list(row.values())[1:] for row in theirs] == [list(row.values())[1:] for row in mine]


def test_the_name_of_a_data_set_may_have_the_scheme(place):
    place.trainrun("run", "hub.yaml", f"dataset.train.path=hf://datasets/{NAME}")
    place.trainrun("run", "local.yaml")
    assert place.losses("hub") == place.losses("local")
    said = place.trainrun("run", "hub.yaml", f"dataset.train.path=hf://datasets/{NAME}/{SHARDS[0]}", "output_dir=b", code=2)
    assert f"write path: {NAME} and files: {SHARDS[0]}" in said
    said = place.trainrun("run", "local.yaml", f"dataset.train.path=hf://datasets/{NAME}", "output_dir=b", code=2)
    assert f"is a data set; name a file of it, or write type: HubDataset, path: {NAME}" in said


def test_the_card_of_a_model_names_the_data_sets_of_the_hub(place):
    tokenizers = pytest.importorskip("tokenizers")
    huggingface_hub = pytest.importorskip("huggingface_hub")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "[PAD]": 1, "good": 2, "bad": 3}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(place.folder / "tokenizer.json"))
    texts = place.folder / "texts"
    texts.mkdir()
    (texts / "train.csv").write_text("text,label\n" + "good,yes\nbad,no\n" * 4)
    shutil.copy(texts / "train.csv", place.folder / "own.csv")
    for name in ("tiny/reviews", "other-org/texts"):
        place.hub.add(name, texts, "datasets")

    def source(path):
        return f"{{type: TextClassification, path: '{path}', text_columns: [text], tokenizer: tokenizer.json, max_length: 4}}"

    mixture = ", ".join(source(path) for path in (f"hf://datasets/tiny/reviews@{COMMIT}/train.csv", "hf://datasets/other-org/texts/train.csv", "own.csv", "hf://datasets/tiny/reviews/train.csv"))
    (place.folder / "texts.yaml").write_text(f"""\
name: reviews
model: {{layers: [{{type: DistilBertForSequenceClassification, vocab_size: 4, dim: 8, n_layers: 1, n_heads: 1, hidden_dim: 8, max_position_embeddings: 4, num_labels: 2}}]}}
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset: {{train: {{type: Concat, datasets: [{mixture}]}}, eval: {source('own.csv')}}}
dataloader: {{batch_size: 4}}
optimizer: {{type: SGD, lr: 0.1}}
training: {{num_epochs: 1}}
output_dir: texts_run
device: cpu
""")
    place.trainrun("run", "texts.yaml")
    place.trainrun("export", "texts_run", "--format", "huggingface", "--output", "model")
    card = huggingface_hub.ModelCard.load(place.folder / "model/README.md")
    assert card.data.datasets == ["tiny/reviews", "other-org/texts"]
    table = card.text[card.text.index("## Data"):card.text.index("## Versions")]
    assert f"`hf://datasets/tiny/reviews@{COMMIT}/train.csv`" in table and str(place.cache) not in table
    place.trainrun("run", "texts.yaml", f"dataset.train=!replace {source('own.csv')}", "output_dir=plain")
    place.trainrun("export", "plain", "--format", "huggingface", "--output", "plain_model")
    assert huggingface_hub.ModelCard.load(place.folder / "plain_model/README.md").data.datasets is None
