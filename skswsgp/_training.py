"""Epochs of minibatches: shuffling, learning rate, neighbour lists, stopping."""

import math
from typing import NamedTuple

import numpy as np

from skswsgp._adam import require_not_lost
from skswsgp._covariance import Kernel
from skswsgp._neighbors import NeighborLists, NeighborSearch, memory_budget

STEPS_PER_BLOCK = 32  # minibatches between two looks at the neighbours
METRIC_TOLERANCE = 0.05  # movement, in length-scales, after which lists are stale
FINAL_RATE = 0.01  # share of the learning rate at the last step


class Data(NamedTuple):
    """Some or all rows of X, which stays where it is; `block` copies a few."""

    X: np.ndarray  # (N, D), any float dtype, may be a memory map
    y: np.ndarray  # (n, Q), or (n, 1) for classes, in the dtype of the fit
    weight: np.ndarray  # (n,), likewise
    rows: np.ndarray | None = None  # (n,) which rows of X, None for all
    center: np.ndarray | None = None  # (D,) subtracted from X

    @property
    def n_rows(self):
        """The number of rows, n."""
        return len(self.weight)

    def block(self, index):
        """Return X and y and weights of a few of the n rows, X centred."""
        X = center_rows(self.X[self._rows_of(index)], self.center, self.y.dtype)
        return X, self.y[index], self.weight[index]

    def take(self, index):
        """Return a part of the data."""
        y, weight = self.y[index], self.weight[index]
        return self._replace(y=y, weight=weight, rows=self._rows_of(index))

    def weight_in_X(self):
        """Return the weight of each row of X, zero for those left out, (N,)."""
        weight = np.zeros(len(self.X), self.weight.dtype)
        weight[slice(None) if self.rows is None else self.rows] = self.weight
        return weight

    def _rows_of(self, index):
        return index if self.rows is None else self.rows[index]


def center_rows(X, center, dtype):
    """Return X - center, subtracted in float64, as contiguous rows of `dtype`."""
    return np.ascontiguousarray(np.subtract(X, center, dtype=np.float64), dtype=dtype)


