"""The texts that tokenizers are compared on, and the probe's side of the comparison."""

import os
import pathlib
import random

import numpy as np
import pytest
import torch

# Blocks whose characters all of Unicode's versions in use know alike: one range a script, and what is between scripts.
BLOCKS = [(0x20, 0x7E)] * 6 + [
    (0xA1, 0xFF), (0x100, 0x17F), (0x250, 0x2AF), (0x300, 0x36F), (0x391, 0x3A1), (0x3B1, 0x3C9), (0x400, 0x45F), (0x531, 0x556),
    (0x5D0, 0x5EA), (0x621, 0x63A), (0x660, 0x669), (0x905, 0x939), (0x93E, 0x94D), (0x966, 0x96F), (0x995, 0x9A8), (0xE01, 0xE3A),
    (0xF40, 0xF47), (0x10D0, 0x10F0), (0x1100, 0x1112), (0x1161, 0x1175), (0x1E00, 0x1EFF), (0x1F00, 0x1F15), (0x2010, 0x2027),
    (0x2030, 0x205E), (0x2070, 0x2071), (0x20A0, 0x20B5), (0x20D0, 0x20DC), (0x2100, 0x214F), (0x2150, 0x2188), (0x2190, 0x21FF),
    (0x2460, 0x24FF), (0x2580, 0x259F), (0x2600, 0x26FF), (0x3001, 0x303F), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x3105, 0x312C),
    (0x4E00, 0x9FA5), (0x3400, 0x4DB5), (0xAC00, 0xD7A3), (0xE000, 0xE010), (0xF900, 0xFA2D), (0xFB00, 0xFB06), (0xFB13, 0xFB17),
    (0xFE20, 0xFE23), (0xFE30, 0xFE44), (0xFF01, 0xFF5E), (0xFF61, 0xFFDC), (0x10330, 0x1034A), (0x1D400, 0x1D454), (0x1F300, 0x1F320),
    (0x1F600, 0x1F640), (0x1F680, 0x1F6C5), (0x20000, 0x20020), (0x2F800, 0x2F810),
]  # fmt: skip
SPACES = " \t\n\r\v\f\u0085\u00a0\u1680\u2003\u2009\u2028\u2029\u202f\u3000  \r\n\n\n"
CONTROLS = "\x00\x01\x08\x1b\x1f\x7f\x80\x9f\u00ad\u200b\u200c\u200d\u200e\u2060\ufeff\ufffd\ufe0f\U000e0001"
SAMPLES = [
    "I'm you'll they've it's WE'RE don't 'tis 'S ' s", "3.14159 12345678 1 22 333 4444", "a\u0301e\u0301 \u00e9 \u1e9b\u0323 \u0130stanbul \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2",
    "\U0001F468\u200d\U0001F469\u200d\U0001F467 \U0001F1E9\U0001F1EA \U0001F44D\U0001F3FD", "\u4f60\u597d\uff0c\u4e16\u754c\uff01Hello\u4e16\u754c", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "   leading and trailing   ", "\n\nnew\n\nlines\r\n", "def f(x):\n    return x+1  # \u2581 mark", "[CLS] [MASK] <s> </s> <mask> <|endoftext|> <unk> [UNK]",
    "\u1100\u1161\u11a8 \uac01 \ufb01ne \u2460 \u2167 \u00bd \uff21\uff22\uff23", "http://example.org/?q=a%20b&c=d#e", "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd \u0645\u0631\u062d\u0628\u0627",
    "x" * 300, "word " * 50, "\u2581\u2581 under\u2581mark", "e" + "\u0301" * 8, "<0x41><0xE4>", "", " ", "\t", "\x00", "don't\u2019t 's's 'll'LL",
]  # fmt: skip


def mixed_lines(count: int = 2000) -> list[bytes]:
    """Lines of mixed scripts, emoji, spaces and control characters; in every fifth one, bytes that are not UTF-8."""
    draw = random.Random(7)
    lines = [text.encode() for text in SAMPLES]
    while len(lines) < count:
        text = ""
        for _ in range(draw.randint(1, 12)):
            low, high = draw.choice(BLOCKS)
            text += "".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 9)))
            kind = draw.random()
            text += draw.choice(SPACES) if kind < 0.5 else draw.choice(CONTROLS) if kind < 0.6 else draw.choice(SAMPLES) if kind < 0.65 else ""
        line = bytearray(text.encode())
        if len(lines) % 5 == 0:
            for _ in range(draw.randint(1, 4)):
                line.insert(draw.randrange(len(line) + 1), draw.choice([0x80, 0xBF, 0xC0, 0xC3, 0xE2, 0xED, 0xF0, 0xF4, 0xFF]))
        lines.append(bytes(line))
    return lines


def data_file(*parts: str) -> pathlib.Path:
    path = pathlib.Path(os.environ.get("TRAINRUN_DATA", "data")).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no data: there is no {'/'.join(parts)} in TRAINRUN_DATA")
    return path


def mrpc_pairs() -> list[tuple[str, str]]:
    pairs = []
    for name in ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt"):
        lines = data_file("mrpc", name).read_text("utf-8-sig").rstrip("\n").split("\n")[1:]
        pairs += [tuple(line.split("\t")[3:5]) for line in lines]
    assert len(pairs) == 5801
    return pairs


def shakespeare() -> str:
    [path] = sorted(data_file("tinyshakespeare").glob("*.txt"))
    return path.read_text()


def packed(texts: list) -> dict[str, torch.Tensor]:
    """The texts as the probe takes them: all bytes, and where each text ends."""
    pieces = [text.encode() if isinstance(text, str) else text for text in texts]
    content = np.frombuffer(b"".join(pieces), dtype=np.uint8).copy()
    return {"bytes": torch.from_numpy(content), "ends": torch.tensor(np.cumsum([len(p) for p in pieces]).tolist(), dtype=torch.int64)}


def cut(values: list, ends: list) -> list[list]:
    return [values[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


class Encoded:
    """What the probe made of texts."""

    def __init__(self, probe, path, first: list, second: list | None = None, **options):
        tensors = {f"first.{k}": v for k, v in packed(first).items()}
        if second is not None:
            tensors |= {f"second.{k}": v for k, v in packed(second).items()}
        self.reply, results = probe.ask("encode", tensors, path=str(path), **options)
        ends = results["ids.ends"].tolist()
        self.ids, self.types, self.special = (cut(results[f"ids.{name}"].tolist(), ends) for name in ("values", "types", "special"))


def decoded(probe, path, ids: list[list[int]], **options) -> list[str]:
    flat = torch.tensor([i for row in ids for i in row], dtype=torch.int64)
    ends = torch.tensor(np.cumsum([len(row) for row in ids]).tolist(), dtype=torch.int64)
    _, results = probe.ask("decode", {"ids.values": flat, "ids.ends": ends}, path=str(path), **options)
    return [bytes(piece).decode() for piece in cut(results["text.bytes"].tolist(), results["text.ends"].tolist())]
