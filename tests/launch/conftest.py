import pytest

import launching


@pytest.fixture(scope="session")
def own_losses(tmp_path_factory):
    """Of two ranks that our own launcher has started."""
    folder = tmp_path_factory.mktemp("own") / "run"
    done = launching.run(launching.command(folder, *launching.SHORT, "num_processes=2"))
    assert done.returncode == 0, done.stdout + done.stderr
    found = launching.losses(folder)
    assert len(found) == 30
    assert found[-1] < 0.9 * found[0]
    return found
