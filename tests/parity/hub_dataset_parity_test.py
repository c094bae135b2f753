"""Data sets of Hugging Face's hub by name: what trainrun fetches, huggingface_hub finds in its cache, and the other way round; and a run on such data gives
what one on the same rows in a file of this machine gives. Against a server on this machine (hub_server.py)."""

import csv
import hashlib
import io
import json
import os
import shutil

from hub_place import CARD, NAME, NAMES, SECONDS, SHARDS, TOKEN, ended, place_with_a_hub, rows, write  # noqa: F401: a fixture
from hub_server import COMMIT


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
    assert "path also gives a revision" in said(f"dataset.train.path={NAME}@v1", "dataset.train.revision=v1")


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
