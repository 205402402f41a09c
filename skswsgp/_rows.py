"""What each row of data says of inducing values: sparse rows of weights.

f_i = a_i' u + noise of variance F_i, a_i = K_w^-1 k of eq. 13. The matrix A (n, M) of
these rows is kept while the memory budget allows, in float32 if need be; beyond, its
products are made from blocks of rows that are weighed anew each time.
"""

import copy
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from skswsgp import _listed as loops
from skswsgp._engine_cpu import CHUNKS
from skswsgp._jit import launch
from skswsgp._model import cholesky, index_blocks, mean_variance, require_finite
from skswsgp._neighbors import memory_budget
from skswsgp._point import TINY


class DenseRows(NamedTuple):
    """Rows of A that hold every column."""

    A: np.ndarray  # (n, M)

    def multiply(self, u, squares=False):
        """Return A u for u (M, Q), or A^2 u, the squares taken of each entry."""
        return (self.A**2 if squares else self.A) @ u

    def pull(self, v, squares=False):
        """Return A' v for v (n, Q), or A^2' v."""
        return (self.A**2 if squares else self.A).T @ v

    def pull_product(self, v, u):
        """Return A' diag(v) A u for v (n, Q) and u (M, Q), by columns."""
        return self.A.T @ (v * (self.A @ u))

    def quadratic(self, L):
        """Return |L' a|^2 (n,) for the rows a of A and L (M, M)."""
        parts = [self.A[index] @ L for index in index_blocks(len(self.A))]
        return np.concatenate([np.sum(part**2, axis=1) for part in parts])

    def gram(self, w):
        """Return A' diag(w) A (M, M)."""
        return self.A.T @ (w[:, None] * self.A)


class ListedRows(NamedTuple):
    """Rows of A that hold H columns each."""

    lists: np.ndarray  # (n, H) int32 columns
    weights: np.ndarray  # (n, H) entries
    n_columns: int  # M
    n_threads: int

    def scaled(self, factor):
        """Return the same with all entries times `factor`."""
        return self._replace(weights=factor * self.weights)

    def multiply(self, u, squares=False):
        """Return A u for u (M, Q), or A^2 u."""
        out = np.empty((u.shape[1], len(self.lists)))
        with launch(self.n_threads):
            for q, column in enumerate(np.ascontiguousarray(u.T)):
                loops.multiply(self.lists, self.weights, squares, column, out[q])
        return out.T

    def pull(self, v, squares=False):
        """Return A' v for v (n, Q), or A^2' v."""
        return self._pull(loops.SQUARES if squares else loops.PLAIN, v, v)

    def pull_product(self, v, u):
        """Return A' diag(v) A u for v (n, Q) and u (M, Q), by columns."""
        return self._pull(loops.PRODUCT, v, u)

    def quadratic(self, L):
        """Return |L' a|^2 (n,) for the rows a of A and lower triangular L (M, M)."""
        return loops.quadratic(self.lists, self.weights, L, self.n_threads)

    def gram(self, w):
        """Return A' diag(w) A as an array (M, M)."""
        return loops.gram(self.lists, self.weights, w, self.n_columns, self.n_threads)

    def solve(self, u):
        """Return (A' A)^-1 u for u (M, k), if A is triangular as `solve_one` has it."""
        out = np.array(u.T, order="C")
        with launch(min(self.n_threads, len(out))):  # a column is one thread's work
            loops.solve(self.lists, self.weights, out)
        return out.T

    def _pull(self, kind, v, u):
        out = np.empty((v.shape[1], self.n_columns))
        total = np.empty((CHUNKS, self.n_columns))
        columns = np.ascontiguousarray(v.T), np.ascontiguousarray(u.T)
        with launch(self.n_threads):
            for one, other, result in zip(*columns, out, strict=True):
                loops.pull(self.lists, self.weights, kind, one, other, total, result)
        return np.ascontiguousarray(out.T)


