"""What each row of data says of inducing values: sparse rows of weights.

f_i = a_i' u + noise of variance F_i, a_i = K_w^-1 k of eq. 13. The matrix A (n, M) of
these rows is kept while the memory budget allows; beyond, its products are made from
blocks of rows that are weighed anew each time.
"""

import copy

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_matrix, vstack

from skswsgp._chain import mean_variance, sparse_rows
from skswsgp._model import cholesky, index_blocks, require_finite
from skswsgp._neighbors import memory_budget
from skswsgp._point import TINY

BYTES = 8 + 8 + 4  # of an entry of A: itself, its square, its column


class RowWeights:
    """A and F, and the products that a solver takes.

    `lookup` returns the lists of neighbours of some rows, as that of `Neighbors` does.

    Attributes
    ----------
    F : ndarray of shape (n,)
        Variance of f_i given u, positive.
    kept : list of (index, A, A^2) or None
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
        self.kept = None
        fits = BYTES * n * engine.n_active <= memory_budget()
        blocks = []
        for index in index_blocks(n):
            A, residual = self._weigh(index)
            require_finite(A.data)
            self.F[index] = np.maximum(residual, TINY * self.shift)
            if fits:
                blocks.append(A)
        if fits:
            A = vstack(blocks, format="csr")
            self.kept = [(slice(None), A, squared(A))]

    def scaled(self, factor):
        """Return the same for `factor` times the kernel, which changes F only."""
        other = copy.copy(self)
        other.F = factor * self.F
        return other

    def multiply(self, u):
        """Return A u (n,) for u (M,), likewise for a matrix."""
        return self._by_row(u, lambda A, A2: A @ u)

    def multiply_squared(self, s):
        """Return A^2 s, the squares taken of each entry."""
        return self._by_row(s, lambda A, A2: A2 @ s)

    def quadratic(self, L):
        """Return |L' a_i|^2 (n,) for L (M, M)."""
        out = np.empty(self.shape[0])
        size = max(1, int(memory_budget() / (16 * len(L))))
        for index, A, _ in self._blocks():
            rows = np.arange(self.shape[0])[index]
            for first in range(0, len(rows), size):  # A L is dense
                part = slice(first, first + size)
                out[rows[part]] = np.sum((A[part] @ L) ** 2, axis=1)
        return out

    def pull(self, w):
        """Return A' w (M,)."""
        return sum(A.T @ w[index] for index, A, _ in self._blocks())

    def pull_squared(self, w):
        """Return A^2' w, the squares taken of each entry."""
        return sum(A2.T @ w[index] for index, _, A2 in self._blocks())

    def pull_product(self, w, u):
        """Return A' diag(w) A u (M,), in one pass over the rows."""
        return sum(A.T @ (w[index] * (A @ u)) for index, A, _ in self._blocks())

    def gram(self, w):
        """Return A' diag(w) A as an array (M, M)."""
        total = np.zeros((self.shape[1],) * 2)
        for index, A, _ in self._blocks():
            total += (A.T @ A.multiply(w[index, None]).tocsr()).toarray()
        return total

    def _by_row(self, like, function):
        out = np.empty((self.shape[0], *like.shape[1:]))
        for index, A, A2 in self._blocks():
            out[index] = function(A, A2)
        return out

    def _blocks(self):
        """Return or yield (index, A, A^2) of blocks of rows."""
        if self.kept is not None:
            return self.kept
        return self._made_blocks()

    def _made_blocks(self):
        for index in index_blocks(self.shape[0]):
            A, _ = self._weigh(index)
            yield index, A, squared(A)

    def _weigh(self, index):
        """Return the rows of A (sparse) and of F of some rows of the data."""
        X = self.data.block(index)[0]
        if self.root is None:
            lists = self.lookup(index, X)
            weights, residual = self.engine.regress(X, lists)
            return sparse_rows(weights, lists, self.shape[1]), residual
        Z = self.engine.model.Z.astype(np.float64)
        half = solve_triangular(self.root, self.kernel(Z, X), lower=True)  # (M, n)
        residual = self.kernel.diag(X) - np.sum(half**2, axis=0)
        weights = solve_triangular(self.root, half, lower=True, trans="T").T
        return csr_matrix(weights), residual


def squared(A):
    """Return a sparse matrix with the squares of the entries of A."""
    return csr_matrix((A.data**2, A.indices, A.indptr), shape=A.shape)
