"""Every reader of files that may come from strangers reads or refuses files that are changed at random. Images, shards and tokenizer.json are read so in
the pages of these formats."""

import base64
import gzip
import io
import json
import os
import pathlib
import pickle
import shutil
import sqlite3
import struct
import tempfile
import zipfile

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from chat_template_syntax import SYNTAX
from chat_templates import CALL, CHATML, CLOCK, MARKED, PUBLISHED, WEATHER, said
from fuzzing import FOUND, fuzz, placed, written
from probe import Probe

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHATS = json.dumps([{"messages": said("Hello", "Hi", "Who?", "I.", system="Terse."), "tools": None},
                    {"messages": [*said("Weather?"), {"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "tool", "content": "12 °C"}],
                     "tools": [WEATHER, CLOCK]}])


@pytest.fixture
def tmp_path():
    """In memory where that can be: the fuzzers write a file for each round. It stays where something was found."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainrun-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    yield folder
    if not any(folder.rglob(FOUND)):
        shutil.rmtree(folder)


def of_torch(value, **options) -> bytes:
    content = io.BytesIO()
    torch.save(value, content, **options)
    return content.getvalue()


def of_numpy(save, *values, **named) -> bytes:
    content = io.BytesIO()
    save(content, *values, **named)
    return content.getvalue()


def state_dicts() -> dict[str, bytes]:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(4, 6, generator=generator)
    state = {"a.weight": weight, "a.part": weight[1:3, ::2], "b": torch.arange(5), "c": torch.tensor(True), "half": weight.half().t(),
             "p": nn.Parameter(weight[0])}
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    return {"plain.pt": of_torch(state), "module.bin": of_torch(module.state_dict()),
            "training.pt": of_torch({"model": module.state_dict(), "optimizer": {"lr": 0.1}, "epoch": 3, "names": ["x", ("y", None)]})}


def safetensors_files() -> dict[str, bytes]:
    generator = torch.Generator().manual_seed(0)
    tensors = {"model.embed.weight": torch.randn(5, 3, generator=generator), "b": torch.arange(7), "c": torch.ones(2, 2).half(),
               "d": torch.zeros(0, 4), "e": torch.tensor([True, False]), "f": torch.tensor(1.5, dtype=torch.bfloat16)}
    return {"a.safetensors": safetensors.torch.save(tensors, {"format": "pt", "step": "7"}),
            "b.safetensors": safetensors.torch.save({"weight": torch.randn(30, generator=generator)}), "none.safetensors": safetensors.torch.save({})}


def arrays() -> dict[str, bytes]:
    image = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    named = {"image": image, "label": np.array([0, 1]), "wide": np.asfortranarray(np.ones((2, 3), ">f8"))}
    return {"a.npy": of_numpy(np.save, image), "b.npy": of_numpy(np.save, np.asfortranarray(np.ones((3, 4), "<f4"))),
            "c.npy": of_numpy(np.save, np.array(2.5, ">f8")), "d.npz": of_numpy(np.savez, **named),
            "e.npz": of_numpy(np.savez_compressed, **named), "f.safetensors": safetensors_files()["a.safetensors"]}


def test_safetensors(probe, tmp_path):
    fuzz(probe, tmp_path, "safetensors", written(tmp_path / "seeds", safetensors_files()), rounds=1000)


def test_state_dicts_of_torch_save(probe, tmp_path):
    fuzz(probe, tmp_path, "torch_file", written(tmp_path / "seeds", state_dicts()), rounds=2000)


def test_pickles(probe, tmp_path):
    files = {}
    for name, content in state_dicts().items():
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            [record] = [member for member in archive.namelist() if member.endswith("data.pkl")]
            files[name + ".pkl"] = archive.read(record)
    for protocol in range(2, 6):
        value = {"a": [1, 2.5, -3, 2**40, 2**80, None, True], "b": (b"x", "y" * 300, frozenset({1})), "c": {1, 2}}
        files[f"{protocol}.pkl"] = pickle.dumps(value, protocol)
    fuzz(probe, tmp_path, "pickle", written(tmp_path / "seeds", files), rounds=1000)


def test_numpy_files(probe, tmp_path):
    fuzz(probe, tmp_path, "tensor_file", written(tmp_path / "seeds", arrays()), rounds=1000)


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_folders_of_shards(probe, tmp_path, kind):
    shards = [{"a": torch.ones(3), "b": torch.zeros(2, 2)}, {"c": torch.arange(4)}]
    stem = "model.safetensors" if kind == "safetensors" else "pytorch_model.bin"
    names = [stem.replace(".", f"-0000{i}-of-00002.") for i in (1, 2)]
    index = {"metadata": {"total_size": 60}, "weight_map": {"a": names[0], "b": names[0], "c": names[1]}}
    files = {name: safetensors.torch.save(shard) if kind == "safetensors" else of_torch(shard) for name, shard in zip(names, shards, strict=True)}
    seeds = written(tmp_path / "seeds", files | {f"{stem}.index.json": json.dumps(index)})
    fuzz(probe, tmp_path, "pretrained_folder", placed(seeds, tmp_path / "folder"))


def test_checkpoints(probe, tmp_path):
    seeds = [str(ROOT / "tests/faults/checkpoint_0_1_0" / name) for name in ("state.json", "model.safetensors", "optimizer.safetensors")]
    fuzz(probe, tmp_path, "checkpoint", placed(seeds, tmp_path / "checkpoints/step-00000007"))


# --- What Hugging Face's folders hold

BERT = {"model_type": "bert", "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "max_position_embeddings": 40, "hidden_act": "gelu", "id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0, "b": 1}, "torch_dtype": "float32"}
GPT2 = {"model_type": "gpt2", "vocab_size": 99, "n_positions": 40, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": None, "activation_function": "gelu_new"}
DISTILBERT = {"model_type": "distilbert", "vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 40}
LLAMA = {"model_type": "llama", "vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "hidden_act": "silu", "tie_word_embeddings": True,
         "rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": 16}}
YARN = {"rope_theta": 1e4, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 8.0, "beta_slow": 0.5, "truncate": False}
QWEN = LLAMA | {"model_type": "qwen3", "head_dim": 16, "rope_parameters": YARN, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1,
                "layer_types": ["full_attention", "sliding_attention"]}


@pytest.mark.parametrize("type_, config", [("BertForSequenceClassification", BERT), ("GPT2LMHeadModel", GPT2), ("LlamaForCausalLM", LLAMA),
                                           ("DistilBertModel", DISTILBERT), ("Qwen3ForCausalLM", QWEN)], ids=lambda value: value if isinstance(value, str) else "")
def test_config_json(probe, tmp_path, type_, config):
    seeds = placed(written(tmp_path / "seeds", {"config.json": json.dumps(config)}), tmp_path / "model")
    fields = {"input.input_ids": torch.ones(2, 8, dtype=torch.long), "input.attention_mask": torch.ones(2, 8, dtype=torch.long)}
    spec = {"type": type_, "config": seeds[0]["place"], "inputs": ["input_ids", "attention_mask"]}
    fuzz(probe, tmp_path, "layers", seeds, rounds=500, spec=spec, tensors=fields)


def test_generation_config_json(probe, tmp_path):
    config = {"do_sample": True, "temperature": 0.6, "top_k": 50, "top_p": 0.9, "repetition_penalty": 1.1, "eos_token_id": [1, 2], "max_new_tokens": 20,
              "num_beams": 1, "typical_p": 1.0, "transformers_version": "5.0"}
    seeds = written(tmp_path / "seeds", {"generation_config.json": json.dumps(config)})
    fuzz(probe, tmp_path, "generation_config", placed(seeds, tmp_path / "folder"))


TOKENIZER_CONFIG = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "pad_token": "[PAD]", "unk_token": {"content": "[UNK]"}, "cls_token": "[CLS]",
                    "sep_token": "[SEP]", "chat_template": CHATML, "added_tokens_decoder": {"26": {"content": "<x>", "special": True, "lstrip": True}}}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdehlorw123", "##a", "##l", "hello", "##lo", "wor", "##ld", "\u4f60", "\u597d"]


def byte_letters() -> list[str]:
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return [chr(byte) for byte in kept] + [chr(256 + i) for i in range(len(others))]


def test_vocab_txt_and_tokenizer_config(probe, tmp_path):
    files = {"vocab.txt": "\n".join(WORDS) + "\n", "tokenizer_config.json": json.dumps(TOKENIZER_CONFIG),
             "special_tokens_map.json": json.dumps({"mask_token": "[MASK]"})}
    fuzz(probe, tmp_path, "tokenizer_folder", placed(written(tmp_path / "seeds", files), tmp_path / "folder"))


def test_vocab_json_and_merges(probe, tmp_path):
    vocabulary = {token: i for i, token in enumerate([*byte_letters(), "he", "ll", "hell", "\u0120w", "<|endoftext|>"])}
    files = {"vocab.json": json.dumps(vocabulary), "merges.txt": "#version: 0.2\nh e\nl l\nhe ll\n\u0120 w\n",
             "tokenizer_config.json": json.dumps({"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>"})}
    fuzz(probe, tmp_path, "tokenizer_folder", placed(written(tmp_path / "seeds", files), tmp_path / "folder"))


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_sentence_piece_models(probe, tmp_path, kind):
    sentencepiece = pytest.importorskip("sentencepiece", reason="no sentencepiece: tools/setup --tests installs it")
    content = io.BytesIO()
    texts = ["hello world, how are you", "the world is a stage 123", "\u4f60\u597d \ufb01ne cafe\u0301"] * 20
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=content, vocab_size=330, minloglevel=2, model_type=kind,
                                             byte_fallback=True, hard_vocab_limit=False, normalization_rule_name="nmt_nfkc")
    files = {"tokenizer.model": content.getvalue(), "tokenizer_config.json": json.dumps({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>"})}
    fuzz(probe, tmp_path, "tokenizer_folder", placed(written(tmp_path / "seeds", files), tmp_path / "folder"), rounds=500)


def test_chat_templates(probe, tmp_path):
    sources = [*PUBLISHED.values(), MARKED, *SYNTAX]
    files = {f"{i}.jinja": source for i, source in enumerate(sources)}
    fuzz(probe, tmp_path, "chat_template", written(tmp_path / "seeds", files), rounds=1000, chats=CHATS)


def test_chat_templates_within_tokenizer_config(probe, tmp_path):
    several = [{"name": "default", "template": CHATML}, {"name": "tool", "template": PUBLISHED["mistral"]}]
    files = {"tokenizer_config.json": json.dumps(TOKENIZER_CONFIG | {"chat_template": several})}
    fuzz(probe, tmp_path, "chat_template", placed(written(tmp_path / "seeds", files), tmp_path / "folder"), rounds=1000, chats=CHATS)


# --- Data

@pytest.fixture(name="tokenizer", scope="module")
def tokenizer_folder(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("tokenizer")
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}{% for call in m.tool_calls or [] %}{{ call|tojson }}{% endfor %}\n{% endfor %}"
    config = TOKENIZER_CONFIG | {"eos_token": "[SEP]", "added_tokens_decoder": {}, "chat_template": template}
    written(folder, {"vocab.txt": "\n".join(WORDS) + "\n", "tokenizer_config.json": json.dumps(config)})
    return str(folder)


def fuzz_data(probe, folder, files: dict[str, bytes | str], spec: dict, **options):
    """Of a data set whose recipe says FOLDER where its files lie."""
    seeds = placed(written(folder / "seeds", files), folder / "data")
    spec = json.loads(json.dumps(spec).replace("FOLDER", str(folder / "data")))
    return fuzz(probe, folder, "dataset", seeds, spec=spec, **options)


TABLE = 'name,age,city,when,price,ok\n' + '"Ann, B.",31,Rome,2024-01-05,1.5,true\nBob,,Oslo,2023-11-30,2e3,false\n"C ""x""",7,Rome,2020-02-29,-0.25,true\n' * 3


@pytest.mark.parametrize("name", ["people.csv", "people.csv.gz"])
def test_csv(probe, tmp_path, name):
    content = TABLE.encode()
    files = {name: gzip.compress(content) if name.endswith(".gz") else content}
    how = {"columns": "auto"}
    if not name.endswith(".gz"):
        how = {"features": ["age", "city", "price"], "columns": {"age": {"type": "number", "missing": "mean"}, "city": "category", "ok": "boolean"}}
    fuzz_data(probe, tmp_path, files, {"type": "CSV", "path": f"FOLDER/{name}", "label": "ok"} | how)


def test_jsonl(probe, tmp_path):
    rows = [{"x": i, "y": [0.5, 1e-3, -2], "kind": "ab"[i % 2], "ok": i % 3 == 0} for i in range(6)]
    files = {"rows.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}
    fuzz_data(probe, tmp_path, files, {"type": "JSONL", "path": "FOLDER/rows.jsonl", "label": "ok", "features": ["x", "y"],
                                       "columns": {"y": {"shape": [3]}, "ok": "boolean"}})


def test_sqlite(probe, tmp_path):
    with sqlite3.connect(tmp_path / "made.db") as database:
        database.execute("CREATE TABLE t (x REAL, n INTEGER, label INTEGER)")
        database.executemany("INSERT INTO t VALUES (?, ?, ?)", [(i / 3, i * 1000, i % 2) for i in range(40)])
    database.close()
    files = {"a.db": (tmp_path / "made.db").read_bytes()}
    fuzz_data(probe, tmp_path, files, {"type": "SQLite", "path": "FOLDER/a.db", "table": "t", "features": ["x", "n"], "label": "label"})


def test_text(probe, tmp_path, tokenizer):
    files = {"a.txt": "hello world\r\n\n" * 20 + "\u4f60\u597d wor\tld 123"}
    fuzz_data(probe, tmp_path, files, {"type": "TextLM", "path": "FOLDER/a.txt", "block_size": 4, "split": "train"}, rounds=600)
    files = {"a.jsonl": "".join(json.dumps({"text": "hello world " * i, "n": i}) + "\n" for i in range(1, 6))}
    spec = {"type": "TextLM", "path": "FOLDER/a.jsonl", "block_size": 4, "tokenizer": tokenizer, "documents": "separate"}
    fuzz_data(probe, tmp_path / "objects", files, spec, rounds=600)


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl", "jsonl.gz"])
def test_texts_with_classes(probe, tmp_path, tokenizer, ending):
    rows = [("hello, \"world\"", "a"), ("wor ld", "b"), ("123\u4f60", "a")] * 3
    if ending.startswith("jsonl"):
        content = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
    elif ending == "csv":
        content = "text,label\n" + "".join('"' + text.replace('"', '""') + f'",{label}\r\n' for text, label in rows)
    else:
        content = "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows)
    content = gzip.compress(content.encode()) if ending.endswith(".gz") else content
    spec = {"type": "TextClassification", "path": f"FOLDER/a.{ending}", "tokenizer": tokenizer, "max_length": 12}
    fuzz_data(probe, tmp_path, {f"a.{ending}": content}, spec, rounds=600)


LAYOUTS = {
    "messages": [{"messages": said("hello", "world", "who", "a", system="b"), "tools": [WEATHER]},
                 {"messages": [*said("hello"), {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "content": "12"},
                               {"role": "assistant", "content": "world", "weight": 1}]}],
    "conversations": [{"system": "b", "conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "world"}]}],
    "prompt": [{"prompt": "hello ", "completion": "world"}, {"prompt": said("a"), "completion": [{"role": "assistant", "content": "b"}]}],
    "instruction": [{"instruction": "hello", "input": "a", "output": "world"}, {"instruction": "who", "output": "a"}],
}


@pytest.mark.parametrize("layout, ending", [*((layout, "jsonl") for layout in LAYOUTS), ("messages", "json")])
def test_conversations(probe, tmp_path, tokenizer, layout, ending):
    rows = LAYOUTS[layout] * 2
    content = json.dumps(rows) if ending == "json" else "".join(json.dumps(row) + "\n" for row in rows)
    spec = {"type": "Chat", "path": f"FOLDER/a.{ending}", "tokenizer": tokenizer, "max_length": 200, "packing": ending == "json"}
    fuzz_data(probe, tmp_path, {f"a.{ending}": content}, spec, rounds=600)


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_files_of_tokens(probe, tmp_path, dtype):
    files = {"a.bin": np.arange(400).astype(dtype).tobytes()}
    fuzz_data(probe, tmp_path, files, {"type": "TokenFile", "path": "FOLDER/a.bin", "dtype": dtype, "block_size": 16})


def idx(values: np.ndarray) -> bytes:
    return gzip.compress(bytes([0, 0, 8, values.ndim]) + b"".join(struct.pack(">I", size) for size in values.shape) + values.astype(np.uint8).tobytes())


def test_idx(probe, tmp_path):
    files = {"t10k-images-idx3-ubyte.gz": idx(np.arange(3 * 28 * 28).reshape(3, 28, 28) % 256), "t10k-labels-idx1-ubyte.gz": idx(np.array([1, 9, 0]))}
    fuzz_data(probe, tmp_path, files, {"type": "MNIST", "root": "FOLDER", "split": "test"})


def test_cifar(probe, tmp_path):
    record = bytes([7]) + bytes(range(256)) * 12
    fuzz_data(probe, tmp_path, {"test_batch.bin": record * 3}, {"type": "CIFAR10", "root": "FOLDER", "split": "test"})


def test_tensor_files_as_data(probe, tmp_path):
    files = {"a.npz": arrays()["d.npz"]}
    fuzz_data(probe, tmp_path, files, {"type": "TensorFile", "path": "FOLDER/a.npz", "num_classes": 2})


def test_tables_of_images(probe, tmp_path):
    png = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR4nGP8z8DAwMDAxMDAwMDAAAANHQEDasKb6QAAAABJRU5ErkJggg==")
    written(tmp_path / "data", {"1.png": png, "2.png": png})
    files = {"a.csv": "path,label\n1.png,cat\n2.png,dog\n1.png,dog\n"}
    fuzz_data(probe, tmp_path, files, {"type": "ImageCSV", "path": "FOLDER/a.csv"}, rounds=600)


@pytest.mark.parametrize("kind", ["corpus", "separate", "classes", "chats", "pairs"])
def test_caches_of_tokens(tmp_path, monkeypatch, tokenizer, kind):
    """A damaged cache is made anew, and one that tells lies with right checksums does no harm."""
    monkeypatch.setenv("TRAINRUN_CACHE", str(tmp_path / "cache"))
    texts = ["hello world", "wor ld 123", "\u4f60\u597d"] * 3
    rows = [{"text": text, "label": "ab"[i % 2]} for i, text in enumerate(texts)]
    if kind == "chats":
        rows = [{"prompt": f"{text} ", "completion": text * 9} for text in texts]
    if kind == "pairs":
        rows = [{"prompt": "a", "chosen": text * 9, "rejected": "b"} for text in texts]
    written(tmp_path / "own", {"a.jsonl": "".join(json.dumps(row) + "\n" for row in rows)})
    spec = {"path": str(tmp_path / "own/a.jsonl"), "tokenizer": tokenizer, "cache": "disk"}
    if kind in ("chats", "pairs"):
        spec |= {"type": "Chat" if kind == "chats" else "PreferencePairs", "max_length": 9}
    elif kind == "classes":
        spec |= {"type": "TextClassification", "max_length": 12, "padding": "max_length"}
    else:
        spec |= {"type": "TextLM", "block_size": 4, "documents": "joined" if kind == "corpus" else "separate"}
    own = Probe(tmp_path)
    own.ask("dataset", spec=spec)
    [kept] = [path for path in (tmp_path / "cache/tokens").iterdir() if not path.name.endswith(".lock")]
    [seed] = written(tmp_path / "seeds", {"kept.bin": kept.read_bytes()})
    fuzz(own, tmp_path, "dataset", [{"path": seed, "place": str(kept)}], spec=spec, mend="token_cache", names_file=False, refuses=False, rounds=600)
    own.close()


def test_gzip(probe, tmp_path):
    files = {"a.gz": gzip.compress(b"hello world\n" * 50), "b.txt.gz": gzip.compress(b"one") + gzip.compress(bytes(range(256)) * 9, 1)}
    fuzz(probe, tmp_path, "gzip", written(tmp_path / "seeds", files), rounds=750)


def test_recipes(probe, tmp_path):
    files = {path.name: path.read_bytes() for path in sorted((ROOT / "tests/recipes/valid").glob("*.yaml")) if b"base:" not in path.read_bytes()}
    words = ["&a ", "*a", "<<: *a", "${name}", "${env:HOME}", "${model", "- ", "  ", "? ", "| ", "!!str ", "{", "}", "[", "]", "1e3", "null", "repeat: 1000000"]
    fuzz(probe, tmp_path, "recipe", written(tmp_path / "seeds", files), rounds=300, words=words)
