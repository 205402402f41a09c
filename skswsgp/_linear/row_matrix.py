"""Dense and sparse row matrices A (n, M), and their products.

Row i of a sparse matrix holds weights[i, h] in column lists[i, h], h < H. Sums over
rows are taken by chunks, or parts for several columns, whose number does not depend on
the threads, and then in order, so that results do not depend on the number of threads.
"""

from functools import reduce
from typing import NamedTuple

import numpy as np
from numba import prange

from skswsgp._compiled import threads
from skswsgp._compiled.jit import njit, njit_parallel, njit_range, njit_small
from skswsgp._compiled.team import BLOCK, team_range, team_sum
from skswsgp._compiled.tiles import gather_columns, scatter_columns
from skswsgp._point.full_covariance import quadratic_form

MICROSECONDS_PER_ENTRY = 1e-3  # least time of an entry in a product on one core
GRAM_ROWS = 128  # rows of A' diag(w) A that stay in a core's cache
# Columns from which groups of BLOCK columns are faster than one column after the other;
# a group takes 1.2 ms where a column takes 0.45 (512,000 entries, one core).
LEAST_GROUPED = 3
MAX_ROW_PARTS = 4  # parts of the rows that have sums of their own, for eight columns
PLAIN, SQUARES, NORMAL = range(3)  # A' v, A^2' v and A' diag(v) A u


@njit_small
def row_product(lists, weights, squares, i, u):
    """Return the sum of A_ih u_h, or of A_ih^2 u_h, over the columns h of row i."""
    value = 0.0
    for h in team_range(0, lists.shape[1]):
        weight = weights[i, h]
        value += (weight * weight if squares else weight) * u[np.uint64(lists[i, h])]
    return team_sum(value)


@njit
def matvec_chunk(lists, weights, squares, u, c, out):
    """Set the entries of out = A u, or A^2 u, for the rows of chunk c."""
    first, last = threads.chunk_bounds(c, lists.shape[0])
    for i in range(first, last):
        out[i] = row_product(lists, weights, squares, i, u)


@njit_small
def rmatvec_term(factor, weight, squares):
    """Return the term of an entry in A' v, or in A^2' v."""
    return factor * weight * weight if squares else factor * weight


@njit
def rmatvec_chunk(lists, weights, kind, v, u, c, partial):
    """Set partial[c] (M,) to the sum over the rows of chunk c; see `rmatvec_column`."""
    first, last = threads.chunk_bounds(c, lists.shape[0])
    for j in range(partial.shape[1]):
        partial[c, j] = 0.0
    for i in range(first, last):
        factor = v[i]
        if kind == NORMAL:
            factor *= row_product(lists, weights, False, i, u)
        for h in range(lists.shape[1]):
            term = rmatvec_term(factor, weights[i, h], kind == SQUARES)
            partial[c, np.uint64(lists[i, h])] += term


@njit
def add_chunks(partial, part, out):
    """Add up the sums of chunks, in order, for one part of the columns."""
    first, last = threads.chunk_bounds(part, out.shape[0])
    for j in range(first, last):
        out[j] = 0.0
    for c in range(threads.CHUNKS):
        for j in range(first, last):
            out[j] += partial[c, j]


@njit
def solve_vector(lists, weights, u):
    """Replace u (M,) by (A' A)^-1 u for a square A, triangular in order of its rows.

    The last entry of a list is the diagonal, the row's own column. Its other columns
    must be own columns of earlier rows, except where the entry is zero.
    """
    last = lists.shape[1] - 1
    for i in range(lists.shape[0] - 1, -1, -1):  # A' y = u; y_i replaces its u
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
    """Set out[i] = |L' a|^2 for the rows a = A[i] from first to last.

    L is (1, M, M); projection (n_threads, M) is scratch.
    """
    H = lists.shape[1]
    for i in range(first, last):
        row = weights[i : i + 1]
        out[i] = quadratic_form(L, 0, lists[i], H, row, projection[t])


@njit_range
def weighted_gram_rows(first, last, t, lists, weights, w, out):
    """Set rows first to last of out (M, M) = A' diag(w) A."""
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


@njit_parallel
def matvec_column(lists, weights, squares, u, out):
    """Set out (n,) = A u, or A^2 u with the squared entries of A."""
    for chunk in prange(threads.CHUNKS):
        matvec_chunk(lists, weights, squares, u, np.int64(chunk), out)


@njit_parallel
def rmatvec_column(lists, weights, kind, v, u, partial, out):
    """Set out (M,) = A' v, A^2' v or A' diag(v) A u for PLAIN, SQUARES or NORMAL.

    `partial` (CHUNKS, M) is scratch.
    """
    for chunk in prange(threads.CHUNKS):
        rmatvec_chunk(lists, weights, kind, v, u, np.int64(chunk), partial)
    for chunk in prange(threads.CHUNKS):
        add_chunks(partial, np.int64(chunk), out)


