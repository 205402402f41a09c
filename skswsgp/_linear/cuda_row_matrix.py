"""Kernels of products with sparse rows on a GPU; loops only, no formula.

A warp adds up a row of A, or what stands in a column, in the order of the rows: sums
repeat to the bit.


----

Sparse rows on the device, for the systems of the natural solver.
"""

import numpy as np
from scipy.sparse import csr_matrix

from skswsgp._compiled import cuda_runtime
from skswsgp._compiled.cuda_arrays import empty, send_array
from skswsgp._compiled.cuda_compiler import compile_kernels, kernel
from skswsgp._compiled.cuda_runtime import cuda
from skswsgp._compiled.team import team_range, team_rank, team_sum
from skswsgp._linear.row_matrix import rmatvec_term, row_product, squared_row_product

LEAST_ENTRIES = 1_000_000  # entries; products with fewer take a core a millisecond
MAX_BLOCKS = 4096  # of a launch, at most; each takes a row or a column at a time
WHAT = "the rows of a system"


@kernel
def matvec_kernel(lists, weights, squares, u, factor, out):
    """out (n,) = A u, or A^2 u, times `factor` (n,) if that is not empty."""
    lane, _ = team_rank()
    for i in range(cuda.blockIdx.x, lists.shape[0], cuda.gridDim.x):
        if squares:
            value = squared_row_product(lists, weights, i, u)
        else:
            value = row_product(lists, weights, i, u)
        if lane == 0:
            out[i] = value * factor[i] if factor.shape[0] else value


@kernel
def rmatvec_kernel(starts, entries, weights, squares, v, out):
    """out (M,) = A' v, or A^2' v; entries[starts[j] : starts[j + 1]] make column j."""
    lane, _ = team_rank()
    H = weights.shape[1]
    for j in range(cuda.blockIdx.x, out.shape[0], cuda.gridDim.x):
        value = 0.0
        for k in team_range(starts[j], starts[j + 1]):
            i, h = entries[k] // H, entries[k] % H
            value += rmatvec_term(v[i], weights[i, h], squares)
        value = team_sum(value)
        if lane == 0:
            out[j] = value


def place_matrix(rows, holders):
    """Return `ListedRows` with their products on the device, if that is worth it.

    The set `holders` gets what holds memory there until its `close`. Without room the
    rows stay where they are.
    """
    cuda_runtime.collect()
    entry = rows.lists.itemsize + rows.weights.itemsize + position_dtype(rows).itemsize
    fits = entry * rows.lists.size <= cuda_runtime.budget("sparse matrices")
    if rows.lists.size < LEAST_ENTRIES or not fits:
        return rows
    held = DeviceRowMatrix(rows, holders)
    try:
        held.send()
    except MemoryError:
        held.close()
        return rows
    return held


def position_dtype(rows):
    """Return the integers that tell an entry of the rows by its place."""
    small = rows.lists.size < 2**31
    return np.dtype(np.int32 if small else np.int64)


class DeviceRowMatrix:
    """Products of `ListedRows` with vectors of the host, which get the results.

    What asks for all of S, or for one unknown after the other, is left to the CPU.
    """

    def __init__(self, rows, holders):
        self.host, self._holders = rows, holders
        self.close()
        holders.add(self)

    def send(self):
        """Send the rows, and which entries make each column."""
        rows, (n, H) = self.host, self.host.lists.shape
        places = np.arange(n * H, dtype=position_dtype(rows))
        starts = np.arange(0, n * H + 1, H)
        by_row = csr_matrix((places, rows.lists.ravel(), starts), (n, rows.n_columns))
        columns = by_row.tocsc()
        self._lists = send_array(rows.lists, WHAT)
        self._weights = send_array(rows.weights, WHAT)
        self._entries = send_array(columns.data, WHAT)
        self._starts = send_array(columns.indptr.astype(np.int64), WHAT)
        self._nothing = send_array(np.zeros(0), WHAT)

    def close(self):
        """Give the memory back; products are at an end."""
        self._lists = self._weights = self._entries = self._starts = None
        self._nothing = None

    def scaled(self, factor):
        """Return the same with all entries times `factor`."""
        return place_matrix(self.host.scaled(factor), self._holders)

    def matvec(self, u, squares=False):
        """Return A u for u (M, Q), or A^2 u."""
        out = np.empty((u.shape[1], len(self.host.lists)))
        for column, result in zip(u.T, out, strict=True):
            self._multiply(column, squares, self._nothing).copy_to_host(result)
        return out.T

    def rmatvec(self, v, squares=False):
        """Return A' v for v (n, Q), or A^2' v."""
        out = np.empty((v.shape[1], self.host.n_columns))
        for column, result in zip(v.T, out, strict=True):
            self._pull(send_vector(column), squares).copy_to_host(result)
        return np.ascontiguousarray(out.T)

    def normal_matvec(self, v, u):
        """Return A' diag(v) A u for v (n, Q) and u (M, Q), by columns."""
        out = np.empty((v.shape[1], self.host.n_columns))
        for factor, column, result in zip(v.T, u.T, out, strict=True):
            image = self._multiply(column, False, send_vector(factor))
            self._pull(image, False).copy_to_host(result)
        return np.ascontiguousarray(out.T)

    def quadratic_forms(self, L):
        """Return |L' a|^2 (n,) for the rows a of A and lower triangular L (M, M)."""
        return self.host.quadratic_forms(L)

    def weighted_gram(self, w):
        """Return A' diag(w) A (M, M)."""
        return self.host.weighted_gram(w)

    def solve(self, u):
        """Return (A' A)^-1 u, one unknown after the other."""
        return self.host.solve(u)

    def _multiply(self, u, squares, factor):
        """Return A u, or A^2 u, times a factor, on the device."""
        n, u = len(self.host.lists), send_vector(u)
        out = empty(n, np.float64, WHAT)
        launch = matvec_kernel[min(n, MAX_BLOCKS), cuda_runtime.WARP]
        launch(self._lists, self._weights, squares, u, factor, out)
        return out

    def _pull(self, v, squares):
        """Return A' v, or A^2' v, on the device, as v is."""
        M = self.host.n_columns
        out = empty(M, np.float64, WHAT)
        launch = rmatvec_kernel[min(M, MAX_BLOCKS), cuda_runtime.WARP]
        launch(self._starts, self._entries, self._weights, squares, v, out)
        return out


def send_vector(u):
    """Return a vector on the device."""
    return send_array(np.ascontiguousarray(u), WHAT)


compile_kernels(__name__)
