"""Row matrices A (n, M), dense, sparse or of ones, and their products.

Row i of a sparse matrix holds weights[i, h] in column lists[i, h], h < H. Sums over
rows are taken by chunks, or parts for several columns, whose number does not depend on
the threads, and then in order, so that results do not depend on the number of threads.
"""

from functools import cache, reduce
from typing import NamedTuple

import numba
import numpy as np
from numba import prange
from scipy.linalg import solve_triangular

from skswsgp._compiled import threads, tiles
from skswsgp._compiled.jit import njit, njit_inner, njit_parallel, njit_small
from skswsgp._compiled.pointers import address_of, by_address
from skswsgp._compiled.tiles import BLOCK, WIDE
from skswsgp._point.full_covariance import PANEL_COLUMNS, quadratic_form

MICROSECONDS_PER_ENTRY = 1e-3  # least time of an entry in a product on one core
# Columns from which blocks of BLOCK columns are faster than one column after the other;
# a block takes 1.2 ms where a column takes 0.45 (512,000 entries, one core).
LEAST_IN_BLOCKS = 3
MAX_ROW_PARTS = 4  # parts of the rows that have sums of their own, for eight columns
PLAIN, SQUARES, NORMAL = range(3)  # A' v, A^2' v and A' diag(v) A u
ADD, MATVEC, MATVEC_SQUARES, SOLVE = range(3, 7)  # further tasks of `column_task`


@njit_small
def row_product(lists, weights, squares, i, u):
    """Return the sum of A_ih u_h, or of A_ih^2 u_h, over the columns h of row i."""
    value = 0.0
    for h in range(lists.shape[1]):
        weight = weights[i, h]
        value += (weight * weight if squares else weight) * u[np.uint64(lists[i, h])]
    return value


@njit_small
def rmatvec_term(factor, weight, squares):
    """Return the term of an entry in A' v, or in A^2' v."""
    return factor * weight * weight if squares else factor * weight


@njit_inner
def rmatvec_chunk(lists, weights, kind, v, u, c, partial):
    """Set partial[c] (M,) to the sum over the rows of chunk c; see `run_columns`."""
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


@njit_inner
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


@njit
def quadratic_rows(first, last, t, lists, weights, L, projection, out):
    """Set out[i] = |L' a|^2 for the rows a = A[i] from first to last.

    L is (1, M, M); projection (n_threads, M) is scratch.
    """
    H = lists.shape[1]
    for i in range(first, last):
        row = weights[i : i + 1]
        out[i] = quadratic_form(L, 0, lists[i], H, row, projection[t])


@njit
def weighted_gram_rows(first, last, t, lists, weights, w, out):
    """Set rows first to last of out (M, M) = A' diag(w) A, some of them at a time."""
    for begin in range(first, last, PANEL_COLUMNS):
        end = min(begin + PANEL_COLUMNS, last)
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


@njit
def column_task(kind, task, lists, weights, v, u, partial, out):
    """Do a task of `run_columns`."""
    if kind == SOLVE:
        solve_vector(lists, weights, partial[task])
    elif kind == ADD:
        first, last = threads.chunk_bounds(task, out.shape[0])
        for j in range(first, last):
            out[j] = 0.0
        for c in range(threads.CHUNKS):
            for j in range(first, last):
                out[j] += partial[c, j]
    elif kind >= MATVEC:
        first, last = threads.chunk_bounds(task, lists.shape[0])
        for i in range(first, last):
            out[i] = row_product(lists, weights, kind == MATVEC_SQUARES, i, u)
    else:
        rmatvec_chunk(lists, weights, kind, v, u, task, partial)


@cache
def task_address(dtype):
    """Return the address of `column_task` for the dtype of the entries, by name."""
    column, table = numba.float64[::1], numba.float64[:, ::1]
    matrix = numba.int32[:, ::1], numba.from_dtype(np.dtype(dtype))[:, ::1]
    kinds = numba.int64, numba.int64, *matrix, column, column, table, column
    return address_of(column_task, *kinds)


call_task = by_address(column_task)


@njit_parallel
def run_columns(lists, weights, address, kind, n_tasks, v, u, partial, out):
    """Compute products for one column, by tasks at the address of `column_task`.

    There is a task for each chunk of the rows that sets out (n,) = A u for MATVEC, or
    A^2 u with the squared entries of A for MATVEC_SQUARES, or its part of A' v, A^2' v
    or A' diag(v) A u in partial (CHUNKS, M) for PLAIN, SQUARES or NORMAL. These are
    added up in out (M,) for ADD. For SOLVE there is a task for each row u of `partial`,
    which it replaces by (A' A)^-1 u.
    """
    for each in prange(n_tasks):
        given = kind, np.int64(each), lists, weights, v, u, partial, out
        call_task(address, given)


