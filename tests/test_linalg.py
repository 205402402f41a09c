"""Factors, solves and products of small matrices against numpy."""

import numpy as np
import pytest
from helpers import assert_close

from skswsgp import _linalg
from skswsgp._linalg import BLOCK, padded

SHIFT = 0.01
# Sums of at most 36 products, with matrices of condition number 1e2
ROUNDINGS = 3000


@pytest.fixture(params=[*range(1, 10), 16, 33])
def size(request):
    return request.param


@pytest.fixture
def block(dtype):
    return np.full((BLOCK, BLOCK), np.nan, dtype=dtype)


@pytest.fixture
def matrix(size, dtype, rng):
    """Return a positive definite matrix in work of its padded size."""
    B = rng.normal(size=(size, 2 * size))
    return pad(B @ B.T / (2 * size) + 0.1 * np.eye(size), dtype)


@pytest.fixture
def factor(matrix, block):
    """Return the factor of matrix + SHIFT I."""
    L = np.zeros_like(matrix)
    assert _linalg.cholesky(matrix, L, SHIFT, block)
    return L


@pytest.fixture
def shifted(matrix):
    """Return matrix + SHIFT I in float64."""
    return matrix.astype(float) + SHIFT * np.eye(len(matrix))


def pad(A, dtype):
    """Return A in the leading block of an identity of padded size."""
    out = np.eye(padded(len(A)), dtype=dtype)
    out[: len(A), : len(A)] = A
    return out


def check(actual, expected, dtype):
    assert actual.dtype == dtype
    assert_close(actual, expected, roundings=ROUNDINGS, dtype=dtype)


def test_padded():
    assert [padded(size) for size in (1, 3, 4, 5, 8, 33)] == [4, 4, 4, 8, 8, 36]


def test_cholesky_reads_and_writes_the_lower_triangle(matrix, shifted, block, dtype):
    L = np.full_like(matrix, np.nan)
    A = matrix + np.triu(np.full_like(matrix, np.nan), 1)
    assert _linalg.cholesky(A, L, SHIFT, block)
    assert np.isnan(L[np.triu_indices(len(L), 1)]).all()
    check(np.tril(L), np.linalg.cholesky(shifted), dtype)


def test_cholesky_fails_on_an_indefinite_matrix(matrix, size, block):
    matrix[size - 1, size - 1] = -1.0
    L = np.zeros_like(matrix)
    assert not _linalg.cholesky(matrix, L, 0.0, block)
    assert _linalg.cholesky(matrix, L, 100.0, block)


def test_cholesky_fails_on_nan(matrix, size, block):
    matrix[size - 1, 0] = np.nan
    assert not _linalg.cholesky(matrix, np.zeros_like(matrix), 0.0, block)


def test_inverse(factor, shifted, block, dtype):
    upper, inverse = np.zeros_like(factor), np.full_like(factor, np.nan)
    _linalg.invert_factor(factor, upper, block)
    check(upper, np.linalg.inv(np.linalg.cholesky(shifted)).T, dtype)
    _linalg.square_upper(upper, inverse, block)
    check(inverse, np.linalg.inv(shifted), dtype)


def test_log_determinant(factor, shifted, size, dtype):
    value = _linalg.log_determinant(factor, size)
    expected = np.linalg.slogdet(shifted[:size, :size])[1]
    assert_close(value, expected, roundings=ROUNDINGS, dtype=dtype)


def test_products(matrix, dtype, block, rng):
    A, B = (rng.normal(size=matrix.shape).astype(dtype) for _ in range(2))
    C = np.full_like(A, np.nan)
    _linalg.product(A, B, C, block)
    check(C, A.astype(float) @ B.T.astype(float), dtype)
    _linalg.product_symmetric(A @ matrix, A, C, block)
    check(C, A.astype(float) @ matrix @ A.T.astype(float), dtype)


def test_solves_and_multiply(factor, shifted, size, dtype, rng):
    b = rng.normal(size=(2, len(factor))).astype(dtype)
    leading, true = shifted[:size, :size], b[1, :size].astype(float)
    out = np.full((3, len(factor)), np.nan, dtype=dtype)
    _linalg.solve_lower(factor, b, 1, size, out, 0)
    lower = np.linalg.solve(np.linalg.cholesky(leading), true)
    check(out[0, :size], lower, dtype)
    half = out[:1].copy()
    _linalg.solve_upper(factor, half, size, out)
    check(out[0, :size], np.linalg.solve(leading, true), dtype)
    _linalg.multiply(shifted.astype(dtype), b, 1, size, out, 2)
    check(out[2, :size], leading @ true, dtype)
    assert np.isnan(out[1]).all() and np.isnan(out[:, size:]).all()
