"""The variables of Kubernetes' PyTorchJob, without Kubernetes: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and nothing else."""

import socket
import subprocess

import launching
import pytest


def variables(rank: int, address: str, port: int) -> dict[str, str]:
    return launching.ENVIRONMENT | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": str(port)}


def assert_trained(folder, pods, expected):
    with launching.ending(*pods):
        for pod in pods:
            output = pod.communicate(timeout=60)
            assert pod.returncode == 0, output
    launching.assert_trained_as(folder, expected)


def test_two_processes_with_these_variables_train_together(tmp_path, own_losses):
    port = launching.free_port()
    pods = [launching.start(launching.command(tmp_path / "run", *launching.SHORT), env=variables(rank, "127.0.0.1", port)) for rank in (1, 0)]
    assert_trained(tmp_path / "run", pods, own_losses)


def test_the_name_of_rank_0_may_not_be_known_at_first(tmp_path, own_losses):
    """As long as its pod has not started. Each process has an /etc/hosts of its own here."""
    launching.need("strace")
    port, names, trace = launching.free_port(), tmp_path / "hosts", tmp_path / "trace"
    names.write_text("127.0.0.1 localhost\n")
    bind = 'mount --bind "$0" /etc/hosts && exec "$@"'
    if launching.run(["unshare", "--mount", "sh", "-c", bind, str(names), "true"]).returncode != 0:
        pytest.skip("no mount namespaces here")

    def pod(rank, *before):
        arguments = launching.command(tmp_path / "run", *launching.SHORT)
        return launching.start(["unshare", "--mount", "sh", "-c", bind, str(names), *before, *arguments], env=variables(rank, "job-master-0", port))

    waiting = pod(1, "strace", "-f", "-qq", "-o", str(trace), "-e", "trace=openat", "-P", "/etc/hosts")
    with launching.ending(waiting):
        launching.wait_for(lambda: trace.exists() and trace.read_text().count("/etc/hosts") > 2, waiting)  # it has asked again
        names.write_text("127.0.0.1 localhost job-master-0\n")
        assert_trained(tmp_path / "run", [waiting, pod(0)], own_losses)


def test_a_rank_without_the_others_says_who_has_not_come(tmp_path):
    arguments = launching.command(tmp_path / "run", *launching.SHORT, "distributed={timeout: 2}")

    def end_of(rank, port):
        done = subprocess.run(arguments, env=variables(rank, "127.0.0.1", port), cwd=launching.ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1
        return done.stderr

    port = launching.free_port()
    assert f"rank 0 has waited at 127.0.0.1:{port} until the timeout (distributed.meeting_timeout): rank 1 has not come" in end_of(0, port)
    with socket.socket() as held:  # it does not listen, and nobody else can meanwhile
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        assert f"nobody answers at 127.0.0.1:{port}, where the ranks meet" in end_of(1, port)
