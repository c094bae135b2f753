"""A folder with recipes, a cache and a hub on this machine (hub_server.py), for tests of its data sets."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from hub_server import Hub

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
