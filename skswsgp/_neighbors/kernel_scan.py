"""Compiled loops that find the H inducing points with the largest kernel values.

Inducing points lie in tiles, (n_tiles, D, TILE), so that the loop over them is
contiguous and a tile stays in cache while a block of rows is compared with it.
"""

from collections import namedtuple
from typing import NamedTuple

import numpy as np

from skswsgp._compiled.jit import njit
from skswsgp._compiled.threads import microseconds_per_pair, run_in_threads
from skswsgp._covariance.products import TILE, tiled
from skswsgp._covariance.program import Kernel, fill_tile, program_calls
from skswsgp._neighbors.heaps import offer, take_heaps
from skswsgp._neighbors.kd_order import ROWS_PER_BLOCK


class KernelScanTask(NamedTuple):
    """Rows whose neighbours are to be found, and the points to choose from."""

    kernel: Kernel
    X: np.ndarray  # (n, D, 1) rows
    tiles: np.ndarray  # (n_tiles, D, TILE) inducing points
    M: int
    predecessors: bool  # row i is inducing point i, and chooses from those before it


KernelScratch = namedtuple("KernelScratch", "values slopes calls key keys indices")


@njit
def scan_blocks_by_kernel(begin, end, task, work, lists):
    """Fill the lists of blocks of rows, the largest kernel value first."""
    kernel, X, values = task.kernel, task.X, work.values
    top = kernel.code.shape[0] - 1
    for first in range(begin * ROWS_PER_BLOCK, end * ROWS_PER_BLOCK, ROWS_PER_BLOCK):
        last = min(first + ROWS_PER_BLOCK, X.shape[0])
        for t in range(task.tiles.shape[0]):
            tile = task.tiles[t]
            for row in range(first, last):
                before = row if task.predecessors else task.M
                n = min(TILE, before - t * TILE)
                if n > 0:
                    fill_tile(kernel, X[row], 1, tile, n, work, 0)
                    for j in range(n):
                        work.key[j] = -values[top, j]
                    heap = row - first
                    offer(work.key, n, t * TILE, work.keys, work.indices, heap)
        take_heaps(work.keys, work.indices, first, last, lists)


class KernelScan:
    """Exact search by kernel value, the largest first.

    The kernel must not be modified while the search is in use; the other arguments are
    those of `DistanceScan`.
    """

    def __init__(self, kernel, points, n_neighbors, n_threads):
        self.kernel, self.points = kernel, points
        self.n_neighbors, self.n_threads = n_neighbors, n_threads
        self._tiles = tiled(points, TILE).tiles

    def find(self, points, predecessors=False):
        """Return the lists (n, H) of points, largest value first, ties by index."""
        lists = np.empty((len(points), self.n_neighbors), dtype=np.int32)
        M = len(self.points)
        X = np.ascontiguousarray(points)[:, :, None]
        task = KernelScanTask(self.kernel, X, self._tiles, M, predecessors)
        works = [self._scratch() for _ in range(self.n_threads)]

        def work(first, last, t):
            scan_blocks_by_kernel(first, last, task, works[t], lists)

        cost = ROWS_PER_BLOCK * M * microseconds_per_pair(points.shape[1])
        n_blocks = -(-len(points) // ROWS_PER_BLOCK)
        run_in_threads(work, self.n_threads, n_blocks, cost=cost)
        return lists

    def predecessors(self):
        return self.find(self.points, predecessors=True)

    def _scratch(self):
        """Return the work arrays of one thread."""
        dtype, heaps = self.points.dtype, (ROWS_PER_BLOCK, self.n_neighbors)
        n_ops = len(self.kernel.code)
        return KernelScratch(
            values=np.zeros((n_ops, TILE), dtype),  # of the kernel's operations
            slopes=np.zeros((n_ops, TILE), dtype),
            calls=program_calls(self.kernel),
            key=np.empty(TILE, dtype),  # negative kernel values
            keys=np.empty(heaps, dtype),
            indices=np.empty(heaps, np.int32),
        )
