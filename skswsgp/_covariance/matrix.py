"""Covariances of some hundred points, among each other and with rows, and adjoints."""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.jit import njit
from skswsgp._compiled.threads import row_blocks
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._covariance.program import fill_tile, refresh_scales, tile_vjp

ROWS_OF_DIAGONALS = 32  # rows of the matrices whose diagonals are wanted


class Pairs(NamedTuple):
    """Tiles of pairs of points, as `fill_tile` and `tile_vjp` use them."""

    values: np.ndarray  # (n_ops, pairs), N (N + 1) / 2 of N points with each other
    slopes: np.ndarray
    adjoint: np.ndarray


class CovarianceMatrix:
    """K of the rows of X (N, D) for a compiled kernel in float64."""

    def __init__(self, struct, X):
        n_pairs = row_start(len(X), TRIANGLE)
        self.struct, self.points = struct, np.array(X.T, order="C")
        self.pairs = Pairs(*np.empty((3, len(struct.code), n_pairs)))

    def evaluate(self, params, X=None):
        """Return K (N, N) for parameters (P,), and for other rows if X is given."""
        self.struct.params[:] = params
        if X is not None:
            self.points[:] = X.T
        K = np.empty((self.points.shape[1],) * 2)
        fill_matrix(self.struct, self.points, self.pairs, K)
        return K

    def vjp(self, d_K, inputs):
        """Return derivatives by log parameters (P,) and by X (N, D).

        They follow from symmetric derivatives by K, d_K (N, N). Those by X are zero
        unless `inputs` is true.
        """
        d_log, d_points = np.zeros(len(self.struct.params)), np.zeros_like(self.points)
        matrix_vjp(self.struct, self.points, self.pairs, d_K, d_log, d_points, inputs)
        return d_log, d_points.T


class RowCovariances:
    """Covariances of n rows with M points, and of each row with itself, in float64."""

    def __init__(self, struct, n, M):
        self.struct, self.shape = struct, (n, M + 1)
        self.pairs = Pairs(*np.empty((3, len(struct.code), n * (M + 1))))

    def evaluate(self, params, X, Z):
        """Return k(X, Z) and k(x, x) in one array (n, M + 1), X (n, D) and Z (M, D).

        It is a view, which the next call overwrites.
        """
        self.struct.params[:] = params
        self.points = np.array(X.T, order="C"), np.array(Z.T, order="C")
        fill_rows(self.struct, *self.points, self.pairs)
        return self.pairs.values[-1].reshape(self.shape)

    def vjp(self, d_K):
        """Return derivatives by log parameters (P,) and by Z (M, D) from d_K."""
        (X, Z), d_log = self.points, np.zeros(len(self.struct.params))
        self.pairs.adjoint[-1] = d_K.ravel()
        d_x, d_Z = np.zeros((len(X), 1)), np.zeros_like(Z)
        rows_vjp(self.struct, X, Z, self.pairs, d_log, d_x, d_Z)
        return d_log, d_Z.T


def diagonal(struct, X):
    """Return k(x, x) for the rows of X (n, D), as a diagonal of small matrices."""
    out = np.empty(len(X))
    for rows in row_blocks(len(X), ROWS_OF_DIAGONALS):
        matrix = CovarianceMatrix(struct, X[rows])
        out[rows] = np.diag(matrix.evaluate(struct.params))
    return out


@njit
def fill_matrix(kernel, points, pairs, K):
    """Set K (N, N) to the covariances of points (D, N)."""
    N, top = points.shape[1], len(kernel.code) - 1
    refresh_scales(kernel)
    fill_tile(kernel, points, N, points, TRIANGLE, pairs.values, pairs.slopes, 0)
    for i in range(N):
        start = row_start(i, TRIANGLE)
        for j in range(i + 1):
            K[i, j] = K[j, i] = pairs.values[top, start + j]


@njit
def matrix_vjp(kernel, points, pairs, d_K, d_log, d_points, inputs):
    """Add derivatives to d_log and, if `inputs`, to d_points, after `fill_matrix`."""
    N, top = points.shape[1], len(kernel.code) - 1
    for i in range(N):
        start = row_start(i, TRIANGLE)
        for j in range(i):
            pairs.adjoint[top, start + j] = 2.0 * d_K[i, j]
        pairs.adjoint[top, start + i] = d_K[i, i]
    d_A = d_B = d_points
    tile_vjp(kernel, points, N, points, TRIANGLE, pairs, 0, d_log, d_A, d_B, inputs)


@njit
def fill_rows(kernel, X, Z, pairs):
    """Set the values of `RowCovariances` for rows X (D, n) and points Z (D, M)."""
    M = Z.shape[1]
    refresh_scales(kernel)
    for i in range(X.shape[1]):
        x, at = X[:, i : i + 1], i * (M + 1)
        fill_tile(kernel, x, 1, Z, M, pairs.values, pairs.slopes, at)
        fill_tile(kernel, x, 1, x, TRIANGLE, pairs.values, pairs.slopes, at + M)


@njit
def rows_vjp(kernel, X, Z, pairs, d_log, d_x, d_Z):
    """Add derivatives to d_log and d_Z from pairs.adjoint[-1], after `fill_rows`.

    d_x (D, 1) takes the sum of those by all rows.
    """
    M = Z.shape[1]
    for i in range(X.shape[1]):
        x, at = X[:, i : i + 1], i * (M + 1)
        tile_vjp(kernel, x, 1, Z, M, pairs, at, d_log, d_x, d_Z, True)
        own = at + M
        tile_vjp(kernel, x, 1, x, TRIANGLE, pairs, own, d_log, d_x, d_x, False)
