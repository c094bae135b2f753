"""Data sets of Hugging Face's hub by name: what trainrun fetches, huggingface_hub finds in its cache, and the other way round; and a run on such data gives
what one on the same rows in a file of this machine gives. Against a server on this machine (hub_server.py)."""

import csv
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet
import pytest

from hub_server import COMMIT, Hub

from tests.program import CALLED

NAME = "tiny/rows.v1"
NAMES = ["ant", "bee", "cat"]
TOKEN = "hf_very_secret_token"
SECONDS = 60  # that any process may take
SHARDS = [f"data/train-0000{i}-of-00002.parquet" for i in range(2)]
CARD = """\
---
license: mit
dataset_info:
  features:
  - {name: a, dtype: float32}
  - name: kind
    dtype:
      class_label:
        names:
          '0': ant
          '1': bee
          '2': cat
---
# Rows
"""


def rows(seed, count):
    draw = np.random.default_rng(seed)
    return {"a": draw.normal(size=count).astype(np.float32), "b": draw.integers(0, 9, count), "kind": draw.integers(0, 3, count)}


def write(path, columns, names=None):
    """With what `datasets` says of the columns, where the classes have names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    if names:
        features = {"a": {"dtype": "float32", "_type": "Value"}, "kind": {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pyarrow.parquet.write_table(table, path)


def joined(*parts):
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


class Place:
    """A folder with recipes, a cache, and a hub with a data set of two shards for training and one for evaluation."""

    def __init__(self, folder, hub):
        self.folder, self.hub, self.cache = folder, hub, folder / "cache/hub"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING", "TRANSFORMERS_")) and not name.lower().endswith("_proxy")}
        self.environment = kept | {"HF_HOME": str(folder / "cache"), "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
                                   "HOME": str(folder), "TRAINRUN_CACHE": str(folder / "own")}
        self.source = folder / "source"
        for i, shard in enumerate(SHARDS):
            write(self.source / shard, rows(i, 10 + i), NAMES)
        write(self.source / "data/test-00000-of-00001.parquet", rows(7, 8), NAMES)
        (self.source / "README.md").write_text("# Rows\n")
        write(folder / "train.parquet", joined(rows(0, 10), rows(1, 11)))
        write(folder / "test.parquet", rows(7, 8))
        self.publish()
        self.recipe("hub", f"{{type: HubDataset, path: {NAME}, split: SPLIT, label: kind}}")
        self.recipe("local", "{type: Parquet, path: SPLIT.parquet, label: kind}")

    def publish(self):
        self.hub.add(NAME, self.source, "datasets")

    def recipe(self, name, source):
        (self.folder / f"{name}.yaml").write_text(f"""\
seed: 3
model: {{layers: [{{type: Linear, out_features: 3}}]}}
loss: CrossEntropyLoss
metrics: [Accuracy]
dataset: {{train: {source.replace('SPLIT', 'train')}, eval: {source.replace('SPLIT', 'test')}}}
dataloader: {{batch_size: 4}}
optimizer: {{type: SGD, lr: 0.1}}
training: {{num_epochs: 2}}
logging: {{every_steps: 1}}
output_dir: {name}
device: cpu
""")

    @property
    def repository(self):
        return self.cache / ("datasets--" + NAME.replace("/", "--"))

    def start(self, *arguments, **environment):
        return subprocess.Popen([CALLED, *map(str, arguments)], cwd=self.folder, env=self.environment | environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def trainrun(self, *arguments, code=0, **environment):
        output, errors = ended(self.start(*arguments, **environment), code)
        return output + errors

    def python(self, text, **environment):
        done = subprocess.run([sys.executable, "-c", text], cwd=self.folder, env=self.environment | environment, capture_output=True, text=True, check=False,
                              timeout=SECONDS, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def losses(self, run):
        lines = [json.loads(line) for line in (self.folder / run / "metrics.jsonl").read_text().splitlines()]
        return [{name: value for name, value in line.items() if "loss" in name or "accuracy" in name} for line in lines]

    def fetched(self):
        return [request for request in self.hub.requests if request.startswith("GET store")]


def ended(running, code=0):
    try:
        output, errors = running.communicate(timeout=SECONDS)
    finally:
        running.kill()
    assert running.returncode == code, output + errors
    return output, errors


@pytest.fixture(name="place")
def place_with_a_hub(tmp_path):
    hub = Hub()
    yield Place(tmp_path, hub)
    hub.close()


def test_a_run_on_the_hub_is_that_on_the_same_rows_in_a_file_and_python_finds_what_it_fetched(place):
    said = place.trainrun("validate", "hub.yaml")
    assert "valid as far as can be told before the data are fetched" in said
    assert f"dataset.train.path: {NAME} is not in the cache ({place.cache}); a run fetches it from {place.hub.url}/datasets/{NAME}" in said
    assert f"{NAME}: there is no such folder, and it is not in the cache" in place.trainrun("explain", "hub.yaml", code=2)
    assert not place.hub.requests
    said = place.trainrun("run", "hub.yaml")
    assert f"fetched {NAME}: {SHARDS[0]}" in said and f"{NAME} is in the cache: {place.repository}/snapshots/{COMMIT}" in said
    place.trainrun("run", "local.yaml")
    assert place.losses("hub") == place.losses("local") and len(place.losses("hub")) > 10
    asked = len(place.hub.requests)
    said = place.trainrun("validate", "hub.yaml")
    assert f"{NAME} is in the cache: {place.repository}/snapshots/{COMMIT}" in said and ": valid\n" in said
    place.trainrun("explain", "hub.yaml")
    place.trainrun("run", "hub.yaml", "output_dir=again")
    assert place.losses("again") == place.losses("local")
    found = place.python(f"""
