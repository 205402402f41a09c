"""Sparse row matrices on a GPU, for the systems of the natural solver.

A thread adds up a row or a column of A in the order of its entries.
"""

import numpy as np
from scipy.sparse import csr_matrix

from skswsgp._linear.row_matrix import rmatvec_term, row_product
from skswsgp.cuda.compiler import body

LEAST_ENTRIES = 1_000_000  # entries; a product with fewer takes a core a millisecond


@body
def multiply_row(i, lists, weights, squares, u, out):
    """Set entry i of out (k, n) = A u or A^2 u, for u (k, M), in row-major order."""
    n = lists.shape[0]
    q, row = i // n, i % n
    out[q, row] = row_product(lists, weights, squares, row, u[q])


@body
def multiply_column(i, starts, entries, weights, squares, v, out):
    """Set entry i of out (k, M) = A' v or A^2' v, for v (k, n), in row-major order.

    Column j has the entries with flat indices entries[starts[j] : starts[j + 1]].
    """
    M, H = out.shape[1], weights.shape[1]
    q, j = i // M, i % M
    total = 0.0
    for k in range(starts[j], starts[j + 1]):
        row, h = entries[k] // H, entries[k] % H
        total += rmatvec_term(v[q, row], weights[row, h], squares)
    out[q, j] = total


def place_matrix(device, rows, holders):
    """Return a `SparseRowMatrix` as a `DeviceRowMatrix` where that is worth it.

    Small matrices, and those without enough memory on the device, are returned as they
    are. The set `holders` gets the matrix that holds memory until its `close`.
    """
    entry = rows.lists.itemsize + rows.weights.itemsize + index_dtype(rows).itemsize
    fits = entry * rows.lists.size <= device.budget("matrices")
    if rows.lists.size < LEAST_ENTRIES or not fits:
        return rows
    placed = DeviceRowMatrix(device, rows, holders)
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

    def __init__(self, device, rows, holders):
        self.device, self.host, self._holders = device, rows, holders
        self.close()
        holders.add(self)

    def send(self):
        """Send the rows and the entries of each column to the device."""
        with self.device.room_for("the rows of a system"):
            self._send_rows()

    def _send_rows(self):
        rows, (n, H) = self.host, self.host.lists.shape
        indices = np.arange(n * H, dtype=index_dtype(rows))
        starts = np.arange(0, n * H + 1, H)
        by_row = csr_matrix((indices, rows.lists.ravel(), starts), (n, rows.n_columns))
        columns = by_row.tocsc()
        # Neighbouring threads have neighbouring rows, so these are stored by columns
        by_columns = (np.asfortranarray(a) for a in (rows.lists, rows.weights))
        self._lists, self._weights = map(self.device.send, by_columns)
        self._entries = self.device.send(columns.data)
        self._starts = self.device.send(columns.indptr.astype(np.int64))

    def close(self):
        """Free the memory on the device; the matrix has no more products."""
        self._lists = self._weights = self._entries = self._starts = None

    def scaled(self, factor):
        return place_matrix(self.device, self.host.scaled(factor), self._holders)

    def matvec(self, u, squares=False):
        return self._fetch(self._matvec(self._send(u), squares))

    def rmatvec(self, v, squares=False):
        return self._fetch(self._rmatvec(self._send(v), squares))

    def normal_matvec(self, v, u):
        image = self._send(v) * self._matvec(self._send(u), False)
        return self._fetch(self._rmatvec(image, False))

    def __getattr__(self, name):
        """Leave everything else to the CPU."""
        return getattr(self.host, name)

    def _send(self, u):
        """Return columns u (n, k) of the host as rows (k, n) on the device."""
        with self.device.room_for("vectors of a system"):
            return self.device.send(np.array(u.T, np.float64, order="C"))

    def _fetch(self, out):
        """Return rows (k, n) of the device as columns (n, k) on the host."""
        with self.device.room_for("vectors of a system"):
            return np.ascontiguousarray(self.device.fetch(out).T)

    def _matvec(self, u, squares):
        """Return A u, or A^2 u, for u (k, M) on the device, (k, n)."""
        with self.device.room_for("the rows of a system"):
            out = self.device.xp.empty((len(u), len(self.host.lists)))
            given = self._lists, self._weights, squares, u, out
            self.device.prepare(multiply_row, out.size, *given)()
        return out

    def _rmatvec(self, v, squares):
        """Return A' v, or A^2' v, for v (k, n) on the device, (k, M)."""
        with self.device.room_for("the rows of a system"):
            out = self.device.xp.empty((len(v), self.host.n_columns))
            given = self._starts, self._entries, self._weights, squares, v, out
            self.device.prepare(multiply_column, out.size, *given)()
        return out
