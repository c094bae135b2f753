"""A job whose model, loss, metric and data are a plugin's, in the matrix of jobs (tests/parity/jobs.py)."""

import pytest
import torch

from plugin_runs import put
from tests.parity.jobs import CELLS, Job, Refused, train

COUNTS = {"train": 12, "eval": 5, "other": 7, "new": 4}
RECIPE = """\
plugins: [libevery_kind.so]
model: {layers: [{type: Gain, name: scale, initial: 0.5}]}
loss: HalfSquaredError
metrics: [Bias]
dataset:
  train: {type: Line, num_samples: 12, slope: 0.3, intercept: 0.5}
  eval: {type: Line, num_samples: 5, slope: 0.3, intercept: 0.5}
  transforms: [{type: Shift, by: 1}]
"""


def points(folder, part, known):
    x = torch.arange(COUNTS[part]).double()[:, None]
    return {"x": x + 1, "target": 0.3 * x + 0.5}


JOB = Job(
    RECIPE, write=lambda folder, part: None, read=points, forward=lambda state, fields: state["scale.gain"] * fields["x"],
    loss=lambda output, fields: (output - fields["target"]).square().mean() / 2, figures=lambda output, fields: {"bias": (output - fields["target"]).mean()},
    other=["dataset.eval.num_samples=7"], report=Refused("a label is 0.5, which is not a class", "evaluating.md", "is taken to learn classes; targets that are none are an error"),
    new=Refused("Line data cannot be read without labels", "predicting.md", "Other kinds of data are predicted for as `dataset.eval`"),
    predicted=lambda output, folder: {"output[0]": output[:, 0].tolist()})


@pytest.fixture(name="run", scope="module")
def trained_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    put("libevery_kind.so", folder)
    return train(JOB, folder)


@pytest.mark.parametrize("cell", CELLS)
def test_a_plugins_job_is_right_or_refused(run, cell):
    CELLS[cell](run)
