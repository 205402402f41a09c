"""Factors, solves and products of small matrices against NumPy."""

import numpy as np
import pytest
from helpers import assert_close, entry

from skswsgp._adam.adjoints import transposed_product
from skswsgp._compiled import linalg
from skswsgp._compiled.linalg import padded
from skswsgp._compiled.tiles import BLOCK

cholesky = entry(linalg.cholesky)
pytestmark = pytest.mark.matrix
SHIFT = 0.01
# tolerance in machine epsilons: sums of 40 products, condition numbers up to 1e2
ROUNDINGS = 3000


@pytest.fixture(params=[1, 2, 5, 7, 8, 9, 16, 33])  # tiles have a side of eight
def size(request):
    return request.param


@pytest.fixture
def matrix(size, dtype, rng):
    """Return a positive definite matrix in an array of the padded size."""
    B = rng.normal(size=(size, 2 * size))
    return pad(B @ B.T / (2 * size) + 0.1 * np.eye(size), dtype)


@pytest.fixture
def factor(matrix, blocks):
    """Return R, lower triangular, with R' R = matrix + SHIFT I."""
    R = np.zeros_like(matrix)
    assert cholesky(matrix, R, SHIFT, blocks)
    return R


@pytest.fixture
def blocks(matrix):
    return np.full((len(matrix), BLOCK), np.nan, dtype=matrix.dtype)


@pytest.fixture
def shifted(matrix):
    """Return matrix + SHIFT I in float64."""
    return matrix.astype(float) + SHIFT * np.eye(len(matrix))


def pad(A, dtype):
    """Return an identity of the padded size whose leading block is A."""
    out = np.eye(padded(len(A)), dtype=dtype)
    out[: len(A), : len(A)] = A
    return out


def check(actual, expected, dtype):
    assert actual.dtype == dtype
    assert_close(actual, expected, roundings=ROUNDINGS, dtype=dtype)


def test_padded_sizes():
    assert [padded(size) for size in (1, 7, 8, 9, 16, 33)] == [8, 8, 8, 16, 16, 40]


def factor_of(A):
    """Return lower triangular R with A = R' R."""
    return np.linalg.cholesky(A[::-1, ::-1]).T[::-1, ::-1]


def above_blocks(matrix):
    """Return for each entry whether it is above the diagonal tiles."""
    i, j = np.indices(matrix.shape) // BLOCK
    return j > i


def test_cholesky_reads_the_lower_triangle(matrix, shifted, blocks, dtype):
    R = np.full_like(matrix, np.nan)
    A = matrix + np.triu(np.full_like(matrix, np.nan), 1)
    assert cholesky(A, R, SHIFT, blocks)
    above = above_blocks(R)
    assert np.isnan(R[above]).all()
    R[above] = 0.0
    check(R, factor_of(shifted), dtype)
    for k in range(0, len(R), BLOCK):
        tile = slice(k, k + BLOCK)
        check(blocks[tile], np.linalg.inv(factor_of(shifted)[tile, tile]), dtype)


def test_cholesky_fails_on_an_indefinite_matrix(matrix, size, blocks):
    matrix[size - 1, size - 1] = -1.0
    R = np.zeros_like(matrix)
    assert not cholesky(matrix, R, 0.0, blocks)
    assert cholesky(matrix, R, 100.0, blocks)


def test_cholesky_fails_on_nan(matrix, size, blocks):
    for row in {0, size - 1}:
        broken = matrix.copy()
        broken[row, 0] = np.nan
        assert not cholesky(broken, np.zeros_like(broken), 0.0, blocks)


def test_inverse(factor, shifted, blocks, dtype):
    upper, inverse = np.zeros_like(factor), np.full_like(factor, np.nan)
    linalg.invert_factor(factor, blocks, upper)
    check(upper, np.linalg.inv(factor_of(shifted)).T, dtype)
    linalg.square_upper(upper, inverse)
    check(inverse, np.linalg.inv(shifted), dtype)


def test_log_determinant(factor, shifted, size, dtype):
    value = entry(linalg.log_determinant)(factor, size)
    expected = np.linalg.slogdet(shifted[:size, :size])[1]
    assert_close(value, expected, roundings=ROUNDINGS, dtype=dtype)


def test_products(matrix, dtype, rng):
    X, Y = (rng.normal(size=matrix.shape).astype(dtype) for _ in range(2))
    A = np.full_like(X, np.nan)
    expected = X.T.astype(float) @ Y.astype(float)
    transposed_product(X, Y, A, True)
    above = above_blocks(A)
    assert np.isnan(A[above]).all()
    check(A[~above], expected[~above], dtype)
    transposed_product(X, Y, A, False)
    check(A, expected, dtype)


def test_solves_and_matvec(factor, shifted, size, dtype, rng):
    b = rng.normal(size=(2, len(factor))).astype(dtype)
    leading, true = shifted[:size, :size], b[1, :size].astype(float)
    out = np.full((3, len(factor)), np.nan, dtype=dtype)
    entry(linalg.solve_transposed)(factor, b, 1, size, out, 0)
    check(out[0, :size], np.linalg.solve(factor_of(leading).T, true), dtype)
    half = out[:1].copy()
    entry(linalg.solve)(factor, half, 0, size, out, 0)
    check(out[0, :size], np.linalg.solve(leading, true), dtype)
    entry(linalg.matvec)(shifted.astype(dtype), b, 1, size, out, 2)
    check(out[2, :size], leading @ true, dtype)
    assert np.isnan(out[1]).all() and np.isnan(out[:, size:]).all()


def test_sum_of_logs(size, dtype, rng):
    values = 10.0 ** rng.uniform(-30.0, 30.0, size=(2, size + 3))
    values = (values if size % 2 else 1e-150 * values**2).astype(dtype)
    values = np.maximum(values, np.finfo(dtype).tiny)
    expected = np.log(values[1, :size].astype(float)).sum()
    sum_of_logs = entry(linalg.sum_of_logs)
    assert sum_of_logs(values, 1, size) == pytest.approx(expected, rel=1e-12)
    values[1, size - 1] = np.nan
    assert np.isnan(sum_of_logs(values, 1, size))


def test_cholesky_fails_where_only_rounding_is_left(size, dtype, rng):
    v = rng.uniform(1.0, 2.0, size=size)
    A = pad(1e6 * np.outer(v, v), dtype)
    R, blocks = np.zeros_like(A), np.zeros((len(A), BLOCK), dtype)
    assert cholesky(A, R, 0.0, blocks) == (size == 1)
    assert cholesky(A, R, 1e8 * np.finfo(dtype).eps, blocks)
