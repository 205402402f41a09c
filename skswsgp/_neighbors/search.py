"""The H nearest of M inducing points: by an exact scan or a graph.

Distances are taken between scaled points, (x - centre) / length-scale, in D features.
"""

import warnings
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from skswsgp._compiled.threads import ROWS_AT_ONCE, parallel_region, row_blocks
from skswsgp._covariance.compile import distance_leaves, is_decreasing
from skswsgp._covariance.program import Kernel
from skswsgp._neighbors.distance_scan import DistanceScan
from skswsgp._neighbors.heaps import sort_lists
from skswsgp._neighbors.kernel_scan import KernelScan

# How many entries of the rows of X are scaled at once. So many pairs of rows and points
# are also the most for which "exact" makes a table of all distances, which takes 60 ms.
NUMBERS_AT_ONCE = 4_000_000
GRAPH_EPSILON = 0.2  # PyNNDescent's `epsilon`: a larger one is slower and finds more
# Microseconds per row of the scan, 100,000 rows, H = 16, one core of an AMD EPYC:
#
#                               D=1    D=2    D=4    D=6    D=8   D=26
#   M = 3,000, normal           1.5    1.9    2.5    3.3
#   M = 100,000                 2.9    2.4    3.7    8.8    22
#   M = 1,000,000               12     5.2    8.0    19     58
#   M = 1,000,000, 50 clusters                              16    64
#
# A graph of 100,000 points in 50 clusters, D = 26, is built in 36 seconds, most of them
# compilation in each process, and answers in 47 microseconds with a recall of 0.984.
# The scan takes 21 microseconds there. For a million points without structure it takes
# 790. A k-d tree of SciPy is faster where D = 1 only: 1.7 and 3.8.


class Metric(NamedTuple):
    """The measure of nearness."""

    name: str  # "scaled" or "kernel"
    inv_scale: np.ndarray | None  # (D,) float64 1 / length-scale, for "scaled"


def choose_metric(kernel):
    """Return the Metric under which points of large covariance are near.

    If the kernel is made of decreasing functions of a single scaled distance, then the
    largest kernel value is the smallest distance, which is found faster.
    """
    scales = kernel.inv_scale[distance_leaves(kernel)].astype(np.float64)
    if is_decreasing(kernel) and len(scales) > 0 and (scales == scales[0]).all():
        return Metric("scaled", scales[0])
    return Metric("kernel", None)


def cpu_scan(points, n_neighbors, n_threads, kernel=None):
    """Return the exact search among points, by distance or by the value of a kernel."""
    if kernel is None:
        return DistanceScan(points, n_neighbors, n_threads)
    return KernelScan(kernel, points, n_neighbors, n_threads)


# An index has a method `find`, which returns lists (n, H) and for each row whether its
# list can be trusted (n,).


def find_in_table(rows, points, H, before=None):
    """Return lists (n, H) of rows among few points from all distances, and trust (n,).

    With `before` (n,) a row chooses from so many points, at least H. Trusted lists are
    those that a scan gives, without its compilation, which takes seconds. Others have
    distances that differ by rounding only.
    """
    distance = cdist(rows, points, "sqeuclidean")
    if before is not None:
        distance[np.arange(len(points)) >= before[:, None]] = np.inf
    order = np.argpartition(distance, H, axis=1)[:, : H + 1]
    ordered = np.take_along_axis(distance, order, axis=1)
    order = np.take_along_axis(order, np.argsort(ordered, axis=1), axis=1)
    ordered.sort(axis=1)
    rounding = 4 * (points.shape[1] + 2) * np.finfo(distance.dtype).eps
    apart = ordered[:, 1:] > (1.0 + rounding) * ordered[:, :-1]
    return order[:, :H].astype(np.int32), apart.all(axis=1)


class _Graph:
    """A neighbour graph of PyNNDescent: approximate, for M too large to scan."""

    def __init__(self, points, n_neighbors, n_threads):
        # The import takes seconds, so it waits until a graph is needed.
        from pynndescent import NNDescent

        self.n_neighbors, self.n_threads = n_neighbors, n_threads
        with parallel_region(n_threads, exact=False), warnings.catch_warnings():
            # Rows whose list is incomplete are searched again by the scan.
            warnings.filterwarnings("ignore", "Failed to correctly find", UserWarning)
            self.graph = NNDescent(
                points.astype(np.float32),
                n_neighbors=min(max(30, n_neighbors), len(points) - 1),
                random_state=0,
            )
            self.graph.prepare()

    def find(self, points):
        # Queries share scratch, so there is one at a time.
        with parallel_region(self.n_threads, exact=False):
            lists, distance = self.graph.query(
                points.astype(np.float32), k=self.n_neighbors, epsilon=GRAPH_EPSILON
            )
        # Missing neighbours are -1, or repeat a point at an infinite distance.
        complete = np.isfinite(distance).all(axis=1) & (lists >= 0).all(axis=1)
        distinct = (np.diff(np.sort(lists, axis=1), axis=1) > 0).all(axis=1)
        return np.maximum(lists, 0), complete & distinct


