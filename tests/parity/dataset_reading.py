"""How the tests of data sets read one by the probe, and what they have read."""

import numpy as np
import pytest

from probe import ProbeError

USED = []  # what the tests below say of data sets: every parameter must be among it


def read(probe, spec, learnt=None):
    """All samples of a data set, and the reply."""
    USED.append(spec)
    reply, results = probe.ask("dataset", spec=spec, learnt=learnt)
    return results.under("output"), reply


def error_of(probe, spec, learnt=None):
    with pytest.raises(ProbeError) as error:
        read(probe, spec, learnt)
    return str(error.value)


def save(folder, name, array):
    np.save(folder / name, array, allow_pickle=True)
    return str(folder / f"{name}.npy")
