"""The projection of the training rows onto inducing values.

f_i = a_i' u + noise of variance F_i, with a_i = K_w^-1 k_i (eq. 13). The matrix A
(n, M) has the rows a_i. It is stored while the memory budget allows, in float32 if need
be; otherwise each product computes blocks of its rows anew. A row at an inducing point
has its value, so that a_i is a unit vector.
"""

import copy

import numpy as np

from skswsgp._compiled.linalg import RELATIVE_FLOOR, require_finite
from skswsgp._compiled.threads import index_blocks, rows_in_seconds
from skswsgp._linear.all_points import AllPoints
from skswsgp._linear.row_matrix import DenseMatrix, SelectionMatrix, SparseRowMatrix


class Projection:
    """The matrix A and the variances F of the training rows.

    For H < M the weights come from the engine, and for H = M, or if `points` are given,
    from `AllPoints`. `kernel` is the kernel object of the model, `lookup` the method of
    a `NeighborTracker`, and `memory_budget` the bytes that A may take.

    F (n,) holds the variances of f_i given u, positive. `stored` is A as one of the
    matrices of this package, or None if its rows are computed anew for each product.
    """

    def __init__(self, engine, kernel, data, lookup, memory_budget, points=None):
        self.engine, self.kernel, self.data, self.lookup = engine, kernel, data, lookup
        M, n = len(engine.model.Z), data.n_rows
        self.shape = n, M
        jitter = absolute_jitter(engine.model, kernel)
        # without a prior variance values at points are jitter alone
        self.at = data.at if np.any(kernel.diag(engine.model.Z)) else None
        if self.at is not None:
            self.F = np.full(n, RELATIVE_FLOOR * jitter)
            self.stored = SelectionMatrix(self.at, M)
            return
        if points is None and engine.all_inducing is not None:
            points = AllPoints(engine.model, engine.n_threads)
        self._all_points, self._dense = points, points is not None
        self.F = np.empty(n)
        self.stored = self._allocate(memory_budget)
        for index in index_blocks(n, self._rows_at_once()):
            rows, variance = self.compute_rows(index)
            require_finite(rows.A if self._dense else rows.weights)
            self.F[index] = np.maximum(variance, RELATIVE_FLOOR * jitter)
            if self.stored is not None:
                for array, part in zip(self.stored, rows, strict=True):
                    if isinstance(array, np.ndarray):
                        array[index] = part
        if isinstance(self.stored, SparseRowMatrix):
            self.stored = engine.place_matrix(self.stored)

    def _allocate(self, memory_budget):
        """Return an uninitialised A if it fits into the budget, or None."""
        (n, M), H = self.shape, self.engine.n_neighbors
        if self._dense:
            return DenseMatrix(np.empty((n, M))) if 8 * n * M <= memory_budget else None
        column = np.dtype(np.int32)
        for entry in (self.engine.model.Z.dtype, np.dtype(np.float32)):
            if (column.itemsize + entry.itemsize) * n * H <= memory_budget:
                return self._sparse(np.empty((n, H), column), np.empty((n, H), entry))
        return None

    def _sparse(self, lists, weights):
        return SparseRowMatrix(lists, weights, self.shape[1], self.engine.n_threads)

    def scaled(self, factor):
        """Return the projection for `factor` times the kernel, which changes F only."""
        other = copy.copy(self)
        other.F = factor * self.F
        return other

    def matvec(self, u, squares=False):
        """Return A u (n, Q) for u (M, Q), or A^2 u with the squared entries of A."""
        return stack(rows.matvec(u, squares) for _, rows in self._blocks())

    def quadratic_forms(self, L):
        """Return |L' a_i|^2 (n,) for lower triangular L (M, M)."""
        return stack(rows.quadratic_forms(L) for _, rows in self._blocks())

    def rmatvec(self, w, squares=False):
        """Return A' w (M, Q) for w (n, Q), or A^2' w with the squared entries of A."""
        return sum(rows.rmatvec(w[index], squares) for index, rows in self._blocks())

    def normal_matvec(self, w, u):
        """Return A' diag(w) A u (M, Q) for w (n, Q) and u (M, Q), column by column."""
        return sum(rows.normal_matvec(w[index], u) for index, rows in self._blocks())

    def weighted_gram(self, w):
        """Return A' diag(w) A (M, M) for w (n,)."""
        return sum(rows.weighted_gram(w[index]) for index, rows in self._blocks())

    def _blocks(self):
        """Return or yield (index, rows of A) for blocks of the rows."""
        if self.stored is not None:
            return [(slice(None), self.stored)]
        blocks = index_blocks(self.shape[0], self._rows_at_once())
        return ((i, self.compute_rows(i)[0]) for i in blocks)

    def _rows_at_once(self):
        return rows_in_seconds(self.engine.n_neighbors, self.engine.n_threads)

    def compute_rows(self, index):
        """Return some rows of A, and of F before its lower limit is applied."""
        if self.at is not None:
            return SelectionMatrix(self.at[index], self.shape[1]), self.F[index]
        X = self.data.block(index)[0]
        if self._dense:
            return self._all_points.weights(X)
        lists = self.lookup(index, X)
        weights, variance = self.engine.conditional_weights(X, lists)
        return self._sparse(lists, weights), variance


def stack(parts):
    """Return results for blocks of rows as one array in row-major order."""
    parts = list(parts)
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return np.ascontiguousarray(whole)


def absolute_jitter(model, kernel):
    """Return the jitter of a model as a variance, which the diagonal of K gets."""
    return model.jitter * mean_prior_variance(kernel, model.Z.astype(np.float64))


def mean_prior_variance(kernel, Z):
    """Return the mean prior variance of rows of Z, the unit of jitter; 1 if zero."""
    mean = float(np.mean(kernel.diag(Z), dtype=np.float64))
    require_finite(mean)
    return mean if mean > 0.0 else 1.0
