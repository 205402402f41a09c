"""The covariance matrix of some hundred points, and its adjoint."""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.jit import njit
from skswsgp._compiled.threads import row_blocks
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._covariance.program import fill_tile, refresh_scales, tile_vjp

ROWS_AT_ONCE = 32  # rows of the matrices whose diagonals are wanted


class Pairs(NamedTuple):
    """The tile of all pairs of N points, as `fill_tile` and `tile_vjp` use it."""

    values: np.ndarray  # (n_ops, N (N + 1) / 2)
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


def diagonal(struct, X):
    """Return k(x, x) for the rows of X (n, D), as a diagonal of small matrices."""
    out = np.empty(len(X))
    for rows in row_blocks(len(X), ROWS_AT_ONCE):
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
