"""Covariances of selected rows of a factor, and their adjoint, against NumPy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skswsgp._adam.gradients import factor_panel_vjp
from skswsgp._compiled.linalg import padded
from skswsgp._point.full_covariance import (
    PANEL_COLUMNS,
    active_covariance,
    quadratic_form,
)

pytestmark = pytest.mark.matrix
M = 2 * PANEL_COLUMNS + 37
SIZES = [1, 2, 3, 4, 5, 8, 13, 50]


@pytest.fixture
def L(dtype, rng):
    factors = np.tril(rng.standard_normal((2, M, M))) / np.sqrt(M)
    return factors.astype(dtype)


def tolerance(L):
    return {"rtol": 0, "atol": 50 * np.finfo(L.dtype).eps}


def in_order_and_not(rows):
    """Return lists of rows in ascending order, and as they come."""
    return np.sort(rows), rows


@pytest.mark.parametrize("H", SIZES)
def test_covariance_and_quadratic(L, H, rng):
    for rows in in_order_and_not(rng.permutation(M)[:H]):
        check_covariance_and_quadratic(L, rows, rng)


def check_covariance_and_quadratic(L, rows, rng):
    H, side = len(rows), padded(len(rows))
    S = np.tile(np.eye(side, dtype=L.dtype), (2, 1, 1))
    active_covariance(L, rows, H, S)
    for q in range(2):
        expected = np.eye(side)
        expected[:H, :H] = L[q, rows] @ L[q, rows].T
        assert_allclose(S[q], expected, **tolerance(L))
        a = rng.standard_normal((1, side)).astype(L.dtype)
        projection = np.full(M, np.nan, L.dtype)
        value = quadratic_form(L, q, rows, H, a, projection)
        projected = a[0, :H] @ L[q, rows]
        assert_allclose(projection, projected, **tolerance(L))
        assert_allclose(value, projected @ projected, rtol=1e-4)


@pytest.mark.parametrize("H", SIZES)
def test_rows_and_panels_add_up_to_the_derivative(L, H, rng):
    """d/dL_w = 2 (d/dS_w) L_w, added up for two lists w of one minibatch.

    `test_bound` checks that formula by finite differences.
    """
    lists = np.stack([rng.permutation(M)[:H] for _ in range(2)])
    for active in in_order_and_not(lists):
        check_derivative(L, active, rng)


def check_derivative(L, active, rng):
    H, side = active.shape[1], padded(active.shape[1])
    d_S = np.zeros((2, side, side), L.dtype)
    d_S[:, :H, :H] = rng.standard_normal((2, H, H))
    d_S += d_S.swapaxes(1, 2)
    d_L = np.zeros_like(L)
    panel, product = np.full((2, side, PANEL_COLUMNS), np.nan, L.dtype)
    for first in range(0, M, PANEL_COLUMNS):
        for at in range(2):
            factor_panel_vjp(L, 1, active, at, d_S[at], first, panel, product, d_L)
    expected = np.zeros((M, M))
    for rows, d in zip(active, d_S, strict=True):
        expected[rows] += 2.0 * d[:H, :H] @ L[1, rows]
    assert not d_L[0].any()
    assert_allclose(np.tril(d_L[1]), np.tril(expected), **tolerance(L))
