"""The cache of compiled code on disk, and what happens without one."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

import skswsgp
from skswsgp._compiled.threads import run_in_threads

# Compiles one small function, and says whether it came from the cache.
SCRIPT = """
import numpy as np
from skswsgp._compiled import jit
from skswsgp._compiled.linalg import log_determinant
print(log_determinant(np.full((8, 8), np.e), 3))
print(jit._CACHE, sum(log_determinant.stats.cache_hits.values()))
"""

# Fits and predicts, then prints how many functions were read from the cache, and
# compiled.
FITS = """
import gc
import numpy as np
from numba.core.dispatcher import Dispatcher
from skswsgp import SWSGPClassifier, SWSGPRegressor
X = np.random.default_rng(0).normal(size=(300, 3))
y = np.sin(X[:, 0])
SWSGPRegressor().fit(X, y).predict(X, return_std=True)
SWSGPClassifier().fit(X, y > 0).predict_proba(X)
adam = SWSGPRegressor(solver="adam", max_iter=2, optimize_inducing=True)
adam.fit(X, y).lower_bound(X, y)
found = [item for item in gc.get_objects() if isinstance(item, Dispatcher)]
stats = [item.stats for item in found if item.__module__.startswith("skswsgp")]
print(sum(sum(one.cache_hits.values()) for one in stats))
print(sum(sum(one.cache_misses.values()) for one in stats))
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
    (package / "skswsgp" / "_compiled" / "__pycache__").touch()
    blocked = str(file / "folder")
    variables = dict.fromkeys(["HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"], blocked)
    assert run(package, **variables) == (6.0, "False", 0)


def test_fits_of_a_second_process_compile_nothing():
    command = [sys.executable, "-c", FITS]
    counts = []
    for _ in range(2):
        result = subprocess.run(command, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        counts.append([int(count) for count in result.stdout.split()])
    assert counts[1][0] > 0
    assert counts[1][1] == 0


@pytest.mark.parametrize(("n", "n_threads"), [(0, 3), (1, 4), (7, 1), (7, 3), (8, 8)])
def test_share_takes_each_row_once(n, n_threads):
    parts = []
    run_in_threads(lambda *part: parts.append(part), n_threads, n, "argument")
    parts.sort(key=lambda part: part[2])
    assert [part[2] for part in parts] == list(range(max(1, min(n, n_threads))))
    rows = [row for first, last, *_ in parts for row in range(first, last)]
    assert rows == list(range(n))
    assert {part[3] for part in parts} == {"argument"}


@pytest.mark.parametrize("failing", [0, 2])
def test_share_waits_for_all_before_it_fails(failing):
    done = []

    def work(first, last, t):
        if t == failing:
            raise ZeroDivisionError
        time.sleep(0.1)
        done.append(t)

    with pytest.raises(ZeroDivisionError):
        run_in_threads(work, 3, 3)
    assert sorted(done) == [t for t in range(3) if t != failing]


def test_share_waits_for_all_before_it_is_interrupted(monkeypatch):
    done, signals, join = [], [KeyboardInterrupt, KeyboardInterrupt], Thread.join

    def work(first, last, t):
        time.sleep(0.2 * t)
        done.append(t)

    def interrupted(thread):
        if signals:
            raise signals.pop()
        join(thread)

    monkeypatch.setattr(Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_in_threads(work, 3, 3)
    assert sorted(done) == [0, 1, 2]


def test_share_in_a_thread_that_outlives_the_main_one():
    script = """
import time
from threading import Thread
from skswsgp._compiled.threads import run_in_threads
def work():
    time.sleep(0.5)
    run_in_threads(lambda first, last, t: print(t), 2, 2)
Thread(target=work).start()
"""
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True)
    assert sorted(result.stdout.split()) == ["0", "1"], result.stderr
