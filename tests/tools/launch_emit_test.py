"""`trainrun launch --emit`: job files whose syntax is checked, and commands that are run where their launcher is here."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import yaml

from tests.program import BINARY, CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECIPE = "tests/recipes/digits_small.yaml"
FOUR = ["distributed_type=MULTI_CPU", "num_processes=4"]
EIGHT = ["distributed_type=MULTI_GPU", "num_processes=8", "num_machines=2"]
ODD = "name=it's \"$HOME\" `id`#and more"


def launch(*arguments):
    return subprocess.run([CALLED, "launch", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60,
                          check=False)


def emit(launcher, *overrides, options=()):
    result = launch("--emit", launcher, *options, RECIPE, *overrides)
    assert result.returncode == 0, result.stderr
    return result.stdout


def check_syntax(script):
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=60)


def words_of(line):
    """The words of a command as bash sees them."""
    made = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True, timeout=60)
    return made.stdout.split("\0")[:-1]


def command_of(script):
    return [line for line in script.splitlines() if line and not line.startswith("#")][-1]


# --- slurm ---

def directives(script):
    return dict(line.removeprefix("#SBATCH --").split("=", 1) if "=" in line else (line.removeprefix("#SBATCH --"), None)
                for line in script.splitlines() if line.startswith("#SBATCH "))


def test_an_sbatch_script_spreads_the_processes_over_machines():
    script = emit("slurm", *EIGHT, options=["--partition", "gpu", "--time", "4:00:00"])
    check_syntax(script)
    found = directives(script)
    assert script.startswith("#!/bin/bash\n")
    assert found["job-name"] == "digits_small"
    assert (found["nodes"], found["ntasks"], found["ntasks-per-node"], found["gpus-per-node"]) == ("2", "8", "4", "4")
    assert (found["partition"], found["time"], found["signal"]) == ("gpu", "4:00:00", "TERM@120")
    assert "The run goes to runs/digits_small" in script
    srun = next(line for line in script.splitlines() if line.startswith("srun "))
    assert f"{BINARY} run {RECIPE} {' '.join(EIGHT)} ||" in srun
    first_command = next(i for i, line in enumerate(script.splitlines()) if line and not line.startswith("#"))
    assert not any(line.startswith("#SBATCH") for line in script.splitlines()[first_command:])  # sbatch reads no further


def test_an_sbatch_script_has_placeholders_that_say_so():
    script = emit("slurm", *FOUR)
    assert "a placeholder.\n#SBATCH --time=24:00:00" in script
    assert "gpus" not in script
    assert "partition" not in directives(script)
    assert "take one # away.\n##SBATCH --gpus-per-node=4" in emit("slurm", "distributed_type=FSDP", "num_processes=4")


def test_an_sbatch_script_runs_its_command_with_every_rank_and_queues_again_after_143(tmp_path):
    """With stand-ins for Slurm's commands: what the script itself does."""
    for name, body in {
            "scontrol": f'if [ "$1" = show ]; then echo node7; echo node8; else echo "$@" >> {tmp_path}/requeued; fi',
            "srun": f'echo "$MASTER_ADDR $MASTER_PORT $OMP_NUM_THREADS $@" > {tmp_path}/srun; exit 143'}.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "node[7-8]",
                   "SLURM_CPUS_PER_TASK": "3"}
    result = subprocess.run(["bash"], input=emit("slurm", *EIGHT), text=True, env=environment, capture_output=True, timeout=60, check=False)
    assert result.returncode == 143, result.stderr
    assert (tmp_path / "srun").read_text().startswith("node7 10012 3 --kill-on-bad-exit=0 --cpus-per-task=3 ")
    assert (tmp_path / "requeued").read_text() == "requeue 12\n"


# --- kubernetes ---

def test_a_manifest_has_a_pod_for_each_process():
    text = emit("kubernetes", *EIGHT, "name=Two Machines_", options=["--image", "registry.example/trainrun:1"])
    job = yaml.safe_load(text)
    assert (job["apiVersion"], job["kind"], job["metadata"]["name"]) == ("kubeflow.org/v1", "PyTorchJob", "two-machines")
    assert job["spec"]["nprocPerNode"] == "1"
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert (replicas["Master"]["replicas"], replicas["Worker"]["replicas"]) == (1, 7)
    for part in replicas.values():
        assert part["restartPolicy"] == "OnFailure"
        (container,) = part["template"]["spec"]["containers"]
        assert container["name"] == "pytorch"
        assert container["image"] == "registry.example/trainrun:1"
        assert container["command"] == ["trainrun"]
        assert container["args"] == ["run", RECIPE, *EIGHT, "name=Two Machines_"]
        assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}
        assert container["volumeMounts"][0]["name"] == part["template"]["spec"]["volumes"][0]["name"]
    assert "the run goes to 'runs/Two Machines_'" in text


