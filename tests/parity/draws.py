"""The random numbers of transforms (registry/kinds/sample_draws.h), written again from the papers."""

import math

import scipy.special

MASK = (1 << 64) - 1


def splitmix64(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


class Stream:
    """SplitMix64 begun at `key`."""

    def __init__(self, key: int):
        self.state = key

    def bits(self) -> int:
        value = splitmix64(self.state)
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        return value

    def uniform(self, least: float = 0.0, most: float = 1.0) -> float:
        return least + (most - least) * ((self.bits() >> 11) * 2.0**-53)

    def integer(self, below: int) -> int:
        return self.bits() * below >> 64

    def normal(self) -> float:
        return float(scipy.special.ndtri(((self.bits() >> 11) + 0.5) * 2.0**-53))

    def log_gamma(self, shape: float) -> float:
        if shape < 1:
            boost = math.log(1 - self.uniform()) / shape
            return self.log_gamma(shape + 1) + boost
        d = shape - 1 / 3
        while True:
            x = self.normal()
            v = (1 + x / math.sqrt(9 * d)) ** 3
            if v > 0 and math.log(1 - self.uniform()) < x * x / 2 + d - d * v + d * math.log(v):
                return math.log(d * v)

    def beta(self, alpha: float) -> float:
        first, second = self.log_gamma(alpha), self.log_gamma(alpha)
        return float(scipy.special.expit(first - second))


class Draws:
    """A stream for each sample of a batch."""

    def __init__(self, seed: int, epoch: int = 0, transform: int = 0):
        self.key = splitmix64(splitmix64(splitmix64(seed) ^ epoch) ^ transform)

    def of(self, number: int) -> Stream:
        return Stream(splitmix64(self.key ^ number))