@njit_small
def gather_row(lists, weights, squares, i, stop, u, sums, t, first, last):
    """Set sums[t, q] = sum_h weights[i, h] u[lists[i, h], q] for first <= q < last.

    0 <= h < stop. Weights are squared if `squares`.
    """
    q = first
    while q + WIDE <= last:
        tiles.gather_wide(lists, weights, squares, i, stop, u, q, sums, t, q)
        q += WIDE
    while q < last:
        tiles.gather_columns(lists, weights, squares, i, stop, u, q, sums, t, q)
        q += BLOCK


@njit_small
def scatter_row(lists, weights, squares, i, stop, out, values, t, first, last):
    """Add weights[i, h] values[t, q] to out[lists[i, h], q]; see `gather_row`."""
    q = first
    while q + WIDE <= last:
        tiles.scatter_wide(lists, weights, squares, i, stop, out, q, values, t, q)
        q += WIDE
    while q < last:
        tiles.scatter_columns(lists, weights, squares, i, stop, out, q, values, t, q)
        q += BLOCK


@njit_small
def slab_bounds(slab, n_slabs, k):
    """Return the first of a slab's share of k columns in blocks, and one past it."""
    blocks = k // BLOCK
    return slab * blocks // n_slabs * BLOCK, (slab + 1) * blocks // n_slabs * BLOCK


@njit_inner
def matvec_rows(lists, weights, squares, u, c, out):
    """Set the rows of chunk c of out (n, k) = A u, or A^2 u, for u (M, k)."""
    n, H = lists.shape
    first, last = threads.chunk_bounds(c, n)
    for i in range(first, last):
        gather_row(lists, weights, squares, i, H, u, out, i, 0, u.shape[1])


@njit_parallel
def matvec_columns(lists, weights, squares, u, out):
    """Set out (n, k) = A u, or A^2 u with squared entries, for u (M, k)."""
    for chunk in prange(threads.CHUNKS):
        matvec_rows(lists, weights, squares, u, np.int64(chunk), out)


