"""Covariances of rows with some points, and their adjoint."""

import numpy as np

from skswsgp._compiled.jit import njit
from skswsgp._covariance.matrix import allocate_pairs, columns_of
from skswsgp._covariance.pairs import TRIANGLE
from skswsgp._covariance.program import (
    allow_vjp,
    fill_tile,
    refresh_scales,
    tile_vjp,
)


class RowCovariances:
    """Covariances of n rows with M points, and of each row with itself, in float64."""

    def __init__(self, struct, n, M):
        self.struct, self.shape = struct, (n, M + 1)
        self.pairs = allocate_pairs(struct, n * (M + 1))

    def evaluate(self, params, X, Z):
        """Return k(X, Z) and k(x, x) in one array (n, M + 1), X (n, D) and Z (M, D).

        It is a view, which the next call overwrites.
        """
        self.struct.params[:] = params
        self.points = columns_of(X), np.array(Z.T, np.float64, order="C")
        fill_rows(self.struct, *self.points, self.pairs)
        return self.pairs.values[-1].reshape(self.shape)

    def vjp(self, d_K):
        """Return derivatives by log parameters (P,) and by Z (M, D) from d_K."""
        allow_vjp(self.pairs.calls, self.struct)
        (X, Z), d_log = self.points, np.zeros(len(self.struct.params))
        self.pairs.adjoint[-1] = d_K.ravel()
        d_x, d_Z = np.zeros(X.shape[1:]), np.zeros_like(Z)
        rows_vjp(self.struct, X, Z, self.pairs, d_log, d_x, d_Z)
        return d_log, d_Z.T


@njit
def fill_rows(kernel, X, Z, pairs):
    """Set the values of `RowCovariances` for rows X (n, D, 1) and points Z (D, M)."""
    M = Z.shape[1]
    refresh_scales(kernel)
    for i in range(X.shape[0]):
        x, at = X[i], i * (M + 1)
        fill_tile(kernel, x, 1, Z, M, pairs, at)
        fill_tile(kernel, x, 1, x, TRIANGLE, pairs, at + M)


@njit
def rows_vjp(kernel, X, Z, pairs, d_log, d_x, d_Z):
    """Add derivatives to d_log and d_Z from pairs.adjoint[-1], after `fill_rows`.

    d_x (D, 1) takes the sum of those by all rows.
    """
    M = Z.shape[1]
    for i in range(X.shape[0]):
        x, at = X[i], i * (M + 1)
        tile_vjp(kernel, x, 1, Z, M, pairs, at, d_log, d_x, d_Z, True)
        own = at + M
        tile_vjp(kernel, x, 1, x, TRIANGLE, pairs, own, d_log, d_x, d_x, False)
