"""Loops over sparse rows: row i of A holds weights[i, h] in the columns lists[i, h].

Sums over rows are taken by chunks, whose number does not depend on the threads, and
then in order: total (CHUNKS, M) is scratch.
"""

from typing import NamedTuple

import numpy as np
from numba import prange

from skswsgp._compiled.jit import njit, njit_parallel, njit_range, njit_small
from skswsgp._compiled.team import team_range, team_sum
from skswsgp._compiled.threads import (
    CHUNKS,
    chunk_bounds,
    index_blocks,
    parallel_region,
    run_in_threads,
)
from skswsgp._point.full_covariance import quadratic_form

GRAM_ROWS = 128  # of A' diag(w) A, which a core keeps at hand
PLAIN, SQUARES, PRODUCT = range(3)  # what `pull` makes


@njit_small
def row_product(lists, weights, i, u):
    """Sum of the entries of a row times those of u."""
    value = 0.0
    for h in team_range(0, lists.shape[1]):
        value += weights[i, h] * u[np.uint64(lists[i, h])]
    return team_sum(value)


@njit_small
def squared_row_product(lists, weights, i, u):
    """The same with the squares of the entries."""
    value = 0.0
    for h in team_range(0, lists.shape[1]):
        value += weights[i, h] * weights[i, h] * u[np.uint64(lists[i, h])]
    return team_sum(value)


@njit
def matvec_chunk(lists, weights, squares, u, c, out):
    """Entries of A u of a chunk of rows."""
    first, last = chunk_bounds(c, lists.shape[0])
    for i in range(first, last):
        if squares:
            out[i] = squared_row_product(lists, weights, i, u)
        else:
            out[i] = row_product(lists, weights, i, u)


@njit_small
def rmatvec_term(factor, weight, squares):
    """The term of an entry in A' v, or A^2' v."""
    return factor * weight * weight if squares else factor * weight


@njit
def rmatvec_chunk(lists, weights, kind, v, u, c, total):
    """total[c] = A' v over the rows of a chunk; see `pull`."""
    first, last = chunk_bounds(c, lists.shape[0])
    for j in range(total.shape[1]):
        total[c, j] = 0.0
    for i in range(first, last):
        factor = v[i]
        if kind == PRODUCT:
            factor *= row_product(lists, weights, i, u)
        for h in range(lists.shape[1]):
            term = rmatvec_term(factor, weights[i, h], kind == SQUARES)
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
def solve_vector(lists, weights, u):
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


@njit_range
def quadratic_rows(first, last, t, lists, weights, L, projection, out):
    """out[i] = |L' a|^2 for a = A[i], i from first to last."""
    H = lists.shape[1]
    for i in range(first, last):
        row = weights[i : i + 1]
        out[i] = quadratic_form(L, 0, lists[i], H, row, projection[t])


@njit_range
def weighted_gram_rows(first, last, t, lists, weights, w, out):
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
def matvec_columns(lists, weights, squares, u, out):
    """out (n,) = A u, or A^2 u with the squares of the entries."""
    for chunk in prange(CHUNKS):
        matvec_chunk(lists, weights, squares, u, np.int64(chunk), out)


@njit_parallel
def rmatvec_columns(lists, weights, kind, v, u, total, out):
    """out (M,) = A' v; of SQUARES, A^2' v; of a PRODUCT, A' diag(v) A u."""
    for chunk in prange(CHUNKS):
        rmatvec_chunk(lists, weights, kind, v, u, np.int64(chunk), total)
    for chunk in prange(CHUNKS):
        add_chunks(total, np.int64(chunk), out)


@njit_parallel
def solve_columns(lists, weights, u):
    """Replace each row u of the array (k, M) by (A' A)^-1 u; see `solve_one`."""
    for q in prange(u.shape[0]):
        solve_vector(lists, weights, u[np.int64(q)])


