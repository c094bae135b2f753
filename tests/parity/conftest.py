import os
import pathlib

import pytest

import probe as probe_module


@pytest.fixture(scope="session")
def probe(tmp_path_factory):
    """A running trainrun_probe, for the whole session."""
    running = probe_module.Probe(tmp_path_factory.mktemp("probe"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def mnist_folder():
    """The folder of MNIST's real files; the test is skipped where they are not at hand."""
    folder = pathlib.Path(os.environ.get("TRAINRUN_DATA", "data")) / "mnist"
    if not folder.is_dir():
        pytest.skip("no data: there is no mnist in TRAINRUN_DATA")
    return folder
