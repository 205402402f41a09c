"""Sparse row matrices on a GPU, for the systems of the natural solver.

A warp adds up a row or a column of A in the order of its entries, so that results
repeat to the bit.
"""

import numpy as np
from scipy.sparse import csr_matrix

from skswsgp._compiled.team import team_range, team_rank, team_sum
from skswsgp._linear.row_matrix import rmatvec_term, row_product
from skswsgp.cuda import runtime
from skswsgp.cuda.arrays import empty, send_array
from skswsgp.cuda.compiler import compile_kernels, kernel
from skswsgp.cuda.runtime import MAX_BLOCKS, cuda

LEAST_ENTRIES = 1_000_000  # entries; a product with fewer takes a core a millisecond
WHAT = "the rows of a system"  # name of the arrays in errors


@kernel
def matvec_kernel(lists, weights, squares, u, factor, out):
    """Set out (n,) = A u, or A^2 u if `squares`, times `factor` (n,) if not empty."""
    rank, _ = team_rank()
    for i in range(cuda.blockIdx.x, lists.shape[0], cuda.gridDim.x):
        value = row_product(lists, weights, squares, i, u)
        if rank == 0:
            out[i] = value * factor[i] if factor.shape[0] else value


@kernel
def rmatvec_kernel(starts, entries, weights, squares, v, out):
    """Set out (M,) = A' v, or A^2' v if `squares`.

    Column j consists of the entries with the flat indices
    entries[starts[j] : starts[j + 1]].
    """
    rank, _ = team_rank()
    H = weights.shape[1]
    for j in range(cuda.blockIdx.x, out.shape[0], cuda.gridDim.x):
        value = 0.0
        for k in team_range(starts[j], starts[j + 1]):
            i, h = entries[k] // H, entries[k] % H
            value += rmatvec_term(v[i], weights[i, h], squares)
        value = team_sum(value)
        if rank == 0:
            out[j] = value


def place_matrix(rows, holders):
    """Return a `SparseRowMatrix` as a `DeviceRowMatrix` where that is worth it.

    Small matrices, and those without enough memory on the device, are returned as they
    are. The set `holders` gets the matrix that holds memory until its `close`.
    """
    runtime.collect()
    entry = rows.lists.itemsize + rows.weights.itemsize + index_dtype(rows).itemsize
    fits = entry * rows.lists.size <= runtime.budget("sparse matrices")
    if rows.lists.size < LEAST_ENTRIES or not fits:
        return rows
    placed = DeviceRowMatrix(rows, holders)
    try:
        placed.send()
    except MemoryError:
        placed.close()
        return rows
    return placed


def index_dtype(rows):
    """Return the integer type of flat indices of the entries of a matrix."""
    return np.dtype(np.int32 if rows.lists.size < 2**31 else np.int64)


class DeviceRowMatrix:
    """A `SparseRowMatrix` on a GPU, whose products take and return arrays of the host.

    Products for a full S and triangular solves are left to the CPU.
    """

    def __init__(self, rows, holders):
        self.host, self._holders = rows, holders
        self.close()
        holders.add(self)

    def send(self):
        """Send the rows and the entries of each column to the device."""
        rows, (n, H) = self.host, self.host.lists.shape
        indices = np.arange(n * H, dtype=index_dtype(rows))
        starts = np.arange(0, n * H + 1, H)
        by_row = csr_matrix((indices, rows.lists.ravel(), starts), (n, rows.n_columns))
        columns = by_row.tocsc()
        self._lists = send_array(rows.lists, WHAT)
        self._weights = send_array(rows.weights, WHAT)
        self._entries = send_array(columns.data, WHAT)
        self._starts = send_array(columns.indptr.astype(np.int64), WHAT)
        self._empty = send_array(np.zeros(0), WHAT)

    def close(self):
        """Free the memory on the device; the matrix has no more products."""
        self._lists = self._weights = self._entries = self._starts = None
        self._empty = None

    def scaled(self, factor):
        return place_matrix(self.host.scaled(factor), self._holders)

    def matvec(self, u, squares=False):
        out = np.empty((u.shape[1], len(self.host.lists)))
        for column, result in zip(u.T, out, strict=True):
            self._matvec(column, squares, self._empty).copy_to_host(result)
        return out.T

    def rmatvec(self, v, squares=False):
        out = np.empty((v.shape[1], self.host.n_columns))
        for column, result in zip(v.T, out, strict=True):
            self._rmatvec(send_vector(column), squares).copy_to_host(result)
        return np.ascontiguousarray(out.T)

    def normal_matvec(self, v, u):
        out = np.empty((v.shape[1], self.host.n_columns))
        for factor, column, result in zip(v.T, u.T, out, strict=True):
            image = self._matvec(column, False, send_vector(factor))
            self._rmatvec(image, False).copy_to_host(result)
        return np.ascontiguousarray(out.T)

    def quadratic_forms(self, L):
        return self.host.quadratic_forms(L)

    def weighted_gram(self, w):
        return self.host.weighted_gram(w)

    def solve(self, u):
        return self.host.solve(u)

    def _matvec(self, u, squares, factor):
        """Return A u, or A^2 u, times a factor; the result stays on the device."""
        n, u = len(self.host.lists), send_vector(u)
        out = empty(n, np.float64, WHAT)
        launch = matvec_kernel[min(n, MAX_BLOCKS), runtime.WARP]
        launch(self._lists, self._weights, squares, u, factor, out)
        return out

    def _rmatvec(self, v, squares):
        """Return A' v, or A^2' v; v and the result stay on the device."""
        M = self.host.n_columns
        out = empty(M, np.float64, WHAT)
        launch = rmatvec_kernel[min(M, MAX_BLOCKS), runtime.WARP]
        launch(self._starts, self._entries, self._weights, squares, v, out)
        return out


def send_vector(u):
    """Return a copy of a vector on the device."""
    return send_array(np.ascontiguousarray(u), WHAT)


compile_kernels(__name__)
