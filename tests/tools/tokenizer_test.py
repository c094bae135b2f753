"""`trainrun tokenizer train`: the vocabulary, merges and ids of Hugging Face's BpeTrainer for the same files."""

import gzip
import json
import os
import pathlib
import random
import resource
import subprocess

import pytest

from tests.program import BINARY, CALLED

tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers: tools/setup --tests installs them")

ROWS = ["The quick brown fox can't jump over 13 lazy dogs, they'll say.\n", "\n", "  indented\twith tabs \n", "\u4e2d\u6587\u548c\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\r\n",
        "\u0417\u0434\u0440\u0430\u0432\u0441\u0442\u0432\u0443\u0439, \u043c\u0438\u0440! \u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5\n", "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd \u0928\u092e\u0938\u094d\u0924\u0947\n",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301\u00a0\u2003x \u0661\u0662\u0663 \u00bd \x00\x07\n", "aaaaaaaa aaaa aaaaaaa abababab bababa\n", "<|endoftext|> <s> $9.99 -- ... !!!   \n"]


def train(folder, *arguments, fails=False, environment=None):
    done = subprocess.run([CALLED, "tokenizer", "train", *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=300, check=False,
                          env=os.environ | (environment or {}))
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def by_hugging_face(files, vocab_size, min_frequency, special):
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.post_processor = tokenizers.processors.ByteLevel(trim_offsets=True)
    made.train([str(file) for file in files], tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=special, show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    return made


def assert_same(path, expected, texts):
    own, other = json.loads(path.read_text()), json.loads(expected.to_str())
    assert own["model"]["vocab"] == other["model"]["vocab"] and list(own["model"]["vocab"]) == list(other["model"]["vocab"])
    assert own["model"]["merges"] == other["model"]["merges"]
    assert own["added_tokens"] == other["added_tokens"]
    assert own["model"].keys() == other["model"].keys() and own.keys() == other.keys()
    opened = tokenizers.Tokenizer.from_file(str(path))
    for text in texts:
        ids = opened.encode(text).ids
        assert ids == expected.encode(text).ids
        assert opened.decode(ids, skip_special_tokens=False) == text


def mixed(folder, seed, lines=400):
    """Words over several scripts, in which many pairs come equally often; behind some lines without U+0000, since a file that has it early is no text."""
    chooser = random.Random(seed)
    letters = ["abc", "\u0430\u0431\u0432\u0433", "\u4e2d\u6587\u5b57\u8a9e", "\u0393\u03b5\u03b9", "e\u0301\u00ef", "\U0001f600\U0001f601", "0123456789", "\u0928\u092e\u0938\u094d", ".,!?'-", " \t\u00a0\n"]
    text = "plain lines come first\n" * 30 + "".join(chooser.choice(ROWS) if chooser.random() < 0.3 else "".join(chooser.choice(chooser.choice(letters)) for _ in range(40)) + "\n" for _ in range(lines))
    file = folder / f"mixed{seed}.txt"
    file.write_bytes(text.encode())
    return file, text


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("min_frequency", [1, 2, 5])
def test_mixed_scripts(tmp_path, seed, min_frequency):
    file, text = mixed(tmp_path, seed)
    special = ["<|endoftext|>", "<pad>", "a"][:seed % 4]
    vocab_size = (257, 400, 1000, 100_000)[seed % 4]
    options = [option for token in special for option in ("--special-token", token)]
    train(tmp_path, file, *options, "--vocab-size", vocab_size, "--min-frequency", min_frequency, "--output", "own.json")
    expected = by_hugging_face([file], vocab_size, min_frequency, special)
    assert_same(tmp_path / "own.json", expected, [text, *ROWS, mixed(tmp_path, seed + 100)[1]] if "a" not in special else [])


@pytest.fixture(scope="module", name="shakespeare")
def path_of_shakespeare():
    path = pathlib.Path(os.environ.get("TRAINRUN_DATA", "data")) / "tinyshakespeare" / "input.txt"
    if not path.is_file():
        pytest.skip("no data: there is no tinyshakespeare in TRAINRUN_DATA")
    return path


def test_shakespeare_and_its_use(tmp_path, shakespeare):
    said = train(tmp_path, shakespeare, "--vocab-size", 5000, "--special-token", "<|endoftext|>")
    assert "tokenizer.json: 5,000 tokens, of " in said
    text = shakespeare.read_text()
    expected = by_hugging_face([shakespeare], 5000, 2, ["<|endoftext|>"])
    assert_same(tmp_path / "tokenizer.json", expected, [text, *ROWS])
    (tmp_path / "r.yaml").write_text(f"""
version: 1
model: {{layers: [{{type: Embedding, num_embeddings: 5000, embedding_dim: 4}}, {{type: Linear, out_features: 5000}}]}}
loss: CausalLMLoss
dataset: {{train: {{type: TextLM, path: {shakespeare}, tokenizer: tokenizer.json, end_of_document: <|endoftext|>, block_size: 64}}}}
dataloader: {{batch_size: 4}}
optimizer: {{type: SGD, lr: 0.1}}
training: {{max_steps: 2}}
output_dir: run
""")
    done = subprocess.run([CALLED, "--quiet", "r.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_threads_files_and_forms_do_not_matter(tmp_path):
    (one, first), (two, second) = mixed(tmp_path, 1), mixed(tmp_path, 2)
    train(tmp_path, one, two, "--vocab-size", 600, "--output", "a.json")
    assert_same(tmp_path / "a.json", by_hugging_face([one, two], 600, 2, []), [first, second])
    packed = tmp_path / "both.txt.gz"
    packed.write_bytes(gzip.compress(one.read_bytes() + two.read_bytes()))
    train(tmp_path, packed, "--vocab-size", 600, "--output", "b.json", environment={"OMP_NUM_THREADS": "1"})
    train(tmp_path, packed, "--vocab-size", 600, "--output", "c.json", environment={"OMP_NUM_THREADS": "3"})
    rows = (first + second).splitlines(keepends=True)
    lines = "".join(json.dumps({"body": row}, ensure_ascii=i % 2 == 0) + "\n" for i, row in enumerate("".join(rows).split("\n")[:-1]))
    (tmp_path / "lines.jsonl").write_text(lines.replace('"}', '\\n"}'))
    train(tmp_path, "lines.jsonl", "--text-column", "body", "--vocab-size", 600, "--output", "d.json")
    texts = {name: (tmp_path / f"{name}.json").read_text() for name in "abcd"}
    assert texts["a"] == texts["b"] == texts["c"] == texts["d"]


def test_what_cannot_be_learnt_from_is_refused(tmp_path):
    (tmp_path / "latin.txt").write_bytes("fine\ncaf\xe9\n".encode("latin-1"))
    assert "latin.txt:2: byte 4 of the line, 0xE9 at offset 8 of the text, is not UTF-8; convert the file to UTF-8" in train(tmp_path, "latin.txt", fails=True)
    (tmp_path / "empty.txt").write_text("")
    assert "empty.txt: there is no text to learn from" in train(tmp_path, "empty.txt", fails=True)
    assert "nothing.txt: cannot open" in train(tmp_path, "nothing.txt", fails=True)
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n{"txt": "x"}\n')
    assert "a.jsonl:2: has no key 'text'" in train(tmp_path, "a.jsonl", fails=True)
    (tmp_path / "a.txt").write_text("some text")
    assert "vocab-size" in train(tmp_path, "a.txt", "--vocab-size", "0", fails=True)
    assert "no other two tokens follow each other 2 times or more" in train(tmp_path, "a.txt")
    before = (tmp_path / "tokenizer.json").read_text()
    assert "tokenizer.json is already there" in train(tmp_path, "a.txt", fails=True)
    assert (tmp_path / "tokenizer.json").read_text() == before


def test_a_line_without_an_end_takes_no_more_than_its_limit(tmp_path):
    """1 GB in one line, packed into 1 MB: refused, and never held in memory as a whole."""
    with gzip.open(tmp_path / "long.txt.gz", "wb", compresslevel=1) as file:
        for _ in range(1000):
            file.write(b"word " * 200_000)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = subprocess.run([BINARY, "tokenizer", "train", "long.txt.gz"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1 and "long.txt.gz:1: is longer than 256 MiB" in done.stderr
    assert max(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, before) < 1_200_000
