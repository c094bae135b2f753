"""Small broken data, what is said of each, and where one gets by doing what is said: the table of advice_test.py.

A row is (what is wrong, the files, the data set, what is said); `by_hand` does to the files what no parameter can, and
`then` is the next thing that is said where one change is not enough.
"""

import io
import json
import sqlite3
import tempfile
from typing import Callable, NamedTuple

import numpy
from PIL import Image

LINEAR = "[{type: Linear, out_features: 3}]"
TEXTS = (
    "[{type: Embedding, inputs: input_ids, num_embeddings: 40, embedding_dim: 4}, {type: Mean, dim: 1}, "
    "{type: Linear, out_features: 3}]"
)
NEXT = (
    "[{type: Embedding, num_embeddings: 40, embedding_dim: 4}, {type: Linear, out_features: 40}, "
    "{type: Permute, dims: [0, 2, 1]}]"
)
PICTURES = "[Flatten, {type: Linear, out_features: 3}]"
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad film the a was it"


class Fault(NamedTuple):
    """One row. `train` is the data set's mapping, without its braces; `told`: each is in standard error, or None: all
    is well; `more`: further keys of `dataset`."""

    what: str
    files: dict
    train: str
    told: object
    layers: str = LINEAR
    loss: str = "CrossEntropyLoss"
    more: str = ""
    by_hand: Callable | None = None
    then: str | None = None


def lines(*rows):
    return "\n".join(rows) + "\n"


def table(what, rows, told, options="", **more):
    """A CSV file t.csv with the label y."""
    text = rows if isinstance(rows, (str, bytes)) else lines(*rows)
    return Fault(what, {"t.csv": text}, "type: CSV, path: t.csv, label: y" + options, told, **more)


def texts(what, name, text, told, options="", **more):
    """A file of texts with their classes, and a tokenizer."""
    files = {name: text if isinstance(text, (str, bytes)) else lines(*text), "words/vocab.txt": lines(*WORDS.split())}
    train = f"type: TextClassification, path: {name}, tokenizer: words, max_length: 8{options}"
    return Fault(what, files, train, told, layers=TEXTS, **more)


def corpus(what, name, text, told, options="", **more):
    train = f"type: TextLM, path: {name}, tokenizer: characters, block_size: 4{options}"
    return Fault(what, {name: text}, train, told, layers=NEXT, **more)


def picture(color=128, size=4):
    file = io.BytesIO()
    Image.new("RGB", (size, size), (color, color, color)).save(file, "PNG")
    return file.getvalue()


def arrays(**given):
    file = io.BytesIO()
    numpy.savez(file, **given)
    return file.getvalue()


def database(rows="(1.0, 0), (2.0, 1), (3.0, 2)"):
    with tempfile.NamedTemporaryFile() as file:
        with sqlite3.connect(file.name) as connection:
            connection.execute("CREATE TABLE flowers (a, y)")
            connection.execute(f"INSERT INTO flowers VALUES {rows}")
        connection.close()
        return open(file.name, "rb").read()


def replacing(name, *pairs):
    """Changes a file by hand."""

    def change(files):
        text = files[name]
        for old, new in pairs:
            assert old in text, (old, text)
            text = text.replace(old, new)
        return {**files, name: text}

    return change


PEOPLE = ["a,b,y", "1,2,0", "2,3,1", "3,4,2", "4,5,0"]
GERMAN = ["a;b;y", "1,5;2;0", "2,5;3;1", "3,5;4;2", "4,5;5;0"]
REVIEWS = ["text,label", "good film,0", "bad film,1", "the film,2", "a film,0"]
SENTENCES = [{"text": "good film", "label": 0}, {"text": "bad film", "label": 1}, {"text": "the film", "label": 2}]
STANDARD = "  transforms: [Standardize]\n"
VOCABULARY = {"words/vocab.txt": lines(*WORDS.split())}
OF_REVIEWS = "type: TextClassification, path: t.csv, tokenizer: words, max_length: 8"


def semicolons(rows):
    return [row.replace(",", ";") for row in rows]


