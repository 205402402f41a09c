"""Kernels of the exact neighbour searches on a GPU; loops only, no formula.

A thread offers the inducing points of one segment to a heap of one row; then a thread
for each row merges its heaps. Entries come in order of key and index whatever the order
of offers, so that lists do not depend on the number of segments. Rows and heaps are
stored by columns: neighbouring threads, which have neighbouring rows and the same
segment, read neighbouring numbers.
"""

import sys

from skswsgp import _covariance, _nearest, _stationary
from skswsgp._covariance import fill_tile
from skswsgp._cuda import cuda, for_kernels, kernel
from skswsgp._jit import njit
from skswsgp._nearest import distance, offer_one, sort_heap


@njit
def segment_of(s, segments, M, row, offset):
    """Return first and last of the points of segment s that a row may choose from.

    With an offset >= 0 these are points before offset + row.
    """
    length = (M + segments - 1) // segments
    most = min(M, offset + row) if offset >= 0 else M
    first = s * length
    return first, max(first, min(first + length, most))


@kernel
def scan_segments(points, inducing, n, offset, segments, keys, indices):
    """Fill the heaps of n rows; heap s n + row is that of segment s."""
    M = inducing.shape[0]
    for heap in range(cuda.grid(1), n * segments, cuda.gridsize(1)):
        row = heap % n
        first, last = segment_of(heap // n, segments, M, row, offset)
        for j in range(first, last):
            key = distance(points, row, inducing, j)
            offer_one(key, j, j - first, keys, indices, heap)


@kernel
def scan_values(
    kernel, points, inducing, n, offset, segments, values, slopes, keys, indices
):
    """The same by the value of a kernel, the largest first; one lane for each heap.

    `values` and `slopes` (heaps, n_ops, group) take those of a group of points.
    """
    M, size, top = inducing.shape[0], values.shape[2], values.shape[1] - 1
    heap = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if heap < n * segments:
        row, own, steep = heap % n, values[heap], slopes[heap]
        first, last = segment_of(heap // n, segments, M, row, offset)
        x = points[row : row + 1].T
        for start in range(first, last, size):
            count = min(size, last - start)
            group = inducing[start : start + count].T
            fill_tile(kernel, x, 1, group, count, own, steep, 0)
            for j in range(count):
                key, index = -own[top, j], start + j
                offer_one(key, index, index - first, keys, indices, heap)


@kernel
def merge_heaps(M, n, offset, segments, keys, indices, lists):
    """Fill the lists (n, H), nearest first, from the heaps of n rows.

    Where a row may choose from fewer than H points, its list is not to be used.
    """
    H = lists.shape[1]
    for row in range(cuda.grid(1), n, cuda.gridsize(1)):
        first, last = segment_of(0, segments, M, row, offset)
        count = min(H, last - first)
        for s in range(1, segments):
            first, last = segment_of(s, segments, M, row, offset)
            heap = s * n + row
            for k in range(min(H, last - first)):
                key, index = keys[heap, k], indices[heap, k]
                offer_one(key, index, count, keys, indices, row)
                count += 1
        sort_heap(keys, indices, row, min(H, count))
        for k in range(H):
            lists[row, k] = indices[row, k]


for_kernels(sys.modules[__name__], _stationary, _covariance, _nearest)
