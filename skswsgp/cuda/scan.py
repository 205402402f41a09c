"""Exact neighbour searches on a GPU, by distance or by kernel value.

A thread offers the inducing points of one segment to a heap of one row; then one thread
for each row merges the heaps of its segments. Entries are ordered by key and index
whatever the order of offers, so lists do not depend on the number of segments. Rows and
heaps are stored by columns: neighbouring threads, which have neighbouring rows and the
same segment, read neighbouring numbers.
"""

import math

import numpy as np

from skswsgp._compiled.jit import njit_inner
from skswsgp._compiled.threads import row_blocks
from skswsgp._covariance.program import fill_program
from skswsgp._neighbors.heaps import offer_point, sort_heap, squared_distance
from skswsgp.cuda.compiler import body

HEAPS = 2**17  # most heaps filled at once: half the number of threads of large GPUs
LEAST_POINTS = 8  # points of a segment, in units of H; fewer would only fill a heap
ENTRY = np.dtype(np.float64).itemsize + np.dtype(np.int32).itemsize  # bytes in a heap
POINTS_AT_ONCE = 8  # points whose kernel values a thread computes at once
WHAT = "a neighbour search"


@njit_inner
def segment_bounds(s, segments, M, row, offset):
    """Return first and end of the points of segment s that a row may choose from.

    With an offset >= 0 a row chooses from the points before offset + row.
    """
    length = (M + segments - 1) // segments
    end = min(M, offset + row) if offset >= 0 else M
    first = s * length
    return first, max(first, min(first + length, end))


@body
def scan_segment(heap, points, inducing, n, offset, segments, keys, indices):
    """Fill a heap of n rows by distance; heap s n + row is that of segment s."""
    row, M = heap % n, inducing.shape[0]
    first, last = segment_bounds(heap // n, segments, M, row, offset)
    for j in range(first, last):
        key = squared_distance(points, row, inducing, j)
        offer_point(key, j, j - first, keys, indices, heap)


@body
def scan_values(
    heap, kernel, points, inducing, n, offset, segments, values, slopes, keys, indices
):
    """Fill a heap of n rows by kernel value, the largest first.

    `values` and `slopes` (heaps, n_ops, POINTS_AT_ONCE) are scratch.
    """
    M, size, top = inducing.shape[0], values.shape[2], values.shape[1] - 1
    row, own, scratch = heap % n, values[heap], slopes[heap]
    first, last = segment_bounds(heap // n, segments, M, row, offset)
    x = points[row : row + 1].T
    for start in range(first, last, size):
        count = min(size, last - start)
        group = inducing[start : start + count].T
        fill_program(kernel, x, 1, group, count, own, scratch, 0)
        for j in range(count):
            key, index = -own[top, j], start + j
            offer_point(key, index, index - first, keys, indices, heap)


@body
def merge_heaps(row, M, n, offset, segments, keys, indices, lists):
    """Fill a list of (n, H), smallest key first, from the heaps of the row.

    The list of a row that may choose from fewer than H points is undefined.
    """
    H = lists.shape[1]
    first, last = segment_bounds(0, segments, M, row, offset)
    count = min(H, last - first)
    for s in range(1, segments):
        first, last = segment_bounds(s, segments, M, row, offset)
        heap = s * n + row
        for k in range(min(H, last - first)):
            key, index = keys[heap, k], indices[heap, k]
            offer_point(key, index, count, keys, indices, row)
            count += 1
    sort_heap(keys, indices, row, min(H, count))
    for k in range(H):
        lists[row, k] = indices[row, k]


class DeviceScan:
    """Exact search on a GPU, with the interface of `DistanceScan` and `KernelScan`.

    Keys are those of the CPU but for rounding: distances are subtracted in the
    precision of the points and added in float64 on both, but in another order, and the
    GPU rounds a product and a sum once. Lists are equal where keys differ by more.
    Equal points and distances without rounding, as on a grid, are ties on both. The
    copy of the points on the device lives until `close`.
    """

    def __init__(self, device, points, n_neighbors, kernel=None):
        self.device, self.points, self.n_neighbors = device, points, n_neighbors
        self._kernel, self._work, self._tile = None, None, (0, POINTS_AT_ONCE)
        with device.room_for(WHAT):
            self._inducing = device.send(points)
            if kernel is not None:
                self._kernel = device.send_struct(kernel)
                self._tile = len(kernel.code), POINTS_AT_ONCE

    def find(self, points, offset=-1):
        lists = np.empty((len(points), self.n_neighbors), dtype=np.int32)
        if len(points):
            with self.device.room_for(WHAT):
                size, segments = self._plan(*points.shape, points.itemsize)
                for rows in row_blocks(len(points), size):
                    start = offset + rows.start if offset >= 0 else offset
                    lists[rows] = self._lists(points[rows], start, segments)
        return lists

    def predecessors(self):
        return self.find(self.points, offset=0)

    def close(self):
        """Free the memory on the device."""
        self._inducing = self._kernel = self._work = None

    def _plan(self, n, D, itemsize):
        """Allocate the heaps; return how many rows at once, and segments for each."""
        H, dtype, xp = self.n_neighbors, self.points.dtype, self.device.xp
        budget = self.device.budget("search")
        heap = H * ENTRY + 2 * math.prod(self._tile) * dtype.itemsize  # bytes
        heaps = max(1, min(HEAPS, budget // heap))
        row = D * itemsize + H * np.dtype(np.int32).itemsize
        size = max(1, min(n, heaps, budget // row))
        segments = max(1, min(heaps // size, len(self.points) // (LEAST_POINTS * H)))
        heaps = size * segments
        if self._work is None or len(self._work[0]) < heaps:
            self._work = None
            arrays = [((H,), np.float64), ((H,), np.int32)]  # keys and indices
            if self._kernel is not None:
                arrays = [(self._tile, dtype)] * 2 + arrays
            self._work = [xp.empty((heaps, *s), kind, order="F") for s, kind in arrays]
        return size, segments

    def _lists(self, points, offset, segments):
        """Return the lists of as many rows as are searched at once."""
        n, M, prepare = len(points), len(self.points), self.device.prepare
        rows = self.device.send(np.asfortranarray(points))
        found = self.device.xp.empty((n, self.n_neighbors), np.int32)
        given = rows, self._inducing, n, offset, segments, *self._work
        if self._kernel is None:
            prepare(scan_segment, n * segments, *given)()
        else:
            prepare(scan_values, n * segments, self._kernel, *given)()
        ends = offset, segments, *self._work[-2:], found
        prepare(merge_heaps, n, M, n, *ends)()
        return self.device.fetch(found)
