"""The H nearest of the inducing points, found on the device."""

import numpy as np

from skswsgp import _cuda
from skswsgp import _search_cuda as kernels
from skswsgp._cuda import cuda
from skswsgp._device_arrays import THREADS, allocate, parts, send_array

HEAPS = 2**17  # filled at once, at most: half as many threads as large GPUs have
MEMORY = 0.125  # of the free memory, which heaps may take
LEAST_POINTS = 8  # times H, of a segment: a shorter one only fills its heap
ENTRY = np.dtype(np.float64).itemsize + np.dtype(np.int32).itemsize


class DeviceScan:
    """All inducing points by exact distances, like `Scan` of `_neighbors`.

    Distances are those of the CPU but for rounding: both subtract in the precision of
    the points and add in float64, but the compilers order sums in their own ways, and
    the one of the GPU rounds a product and a sum once. Lists are the same where
    distances differ by more; equal points, and distances without rounding such as on a
    grid, are ties on both, which go to the lower index.

    Parameters
    ----------
    points : ndarray of shape (M, D)
        Scaled inducing points; their copy on the device lives until `close`.
    n_neighbors : int
        H.
    """

    def __init__(self, points, n_neighbors):
        self.points, self.n_neighbors = points, n_neighbors
        self._inducing = send_array(points, "the points of the neighbour search")
        self._keys = self._indices = None

    def find(self, points, offset=-1):
        """Return the lists (n, H) of scaled points, nearest first, ties by index.

        With an offset >= 0, row i chooses from the points before offset + i.
        """
        lists = np.empty((len(points), self.n_neighbors), dtype=np.int32)
        if len(points):
            size, segments = self._plan(*points.shape, points.itemsize)
            for rows in parts(len(points), size):
                start = offset + rows.start if offset >= 0 else offset
                self._fill(points[rows], start, segments, lists[rows])
        return lists

    def predecessors(self):
        """Return the lists (M, H) of each inducing point among those before it."""
        return self.find(self.points, offset=0)

    def close(self):
        """Give the memory back."""
        self._inducing = self._keys = self._indices = None

    def _plan(self, n, D, itemsize):
        """Return how many of n rows to take at once, and segments for each."""
        H = self.n_neighbors
        budget = int(MEMORY * _cuda.free_memory())
        heaps = max(1, min(HEAPS, budget // (H * ENTRY)))
        row = D * itemsize + H * np.dtype(np.int32).itemsize
        size = max(1, min(n, heaps, budget // row))
        segments = max(1, min(heaps // size, len(self.points) // (LEAST_POINTS * H)))
        if self._keys is None or len(self._keys) < size * segments:
            self._keys = self._indices = None
            self._keys = empty((size * segments, H), np.float64)
            self._indices = empty((size * segments, H), np.int32)
        return size, segments

    def _fill(self, points, offset, segments, lists):
        """Fill the lists of a few rows."""
        n, heaps = len(points), (self._keys, self._indices)
        rows = send_array(points, "rows of a neighbour search", order="F")
        found = send_array(lists, "lists of neighbours")
        scanned = rows, self._inducing, n, offset, segments, *heaps
        kernels.scan_segments[-(-n * segments // THREADS), THREADS](*scanned)
        merged = len(self.points), n, offset, segments, *heaps, found
        kernels.merge_heaps[-(-n // THREADS), THREADS](*merged)
        found.copy_to_host(lists)


def empty(shape, dtype):
    """Return an array on the device, by columns, that holds anything."""
    return allocate(
        lambda: cuda.device_array(shape, dtype, order="F"),
        "heaps of a neighbour search",
        int(np.prod(shape)) * np.dtype(dtype).itemsize,
    )
