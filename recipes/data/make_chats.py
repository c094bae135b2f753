#!/usr/bin/env python3
"""Makes chats/: conversations about which number comes before and after another one, and a tokenizer of words with a chat template.

    make_chats.py FOLDER      needs PyPI's tokenizers
"""

import json
import pathlib
import random
import sys

import tokenizers

SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
TENS = "twenty thirty forty fifty".split()
NUMBERS = SMALL + [ten + ("-" + one if one != "zero" else "") for ten in TENS for one in SMALL[:10]]
MARKS = ["<pad>", "<unk>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}
        {{- '\\n' }}
    {%- else %}
        {{- message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def conversation(draw: random.Random) -> list[dict]:
    """One to three questions, of which each but the first goes on from the answer before it."""
    messages = [{"role": "system", "content": "You count."}] if draw.random() < 0.3 else []
    number = draw.randrange(3, len(NUMBERS) - 3)
    for turn in range(draw.randint(1, 3)):
        word, step = draw.choice([("before", -1), ("after", 1)])
        asked = f"Which number comes {word} {NUMBERS[number]}?" if turn == 0 else f"And {word} that?"
        answer = f"{NUMBERS[number + step]} comes {word} {NUMBERS[number]}."
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
        number += step
    return messages


def make_tokenizer(chats: list[list[dict]]) -> tokenizers.Tokenizer:
    """Each word, space and sign is a token."""
    words = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"[\w-]+|[^\w-]"), behavior="isolated")
    texts = [message["role"] + "\n" + message["content"] for chat in chats for message in chat]
    known = sorted({piece for text in texts for piece, _ in words.pre_tokenize_str(text)})
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({token: i for i, token in enumerate([*MARKS, *known])}, unk_token="<unk>"))
    made.pre_tokenizer = words
    made.decoder = tokenizers.decoders.Fuse()
    made.add_special_tokens(MARKS)
    return made


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    draw = random.Random(1)
    chats = [conversation(draw) for _ in range(640)]
    make_tokenizer(chats).save(str(folder / "tokenizer.json"), pretty=False)
    config = {"eos_token": "<|im_end|>", "pad_token": "<pad>", "unk_token": "<unk>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    for name, part in (("train", chats[:512]), ("test", chats[512:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in part))


if __name__ == "__main__":
    main()
