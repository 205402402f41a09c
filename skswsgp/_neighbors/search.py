"""The H nearest inducing points of rows of data: exact, by a tree, or by a graph.

Distances are taken between scaled points, (x - centre) / length-scale. H, M, D: see
_state.
"""

import warnings
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from skswsgp._compiled.threads import parallel_region, row_blocks
from skswsgp._covariance.compile import distance_leaves, is_decreasing
from skswsgp._covariance.program import Kernel
from skswsgp._neighbors.distance_scan import DistanceScan
from skswsgp._neighbors.heaps import sort_lists
from skswsgp._neighbors.kernel_scan import KernelScan, draw_random_lists

NUMBERS_PER_BATCH = 4_000_000  # numbers in the rows that are scaled at once
GRAPH_EPSILON = 0.2  # of the search in the graph: more is slower and finds more
# When "auto" takes what. Microseconds a row of the scan with boxes and of the KD-tree,
# 100,000 rows, H = 16, one core of an AMD EPYC (Zen 4):
#
#                          D=1       D=2       D=4       D=6       D=8
#   M = 3,000, normal    1.5/1.6   1.9/2.0   2.5/4.5   3.3/10
#   M = 100,000          2.9/1.7   2.4/2.5   3.7/6.7   8.8/32    22/114
#   M = 1,000,000         12/3.8   5.2/5.2   8.0/19     19/99    58
#   M = 1,000,000, 50 clusters                                   16/203
#
# A graph over 100,000 points in 50 clusters, D = 26, is made in 36 seconds, most of
# which is compilation in each process, and answers in 47 microseconds with a recall of
# 0.984; the scan takes 21, with a million points 64. Where features have no structure
# it takes 790 with a million points, as many as a fit then has rows.
TREE_M, TREE_D = 50_000, 1
GRAPH_M, GRAPH_D = 500_000, 32


class Metric(NamedTuple):
    """What nearest means."""

    name: str  # "scaled", "kernel" or "random"
    inv_scale: np.ndarray | None  # (D,) float64 1 / length-scale, for "scaled"


def choose_metric(neighbor_metric, kernel):
    """Return the Metric for a word of the user and a kernel.

    The largest kernel value is the smallest scaled distance if the kernel is made of
    decreasing functions of one and the same distance.
    """
    if neighbor_metric == "random":
        return Metric("random", None)
    if neighbor_metric == "euclidean":
        return Metric("scaled", np.ones(kernel.inv_scale.shape[1]))
    scales = kernel.inv_scale[distance_leaves(kernel)].astype(np.float64)
    if is_decreasing(kernel) and len(scales) > 0 and (scales == scales[0]).all():
        return Metric("scaled", scales[0])
    return Metric("kernel", None)


def make_scan(points, n_neighbors, n_threads, kernel=None):
    """Return the exact search among points: by distance, or the value of a kernel."""
    if kernel is None:
        return DistanceScan(points, n_neighbors, n_threads)
    return KernelScan(kernel, points, n_neighbors, n_threads)


# Indices: `find` returns lists (n, H) and the rows (n,) where they are to be trusted.


class _Tree:
    """A KD-tree: exact, but blind to the order of ties."""

    def __init__(self, points, n_neighbors, n_threads):
        self.tree = cKDTree(points)
        self.n_neighbors, self.n_threads = n_neighbors, n_threads
        self.tie = 1 + 8 * np.finfo(points.dtype).eps

    def find(self, points):
        H = self.n_neighbors
        distance, lists = self.tree.query(points, k=H + 1, workers=self.n_threads)
        decided = distance[:, H] > self.tie * distance[:, H - 1]
        return lists[:, :H], decided


class _Graph:
    """A graph of neighbours by PyNNDescent: approximate, for M too large to scan."""

    def __init__(self, points, n_neighbors, n_threads, seed):
        # Imported here: it takes seconds, and building compiles for half a minute.
        from pynndescent import NNDescent

        self.n_neighbors, self.n_threads = n_neighbors, n_threads
        with parallel_region(n_threads), warnings.catch_warnings():
            # Rows that the graph fails are searched again.
            warnings.filterwarnings("ignore", "Failed to correctly find", UserWarning)
            self.graph = NNDescent(
                points.astype(np.float32),
                n_neighbors=min(max(30, n_neighbors), len(points) - 1),
                random_state=seed,
            )
            self.graph.prepare()

    def find(self, points):
        with parallel_region(self.n_threads):  # it shares scratch between queries
            lists, distance = self.graph.query(
                points.astype(np.float32), k=self.n_neighbors, epsilon=GRAPH_EPSILON
            )
        # What it did not find it marks by -1, or by the last point far away.
        complete = np.isfinite(distance).all(axis=1) & (lists >= 0).all(axis=1)
        distinct = (np.diff(np.sort(lists, axis=1), axis=1) > 0).all(axis=1)
        return np.maximum(lists, 0), complete & distinct