@njit_parallel
def solve_columns(lists, weights, u):
    """Replace each row of u (k, M) by (A' A)^-1 u; see `solve_vector`."""
    for q in prange(u.shape[0]):
        solve_vector(lists, weights, u[np.int64(q)])


@njit
def matvec_groups_chunk(lists, weights, squares, u, c, out):
    """Set the rows of chunk c of out (G, n, 8) = A u, or A^2 u, for u (G, M, 8)."""
    n, H = lists.shape
    first, last = threads.chunk_bounds(c, n)
    for g in range(u.shape[0]):
        columns, result = u[g], out[g]
        for i in range(first, last):
            gather_columns(lists, weights, squares, i, H, columns, 0, result, i, 0)


@njit_parallel
def matvec_groups(lists, weights, squares, u, out):
    """Set out (G, n, 8) = A u, or A^2 u with squared entries, for u (G, M, 8)."""
    for chunk in prange(threads.CHUNKS):
        matvec_groups_chunk(lists, weights, squares, u, np.int64(chunk), out)


@njit
def rmatvec_group(lists, weights, kind, v, u, part, n_parts, out, products):
    """Set out (M, 8), see `rmatvec_column`, over a part of the rows.

    v is (n, 8) and u (M, 8); `products` (1, 16) is scratch.
    """
    for j in range(out.shape[0]):
        for q in range(BLOCK):
            out[j, q] = 0.0
    n, H = lists.shape
    squares = kind == SQUARES
    for i in range(part * n // n_parts, (part + 1) * n // n_parts):
        if kind == NORMAL:
            gather_columns(lists, weights, False, i, H, u, 0, products, 0, 0)
            for q in range(BLOCK):
                products[0, q] *= v[i, q]
            scatter_columns(lists, weights, False, i, H, out, 0, products, 0, 0)
        else:
            scatter_columns(lists, weights, squares, i, H, out, 0, v, i, 0)


@njit_parallel
def rmatvec_groups(lists, weights, kind, v, u, products, partial):
    """Set partial (n_parts, G, M, 8), see `rmatvec_column`, over each part of the rows.

    v is (G, n, 8) and u (G, M, 8); `products` (n_parts G, 16) is scratch.
    """
    n_parts = partial.shape[0]
    for each in prange(products.shape[0]):
        task = np.int64(each)
        part, g = task % n_parts, task // n_parts
        rmatvec_group(
            lists, weights, kind, v[g], u[g], part, n_parts, partial[part, g],
            products[task : task + 1],
        )  # fmt: skip


@njit
def solve_group(lists, weights, u, sums):
    """Solve for the eight columns of u (M, 8) as `solve_vector` does.

    `sums` (1, 16) is scratch.
    """
    last = lists.shape[1] - 1
    for i in range(lists.shape[0] - 1, -1, -1):  # A' y = u; y_i replaces its u
        own = np.uint64(lists[i, last])
        for q in range(BLOCK):
            u[own, q] /= weights[i, last]
            sums[0, q] = -u[own, q]
        scatter_columns(lists, weights, False, i, last, u, 0, sums, 0, 0)
    for i in range(lists.shape[0]):  # A x = y
        own = np.uint64(lists[i, last])
        gather_columns(lists, weights, False, i, last, u, 0, sums, 0, 0)
        for q in range(BLOCK):
            u[own, q] = (u[own, q] - sums[0, q]) / weights[i, last]


@njit_parallel
def solve_groups(lists, weights, u, sums):
    """Replace u (G, M, 8) by (A' A)^-1 u; `sums` (G, 16) is scratch."""
    for group in prange(sums.shape[0]):
        g = np.int64(group)
        solve_group(lists, weights, u[g], sums[g : g + 1])


def in_groups(u):
    """Return a copy of u (n, k) in groups of 8 columns, (G, n, 8), filled with zeros.

    Eight numbers are a cache line. Groups lie apart, because lines at equal distances
    of many bytes would share few places of a cache.
    """
    n, k = u.shape
    out = np.zeros((-(-k // BLOCK), n, BLOCK))
    for g, group in enumerate(out):
        columns = u[:, g * BLOCK : (g + 1) * BLOCK]
        group[:, : columns.shape[1]] = columns
    return out


def out_of_groups(groups, k):
    """Return groups (G, n, 8) of columns as one array (n, k)."""
    out = np.empty((groups.shape[1], k))
    for g, group in enumerate(groups):
        columns = out[:, g * BLOCK : (g + 1) * BLOCK]
        columns[:] = group[:, : columns.shape[1]]
    return out


def scratch(n_tasks):
    """Return uninitialised rows of 8 numbers for tasks, which share no cache line."""
    return np.empty((n_tasks, 2 * BLOCK))


class DenseMatrix(NamedTuple):
    """A matrix whose rows hold every column, for H = M."""

    A: np.ndarray  # (n, M)

    def matvec(self, u, squares=False):
        """Return A u (n, Q) for u (M, Q), or A^2 u with the squared entries of A."""
        return (self.A**2 if squares else self.A) @ u

    def rmatvec(self, v, squares=False):
        """Return A' v (M, Q) for v (n, Q), or A^2' v with the squared entries of A."""
        return (self.A**2 if squares else self.A).T @ v

    def normal_matvec(self, v, u):
        """Return A' diag(v) A u for v (n, Q) and u (M, Q), column by column."""
        return self.A.T @ (v * (self.A @ u))

    def quadratic_forms(self, L):
        """Return |L' a|^2 (n,) for the rows a of A and L (M, M)."""
        parts = [self.A[index] @ L for index in threads.index_blocks(len(self.A))]
        return np.concatenate([np.sum(part**2, axis=1) for part in parts])

    def weighted_gram(self, w):
        """Return A' diag(w) A (M, M)."""
        return self.A.T @ (w[:, None] * self.A)


class SparseRowMatrix(NamedTuple):
    """A matrix whose rows hold H columns each."""

    lists: np.ndarray  # (n, H) int32 columns
    weights: np.ndarray  # (n, H) entries
    n_columns: int  # M
    n_threads: int

    def scaled(self, factor):
        """Return a copy of the matrix with every entry multiplied by `factor`."""
        return self._replace(weights=factor * self.weights)

    def matvec(self, u, squares=False):
        """Return A u (n, Q) for u (M, Q), or A^2 u with the squared entries of A."""
        n, k = len(self.lists), u.shape[1]
        if k >= LEAST_GROUPED:
            u = in_groups(u)
            out = np.empty((len(u), n, BLOCK))
            self._run(matvec_groups, threads.CHUNKS, squares, u, out)
            return out_of_groups(out, k)
        out = np.empty((k, n))
        for column, result in zip(np.ascontiguousarray(u.T), out, strict=True):
            self._run(matvec_column, threads.CHUNKS, squares, column, result)
        return out.T

    def rmatvec(self, v, squares=False):
        """Return A' v (M, Q) for v (n, Q), or A^2' v with the squared entries of A."""
        return self._rmatvec(SQUARES if squares else PLAIN, v, v)

    def normal_matvec(self, v, u):
        """Return A' diag(v) A u for v (n, Q) and u (M, Q), column by column."""
        return self._rmatvec(NORMAL, v, u)

    def quadratic_forms(self, L):
        """Return |L' a|^2 (n,) for the rows a of A and lower triangular L (M, M)."""
        n, out = len(self.lists), np.empty(len(self.lists))
        arrays = self.lists, self.weights, L[None], np.empty((self.n_threads, len(L)))
        threads.run_in_threads(quadratic_rows, self.n_threads, n, *arrays, out)
        return out

    def weighted_gram(self, w):
        """Return A' diag(w) A (M, M)."""
        M, out = self.n_columns, np.empty((self.n_columns, self.n_columns))
        arrays = self.lists, self.weights, np.ascontiguousarray(w)
        threads.run_in_threads(weighted_gram_rows, self.n_threads, M, *arrays, out)
        return out

    def solve(self, u):
        """Return (A' A)^-1 u for u (M, k), if A is triangular; see `solve_vector`."""
        k = u.shape[1]
        if k >= LEAST_GROUPED:
            u = in_groups(u)
            self._run(solve_groups, len(u), u, scratch(len(u)))
            return out_of_groups(u, k)
        out = np.array(u.T, order="C")
        self._run(solve_columns, k, out)
        return out.T

    def _rmatvec(self, kind, v, u):
        k = v.shape[1]
        if k >= LEAST_GROUPED:
            v = in_groups(v)
            u = in_groups(u) if kind == NORMAL else v
            n_parts = max(1, MAX_ROW_PARTS // len(v))
            partial = np.empty((n_parts, len(v), self.n_columns, BLOCK))
            products = scratch(n_parts * len(v))
            self._run(rmatvec_groups, len(products), kind, v, u, products, partial)
            return out_of_groups(reduce(np.add, partial), k)
        out = np.empty((k, self.n_columns))
        partial = np.empty((threads.CHUNKS, self.n_columns))
        columns = np.ascontiguousarray(v.T), np.ascontiguousarray(u.T)
        for *vectors, result in zip(*columns, out, strict=True):
            self._run(rmatvec_column, threads.CHUNKS, kind, *vectors, partial, result)
        return np.ascontiguousarray(out.T)

    def _run(self, function, n_tasks, *arguments):
        """Call a function whose loop over `prange` has so many tasks."""
        work = MICROSECONDS_PER_ENTRY * self.lists.size
        n_threads = threads.threads_for(work, min(self.n_threads, n_tasks))
        with threads.parallel_region(n_threads) as variant:
            variant(function)(self.lists, self.weights, *arguments)
