"""Writes morse.npz beside itself: `.deps/python/bin/python recipes/data/make_morse.py`.

Words of 2 to 4 letters keyed in Morse code by an unsteady hand, then noise: `signal` [N, 112] bytes, 0 silence to 255 tone; `letters` [N, 4],
1 for A to 26 for Z, 0 after the word's end; `length` [N], how many letters.
"""

import pathlib

import numpy as np

CODE = ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- -..- -.-- --..".split()
LENGTH = 112  # time steps; the longest word, of four letters, fits


def key(word, random):
    """The tone, 0 or 1, over time: a dot lasts 1 or 2 steps, a dash 4 or 5; pauses are 1 or 2 within a letter, 4 or 5 between letters."""
    tone = [0] * random.integers(0, 4)
    for letter in word:
        for mark in CODE[letter - 1]:
            tone += [1] * ((1 if mark == "." else 4) + random.integers(0, 2)) + [0] * random.integers(1, 3)
        tone += [0] * random.integers(3, 5)
    return tone


def make(count, seed):
    random = np.random.default_rng(seed)
    signal = np.zeros((count, LENGTH))
    letters = np.zeros((count, 4), np.int64)
    length = random.integers(2, 5, count)
    for i in range(count):
        letters[i, :length[i]] = random.integers(1, 27, length[i])
        tone = key(letters[i, :length[i]], random)
        assert len(tone) <= LENGTH
        signal[i, :len(tone)] = tone
    noisy = 40 + 175 * signal + random.normal(0, 30, signal.shape)
    levels = np.clip(np.round(noisy / 17) * 17, 0, 255)  # sixteen levels: the file stays small
    return {"signal": levels.astype(np.uint8), "letters": letters, "length": length}


if __name__ == "__main__":
    np.savez_compressed(pathlib.Path(__file__).parent / "morse.npz", **make(2400, 1837))
