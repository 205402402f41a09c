"""Heaps of the H smallest keys, with the largest (key, index) of a row first.

A heap is a row of the arrays `keys` and `indices`, (n, H) each. Equal keys are ordered
by index.
"""

import numpy as np

from skswsgp._compiled.jit import njit, njit_inner, njit_small
from skswsgp._compiled.tiles import GROUP


@njit_small
def is_after(key, index, other_key, other_index):
    """Return whether (key, index) comes after another; equal keys go by index."""
    return key > other_key or (key == other_key and index > other_index)


@njit_inner
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


@njit_inner
def replace_first(keys, indices, row, size, key, index):
    """Replace the largest entry of a heap of `size` entries."""
    at = 0
    while True:
        down = 2 * at + 1
        if down >= size:
            break
        right = down + 1
        if right < size and is_after(
            keys[row, right], indices[row, right], keys[row, down], indices[row, down]
        ):
            down = right
        if not is_after(keys[row, down], indices[row, down], key, index):
            break
        keys[row, at] = keys[row, down]
        indices[row, at] = indices[row, down]
        at = down
    keys[row, at] = key
    indices[row, at] = index


@njit_inner
def sort_heap(keys, indices, row, size):
    """Turn a heap into a list, the smallest entry first."""
    for last in range(size - 1, 0, -1):
        key, index = keys[row, last], indices[row, last]
        keys[row, last], indices[row, last] = keys[row, 0], indices[row, 0]
        replace_first(keys, indices, row, last, key, index)


@njit_inner
def offer_point(key, index, n, keys, indices, row):
    """Offer a point to the heap of a row that was offered n points before."""
    H = keys.shape[1]
    if n < H:  # without a comparison, for a key may be infinite
        push(keys, indices, row, n, key, index)
    elif is_after(keys[row, 0], indices[row, 0], key, index):
        replace_first(keys, indices, row, H, key, index)


@njit_small
def any_below(key, first, n, bound):
    """Return whether one of key[first : first + n] is below the bound."""
    count = 0  # counting is vectorised, unlike a minimum, and so is an unsigned index
    start = np.uint64(first)
    for j in range(n):
        count += key[start + np.uint64(j)] < bound
    return count > 0


@njit_inner
def offer(key, n, first, keys, indices, row):
    """Offer points first, first + 1, ... with the keys key[:n] to the heap of a row."""
    H = keys.shape[1]
    for start in range(0, n, GROUP):
        size = min(GROUP, n - start)
        if first + start >= H and not any_below(key, start, size, keys[row, 0]):
            continue
        for j in range(start, start + size):
            index = first + j
            offer_point(key[j], index, index, keys, indices, row)


@njit_inner
def take_heaps(keys, indices, first, last, lists):
    """Sort the heaps of a block of rows into lists[first:last]."""
    for row in range(first, last):
        sort_heap(keys, indices, row - first, keys.shape[1])
        for k in range(keys.shape[1]):
            lists[row, k] = indices[row - first, k]


@njit_small
def squared_distance(points, row, inducing, j):
    """Return |x - z|^2 of a row and an inducing point, summed in float64."""
    total = 0.0
    for d in range(points.shape[1]):
        difference = points[row, d] - inducing[j, d]
        total += difference * difference
    return total


@njit
def sort_lists(points, inducing, keys, indices, lists):
    """Order lists by distance, then by index; keys and indices (1, H) are scratch."""
    for row in range(points.shape[0]):
        for k in range(lists.shape[1]):
            j = lists[row, k]
            push(keys, indices, 0, k, squared_distance(points, row, inducing, j), j)
        take_heaps(keys, indices, row, row + 1, lists)
