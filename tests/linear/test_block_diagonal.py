"""The inverse of the blocks on a diagonal, against a dense one."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from test_row_matrix import sparse_and_dense

from skswsgp._linear.block_diagonal import SIDE, BlockDiagonal, diagonal_blocks


@pytest.mark.parametrize("n_columns", [5, SIDE, 2 * SIDE + 3])
def test_solutions_are_those_of_the_dense_blocks(n_columns, rng):
    (A, dense), (R, other) = (sparse_and_dense(rng, n_columns, 1) for _ in range(2))
    w, u = rng.uniform(0.5, 2.0, 90), rng.normal(size=(n_columns, 3))
    matrix = dense.T @ (w[:, None] * dense) + other.T @ other
    near = np.arange(n_columns) // SIDE
    matrix[near[:, None] != near] = 0.0
    terms = [(A, w), (R, np.ones(90))]

    def solved(n_threads):
        blocks = sum(diagonal_blocks(*term, n_threads) for term in terms)
        return BlockDiagonal(blocks, n_columns).solve(u)

    found = solved(1)
    assert_allclose(found, np.linalg.solve(matrix, u), rtol=1e-8, atol=1e-10)
    for n_threads in (2, 3):
        assert_array_equal(solved(n_threads), found)
