"""f given the values at all inducing points, which share one matrix K (H = M).

With k the covariances of f(x) with these values u, a = K^-1 k, it has the mean a' u and
the variance F = k(x, x) - k' a. LAPACK factorises K = L L' once for all rows, in
float64. Whitened values s = L^-1 u have the weights L^-1 k.
"""

import numpy as np
from scipy.linalg import solve_triangular

from skswsgp._compiled import threads
from skswsgp._compiled.linalg import RELATIVE_FLOOR, numpy_cholesky
from skswsgp._covariance.matrix import diagonal
from skswsgp._covariance.products import CovarianceProducts
from skswsgp._covariance.program import in_float64, kernel_of
from skswsgp._linear.row_matrix import DenseMatrix

ROWS_IN_CACHE = 512  # rows of dense matrices that are held at a time


class AllPoints:
    """The factor of K for a `Model`. Raises FloatingPointError if there is none.

    With `whitened`, weights are those of whitened values.
    """

    def __init__(self, model, n_threads, whitened=False):
        self.whitened = whitened
        self.kernel, self.n_threads = in_float64(kernel_of(model)), n_threads
        Z = model.Z.astype(np.float64)
        threads.require_memory(16 * len(Z) ** 2, len(Z))
        self.products = CovarianceProducts(self.kernel, Z, 1)
        K = self.products.matrix(Z)
        K[np.diag_indices(len(K))] = prior = diagonal(self.kernel, Z)
        unit = prior.mean()
        self.jitter = model.jitter * (unit if unit > 0.0 else 1.0)
        with threads.one_blas_thread():
            self.factor = numpy_cholesky(K, self.jitter)

    def weights(self, X):
        """Return the rows a as a `DenseMatrix` (n, M), and F (n,), for X (n, D)."""
        a, F = np.empty((len(X), len(self.factor))), np.empty(len(X))

        def work(rows):
            half, F[rows] = self.half(X[rows])
            if self.whitened:
                a[rows] = half.T
                return
            a[rows] = solve_triangular(self.factor, half, lower=True, trans="T").T

        threads.in_threads(
            work, list(threads.row_blocks(len(X), ROWS_IN_CACHE)), self.n_threads
        )
        return DenseMatrix(a), F

    def coefficients(self, u):
        """Return the vectors (M, k) whose products with rows of `weights` are f.

        They are the values u (M, k) of f at the points, or L^-1 u if `whitened`.
        """
        return solve_triangular(self.factor, u, lower=True) if self.whitened else u

    def half(self, X):
        """Return L^-1 k (M, n) and F (n,) for a few rows X (n, D), on one thread."""
        half = self.products.matrix(X).T
        half = solve_triangular(self.factor, half, lower=True)
        F = diagonal(self.kernel, X) - np.sum(half**2, axis=0)
        return half, np.maximum(F, RELATIVE_FLOOR * self.jitter)
