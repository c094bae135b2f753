"""The pieces of recipes in docs/guide/models.md and of new tokens in docs/guide/text_models.md, each put into a recipe that trains two steps; and the commands of docs/guide/generating.md
and docs/guide/profiling.md, run as the guides say on small models of the same names."""

import json
import pathlib
import re
import shlex
import shutil
import subprocess

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GUIDES = ROOT / "docs/guide"
TINY = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 2048}


def pieces(page, language="yaml"):
    return re.findall(rf"^```{language}\n(.*?)^```$", (GUIDES / page).read_text(), re.MULTILINE | re.DOTALL)


def piece_with(text):
    found = [piece for piece in pieces("models.md") if text in piece]
    assert found, f"docs/guide/models.md shows no recipe with {text}"
    return found[0]


def save_models(folder):
    """Small models, with random weights, in the folders that the guides name."""
    from transformers import AutoModelForCausalLM, BertConfig, BertModel, GPT2Config, LlamaConfig

    chats = ROOT / "recipes/data/chats"
    llama = AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=79, **TINY))
    for name in ("checkpoints/llama", "models/llama"):
        llama.save_pretrained(folder / name)
    gpt2 = AutoModelForCausalLM.from_config(GPT2Config(vocab_size=79, n_positions=128, n_embd=32, n_layer=1, n_head=2))
    gpt2.save_pretrained(folder / "models/gpt2")
    bert = {**TINY, "max_position_embeddings": 64}
    BertModel(BertConfig(vocab_size=79, **bert)).save_pretrained(folder / "checkpoints/minilm")
    for name in ("checkpoints/llama", "models/llama", "models/gpt2", "checkpoints/minilm"):
        for file in chats.glob("tokenizer*.json"):
            shutil.copy(file, folder / name)


def save_adapter(folder):
    import peft
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder / "checkpoints/llama")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    peft.get_peft_model(base, config).save_pretrained(folder / "adapters/chat")


def save_data(folder):
    shutil.copy(ROOT / "recipes/data/chats/train.jsonl", folder / "chats.jsonl")
    pairs = [json.loads(line) for line in (ROOT / "recipes/data/preferences/train.jsonl").read_text().splitlines()]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair | {"better": 0.5}) + "\n" for pair in pairs))
    judged = [{"prompt": pair["prompt"], "completion": pair[key], "label": key == "chosen"} for pair in pairs for key in ("chosen", "rejected")]
    (folder / "judged.jsonl").write_text("".join(json.dumps(row) + "\n" for row in judged))
    random = np.random.default_rng(0)
    np.savez(folder / "decoder.npz", target=random.normal(size=(8, 5, 64)).astype(np.float32),
             source=random.normal(size=(8, 5, 64)).astype(np.float32), label=random.integers(0, 9, size=(8, 5)))
    np.savez(folder / "vectors.npz", x=random.normal(size=(8, 5, 16)).astype(np.float32), labels=random.integers(0, 9, size=(8, 5)))
    (folder / "texts.csv").write_text("text,label\n" + "hello there,good\ngo away,bad\n" * 8)
    save_file({"h.0.mlp.c_fc.weight": torch.randn(16, 32), "h.0.mlp.c_fc.bias": torch.randn(32)}, folder / "model.safetensors")
    (folder / "prompts.txt").write_text("ROMEO:\nJULIET:\n")