def _choose_search(search, metric, M, H):
    """Return the kind of search, "scan" or "graph"; H = M takes "scan"."""
    if H == M or search != "approximate":
        return "scan"
    if metric.name != "scaled":
        raise ValueError(
            "neighbor_search='approximate' with the largest kernel value as the "
            "measure of nearness: expected a kernel that decreases with one scaled "
            "distance; use neighbor_search='exact'."
        )
    return "graph"


class NeighborSearch:
    """Search for the H nearest of the inducing points Z (M, D).

    The list of a row depends on no other row and, except for PyNNDescent, not on the
    number of threads. `search` is the parameter `neighbor_search` of an estimator, or
    "scan" for an exact search without tables. `make_scan` returns that search; an
    engine replaces it to search on a GPU. The struct of the kernel is copied. The
    attribute `kind` is the search in use: "scan" or "graph".
    """

    def __init__(
        self, Z, kernel, *, n_neighbors, search="exact", n_threads=1,
        make_scan=cpu_scan,
    ):  # fmt: skip
        M = len(Z)
        self._make_scan = make_scan
        self.metric = choose_metric(kernel)
        self.kind = _choose_search(search, self.metric, M, n_neighbors)
        self.n_neighbors, self.n_threads = n_neighbors, n_threads
        self._M, self._dtype = M, Z.dtype
        self._kernel = Kernel(*(np.array(field) for field in kernel))
        if self.metric.name == "scaled":
            # Entries from the middle keep points on a grid, so ties stay.
            few = Z[:: -(-M // ROWS_AT_ONCE)]
            self._centre = np.partition(few, len(few) // 2, axis=0)[len(few) // 2]
            self._inv_scale = self.metric.inv_scale.astype(Z.dtype)
        self._points = self._scaled(Z)
        exact = search == "exact" and self.metric.name == "scaled"
        exact &= self._dtype == np.float64  # whose distances are those of the scan
        self._takes_tables = exact and make_scan is cpu_scan
        how = self._points, n_neighbors, n_threads
        self._index = _Graph(*how) if self.kind == "graph" else None

    def query(self, X):
        """Return the lists (n, H) of the rows of X (n, D), int32, nearest first.

        Ties go to the lower index. If H = M, lists are in order of index.
        """
        lists = np.empty((len(X), self.n_neighbors), dtype=np.int32)
        if self.n_neighbors == self._M:
            lists[:] = np.arange(self._M)
            return lists
        for rows in row_blocks(len(X), max(1, NUMBERS_AT_ONCE // X.shape[1])):
            lists[rows] = self._nearest(self._scaled(X[rows]))
        return lists

    def predecessors(self):
        """Return the lists (M, H) of each inducing point among the points before it.

        The lists of the first H points are undefined.
        """
        points, H = self._points, self.n_neighbors
        if self._takes_tables and self._M**2 <= NUMBERS_AT_ONCE:
            lists = np.zeros((self._M, H), dtype=np.int32)
            found = find_in_table(points[H:], points, H, np.arange(H, self._M))
            lists[H:], trusted = found
            if trusted.all():
                return lists
        return self._scan.predecessors()

    def _scaled(self, X):
        """Return a copy of X in the units of distances."""
        X = np.array(X, dtype=self._dtype, order="C")
        if self.metric.name == "scaled":
            with np.errstate(over="ignore"):  # of rows far from all points
                X -= self._centre
                X *= self._inv_scale
        return X

    def _nearest(self, points):
        """Return the lists of scaled points, by the index where it can be trusted."""
        if self._index is None:
            if self._takes_tables and len(points) * self._M <= NUMBERS_AT_ONCE:
                lists, trusted = find_in_table(points, self._points, self.n_neighbors)
                if not trusted.all():
                    lists[~trusted] = self._scan.find(points[~trusted])
                return lists
            return self._scan.find(points)
        lists, trusted = self._index.find(points)
        lists = lists.astype(np.int32)
        heap = (1, self.n_neighbors)
        sort_lists(
            points, self._points, np.empty(heap), np.empty(heap, dtype=np.int32), lists
        )
        lists[~trusted] = self._scan.find(points[~trusted])
        return lists

    @cached_property
    def _scan(self):
        kernel = None if self.metric.name == "scaled" else self._kernel
        return self._make_scan(self._points, self.n_neighbors, self.n_threads, kernel)
