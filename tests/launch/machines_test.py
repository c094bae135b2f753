"""Two machines without a launcher between them: two network namespaces, joined by a cable."""

import contextlib
import re
import subprocess
import sys

import launching
import pytest

ADDRESSES = ["10.77.0.1", "10.77.0.2"]
MACHINES = ["num_machines=2", "num_processes=2", f"main_process_ip={ADDRESSES[0]}", "main_process_port=29511"]


@pytest.fixture(scope="module")
def machines():
    """What to write before a command to have it run on either."""
    for program in ("ip", "unshare", "nsenter"):
        launching.need(program)
    with contextlib.ExitStack() as holders:
        pids = []
        for _ in ADDRESSES:
            holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE)  # a namespace lasts as long as a process in it
            holders.callback(holder.communicate)
            if not holder.stdout.readline():
                pytest.skip(f"no network namespaces here: {holder.stderr.read().decode().strip()}")
            pids.append(holder.pid)
        inside = [["nsenter", "--net", "--target", str(pid)] for pid in pids]
        made = launching.run(["ip", "link", "add", "cable", "netns", str(pids[0]), "type", "veth", "peer", "name", "cable", "netns", str(pids[1])])
        if made.returncode != 0:
            pytest.skip(f"no virtual network cable here: {made.stderr.strip()}")
        for enter, address in zip(inside, ADDRESSES):
            for words in (f"address add {address}/24 dev cable", "link set cable up", "link set lo up", "route add 192.0.2.0/24 dev cable"):
                subprocess.run([*enter, "ip", *words.split()], check=True)
        yield inside


def start(machines, machine, folder, *overrides):
    return launching.start([*machines[machine], *launching.command(folder, *overrides, *MACHINES, f"machine_rank={machine}")])


def test_two_machines_train_as_one(machines, tmp_path, own_losses):
    jobs = [start(machines, machine, tmp_path / "run", *launching.SHORT) for machine in range(2)]
    with launching.ending(*jobs):
        for job in jobs:
            output = job.communicate(timeout=60)
            assert job.returncode == 0, output
    launching.assert_trained_as(tmp_path / "run", own_losses)


def test_rank_0_may_know_itself_as_localhost(machines, tmp_path, own_losses):
    """As a name of this machine often is in /etc/hosts, or MASTER_ADDR in Kubernetes; other ranks cannot reach it there."""
    addresses = ["localhost", ADDRESSES[0]]
    jobs = [launching.start([*machines[rank], *launching.command(tmp_path / "run", *launching.SHORT)], env=launching.ENVIRONMENT | {
        "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": addresses[rank], "MASTER_PORT": "29511"}) for rank in range(2)]
    with launching.ending(*jobs):
        for job in jobs:
            output = job.communicate(timeout=60)
            assert job.returncode == 0, output
    launching.assert_trained_as(tmp_path / "run", own_losses)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_killed_on_one_machine_ends_those_on_the_other_which_name_it(machines, tmp_path, victim):
    jobs = [start(machines, machine, tmp_path / "run", *launching.LONG) for machine in range(2)]
    with launching.ending(*jobs):
        launching.wait_for(launching.has_trained(tmp_path / "run"), *jobs)
        ranks = launching.ranks_of(tmp_path / "run")
        assert sorted(ranks) == [0, 1]
        launching.kill(ranks[victim])
        output = [job.communicate(timeout=60) for job in jobs]
    assert all(job.returncode != 0 for job in jobs), output
    assert f"rank {victim} was killed by signal 9" in output[victim][1]
    assert re.search(rf"lost the others during step \d+, .*rank {victim} (was killed by signal 9|has not answered since step)", output[1 - victim][1])
    assert not any(launching.is_alive(pid) for pid in ranks.values())


def test_a_network_that_is_cut_ends_both_machines_which_name_the_other(machines, tmp_path):
    jobs = [start(machines, machine, tmp_path / "run", *launching.LONG, "distributed={timeout: 3}") for machine in range(2)]
    with launching.ending(*jobs):
        launching.wait_for(launching.has_trained(tmp_path / "run"), *jobs)
        ranks = launching.ranks_of(tmp_path / "run")
        subprocess.run([*machines[0], "ip", "link", "set", "cable", "down"], check=True)
        try:
            output = [job.communicate(timeout=8) for job in jobs]
        finally:
            subprocess.run([*machines[0], "ip", "link", "set", "cable", "up"], check=True)
            subprocess.run([*machines[0], "ip", "route", "replace", "192.0.2.0/24", "dev", "cable"], check=True)
    assert all(job.returncode == 1 for job in jobs), output
    assert re.search(r"rank 0 lost the others during step \d+, .*rank 1 has not answered since step \d+", output[0][1]), output
    assert re.search(r"rank 1 lost the others during step \d+, .*the launcher, which keeps the ranks' store, has not answered since step \d+|"
                     r"rank 1 lost the others during step \d+, .*rank 0 has not answered since step \d+", output[1][1]), output
    assert not any(launching.is_alive(pid) for pid in ranks.values())


@pytest.mark.parametrize("alone", [0, 1])
def test_a_machine_that_stays_alone_says_who_has_not_come(machines, tmp_path, alone):
    job = start(machines, alone, tmp_path / "run", *launching.SHORT, "distributed={timeout: 2}")
    with launching.ending(job):
        _, stderr = job.communicate(timeout=60)
    assert job.returncode == 1
    if alone == 0:
        assert "of 2 machines, machine 1 has not come within 2 s (distributed.meeting_timeout); start the same command there" in stderr
    else:
        assert f"nobody answers at {ADDRESSES[0]}:29511" in stderr


def test_two_machines_must_know_where_to_meet(tmp_path):
    for missing, said in ((2, "main_process_ip, the address of machine 0"), (3, "main_process_port, a port that is free on machine 0")):
        done = launching.run(launching.command(tmp_path / "run", *launching.SHORT, *MACHINES[:missing]))
        assert done.returncode == 2
        assert "num_machines: 2 machines need an address to connect to; write " + said in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_port_that_is_taken_is_an_error(machines, tmp_path):
    taken = "import socket; s = socket.create_server(('0.0.0.0', 29511)); print(flush=True); input()"
    other = launching.start([*machines[0], sys.executable, "-c", taken], stdin=subprocess.PIPE)
    with launching.ending(other):
        assert other.stdout.readline() == "\n"
        job = start(machines, 0, tmp_path / "run", *launching.SHORT)
        with launching.ending(job):
            _, stderr = job.communicate(timeout=60)
    assert job.returncode == 1
    assert "port 29511, at which the ranks meet, is taken on this machine" in stderr