import huggingface_hub
for file in {SHARDS!r} + ["README.md"]:
    print(huggingface_hub.hf_hub_download({NAME!r}, file, repo_type="dataset", local_files_only=True))
print(huggingface_hub.snapshot_download({NAME!r}, repo_type="dataset", local_files_only=True))
print(sorted(file.path for file in huggingface_hub.get_cached_repo_tree({NAME!r}, repo_type="dataset")))
info = huggingface_hub.scan_cache_dir()
print(info.warnings, [(repo.repo_type, repo.repo_id, len(next(iter(repo.revisions)).files)) for repo in info.repos])
""", HF_HUB_OFFLINE="1").splitlines()
    snapshot = f"{place.repository}/snapshots/{COMMIT}"
    assert found == [*(f"{snapshot}/{file}" for file in [*SHARDS, "README.md"]), snapshot, str(sorted(place.hub.repos["datasets", NAME])),
                     f"[] [('dataset', '{NAME}', 4)]"]
    for shard in SHARDS:
        content = place.hub.repos["datasets", NAME][shard]
        assert os.readlink(f"{snapshot}/{shard}") == f"../../../blobs/{hashlib.sha256(content).hexdigest()}"
    assert len(place.hub.requests) == asked, "neither of them asked the hub again"


def test_the_names_of_classes_come_from_the_file_or_the_card_and_outlive_the_cache(place):
    place.trainrun("run", "hub.yaml")
    report = json.loads(place.start("eval", "hub", "--report", "--json").communicate(timeout=SECONDS)[0])["report"]["eval"]
    assert [row["name"] for row in report["classes"]] == NAMES
    shutil.rmtree(place.cache)
    (place.folder / "new.csv").write_text("b,a\n1,0.5\n2,-1\n")
    output, _ = ended(place.start("predict", "hub", "new.csv", HF_HUB_OFFLINE="1"))
    table = list(csv.DictReader(io.StringIO(output)))
    assert len(table) == 2 and {row["label"] if "label" in row else row["kind"] for row in table} <= set(NAMES) and "p(cat)" in table[0]
    for shard, seed in zip(SHARDS, (0, 1)):
        write(place.source / shard, rows(seed, 10 + seed))
    (place.source / "README.md").write_text(CARD)
    write(place.source / "data/test-00000-of-00001.parquet", rows(7, 8))
    place.publish()
    place.trainrun("run", "hub.yaml", "output_dir=card")
    output, _ = ended(place.start("predict", "card", "new.csv"))
    assert "p(ant)" in output and "p(cat)" in output


def test_what_python_fetched_trainrun_finds_and_a_part_is_not_taken_for_the_whole(place):
    place.python(f"import huggingface_hub; huggingface_hub.snapshot_download({NAME!r}, repo_type='dataset')")
    place.hub.requests.clear()
    place.trainrun("run", "hub.yaml", HF_HUB_OFFLINE="1")
    place.trainrun("run", "local.yaml")
    assert place.losses("hub") == place.losses("local")
    pinned = ["dataset.train.revision=" + COMMIT, f"dataset.eval.path={NAME}@{COMMIT}"]
    place.trainrun("run", "hub.yaml", *pinned, "output_dir=pinned", HF_DATASETS_OFFLINE="1")
    assert not place.hub.requests
    other = {"HF_HUB_CACHE": str(place.folder / "other")}
    place.python(f"import huggingface_hub; [huggingface_hub.hf_hub_download({NAME!r}, file, repo_type='dataset') for file in "
                 f"({SHARDS[1]!r}, 'data/test-00000-of-00001.parquet')]", **other)
    said = place.trainrun("run", "hub.yaml", "output_dir=part", code=2, HF_HUB_OFFLINE="1", **other)
    assert "has a part of the split train: data/train-00000-of-00002 is not there" in said
    place.trainrun("run", "hub.yaml", "output_dir=part", **other)
    assert place.losses("part") == place.losses("local")
    said = place.trainrun("run", "hub.yaml", f"dataset.train.files={SHARDS[0]}", "dataset.train.split=null", "output_dir=one", **other)
    assert place.losses("one") != place.losses("local")


def test_transfers_that_break_off_go_on_and_damage_is_seen(place):
    place.hub.breaks = 2
    place.trainrun("run", "hub.yaml")
    assert sum("bytes=" in request for request in place.fetched()) == 2
    place.hub.damaged.add(hashlib.sha256(place.hub.repos["datasets", NAME][SHARDS[1]]).hexdigest())
    said = place.trainrun("run", "hub.yaml", "output_dir=b", code=2, HF_HUB_CACHE=str(place.folder / "other"))
    assert f"{NAME}: {SHARDS[1]}: cannot be fetched" in said and "its content is damaged" in said
    assert not list((place.folder / "other").rglob(f"snapshots/*/{SHARDS[1]}"))


def test_a_busy_hub_is_asked_again_a_few_times(place):
    place.hub.busy = {"/api/": [2, 429, {"Retry-After": "0"}], "/resolve/": [3, 503, {"Retry-After": "0"}]}
    place.trainrun("run", "hub.yaml")
    assert [busy[0] for busy in place.hub.busy.values()] == [0, 0]
    place.hub.busy = {"/resolve/": [5, 503, {"Retry-After": "0"}]}
    said = place.trainrun("run", "hub.yaml", "output_dir=b", code=2, HF_HUB_CACHE=str(place.folder / "other"))
    assert f"{NAME}: README.md: {place.hub.url} answers 503" in said and place.hub.busy["/resolve/"][0] == 1
    place.hub.busy = {"/api/": [1, 429, {"Retry-After": "3600"}]}
    assert "try again in 3600 s" in place.trainrun("run", "hub.yaml", "output_dir=b", code=2, HF_HUB_CACHE=str(place.folder / "other2"))


def test_the_token_goes_to_the_hub_alone_and_is_never_shown(place):
    place.hub.private[NAME] = TOKEN
    said = place.trainrun("run", "hub.yaml", code=2)
    assert f"{NAME}: {place.hub.url} answers 401: there is no data set {NAME}, or it is private" in said and "set HF_TOKEN" in said
    said = place.trainrun("run", "hub.yaml", "--verbose", HF_TOKEN=TOKEN)
    assert set(place.hub.tokens_of_store) == {None} and TOKEN not in said
    assert not any(TOKEN in path.read_text(errors="replace") for path in (place.folder / "hub").rglob("*") if path.is_file())


def test_what_is_not_there_is_said_with_what_there_is(place):
    def said(*more, **environment):
        return place.trainrun("run", "hub.yaml", *more, code=2, **environment)

    assert "answers 404: there is no data set tiny/rows.v2" in said("dataset.train.path=tiny/rows.v2")
    assert f"answers 404: there is no revision v9 of {NAME}" in said("dataset.train.revision=v9")
    assert f"{NAME}: has no split trian; did you mean train? It has train, test" in said("dataset.train.split=trian")
    assert f"{NAME}: has no config en; it has none at all" in said("dataset.train.config=en")
    for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        assert f"but {variable} is set" in said(HF_HUB_CACHE=str(place.folder / "other"), **{variable: "1"})
    (place.folder / "tiny/rows").mkdir(parents=True)
    assert "or did you mean the local path ./tiny/rows, which is there?" in said("dataset.train.path=tiny/rowz")
    assert "or did you mean the local path ./tiny/rows, which is there?" in place.trainrun("validate", "hub.yaml", "dataset.train.path=tiny/rowz")
    assert "the name of a data set on Hugging Face's hub" in said("dataset.train.path=./tiny/rowz")
    assert "path says a revision, too" in said(f"dataset.train.path={NAME}@v1", "dataset.train.revision=v1")


def test_configs_of_the_card_and_csv_files(place):
    (place.source / "README.md").write_text("---\nconfigs:\n- config_name: semicolons\n  sep: ;\n  data_files:\n  - {split: train, path: 'x/*.csv'}\n"
                                            "  - {split: test, path: x/2.csv}\n- config_name: lines\n  data_files: {train: y.jsonl, test: y.jsonl}\n---\n")
    (place.source / "x").mkdir()
    for i in (1, 2):
        (place.source / f"x/{i}.csv").write_text(f"a;kind\n{i};0\n3;{i}\n")
    (place.source / "y.jsonl").write_text("".join(json.dumps({"a": a, "kind": kind}) + "\n" for a, kind in ((1, 0), (3, 1), (2, 0), (3, 2))))
    place.publish()
    assert "has several configs; say which: config: semicolons; it has semicolons, lines" in place.trainrun("run", "hub.yaml", code=2)
    more = ["dataset.train.num_classes=3", "dataset.eval.num_classes=3"]
    for config in ("semicolons", "lines"):
        place.trainrun("run", "hub.yaml", f"dataset.train.config={config}", f"dataset.eval.config={config}", f"output_dir={config}", "dataset.eval.split=train", *more)
    assert place.losses("semicolons") == place.losses("lines")


def test_two_processes_that_start_at_once_fetch_each_file_once(place):
    both = [place.start("run", "hub.yaml", f"output_dir=run{i}") for i in range(2)]
    for running in both:
        ended(running)
    assert len(place.fetched()) == 3
    place.trainrun("run", "hub.yaml", "output_dir=ranks", "num_processes=2", "distributed_type=MULTI_CPU", HF_HUB_CACHE=str(place.folder / "of_ranks"))
    assert len(place.fetched()) == 6


def test_files_of_the_hub_wherever_a_data_set_takes_a_path(place):
    url = f"hf://datasets/{NAME}"
    place.recipe("urls", f"{{type: Parquet, path: '{url}/data/SPLIT-*.parquet', label: kind, num_classes: 3}}")
    said = place.trainrun("validate", "urls.yaml")
    assert f"dataset.train.path: {NAME} is not in the cache" in said and "before the data are fetched" in said
    place.trainrun("run", "urls.yaml")
    place.trainrun("run", "local.yaml")
    assert place.losses("urls") == place.losses("local")
    assert url in (place.folder / "urls/recipe.yaml").read_text(), "the run's recipe names the hub, not this machine's cache"
    place.trainrun("eval", "urls", HF_HUB_OFFLINE="1")
    assert f"{NAME}: has no file gone.csv" in place.trainrun("run", "urls.yaml", f"dataset.train.path={url}/gone.csv", "output_dir=b", code=2)
    assert "expected hf://datasets/ORG/NAME/FILE" in place.trainrun("validate", "urls.yaml", "dataset.train.path=hf://a/b/c.csv", code=2)


def test_texts_of_the_hub_are_those_of_a_file(place):
    for name in ("a.txt", "b.txt"):
        (place.source / name).write_text(f"{name}: to be or not to be, that is the question\n" * 20)
        shutil.copy(place.source / name, place.folder / name)
    place.publish()
    for run, folder in (("here", ""), ("hub", f"hf://datasets/{NAME}@{COMMIT}/")):
        (place.folder / f"{run}.yaml").write_text(f"""\
seed: 1
model:
  layers:
    - {{type: Embedding, num_embeddings: 32, embedding_dim: 8}}
    - {{type: Linear, out_features: 32}}
loss: {{type: CrossEntropyLoss, class_dim: -1}}
dataset: {{train: {{type: TextLM, path: ['{folder}a.txt', '{folder}b.txt'], tokenizer: characters, block_size: 8}}}}
dataloader: {{batch_size: 4}}
optimizer: {{type: SGD, lr: 0.1}}
training: {{max_steps: 6}}
logging: {{every_steps: 1}}
output_dir: {run}
device: cpu
""")
        place.trainrun("run", f"{run}.yaml")
    assert place.losses("hub") == place.losses("here") and len(place.losses("hub")) >= 6


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
