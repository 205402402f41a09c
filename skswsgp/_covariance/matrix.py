"""Covariances of some hundred points with each other, and their adjoint."""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.jit import njit
from skswsgp._compiled.threads import row_blocks
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._covariance.program import (
    allow_vjp,
    fill_tile,
    program_calls,
    refresh_scales,
    tile_vjp,
)

ROWS_OF_DIAGONALS = 32  # rows of the matrices whose diagonals are wanted


class Pairs(NamedTuple):
    """Tiles of pairs of points, as `fill_tile` and `tile_vjp` use them."""

    values: np.ndarray  # (n_ops, pairs), N (N + 1) / 2 of N points with each other
    slopes: np.ndarray
    adjoint: np.ndarray
    calls: np.ndarray  # (2,) uint64, see `program_calls`


def allocate_pairs(struct, n_pairs):
    """Return the arrays of so many pairs for a compiled kernel in float64."""
    arrays = np.empty((3, len(struct.code), n_pairs))
    return Pairs(*arrays, program_calls(struct))


class CovarianceMatrix:
    """K of the rows of X (N, D) for a compiled kernel in float64."""

    def __init__(self, struct, X):
        n_pairs = len(X) * (len(X) + 1) // 2
        self.struct, self.points = struct, np.array(X.T, np.float64, order="C")
        self.pairs = allocate_pairs(struct, n_pairs)

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
        allow_vjp(self.pairs.calls, self.struct)
        d_log, d_points = np.zeros(len(self.struct.params)), np.zeros_like(self.points)
        matrix_vjp(self.struct, self.points, self.pairs, d_K, d_log, d_points, inputs)
        return d_log, d_points.T


def columns_of(X):
    """Return rows X (n, D) as n arrays of one point, (n, D, 1)."""
    return np.array(X, dtype=np.float64, order="C")[:, :, None]


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
    fill_tile(kernel, points, N, points, TRIANGLE, pairs, 0)
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