DELIMITERS = [
    table("semicolons", semicolons(PEOPLE),
        "t.csv:1:y: there is no such column; the columns seem to be separated by ';': write delimiter: ';'"),
    table("tabulators", [row.replace(",", "\t") for row in PEOPLE], 'write delimiter: "\\t"'),
    table("bars", [row.replace(",", "|") for row in PEOPLE], "write delimiter: '|'"),
    table("commas where semicolons are said", PEOPLE, "write delimiter: ','", ", delimiter: ';'"),
    table("semicolons around names in quotation marks", ['"a";"b";"y"', *semicolons(PEOPLE[1:])],
        "write delimiter: ';'"),
    table("semicolons and features", semicolons(PEOPLE), "write delimiter: ';'", ", features: [a]"),
    table("semicolons and columns: auto", semicolons(PEOPLE), "write delimiter: ';'", ", columns: auto"),
    table("no line with names", PEOPLE[1:], "write header: false, which calls the columns '0' to '2'",
        then="there is no such column; known: 0, 1, 2"),
    table("a label that is misspelled", ["a,b,Y", *PEOPLE[1:]], "there is no such column; did you mean Y?"),
    table("a feature that is misspelled", PEOPLE, "there is no such column; did you mean b?", ", features: [a, B]"),
]

NUMBERS = [
    table("decimal commas", GERMAN, "t.csv:2:a: '1,5' is not a number; write decimal: ','", ", delimiter: ';'"),
    table("decimal commas and columns: auto", GERMAN, "write decimal: ','", ", delimiter: ';', columns: auto"),
    table("decimal commas in quotation marks", ["a,b,y", '"1,5",2,0', '"2,5",3,1', '"3,5",4,2'], "write decimal: ','"),
    table("points between thousands, and decimal commas", ["a;y", "1.234,5;0", "2.345,5;1", "12,5;2"],
        "write decimal: ',' and thousands: '.'", ", delimiter: ';'", more=STANDARD),
    table("points between thousands where only decimal is said", ["a;y", "1.234;0", "2.345,5;1", "12,5;2"],
        "write thousands: '.'", ", delimiter: ';', decimal: ','", more=STANDARD),
    table("commas of both kinds and columns: auto", ["a;b;y", "1,5;1,234;0", "2,5;2,345;1", "3,5;3,456;2"],
        "write decimal: ','", ", delimiter: ';', columns: auto"),
    table("commas between thousands", ["a,y", '"1,234",0', '"12,345.5",1', "7,2"], "write thousands: ','",
        more=STANDARD),
    table("a regression with decimal commas", ["a;y", "1;0,5", "2;1,5", "3;2,5"], "write decimal: ','",
        ", delimiter: ';', task: regression", loss="MSELoss", layers="[{type: Linear, out_features: 1}]"),
    Fault("decimal commas in a database", {"t.db": database("('1,5', 0), ('2,5', 1), ('3,5', 2)")},
        "type: SQLite, path: t.db, table: flowers, label: y",
        "numbers are read with a point and no other mark, 1234.5; convert these in the file",
        by_hand=lambda _: {"t.db": database()}),
    table("words in a column", ["a,city,y", "1,Rome,0", "2,Oslo,1", "3,Rome,2", "4,Oslo,0"],
        "t.csv:2:city: 'Rome' is not a number; write columns: {city: category}",
        layers="[{type: Linear, inputs: features, out_features: 3}]"),
    table("dates in a column", ["a,day,y", "1,2024-05-31,0", "2,2024-06-01,1", "3,2024-06-02,2"],
        "write columns: {day: date}", more=STANDARD),
    table("dates of Germany", ["a,day,y", "1,31.05.2024,0", "2,01.06.2024,1", "3,02.06.2024,2"], "format: '%d.%m.%Y'",
        more=STANDARD),
    table("dates that may be either", ["a,day,y", "1,05/06/2024,0", "2,07/08/2024,1", "3,01/02/2024,2"],
        "month/day/year", ", columns: auto", more=STANDARD),
    table("booleans", ["a,ok,y", "1,yes,0", "2,no,1", "3,yes,2"], "write columns: {ok: boolean}"),
    table("a missing value", ["a,b,y", "1,2,0", ",3,1", "3,4,2"], "write columns: {a: {missing: median}}"),
    table("NA", ["a,b,y", "1,2,0", "NA,3,1", "3,4,2"], "write columns: {a: {missing: median}}"),
    table("a word among numbers", ["a,b,y", "1,2,0", "x,3,1", "3,4,2"], "t.csv:3:a: 'x' is not a number",
        by_hand=replacing("t.csv", ("x", "2"))),
    table("a few cells among numbers that are none", ["a,b,y", *(f"{'k.A.' if i == 7 else i * 0.5},{i},{i % 3}" for i in range(40))],
        ["t.csv:9:a: 'k.A.' is not a number; 1 of 40 cells are not numbers; write columns: {a: {missing: median}}", "t.csv: write na_values: ['', 'k.A.']"]),
    table("a few cells among numbers that are none and columns: auto", ["a,b,y", *(f"{'k.A.' if i == 7 else i * 0.5},{i},{i % 3}" for i in range(40))],
        ["t.csv:9:a: holds numbers but for 1 of 40 cells, 'k.A.'", "write na_values: ['', 'k.A.']"], ", columns: auto"),
    table("names of people", ["a,name,y", *(f"{i},person {i * 7919},{i % 3}" for i in range(30))],
          "to leave out what cannot be read write features: [a]"),
    table("names of people and columns: auto", ["a,name,y", *(f"{i},person {i * 7919},{i % 3}" for i in range(30))],
          "to leave out what cannot be read write features: [a]", ", columns: auto"),
    table("nothing but names of people", ["name,y", *(f"person {i * 7919},{i % 3}" for i in range(30))],
        "text is read by the data set TextClassification", ", columns: auto",
        by_hand=lambda _: {"t.csv": lines(*PEOPLE)}),
    table("a column that is empty", ["a,b,y", "1,,0", "2,,1", "3,,2"], "write features: [a]", ", columns: auto"),
    table("a number that is too large", ["a,y", "1,0", "1e400,1", "3,2"], "'1e400' is too large or too small",
        by_hand=replacing("t.csv", ("1e400", "2"))),
]

