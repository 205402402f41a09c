"""Orders of the rows and columns of sparse matrices in which products use the cache.

Columns are points and a row reads the columns of near points. In the order of a k-d
tree, near points are near in memory, and rows that follow each other read the same.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.jit import njit


class Locality(NamedTuple):
    """Where the columns and rows of a matrix R (M, M) go.

    R is triangular in order of its rows, see `row_matrix.solve_vector`, and stays so.
    """

    places: np.ndarray  # (M,) int32, the new place of each point
    rows: np.ndarray  # (M,) the rows of R in their new order


def find_locality(columns, R):
    """Return the `Locality` of a `SparseRowMatrix` R whose columns are in order.

    `columns` (M,) are points in an order in which near points lie near each other.
    """
    M = len(columns)
    places, own = np.empty((2, M), np.int32)
    places[columns] = np.arange(M)
    own[R.lists[:, -1]] = np.arange(M)
    rows, stack, visited = np.empty((3, M), np.int64)
    fill_triangular_order(R.lists, R.weights, own, own[columns], rows, stack, visited)
    return Locality(places, rows)


def local_order(lists, places):
    """Return the rows (n,) of a matrix by the new place of their first column.

    `lists` (n, H) are the columns of its entries, and `places` those of a `Locality`.
    """
    return np.argsort(places[lists[:, 0]], kind="stable")


@njit
def fill_triangular_order(lists, weights, own, wanted, order, stack, visited):
    """Set `order` (M,) to the rows of a triangular matrix, each after those it needs.

    own[j] is the row whose own column j is. Rows come as in `wanted` (M,), and rows
    that one of them needs come before it. `stack` and `visited` (M,) are scratch.
    """
    last = lists.shape[1] - 1
    for i in range(order.shape[0]):
        visited[i] = -1  # entries of row i that were looked at, or -1 before its turn
    done = 0
    for row in wanted:
        if visited[row] >= 0:
            continue
        stack[0], visited[row], height = row, 0, 1
        while height > 0:
            i = stack[height - 1]
            h = visited[i]
            if h == last:
                order[done] = i
                done += 1
                height -= 1
                continue
            visited[i] = h + 1
            needed = own[lists[i, h]]
            if weights[i, h] != 0.0 and visited[needed] < 0:
                stack[height], visited[needed] = needed, 0
                height += 1
