"""Weights and tokenizers by name: what trainrun fetches from a hub, huggingface_hub and transformers find in their cache, and the other way round; against
a server on this machine (hub_server.py)."""

import hashlib
import os
import subprocess
import sys

import pytest
import torch

from hub_server import COMMIT, Hub, git_sha1

from tests.forked import forked
from tests.program import CALLED

transformers = pytest.importorskip("transformers", reason="transformers is not installed: tools/setup --tests fetches it")

import tokenizer_kinds  # noqa: E402
from language_models import BertForSequenceClassification, bert  # noqa: E402

NAME = "tiny/bert.v1"
TEXTS = ["to be or not to be", "that is the question", "whether it is nobler", "in the mind to suffer"]
TOKEN = "hf_very_secret_token"


def run_text(words):
    exec(words[0], {})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tokenizer = tokenizer_kinds.bert_cased(TEXTS * 3)
    roles = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles).save_pretrained(folder)
    bert(BertForSequenceClassification).saved(folder, vocab_size=tokenizer.get_vocab_size())
    return folder


class Place:
    """A folder with data and a recipe, a cache, and a hub."""

    def __init__(self, folder, hub):
        self.folder, self.hub = folder, hub
        self.cache = folder / "cache" / "hub"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
        self.environment |= {"HF_HOME": str(folder / "cache"), "HF_ENDPOINT": hub.url, "TORCH_HOME": str(folder / "torch"), "HF_HUB_DISABLE_XET": "1",
                             "TRAINRUN_CACHE": str(folder / "own"), "TRAINRUN_TORCHVISION_URL": hub.url + "/torchvision/resolve/main"}
        (folder / "texts.csv").write_text("text,label\n" + "".join(f"{text},{'ab'[i % 2]}\n" for i, text in enumerate(TEXTS)))
        (folder / "recipe.yaml").write_text(f"""\
model: {{layers: [{{type: BertForSequenceClassification, pretrained: {NAME}, num_labels: 2}}]}}
loss: CrossEntropyLoss
dataset: {{train: {{type: TextClassification, path: texts.csv, tokenizer: {NAME}, max_length: 16}}}}
dataloader: {{batch_size: 2}}
optimizer: {{type: SGD, lr: 0.0}}
training: {{max_steps: 1}}
output_dir: run
device: cpu
""")

    @property
    def repository(self):
        return self.cache / ("models--" + NAME.replace("/", "--"))

    def start(self, *arguments, **environment):
        return subprocess.Popen([CALLED, *map(str, arguments)], cwd=self.folder, env=self.environment | environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def trainrun(self, *arguments, code=0, **environment):
        running = self.start(*arguments, **environment)
        output, errors = running.communicate(timeout=60)
        assert running.returncode == code, output + errors
        return output + errors

    def python(self, text, **environment):
        done = subprocess.run([sys.executable, "-c", text], cwd=self.folder, env=self.environment | environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def forked_python(self, text, **environment):
        """In a copy of this process. What huggingface_hub read of the environment as it was imported is this process's."""
        with forked(__name__, "run_text", [text], env=self.environment | environment, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    text=True) as running:
            output, _ = running.communicate(timeout=60)
        assert running.returncode == 0, output
        return output

    def check_blobs(self):
        files = self.hub.repos["models", NAME]
        for link in (self.repository / "snapshots" / COMMIT).iterdir():
            content = files[link.name]
            etag = hashlib.sha256(content).hexdigest() if link.suffix == ".safetensors" else git_sha1(content)
            assert os.readlink(link) == f"../../blobs/{etag}" and link.read_bytes() == content
        assert (self.repository / "refs" / "main").read_text() == COMMIT
        assert not list(self.repository.rglob("*.incomplete")) and not list(self.repository.rglob("*.tmp-*"))


@pytest.fixture(name="place")
def place_with_a_hub(tmp_path, model):
    hub = Hub()
    hub.add(NAME, model)
    yield Place(tmp_path, hub)
    hub.close()


def test_what_trainrun_fetches_python_finds_in_its_cache(place):
    said = place.trainrun("validate", "recipe.yaml")
    assert "valid as far as can be told before the model is fetched" in said
    assert f"model.layers[0].pretrained: {NAME} is not in the cache ({place.cache}); a run fetches it from {place.hub.url}/{NAME}" in said
    assert f"dataset.train.tokenizer: {NAME} is not in the cache" in said
    assert f"{NAME}: there is no such folder, and it is not in the cache" in place.trainrun("explain", "recipe.yaml", code=2)
    assert not place.hub.requests
    said = place.trainrun("run", "recipe.yaml")
    assert f"fetched {NAME}: model.safetensors" in said
    assert f"{NAME} is in the cache: {place.repository}/snapshots/{COMMIT}" in said
    place.check_blobs()
    asked = len(place.hub.requests)
    assert f"{NAME} is in the cache: {place.repository}/snapshots/{COMMIT}" in place.trainrun("validate", "recipe.yaml")
    found = place.python(f"import huggingface_hub; print(huggingface_hub.snapshot_download({NAME!r}, local_files_only=True))", HF_HUB_OFFLINE="1")
    place.forked_python(f"""
import huggingface_hub.constants, torch, transformers
huggingface_hub.constants.HF_HUB_OFFLINE = True  # which it read of this process's environment
where = {{"cache_dir": {str(place.cache)!r}, "local_files_only": True}}
model = transformers.AutoModelForSequenceClassification.from_pretrained({NAME!r}, **where)
tokenizer = transformers.AutoTokenizer.from_pretrained({NAME!r}, **where)
torch.set_num_threads(1)
torch.save(model(**tokenizer({TEXTS!r}, padding=True, return_tensors="pt")).logits, "logits.pt")
""")
    assert found.strip() == f"{place.repository}/snapshots/{COMMIT}"
    assert torch.load(place.folder / "logits.pt").shape == (4, 2)
    assert len(place.hub.requests) == asked, "neither of them asked the hub again"


def test_what_python_fetched_trainrun_finds(place):
    place.python(f"import huggingface_hub; huggingface_hub.snapshot_download({NAME!r})")
    place.hub.requests.clear()
    said = place.trainrun("run", "recipe.yaml", HF_HUB_OFFLINE="1")
    assert f"{NAME} is in the cache: {place.repository}/snapshots/{COMMIT}" in said
    pinned = f"{NAME}@{COMMIT}"
    place.trainrun("run", "recipe.yaml", f"model.layers[0].pretrained={pinned}", f"dataset.train.tokenizer={pinned}", "output_dir=pinned")
    assert not place.hub.requests
    (place.repository / "snapshots" / COMMIT / "model.safetensors").unlink()  # its blob is still there
    place.trainrun("run", "recipe.yaml", "output_dir=mended")
    assert not any("store" in request for request in place.hub.requests)
    place.check_blobs()


def test_transfers_that_break_off_go_on_and_damage_is_seen(place):
    place.hub.breaks = 2
    place.trainrun("run", "recipe.yaml")
    assert sum(request.startswith("GET store bytes=") for request in place.hub.requests) == 2
    place.check_blobs()
    weights = place.hub.repos["models", NAME]["model.safetensors"]
    place.hub.damaged.add(hashlib.sha256(weights).hexdigest())
    said = place.trainrun("run", "recipe.yaml", "output_dir=b", code=2, HF_HUB_CACHE=str(place.folder / "other"))
    assert f"{NAME}: model.safetensors: cannot be fetched" in said and "its content is damaged" in said
    assert not list((place.folder / "other").rglob("snapshots/*/model.safetensors"))


def test_the_token_goes_to_the_hub_alone_and_is_never_shown(place):
    place.hub.private[NAME] = TOKEN
    said = place.trainrun("run", "recipe.yaml", code=2)
    assert f"{NAME}: {place.hub.url} answers 401: there is no model {NAME}, or it is private" in said and "set HF_TOKEN" in said
    said = place.trainrun("run", "recipe.yaml", code=2, HF_TOKEN="hf_of_somebody_else")
    assert "the token in use may not read it" in said and "somebody" not in said
    (place.folder / "cache").mkdir(exist_ok=True)
    (place.folder / "cache" / "token").write_text(TOKEN + "\n")
    said = place.trainrun("run", "recipe.yaml", "--verbose")
    assert place.hub.tokens_of_store == [None] and TOKEN not in said
    assert not any(TOKEN in path.read_text(errors="replace") for path in (place.folder / "run").rglob("*") if path.is_file())


@pytest.mark.parametrize("status, headers, expected", [
    (403, {}, "answers 403: access is restricted; ask for it at"), (404, {}, f"answers 404: there is no model {NAME}"),
    (429, {"Retry-After": "3600"}, "answers 429: too many requests; try again in 3600 s, or set HF_TOKEN"),
    (503, {"Retry-After": "0"}, "answers 503: the server has a fault of its own; try again later")])
def test_an_answer_of_the_hub_that_is_none_is_one_sentence(place, status, headers, expected):
    for part in ("/api/", "/resolve/"):
        place.hub.failing = {part: (status, headers)}
        said = place.trainrun("run", "recipe.yaml", code=2)
        assert f"{NAME}: " in said and expected in said


def test_no_network_an_offline_variable_and_what_is_no_name(place):
    nobody = place.trainrun("run", "recipe.yaml", code=2, HF_ENDPOINT="http://127.0.0.1:9")
    assert f"{NAME}: cannot be fetched from http://127.0.0.1:9: " in nobody and "check the network or HF_ENDPOINT" in nobody
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        assert f"but {variable} is set" in place.trainrun("run", "recipe.yaml", code=2, **{variable: "1"})
    for path in ("./tiny/bert.v1", "/tiny/bert.v1", "a/b/c", "../bert"):
        assert f"there is no folder {path}" in place.trainrun("run", "recipe.yaml", f"model.layers[0].pretrained={path}", code=2)
    said = place.trainrun("run", "recipe.yaml", f"model.layers[0].pretrained={NAME}@v2", code=2)
    assert f"answers 404: there is no revision v2 of {NAME}" in said


def test_two_processes_that_start_at_once_fetch_each_file_once(place):
    both = [place.start("run", "recipe.yaml", f"output_dir=run{i}") for i in range(2)]
    for running in both:
        output, errors = running.communicate(timeout=60)
        assert running.returncode == 0, output + errors
    assert sum(request.startswith("GET store") for request in place.hub.requests) == 1
    place.check_blobs()
    place.trainrun("run", "recipe.yaml", "output_dir=ranks", "num_processes=2", "distributed_type=MULTI_CPU", "dataloader.batch_size=1", HF_HUB_CACHE=str(place.folder / "of_ranks"))
    assert sum(request.startswith("GET store") for request in place.hub.requests) == 2


def test_weights_of_torchvision_by_name(place):
    weights = {"weight": torch.randn(2, 4, generator=torch.Generator().manual_seed(1)), "bias": torch.zeros(2)}
    torch.save(weights, place.folder / "weights.pth")
    content = (place.folder / "weights.pth").read_bytes()
    name = f"linear-{hashlib.sha256(content).hexdigest()[:8]}.pth"
    place.hub.repos["models", "torchvision"] = {name: content, "resnet18-f37072fd.pth": content}
    (place.folder / "rows.csv").write_text("a,b,c,d,label\n1,2,3,4,x\n4,3,2,1,y\n")
    (place.folder / "linear.yaml").write_text(f"""\
model: {{layers: [{{type: Linear, out_features: 2}}], weights: {{path: torchvision/{name}, rename: {{'^': '0.'}}}}}}
loss: CrossEntropyLoss
dataset: {{train: {{type: CSV, path: rows.csv, label: label, columns: {{label: category}}}}}}
optimizer: {{type: SGD, lr: 0.0}}
training: {{max_steps: 1}}
output_dir: linear
device: cpu
""")
    said = place.trainrun("validate", "linear.yaml")
    assert f"is not in the cache ({place.folder}/torch/hub/checkpoints/{name}); a run fetches it from {place.hub.url}" in said
    place.trainrun("run", "linear.yaml")
    assert (place.folder / "torch/hub/checkpoints" / name).read_bytes() == content
    found = place.forked_python(f"import torch; print(torch.hub.load_state_dict_from_url('http://127.0.0.1:9/{name}', check_hash=True)['weight'].tolist())")
    assert found.strip() == str(weights["weight"].tolist())
    said = place.trainrun("run", "linear.yaml", "model.weights.path=torchvision/resnet18", code=2)
    assert "resnet18-f37072fd.pth" in said and "its SHA-256 begins with" in said
    assert "did you mean torchvision/resnet18" in place.trainrun("run", "linear.yaml", "model.weights.path=torchvision/resnet19", code=2)
    assert "it has torchvision/resnet50@IMAGENET1K_V1, torchvision/resnet50@IMAGENET1K_V2" in place.trainrun(
        "run", "linear.yaml", "model.weights.path=torchvision/resnet50@V3", code=2)