LABELS = [
    table("an empty label", ["a,y", "1,0", "2,", "3,2"], "t.csv:3:y: the value is missing",
        by_hand=replacing("t.csv", ("2,\n", ""))),
    table("an empty label and columns: auto", ["a,y", "1,0", "2,", "3,2"], "t.csv:3:y: the label is missing here",
        ", columns: auto"),
    table("an empty label among words and columns: auto", ["a,y", "1,red", "2,", "3,blue", "4,red"],
        "t.csv:3:y: the label is missing here", ", columns: auto"),
    table("an empty label of a regression", ["a,y", "1,0.5", "2,", "3,2"], "t.csv:3:y: the value is missing",
        ", task: regression", loss="MSELoss", layers="[{type: Linear, out_features: 1}]",
        by_hand=replacing("t.csv", ("2,\n", ""))),
    table("labels from 1", ["a,y", "1,1", "2,2", "3,3"], ["these count from 1", "write columns: {'y': category}"]),
    table("labels from -1", ["a,y", "1,-1", "2,0", "3,1"], "write columns: {'y': category}"),
    table("labels that are words", ["a,y", "1,red", "2,blue", "3,green"], "write columns: {'y': category}"),
    table("labels that are booleans", ["a,y", "1,true", "2,false", "3,true"], "write columns: {'y': boolean}"),
    table("labels that are fractions", ["a,y", *(f"{i},{i}.5" for i in range(30))],
        "to predict numbers write task: regression", then="CrossEntropyLoss does not fit"),
    table("more classes than outputs", ["a,y", "1,0", "2,1", "3,5"],
        "classes go up to 5; write model.layers[0].out_features: 6"),
    table("a class that is not listed", ["a,y", "1,red", "2,blue", "3,reed"], "did you mean red?",
        ", columns: {y: {type: category, categories: [red, blue]}}", by_hand=replacing("t.csv", ("reed", "red"))),
    table("words for a regression", ["a,y", "1,red", "2,blue", "3,red"], "is not a number", ", task: regression",
        loss="MSELoss", layers="[{type: Linear, out_features: 1}]",
        by_hand=replacing("t.csv", ("red", "1"), ("blue", "2"))),
]

