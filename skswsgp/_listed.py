"""Loops over sparse rows: row i of A holds weights[i, h] in the columns lists[i, h].

Sums over rows are taken by chunks, whose number does not depend on the threads, and
then in order: total (CHUNKS, M) is scratch.
"""

import numpy as np

from skswsgp._engine_cpu import CHUNKS, chunk_bounds
from skswsgp._factor import quadratic as quadratic_form
from skswsgp._jit import njit, njit_parallel, njit_part, njit_small, prange, share
from skswsgp._lanes import span, total

GRAM_ROWS = 128  # of A' diag(w) A, which a core keeps at hand
PLAIN, SQUARES, PRODUCT = range(3)  # what `pull` makes


@njit_small
def row_sum(lists, weights, i, u):
    """Sum of the entries of a row times those of u."""
    value = 0.0
    for h in span(0, lists.shape[1]):
        value += weights[i, h] * u[np.uint64(lists[i, h])]
    return total(value)


@njit_small
def row_sum_of_squares(lists, weights, i, u):
    """The same with the squares of the entries."""
    value = 0.0
    for h in span(0, lists.shape[1]):
        value += weights[i, h] * weights[i, h] * u[np.uint64(lists[i, h])]
    return total(value)


@njit
def multiply_chunk(lists, weights, squares, u, c, out):
    """Entries of A u of a chunk of rows."""
    first, last = chunk_bounds(c, lists.shape[0])
    for i in range(first, last):
        if squares:
            out[i] = row_sum_of_squares(lists, weights, i, u)
        else:
            out[i] = row_sum(lists, weights, i, u)


@njit_small
def pulled(factor, weight, squares):
    """The term of an entry in A' v, or A^2' v."""
    return factor * weight * weight if squares else factor * weight


@njit
def pull_chunk(lists, weights, kind, v, u, c, total):
    """total[c] = A' v over the rows of a chunk; see `pull`."""
    first, last = chunk_bounds(c, lists.shape[0])
    for j in range(total.shape[1]):
        total[c, j] = 0.0
    for i in range(first, last):
        factor = v[i]
        if kind == PRODUCT:
            factor *= row_sum(lists, weights, i, u)
        for h in range(lists.shape[1]):
            term = pulled(factor, weights[i, h], kind == SQUARES)
            total[c, np.uint64(lists[i, h])] += term


@njit
def add_chunks(total, part, out):
    """Add up the chunks of a part of the columns, in order."""
    first, last = chunk_bounds(part, out.shape[0])
    for j in range(first, last):
        out[j] = 0.0
    for c in range(CHUNKS):
        for j in range(first, last):
            out[j] += total[c, j]


@njit
def solve_one(lists, weights, u):
    """u (M,) = (A' A)^-1 u; A is triangular in the order of its rows.

    A list ends with the row's own column, that of the diagonal; where its other entries
    are not zero, they are in own columns of rows before.
    """
    last = lists.shape[1] - 1
    for i in range(lists.shape[0] - 1, -1, -1):  # A' y = u, y_i in the place of u_i
        own = np.uint64(lists[i, last])
        u[own] /= weights[i, last]
        for h in range(last):
            u[np.uint64(lists[i, h])] -= weights[i, h] * u[own]
    for i in range(lists.shape[0]):  # A x = y
        own, total = np.uint64(lists[i, last]), 0.0
        for h in range(last):
            total += weights[i, h] * u[np.uint64(lists[i, h])]
        u[own] = (u[own] - total) / weights[i, last]


@njit_part
def quadratic_rows(first, last, t, lists, weights, L, projection, out):
    """out[i] = |L' a|^2 for a = A[i], i from first to last."""
    H = lists.shape[1]
    for i in range(first, last):
        row = weights[i : i + 1]
        out[i] = quadratic_form(L, 0, lists[i], H, row, projection[t])


@njit_part
def gram_rows(first, last, t, lists, weights, w, out):
    """Rows first to last of out (M, M) = A' diag(w) A."""
    for begin in range(first, last, GRAM_ROWS):
        end = min(begin + GRAM_ROWS, last)
        for j in range(begin, end):
            for k in range(out.shape[1]):
                out[j, k] = 0.0
        for i in range(lists.shape[0]):
            for g in range(lists.shape[1]):
                j = np.uint64(lists[i, g])
                if begin <= j < end:
                    factor = w[i] * weights[i, g]
                    for h in range(lists.shape[1]):
                        out[j, np.uint64(lists[i, h])] += factor * weights[i, h]


# --- launches; call those of `prange` within `launch` ---------------------------------


@njit_parallel
def multiply(lists, weights, squares, u, out):
    """out (n,) = A u, or A^2 u with the squares of the entries."""
    for chunk in prange(CHUNKS):
        multiply_chunk(lists, weights, squares, u, np.int64(chunk), out)


@njit_parallel
def pull(lists, weights, kind, v, u, total, out):
    """out (M,) = A' v; of SQUARES, A^2' v; of a PRODUCT, A' diag(v) A u."""
    for chunk in prange(CHUNKS):
        pull_chunk(lists, weights, kind, v, u, np.int64(chunk), total)
    for chunk in prange(CHUNKS):
        add_chunks(total, np.int64(chunk), out)


@njit_parallel
def solve(lists, weights, u):
    """Replace each row u of the array (k, M) by (A' A)^-1 u; see `solve_one`."""
    for q in prange(u.shape[0]):
        solve_one(lists, weights, u[np.int64(q)])


def quadratic(lists, weights, L, n_threads):
    """Return |L' a|^2 (n,) for the rows a of A and lower triangular L (M, M)."""
    out = np.empty(len(lists))
    projection = np.empty((n_threads, len(L)))
    share(quadratic_rows, n_threads, len(out), lists, weights, L[None], projection, out)
    return out


def gram(lists, weights, w, M, n_threads):
    """Return A' diag(w) A (M, M)."""
    out, w = np.empty((M, M)), np.ascontiguousarray(w)
    share(gram_rows, n_threads, M, lists, weights, w, out)
    return out
