"""Fixtures that several test modules share, and what parallel runs need."""

import hashlib
import os
from contextlib import contextmanager

import numpy as np
import pytest
from groups import left_out
from numba.core import caching
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from threadpoolctl import threadpool_limits

from skswsgp._compiled import threads
from skswsgp._estimators.base import BaseSWSGP
from skswsgp._rows import statistics
from skswsgp.baselines.shared import Baseline
from skswsgp.cuda import device as gpu

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

# Ten steps of Adam, no evidence, and few rows to choose kernels by
SHORT_SEARCH = {
    "learning_steps": 10,
    "evidence_work": 0,
    "part_work": 1e6,
    "holdout_rows": 400,
}


def pytest_configure():
    """Let threads of OpenMP sleep while they wait, for workers of xdist share cores.

    The workers inherit it, and read it when they load OpenMP.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around the choice by markers
def pytest_collection_modifyitems(items):
    """Leave few cases of a matrix in the fast group, and put the longest tests first.

    Each of the longest stands at the start of one worker's share: with `--dist
    worksteal`, the shares of pytest-xdist are equal contiguous parts.
    """
    for item in left_out(items):
        item.add_marker(pytest.mark.full)
    yield
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    early = [item for item in items if item.get_closest_marker("early")]
    total = len(items)
    items[:] = [item for item in items if item not in early]
    for k in sorted(range(len(early)), key=lambda k: k % workers):
        items.insert(k % workers * total // workers + k // workers, early[k])


@pytest.fixture(scope="session", autouse=True)
def locked_cache(tmp_path_factory):
    """Let the workers of pytest-xdist share Numba's cache, and compile nothing twice.

    Numba numbers the files of a function's signatures. Two processes that save other
    signatures at the same moment can take the same number. And while one of them
    compiles a function, the other one waits, and loads it from the cache then.
    """
    if fcntl is None or "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    folder = tmp_path_factory.getbasetemp().parent  # one for all workers

    @contextmanager
    def lock(name):
        with open(folder / f"{name}.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def locked(method):
        def wrapper(*args):
            with lock("cache"):
                return method(*args)

        return wrapper

    def once(compile_function):
        def compile_once(dispatcher, signature):
            function = dispatcher.py_func
            if not str(function.__module__).startswith("skswsgp."):
                return compile_function(dispatcher, signature)
            text = f"{function.__module__}.{function.__qualname__} {signature}"
            with global_compiler_lock, lock(hashlib.sha1(text.encode()).hexdigest()):
                return compile_function(dispatcher, signature)

        return compile_once

    files, dispatchers = [caching.IndexDataCacheFile], [Dispatcher]
    if gpu.missing() is None:
        from numba.cuda.core.caching import IndexDataCacheFile
        from numba.cuda.dispatcher import CUDADispatcher

        files.append(IndexDataCacheFile)
        dispatchers.append(CUDADispatcher)
    with pytest.MonkeyPatch.context() as patch:
        for file in files:
            patch.setattr(file, "save", locked(file.save))
            patch.setattr(file, "load", locked(file.load))
        for dispatcher in dispatchers:
            patch.setattr(dispatcher, "compile", once(dispatcher.compile))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_thread_a_worker():
    """Leave the cores to the workers of pytest-xdist.

    Threads of BLAS, and those of scikit-learn's OpenMP, would wait for each other.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    with threadpool_limits(1):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def in_order(monkeypatch):
    """Let fits take rows in the order of the user, not in one of what they hold."""
    monkeypatch.setattr(statistics, "order_of_content", lambda *rows: slice(None))


@pytest.fixture
def tune(monkeypatch):
    """Return a function that sets fields of the `Tuning` of all estimators."""

    def set_fields(**fields):
        for estimator in (BaseSWSGP, Baseline):
            tuning = estimator._tuning._replace(**fields)
            monkeypatch.setattr(estimator, "_tuning", tuning)

    return set_fields


@pytest.fixture
def few_steps(tune):
    """Shorten all of a search for a kernel, where a test does not need its quality."""
    tune(**SHORT_SEARCH)


@pytest.fixture
def eager_threads(monkeypatch):
    """Start threads for a few rows already."""
    monkeypatch.setattr(threads, "ROWS_PER_THREAD", 1)
    monkeypatch.setattr(threads, "MICROSECONDS_PER_THREAD", 1)


@pytest.fixture(params=["float64", pytest.param("float32", marks=pytest.mark.full)])
def dtype(request):
    """Return a precision; fits compile the other one in the slow group."""
    return np.dtype(request.param)


@pytest.fixture
def small_fit():
    """Return settings of a small fit."""
    return {"n_inducing": 12, "n_neighbors": 4, "random_state": 0, "n_jobs": 1}
