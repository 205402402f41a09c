"""What each row of data says of inducing values: sparse rows of weights.

f_i = a_i' u + noise of variance F_i, a_i = K_w^-1 k of eq. 13. The matrix A (n, M) of
these rows is kept while the memory budget allows, in float32 if need be; beyond, its
products are made from blocks of rows that are weighed anew each time.
"""

import copy

import numpy as np
from scipy.linalg import solve_triangular

from skswsgp._compiled.linalg import RELATIVE_FLOOR, dense_cholesky, require_finite
from skswsgp._compiled.threads import index_blocks
from skswsgp._linear.row_matrix import DenseMatrix, SparseRowMatrix


class Projection:
    """A and F, and the products that a solver takes.

    `lookup` returns the lists of neighbours of some rows, as that of `Neighbors` does.

    Attributes
    ----------
    F : ndarray of shape (n,)
        Variance of f_i given u, positive.
    kept : DenseRows, ListedRows, what the engine holds in their place, or None
        All rows, or None where they are made anew.
    """

    def __init__(self, engine, kernel, data, lookup, memory):
        self.engine, self.kernel, self.data = engine, kernel, data
        M, n = len(engine.model.Z), data.n_rows
        self.shape = n, M
        self.lookup, self.memory = lookup, memory
        Z = engine.model.Z.astype(np.float64)
        self.shift = engine.model.jitter * mean_prior_variance(kernel, Z)
        self.dense = engine.all_inducing is not None
        self.root = dense_cholesky(kernel(Z), self.shift) if self.dense else None
        self.F = np.empty(n)
        self.stored = self._allocate()
        for index in index_blocks(n):
            rows, residual = self._weigh(index)
            require_finite(rows.A if self.dense else rows.weights)
            self.F[index] = np.maximum(residual, RELATIVE_FLOOR * self.shift)
            if self.stored is not None:
                for array, part in zip(self.stored, rows, strict=True):
                    if isinstance(array, np.ndarray):
                        array[index] = part
        if isinstance(self.stored, SparseRowMatrix):
            self.stored = engine.place_matrix(self.stored)

    def _allocate(self):
        """Return empty rows for all data if they fit into the budget, or None."""
        n, H = self.shape[0], self.engine.n_neighbors
        dtype = np.dtype(self.engine.model.Z.dtype)
        if self.dense:
            fits = 8 * n * H <= self.memory
            return DenseMatrix(np.empty((n, H))) if fits else None
        column = np.dtype(np.int32)
        for entry in (dtype, np.dtype(np.float32)):
            if (column.itemsize + entry.itemsize) * n * H <= self.memory:
                lists, weights = np.empty((n, H), column), np.empty((n, H), entry)
                return self._listed(lists, weights)
        return None

    def _listed(self, lists, weights):
        return SparseRowMatrix(lists, weights, self.shape[1], self.engine.n_threads)

    def scaled(self, factor):
        """Return the same for `factor` times the kernel, which changes F only."""
        other = copy.copy(self)
        other.F = factor * self.F
        return other

    def matvec(self, u):
        """Return A u (n, Q) for u (M, Q)."""
        return self._by_row(lambda rows: rows.matvec(u), u)

    def squared_matvec(self, s):
        """Return A^2 s, the squares taken of each entry."""
        return self._by_row(lambda rows: rows.matvec(s, squares=True), s)

    def quadratic_forms(self, L):
        """Return |L' a_i|^2 (n,) for lower triangular L (M, M)."""
        return self._by_row(lambda rows: rows.quadratic_forms(L), self.F)

    def rmatvec(self, w):
        """Return A' w (M, Q) for w (n, Q)."""
        return sum(rows.rmatvec(w[index]) for index, rows in self._blocks())

    def squared_rmatvec(self, w):
        """Return A^2' w (M, Q), the squares taken of each entry."""
        return sum(
            rows.rmatvec(w[index], squares=True) for index, rows in self._blocks()
        )

    def normal_matvec(self, w, u):
        """Return A' diag(w) A u (M, Q) by columns of w (n, Q) and u (M, Q).

        In one pass over the rows.
        """
        return sum(rows.normal_matvec(w[index], u) for index, rows in self._blocks())

    def weighted_gram(self, w):
        """Return A' diag(w) A as an array (M, M)."""
        return sum(rows.weighted_gram(w[index]) for index, rows in self._blocks())

    def _by_row(self, function, like):
        out = np.empty((self.shape[0], *like.shape[1:]))
        for index, rows in self._blocks():
            out[index] = function(rows)
        return out

    def _blocks(self):
        """Return or yield (index, rows of A) of blocks of rows."""
        if self.stored is not None:
            return [(slice(None), self.stored)]
        return ((i, self._weigh(i)[0]) for i in index_blocks(self.shape[0]))

    def _weigh(self, index):
        """Return the rows of A and of F of some rows of the data."""
        X = self.data.block(index)[0]
        if self.root is None:
            lists = self.lookup(index, X)
            weights, residual = self.engine.conditional_weights(X, lists)
            return self._listed(lists, weights), residual
        Z = self.engine.model.Z.astype(np.float64)
        half = solve_triangular(self.root, self.kernel(Z, X), lower=True)  # (M, n)
        residual = self.kernel.diag(X) - np.sum(half**2, axis=0)
        weights = solve_triangular(self.root, half, lower=True, trans="T").T
        return DenseMatrix(weights), residual


def mean_prior_variance(kernel, Z):
    """Return the mean prior variance of rows of Z, the unit of jitter; 1 for zero."""
    mean = float(np.mean(kernel.diag(Z), dtype=np.float64))
    require_finite(mean)
    return mean if mean > 0.0 else 1.0