SHAPES_OF_FILES = [
    table("a row with a comma too many", ["a,y", "1,0", "2,x,1", "3,2"],
        "t.csv:3: 3 columns, the first line has 2; put a text that holds the delimiter in quotation marks",
        by_hand=replacing("t.csv", ("2,x,1", "2,1"))),
    table("a row that is broken in the middle", [*PEOPLE, "1", "1,2,1"], "t.csv:6: 1 columns, the first line has 3; write broken: skip to leave such rows out"),
    table("a row that is too short", ["a,b,y", "1,2,0", "2,1", "3,4,2"], "t.csv:3: 2 columns, the first line has 3",
        by_hand=replacing("t.csv", ("2,1\n", ""))),
    table("a column twice", ["a,a,y", "1,2,0", "2,3,1"], "two columns are called 'a'",
        by_hand=replacing("t.csv", ("a,a", "a,b"))),
    table("JSON for CSV", lines(*(json.dumps({"a": i, "y": i}) for i in range(3))), "it holds JSON: write type: JSONL"),
    table("a database for CSV", database(), "it is an SQLite file: write type: SQLite",
        then="either table or query must be given"),
    table("a spreadsheet for CSV", b"PK\x03\x04" + b"\0" * 30 + b"\n", "save the table as a CSV file",
        by_hand=lambda files: {"t.csv": lines(*PEOPLE)}),
    Fault("CSV for JSON", {"t.jsonl": lines(*PEOPLE)}, "type: JSONL, path: t.jsonl, label: y", "write type: CSV"),
    Fault("a list of objects", {"t.json": json.dumps([{"a": 1, "y": 0}, {"a": 2, "y": 1}])},
        "type: JSONL, path: t.json, label: y", "put each object on a line of its own",
        by_hand=lambda files: {"t.json": lines(*(json.dumps(one) for one in json.loads(files["t.json"])))}),
    Fault("a list without a shape",
        {"t.jsonl": lines(*(json.dumps({"a": [i, 2, 3], "b": i, "y": i}) for i in range(3)))},
        "type: JSONL, path: t.jsonl, label: y, columns: auto", "write columns: {a: {shape: [3]}",
        layers="[{type: Linear, inputs: a, out_features: 3}]"),
    Fault("a table of a database that is misspelled", {"t.db": database()},
        "type: SQLite, path: t.db, table: flower, label: y", "did you mean flowers?"),
]

VIEWS = [
    Fault("windows longer than the table", {"t.csv": lines("x,y", *(f"{i},{i}.5" for i in range(7)))},
          "type: Windows, length: 9, dataset: {type: CSV, path: t.csv, label: y, task: regression, features: [x]}",
          "write length: 6 or less", loss="MSELoss", layers="[Flatten, {type: Linear, out_features: 1}]"),
    Fault("a group that is misspelled", {"t.csv": lines(*PEOPLE)},
        "type: Split, part: train, group: A, fractions: [0.5, 0.5], dataset: {type: CSV, path: t.csv, label: y}",
        "there is no such column; did you mean a?"),
]

OF_TEXTS = [
    texts("an ending in capital letters", "t.CSV", REVIEWS, None),
    texts("JSON lines that are called .json", "t.json", [json.dumps(one) for one in SENTENCES], None),
    texts("a list of objects with texts", "t.json", json.dumps(SENTENCES), "put each object on a line of its own",
          by_hand=lambda files: {**files, "t.json": lines(*(json.dumps(one) for one in json.loads(files["t.json"])))}),
    texts("a name that says nothing", "t.data", REVIEWS, "its name does not say what it is"),
    texts("a name that says nothing of JSON", "t.data", [json.dumps(one) for one in SENTENCES], "call the file .jsonl"),
    texts("texts with semicolons", "t.csv", semicolons(REVIEWS),
        "the columns seem to be separated by ';': save the table with commas",
        by_hand=lambda files: {**files, "t.csv": files["t.csv"].replace(";", ",")}),
    texts("tabulators in .csv", "t.csv", [row.replace(",", "\t") for row in REVIEWS], "call the file .tsv"),
    texts("commas in .tsv", "t.tsv", REVIEWS, "call the file .csv"),
    texts("an empty class", "t.csv", ["text,label", "good film,x", "bad film,", "the film,z"],
        "t.csv:3:label: the label is missing; write broken: skip to leave such rows out"),
    texts("a column of texts that is misspelled", "t.csv", REVIEWS, "has no column 'txt'; did you mean text?",
        ", text_columns: txt"),
    texts("a column of classes that is misspelled", "t.csv", ["text,labels", *REVIEWS[1:]],
        "has no column 'label'; did you mean labels?"),
    texts("a key that is misspelled", "t.jsonl", [json.dumps(one) for one in SENTENCES],
        "t.jsonl:1: has no key 'texts'; did you mean text?", ", text_columns: texts"),
    texts("a class that the recipe does not list", "t.csv", REVIEWS, "'2' is not a class", ", classes: ['0', '1']",
        by_hand=replacing("t.csv", ("the film,2\n", ""))),
    Fault("Split by classes of texts", {"t.csv": lines(*REVIEWS, *REVIEWS[1:]), **VOCABULARY},
        "type: Split, part: train, fractions: [0.5, 0.5], stratify: true, "
        "dataset: {type: TextClassification, path: t.csv, tokenizer: words, max_length: 8}", None, layers=TEXTS),
    Fault("a folder without a tokenizer", {"t.csv": lines(*REVIEWS), "words/readme.txt": "nothing\n"}, OF_REVIEWS,
        "there is no tokenizer in this folder; expected tokenizer.json, or vocab.txt", layers=TEXTS,
        by_hand=lambda files: {**files, **VOCABULARY}),
    Fault("a tokenizer that is not there", {"t.csv": lines(*REVIEWS)}, OF_REVIEWS.replace("words", "./words"),
        "./words: there is no such file or folder", layers=TEXTS, by_hand=lambda files: {**files, **VOCABULARY}),
    texts("more tokens than rows of the embedding", "t.csv", REVIEWS,
        "write model.layers[0].num_embeddings: ")._replace(layers=TEXTS.replace("40", "6")),
    corpus("documents under another key", "t.jsonl",
        lines(*(json.dumps({"body": "abcdef", "id": i}) for i in range(4))),
        "has no key 'text'; write text_column: body"),
    corpus("documents in a list", "t.json", json.dumps([{"text": "abcdef"}] * 4),
        "put each object on a line of its own",
        by_hand=lambda files: {"t.json": lines(*(json.dumps(one) for one in json.loads(files["t.json"])))}),
    corpus("a text that is too short", "t.txt", "abc", "write block_size: 2 or less"),
]

