"""Approximate inverses of the covariance of noisy rows, from a few points.

f ~ N(0, Q) at n rows has, given m points of the process, the approximation Phi Phi' +
diag(rest), which keeps the diagonal of Q (FITC: Snelson and Ghahramani, NeurIPS 2005).
Phi has m columns, so a product with the inverse of this plus noise takes O(n m). As a
preconditioner it takes care of the large eigenvalues, those of smooth functions (Gyger,
Furrer and Sigrist, 2024).
"""

import numpy as np
from scipy.linalg import solve_triangular

from skswsgp._compiled.linalg import RELATIVE_FLOOR, numpy_cholesky
from skswsgp._compiled.threads import index_blocks, one_blas_thread


class NystromPreconditioner:
    """Approximate solutions z of (I + V Q V) z = r, where V = diag(w)^1/2.

    `points` (m, D) are points of the process with this `kernel`, `data` the
    `TrainingRows`. F (n,) are variances that Q leaves out: its diagonal is that of
    the kernel minus F. `jitter` is added to the covariance of the points.
    """

    def __init__(self, kernel, points, data, F, jitter):
        self.root, self.rest = np.empty((len(F), len(points))), np.empty(len(F))  # Phi
        with one_blas_thread():
            factor = numpy_cholesky(kernel(points), jitter)
            for index in index_blocks(len(F)):
                X = data.block(index)[0].astype(np.float64)
                half = solve_triangular(factor, kernel(points, X), lower=True)
                self.root[index] = half.T
                self.rest[index] = kernel.diag(X) - F[index] - np.sum(half**2, axis=0)
        self.rest = np.maximum(self.rest, RELATIVE_FLOOR * jitter)

    def factorise(self, w):
        """Take the weights w (n,) of the rows."""
        self.diagonal = 1.0 + w * self.rest
        self.scale = (np.sqrt(w) / self.diagonal)[:, None]
        weight, inner = w / self.diagonal, np.eye(self.root.shape[1])
        with one_blas_thread():
            for index in index_blocks(len(w)):
                part = self.root[index]
                inner += part.T @ (weight[index, None] * part)
            self.inner = numpy_cholesky(inner, 0.0)

    def solve(self, r):
        """Return the approximate solutions for the columns of r (n, k).

        They are r / d - V Phi / d (I + Phi' V^2 / d Phi)^-1 Phi' V r / d, where d is
        the diagonal of I + V^2 rest.
        """
        with one_blas_thread():
            inside = self.root.T @ (self.scale * r)
            inside = solve_triangular(self.inner, inside, lower=True)
            inside = solve_triangular(self.inner, inside, lower=True, trans="T")
            return r / self.diagonal[:, None] - self.scale * (self.root @ inside)
