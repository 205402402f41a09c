"""The cache of compiled code on disk, and what happens without one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import skswsgp

# Compiles one small function, and says whether it came from the cache.
SCRIPT = """
import numpy as np
from skswsgp import _jit
from skswsgp._linalg import log_determinant
print(log_determinant(np.full((8, 8), np.e), 3))
print(_jit._CACHE, sum(log_determinant.stats.cache_hits.values()))
"""


@pytest.fixture
def package(tmp_path):
    """Return a folder with a copy of the package that has no cache yet."""
    source = Path(skswsgp.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, tmp_path / "skswsgp", ignore=ignored)
    return tmp_path


def run(package, **variables):
    """Return (log determinant, whether functions are cached, hits) of a new process."""
    env = os.environ | {"PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("NUMBA_CACHE_DIR", "SKSWSGP_CACHE"):
        env.pop(name, None)
    command = [sys.executable, "-W", "error", "-c", SCRIPT]
    result = subprocess.run(
        command, env=env | variables, cwd=package, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    value, cached, hits = result.stdout.split()
    return float(value), cached, int(hits)


def test_the_second_process_does_not_compile(package):
    assert run(package) == (6.0, "True", 0)
    assert run(package) == (6.0, "True", 1)


def test_the_cache_can_be_switched_off(package):
    assert run(package, SKSWSGP_CACHE="0") == (6.0, "False", 0)
    assert not list(package.rglob("*.nbi"))


def test_without_a_writable_folder_nothing_is_cached(package):
    file = package / "file"  # no folder can be made below a file, not even by root
    file.touch()
    (package / "skswsgp" / "__pycache__").touch()
    blocked = str(file / "folder")
    variables = dict.fromkeys(["HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"], blocked)
    assert run(package, **variables) == (6.0, "False", 0)