def _choose_search(search, metric, M, D, H):
    """Return the kind of search, "brute" where another makes no sense."""
    if metric.name == "random" or H == M:
        return "brute"
    if metric.name != "scaled" and search not in ("auto", "brute"):
        raise ValueError(
            f"neighbor_search={search!r} with the largest kernel value as the measure "
            "of nearness: expected a kernel that decreases with one scaled distance; "
            "use neighbor_search='auto' or neighbor_metric='euclidean'."
        )
    if search != "auto":
        return search
    if metric.name != "scaled":
        return "brute"
    if M >= TREE_M and D <= TREE_D:
        return "kd_tree"
    return "pynndescent" if M >= GRAPH_M and D > GRAPH_D else "brute"


class NeighborSearch:
    """The H nearest of the inducing points Z (M, D), H = n_neighbors <= M.

    `kernel` is a `_covariance.Kernel`, `metric` the user's word for it. The list of a
    row depends on no other row and, but for PyNNDescent, not on the number of threads.
    `make_scan` is what an engine takes in place of the function here.

    Attributes
    ----------
    kind : {"brute", "kd_tree", "pynndescent"}
        The search that is used.
    metric : Metric
        What nearest means.
    """

    def __init__(
        self, Z, kernel, *, n_neighbors, metric="kernel", search="auto", n_threads=1,
        seed=0, make_scan=make_scan,
    ):  # fmt: skip
        M, D = Z.shape
        self._make_scan = make_scan
        self.metric = choose_metric(metric, kernel)
        self.kind = _choose_search(search, self.metric, M, D, n_neighbors)
        self.n_neighbors, self.n_threads = n_neighbors, n_threads
        self._M, self._dtype, self._seed = M, Z.dtype, np.uint64(seed)
        self._kernel = Kernel(*(np.array(field) for field in kernel))  # it may change
        if self.metric.name == "scaled":
            self._centre = _medians(Z)
            self._inv_scale = self.metric.inv_scale.astype(Z.dtype)
        self._points = self._scaled(Z)
        self._index = self._build_index(self._points)

    def query(self, X):
        """Return the lists (n, H) of the rows X (n, D), int32, nearest first.

        Ties go to the lower index. Lists are in order of index where H = M, in no
        order where the metric is "random".
        """
        lists = np.empty((len(X), self.n_neighbors), dtype=np.int32)
        if self.n_neighbors == self._M:
            lists[:] = np.arange(self._M)
            return lists
        for rows in _batches(*X.shape):
            if self.metric.name == "random":
                lists[rows] = self._random(X[rows])
            else:
                lists[rows] = self._nearest(self._scaled(X[rows]))
        return lists

    def recall(self, X):
        """Return the share of the nearest inducing points of X that `query` finds."""
        if self._index is None:
            return 1.0
        found, total = 0, 0
        for rows in _batches(*X.shape):
            points = self._scaled(X[rows])
            exact = self._exact(points)
            lists = self._nearest(points)
            found += sum(
                len(np.intersect1d(a, b)) for a, b in zip(exact, lists, strict=True)
            )
            total += exact.size
        return found / total

    def _build_index(self, points):
        if self.kind == "kd_tree":
            return _Tree(points, self.n_neighbors, self.n_threads)
        if self.kind == "pynndescent":
            return _Graph(points, self.n_neighbors, self.n_threads, int(self._seed))
        return None

    def _scaled(self, X):
        """Return a copy of X that distances are taken in."""
        X = np.array(X, dtype=self._dtype, order="C")
        if self.metric.name == "scaled":
            X -= self._centre
            X *= self._inv_scale
        return X

    def _nearest(self, points):
        """Return the lists of scaled points: by the index where it can be trusted."""
        if self._index is None:
            return self._exact(points)
        lists, trusted = self._index.find(points)
        lists = lists.astype(np.int32)
        self._sort(points, lists)
        lists[~trusted] = self._exact(points[~trusted])
        return lists

    def predecessors(self):
        """Return the lists (M, H) of each inducing point among those before it.

        Those of the first H points, which have fewer, are not to be used.
        """
        return self._scan.predecessors()

    def _exact(self, points):
        """Return the lists of scaled points without an index."""
        return self._scan.find(points)

    @cached_property
    def _scan(self):
        kernel = None if self.metric.name == "scaled" else self._kernel
        return self._make_scan(self._points, self.n_neighbors, self.n_threads, kernel)

    def _sort(self, points, lists):
        """Bring lists to the order of `_exact`, in place."""
        distances = np.empty((1, self.n_neighbors))
        indices = np.empty((1, self.n_neighbors), dtype=np.int32)
        sort_lists(points, self._points, distances, indices, lists)

    def _random(self, X):
        """Return a random list for each row, a function of the row and the seed."""
        X = np.array(X, dtype=self._dtype, order="C")
        X += 0.0  # minus zero becomes zero
        lists = np.empty((len(X), self.n_neighbors), dtype=np.int32)
        bits = X.view(f"u{X.itemsize}")
        # Overflow is meant; numpy minds it where compilation is off.
        with np.errstate(over="ignore"):
            draw_random_lists(bits, self._M, self._seed, lists)
        return lists


def _batches(n_rows, n_features):
    """Yield slices of rows that hold at most NUMBERS_PER_BATCH numbers."""
    return row_blocks(n_rows, max(1, NUMBERS_PER_BATCH // n_features))


def _medians(Z):
    """Return an entry from the middle of each column of Z.

    Not the mean: points on a grid stay on it, so that equal distances stay equal.
    """
    middle = len(Z) // 2
    return np.partition(Z, middle, axis=0)[middle]
