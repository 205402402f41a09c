"""Fixtures that several test modules share."""

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(params=["float64", "float32"])
def dtype(request):
    return np.dtype(request.param)