class MovingSearch:
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
        H = engine.n_active
        ratio = M * D / (16.0 * H**3 + 48.0 * H**2 * D + 16_000.0)
        self.patience = int(ratio * n_rows)  # rows visited before lists are made anew
        self.visited = 0
        self._build()

    def _build(self):
        model = self.engine.glance()
        self.search = NeighborSearch(
            model.Z,
            kernel_of(model),
            n_neighbors=self.engine.n_active,
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
        model = self.engine.glance()
        if self.search.metric.name == "scaled":
            change = np.log(model.inv_scale / self.inv_scale)
            change -= change.mean(axis=1, keepdims=True)  # it changes no order
        else:
            moved = model.params != self.params  # fixed ones may be zero
            change = np.log(model.params[moved] / self.params[moved])
        return np.abs(change).max(initial=0.0)

    def _inducing_change(self):
        """Return how far inducing inputs have moved, in length-scales."""
        model = self.engine.glance()
        if not model.train_inducing:  # spares a pass over all of Z
            return 0.0
        steps = np.abs(model.Z - self.Z).max(axis=0)
        return (steps * model.inv_scale.max(axis=0)).max()

    def recall(self, X):
        """Return the share of exact neighbours that the search finds for rows of X."""
        return 1.0 if self.engine.shared else self.search.recall(X)

    def visit(self, n_rows):
        """Return the search for some rows, and its version."""
        if self.visited >= self.patience and self._moved():
            self._build()
        self.visited += n_rows
        return self.search, self.version


class Neighbors:
    """Neighbour lists of rows of data, kept while the memory budget allows.

    They are made anew when a row is visited after `search`, a `MovingSearch`, was.
    """

    def __init__(self, search, n_rows):
        self.search = search
        self.lists = NeighborLists(n_rows, search.engine.n_active, memory_budget())

    def lookup(self, rows, X):
        """Return the lists (n, H) of the given rows of the data, whose inputs are X."""
        if self.search.engine.shared:
            return np.empty((len(rows), 0), dtype=np.int32)
        return self.lists.lookup(rows, X, *self.search.visit(len(rows)))


def kernel_of(model):
    """Return the part of a model that is its kernel."""
    return Kernel(*model[: len(Kernel._fields)])


class History:
    """Losses and scores of the epochs so far, and when to stop."""

    def __init__(self, tol, n_iter_no_change):
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.losses = []
        self.bounds = []
        self.scores = []
        self.best = math.inf
        self.since_best = 0

    def add(self, loss, bound, score):
        """Record an epoch; return whether it is the best so far."""
        self.losses.append(loss)
        self.bounds.append(bound)
        if score is not None:
            self.scores.append(score)
        value = loss if score is None else -score
        improved = value < self.best
        self.since_best = 0 if value < self.best - self.tol else self.since_best + 1
        self.best = min(self.best, value)
        return improved

    @property
    def stalled(self):
        """Whether no epoch has improved by tol for n_iter_no_change epochs."""
        return self.since_best >= self.n_iter_no_change

    def attributes(self):
        """Return the fitted attributes that tell of all epochs."""
        return {
            "loss_curve_": list(self.losses),
            "best_loss_": min(self.losses, default=math.nan),
            "validation_scores_": list(self.scores) or None,
            "n_iter_": len(self.losses),
        }


class Schedule(NamedTuple):
    """The steps of a fit, and the learning rate of each."""

    rate: float  # of the first step
    epochs: int
    n_steps: int  # in an epoch
    decay: bool  # along half a cosine down to FINAL_RATE, or constant

    def rate_at(self, epoch, step):
        """Return the rate of a step of an epoch, both counted from 0."""
        if not self.decay:
            return self.rate
        phase = (epoch + step / self.n_steps) / self.epochs
        share = 0.5 * (1.0 + math.cos(math.pi * phase))
        return self.rate * (FINAL_RATE + (1.0 - FINAL_RATE) * share)


class AdamSolver:
    """Epochs of minibatches: Algorithm 1 of the paper."""

    converged = False  # `History` decides
    solved = True
    keeps_best = False  # the loss of an epoch is one of many models
    usable = True  # the model, after any number of steps

    def __init__(self, engine, data, options, schedule, rng):
        self.search = MovingSearch(engine, data.n_rows, options)
        neighbors = Neighbors(self.search, data.n_rows)
        self.plan = "epoch", schedule.epochs
        rows = engine.load(data, neighbors)
        self.arguments = engine, data.weight, rows, rng, schedule

    def advance(self, epoch):
        """Run an epoch; return (loss per row, bound in nats)."""
        return run_epoch(*self.arguments, epoch)


def run_epoch(engine, weight, rows, rng, schedule, epoch):
    """Visit the rows once in random order; return (loss per row, bound in nats).

    The rows that do not fill the last minibatch are left out of this epoch. `rows` are
    what the engine has loaded, with these weights.
    """
    order = rng.permutation(len(weight))
    n_steps = schedule.n_steps
    n = len(order) // n_steps
    visited = 0.0
    for first in range(0, n_steps, STEPS_PER_BLOCK):
        steps = range(first, min(first + STEPS_PER_BLOCK, n_steps))
        index = order[first * n : (steps[-1] + 1) * n]
        rates = np.array([schedule.rate_at(epoch, step) for step in steps])
        engine.steps(rows.batch(index), n, rates)
        visited += weight[index].sum(dtype=np.float64)
    sums, model = engine.finish_epoch(), engine.model
    for array in (sums, model.params, model.noise, model.m, model.s, model.L):
        require_not_lost(array.sum())
    (ell, kl), total = sums.tolist(), model.total_weight
    loss = -(ell - model.kl_weight * kl / total) / visited
    return loss, (ell - kl / total) * total / visited


def steps_per_epoch(n_rows, batch_size):
    """Return the number of minibatches that cut n_rows into equal parts."""
    return max(1, math.ceil(n_rows / batch_size))
