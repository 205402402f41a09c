"""The cache of compiled code on disk, and runs without one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from numba import types
from numba.core.registry import cpu_target

import skswsgp
from skswsgp._compiled import jit
from skswsgp._compiled.linalg import square_upper

# Compiles one function, and prints its value, whether a cache is used, and its hits.
SCRIPT = """
import numpy as np
from skswsgp._compiled.linalg import square_upper
P = np.eye(8)
A = np.zeros_like(P)
square_upper(P, A)
print(A.trace())
stats = square_upper.stats
print(stats.cache_path is not None, sum(stats.cache_hits.values()))
"""

# Takes from root, on Linux, the right to write where the modes of files forbid it.
AS_A_USER = """
import ctypes, os
if os.geteuid() == 0:
    version, none = (ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(version, none) == 0
"""

# Fits and predicts, then prints the numbers of functions read from the cache and of
# functions compiled.
FITS = """
import gc
import numpy as np
from numba.core.dispatcher import Dispatcher
from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.solvers import Adam
X = np.random.default_rng(0).normal(size=(60, 3))
y = np.sin(X[:, 0])
SWSGPRegressor().fit(X, y).predict(X, return_std=True)
SWSGPClassifier().fit(X, y > 0).predict_proba(X)
adam = SWSGPRegressor(solver=Adam(max_iter=2, optimize_inducing=True))
adam.fit(X, y).lower_bound(X, y)
found = [item for item in gc.get_objects() if isinstance(item, Dispatcher)]
stats = [item.stats for item in found if item.__module__.startswith("skswsgp")]
print(sum(sum(one.cache_hits.values()) for one in stats))
print(sum(sum(one.cache_misses.values()) for one in stats))
"""


PACKAGE = Path(skswsgp.__file__).parent


def copy_of(source, folder, *ignored):
    """Return a folder with a copy of the lowest layer, which is soon imported."""
    ignored = shutil.ignore_patterns(*ignored)
    parts = "skswsgp", "_compiled"
    shutil.copytree(source.joinpath(parts[1]), folder.joinpath(*parts), ignore=ignored)
    (folder / parts[0] / "__init__.py").touch()
    return folder


@pytest.fixture
def package(tmp_path):
    """Return a folder with a copy of the lowest layer and no cache."""
    return copy_of(PACKAGE, tmp_path, "__pycache__")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Return a folder as `package`, and what a process printed first."""
    folder = tmp_path_factory.mktemp("compiled")
    copy_of(PACKAGE, folder, "__pycache__")
    return folder, run(folder)


def run(package, script=SCRIPT, warns=False, **variables):
    """Return the three values that SCRIPT prints in a new process."""
    env = os.environ | {"PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("NUMBA_CACHE_DIR", "SKSWSGP_CACHE"):
        env.pop(name, None)
    command = [sys.executable, "-W", "default" if warns else "error", "-c", script]
    result = subprocess.run(
        command, env=env | variables, cwd=package, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("UserWarning: the cache of compiled functions") == warns
    value, cached, hits = result.stdout.split()
    return float(value), cached, int(hits)


def test_the_second_process_does_not_compile(compiled):
    package, first = compiled
    assert first == (8.0, "True", 0)
    assert run(package) == (8.0, "True", 1)


def test_the_cache_can_be_switched_off(package):
    assert run(package, SKSWSGP_CACHE="0") == (8.0, "False", 0)
    assert not list(package.rglob("*.nbi"))


FOLDERS = "HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"


def test_without_a_writable_folder_nothing_is_cached(package):
    file = package / "file"  # no folder can be made below a file, not even by root
    file.touch()
    (package / "skswsgp" / "_compiled" / "__pycache__").touch()
    variables = dict.fromkeys(FOLDERS, str(file / "folder"))
    assert run(package, **variables) == (8.0, "False", 0)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes of folders")
@pytest.mark.parametrize("named", [True, False])
def test_compiled_code_is_read_where_nothing_can_be_written(package, named):
    home = {name: str(package / "home") for name in FOLDERS[:2]}
    folder = {"NUMBA_CACHE_DIR": str(package / "cache")} if named else {}
    assert run(package, **home, **folder) == (8.0, "True", 0)
    for path in [package, *package.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    script = AS_A_USER + SCRIPT
    assert run(package, script, **home, **folder) == (8.0, "True", 1)
    other = script.replace("eye(8)", "eye(8, dtype=np.float32)")  # is not there yet
    assert run(package, other, warns=True, **home, **folder)[1:] == ("True", 0)


@pytest.mark.parametrize(("suffix", "size"), [("nbi", 0), ("nbc", 40)])
def test_damaged_files_of_the_cache_stop_nothing(compiled, suffix, size, tmp_path):
    package = copy_of(compiled[0] / "skswsgp", tmp_path)  # with its cache
    assert list(package.rglob(f"*.{suffix}"))
    for file in package.rglob(f"*.{suffix}"):
        file.write_bytes(file.read_bytes()[:size])
    assert run(package, warns=True) == (8.0, "True", 0)


def test_a_full_disk_stops_nothing(package):
    pytest.importorskip("resource")
    limit = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (100, 100))"
    assert run(package, limit + SCRIPT, warns=True) == (8.0, "True", 0)


@pytest.mark.slow
def test_fits_of_a_second_process_compile_nothing():
    command = [sys.executable, "-c", FITS]
    counts = []
    for _ in range(2):
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        counts.append([int(count) for count in result.stdout.split()])
    assert counts[1][0] > 0
    assert counts[1][1] == 0


def test_an_edit_of_any_file_is_another_key_of_the_cache(monkeypatch, tmp_path):
    """Callers by address must fit what they call, in files of their own."""
    cache = jit._Cache(square_upper.py_func)
    arguments = (
        (types.float64[:, ::1], types.int64),
        cpu_target.target_context.codegen(),
    )
    before = cache._index_key(*arguments)
    assert before == cache._index_key(*arguments)
    shutil.copytree(Path(skswsgp.__file__).parent, tmp_path / "skswsgp")
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "skswsgp/_compiled/jit.py"))
    jit.sources.cache_clear()
    try:
        assert cache._index_key(*arguments) == before  # a copy holds the same text
        with open(tmp_path / "skswsgp/_covariance/stationary.py", "a") as file:
            file.write("# another line\n")
        jit.sources.cache_clear()
        assert cache._index_key(*arguments) != before
    finally:
        jit.sources.cache_clear()
