"""Nothing is made on the CPU that must be on the GPU: the tables of tests/parity once more, on a GPU that LibTorch is made to believe in
(tests/parity/imagined_gpu.h). Runs everywhere; what needs kernels that only CUDA has is left to a real one."""

import os
import re
import subprocess
import sys

import pytest

from gpus import BUILD, ROOT

TABLES = {
    "layers": "float and not Conv and not LSTM and not GRU",
    "losses": "fp32 and not CTC",
    "metrics": "metric",
    "optimizers": "test_state_taken_back",
}


@pytest.mark.parametrize("table", TABLES)
def test_every_component_computes_on_one_device(table):
    if not (BUILD / "bin/trainrun_probe").exists():
        pytest.skip("no trainrun_probe: build all")
    done = subprocess.run([sys.executable, "-B", "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", "-k", TABLES[table],
                           f"tests/parity/{table}_parity_test.py"], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
                          env=os.environ | {"TRAINRUN_IMAGINED_GPU": "1", "TRAINRUN_BUILD_DIR": str(BUILD)})
    assert done.returncode == 0, "\n".join(line for line in done.stdout.splitlines() if "Error" in line or line.startswith("FAILED"))
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 40
