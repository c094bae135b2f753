"""Ranks started by mpirun; Open MPI's is run, MPICH's variables are set by hand."""

import re
import socket

import launching

MPIRUN = ["--oversubscribe", "-n", "2"]
ENVIRONMENT = launching.ENVIRONMENT | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def test_mpirun_trains_as_our_own_launcher(tmp_path, own_losses):
    mpirun = launching.need("mpirun")
    done = launching.run([mpirun, *MPIRUN, *launching.command(tmp_path / "run", *launching.SHORT)], env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("effective batch 32") == 1
    launching.assert_trained_as(tmp_path / "run", own_losses)


def test_a_killed_rank_of_mpirun_ends_the_job(tmp_path):
    mpirun = launching.need("mpirun")
    job = launching.start([mpirun, *MPIRUN, *launching.command(tmp_path / "run", *launching.LONG)], env=ENVIRONMENT)
    with launching.ending(job):
        launching.wait_for(launching.has_trained(tmp_path / "run"), job)
        ranks = launching.ranks_of(tmp_path / "run", "OMPI_COMM_WORLD_RANK")
        assert sorted(ranks) == [0, 1]
        launching.kill(ranks[1])
        _, stderr = job.communicate(timeout=60)
    assert job.returncode != 0
    assert re.search(r"signal 9|lost the others", stderr), stderr
    launching.wait_for(lambda: not any(launching.is_alive(pid) for pid in ranks.values()), seconds=10)  # mpirun does not wait


def test_a_taken_port_is_an_error_that_says_how_to_choose_another(tmp_path):
    mpirun = launching.need("mpirun")
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = str(other.getsockname()[1])
        done = launching.run([mpirun, *MPIRUN, *launching.command(tmp_path / "run", *launching.SHORT)],
                             env=ENVIRONMENT | {"MASTER_PORT": port})
    assert done.returncode != 0
    assert f"port {port}, at which the ranks meet, is taken on this machine; choose a free one by main_process_port" in done.stderr


def test_ranks_with_the_variables_of_mpich_meet_at_a_port_of_their_own(tmp_path, own_losses):
    """As mpiexec.hydra sets them, which names no job; they have a parent in common."""
    def start(rank):
        environment = launching.ENVIRONMENT | {"PMI_RANK": str(rank), "PMI_SIZE": "2", "MPI_LOCALRANKID": str(rank), "MPI_LOCALNRANKS": "2"}
        arguments = launching.command(tmp_path / "run", *launching.SHORT)
        return launching.start(["sh", "-c", '"$@"; exit $?', "sh", *arguments], env=environment)  # a shell in between

    ranks = [start(rank) for rank in range(2)]
    with launching.ending(*ranks):
        for rank in ranks:
            output = rank.communicate(timeout=60)
            assert rank.returncode == 0, output
    launching.assert_trained_as(tmp_path / "run", own_losses)
