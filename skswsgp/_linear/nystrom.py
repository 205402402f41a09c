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
from skswsgp._compiled.threads import PARTS, row_blocks, run_in_threads

ROWS_IN_CACHE = 512  # rows of dense matrices that are held at a time


class NystromPreconditioner:
    """Approximate solutions z of (I + V Q V) z = r, where V = diag(w)^1/2.

    `points` (m, D) are points of the process with this `kernel`, `data` the
    `TrainingRows`. F (n,) are variances that Q leaves out: its diagonal is that of
    the kernel minus F. `jitter` is added to the covariance of the points. Products run
    in threads of their own, so callers set `one_blas_thread`.
    """

    def __init__(self, kernel, points, data, F, jitter, n_threads):
        self.n_threads = n_threads
        self.root, self.rest = np.empty((len(F), len(points))), np.empty(len(F))  # Phi
        factor = numpy_cholesky(kernel(points), jitter)

        def work(part, rows):
            index = np.arange(rows.start, rows.stop)
            X = data.block(index)[0].astype(np.float64)
            half = solve_triangular(factor, kernel(points, X), lower=True)
            self.root[rows] = half.T
            self.rest[rows] = kernel.diag(X) - F[rows] - np.sum(half**2, axis=0)

        self._in_threads(work)
        self.rest = np.maximum(self.rest, RELATIVE_FLOOR * jitter)

    def factorise(self, w):
        """Take the weights w (n,) of the rows."""
        self.diagonal = 1.0 + w * self.rest
        self.scale = (np.sqrt(w) / self.diagonal)[:, None]
        weight = (w / self.diagonal)[:, None]

        def product(rows):
            root = self.root[rows]
            return root.T @ (weight[rows] * root)

        inner = self._sum(product)
        inner[np.diag_indices(len(inner))] += 1.0
        self.inner = numpy_cholesky(inner, 0.0)

    def solve(self, r):
        """Return the approximate solutions for the columns of r (n, k).

        They are r / d - V Phi / d (I + Phi' V^2 / d Phi)^-1 Phi' V r / d, where d is
        the diagonal of I + V^2 rest.
        """
        out = np.empty(r.shape)
        inside = self._sum(
            lambda rows: self.root[rows].T @ (self.scale[rows] * r[rows])
        )
        how = {"lower": True, "check_finite": False}  # solutions are checked
        inside = solve_triangular(self.inner, inside, **how)
        inside = solve_triangular(self.inner, inside, trans="T", **how)

        def work(part, rows):
            np.divide(r[rows], self.diagonal[rows, None], out=out[rows])
            out[rows] -= self.scale[rows] * (self.root[rows] @ inside)

        self._in_threads(work)
        return out

    def _sum(self, product):
        """Return the sum of product(rows) over blocks of rows."""
        sums = [0.0] * PARTS

        def work(part, rows):
            sums[part] = sums[part] + product(rows)

        self._in_threads(work)
        return sum(sums)

    def _in_threads(self, work):
        """Call work(part, rows) for blocks of rows."""
        blocks = list(row_blocks(len(self.rest), ROWS_IN_CACHE))

        def take(first, last, t):
            for part in range(first, last):
                for rows in blocks[part::PARTS]:
                    work(part, rows)

        run_in_threads(take, self.n_threads, PARTS)
