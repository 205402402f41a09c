"""Neighbour lists of rows of data, updated when the model has changed."""

import numpy as np

from skswsgp._covariance.compile import inverse_lengths, log_units
from skswsgp._covariance.program import kernel_of

METRIC_TOLERANCE = 0.05  # change of log length-scales, or of Z over length-scales


class TrackedSearch:
    """A neighbour search that follows the model of an engine as it is trained.

    The search is built anew when length-scales or inducing inputs have moved by
    METRIC_TOLERANCE, but never so often that searching costs more than training.
    Several sets of rows may share one search. `n_rows` counts the rows of an epoch, and
    `options` are those of a `NeighborSearch`. The attribute
    `version` counts how often the search has been built anew.
    """

    def __init__(self, engine, n_rows, options):
        self.engine, self.options = engine, options
        self.version = -1
        M, D = engine.model.Z.shape
        H = engine.n_neighbors
        # Cost of a brute-force search over the cost of a training step, for one row
        ratio = M * D / (16.0 * H**3 + 48.0 * H**2 * D + 16_000.0)
        self._patience = int(ratio * n_rows)  # visits of rows that a search must serve
        self._build()

    def _build(self):
        model = self.engine.kernel_snapshot()
        self._search = self.engine.make_search(self.options)
        self._Z, self._params = model.Z.copy(), model.params.copy()
        self._inverse_lengths = inverse_lengths(kernel_of(model))
        self.version += 1
        self._visits = 0

    def refresh(self, n_rows):
        """Count a visit of `n_rows` rows; build the search anew first if it is due."""
        if self._visits >= self._patience and self._moved():
            self._build()
        self._visits += n_rows

    def query(self, X):
        """Return the lists (n, H) of the rows of X."""
        return self._search.query(X)

    def _moved(self):
        model = self.engine.kernel_snapshot()
        rates = inverse_lengths(kernel_of(model))
        if self._search.metric.name == "scaled":
            read = rates > 0.0
            change = np.log(rates[read] / self._inverse_lengths[read])
            change -= change.mean()  # a common factor keeps lists
        else:
            moved = model.params != self._params  # parameters that are fixed may be 0
            change = np.log(model.params[moved] / self._params[moved])
            change /= log_units(kernel_of(model), model.Z)[moved]
        most = np.abs(change).max(initial=0.0)
        if model.train_inducing:  # distances in length-scales
            most = max(most, np.linalg.norm((model.Z - self._Z) * rates, axis=1).max())
        return most >= METRIC_TOLERANCE


class NeighborTracker:
    """The neighbour lists of one set of rows, stored if the memory budget allows.

    A stored list is replaced when its row is next visited after the `TrackedSearch` was
    built anew. If the lists take more than `memory_budget` bytes, every visit searches.
    """

    def __init__(self, search, n_rows, memory_budget):
        self.search = search
        self._versions = np.full(n_rows, -1, np.int32)  # search that made each list
        shape = n_rows, search.engine.n_neighbors
        fits = np.prod(shape) * np.dtype(np.int32).itemsize <= memory_budget
        self._lists = np.empty(shape, np.int32) if fits else None

    def lookup(self, rows, X):
        """Return the lists (len(rows), H) of the rows, whose inputs are X."""
        if self.search.engine.all_inducing is not None:
            return np.empty((len(rows), 0), dtype=np.int32)
        stale = self.stale(rows)
        if self._lists is None:
            return self.search.query(X)
        if stale.any():
            self._lists[rows[stale]] = self.search.query(X[stale])
            self.mark_current(rows[stale])
        return self._lists[rows]

    def stale(self, rows):
        """Return whether each of the rows visited needs a new list, (len(rows),)."""
        self.search.refresh(len(rows))
        return self._versions[rows] != self.search.version

    def mark_current(self, rows):
        """Mark lists that a caller stores as current; it must not use `lookup`."""
        self._versions[rows] = self.search.version


def without_own(lists, own):
    """Return lists (n, H) of other points from lists (n, H + 1) of points own (n,).

    The last of a list is left out where duplicates took the place of the point.
    """
    return lists[mask_of_others(lists, own)].reshape(len(own), lists.shape[1] - 1)


def mask_of_others(lists, own):
    """Return where lists (n, H + 1) have the H points that `without_own` keeps."""
    drop = lists == own[:, None]
    drop[~drop.any(axis=1), -1] = True
    return ~drop
