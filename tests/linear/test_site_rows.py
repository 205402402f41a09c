"""Rows of one place: their noise, and sums that add up over places."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from test_row_matrix import sparse_and_dense

from skswsgp._compiled.threads import ROWS_AT_ONCE as GROUP
from skswsgp._compiled.tiles import BLOCK
from skswsgp._linear.site_rows import SiteRows, row_noise


def test_noise_of_a_row_depends_on_its_number_alone():
    whole = row_noise((3, 0), 0, 2 * GROUP + 5, 2 * BLOCK + 3)
    for begin, n in ((0, 7), (GROUP - 2, GROUP + 4), (2 * GROUP, 5), (9, 0)):
        part = row_noise((3, 0), begin, n, 2 * BLOCK + 3)
        assert_array_equal(part, whole[begin : begin + n])
    for first in (0, BLOCK):
        part = row_noise((3, first), 4, 10, BLOCK)
        assert_array_equal(part, whole[4:14, first : first + BLOCK])
    assert np.abs(row_noise((4, 0), 0, 50, BLOCK) - whole[:50, :BLOCK]).min() > 0.0


def test_noise_is_standard_normal_and_independent():
    e = row_noise((0, 1, 0), 5, 3 * GROUP, 4 * BLOCK)  # 786,432 numbers
    assert abs(e.mean()) < 5 / np.sqrt(e.size)
    assert abs(e.var() - 1.0) < 5 * np.sqrt(2 / e.size)
    assert np.abs(np.corrcoef(e.T) - np.eye(4 * BLOCK)).max() < 5 / np.sqrt(3 * GROUP)
    apart = e[: 2 * GROUP], e[GROUP:]  # rows of one group and of the next
    products = np.sum(apart[0] * apart[1], axis=1) / np.sqrt(4 * BLOCK)
    assert abs(products.mean()) < 5 / np.sqrt(2 * GROUP)


class StoredRows:
    """The products of a `Projection` with rows that are stored."""

    def __init__(self, A):
        self.stored, self.rmatvec = A, A.rmatvec
        self.normal_matvec, self.weighted_gram = A.normal_matvec, A.weighted_gram
        self.engine = self
        self.n_threads = 1


@pytest.mark.parametrize("cuts", [[40], [0, 13, 13]])
def test_sums_over_places_are_those_of_all_rows(cuts, rng):
    A, dense = sparse_and_dense(rng, 23, 1)
    y, weight = rng.normal(size=(90, 2)), rng.uniform(0.5, 2.0, 90)
    w, times_t = rng.uniform(0.5, 2.0, (90, 2)), rng.normal(size=(90, 2))

    def sites(first, last):
        rows = A._replace(lists=A.lists[first:last], weights=A.weights[first:last])
        arrays = (array[first:last] for array in (y, weight, w, times_t))
        return SiteRows(StoredRows(rows), None, None, *arrays, begin=first)

    whole, ends = sites(0, 90), [0, *cuts, 90]
    parts = [sites(*both) for both in pairwise(ends)]
    u = rng.normal(size=(23, 2))
    for name, arguments in {
        "diagonal": (),
        "right": (),
        "total_weight": (),
        "multiply": (u, [1, 0]),
        "gram": (1,),
    }.items():
        total = sum(getattr(part, name)(*arguments) for part in parts)
        assert_allclose(total, getattr(whole, name)(*arguments), atol=1e-11)
    key = (5, 0), BLOCK
    sums = sum(part.noise_sums(1, part.noise(*key)) for part in parts)
    squares = sum(part.noise_squares(part.noise(*key)) for part in parts)
    assert_allclose(squares, whole.noise_squares(whole.noise(*key)), atol=1e-11)
    e = row_noise((5, 0), 0, 90, BLOCK)
    expected = dense.T @ (np.sqrt(w[:, [1]]) * e)
    for found in (sums, whole.noise_sums(1, whole.noise(*key))):
        assert_allclose(found, expected, atol=1e-11)
