"""Compiled loops that find the H likest of M inducing points, or draw H at random.

The nearest by distance are found in `_scan`, with the same heaps. Inducing points lie
in tiles, (n_tiles, D, TILE), so that the loop over them is contiguous and a tile stays
in cache while a block of rows meets it.
"""

import numpy as np

from skswsgp._covariance import fill_tile
from skswsgp._jit import njit, njit_part, njit_small, share

TILE = 512  # inducing points in a tile
GROUP = 64  # distances compared at once
ROWS = 32  # rows that meet a tile while it is in cache

# Selection of the H smallest keys. A row holds a heap, the largest (key, index) first.


@njit_small
def is_after(key, index, other_key, other_index):
    """Whether (key, index) comes after another: equal keys go by index."""
    return key > other_key or (key == other_key and index > other_index)


@njit
def push(keys, indices, row, size, key, index):
    """Add an entry to a heap of `size` entries."""
    at = size
    while at > 0:
        up = (at - 1) // 2
        if not is_after(key, index, keys[row, up], indices[row, up]):
            break
        keys[row, at] = keys[row, up]
        indices[row, at] = indices[row, up]
        at = up
    keys[row, at] = key
    indices[row, at] = index


@njit
def replace_first(keys, indices, row, size, key, index):
    """Put an entry in the place of the largest one."""
    at = 0
    while True:
        down = 2 * at + 1
        if down >= size:
            break
        if down + 1 < size and is_after(
            keys[row, down + 1],
            indices[row, down + 1],
            keys[row, down],
            indices[row, down],
        ):
            down += 1
        if not is_after(keys[row, down], indices[row, down], key, index):
            break
        keys[row, at] = keys[row, down]
        indices[row, at] = indices[row, down]
        at = down
    keys[row, at] = key
    indices[row, at] = index


@njit
def sort_heap(keys, indices, row, size):
    """Turn a heap into a list, the smallest entry first."""
    for last in range(size - 1, 0, -1):
        key, index = keys[row, last], indices[row, last]
        keys[row, last], indices[row, last] = keys[row, 0], indices[row, 0]
        replace_first(keys, indices, row, last, key, index)


@njit_small
def any_below(key, first, n, bound):
    """Whether one of n keys is below the bound.

    Counting is vectorised, unlike a minimum; so is an index that cannot be negative.
    """
    count = 0
    start = np.uint64(first)
    for j in range(n):
        count += key[start + np.uint64(j)] < bound
    return count > 0


@njit
def offer(key, n, first, keys, indices, row):
    """Offer the keys of points first, first + 1, ... to the heap of a row."""
    H = keys.shape[1]
    for start in range(0, n, GROUP):
        size = min(GROUP, n - start)
        if first + start >= H and not any_below(key, start, size, keys[row, 0]):
            continue
        for j in range(start, start + size):
            index = first + j
            offer_one(key[j], index, index, keys, indices, row)


@njit
def take_heaps(keys, indices, first, last, lists):
    """Copy the sorted heaps of a block to rows first to last of the lists."""
    for row in range(first, last):
        sort_heap(keys, indices, row - first, keys.shape[1])
        for k in range(keys.shape[1]):
            lists[row, k] = indices[row - first, k]


@njit_small
def distance(points, row, inducing, j):
    """Return |x - z|^2 of a row and an inducing point."""
    total = 0.0
    for d in range(points.shape[1]):
        difference = points[row, d] - inducing[j, d]
        total += difference * difference
    return total


@njit
def offer_one(key, index, n, keys, indices, row):
    """Offer a point to the heap of a row that has been offered n others."""
    H = keys.shape[1]
    if n < H:  # unconditionally: a key may be infinite
        push(keys, indices, row, n, key, index)
    elif is_after(keys[row, 0], indices[row, 0], key, index):
        replace_first(keys, indices, row, H, key, index)


@njit_small
def candidates(row, M, t, before):
    """Number of points of tile t that a row may choose from."""
    return min(TILE, (row if before else M) - t * TILE)


@njit
def likest_of_block(
    kernel, X, tiles, M, before, block, values, slopes, key, keys, indices, lists
):
    """Fill the lists of one block of rows by kernel value, the largest first."""
    first = block * ROWS
    last = min(first + ROWS, X.shape[0])
    top = kernel.code.shape[0] - 1
    for t in range(tiles.shape[0]):
        tile = tiles[t]
        for row in range(first, last):
            n = candidates(row, M, t, before)
            if n > 0:
                fill_tile(kernel, X[row : row + 1].T, 1, tile, n, values, slopes, 0)
                for j in range(n):
                    key[j] = -values[top, j]
                offer(key, n, t * TILE, keys, indices, row - first)
    take_heaps(keys, indices, first, last, lists)


@njit_part
def likest_of_blocks(
    first, last, t, kernel, X, tiles, M, before, values, slopes, key, keys, indices,
    lists,
):  # fmt: skip
    """Fill the lists of blocks of rows from first to last."""
    for block in range(first, last):
        likest_of_block(
            kernel, X, tiles, M, before, block, values[t], slopes[t], key[t], keys[t],
            indices[t], lists,
        )  # fmt: skip


def likest(kernel, X, tiles, M, before, values, slopes, key, keys, indices, lists):
    """Fill the lists (n, H) of all rows; scratch has a leading axis of threads.

    With `before`, rows are the M points themselves, and choose from those before them:
    the lists of the first H are not to be used.
    """
    scratch = values, slopes, key, keys, indices
    blocks, arguments = -(-len(X) // ROWS), (kernel, X, tiles, M, before)
    share(likest_of_blocks, len(key), blocks, *arguments, *scratch, lists)


@njit
def sort_lists(points, inducing, keys, indices, lists):
    """Order lists by distance, then by index; keys and indices (1, H) are scratch."""
    for row in range(points.shape[0]):
        for k in range(lists.shape[1]):
            j = lists[row, k]
            push(keys, indices, 0, k, distance(points, row, inducing, j), j)
        take_heaps(keys, indices, row, row + 1, lists)


# Random lists: a function of the row alone.


@njit_small
def mix(x):
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
def draw_lists(bits, M, seed, lists):
    """H of M inducing points by Floyd's algorithm, from a hash of the bits of a row."""
    step = np.uint64(0x9E3779B97F4A7C15)
    H = lists.shape[1]
    for row in range(bits.shape[0]):
        state = mix(seed + step)
        for d in range(bits.shape[1]):
            state = mix((state ^ np.uint64(bits[row, d])) + step)
        for k in range(H):
            state += step
            last = M - H + k
            index = np.int64(mix(state) % np.uint64(last + 1))
            lists[row, k] = last if contains(lists, row, k, index) else index
