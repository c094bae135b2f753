"""Ranks started by srun, and what is no rank: a batch script, a shell in an allocation. On a cluster of this machine alone."""

import contextlib
import getpass
import secrets
import socket
import subprocess
import textwrap

import launching
import pytest

CONFIGURATION = textwrap.dedent("""
    ClusterName=trainrun
    SlurmctldHost={host}(127.0.0.1)
    SlurmctldPort={controller_port}
    SlurmdPort={node_port}
    SlurmUser={user}
    SlurmdUser={user}
    AuthType=auth/munge
    AuthInfo=socket={folder}/munge.socket
    CredType=cred/munge
    SlurmctldPidFile={folder}/slurmctld.pid
    SlurmdPidFile={folder}/slurmd.pid
    StateSaveLocation={folder}/state
    SlurmdSpoolDir={folder}/spool
    ProctrackType=proctrack/linuxproc
    TaskPlugin=task/none
    SelectType=select/cons_tres
    SelectTypeParameters=CR_Core
    AccountingStorageType=accounting_storage/none
    JobAcctGatherType=jobacct_gather/none
    MpiDefault=none
    SchedulerParameters=sched_interval=1
    LaunchParameters=use_interactive_step
    SlurmdParameters=config_overrides
    ReturnToService=2
    NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
    PartitionName=all Nodes={host} Default=YES State=UP
""")


@contextlib.contextmanager
def running(log, *arguments):
    """A daemon in the foreground."""
    with open(log, "w") as output:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   env=launching.ENVIRONMENT | {"SLURM_CONF": f"{log.parent}/slurm.conf"})
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The environment for commands of a cluster of one node."""
    try:
        socket.getaddrinfo(None, 6817, socket.AF_INET, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG | socket.AI_PASSIVE)  # as they do
    except socket.gaierror:
        pytest.skip("no network: Slurm's daemons do not listen where there is no address but the loopback's")
    programs = {name: launching.need(name) for name in ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "sinfo")}
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
    (folder / "munge.key").chmod(0o400)
    (folder / "slurm.conf").write_text(CONFIGURATION.format(
        host=socket.gethostname().split(".")[0], user=getpass.getuser(), folder=folder, controller_port=launching.free_port(),
        node_port=launching.free_port()))
    environment = launching.ENVIRONMENT | {"SLURM_CONF": str(folder / "slurm.conf")}
    munge = [f"--{name}={folder}/munge.{ending}" for name, ending in
             (("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "daemon.log"), ("seed-file", "seed"))]
    with contextlib.ExitStack() as daemons:
        munged = daemons.enter_context(running(folder / "munged.log", programs["munged"], "--foreground", "--force", *munge))
        launching.wait_for((folder / "munge.socket").exists, munged)
        started = [munged] + [daemons.enter_context(running(folder / f"{name}.log", programs[name], "-D")) for name in ("slurmctld", "slurmd")]

        def is_idle():
            return launching.run([programs["sinfo"], "--noheader", "--format=%T"], env=environment).stdout.strip() == "idle"

        try:
            launching.wait_for(is_idle, *started)
        except AssertionError:
            print(*(f"{log}:\n{log.read_text()}" for log in folder.glob("*.log")))
            raise
        yield environment


def test_srun_trains_as_our_own_launcher(slurm, tmp_path, own_losses):
    done = launching.run(["srun", "-n", "2", *launching.called(tmp_path / "run", *launching.SHORT)], env=slurm)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("effective batch 32") == 1
    launching.assert_trained_as(tmp_path / "run", own_losses)


def test_srun_in_a_batch_script_and_a_plain_command_there(slurm, tmp_path, own_losses):
    """The script has SLURM_PROCID, and SLURM_NTASKS of 2, but is no rank: num_processes starts two."""
    own = " ".join(f"'{part}'" for part in launching.called(tmp_path / "own", *launching.SHORT, "num_processes=2"))
    ranks = " ".join(f"'{part}'" for part in launching.called(tmp_path / "ranks", *launching.SHORT))
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\nset -e\ntrap 'echo $? > {tmp_path}/code.new; mv {tmp_path}/code.new {tmp_path}/code' EXIT\n"
                      f"cd {launching.ROOT}\necho rank ${{SLURM_PROCID}} of ${{SLURM_NTASKS}}\n{own}\nsrun {ranks}\n")
    queued = launching.run(["sbatch", "-n", "2", "-o", str(tmp_path / "out"), str(script)], env=slurm)
    assert queued.returncode == 0, queued.stderr
    launching.wait_for((tmp_path / "code").exists)
    launching.wait_for(lambda: not launching.run(["squeue", "--noheader"], env=slurm).stdout.strip())  # else its daemon outlives ours
    said = (tmp_path / "out").read_text()
    assert (tmp_path / "code").read_text() == "0\n", said
    assert "rank 0 of 2" in said
    launching.assert_trained_as(tmp_path / "own", own_losses)
    launching.assert_trained_as(tmp_path / "ranks", own_losses)


@pytest.mark.parametrize("interactive", [False, True])
def test_a_shell_in_an_allocation_is_no_rank(slurm, tmp_path, own_losses, interactive):
    """salloc runs a command beside the allocation, and a shell in a step of its own with SLURM_PROCID and SLURM_STEP_ID."""
    own = launching.called(tmp_path / "run", *launching.SHORT, "num_processes=2")
    if interactive:
        line = "echo step ${SLURM_STEP_ID:-none}; " + " ".join(f"'{part}'" for part in own)
        done = launching.run(["salloc", "-n", "2"], env=slurm | {"SHELL": "/bin/sh"}, input=line + "\n")
        assert "step 4294967290" in done.stdout, done.stdout + done.stderr
    else:
        done = launching.run(["salloc", "-n", "2", *own], env=slurm)
    assert done.returncode == 0, done.stdout + done.stderr
    launching.assert_trained_as(tmp_path / "run", own_losses)


def test_a_killed_rank_of_srun_is_named(slurm, tmp_path):
    job = launching.start(["srun", "-n", "2", *launching.command(tmp_path / "run", *launching.LONG, "distributed={timeout: 20}")], env=slurm)
    with launching.ending(job):
        launching.wait_for(launching.has_trained(tmp_path / "run"), job)
        launching.kill(launching.ranks_of(tmp_path / "run", "SLURM_PROCID")[1])
        _, stderr = job.communicate(timeout=60)
    assert job.returncode != 0
    assert "rank 1 has not answered since step" in stderr