def quadratic_forms(lists, weights, L, n_threads):
    """Return |L' a|^2 (n,) for the rows a of A and lower triangular L (M, M)."""
    out = np.empty(len(lists))
    projection = np.empty((n_threads, len(L)))
    run_in_threads(
        quadratic_rows, n_threads, len(out), lists, weights, L[None], projection, out
    )
    return out


def weighted_gram_matrix(lists, weights, w, M, n_threads):
    """Return A' diag(w) A (M, M)."""
    out, w = np.empty((M, M)), np.ascontiguousarray(w)
    run_in_threads(weighted_gram_rows, n_threads, M, lists, weights, w, out)
    return out


class DenseMatrix(NamedTuple):
    """Rows of A that hold every column."""

    A: np.ndarray  # (n, M)

    def matvec(self, u, squares=False):
        """Return A u for u (M, Q), or A^2 u, the squares taken of each entry."""
        return (self.A**2 if squares else self.A) @ u

    def rmatvec(self, v, squares=False):
        """Return A' v for v (n, Q), or A^2' v."""
        return (self.A**2 if squares else self.A).T @ v

    def normal_matvec(self, v, u):
        """Return A' diag(v) A u for v (n, Q) and u (M, Q), by columns."""
        return self.A.T @ (v * (self.A @ u))

    def quadratic_forms(self, L):
        """Return |L' a|^2 (n,) for the rows a of A and L (M, M)."""
        parts = [self.A[index] @ L for index in index_blocks(len(self.A))]
        return np.concatenate([np.sum(part**2, axis=1) for part in parts])

    def weighted_gram(self, w):
        """Return A' diag(w) A (M, M)."""
        return self.A.T @ (w[:, None] * self.A)


class SparseRowMatrix(NamedTuple):
    """Rows of A that hold H columns each."""

    lists: np.ndarray  # (n, H) int32 columns
    weights: np.ndarray  # (n, H) entries
    n_columns: int  # M
    n_threads: int

    def scaled(self, factor):
        """Return the same with all entries times `factor`."""
        return self._replace(weights=factor * self.weights)

    def matvec(self, u, squares=False):
        """Return A u for u (M, Q), or A^2 u."""
        out = np.empty((u.shape[1], len(self.lists)))
        with parallel_region(self.n_threads):
            for q, column in enumerate(np.ascontiguousarray(u.T)):
                matvec_columns(self.lists, self.weights, squares, column, out[q])
        return out.T

    def rmatvec(self, v, squares=False):
        """Return A' v for v (n, Q), or A^2' v."""
        return self._pull(SQUARES if squares else PLAIN, v, v)

    def normal_matvec(self, v, u):
        """Return A' diag(v) A u for v (n, Q) and u (M, Q), by columns."""
        return self._pull(PRODUCT, v, u)

    def quadratic_forms(self, L):
        """Return |L' a|^2 (n,) for the rows a of A and lower triangular L (M, M)."""
        return quadratic_forms(self.lists, self.weights, L, self.n_threads)

    def weighted_gram(self, w):
        """Return A' diag(w) A as an array (M, M)."""
        return weighted_gram_matrix(
            self.lists, self.weights, w, self.n_columns, self.n_threads
        )

    def solve(self, u):
        """Return (A' A)^-1 u for u (M, k), if A is triangular as `solve_one` has it."""
        out = np.array(u.T, order="C")
        with parallel_region(
            min(self.n_threads, len(out))
        ):  # a column is one thread's work
            solve_columns(self.lists, self.weights, out)
        return out.T

    def _pull(self, kind, v, u):
        out = np.empty((v.shape[1], self.n_columns))
        total = np.empty((CHUNKS, self.n_columns))
        columns = np.ascontiguousarray(v.T), np.ascontiguousarray(u.T)
        with parallel_region(self.n_threads):
            for one, other, result in zip(*columns, out, strict=True):
                rmatvec_columns(
                    self.lists, self.weights, kind, one, other, total, result
                )
        return np.ascontiguousarray(out.T)
