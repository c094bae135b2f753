"""`trainrun init` of text in other encodings than UTF-8 and of tables that begin with comments: what it tells by itself is read,
the rest is refused, and what the refusal says to write works."""

import gzip
import json
import pathlib
import random
import re
import subprocess

import numpy as np
import pytest
import yaml

from tests.program import BINARY, CALLED

CITIES = ["Bern", "Zürich", "Genf"]


def trainrun(folder, *words, fails=False):
    done = subprocess.run([CALLED, *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return " ".join((done.stderr if fails else done.stdout).split())


def table_of(cities=tuple(CITIES), before="", head="city,size,price"):
    draw = random.Random(1)
    rows = [f"{cities[i % len(cities)]},{draw.randint(20, 200)},{draw.random() * 100:.2f}" for i in range(150)]
    return before + "\n".join([head, *rows]) + "\n"


def lists_in(value):
    if isinstance(value, dict):
        return [one for item in value.values() for one in lists_in(item)]
    return [value, *(one for item in value for one in lists_in(item))] if isinstance(value, list) else []


def learns_the_categories(folder, name, cities):
    """Whether a run keeps these, in their order, as those of the column."""
    trainrun(folder, "run", f"{name}.yaml", "training.num_epochs=1")
    state = json.loads((folder / f"runs/{name}/checkpoints/latest/state.json").read_text(encoding="utf-8"))
    return sorted(cities) in lists_in(state["learnt"])


def train_of(folder, name):
    return yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))["dataset"]["train"]


def followed(folder, said):
    """Runs the command that a message gives, and returns the file that it writes."""
    command = re.search(r"(?:iconv|tail|zcat) .*? > (?:'[^']*'|[^\s;]+)", said)
    assert command, said
    subprocess.run(command[0], cwd=folder, shell=True, check=True)
    return re.search(r"> (?:'([^']*)'|(\S+))$", command[0]).expand(r"\1\2")


@pytest.mark.parametrize(("encoding", "written"), [("utf-8-sig", None), ("utf-16", "utf-16"), ("utf-16-le", "utf-16-le"), ("utf-16-be", "utf-16-be")])
def test_a_table_whose_bytes_tell_its_encoding_is_read(tmp_path, encoding, written):
    (tmp_path / "t.csv").write_bytes(table_of().encode(encoding))
    said = trainrun(tmp_path, "init", "t.csv")
    assert train_of(tmp_path, "t").get("encoding") == written and ("encoding:" in said) == bool(written)
    assert learns_the_categories(tmp_path, "t", CITIES)


@pytest.mark.parametrize(("encoding", "city"), [("latin-1", "Zürich"), ("cp1252", "Œuilly")])
def test_another_encoding_is_asked_for_with_what_it_would_read(tmp_path, encoding, city):
    (tmp_path / "t.csv").write_bytes(table_of(("Bern", city, "Genf")).encode(encoding))
    asked = trainrun(tmp_path, "init", "t.csv", fails=True)
    first = next(place for place, byte in enumerate(city.encode(encoding), 1) if byte > 127)
    assert f"t.csv:3: byte {first} of the line" in asked
    assert f"is not UTF-8; add --encoding {encoding}, with which the first word that is not plain ASCII reads '{city}', or" in asked
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
    assert f"encoding: {encoding}" in trainrun(tmp_path, "init", "t.csv", "--encoding", encoding)
    assert learns_the_categories(tmp_path, "t", ["Bern", city, "Genf"])


@pytest.mark.parametrize("name", ["t.csv", "my table.csv", "t.csv.gz"])
def test_what_no_recipe_can_name_is_converted_by_the_command_that_is_given(tmp_path, name):
    packed = table_of(("Москва", "Тверь", "Псков")).encode("cp1251")
    (tmp_path / name).write_bytes(gzip.compress(packed) if name.endswith(".gz") else packed)
    converted = followed(tmp_path, trainrun(tmp_path, "init", name, fails=True))
    assert (tmp_path / converted).read_text(encoding="utf-8") == table_of(("Москва", "Тверь", "Псков"))
    trainrun(tmp_path, "init", converted, "--name", "t")
    assert learns_the_categories(tmp_path, "t", ["Москва", "Псков", "Тверь"])


