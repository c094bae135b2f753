"""`trainrun explain --fits`, `--within` and `--measure`: what they say of real jobs, their exit codes, and advice that works when it is followed."""

import json
import os
import pathlib
import subprocess

import pytest

from tests.program import BINARY, CALLED, peak_memory

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOES_NOT_FIT = 3
LARGE = ["recipes/digits_unet.yaml", "dataloader.batch_size=192", "training.max_steps=6"]


def explain(*arguments, code=0, program=CALLED):
    """`program`: BINARY where the memory is that of a process which has started for itself."""
    done = subprocess.run([program, "explain", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_the_peak_is_that_of_a_run_within_a_tenth_and_what_is_advised_for_less_memory_fits_when_it_is_followed(tmp_path):
    """Each call rehearses the job, so its answer is asked for once."""
    peak = peak_memory([BINARY, *LARGE, f"output_dir={tmp_path}/run", "--quiet"], cwd=ROOT)
    found = json.loads(explain(*LARGE, "--fits", f"{int(1.15 * peak)}B", "--json", program=BINARY))["demand"]
    whole = found["peak_bytes"]
    assert abs(whole / peak - 1) < 0.1 and found["seconds"] is None
    least = json.loads(explain(*LARGE, "dataloader.batch_size=1", "--fits", "1TB", "--json", program=BINARY))["demand"]["peak_bytes"]
    assert least < 0.95 * whole
    limit = f"{(whole + least) // 2}B"
    refused = json.loads(explain(*LARGE, "--fits", limit, "--json", code=DOES_NOT_FIT, program=BINARY))["demand"]["fits"]
    assert len(refused["advice"]) == 1, refused
    explain(*LARGE, *refused["advice"], "--fits", limit, program=BINARY)


def test_batches_that_are_too_small_for_a_batch_norm_are_left_out_and_told():
    layers = "model.layers=[Flatten, {type: Linear, out_features: 32}, BatchNorm1d, {type: Linear, out_features: 10}]"
    job = ["recipes/digits_mlp.yaml", layers, "dataloader={batch_size: 2, drop_last: true}", "--fits", "50MB"]
    found = json.loads(explain(*job, "--json", code=DOES_NOT_FIT))["demand"]
    [skipped] = found["skipped"]
    assert skipped["batch_size"] == 1 and "BatchNorm1d cannot normalize one value per channel in training" in skipped["why"]
    assert found["fits"]["advice"] == [] and found["batch_sizes"] == [2]
    said = " ".join(explain(*job, code=DOES_NOT_FIT).split())
    assert "batches of 1 were left out, since they cannot be trained: " in said and "cannot normalize one value" in said


def test_a_job_that_is_too_long_is_not_within_the_time_and_one_that_is_short_is_and_leaves_nothing_behind(tmp_path):
    long = ["recipes/digits_mlp.yaml", "training.num_epochs=1000000"]
    refused = json.loads(explain(*long, "--within", "30s", "--json", code=DOES_NOT_FIT))["demand"]["within"]
    assert refused["advice"], refused
    assert "yes: below 1 % of it" in explain("recipes/digits_mlp.yaml", "training.num_epochs=1", f"output_dir={tmp_path}/run", "--within", "100h")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_read_is_said():
    for option, value in (("--fits", "8 gigs"), ("--within", "soon")):
        done = subprocess.run([CALLED, "explain", LARGE[0], option, value], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2 and "expected a" in done.stderr and value in done.stderr
    failed = subprocess.run([CALLED, "explain", "recipes/regression_csv.yaml", "dataset.train.path=nowhere.csv", "--measure"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert failed.returncode in (1, 2) and "nowhere.csv" in failed.stderr


def test_an_evaluation_of_many_batches_holds_no_more_than_one_of_few(tmp_path):
    """On the heap, small tensors would settle in the holes of large ones, and it would grow with every batch. Those that count here are of 42 MiB: smaller ones than of
    32 MiB lie on the heap, where chance decides about 100 MB (docs/decisions.md)."""
    data = pathlib.Path(os.environ.get("TRAINRUN_DATA", "data")) / "mnist"
    if not data.is_dir():
        pytest.skip(f"there is no {data}")
    job = ["recipes/mnist_wide_cnn.yaml", "model.layers[0].out_channels=128", "model.layers[2].out_channels=64", "dataloader.batch_size=128", "dataloader.eval_batch_size=512",
           "training.max_steps=3", "training.num_epochs=null", "evaluation.every=3", "checkpoint.every=null", "checkpoint.keep_best=null"]

    def peak(batches, run):
        return peak_memory([BINARY, *job, f"dataset.eval.subset={512 * batches}", f"output_dir={tmp_path}/{run}", "--quiet"], cwd=ROOT)

    few, peaks = peak(2, "few"), []
    for run in range(4):  # beside other jobs, chance once made 361 and 423 MB of them: growth would be there each time
        peaks.append(peak(8, run))
        if peaks[-1] < 1.15 * few:
            return
    raise AssertionError(f"an evaluation of 2 batches holds {few} bytes, one of 8 {peaks}")
