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

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from skswsgp._compiled import threads
from skswsgp._compiled.linalg import inverse_of_factor, numpy_cholesky
from skswsgp._compiled.threads import PARTS, ROWS_AT_ONCE
from skswsgp._covariance.products import CovarianceProducts

GLOBAL_JITTER = 1e-9  # of the global points' covariance, relative to its diagonal


class CellPreconditioner:
    """The cells and the global points of K, for any diagonal D.

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
        with threads.one_blas_thread():
            factor = numpy_cholesky(K, GLOBAL_JITTER * np.diag(K).mean())

        def work(rows):
            self.root[rows] = solve_triangular(factor, self.root[rows].T, lower=True).T

        blocks = list(threads.row_blocks(len(Z), ROWS_AT_ONCE // PARTS))
        threads.in_threads(work, blocks, n_threads)

    def factorise(self, diagonal):
        """Return the `CellInverse` for the diagonal (M,) of K + D."""
        m = self.root.shape[1]
        sums = np.zeros((PARTS, m, m))  # of Phi_c' R_c^-1 Phi_c
        rest = [[None] * len(partition) for partition in self.partitions]

        def work(part):
            for partition, inverses in zip(self.partitions, rest, strict=True):
                for c in range(part, len(partition), PARTS):
                    cell = partition[c]
                    root = self.root[cell]
                    R = CovarianceProducts(self.kernel, self.Z[cell], 1)
                    R = R.matrix(self.Z[cell]) - root @ root.T
                    R[np.diag_indices(len(cell))] = diagonal[cell] - dots(root)
                    factor = numpy_cholesky(R, 0.0)
                    half = solve_triangular(factor, root, lower=True)
                    sums[part] += half.T @ half
                    inverses[c] = inverse_of_factor(factor)

        threads.in_threads(work, range(PARTS), self.n_threads)
        inner = sums.sum(axis=0) / len(self.partitions)
        inner[np.diag_indices(m)] += 1.0
        return CellInverse.of(self, rest, inner)


class CellInverse(NamedTuple):
    """An approximate inverse of K + D, for a diagonal D.

    A product with the inverse of a cell reads one matrix once. Two triangular solutions
    would read its factor twice.
    """

    points: CellPreconditioner
    rest: list  # for each partition, the inverses of R_c of its cells
    inner: np.ndarray  # (m, m), I + Phi' C Phi
    factor: np.ndarray  # (m, m), its lower factor

    @classmethod
    def of(cls, points, rest, inner):
        """Return the inverse with the factor of `inner`."""
        with threads.one_blas_thread():
            factor = numpy_cholesky(inner, 0.0) if len(inner) else inner
        return cls(points, rest, inner, factor)

    def without(self, gone):
        """Return the inverse for all points but those `gone`, and zero there.

        With B the inverse of the matrix of a cell and g its points that are gone, that
        of the others is B - B_g' B_gg^-1 B_g, which takes no further factor of a cell.
        """
        points, absent = self.points, np.zeros(len(self.points.Z), dtype=bool)
        absent[gone] = True
        lost = np.zeros((PARTS, *self.inner.shape))  # by which Phi' C Phi shrinks
        rest = [list(inverses) for inverses in self.rest]

        def work(part):
            for partition, inverses in zip(points.partitions, rest, strict=True):
                for c in range(part, len(partition), PARTS):
                    cell, B = partition[c], inverses[c]
                    g = np.flatnonzero(absent[cell])
                    if not len(g):
                        continue
                    factor = numpy_cholesky(B[np.ix_(g, g)], 0.0)
                    half = solve_triangular(factor, B[g], lower=True)
                    inverses[c] = B - half.T @ half
                    inverses[c][g] = inverses[c][:, g] = 0.0
                    half = half @ points.root[cell]
                    lost[part] += half.T @ half

        threads.in_threads(work, range(PARTS), points.n_threads)
        inner = self.inner - lost.sum(axis=0) / len(rest)
        return CellInverse.of(points, rest, inner)

    def solve(self, r):
        """Return the approximate solutions for the columns of r (M, k)."""
        near, root = self._solve_cells(r), self.points.root
        if not root.shape[1]:
            return near
        with threads.one_blas_thread():
            inside = root.T @ near
            inside = solve_triangular(self.factor, inside, lower=True)
            inside = solve_triangular(self.factor, inside, lower=True, trans="T")
            far = root @ inside
        return near - self._solve_cells(far)

    def _solve_cells(self, r):
        """Return C r (M, k)."""
        out, partitions = np.zeros_like(r), self.points.partitions
        for partition, inverses in zip(partitions, self.rest, strict=True):

            def work(pair):
                cell, inverse = pair
                out[cell] += inverse @ r[cell] / len(partitions)

            pairs = list(zip(partition, inverses, strict=True))
            threads.in_threads(work, pairs, self.points.n_threads)
        return out


def dots(rows):
    """Return the squared norms of rows."""
    return np.einsum("ij,ij->i", rows, rows)


def cells(points, most):
    """Return arrays of indices, cells of at most `most` near points (n, D).

    Cells are cut across the column in which they are widest, into parts of like sizes.
    """
    waiting, done = [(np.arange(len(points)), -(-len(points) // most))], []
    while waiting:
        cell, n_parts = waiting.pop()
        if n_parts == 1:
            done.append(cell)
            continue
        column = points[cell, np.argmax(points[cell].var(axis=0))]
        first = n_parts // 2
        size = len(cell) * first // n_parts
        order = np.argpartition(column, size)
        waiting += [(cell[order[size:]], n_parts - first), (cell[order[:size]], first)]
    return done
