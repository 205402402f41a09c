"""Epochs of minibatches: shuffling, learning rate, neighbour lists, stopping."""

import math
from typing import NamedTuple

import numpy as np

from skswsgp._covariance import Kernel
from skswsgp._neighbors import NeighborLists, NeighborSearch, memory_budget
from skswsgp._state import Batch

STEPS_PER_BLOCK = 32  # minibatches between two looks at the neighbours
METRIC_TOLERANCE = 0.05  # movement, in length-scales, after which lists are stale
LOST = (
    "training left the finite numbers: a covariance matrix could not be factorised or "
    "a parameter overflowed; lower learning_rate, or bound the kernel's parameters."
)
FINAL_RATE = 0.01  # share of the learning rate at the last step


class Data(NamedTuple):
    """Rows to learn from, left where they are; `block` copies a few."""

    X: np.ndarray  # (N, D), any float dtype, may be a memory map
    y: np.ndarray  # (N, Q), or (N, 1) for classes
    weight: np.ndarray  # (N,)
    center: np.ndarray  # (D,) subtracted from X
    dtype: np.dtype

    def block(self, rows):
        """Return X and y and weights of some rows, centred, in the dtype of the fit."""
        return (
            center_rows(self.X[rows], self.center, self.dtype),
            self.y[rows],
            self.weight[rows],
        )


def center_rows(X, center, dtype):
    """Return X - center, subtracted in float64, as contiguous rows of `dtype`."""
    return np.ascontiguousarray(np.subtract(X, center, dtype=np.float64), dtype=dtype)


class Neighbors:
    """Neighbour lists of training rows that follow the model as it moves.

    Lists are looked up for the rows of a block of minibatches, and kept while the
    memory budget allows. When length-scales or inducing inputs have moved by
    METRIC_TOLERANCE, lists are made anew the next time that a row is visited; where a
    search costs more than a point, that happens so seldom that it costs no more.
    """

    def __init__(self, engine, n_rows, options):
        self.engine = engine
        self.options = options
        self.lists = NeighborLists(n_rows, engine.n_active, memory_budget())
        self.version = -1
        M, D = engine.model.Z.shape
        H = engine.n_active
        ratio = M * D / (16.0 * H**3 + 48.0 * H**2 * D + 16_000.0)
        self.patience = int(ratio * n_rows)  # rows visited before lists are made anew
        self.visited = 0
        self._build()

    def _build(self):
        model = self.engine.model
        self.search = NeighborSearch(
            model.Z,
            kernel_of(model),
            n_neighbors=self.engine.n_active,
            n_threads=self.engine.n_threads,
            **self.options,
        )
        self.Z, self.inv_scale = model.Z.copy(), model.inv_scale.copy()
        self.version += 1
        self.visited = 0

    def _moved(self):
        model = self.engine.model
        change = np.log(model.inv_scale / self.inv_scale)
        if self.search.metric.name == "scaled":  # a common factor changes no order
            change -= change.mean(axis=1, keepdims=True)
        change = np.abs(change).max()
        if change < METRIC_TOLERANCE and model.train_inducing:
            steps = np.abs(model.Z - self.Z).max(axis=0)
            change = (steps * model.inv_scale.max(axis=0)).max()
        return change >= METRIC_TOLERANCE

    def recall(self, X):
        """Return the share of exact neighbours that the search finds for rows of X."""
        return 1.0 if self.engine.shared else self.search.recall(X)

    def lookup(self, rows, X):
        """Return the lists (n, H) of the given training rows, whose inputs are X."""
        if self.engine.shared:
            return np.empty((len(rows), 0), dtype=np.int32)
        if self.visited >= self.patience and self._moved():
            self._build()
        self.visited += len(rows)
        return self.lists.lookup(rows, X, self.search, self.version)


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


def learning_rates(rate, n_steps, decay):
    """Return the rate of each step: half a cosine down to FINAL_RATE, or constant."""
    if not decay:
        return np.full(n_steps, rate)
    phase = np.arange(n_steps) / max(n_steps, 1)
    return rate * (
        FINAL_RATE + (1.0 - FINAL_RATE) * 0.5 * (1.0 + np.cos(np.pi * phase))
    )


def run_epoch(engine, data, neighbors, rng, rates):
    """Visit the rows once in random order; return (loss per row, bound in nats).

    The rows that do not fill the last minibatch are left out of this epoch.
    """
    model = engine.model
    order = rng.permutation(len(data.weight))
    n_steps = len(rates)
    n = len(order) // n_steps
    ell = kl = weight = 0.0
    for first in range(0, n_steps, STEPS_PER_BLOCK):
        steps = range(first, min(first + STEPS_PER_BLOCK, n_steps))
        rows = order[first * n : (steps[-1] + 1) * n]
        X, y, w = data.block(rows)
        batch = Batch(X, y, w, neighbors.lookup(rows, X))
        for step in steps:
            sums = engine.step(batch, (step - first) * n, n, rates[step])
            ell += sums[0]
            kl += sums[1]
        weight += w.sum(dtype=np.float64)
        if not math.isfinite(ell + kl):
            raise FloatingPointError(LOST)
    for array in (model.params, model.noise, model.m, model.s, model.L):
        if not np.isfinite(array.sum()):
            raise FloatingPointError(LOST)
    total = model.total_weight
    loss = -(ell - model.kl_weight * kl / total) / weight
    return loss, (ell - kl / total) * total / weight


def steps_per_epoch(n_rows, batch_size):
    """Return the number of minibatches that cut n_rows into equal parts."""
    return max(1, math.ceil(n_rows / batch_size))
