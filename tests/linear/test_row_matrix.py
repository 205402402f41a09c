"""Products and solves of row matrices compared with dense ones."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skswsgp._compiled.threads import max_threads
from skswsgp._linear.row_matrix import DenseMatrix, SelectionMatrix, SparseRowMatrix
from skswsgp._point.full_covariance import PANEL_COLUMNS

pytestmark = pytest.mark.matrix


def sparse_and_dense(rng, n_columns, n_threads, n=90, H=7, dtype=np.float64):
    """Return a matrix, some rows of which hold a column twice, and a dense copy."""
    lists = rng.integers(n_columns, size=(n, H), dtype=np.int32)
    weights, A = rng.normal(size=(n, H)).astype(dtype), np.zeros((n, n_columns))
    np.add.at(A, (np.arange(n)[:, None], lists), weights)
    return SparseRowMatrix(lists, weights, n_columns, n_threads), A


@pytest.mark.parametrize("k", [1, 2, 3, 8, 9, 17, 40, 64])
def test_products_of_k_columns(rng, k, dtype):
    rows, A = sparse_and_dense(rng, 23, max_threads(None), dtype=dtype)
    u, v = rng.normal(size=(23, k)), rng.normal(size=(90, k))
    assert_allclose(rows.matvec(u), A @ u, atol=1e-12)
    assert_allclose(rows.rmatvec(v), A.T @ v, atol=1e-12)
    squares = np.zeros_like(A)
    np.add.at(squares, (np.arange(90)[:, None], rows.lists), rows.weights**2)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    assert_allclose(rows.matvec(u, squares=True), squares @ u, atol=tolerance)
    assert_allclose(rows.rmatvec(v, squares=True), squares.T @ v, atol=tolerance)
    product = rows.normal_matvec(v, u)
    assert product.shape == (23, k)
    assert_allclose(product, A.T @ (v * (A @ u)), atol=1e-11)
    assert_array_equal(product, rows._replace(n_threads=1).normal_matvec(v, u))


@pytest.mark.parametrize("k", [1, 7, 8, 9, 64])
def test_columns_may_be_in_single_precision(rng, k):
    rows, A = sparse_and_dense(rng, 23, 1, dtype=np.float32)
    u, v = rng.normal(size=(23, k)), rng.normal(size=(90, k))
    found = rows.matvec(u.astype(np.float32)), rows.rmatvec(v.astype(np.float32))
    for one, expected in zip(found, (A @ u, A.T @ v), strict=True):
        assert_allclose(one, expected, atol=1e-4)


@pytest.mark.parametrize("k", [1, 2, 3, 8, 9, 17, 40, 64])
def test_solves_of_k_columns(rng, k):
    M, order = 30, rng.permutation(30).astype(np.int32)
    lists = np.zeros((M, 4), np.int32)
    weights = rng.normal(size=(M, 4)) / 4
    for i in range(M):  # earlier columns, then the row's own
        lists[i, :3], lists[i, 3] = rng.choice(order[: max(i, 1)], 3), order[i]
    weights[0, :3], weights[:, 3] = 0.0, rng.uniform(1.0, 2.0, M)
    A = np.zeros((M, M))
    np.add.at(A, (np.arange(M)[:, None], lists), weights)
    u = rng.normal(size=(M, k))
    before = u.copy()
    rows = SparseRowMatrix(lists, weights, M, max_threads(None))
    solution = rows.solve(u)
    assert_allclose(solution, np.linalg.solve(A.T @ A, u), atol=1e-10)
    assert_array_equal(u, before)
    assert_array_equal(solution, rows._replace(n_threads=1).solve(u))


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("n_columns", [1, PANEL_COLUMNS, 2 * PANEL_COLUMNS + 3])
def test_weighted_gram_in_blocks_and_threads(rng, n_columns, n_threads):
    rows, A = sparse_and_dense(rng, n_columns, n_threads)
    w = rng.normal(size=90)
    assert_allclose(rows.weighted_gram(w), A.T @ np.diag(w) @ A, atol=1e-12)


@pytest.mark.parametrize("k", [1, 3])
def test_rows_of_ones_are_those_of_a_dense_matrix(rng, k):
    columns = np.array([2, 0, 2, 4, 1])  # none in column 3
    rows, dense = SelectionMatrix(columns, 5), DenseMatrix(np.eye(5)[columns])
    u, v, w = (rng.normal(size=shape) for shape in ((5, k), (5, k), 5))
    for squares in (False, True):
        assert_allclose(rows.matvec(u, squares), dense.matvec(u, squares))
        assert_allclose(rows.rmatvec(v, squares), dense.rmatvec(v, squares), atol=1e-15)
    L = np.tril(rng.normal(size=(5, 5)))
    assert_allclose(rows.quadratic_forms(L), dense.quadratic_forms(L))
    assert_allclose(rows.normal_matvec(v, u), dense.normal_matvec(v, u), atol=1e-15)
    assert_allclose(rows.weighted_gram(w), dense.weighted_gram(w), atol=1e-15)
