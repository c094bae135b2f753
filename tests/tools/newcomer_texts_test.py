"""Stumbles of a newcomer over texts, conversations and language models: each is told, with advice that works when it is followed."""

import json
import zipfile

import pytest

from newcomer import WORDS, fixture_flats, trainrun, write_tokenizer  # noqa: F401: a fixture


TEXTS = """\
version: 1
model: {{layers: [{{type: Embedding, num_embeddings: 16, embedding_dim: 8, inputs: input_ids}}, {{type: Mean, dim: 1}}, {{type: Linear, out_features: {outputs}}}]}}
loss: CrossEntropyLoss
dataset: {{train: {{type: TextClassification, path: t.csv, text_columns: [text], label: stars, tokenizer: tokenizer.json, max_length: 8}}}}
dataloader: {{batch_size: 4}}
optimizer: {{type: SGD, lr: 0.1}}
training: {{num_epochs: 1}}
output_dir: run
"""


def train_texts(folder, outputs=3):
    write_tokenizer(folder / "tokenizer.json")
    (folder / "t.csv").write_text("text,stars\n" + "".join(f"the soup was {WORDS[i % 7]},{1 + i % 3}\n" for i in range(24)))
    (folder / "r.yaml").write_text(TEXTS.format(outputs=outputs))
    return trainrun(folder, "r.yaml")


