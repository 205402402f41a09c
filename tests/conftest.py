"""Fixtures that several test modules share."""

import numpy as np
import pytest

from skswsgp._compiled import threads
from skswsgp._initialization import kernel_learning


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def few_steps(monkeypatch):
    """Learn kernels in a few steps, where a test is not about how well."""
    monkeypatch.setattr(kernel_learning, "STEPS", 10)


@pytest.fixture
def eager_threads(monkeypatch):
    """Wake threads for a few rows already."""
    monkeypatch.setattr(threads, "ROWS_PER_THREAD", 1)
    monkeypatch.setattr(threads, "MICROSECONDS_PER_THREAD", 1)


@pytest.fixture(params=["float64", "float32"])
def dtype(request):
    return np.dtype(request.param)
