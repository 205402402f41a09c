"""Products with covariance matrices on a GPU, which stores none of the matrices.

A warp computes an entry of each column of a product: its threads share the points of a
tile, evaluate the covariances of a row with them, and each adds up its share. Sums have
a fixed order, so that results repeat to the bit.
"""

import math
from typing import NamedTuple

import numpy as np

from skswsgp._compiled.jit import njit_inner
from skswsgp._compiled.team import barrier, team_range, team_rank, team_sum
from skswsgp._compiled.threads import row_blocks
from skswsgp._covariance.products import TILE, TileWork, padded_rows, tiled
from skswsgp._covariance.program import fill_tile
from skswsgp.cuda import runtime
from skswsgp.cuda.arrays import NO_CALLS, empty, send, send_array
from skswsgp.cuda.compiler import compile_kernels, kernel
from skswsgp.cuda.runtime import MAX_BLOCKS, cuda

# Pairs of a launch, well below a second where float64 is slow: a GPU with a display
# ends launches that take seconds.
PAIRS_AT_ONCE = 2**31
WHAT = "the products of exact means"  # name of the arrays in errors


class BlockWork(NamedTuple):
    """Covariances of a row with a tile in each block, and the sums of each thread."""

    values: np.ndarray  # (n_blocks, n_ops, TILE)
    slopes: np.ndarray
    sums: np.ndarray  # (n_blocks, Q, threads)


@njit_inner
def share_of_dot(values, row, m, u, q, first, without):
    """Return this thread's share of the sum over j < m of values[row, j] u[q, first+j].

    The term first + j = `without` is left out.
    """
    total = 0.0
    for j in team_range(0, m):
        if first + j != without:
            total += values[row, j] * u[q, first + j]
    return total


@kernel
def set_products(kernel, work, X, begin, end, points, u, off_diagonal, out):
    """Set columns begin .. end - 1 of out (Q, n) to those of u k(Z, X), for u (Q, M).

    With `off_diagonal` X and Z are the same points, and k(z, z) of each is left out.
    """
    rank, _ = team_rank()
    block, top, size = cuda.blockIdx.x, kernel.code.shape[0] - 1, X.tiles.shape[2]
    own = TileWork(work.values[block], work.slopes[block], NO_CALLS)
    sums = work.sums[block]
    for i in range(begin + block, end, cuda.gridDim.x):
        x = X.tiles[i // size, :, i % size : i % size + 1]
        without = i if off_diagonal else -1
        for q in range(u.shape[0]):
            sums[q, rank] = 0.0
        for b in range(points.tiles.shape[0]):
            tile, first = points.tiles[b], b * size
            m = min(size, points.n - first)
            # k(Z, x) in place of k(x, Z), since the rows of a tile are shared
            fill_tile(kernel, tile, m, x, 1, own, 0)
            for q in range(u.shape[0]):
                sums[q, rank] += share_of_dot(own.values, top, m, u, q, first, without)
            barrier()
        for q in range(u.shape[0]):
            total = team_sum(sums[q, rank])
            if rank == 0:
                out[q, i] = total


class DeviceProducts:
    """Products of `CovarianceProducts` on a GPU, which take and return host arrays.

    `kernel` is a `program.Kernel` in float64. The copy of the points Z (M, D) on the
    device lives until `close`.
    """

    def __init__(self, kernel, Z):
        self._kernel = send(kernel, WHAT)
        self._points = send_points(Z)

    def close(self):
        """Free the memory on the device; there are no more products."""
        self._kernel = self._points = None

    def keep_pairs(self, most):
        """Keep no covariances, which would take the memory of the device; return 0."""
        return 0

    def multiply(self, X, u):
        """Return k(X, Z) u, (n, Q), for u (M, Q)."""
        return self._multiply(send_points(X), u, False)

    def multiply_off_diagonal(self, u):
        """Return (k(Z, Z) - diag k(Z, Z)) u, (M, Q), for u (M, Q)."""
        return self._multiply(self._points, u, True)

    def _multiply(self, X, u, off_diagonal):
        """Return products for rows X on the device, without a diagonal if asked to."""
        u = send_array(padded_rows(u, self._points), WHAT)
        work = self._allocate_work(X.n, len(u))
        out = empty((len(u), X.n), np.float64, WHAT)
        launch = set_products[len(work.sums), runtime.WARP]
        for part in row_blocks(X.n, max(1, PAIRS_AT_ONCE // self._points.n)):
            launch(
                self._kernel,
                work,
                X,
                part.start,
                part.stop,
                self._points,
                u,
                off_diagonal,
                out,
            )
        return np.ascontiguousarray(out.copy_to_host().T)

    def _allocate_work(self, n, Q):
        """Return the work arrays of the blocks for n rows and Q columns of u."""
        tile, sums = (len(self._kernel.code), TILE), (Q, runtime.WARP)
        size = 8 * (2 * math.prod(tile) + math.prod(sums))  # bytes of a block
        budget = runtime.budget("work arrays")
        blocks = max(1, min(n, MAX_BLOCKS, budget // size))
        shapes = (blocks, *tile), (blocks, *tile), (blocks, *sums)
        return BlockWork(*(empty(shape, np.float64, WHAT) for shape in shapes))


def send_points(points):
    """Return points (n, D) as `TiledPoints` on the device, in float64."""
    return send(tiled(np.asarray(points, dtype=np.float64), TILE), WHAT)


compile_kernels(__name__)
