"""libtrainrun_cuda.so: whole, opened where there is a GPU and nowhere else. All but the last of these run everywhere."""

import os
import pathlib
import re
import subprocess
import sysconfig

import pytest

from gpus import BINARY, BUILD, LIBRARY, ROOT, needs_gpu, needs_none, trainrun

RECIPE = "tests/recipes/digits_small.yaml"
SHORT = ["training={num_epochs: null, max_steps: 2}", "checkpoint.every=null", "evaluation.every=null", "--quiet"]
OF_CUDA = re.compile(r"libtrainrun_cuda|libtorch_cuda|libc10_cuda|libcuda\.|libcudnn|libcublas|libnccl")
NVIDIA = pathlib.Path(sysconfig.get_path("purelib")) / "nvidia"  # brought by the torch that tests compare with


def opened_by(folder, *arguments) -> list[str]:
    """The files that a run opens, by strace."""
    log = folder / "strace.log"
    done = subprocess.run(["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=openat,open", "-o", log, BINARY, RECIPE, f"output_dir={folder}/run", *SHORT,
                           *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return re.findall(r'open(?:at)?\([^"]*"([^"]+)"', log.read_text())


def test_it_opens_with_nvidias_libraries_and_asks_the_driver():
    if not (NVIDIA / "nccl/include/nccl.h").exists():
        pytest.skip(f"no NVIDIA packages in {NVIDIA}")
    assert LIBRARY.exists(), "the build found no headers, though they are there"
    tests = BUILD / "bin/trainrun_tests"
    if not tests.exists():
        pytest.skip(f"no {tests}: build all")
    folders = ":".join(str(folder) for folder in sorted(NVIDIA.glob("*/lib")))
    done = subprocess.run([tests, "--test-case=the CUDA library opens", "--no-skip"], cwd=ROOT, capture_output=True, text=True, check=False,
                          env=os.environ | {"LD_LIBRARY_PATH": folders, "TRAINRUN_CUDA_LIBRARY": str(LIBRARY)}, timeout=300)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize("file", ["bin/trainrun", "lib/libtrainrun_registry.so"])
def test_the_program_links_nothing_of_cuda(file):
    sections = subprocess.run(["readelf", "-d", BUILD / file], capture_output=True, text=True, check=True).stdout
    assert "libtorch_cpu.so" in sections or "libtrainrun_registry.so" in sections, "not what was meant"
    assert not OF_CUDA.search(sections)


@pytest.mark.parametrize("device", [pytest.param("auto", marks=needs_none), "cpu"])
def test_a_run_on_the_cpu_opens_nothing_of_cuda(tmp_path, device):
    files = opened_by(tmp_path, f"device={device}")
    assert any("libtorch_cpu.so" in file for file in files), "strace sees nothing"
    assert [file for file in files if OF_CUDA.search(file)] == []


@needs_none
@pytest.mark.parametrize("overrides, words", [
    (["device=cuda"], "device: cuda needs a GPU: there is no NVIDIA GPU (no /dev/nvidia0); device: cpu trains on the CPU"),
    (["device=cuda:1"], "device: cuda:1 needs a GPU: there is no NVIDIA GPU"),
    (["distributed_type=MULTI_GPU"], "distributed_type: MULTI_GPU needs GPUs: there is no NVIDIA GPU (no /dev/nvidia0); "
                                     "distributed_type: MULTI_CPU trains on the CPU"),
    (["distributed_type=MULTI_GPU", "num_processes=2"], "distributed_type: MULTI_GPU needs GPUs"),
])
def test_a_gpu_that_is_wanted_and_not_there_is_an_error_before_any_output(tmp_path, overrides, words):
    result = trainrun(RECIPE, f"output_dir={tmp_path}/run", *SHORT, *overrides)
    assert result.returncode == 1
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1, "said once, not by every process"
    assert not (tmp_path / "run").exists()


def test_gpus_that_are_hidden_are_not_used(tmp_path):
    result = trainrun(RECIPE, f"output_dir={tmp_path}/run", *SHORT, "device=cuda", CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 1
    assert "CUDA_VISIBLE_DEVICES hides every GPU" in result.stderr
    result = trainrun(RECIPE, f"output_dir={tmp_path}/run", *SHORT, CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0, result.stderr


@needs_gpu
def test_env_names_the_gpus_and_what_computes_on_them():
    result = trainrun("env")
    assert result.returncode == 0, result.stderr
    assert re.search(r"^CUDA +CUDA 13\.\d+, cuDNN 9\.\d+\.\d+, NCCL 2\.\d+\.\d+$", result.stdout, re.M)
    assert re.search(r"^cuda:0 +\S.*GiB, compute capability \d+\.\d+$", result.stdout, re.M)