@njit_inner
def rmatvec_slab(lists, weights, kind, v, u, part, n_parts, first, last, out, products):
    """Set columns first to last of out (M, k), see `run_columns`, over some rows.

    v is (n, k) and u (M, k); `products` (1, k) is scratch.
    """
    for j in range(out.shape[0]):
        for q in range(first, last):
            out[j, q] = 0.0
    n, H = lists.shape
    squares = kind == SQUARES
    for i in range(part * n // n_parts, (part + 1) * n // n_parts):
        if kind == NORMAL:
            gather_row(lists, weights, False, i, H, u, products, 0, first, last)
            for q in range(first, last):
                products[0, q] *= v[i, q]
            scatter_row(lists, weights, False, i, H, out, products, 0, first, last)
        else:
            scatter_row(lists, weights, squares, i, H, out, v, i, first, last)


@njit_parallel
def rmatvec_columns(lists, weights, kind, v, u, products, partial):
    """Set partial (n_parts, M, k), see `run_columns`, over each part of the rows.

    v is (n, k) and u (M, k); `products` (n_parts n_slabs, k) is scratch.
    """
    n_parts, n_slabs = partial.shape[0], products.shape[0] // partial.shape[0]
    for each in prange(products.shape[0]):
        task = np.int64(each)
        part = task % n_parts
        first, last = slab_bounds(task // n_parts, n_slabs, v.shape[1])
        rmatvec_slab(
            lists, weights, kind, v, u, part, n_parts, first, last, partial[part],
            products[task : task + 1],
        )  # fmt: skip


@njit_inner
def solve_slab(lists, weights, u, first, last, sums):
    """Solve for columns first to last of u (M, k) as `solve_vector` does.

    `sums` (1, k) is scratch.
    """
    H = lists.shape[1] - 1
    for i in range(lists.shape[0] - 1, -1, -1):  # A' y = u; y_i replaces its u
        own, scale = np.uint64(lists[i, H]), 1.0 / weights[i, H]
        for q in range(first, last):
            u[own, q] *= scale
            sums[0, q] = -u[own, q]
        scatter_row(lists, weights, False, i, H, u, sums, 0, first, last)
    for i in range(lists.shape[0]):  # A x = y
        own, scale = np.uint64(lists[i, H]), 1.0 / weights[i, H]
        gather_row(lists, weights, False, i, H, u, sums, 0, first, last)
        for q in range(first, last):
            u[own, q] = (u[own, q] - sums[0, q]) * scale


@njit_parallel
def solve_slabs(lists, weights, u, sums):
    """Replace u (M, k) by (A' A)^-1 u; `sums` (n_slabs, k) is scratch."""
    for each in prange(sums.shape[0]):
        slab = np.int64(each)
        first, last = slab_bounds(slab, sums.shape[0], u.shape[1])
        solve_slab(lists, weights, u, first, last, sums[slab : slab + 1])


def in_blocks(u):
    """Return columns u (n, k) in row-major order, filled with zeros to whole blocks."""
    n, k = u.shape
    if k % BLOCK == 0:
        return np.ascontiguousarray(u, dtype=np.float64)
    out = np.zeros((n, -(-k // BLOCK) * BLOCK))
    out[:, :k] = u
    return out


class DenseMatrix(NamedTuple):
    """A matrix whose rows hold every column, for H = M."""

    A: np.ndarray  # (n, M)

    def scaled(self, factor):
        """Return a copy of the matrix with every entry multiplied by `factor`."""
        return DenseMatrix(factor * self.A)

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

    def solve(self, u):
        """Return (A' A)^-1 u for u (M, k), if A is lower triangular."""
        half = solve_triangular(self.A, u, lower=True, trans="T")
        return solve_triangular(self.A, half, lower=True)


class SelectionMatrix(NamedTuple):
    """A matrix whose rows hold a one each, in some column, and zeros."""

    columns: np.ndarray  # (n,)
    n_columns: int  # M

    def matvec(self, u, squares=False):
        """Return A u (n, Q) for u (M, Q), which is A^2 u as well."""
        return u[self.columns]

    def rmatvec(self, v, squares=False):
        """Return A' v (M, Q) for v (n, Q), which is A^2' v as well."""
        sums = [np.bincount(self.columns, each, self.n_columns) for each in v.T]
        return np.stack(sums, axis=1)

    def normal_matvec(self, v, u):
        """Return A' diag(v) A u for v (n, Q) and u (M, Q), column by column."""
        return self.rmatvec(v) * u

    def quadratic_forms(self, L):
        """Return |L' a|^2 (n,) for the rows a of A and L (M, M)."""
        return np.einsum("jk,jk->j", L, L)[self.columns]

    def weighted_gram(self, w):
        """Return A' diag(w) A (M, M)."""
        return np.diag(self.rmatvec(w[:, None])[:, 0])


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
        if k >= LEAST_IN_BLOCKS:
            u = in_blocks(u)
            out = np.empty((n, u.shape[1]))
            self._run(matvec_columns, threads.CHUNKS, squares, u, out)
            return np.ascontiguousarray(out[:, :k])
        out, kind = np.empty((k, n)), MATVEC_SQUARES if squares else MATVEC
        for column, result in zip(np.array(u.T, float, order="C"), out, strict=True):
            self._run_columns(kind, threads.CHUNKS, column, column, out, result)
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
        how, scratch = (self.n_threads, n), np.empty((self.n_threads, len(L)))
        given = self.lists, self.weights, L[None], scratch, out
        threads.run_in_threads(quadratic_rows, *how, *given)
        return out

    def weighted_gram(self, w):
        """Return A' diag(w) A (M, M)."""
        M, out = self.n_columns, np.empty((self.n_columns, self.n_columns))
        given = self.lists, self.weights, np.ascontiguousarray(w), out
        threads.run_in_threads(weighted_gram_rows, self.n_threads, M, *given)
        return out

    def solve(self, u):
        """Return (A' A)^-1 u for u (M, k), if A is triangular; see `solve_vector`."""
        k = u.shape[1]
        if k >= LEAST_IN_BLOCKS:
            out = in_blocks(u.copy())
            sums = np.empty((self._count_slabs(out), out.shape[1]))
            self._run(solve_slabs, len(sums), out, sums)
            return np.ascontiguousarray(out[:, :k])
        out = np.array(u.T, float, order="C")
        self._run_columns(SOLVE, k, out[0], out[0], out, out[0])
        return out.T

    def _rmatvec(self, kind, v, u):
        k = v.shape[1]
        if k >= LEAST_IN_BLOCKS:
            v = in_blocks(v)
            u = in_blocks(u) if kind == NORMAL else v
            n_parts = max(1, MAX_ROW_PARTS * BLOCK // v.shape[1])
            partial = np.empty((n_parts, self.n_columns, v.shape[1]))
            products = np.empty((n_parts * self._count_slabs(v), v.shape[1]))
            self._run(rmatvec_columns, len(products), kind, v, u, products, partial)
            return np.ascontiguousarray(reduce(np.add, partial)[:, :k])
        out = np.empty((k, self.n_columns))
        partial = np.empty((threads.CHUNKS, self.n_columns))
        columns = (np.array(each.T, float, order="C") for each in (v, u))
        for *vectors, result in zip(*columns, out, strict=True):
            for task in kind, ADD:
                self._run_columns(task, threads.CHUNKS, *vectors, partial, result)
        return np.ascontiguousarray(out.T)

    def _count_slabs(self, u):
        """Return how many parts of the columns of u (n, k) are tasks of their own."""
        blocks = u.shape[1] // BLOCK
        return min(blocks, max(self.n_threads, -(-u.shape[1] // WIDE)))

    def _run_columns(self, kind, n_tasks, *arguments):
        """Call `run_columns`; arrays that a kind does not use are those of others."""
        address = task_address(self.weights.dtype.name)
        self._run(run_columns, n_tasks, address, kind, n_tasks, *arguments)

    def _run(self, function, n_tasks, *arguments):
        """Call a function whose loop over `prange` has so many tasks."""
        work = MICROSECONDS_PER_ENTRY * self.lists.size
        n_threads = threads.threads_for(work, min(self.n_threads, n_tasks))
        with threads.parallel_region(n_threads) as variant:
            variant(function)(self.lists, self.weights, *arguments)