OF_IMAGES = [
    Fault("a list of images with semicolons",
        {"t.csv": lines("path;label", "a.png;0", "b.png;1"), "a.png": picture(), "b.png": picture(7)},
        "type: ImageCSV, path: t.csv", "write delimiter: ';'", layers=PICTURES),
    Fault("a list of images without a class",
        {"t.csv": lines("path,label", "a.png,0", "b.png,"), "a.png": picture(), "b.png": picture(7)},
        "type: ImageCSV, path: t.csv", "t.csv:3:label: there is no class", layers=PICTURES,
        by_hand=replacing("t.csv", ("b.png,", "b.png,1"))),
    Fault("a column of images that is misspelled",
        {"t.csv": lines("paths,label", "a.png,0", "b.png,1"), "a.png": picture(), "b.png": picture(7)},
        "type: ImageCSV, path: t.csv", "there is no column 'path'; did you mean paths?", layers=PICTURES),
    Fault("images of two sizes", {"photos/x/a.png": picture(), "photos/z/b.png": picture(7, 5)},
        "type: ImageFolder, root: photos",
        "image_transforms", layers=PICTURES),
]

ARRAYS = [
    Fault("labels from 1 in arrays",
        {"t.npz": arrays(x=numpy.ones((3, 2), numpy.float32), label=numpy.array([1, 2, 3]))},
        "type: TensorFile, path: t.npz", "subtract 1",
        by_hand=lambda files: {"t.npz": arrays(x=numpy.ones((3, 2), numpy.float32), label=numpy.array([0, 1, 2]))}),
    Fault("a target under another name",
        {"t.npz": arrays(x=numpy.ones((3, 2), numpy.float32), labels=numpy.array([0, 1, 2]))},
        "type: TensorFile, path: t.npz", "did you mean labels?"),
    Fault("no target at all", {"t.npz": arrays(x=numpy.ones((3, 2), numpy.float32), label=numpy.full(3, -100))},
        "type: TensorFile, path: t.npz",
        "CrossEntropyLoss has no target in this batch, 'label' is -100 (ignore_index) everywhere",
        by_hand=lambda files: {"t.npz": arrays(x=numpy.ones((3, 2), numpy.float32), label=numpy.array([0, 1, 2]))}),
    Fault("classes without a class_dim",
        {"t.npz": arrays(x=numpy.ones((3, 5, 2), numpy.float32), label=numpy.zeros((3, 5), int))},
        "type: TensorFile, path: t.npz", "the loss wants them second; write loss: CausalLMLoss where they are the next tokens, else class_dim: -1 in the loss"),
]

ROWS = DELIMITERS + NUMBERS + LABELS + SHAPES_OF_FILES + VIEWS + OF_TEXTS + OF_IMAGES + ARRAYS


def write_files(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def recipe_of(row):
    return f"""version: 1
name: faults
model: {{layers: {row.layers}}}
loss: {row.loss}
dataset:
  train: {{{row.train}}}
{row.more}dataloader: {{batch_size: 2}}
optimizer: {{type: SGD, lr: 0.01}}
training: {{max_steps: 1}}
checkpoint: {{every: null}}
logging: {{report_to: []}}
output_dir: run
"""
