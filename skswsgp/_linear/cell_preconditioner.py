"""Approximate inverses of K + D, for a covariance K of many points and a diagonal D.

Phi Phi' is the part of K that m global points explain, Phi = K_xg K_gg^-1/2 (M, m). It
holds what is smooth. The rest of K is local, and in a cell of near points

    R_c = K_cc - Phi_c Phi_c' + D_c.

The mean C of the inverses of R_c over partitions of the points into cells (additive
Schwarz: Chan and Mathew, Acta Numerica 1994) stands for the inverse of the rest, so by
the formula of Woodbury

    (K + D)^-1  ~  C - C Phi (I + Phi' C Phi)^-1 Phi' C.

With one cell of all points it is exact.
"""

import numpy as np
from scipy.linalg import solve_triangular

from skswsgp._compiled.linalg import numpy_cholesky
from skswsgp._compiled.threads import (
    ROWS_AT_ONCE,
    one_blas_thread,
    row_blocks,
    run_in_threads,
)
from skswsgp._covariance.products import CovarianceProducts

JITTER = 1e-9  # of the global points' covariance, relative to its diagonal
PARTS = 8  # sums of a product that are computed apart, for any number of threads


class CellPreconditioner:
    """Approximate solutions z of (K + D) z = r.

    `kernel` is a `program.Kernel` in float64, and `scale` (D,) the lengths in which
    points Z (M, D) are near each other. There are at most `most_global` global points,
    and `most_in_cell` points in a cell.
    """

    def __init__(self, kernel, Z, scale, most_global, most_in_cell, n_threads):
        self.kernel, self.Z, self.n_threads = kernel, Z, n_threads
        D, near = Z.shape[1], Z / scale
        self.partitions = [cells(near, most_in_cell)]
        if len(self.partitions[0]) == 1:
            self.root = np.zeros((len(Z), 0))
            return
        rng = np.random.RandomState(0)
        # Points at the border of a cell should lie inside one of the other partition
        turn = np.linalg.qr(rng.standard_normal((D, D)))[0]
        self.partitions.append(cells(near @ turn, most_in_cell))
        points = Z[rng.permutation(len(Z))[:most_global]]
        across = CovarianceProducts(kernel, points, n_threads)
        K = across.matrix(points)
        self.root = across.matrix(Z)  # Phi
        with one_blas_thread():
            factor = numpy_cholesky(K, JITTER * np.diag(K).mean())

        def work(rows):
            self.root[rows] = solve_triangular(factor, self.root[rows].T, lower=True).T

        self._in_threads(work, list(row_blocks(len(Z), ROWS_AT_ONCE // PARTS)))

    def factorise(self, diagonal):
        """Take the diagonal (M,) of K + D."""
        m = self.root.shape[1]
        sums = np.zeros((PARTS, m, m))  # of Phi_c' R_c^-1 Phi_c
        self.factors = [[None] * len(partition) for partition in self.partitions]

        def work(part):
            for partition, factors in zip(self.partitions, self.factors, strict=True):
                for c in range(part, len(partition), PARTS):
                    cell = partition[c]
                    root = self.root[cell]
                    R = CovarianceProducts(self.kernel, self.Z[cell], 1)
                    R = R.matrix(self.Z[cell]) - root @ root.T
                    R[np.diag_indices(len(cell))] = diagonal[cell] - dots(root)
                    factors[c] = numpy_cholesky(R, 0.0)
                    half = solve_triangular(factors[c], root, lower=True)
                    sums[part] += half.T @ half

        self._in_threads(work, range(PARTS))
        if m == 0:
            return
        inner = sums.sum(axis=0) / len(self.partitions)
        inner[np.diag_indices(m)] += 1.0
        with one_blas_thread():
            self.inner = numpy_cholesky(inner, 0.0)

    def solve(self, r):
        """Return the approximate solutions for the columns of r (M, k)."""
        near = self._solve_cells(r)
        if not self.root.shape[1]:
            return near
        with one_blas_thread():
            inside = self.root.T @ near
            inside = solve_triangular(self.inner, inside, lower=True)
            inside = solve_triangular(self.inner, inside, lower=True, trans="T")
            far = self.root @ inside
        return near - self._solve_cells(far)

    def _solve_cells(self, r):
        """Return C r (M, k)."""
        out = np.zeros_like(r)
        for partition, factors in zip(self.partitions, self.factors, strict=True):

            def work(pair):
                cell, factor = pair
                part = solve_triangular(factor, r[cell], lower=True)
                part = solve_triangular(factor, part, lower=True, trans="T")
                out[cell] += part / len(self.partitions)

            self._in_threads(work, list(zip(partition, factors, strict=True)))
        return out

    def _in_threads(self, work, items):
        """Call work(item) for each item, on one thread of BLAS each."""

        def take(first, last, t):
            for item in items[first:last]:
                work(item)

        with one_blas_thread():
            run_in_threads(take, self.n_threads, len(items))


def dots(rows):
    """Return the squared norms of rows."""
    return np.einsum("ij,ij->i", rows, rows)


def cells(points, most):
    """Return arrays of indices, cells of at most `most` near points (n, D).

    Cells are halved across the column in which they are widest.
    """
    waiting, done = [np.arange(len(points))], []
    while waiting:
        cell = waiting.pop()
        if len(cell) <= most:
            done.append(cell)
            continue
        column = points[cell, np.argmax(points[cell].var(axis=0))]
        halves = np.argpartition(column, len(cell) // 2)
        waiting += [cell[halves[len(cell) // 2 :]], cell[halves[: len(cell) // 2]]]
    return done
