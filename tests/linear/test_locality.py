"""Orders of rows and columns that use the cache."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skswsgp._linear.locality import find_locality, local_order
from skswsgp._linear.row_matrix import SparseRowMatrix


def triangle(order, rng, H=3):
    """Return a `SparseRowMatrix` that is triangular in an order (M,) of its columns."""
    M = len(order)
    lists, weights = np.zeros((M, H + 1), np.int32), np.zeros((M, H + 1))
    lists[:, H], weights[:, H] = order, 1.0
    for i in range(M):  # before it, with entries of zero for points that come later
        lists[i, :H] = order[: max(i, H)][-H:] if i < H else rng.choice(order[:i], H)
        weights[i, : min(i, H)] = 0.1
    return SparseRowMatrix(lists, weights, M, 1)


@pytest.mark.parametrize("M", [4, 50])
def test_triangular_matrices_stay_so(M, rng):
    R, columns = triangle(rng.permutation(M).astype(np.int32), rng), rng.permutation(M)
    lists = rng.integers(M, size=(70, 2), dtype=np.int32)
    places, R_rows = find_locality(columns, R)
    A_rows = local_order(lists, places)
    assert_array_equal(places[columns], np.arange(M))
    assert_array_equal(np.sort(R_rows), np.arange(M))
    done = set()
    for i in R_rows:
        assert done.issuperset(R.lists[i, :-1][R.weights[i, :-1] != 0.0])
        done.add(R.lists[i, -1])
    assert_array_equal(np.sort(A_rows), np.arange(70))
    assert (np.diff(places[lists[A_rows, 0]]) >= 0).all()


def test_reordered_products_are_those_of_before(rng):
    R, columns = (
        triangle(rng.permutation(30).astype(np.int32), rng),
        rng.permutation(30),
    )
    places, R_rows = find_locality(columns, R)
    u = rng.normal(size=(30, 2))
    turned = R.reordered(R_rows, places)
    assert_allclose(turned.matvec(u[columns]), R.matvec(u)[R_rows])
    assert_allclose(turned.solve(u[columns])[places], R.solve(u))