def test_one_process_needs_no_workers():
    job = yaml.safe_load(emit("kubernetes", options=["--image", "trainrun"]))
    assert list(job["spec"]["pytorchReplicaSpecs"]) == ["Master"]


# --- mpirun and torchrun ---

def test_mpirun_has_a_host_for_each_machine():
    line = command_of(emit("mpirun", *EIGHT))
    assert words_of(line)[:5] == ["mpirun", "-np", "8", "-host", "HOST0:4,HOST1:4"]
    assert "-x MASTER_ADDR=HOST0 -x MASTER_PORT=29500" in line
    line = command_of(emit("mpirun", *EIGHT, "main_process_ip=10.0.0.1", "main_process_port=4000"))
    assert "-x MASTER_ADDR=10.0.0.1 -x MASTER_PORT=4000" in line


def test_torchrun_stands_alone_on_one_machine_and_meets_on_several():
    assert command_of(emit("torchrun", *FOUR)).startswith("torchrun --no-python --standalone --nproc-per-node=4 --max-restarts=3 ")
    line = command_of(emit("torchrun", *EIGHT))
    assert "--nnodes=2 --nproc-per-node=4 --rdzv-backend=c10d --rdzv-id=digits_small --rdzv-endpoint=HOST0:29500" in line


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_the_printed_command_trains(tmp_path, launcher):
    folder = tmp_path / "run"
    line = command_of(emit(launcher, "distributed_type=MULTI_CPU", "num_processes=2", f"output_dir={folder}", "training={num_epochs: null, max_steps: 3}",
                           "logging.every_steps=1", "main_process_ip=10.0.0.1", "main_process_port=4000"))
    tools = {"torchrun": pathlib.Path(sys.executable).parent / "torchrun", "mpirun": shutil.which("mpirun")}
    if not tools[launcher] or not os.path.exists(tools[launcher]):
        pytest.skip(f"{launcher} is not installed")
    environment = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    lines = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in lines if entry["split"] == "train"] == [1, 2, 3]


# --- all ---

@pytest.mark.parametrize("launcher, options", [("slurm", []), ("mpirun", []), ("torchrun", [])])
def test_arguments_reach_the_program_whatever_they_hold(launcher, options):
    script = emit(launcher, *FOUR, ODD, options=options)
    check_syntax(script)
    line = next(line for line in script.splitlines() if line.startswith(("srun ", "mpirun ", "torchrun ")))
    words = words_of(line.removesuffix(" || status=$?").replace('"$SLURM_CPUS_PER_TASK"', "1"))
    assert words[words.index("run"):] == ["run", RECIPE, *FOUR, ODD]


def test_a_manifest_keeps_odd_arguments():
    job = yaml.safe_load(emit("kubernetes", *FOUR, ODD, options=["--image", "trainrun"]))
    assert job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["args"] == ["run", RECIPE, *FOUR, ODD]


def test_an_accelerate_file_is_among_the_arguments():
    script = emit("torchrun", options=["--accelerate-config", "tests/accelerate/multi_cpu.yaml"])
    assert "--nproc-per-node=2" in script
    assert f"run --accelerate-config tests/accelerate/multi_cpu.yaml {RECIPE}" in script


@pytest.mark.parametrize("arguments, complaint", [
    (["--emit", "slurm", RECIPE, "num_processes=2"], "num_processes: several processes need a distributed_type"),
    (["--emit", "slurm", "recipes/no_such.yaml"], "no_such.yaml"),
    (["--emit", "slurmm", RECIPE], "--emit"),
    ([RECIPE], "--emit is required"),
    (["--emit", "kubernetes", RECIPE], "--emit kubernetes needs --image"),
    (["--emit", "slurm", "--image", "trainrun", RECIPE], "--image is for --emit kubernetes"),
    (["--emit", "torchrun", "--time", "1:00:00", RECIPE], "--time is for --emit slurm"),
    (["--emit", "slurm", "--partition", "a\nb", RECIPE], "is not a single word"),
])
def test_a_wrong_recipe_or_option_exits_2_and_prints_no_file(arguments, complaint):
    result = launch(*arguments)
    assert result.returncode == 2
    assert complaint in result.stderr
    assert result.stdout == ""
