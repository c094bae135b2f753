"""What was read can be saved: text that is not UTF-8 is refused where it is read, with its line and what to write, and
trains once that is written."""

import json
import os
import subprocess

import pytest

from tests.program import CALLED

TABLE = "stadt,x,y\n" + "".join(f"{city},{i},{i % 2}\n" for i, city in enumerate(["Bern", "Zürich", "Genf"] * 4))
LINEAR = "[{type: Linear, inputs: features, out_features: 2}]"


def trainrun(folder, train, layers, *arguments, status=0):
    (folder / "r.yaml").write_text(
        f"version: 1\nmodel:\n  layers: {layers}\nloss: CrossEntropyLoss\ndataset:\n  train: {train}\n"
        "dataloader: {batch_size: 4}\noptimizer: {type: SGD, lr: 0.01}\ntraining: {num_epochs: 1}\noutput_dir: run\n")
    done = subprocess.run([CALLED, "r.yaml", *arguments], cwd=folder, capture_output=True, text=True, timeout=120)
    text = done.stdout + done.stderr
    assert done.returncode == status, text
    return text


def learnt(folder):
    """What the last checkpoint keeps of the training data."""
    return json.loads((folder / "checkpoints/latest/state.json").read_text(encoding="utf-8"))["learnt"]["dataset"]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16"])
def test_a_table_of_another_encoding_is_refused_at_once_and_trains_once_it_is_named(tmp_path, encoding):
    (tmp_path / "t.csv").write_bytes(TABLE.encode(encoding))
    table = "{type: CSV, path: t.csv, label: y, columns: {stadt: category}%s}"
    said = trainrun(tmp_path, table % "", LINEAR, status=2)
    assert "json.exception" not in said and not (tmp_path / "run/checkpoints").exists()
    if encoding == "utf-16":
        assert "t.csv:1: begins with the byte-order mark of UTF-16; write encoding: utf-16" in said
    else:
        assert "t.csv:3: byte 2 of the line, 0xFC at offset 20 of the text, is not UTF-8; write encoding: latin-1" in said
    trainrun(tmp_path, table % f", encoding: {encoding}", LINEAR, "output_dir=named")
    assert learnt(tmp_path / "named") == {"stadt": {"categories": ["Bern", "Genf", "Zürich"]}}


def test_texts_are_read_in_their_encoding(tmp_path):
    text = "ein süßer Käse\n" * 40
    layers = ("[{type: Embedding, num_embeddings: 20, embedding_dim: 4}, {type: Linear, out_features: 20}, "
              "{type: Permute, dims: [0, 2, 1]}]")
    (tmp_path / "t.txt").write_bytes(text.encode("latin-1"))
    data = "{type: TextLM, path: t.txt, block_size: 8%s}"
    said = trainrun(tmp_path, data % "", layers, status=1)
    assert "t.txt:1: byte 6 of the line, 0xFC at offset 5 of the text, is not UTF-8; write encoding: latin-1" in said
    trainrun(tmp_path, data % ", encoding: latin-1", layers, "output_dir=latin")
    assert learnt(tmp_path / "latin") == {"characters": "".join(sorted(set(text)))}


def test_a_class_folder_whose_name_is_not_utf_8_is_refused(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    for name in (b"ant", b"b\xe4r"):
        folder = os.path.join(os.fsencode(tmp_path), b"photos", name)
        os.makedirs(folder)
        Image.new("RGB", (8, 8)).save(os.path.join(folder, b"1.png"))
    layers = "[Flatten, {type: Linear, out_features: 2}]"
    said = trainrun(tmp_path, "{type: ImageFolder, root: photos}", layers, status=2)
    assert "the name of the class 'b\ufffdr': byte 2, 0xE4, is not UTF-8" in said and "json.exception" not in said
