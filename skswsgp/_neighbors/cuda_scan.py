"""Exact neighbour searches on a GPU, by distance or by kernel value.

A thread offers the inducing points of one segment to a heap of one row; then one thread
for each row merges the heaps of its segments. Entries are ordered by key and index
whatever the order of offers, so lists do not depend on the number of segments. Rows and
heaps are stored by columns: neighbouring threads, which have neighbouring rows and the
same segment, read neighbouring numbers.
"""

import numpy as np

from skswsgp._compiled import cuda_runtime
from skswsgp._compiled.cuda_arrays import THREADS, empty, send, send_array
from skswsgp._compiled.cuda_compiler import compile_kernels, kernel
from skswsgp._compiled.cuda_runtime import cuda
from skswsgp._compiled.jit import njit
from skswsgp._compiled.threads import row_blocks
from skswsgp._covariance.program import fill_tile
from skswsgp._neighbors.heaps import offer_point, sort_heap, squared_distance

HEAPS = 2**17  # most heaps filled at once: half the number of threads of large GPUs
LEAST_POINTS = 8  # points of a segment, in units of H; fewer would only fill a heap
ENTRY = np.dtype(np.float64).itemsize + np.dtype(np.int32).itemsize  # bytes in a heap
GROUP = 8  # points whose kernel values a thread computes at once
HEAP = "heaps of a neighbour search", "F"  # name and memory order of scratch


@njit
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

    `values` and `slopes` (heaps, n_ops, GROUP) are scratch.
    """
    M, size, top = inducing.shape[0], values.shape[2], values.shape[1] - 1
    heap = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    if heap < n * segments:
        row, own_values, own_slopes = heap % n, values[heap], slopes[heap]
        first, last = segment_bounds(heap // n, segments, M, row, offset)
        x = points[row : row + 1].T
        for start in range(first, last, size):
            count = min(size, last - start)
            group = inducing[start : start + count].T
            fill_tile(kernel, x, 1, group, count, own_values, own_slopes, 0)
            for j in range(count):
                key, index = -own_values[top, j], start + j
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


class DeviceDistanceScan:
    """Exact search by distance on a GPU, with the interface of `DistanceScan`.

    Distances are those of the CPU but for rounding: both subtract in the precision of
    the points and add in float64, but sum in another order, and the GPU rounds a
    product and a sum once. Lists are equal where distances differ by more. Equal points
    and distances without rounding, as on a grid, are ties on both. The copy of the
    points on the device lives until `close`.
    """

    def __init__(self, points, n_neighbors):
        self.points, self.n_neighbors = points, n_neighbors
        self._inducing = send_array(points, "the points of the neighbour search")
        self._keys = self._indices = None

    @property
    def _bytes_per_heap(self):
        return self.n_neighbors * ENTRY

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
        self._inducing = self._keys = self._indices = None

    def _plan(self, n, D, itemsize):
        """Allocate the heaps; return how many rows at once, and segments for each."""
        H = self.n_neighbors
        budget = cuda_runtime.budget("neighbor search")
        heaps = max(1, min(HEAPS, budget // self._bytes_per_heap))
        row = D * itemsize + H * np.dtype(np.int32).itemsize
        size = max(1, min(n, heaps, budget // row))
        segments = max(1, min(heaps // size, len(self.points) // (LEAST_POINTS * H)))
        if self._keys is None or len(self._keys) < size * segments:
            self._keys = self._indices = None
            self._keys = empty((size * segments, H), np.float64, *HEAP)
            self._indices = empty((size * segments, H), np.int32, *HEAP)
            self._allocate_scratch(size * segments)
        return size, segments

    def _fill(self, points, offset, segments, lists):
        """Fill the lists of as many rows as are searched at once."""
        n, heaps = len(points), (self._keys, self._indices)
        rows = send_array(points, "rows of a neighbour search", order="F")
        found = send_array(lists, "lists of neighbours")
        self._scan(-(-n * segments // THREADS), rows, n, offset, segments)
        merged = len(self.points), n, offset, segments, *heaps, found
        merge_heaps[-(-n // THREADS), THREADS](*merged)
        found.copy_to_host(lists)

    def _scan(self, blocks, rows, *arguments):
        """Fill the heaps of all segments."""
        heaps = self._keys, self._indices
        scan_segments[blocks, THREADS](rows, self._inducing, *arguments, *heaps)

    def _allocate_scratch(self, n_heaps):
        """Allocate scratch besides the heaps; distances need none."""


class DeviceKernelScan(DeviceDistanceScan):
    """Exact search by kernel value on a GPU, with the interface of `KernelScan`.

    Values are those of the CPU but for rounding, so lists are equal where values differ
    by more; copies of a point are ties on both.
    """

    def __init__(self, kernel, points, n_neighbors):
        super().__init__(points, n_neighbors)
        self._kernel = send(kernel, "the kernel of the neighbour search")
        self._n_ops, self._values, self._slopes = len(kernel.code), None, None

    def close(self):
        super().close()
        self._kernel = self._values = self._slopes = None

    @property
    def _bytes_per_heap(self):
        scratch = 2 * self._n_ops * GROUP * self.points.itemsize
        return super()._bytes_per_heap + scratch

    def _allocate_scratch(self, n_heaps):
        self._values = self._slopes = None
        shape = n_heaps, self._n_ops, GROUP
        self._values = empty(shape, self.points.dtype, *HEAP)
        self._slopes = empty(shape, self.points.dtype, *HEAP)

    def _scan(self, blocks, rows, *arguments):
        scratch = self._values, self._slopes, self._keys, self._indices
        launch = scan_values[blocks, (1, THREADS)]  # a team of one thread for a heap
        launch(self._kernel, rows, self._inducing, *arguments, *scratch)


def make_scan(points, n_neighbors, n_threads, kernel=None):
    """Return the exact search by distance or kernel value; it ignores `n_threads`."""
    if kernel is None:
        return DeviceDistanceScan(points, n_neighbors)
    return DeviceKernelScan(kernel, points, n_neighbors)


compile_kernels(__name__)