def test_utf_32_is_not_taken_for_utf_16(tmp_path):
    (tmp_path / "t.csv").write_bytes(table_of().encode("utf-32"))
    said = trainrun(tmp_path, "init", "t.csv", fails=True)
    assert "begins with the byte-order mark of UTF-32" in said
    assert (tmp_path / followed(tmp_path, said)).read_text(encoding="utf-8").strip("\ufeff") == table_of()


def test_an_encoding_that_does_not_fit_is_refused_or_noted(tmp_path):
    (tmp_path / "t.csv").write_text(table_of(), encoding="utf-8")
    assert "add --encoding utf-16-le or utf-16-be" in trainrun(tmp_path, "init", "t.csv", "--encoding", "utf-16", fails=True)
    assert "is read as latin-1, but the whole file is UTF-8" in trainrun(tmp_path, "init", "t.csv", "--encoding", "latin-1")
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(0).normal(size=(90, 5)), y=np.arange(90) % 3)
    assert "--encoding is not used" in trainrun(tmp_path, "init", "rows.npz", "--encoding", "latin-1")


def test_two_tables_in_different_encodings_are_refused(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/train.csv").write_text(table_of(), encoding="utf-8")
    (tmp_path / "data/test.csv").write_bytes(table_of().encode("utf-16"))
    said = trainrun(tmp_path, "init", "data", fails=True)
    assert "data/test.csv: is utf-16, and data/train.csv is not, but a recipe names one encoding for both" in said
    (tmp_path / followed(tmp_path, said)).rename(tmp_path / "data/test.csv")
    assert "evaluated on data/test.csv" in trainrun(tmp_path, "init", "data")


def test_a_file_that_is_no_text_is_not_taken_for_one_in_another_encoding(tmp_path):
    (tmp_path / "t.csv").write_bytes(bytes(range(256)) * 10)
    assert "--encoding" not in trainrun(tmp_path, "init", "t.csv", fails=True)


def test_texts_are_read_in_the_encoding_that_is_named(tmp_path):
    (tmp_path / "tale.txt").write_bytes(("ein süßer Käse am Fluß. " * 400).encode("latin-1"))
    assert "add --encoding latin-1, with which the first word that is not plain ASCII reads 'süßer'" in trainrun(tmp_path, "init", "tale.txt", fails=True)
    trainrun(tmp_path, "init", "tale.txt", "--encoding", "latin-1")
    assert train_of(tmp_path, "tale")["encoding"] == "latin-1"
    trainrun(tmp_path, "run", "tale.yaml", "training.max_steps=2", "dataset.train.num_samples=64")
    state = json.loads((tmp_path / "runs/tale/checkpoints/latest/state.json").read_text(encoding="utf-8"))
    assert state["learnt"]["dataset"]["characters"] == "".join(sorted(set("ein süßer Käse am Fluß. ")))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a.txt").write_bytes(("ein süßer Käse am Fluß. " * 400).encode("utf-16"))
    (tmp_path / "folder/b.txt").write_text("ein süßer Käse am Fluß. " * 400, encoding="utf-8")
    said = trainrun(tmp_path, "init", "folder", fails=True)
    assert "folder/a.txt: is utf-16, and other texts are not" in said
    (tmp_path / followed(tmp_path, said)).rename(tmp_path / "folder/a.txt")
    trainrun(tmp_path, "init", "folder")


def test_a_model_of_texts_is_made_from_a_table_in_the_encoding_that_is_named(tmp_path):
    draw = random.Random(2)
    rows = [f"das {draw.choice(['süße', 'große', 'kühle'])} Stück von {draw.choice(['Käse', 'Öl'])} war {['gut', 'übel'][i % 2]},{['ja', 'nein'][i % 2]}" for i in range(200)]
    (tmp_path / "t.csv").write_bytes(("text,label\n" + "\n".join(rows) + "\n").encode("latin-1"))
    assert "texts in text" in trainrun(tmp_path, "init", "t.csv", "--encoding", "latin-1", "--text", "text")
    assert train_of(tmp_path, "t")["dataset"]["encoding"] == "latin-1"
    trainrun(tmp_path, "run", "t.yaml", "training.num_epochs=1")


def test_json_lines_are_utf_8_and_the_command_that_is_given_converts_them(tmp_path):
    rows = [json.dumps({"city": CITIES[i % 3], "size": i * 7 % 50, "price": i * 3.5 % 29}, ensure_ascii=False) for i in range(150)]
    (tmp_path / "t.jsonl").write_bytes(("\n".join(rows) + "\n").encode("latin-1"))
    assert "is not UTF-8; JSON is UTF-8: convert it" in trainrun(tmp_path, "init", "t.jsonl", fails=True)
    converted = followed(tmp_path, trainrun(tmp_path, "init", "t.jsonl", "--encoding", "latin-1", fails=True))
    trainrun(tmp_path, "init", converted, "--name", "t")
    assert learns_the_categories(tmp_path, "t", CITIES)


@pytest.mark.parametrize("name", ["t.csv", "my table.csv", "t.csv.gz"])
@pytest.mark.parametrize("before", ["# made by a scale\n", "# made by a scale\n\n#in 2026\n", "# from lab A, 2026, morning\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_comments_before_the_names_of_the_columns_are_left_out_by_the_command_that_is_given(tmp_path, name, before, encoding):
    packed = table_of(before=before).encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(packed) if name.endswith(".gz") else packed)
    said = trainrun(tmp_path, "init", name, fails=True)
    count = before.count("#")
    assert f"the table begins with {count} comment{'s' if count > 1 else ''}, which no recipe can leave out" in said
    plain = followed(tmp_path, said)
    assert (tmp_path / plain).read_text(encoding="utf-8") == table_of()
    assert "150 rows, 3 columns" in trainrun(tmp_path, "init", plain)


def test_names_of_columns_that_begin_with_a_hash_are_kept_and_doubted(tmp_path):
    (tmp_path / "t.csv").write_text(table_of(head="#city,size,price"), encoding="utf-8")
    said = trainrun(tmp_path, "init", "t.csv")
    assert "the first line of t.csv begins with '#' and is read as the names of the columns" in said and "#city" in said
    assert "150 rows, 3 columns" in said
    (tmp_path / "t.csv").write_text(table_of(before="# made by a scale\n", head="#city,size,price"), encoding="utf-8")
    said = trainrun(tmp_path, "init", "t.csv", "--force", fails=True)
    assert "begins with 1 comment," in said
    assert (tmp_path / followed(tmp_path, said)).read_text(encoding="utf-8") == table_of(head="#city,size,price")


def bytes_read(folder, path, *words):
    """How many bytes of a file the program reads."""
    calls = folder / "calls"
    traced = subprocess.run(["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=read,pread64", "-P", str(path), "-o", str(calls), BINARY, *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    if "ptrace" in traced.stderr:
        pytest.skip("strace cannot trace here")
    assert traced.returncode == 0, traced.stderr
    return sum(int(count) for count in re.findall(r"read.* = (\d+)$", calls.read_text(), re.MULTILINE))


def test_a_table_of_pictures_is_read_once_besides_what_checking_the_recipe_and_its_data_takes(tmp_path):
    """Beginnings of it, by which delimiters and comments are found, come to less than half of so large a table."""
    Image = pytest.importorskip("PIL.Image")
    (tmp_path / "data/pictures").mkdir(parents=True)
    for i in range(40):
        Image.new("RGB", (16, 16), (i, 2 * i, 3 * i)).save(tmp_path / f"data/pictures/{i}.png")
    rows = [f"{i % 40}.png,{'ab'[i % 2]},{'long ' * 1000}{i}" for i in range(1500)]
    table = tmp_path / "data/train.csv"
    table.write_text("image,shape,remark\n" + "\n".join(rows) + "\n")
    init = bytes_read(tmp_path, table, "init", "data", "--target", "shape")
    checked = bytes_read(tmp_path, table, "explain", "data.yaml") + bytes_read(tmp_path, table, "data", "data.yaml", "--terminal")
    assert init - checked < 1.5 * pathlib.Path(table).stat().st_size
