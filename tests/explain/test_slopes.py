"""Derivatives of sums of covariances, against difference quotients."""

import numpy as np
import pytest
from helpers import KERNELS
from numpy.testing import assert_allclose, assert_array_equal

from skswsgp._covariance.compile import compile_kernel
from skswsgp._covariance.products import TILE
from skswsgp.explain.slopes import covariance_slopes

M = 2 * TILE + 37  # the last tile is not full


@pytest.mark.parametrize("name", KERNELS)
def test_slopes_are_finite_differences(name, rng):
    kernel, h = KERNELS[name], 1e-5
    X, Z, u = rng.normal(size=(5, 2)), rng.normal(size=(M, 2)), rng.normal(size=(M, 2))
    struct = compile_kernel(kernel, 2, np.float64).struct
    slopes = covariance_slopes(struct, X, Z, u, 1)
    for d, step in enumerate(h * np.eye(2)):
        higher, lower = kernel(X + step, Z) @ u, kernel(X - step, Z) @ u
        assert_allclose(slopes[:, :, d], (higher - lower) / (2 * h), atol=2e-5)


def test_threads_do_not_change_a_bit(rng):
    X, Z = rng.normal(size=(2 * TILE + 1, 2)), rng.normal(size=(M, 2))
    struct = compile_kernel(KERNELS["matern"], 2, np.float64).struct
    u = rng.normal(size=(M, 1))
    one, two = (covariance_slopes(struct, X, Z, u, n_threads) for n_threads in (1, 2))
    assert_array_equal(one, two)
