"""Fixtures that several test modules share, and what parallel runs need."""

import os

import numpy as np
import pytest
from numba.core import caching

from skswsgp._compiled import threads
from skswsgp._estimators.base import BaseSWSGP
from skswsgp.baselines import NearestNeighborGPRegressor

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Put the longest tests first, so that other workers run beside them."""
    items.sort(key=lambda item: item.get_closest_marker("early") is None)


@pytest.fixture(scope="session", autouse=True)
def locked_cache(tmp_path_factory):
    """Let the workers of pytest-xdist use Numba's cache one after the other.

    Numba numbers the files of a function's signatures. Two processes that save other
    signatures at the same moment can take the same number.
    """
    if fcntl is None or "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    path = tmp_path_factory.getbasetemp().parent / "cache.lock"  # one for all workers

    def locked(method):
        def wrapper(*args):
            with open(path, "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                return method(*args)

        return wrapper

    file = caching.IndexDataCacheFile
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file, "save", locked(file.save))
        patch.setattr(file, "load", locked(file.load))
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def tune(monkeypatch):
    """Return a function that sets fields of the `Tuning` of all estimators."""

    def set_fields(**fields):
        for estimator in (BaseSWSGP, NearestNeighborGPRegressor):
            tuning = estimator._tuning._replace(**fields)
            monkeypatch.setattr(estimator, "_tuning", tuning)

    return set_fields


@pytest.fixture
def few_steps(tune):
    """Learn kernels in a few steps, where a test does not depend on their quality."""
    tune(learning_steps=10)


@pytest.fixture
def eager_threads(monkeypatch):
    """Start threads for a few rows already."""
    monkeypatch.setattr(threads, "ROWS_PER_THREAD", 1)
    monkeypatch.setattr(threads, "MICROSECONDS_PER_THREAD", 1)


@pytest.fixture(params=["float64", "float32"])
def dtype(request):
    return np.dtype(request.param)
