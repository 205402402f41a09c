"""Derivatives of sums of covariances by the coordinates of rows."""

import numpy as np

from skswsgp._compiled.jit import njit
from skswsgp._compiled.threads import in_threads, row_blocks
from skswsgp._covariance.matrix import Pairs, columns_of
from skswsgp._covariance.products import TILE, padded_rows, tiled
from skswsgp._covariance.program import allow_vjp, fill_tile, program_calls, tile_vjp


def covariance_slopes(kernel, X, Z, u, n_threads):
    """Return the derivatives of k(X, Z) u by the rows of X (n, D), (n, Q, D).

    `kernel` is a `program.Kernel` in float64, and u is (M, Q).
    """
    points, n_ops, calls = tiled(Z), len(kernel.code), program_calls(kernel)
    allow_vjp(calls, kernel)
    out, X = np.zeros((len(X), u.shape[1], X.shape[1])), columns_of(X)
    u, (_, D, _) = padded_rows(u, points), X.shape

    def work(rows):
        pairs = Pairs(*np.zeros((3, n_ops, TILE)), calls)
        sums = np.zeros(len(kernel.params)), np.zeros((D, 1)), np.zeros((D, TILE))
        set_slopes(rows.start, rows.stop, kernel, pairs, *sums, X, points, u, out)

    in_threads(work, list(row_blocks(len(X), TILE)), n_threads)
    return out


@njit
def set_slopes(begin, end, kernel, pairs, d_log, d_x, d_tile, X, points, u, out):
    """Set rows begin .. end - 1 of out (n, Q, D); see `covariance_slopes`.

    d_log (P,), d_x (D, 1) and d_tile (D, TILE) are scratch.
    """
    top = kernel.code.shape[0] - 1
    for b in range(points.tiles.shape[0]):
        first = b * TILE
        m = min(TILE, points.n - first)
        for i in range(begin, end):
            x, tile = X[i], points.tiles[b]
            for q in range(u.shape[0]):
                fill_tile(kernel, x, 1, tile, m, pairs, 0)
                for j in range(m):
                    pairs.adjoint[top, j] = u[q, first + j]
                for d in range(X.shape[1]):
                    d_x[d, 0] = 0.0
                tile_vjp(kernel, x, 1, tile, m, pairs, 0, d_log, d_x, d_tile, True)
                for d in range(X.shape[1]):
                    out[i, q, d] += d_x[d, 0]
