"""TODO docstring."""

import numpy as np

from skswsgp._covariance.program import kernel_of
from skswsgp._neighbors.search import NeighborSearch

METRIC_TOLERANCE = 0.05  # movement, in length-scales, after which lists are stale


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


class TrackedSearch:
    """A search for neighbours that follows the model as it moves.

    When what decides on them has moved by METRIC_TOLERANCE, the search is made anew;
    where a search costs more than a point, that happens so seldom that it costs no
    more. `n_rows` are those of an epoch.
    """

    def __init__(self, engine, n_rows, options):
        self.engine = engine
        self.options = options
        self.version = -1
        M, D = engine.model.Z.shape
        H = engine.n_neighbors
        ratio = M * D / (16.0 * H**3 + 48.0 * H**2 * D + 16_000.0)
        self.patience = int(ratio * n_rows)  # rows visited before lists are made anew
        self.visited = 0
        self._build()

    def _build(self):
        model = self.engine.kernel_snapshot()
        self.search = NeighborSearch(
            model.Z,
            kernel_of(model),
            n_neighbors=self.engine.n_neighbors,
            n_threads=self.engine.n_threads,
            make_scan=self.engine.make_scan,
            **self.options,
        )
        self.Z, self.inv_scale = model.Z.copy(), model.inv_scale.copy()
        self.params = model.params.copy()
        self.version += 1
        self.visited = 0

    def _moved(self):
        metric = self.options["metric"]
        if metric == "random":  # a list depends on its row alone
            return False
        change = self._kernel_change() if metric == "kernel" else 0.0
        return max(change, self._inducing_change()) >= METRIC_TOLERANCE

    def _kernel_change(self):
        """Return how far the logarithms of the kernel's parameters have moved."""
        model = self.engine.kernel_snapshot()
        if self.search.metric.name == "scaled":
            change = np.log(model.inv_scale / self.inv_scale)
            change -= change.mean(axis=1, keepdims=True)  # it changes no order
        else:
            moved = model.params != self.params  # fixed ones may be zero
            change = np.log(model.params[moved] / self.params[moved])
        return np.abs(change).max(initial=0.0)

    def _inducing_change(self):
        """Return how far inducing inputs have moved, in length-scales."""
        model = self.engine.kernel_snapshot()
        if not model.train_inducing:  # spares a pass over all of Z
            return 0.0
        steps = np.abs(model.Z - self.Z).max(axis=0)
        return (steps * model.inv_scale.max(axis=0)).max()

    def recall(self, X):
        """Return the share of exact neighbours that the search finds for rows of X."""
        return self.search.recall(X) if self.engine.all_inducing is None else 1.0

    def visit(self, n_rows):
        """Return the search for some rows, and its version."""
        if self.visited >= self.patience and self._moved():
            self._build()
        self.visited += n_rows
        return self.search, self.version


class NeighborTracker:
    """Neighbour lists of rows of data, kept while the memory budget allows.

    They are made anew when a row is visited after `search`, a `MovingSearch`, was.
    """

    def __init__(self, search, n_rows, memory):
        self.search = search
        self.lists = NeighborLists(n_rows, search.engine.n_neighbors, memory)

    def lookup(self, rows, X):
        """Return the lists (n, H) of the given rows of the data, whose inputs are X."""
        if self.search.engine.all_inducing is not None:
            return np.empty((len(rows), 0), dtype=np.int32)
        return self.lists.lookup(rows, X, *self.search.visit(len(rows)))