class RowWeights:
    """A and F, and the products that a solver takes.

    `lookup` returns the lists of neighbours of some rows, as that of `Neighbors` does.

    Attributes
    ----------
    F : ndarray of shape (n,)
        Variance of f_i given u, positive.
    kept : DenseRows, ListedRows, what the engine holds in their place, or None
        All rows, or None where they are made anew.
    """

    def __init__(self, engine, kernel, data, lookup):
        self.engine, self.kernel, self.data = engine, kernel, data
        M, n = len(engine.model.Z), data.n_rows
        self.shape = n, M
        self.lookup = lookup
        Z = engine.model.Z.astype(np.float64)
        self.shift = engine.model.jitter * mean_variance(kernel, Z)
        self.root = cholesky(kernel(Z), self.shift) if engine.shared else None
        self.F = np.empty(n)
        self.kept = self._allocate()
        for index in index_blocks(n):
            rows, residual = self._weigh(index)
            require_finite(rows.A if engine.shared else rows.weights)
            self.F[index] = np.maximum(residual, TINY * self.shift)
            if self.kept is not None:
                for array, part in zip(self.kept, rows, strict=True):
                    if isinstance(array, np.ndarray):
                        array[index] = part
        if isinstance(self.kept, ListedRows):
            self.kept = engine.hold(self.kept)

    def _allocate(self):
        """Return empty rows for all data if they fit into the budget, or None."""
        n, H = self.shape[0], self.engine.n_active
        dtype = np.dtype(self.engine.model.Z.dtype)
        if self.engine.shared:
            fits = 8 * n * H <= memory_budget()
            return DenseRows(np.empty((n, H))) if fits else None
        column = np.dtype(np.int32)
        for entry in (dtype, np.dtype(np.float32)):
            if (column.itemsize + entry.itemsize) * n * H <= memory_budget():
                lists, weights = np.empty((n, H), column), np.empty((n, H), entry)
                return self._listed(lists, weights)
        return None

    def _listed(self, lists, weights):
        return ListedRows(lists, weights, self.shape[1], self.engine.n_threads)

    def scaled(self, factor):
        """Return the same for `factor` times the kernel, which changes F only."""
        other = copy.copy(self)
        other.F = factor * self.F
        return other

    def multiply(self, u):
        """Return A u (n, Q) for u (M, Q)."""
        return self._by_row(lambda rows: rows.multiply(u), u)

    def multiply_squared(self, s):
        """Return A^2 s, the squares taken of each entry."""
        return self._by_row(lambda rows: rows.multiply(s, squares=True), s)

    def quadratic(self, L):
        """Return |L' a_i|^2 (n,) for lower triangular L (M, M)."""
        return self._by_row(lambda rows: rows.quadratic(L), self.F)

    def pull(self, w):
        """Return A' w (M, Q) for w (n, Q)."""
        return sum(rows.pull(w[index]) for index, rows in self._blocks())

    def pull_squared(self, w):
        """Return A^2' w (M, Q), the squares taken of each entry."""
        return sum(rows.pull(w[index], squares=True) for index, rows in self._blocks())

    def pull_product(self, w, u):
        """Return A' diag(w) A u (M, Q) by columns of w (n, Q) and u (M, Q).

        In one pass over the rows.
        """
        return sum(rows.pull_product(w[index], u) for index, rows in self._blocks())

    def gram(self, w):
        """Return A' diag(w) A as an array (M, M)."""
        return sum(rows.gram(w[index]) for index, rows in self._blocks())

    def _by_row(self, function, like):
        out = np.empty((self.shape[0], *like.shape[1:]))
        for index, rows in self._blocks():
            out[index] = function(rows)
        return out

    def _blocks(self):
        """Return or yield (index, rows of A) of blocks of rows."""
        if self.kept is not None:
            return [(slice(None), self.kept)]
        return ((i, self._weigh(i)[0]) for i in index_blocks(self.shape[0]))

    def _weigh(self, index):
        """Return the rows of A and of F of some rows of the data."""
        X = self.data.block(index)[0]
        if self.root is None:
            lists = self.lookup(index, X)
            weights, residual = self.engine.regress(X, lists)
            return self._listed(lists, weights), residual
        Z = self.engine.model.Z.astype(np.float64)
        half = solve_triangular(self.root, self.kernel(Z, X), lower=True)  # (M, n)
        residual = self.kernel.diag(X) - np.sum(half**2, axis=0)
        weights = solve_triangular(self.root, half, lower=True, trans="T").T
        return DenseRows(weights), residual