def docx(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<w:t>the soup was good</w:t>" * 20)


def test_what_is_no_text_is_not_predicted_for_line_by_line(tmp_path):
    train_texts(tmp_path)
    (tmp_path / "a.txt").write_text("the soup was good\n[sic] lovely\n{ok} bad\n")
    trainrun(tmp_path, "predict", "run", "a.txt")
    (tmp_path / "list.json").write_text(json.dumps([{"text": "good"}, {"text": "bad"}]))
    assert "is a list in JSON; write JSON lines" in trainrun(tmp_path, "predict", "run", "list.json", status=1)
    (tmp_path / "strings.json").write_text(json.dumps(["good", "bad"]))
    assert "is a list in JSON; write JSON lines" in trainrun(tmp_path, "predict", "run", "strings.json", status=1)
    docx(tmp_path / "letter.docx")
    assert "letter.docx is a ZIP archive, such as a document" in trainrun(tmp_path, "predict", "run", "letter.docx", status=1)
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7\nthe soup was good\n")
    assert "a.pdf is a PDF file, not text" in trainrun(tmp_path, "predict", "run", "a.pdf", status=1)
    (tmp_path / "a.bin").write_bytes(b"the soup\nwas \x00good\n")
    assert "a.bin:2: byte 5 of the line, 0x00 at offset 13 of the text, is in no text" in trainrun(tmp_path, "predict", "run", "a.bin", status=1)


@pytest.mark.parametrize("kind", ["TextLM", "Texts"])
def test_what_is_no_text_is_not_learnt_from(tmp_path, kind):
    write_tokenizer(tmp_path / "tokenizer.json")
    docx(tmp_path / "letter.docx")
    length = "block_size: 8" if kind == "TextLM" else "max_length: 8"
    data = f"{{type: {kind}, path: letter.docx, tokenizer: tokenizer.json, {length}}}"
    (tmp_path / "r.yaml").write_text(
        "version: 1\nmodel: {layers: [{type: Embedding, num_embeddings: 16, embedding_dim: 8, inputs: input_ids}, {type: Linear, out_features: 16}]}\n"
        f"loss: CausalLMLoss\ndataset: {{train: {data}}}\ndataloader: {{batch_size: 2}}\noptimizer: {{type: SGD, lr: 0.1}}\ntraining: {{num_epochs: 1}}\n")
    assert "letter.docx is a ZIP archive" in (trainrun(tmp_path, "r.yaml", status=1) if kind == "TextLM" else trainrun(tmp_path, "r.yaml", status=2))


def test_outputs_that_no_class_has_are_told_and_can_be_predicted(tmp_path):
    said = train_texts(tmp_path, outputs=5)
    assert "has 5 classes, but 'labels' of dataset.train has only 3, so that the others never come; write model.layers[2].out_features: 3" in said
    (tmp_path / "a.txt").write_text("the soup was good\n")
    header = trainrun(tmp_path, "predict", "run", "a.txt").splitlines()[0]
    assert header == "line,stars,probability,p(1),p(2),p(3),p(LABEL_3),p(LABEL_4)"
    assert "so that the others never come" not in trainrun(tmp_path, "r.yaml", "model.layers[2].out_features=3")


def test_outputs_that_no_class_has_are_called_the_same_in_a_report(tmp_path):
    (tmp_path / "train.csv").write_text("x,kind\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(12)))
    (tmp_path / "r.yaml").write_text(
        "version: 1\nmodel: {layers: [{type: Linear, out_features: 3}]}\nloss: CrossEntropyLoss\ndataset:\n  train: &t {type: CSV, path: train.csv, label: kind, columns: auto}\n"
        "  eval: *t\ndataloader: {batch_size: 4}\noptimizer: {type: SGD, lr: 0.01}\ntraining: {num_epochs: 1}\noutput_dir: run\n")
    trainrun(tmp_path, "r.yaml")
    report = json.loads(trainrun(tmp_path, "eval", "run", "--report", "--json").splitlines()[-1])["report"]["eval"]
    assert [one["name"] for one in report["classes"]] == ["a", "b", "LABEL_2"]
    assert trainrun(tmp_path, "predict", "run", "train.csv").splitlines()[0] == "line,kind,probability,p(a),p(b),p(LABEL_2)"


def test_a_tokenizer_that_lies_in_the_current_folder_is_not_that_of_a_table(flats):
    write_tokenizer(flats / "tokenizer.json")
    assert trainrun(flats, "export", "run", "--format", "torchscript", "--output", "model.pt").strip() == "model.pt"
    (flats / "tokenizer.json").unlink()


def test_a_run_that_is_not_there_is_not_looked_for_on_the_hub(tmp_path):
    (tmp_path / "runs").mkdir()
    said = trainrun(tmp_path, "generate", "runs/nothing", "--prompt", "a", status=1)
    assert "runs/nothing is neither a run's folder" in said and "http" not in said


CHAT = """\
version: 1
model: {layers: [{type: Embedding, num_embeddings: 16, embedding_dim: 8, inputs: input_ids}, {type: Linear, out_features: 16}]}
loss: CausalLMLoss
dataset: {train: {type: Chat, path: c.jsonl, tokenizer: tokenizer.json, max_length: 64, template: "{% for m in messages %}[CLS] {{ m.role }} {{ m.content }} [SEP]{% endfor %}"}}
dataloader: {batch_size: 2}
optimizer: {type: SGD, lr: 0.1}
training: {num_epochs: 1}
checkpoint: {every: null}
output_dir: run
"""


def test_roles_that_no_template_knows_and_answers_that_say_nothing_are_told(tmp_path):
    write_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "r.yaml").write_text(CHAT)

    def chats(*conversations):
        lines = [json.dumps({"messages": [{"role": role, "content": content} for role, content in one]}) for one in conversations]
        (tmp_path / "c.jsonl").write_text("\n".join(lines) + "\n")

    plain = [("user", "soup"), ("assistant", "good")]
    chats(plain, plain, [("system", "the"), *plain])
    assert "of 3 conversations" not in trainrun(tmp_path, "r.yaml")
    chats(plain, [("human", "soup"), ("assistant", "good")], [*plain, ("user", "soup"), ("bot", "bad")])
    said = trainrun(tmp_path, "r.yaml", "output_dir=two")
    assert "2 of 3 conversations have messages of other roles than system, user, assistant and tool, the first number 2" in said
    chats(plain, plain, [*plain, ("user", "soup"), ("assistant", "")])
    said = trainrun(tmp_path, "r.yaml", "output_dir=three")
    assert "1 of 3 conversations has an answer without text, the first number 3, from which the model learns to say nothing" in said
    chats([("user", "soup"), ("bot", "good")])
    assert "c.jsonl:1: there is no answer of the assistant to be learnt (roles: user, bot)" in trainrun(tmp_path, "r.yaml", status=1)


def test_scores_that_no_cosine_can_be_are_told(tmp_path):
    write_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "config.json").write_text(json.dumps(
        {"model_type": "bert", "vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 16}))
    (tmp_path / "r.yaml").write_text(
        "version: 1\nmodel: {layers: [{type: SentenceTransformer, config: config.json}]}\nloss: CosineSimilarityLoss\n"
        "dataset:\n  train: &p {type: SentencePairs, path: p.csv, columns: [a, b], score: alike, tokenizer: tokenizer.json, max_length: 8}\n  eval: *p\n"
        "dataloader: {batch_size: 4}\noptimizer: {type: SGD, lr: 0.1}\ntraining: {num_epochs: 1}\noutput_dir: run\n")
    for most, is_told in ((5, True), (1, False)):
        (tmp_path / "p.csv").write_text("a,b,alike\n" + "".join(f"the soup,soup was,{i % 3 * most / 2}\n" for i in range(8)))
        said = trainrun(tmp_path, "r.yaml", f"output_dir=run{most}")
        assert ("learns cosines, which are from -1 to 1, but the scores in" in said and f"go from 0 to {most}" in said) == is_told, said
    assert "learns cosines" not in trainrun(tmp_path, "r.yaml", "loss=CoSENTLoss", "output_dir=order")
    said = trainrun(tmp_path, "eval", "run1", "--report", status=1)
    assert "--report is for classifiers, models of several labels and regressions" in said


def test_a_language_model_is_sent_to_generate(tmp_path):
    write_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "t.txt").write_text("the soup was good the soup was bad\n" * 20)
    (tmp_path / "r.yaml").write_text(CHAT.replace(CHAT.splitlines()[3], "dataset: {train: {type: TextLM, path: t.txt, tokenizer: tokenizer.json, block_size: 8}}").replace("checkpoint: {every: null}\n", ""))
    trainrun(tmp_path, "r.yaml")
    assert "trainrun generate RUN" in trainrun(tmp_path, "predict", "run", "t.txt", status=1)
    trainrun(tmp_path, "generate", "run", "--prompt", "the", "--max-new-tokens", "2")