@pytest.fixture(name="folder", scope="module")
def folder_with_what_the_guides_name(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guide")
    torch.manual_seed(0)
    save_models(folder)
    save_adapter(folder)
    save_data(folder)
    (folder / "recipes").symlink_to(ROOT / "recipes")
    return folder


CHATS = {"train": {"type": "Chat", "path": "chats.jsonl", "tokenizer": "checkpoints/llama", "max_length": 128}}
TEXTS = {"train": {"type": "TextClassification", "path": "texts.csv", "text_columns": ["text"], "tokenizer": "checkpoints/minilm",
                   "max_length": 32}}


def trained(folder, name, piece, **more):
    """Trains two steps by the piece's recipe and what it does not say, both of them at the top level."""
    recipe = {"version": 1, "name": name, "optimizer": {"type": "SGD", "lr": 0.01}, "dataloader": {"batch_size": 4},
              "training": {"num_epochs": 1, "max_steps": 2}, **more, **piece}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    result = subprocess.run([CALLED, f"{name}.yaml"], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0 and "done 2 steps" in result.stdout + result.stderr, result.stderr
    return result.stdout + result.stderr


def test_a_block_with_several_inputs(folder):
    piece = yaml.safe_load(piece_with("decoder_layer"))
    piece["model"]["layers"].append({"type": "Linear", "out_features": 9})
    trained(folder, "blocks", piece, loss={"type": "CrossEntropyLoss", "class_dim": -1},
            dataset={"train": {"type": "TensorFile", "path": "decoder.npz"}})


def test_free_parameters(folder):
    layers = yaml.safe_load(piece_with("cls_token"))
    layers += [{"type": "Select", "dim": 1, "index": 0}, {"type": "Linear", "out_features": 10}]
    trained(folder, "parameters", {"model": {"layers": layers}}, loss="CrossEntropyLoss",
            dataset={"train": {"type": "Synthetic", "num_samples": 8, "shape": [8, 8]}})


def test_a_layer_that_computes_a_loss(folder):
    layer, loss = piece_with("AdaptiveLogSoftmaxWithLoss").split("\nloss: ")
    layers = [{"type": "Linear", "name": "hidden", "out_features": 32}, *yaml.safe_load(layer)]
    trained(folder, "adaptive", {"model": {"layers": layers}, "loss": yaml.safe_load(loss)},
            dataset={"train": {"type": "TensorFile", "path": "vectors.npz", "target": "labels"}})


def test_weights_that_are_transposed(folder):
    block = {"type": "Sequential", "name": "mlp", "layers": [{"type": "Linear", "name": "linear1", "out_features": 32}]}
    layers = [{"type": "Sequential", "name": "h", "layers": [{"type": "Sequential", "layers": [block]}]},
              {"type": "Linear", "name": "head", "out_features": 9}]
    weights = yaml.safe_load(piece_with("transpose: true"))["weights"]
    trained(folder, "transposed", {"model": {"layers": layers, "weights": {**weights, "strict": False}}},
            loss={"type": "CrossEntropyLoss", "class_dim": -1},
            dataset={"train": {"type": "TensorFile", "path": "vectors.npz", "target": "labels", "num_classes": 9}})


@pytest.mark.parametrize("name, text, more", [
    ("classifier", "BertForSequenceClassification", {"loss": "CrossEntropyLoss", "dataset": TEXTS}),
    ("lora", "r: 8, alpha: 16, dropout: 0.05", {"loss": "CausalLMLoss", "dataset": CHATS}),
    ("adapter", "weights: adapters/chat", {"loss": "CausalLMLoss", "dataset": CHATS}),
    ("chat", "type: Chat, path: chats.jsonl", {}),
    ("dpo", "DPOLoss", {}),
    ("kto", "KTOLoss", {}),
    ("reward", "BradleyTerryLoss", {})])
def test_recipes_of_language_models(folder, name, text, more):
    piece = yaml.safe_load(piece_with(text))
    if name == "chat":
        piece["dataset"]["train"]["max_length"] = 256
    trained(folder, name, piece, **more)


def test_new_tokens(folder):
    [piece] = [piece for piece in pieces("text_models.md") if "add_tokens" in piece]
    assert "resized embeddings from 79 to 83 rows" in trained(folder, "tokens", yaml.safe_load(piece))


@pytest.mark.parametrize("loss", ["ORPOLoss", "SimPOLoss"])
def test_losses_in_place_of_that_of_dpo(folder, loss):
    piece = yaml.safe_load(piece_with("DPOLoss"))
    del piece["models"]
    trained(folder, loss, piece | yaml.safe_load(piece_with(loss)))


def test_distillation(folder):
    piece = yaml.safe_load(piece_with("DistillationLoss"))
    teacher = piece["models"]["teacher"]
    teacher["layers"][0]["type"] = "ResNet18"  # a ResNet50 takes seconds
    pictures = {"train": {"type": "Synthetic", "num_samples": 8, "shape": [3, 32, 32]}}
    trained(folder, "teacher", {"model": {"layers": teacher["layers"]}}, loss="CrossEntropyLoss", dataset=pictures)
    shutil.copy(folder / "runs/teacher/checkpoints/latest/model.safetensors", folder / teacher["weights"])
    trained(folder, "distillation", piece, dataset=pictures)


def commands(page):
    block = pieces(page, "")[0]
    return [line for line in block.replace("\\\n", " ").splitlines() if line]


def run(line, folder):
    piped, _, command = line.rpartition(" | ")
    said = shlex.split(piped)[1] + "\n" if piped else ""
    words = shlex.split(command)
    assert words[0] == "trainrun"
    result = subprocess.run([CALLED, *words[1:]], cwd=folder, input=said, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, f"{line}: {result.stderr}"
    return result.stdout


def test_the_commands_of_the_guide_on_generating(folder):
    samples = yaml.safe_load(pieces("generating.md")[0])
    (folder / "input.txt").write_text("ROMEO: what light? JULIET: it is the east.\nThe capital of France is Paris. Once upon a time\n" * 40)
    layers = [{"type": "Embedding", "num_embeddings": 256, "embedding_dim": 8}, {"type": "Linear", "out_features": 256}]
    printed = trained(folder, "shakespeare_char", {"model": {"layers": layers}, **samples}, loss={"type": "CrossEntropyLoss", "class_dim": -1},
                      dataset={split: {"type": "TextLM", "path": "input.txt", "tokenizer": "characters", "block_size": 16}
                               for split in ("train", "eval")})
    assert "ROMEO:" in printed
    for line in commands("generating.md"):
        run(line, folder)
    assert len((folder / "texts.jsonl").read_text().splitlines()) == 6


def test_conversations_of_the_guide_on_generating(folder):
    piece = yaml.safe_load(piece_with("type: Chat, path: chats.jsonl"))
    piece["dataset"]["train"]["max_length"] = 256
    trained(folder, "chats", piece)
    lines = [json.loads(line) for line in (folder / "chats.jsonl").read_text().splitlines()]
    (folder / "chats.jsonl").write_text("".join(json.dumps({"messages": line["messages"][:-1]}) + "\n" for line in lines[:8]))
    for line in pieces("generating.md", "")[1].splitlines():
        run(line.split(" #")[0].strip(), folder)
    answers = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert [answer["messages"][-1]["role"] for answer in answers] == ["assistant"] * 8


def test_the_commands_of_the_guide_on_profiling(folder):
    for line in commands("profiling.md"):
        assert "optimizer" in run(line, folder)
