"""The H nearest inducing points of rows of data: exact, by a tree, or by a graph.

Distances are taken between scaled points, (x - centre) / length-scale. H, M, D: see
_state.
"""

import warnings
from functools import cached_property
from typing import NamedTuple

import numpy as np
import sklearn
from scipy.spatial import cKDTree

from skswsgp._covariance import (
    CONSTANT,
    POWER,
    RATIONAL_QUADRATIC,
    RBF,
    SCALE,
    WHITE,
    Kernel,
)
from skswsgp._jit import launch
from skswsgp._nearest import ROWS, TILE, draw_lists, likest, sort_lists
from skswsgp._partition import tree_order
from skswsgp._scan import make_panels, make_scratch, scan, slack_of
from skswsgp._tiles import BLOCK

BATCH = 4_000_000  # numbers in the rows that are scaled at once
FIRST_PART = 1024  # of a chain, whose predecessors are found among themselves
EPSILON = 0.2  # of the search in the graph: more is slower and finds more


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
    scales = kernel.inv_scale[_is_stationary(kernel.code)].astype(np.float64)
    if _is_decreasing(kernel) and len(scales) > 0 and (scales == scales[0]).all():
        return Metric("scaled", scales[0])
    return Metric("kernel", None)


def _is_stationary(code):
    """Whether operations are functions of a scaled distance."""
    return (code >= RBF) & (code <= RATIONAL_QUADRATIC)


def _is_decreasing(kernel):
    """Whether no operation can grow with a distance."""
    code = kernel.code
    leaf = _is_stationary(code) | (code == CONSTANT) | (code == WHITE)
    joined = (code >= SCALE) & ((code != POWER) | (kernel.exponent > 0))
    return bool((leaf | joined).all())


class Scan:
    """All points, but for tiles that are too far away: exact.

    Parameters
    ----------
    points : ndarray of shape (M, D)
        Scaled inducing points.
    n_neighbors : int
        H.
    n_threads : int
        Threads of every launch.
    """

    def __init__(self, points, n_neighbors, n_threads):
        self.points = points
        self.n_neighbors, self.n_threads = n_neighbors, n_threads

    def find(self, points):
        """Return the lists (n, H) of scaled points, nearest first, ties by index."""
        lists = np.empty((len(points), self.n_neighbors), dtype=np.int32)
        self._scan(points, self._panels, lists)
        return lists

    def predecessors(self):
        """Return the lists (M, H) of each inducing point among those before it."""
        M = len(self.points)
        lists = np.empty((M, self.n_neighbors), dtype=np.int32)
        start, stop = 0, FIRST_PART
        # But for the first part, at least half of the points come before a row.
        while start < M:
            panels = make_panels(self.points[:stop])
            self._scan(self.points[start:stop], panels, lists[start:stop], start)
            start, stop = stop, 2 * stop
        return lists

    def _scan(self, points, panels, lists, offset=-1):
        """Fill the lists of scaled points; those of a chain start at an offset."""
        D, n_tiles = points.shape[1], len(panels.low)
        works = make_scratch(self.n_threads, n_tiles, D, self.n_neighbors)
        rows, slack = tree_order(points, BLOCK), slack_of(D)
        scan(points, rows, self.points, offset, panels, slack, works, lists)

    @cached_property
    def _panels(self):
        return make_panels(self.points)


class Likest:
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
        self._tiles = _tiles(points)

    def find(self, points):
        """Return the lists (n, H) of points, likest first, ties by index."""
        return self._find(points, before=False)

    def predecessors(self):
        """Return the lists (M, H) of each inducing point among those before it."""
        return self._find(self.points, before=True)

    def _find(self, points, before):
        lists = np.empty((len(points), self.n_neighbors), dtype=np.int32)
        shape = (self.n_threads, len(self.kernel.code), TILE)
        values, slopes = np.zeros((2, *shape), dtype=self.points.dtype)
        likest(
            self.kernel, points, self._tiles, len(self.points), before, values,
            slopes, *self._scratch(), lists,
        )  # fmt: skip
        return lists

    def _scratch(self):
        """Allocate the keys of a tile, and heaps for a block of rows."""
        heaps = (self.n_threads, ROWS, self.n_neighbors)
        return (
            np.empty((self.n_threads, TILE), dtype=self.points.dtype),
            np.empty(heaps, dtype=self.points.dtype),
            np.empty(heaps, dtype=np.int32),
        )


def make_scan(points, n_neighbors, n_threads, kernel=None):
    """Return the exact search among points: by distance, or the value of a kernel."""
    if kernel is None:
        return Scan(points, n_neighbors, n_threads)
    return Likest(kernel, points, n_neighbors, n_threads)


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
        with launch(n_threads), warnings.catch_warnings():
            # Rows that the graph fails are searched again.
            warnings.filterwarnings("ignore", "Failed to correctly find", UserWarning)
            self.graph = NNDescent(
                points.astype(np.float32),
                n_neighbors=min(max(30, n_neighbors), len(points) - 1),
                random_state=seed,
            )
            self.graph.prepare()

    def find(self, points):
        with launch(self.n_threads):  # it shares scratch between queries
            lists, distance = self.graph.query(
                points.astype(np.float32), k=self.n_neighbors, epsilon=EPSILON
            )
        # What it did not find it marks by -1, or by the last point far away.
        complete = np.isfinite(distance).all(axis=1) & (lists >= 0).all(axis=1)
        distinct = (np.diff(np.sort(lists, axis=1), axis=1) > 0).all(axis=1)
        return np.maximum(lists, 0), complete & distinct


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
            draw_lists(bits, self._M, self._seed, lists)
        return lists


def _batches(n_rows, n_features):
    """Return slices of rows that hold at most BATCH numbers."""
    size = max(1, BATCH // n_features)
    return [slice(start, start + size) for start in range(0, n_rows, size)]


def _medians(Z):
    """Return an entry from the middle of each column of Z.

    Not the mean: points on a grid stay on it, so that equal distances stay equal.
    """
    middle = len(Z) // 2
    return np.partition(Z, middle, axis=0)[middle]


def _tiles(points):
    """Return points (M, D) as tiles (n_tiles, D, TILE), zeros after the last point."""
    M, D = points.shape
    n_tiles = -(-M // TILE)
    padded = np.zeros((n_tiles * TILE, D), dtype=points.dtype)
    padded[:M] = points
    return np.ascontiguousarray(padded.reshape(n_tiles, TILE, D).transpose(0, 2, 1))


class NeighborLists:
    """The lists of training rows, kept as long as they fit into a budget of memory.

    Beyond `budget_bytes` nothing is kept and each call searches.
    """

    def __init__(self, n_rows, n_neighbors, budget_bytes):
        self._lists = None
        if n_rows * n_neighbors * np.dtype(np.int32).itemsize <= budget_bytes:
            self._lists = np.empty((n_rows, n_neighbors), dtype=np.int32)
            self._versions = np.full(n_rows, -1, dtype=np.int64)

    def lookup(self, rows, X_rows, search, version):
        """Return the lists (len(rows), H) of the rows with these indices.

        `X_rows` are their coordinates; `version` >= 0 is the number of the search, so
        that lists of an earlier one are replaced.
        """
        if self._lists is None:
            return search.query(X_rows)
        missing = self._versions[rows] != version
        if missing.any():
            self._lists[rows[missing]] = search.query(X_rows[missing])
            self._versions[rows[missing]] = version
        return self._lists[rows]


def memory_budget():
    """Return scikit-learn's setting `working_memory` in bytes."""
    return int(sklearn.get_config()["working_memory"] * 2**20)
