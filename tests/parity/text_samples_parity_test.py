"""The callback TextSamples: the texts are those of `trainrun generate`, and the training does not notice it."""

import json
import subprocess

import pytest

import reference
from generating import characters_recipe, trainrun

from tests.program import CALLED

CALLBACK = """
callbacks: [{type: TextSamples, prompts: [ab, "the "], max_new_tokens: 30, temperature: 0.8, num_samples: 2}]
"""
RANKS = {"alone": [], "DDP": ["distributed_type=MULTI_CPU", "num_processes=2"],
         "FSDP": ["distributed_type=FSDP", "num_processes=2", "sharding.strategy=FULL_SHARD"]}


def figures(lines):
    timed = ("time", "seconds", "per_second")
    return [{name: value for name, value in line.items() if not any(word in name for word in timed)} for line in lines]


@pytest.mark.parametrize("ranks", RANKS)
def test_training_is_the_same_with_and_without(tmp_path, ranks):
    recipe = characters_recipe(tmp_path, CALLBACK)
    dropout = ["model.layers[1].dropout=0.2"]  # random numbers go on as if nothing had been drawn
    with_texts, run = reference.run_trainrun(recipe, tmp_path / "with", *RANKS[ranks], *dropout)
    without, _ = reference.run_trainrun(recipe, tmp_path / "without", *RANKS[ranks], *dropout, "callbacks=[]")
    assert figures(with_texts) == figures(without)
    weights = [tmp_path / name / "checkpoints/latest/model.safetensors" for name in ("with", "without")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert sorted(path.name for path in (run / "samples").iterdir()) == [f"step-{step:08}.txt" for step in (4, 8, 12)]

    expected = []
    for number, prompt in enumerate(("ab", "the ")):
        trainrun("generate", run, "--prompt", prompt, "--max-new-tokens", 30, "--temperature", 0.8, "--num-samples", 2, "--seed", 4,
                 "--output", tmp_path / "out.jsonl")
        for line in map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines()):
            expected.append(f"--- prompt {number + 1}, sample {line['sample'] + 1}\n{prompt}{line['text']}\n")
    assert (run / "samples" / "step-00000012.txt").read_text() == "".join(expected)
    assert len(set(expected)) == 4


def test_texts_are_of_the_averaged_weights_where_evaluations_are(tmp_path):
    recipe = characters_recipe(tmp_path, CALLBACK.replace("[{", "[{type: EMA, decay: 0.5}, {"))
    _, run = reference.run_trainrun(recipe, tmp_path / "run")
    trainrun("generate", run, "--prompt", "ab", "--max-new-tokens", 30, "--temperature", 0.8, "--seed", 4, "--output", tmp_path / "out.jsonl")
    text = json.loads((tmp_path / "out.jsonl").read_text())["text"]
    assert (run / "samples" / "step-00000012.txt").read_text().startswith(f"--- prompt 1, sample 1\nab{text}\n")


def test_the_console_shows_them(tmp_path):
    recipe = characters_recipe(tmp_path, CALLBACK)
    done = subprocess.run([CALLED, recipe, f"output_dir={tmp_path}/run"], capture_output=True, text=True, check=True)
    assert "sample after step 4: ab" in done.stdout + done.stderr
    assert "sample after step 12: the " in (tmp_path / "run" / "log.txt").read_text()


@pytest.mark.parametrize(("old", "new", "expected"), [
    ("[ab, ", "[aB, ", "prompts[0]: the character 'B' (U+0042) does not occur in the training text"),
    ("[ab, ", '["", ', "a prompt is empty"),
    ("prompts: [ab, \"the \"]", "prompts: []", "expected at least one prompt"),
    ("evaluation: {every: 4}", "evaluation: {every: null}", "the run makes none"),
    ("temperature: 0.8", "temperature: -1", "temperature"),
])
def test_what_is_wrong_is_said_before_the_training(tmp_path, old, new, expected):
    recipe = characters_recipe(tmp_path, CALLBACK)
    text = (tmp_path / "recipe.yaml").read_text()
    assert old in text
    (tmp_path / "recipe.yaml").write_text(text.replace(old, new))
    done = subprocess.run([CALLED, recipe, f"output_dir={tmp_path}/run"], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and expected in done.stderr, done.stderr
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_model_that_writes_no_texts_is_refused(tmp_path):
    (tmp_path / "recipe.yaml").write_text("""
version: 1
name: digits
model: {layers: [Flatten, {type: Linear, out_features: 10}]}
loss: CrossEntropyLoss
dataset: {train: {type: Digits, split: train}, eval: {type: Digits, split: test}}
optimizer: AdamW
training: {max_steps: 1}
callbacks: [{type: TextSamples, prompts: [ab]}]
""")
    done = subprocess.run([CALLED, str(tmp_path / "recipe.yaml"), f"output_dir={tmp_path}/run"], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "the model is not a language model: it gives [N, 10]" in done.stderr
