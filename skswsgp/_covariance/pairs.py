"""The pairs of points of a tile, numbered row by row.

Point i of A makes a row of pairs with points j of B. A rectangle has j < n in each row.
A triangle, n = TRIANGLE, has B = A and j <= i; its pairs j = i are a point with itself.
"""

import numpy as np

from skswsgp._compiled.jit import njit_inline, njit_small

TRIANGLE = 0  # number of columns that stands for the lower triangle


@njit_small
def width(i, n):
    """Return the number of pairs in row i."""
    return i + 1 if n == TRIANGLE else n


@njit_small
def row_start(i, n):
    """Return the number of pairs before row i, so of all pairs where i rows exist."""
    return i * (i + 1) // 2 if n == TRIANGLE else i * n


@njit_small
def pair(start, k):
    """Return start + k, the number of a pair, without a sign.

    A signed index may count from the end, and loops that ask are not vectorised.
    """
    return np.uint64(start + k)


@njit_inline
def pair_range(at, count):
    """Return the numbers of `count` pairs from `at` on, without a sign; see `pair`."""
    return range(np.uint64(at), np.uint64(at + count))
