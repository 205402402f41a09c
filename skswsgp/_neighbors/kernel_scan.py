"""Compiled loops that find the H likest of M inducing points, or draw H at random.

The nearest by distance are found in `_scan`, with the same heaps. Inducing points lie
in tiles, (n_tiles, D, TILE), so that the loop over them is contiguous and a tile stays
in cache while a block of rows meets it.
"""

import numpy as np

from skswsgp._compiled.jit import njit, njit_range, njit_small
from skswsgp._compiled.threads import run_in_threads
from skswsgp._covariance.program import fill_tile
from skswsgp._neighbors.heaps import offer, take_heaps

TILE_SIZE = 512  # inducing points in a tile
ROWS_PER_BLOCK = 32  # rows that meet a tile while it is in cache


@njit_small
def count_candidates(row, M, t, before):
    """Number of points of tile t that a row may choose from."""
    return min(TILE_SIZE, (row if before else M) - t * TILE_SIZE)


@njit
def scan_block_by_kernel(
    kernel, X, tiles, M, before, block, values, slopes, key, keys, indices, lists
):
    """Fill the lists of one block of rows by kernel value, the largest first."""
    first = block * ROWS_PER_BLOCK
    last = min(first + ROWS_PER_BLOCK, X.shape[0])
    top = kernel.code.shape[0] - 1
    for t in range(tiles.shape[0]):
        tile = tiles[t]
        for row in range(first, last):
            n = count_candidates(row, M, t, before)
            if n > 0:
                fill_tile(kernel, X[row : row + 1].T, 1, tile, n, values, slopes, 0)
                for j in range(n):
                    key[j] = -values[top, j]
                offer(key, n, t * TILE_SIZE, keys, indices, row - first)
    take_heaps(keys, indices, first, last, lists)


@njit_range
def scan_blocks_by_kernel(
    first, last, t, kernel, X, tiles, M, before, values, slopes, key, keys, indices,
    lists,
):  # fmt: skip
    """Fill the lists of blocks of rows from first to last."""
    for block in range(first, last):
        scan_block_by_kernel(
            kernel, X, tiles, M, before, block, values[t], slopes[t], key[t], keys[t],
            indices[t], lists,
        )  # fmt: skip


def scan_by_kernel(
    kernel, X, tiles, M, before, values, slopes, key, keys, indices, lists
):
    """Fill the lists (n, H) of all rows; scratch has a leading axis of threads.

    With `before`, rows are the M points themselves, and choose from those before them:
    the lists of the first H are not to be used.
    """
    scratch = values, slopes, key, keys, indices
    blocks, arguments = -(-len(X) // ROWS_PER_BLOCK), (kernel, X, tiles, M, before)
    run_in_threads(scan_blocks_by_kernel, len(key), blocks, *arguments, *scratch, lists)


# Random lists: a function of the row alone.


@njit_small
def splitmix64(x):
    """The output function of the generator splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit_small
def contains(lists, row, n, index):
    """Whether an index is among the first n of a list."""
    for k in range(n):
        if lists[row, k] == index:
            return True
    return False


@njit
def draw_random_lists(bits, M, seed, lists):
    """H of M inducing points by Floyd's algorithm, from a hash of the bits of a row."""
    step = np.uint64(0x9E3779B97F4A7C15)
    H = lists.shape[1]
    for row in range(bits.shape[0]):
        state = splitmix64(seed + step)
        for d in range(bits.shape[1]):
            state = splitmix64((state ^ np.uint64(bits[row, d])) + step)
        for k in range(H):
            state += step
            last = M - H + k
            index = np.int64(splitmix64(state) % np.uint64(last + 1))
            lists[row, k] = last if contains(lists, row, k, index) else index


class KernelScan:
    """All points by the value of a kernel, the largest first: exact.

    Parameters
    ----------
    kernel : Kernel
        It stays as it is.
    points, n_neighbors, n_threads
        As in `Scan`.
    """

    def __init__(self, kernel, points, n_neighbors, n_threads):
        self.kernel, self.points = kernel, points
        self.n_neighbors, self.n_threads = n_neighbors, n_threads
        self._tiles = _cut_into_tiles(points)

    def find(self, points):
        """Return the lists (n, H) of points, likest first, ties by index."""
        return self._find(points, before=False)

    def predecessors(self):
        """Return the lists (M, H) of each inducing point among those before it."""
        return self._find(self.points, before=True)

    def _find(self, points, before):
        lists = np.empty((len(points), self.n_neighbors), dtype=np.int32)
        shape = (self.n_threads, len(self.kernel.code), TILE_SIZE)
        values, slopes = np.zeros((2, *shape), dtype=self.points.dtype)
        scan_by_kernel(
            self.kernel, points, self._tiles, len(self.points), before, values,
            slopes, *self._scratch(), lists,
        )  # fmt: skip
        return lists

    def _scratch(self):
        """Allocate the keys of a tile, and heaps for a block of rows."""
        heaps = (self.n_threads, ROWS_PER_BLOCK, self.n_neighbors)
        return (
            np.empty((self.n_threads, TILE_SIZE), dtype=self.points.dtype),
            np.empty(heaps, dtype=self.points.dtype),
            np.empty(heaps, dtype=np.int32),
        )


def _cut_into_tiles(points):
    """Return points (M, D) as tiles (n_tiles, D, TILE), zeros after the last point."""
    M, D = points.shape
    n_tiles = -(-M // TILE_SIZE)
    padded = np.zeros((n_tiles * TILE_SIZE, D), dtype=points.dtype)
    padded[:M] = points
    return np.ascontiguousarray(
        padded.reshape(n_tiles, TILE_SIZE, D).transpose(0, 2, 1)
    )
