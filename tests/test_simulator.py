"""The CUDA tests in processes of their own, in which numba-cuda simulates a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulator import MISSING, needs_package

TESTS = Path(__file__).parent / "cuda"
FILES = {path.name for path in TESTS.glob("test_*.py")}
# Two groups that take about as long as each other, for two processes
FIRST = {
    "test_cuda_products.py",
    "test_cuda_batches.py",
    "test_cuda_kernels.py",
    "test_cuda_row_matrix.py",
    "test_cuda_scan.py",
}
GROUPS = {"kernels": FIRST, "others": FILES - FIRST}


@needs_package
@pytest.mark.skipif(MISSING is None, reason="the GPU or the simulator runs these files")
@pytest.mark.slow  # pure Python in place of compiled loops takes minutes
@pytest.mark.early
@pytest.mark.parametrize("group", GROUPS)
def test_kernels_in_the_simulator(group):
    env = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [*command, *(str(TESTS / name) for name in sorted(GROUPS[group]))],
        env=env,
        cwd=TESTS.parents[1],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]
