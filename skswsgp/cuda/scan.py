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
from skswsgp._covariance.products import TileWork
from skswsgp._covariance.program import fill_tile
from skswsgp._neighbors.heaps import offer_point, sort_heap, squared_distance
from skswsgp.cuda import runtime
from skswsgp.cuda.arrays import NO_CALLS, THREADS, empty, send, send_array
from skswsgp.cuda.compiler import compile_kernels, kernel
from skswsgp.cuda.runtime import cuda

HEAPS = 2**17  # most heaps filled at once: half the number of threads of large GPUs
LEAST_POINTS = 8  # points of a segment, in units of H; fewer would only fill a heap
ENTRY = np.dtype(np.float64).itemsize + np.dtype(np.int32).itemsize  # bytes in a heap
POINTS_AT_ONCE = 8  # points whose kernel values a thread computes at once
HEAP = "heaps of a neighbour search", "F"  # name and memory order of scratch


@njit_inner
def segment_bounds(s, segments, M, row, offset):
    """Return first and end of the points of segment s that a row may choose from.

    With an offset >= 0 a row chooses from the points before offset + row.
    """
    length = (M + segments - 1) // segments
    end = min(M, offset + row) if offset >= 0 else M
    first = s * length
    return first, max(first, min(first + length, end))


@kernel
def scan_segments(points, inducing, n, offset, segments, keys, indices):
    """Fill the heaps of n rows by distance; heap s n + row is that of segment s."""
    M = inducing.shape[0]
    for heap in range(cuda.grid(1), n * segments, cuda.gridsize(1)):
        row = heap % n
        first, last = segment_bounds(heap // n, segments, M, row, offset)
        for j in range(first, last):
            key = squared_distance(points, row, inducing, j)
            offer_point(key, j, j - first, keys, indices, heap)


@kernel
def scan_values(
    kernel, points, inducing, n, offset, segments, values, slopes, keys, indices
):
    """Fill the heaps of n rows by kernel value, the largest first; a thread a heap.

    `values` and `slopes` (heaps, n_ops, POINTS_AT_ONCE) are scratch.
    """
    M, size, top = inducing.shape[0], values.shape[2], values.shape[1] - 1
    heap = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if heap < n * segments:
        row, own = heap % n, TileWork(values[heap], slopes[heap], NO_CALLS)
        first, last = segment_bounds(heap // n, segments, M, row, offset)
        x = points[row : row + 1].T
        for start in range(first, last, size):
            count = min(size, last - start)
            group = inducing[start : start + count].T
            fill_tile(kernel, x, 1, group, count, own, 0)
            for j in range(count):
                key, index = -own.values[top, j], start + j
                offer_point(key, index, index - first, keys, indices, heap)


@kernel
def merge_heaps(M, n, offset, segments, keys, indices, lists):
    """Fill the lists (n, H), smallest key first, from the heaps of n rows.

    The list of a row that may choose from fewer than H points is undefined.
    """
    H = lists.shape[1]
    for row in range(cuda.grid(1), n, cuda.gridsize(1)):
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

    def __init__(self, points, n_neighbors, kernel=None):
        self.points, self.n_neighbors = points, n_neighbors
        self._inducing = send_array(points, "the points of the neighbour search")
        self._kernel, n_ops, self._work = None, 0, None
        if kernel is not None:
            self._kernel = send(kernel, "the kernel of the neighbour search")
            n_ops = len(kernel.code)
        self._tile = (
            n_ops,
            POINTS_AT_ONCE,
        )  # kernel values of a heap, and as many derivatives

    def find(self, points, offset=-1):
        lists = np.empty((len(points), self.n_neighbors), dtype=np.int32)
        if len(points):
            size, segments = self._plan(*points.shape, points.itemsize)
            for rows in row_blocks(len(points), size):
                start = offset + rows.start if offset >= 0 else offset
                self._fill(points[rows], start, segments, lists[rows])
        return lists

    def predecessors(self):
        return self.find(self.points, offset=0)

    def close(self):
        """Free the memory on the device."""
        self._inducing = self._kernel = self._work = None

    def _plan(self, n, D, itemsize):
        """Allocate the heaps; return how many rows at once, and segments for each."""
        H, dtype = self.n_neighbors, self.points.dtype
        budget = runtime.budget("neighbor search")
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
            self._work = [empty((heaps, *shape), kind, *HEAP) for shape, kind in arrays]
        return size, segments

    def _fill(self, points, offset, segments, lists):
        """Fill the lists of as many rows as are searched at once."""
        n, M = len(points), len(self.points)
        rows = send_array(points, "rows of a neighbour search", order="F")
        found = send_array(lists, "lists of neighbours")
        blocks = -(-n * segments // THREADS)
        if self._kernel is None:
            scan_segments[blocks, THREADS](
                rows, self._inducing, n, offset, segments, *self._work
            )
        else:  # a team of one thread for a heap
            launch = scan_values[blocks, (1, THREADS)]
            launch(self._kernel, rows, self._inducing, n, offset, segments, *self._work)
        merge_heaps[-(-n // THREADS), THREADS](
            M, n, offset, segments, *self._work[-2:], found
        )
        found.copy_to_host(lists)


def make_scan(points, n_neighbors, n_threads, kernel=None):
    """Return the exact search by distance or kernel value; it ignores `n_threads`."""
    return DeviceScan(points, n_neighbors, kernel)


compile_kernels(__name__)
