"""Sparse rows on the device, for the systems of the natural solver."""

import copy

import numpy as np
from scipy.sparse import csr_matrix

from skswsgp import _cuda
from skswsgp import _rows_cuda as kernels
from skswsgp._device_arrays import empty, send_array

MEMORY = 0.25  # of the free memory, which rows may take
BLOCKS = 4096  # of a launch, at most; each takes a row or a column at a time
WHAT = "the rows of a system"


def hold(rows, holders):
    """Return `ListedRows` with their products on the device, if there is room.

    The set `holders` gets what holds memory there until its `close`.
    """
    entry = rows.lists.itemsize + rows.weights.itemsize + np.dtype(np.int64).itemsize
    if entry * rows.lists.size > MEMORY * _cuda.free_memory():
        return rows
    return DeviceRows(rows, holders)


class DeviceRows:
    """Products of `ListedRows` with vectors of the host, which get the results.

    What asks for all of S, or for one unknown after the other, is left to the CPU.
    """

    def __init__(self, rows, holders):
        n, H = rows.lists.shape
        places = np.arange(n * H), rows.lists.ravel(), np.arange(0, n * H + 1, H)
        columns = csr_matrix(places, shape=(n, rows.n_columns)).tocsc()
        self.host, self._holders = rows, holders
        self._lists = send_array(rows.lists, WHAT)
        self._weights = send_array(rows.weights, WHAT)
        self._entries = send_array(columns.data, WHAT)
        self._starts = send_array(columns.indptr.astype(np.int64), WHAT)
        self._nothing = send_array(np.zeros(0), WHAT)
        holders.add(self)

    def scaled(self, factor):
        """Return the same with all entries times `factor`."""
        other = copy.copy(self)
        other.host = self.host.scaled(factor)
        other._weights = send_array(other.host.weights, WHAT)
        self._holders.add(other)
        return other

    def close(self):
        """Give the memory back; products are at an end."""
        self._lists = self._weights = self._entries = self._starts = None
        self._nothing = None

    def multiply(self, u, squares=False):
        """Return A u for u (M, Q), or A^2 u."""
        images = [self._multiply(column, squares, self._nothing) for column in u.T]
        return np.stack([image.copy_to_host() for image in images], axis=1)

    def pull(self, v, squares=False):
        """Return A' v for v (n, Q), or A^2' v."""
        columns = (send_array(column, WHAT) for column in np.ascontiguousarray(v.T))
        return np.stack([self._pull(column, squares) for column in columns], axis=1)

    def pull_product(self, v, u):
        """Return A' diag(v) A u for v (n, Q) and u (M, Q), by columns."""
        factors = [send_array(column, WHAT) for column in np.ascontiguousarray(v.T)]
        images = map(self._multiply, u.T, [False] * len(factors), factors)
        return np.stack([self._pull(image, False) for image in images], axis=1)

    def quadratic(self, L):
        """Return |L' a|^2 (n,) for the rows a of A and lower triangular L (M, M)."""
        return self.host.quadratic(L)

    def gram(self, w):
        """Return A' diag(w) A (M, M)."""
        return self.host.gram(w)

    def solve(self, u):
        """Return (A' A)^-1 u, one unknown after the other."""
        return self.host.solve(u)

    def _multiply(self, u, squares, factor):
        """Return A u, or A^2 u, times a factor, on the device."""
        n = len(self.host.lists)
        out = empty(n, np.float64, WHAT)
        u = send_array(np.ascontiguousarray(u), WHAT)
        launch = kernels.multiply[min(n, BLOCKS), _cuda.WARP]
        launch(self._lists, self._weights, squares, u, factor, out)
        return out

    def _pull(self, v, squares):
        """Return A' v, or A^2' v, of v on the device."""
        M = self.host.n_columns
        out = empty(M, np.float64, WHAT)
        launch = kernels.pull[min(M, BLOCKS), _cuda.WARP]
        launch(self._starts, self._entries, self._weights, squares, v, out)
        return out.copy_to_host()
