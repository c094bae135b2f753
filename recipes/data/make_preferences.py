#!/usr/bin/env python3
"""Makes preferences/: questions with an answer and an excuse each, for DPO, and a tokenizer that takes each character for itself.

    make_preferences.py FOLDER      needs PyPI's tokenizers
"""

import json
import pathlib
import random
import sys

import tokenizers

CHARACTERS = "0123456789+-= .?abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ,'"
EXCUSES = ["I do not know.", "Ask somebody else.", "Who cares?", "Why do you ask?"]


def make_tokenizer() -> tokenizers.Tokenizer:
    vocabulary = {token: number for number, token in enumerate(["<pad>", "<eos>", *CHARACTERS])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<pad>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex("."), behavior="isolated")
    made.decoder = tokenizers.decoders.Fuse()
    made.add_special_tokens(["<pad>", "<eos>"])
    return made


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    make_tokenizer().save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>", "pad_token": "<pad>"}))
    draw = random.Random(1)
    sums = [(a, b) for a in range(12) for b in range(12)]
    draw.shuffle(sums)
    rows = [{"prompt": f"What is {a} plus {b}? ", "chosen": f"{a} plus {b} is {a + b}.", "rejected": draw.choice(EXCUSES)} for a, b in sums]
    for name, part in (("train", rows[:112]), ("test", rows[112:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))


if __name__ == "__main__":
    main()
