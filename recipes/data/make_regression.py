"""Writes regression_train.csv and regression_eval.csv beside itself: `python3 recipes/data/make_regression.py`.

Friedman #1 (Friedman 1991, "Multivariate adaptive regression splines"): ten features uniform in [0, 1), of which five matter,
    y = 10 sin(pi x0 x1) + 20 (x2 - 0.5)^2 + 10 x3 + 5 x4 + e,  e normal with standard deviation 1,
so that no model's mean squared error on new rows is below 1, the noise's variance.
"""

import math
import pathlib
import random

NUM_FEATURES = 10


def rows(generator, count):
    for _ in range(count):
        x = [round(generator.random(), 6) for _ in range(NUM_FEATURES)]
        y = 10 * math.sin(math.pi * x[0] * x[1]) + 20 * (x[2] - 0.5) ** 2 + 10 * x[3] + 5 * x[4]
        yield [*x, round(y + generator.gauss(0, 1), 6)]


def write(name, generator, count):
    lines = [",".join([f"x{i}" for i in range(NUM_FEATURES)] + ["y"])]
    lines += [",".join(str(value) for value in row) for row in rows(generator, count)]
    (pathlib.Path(__file__).parent / name).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    source = random.Random(1991)
    write("regression_train.csv", source, 800)
    write("regression_eval.csv", source, 200)
