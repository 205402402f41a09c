"""TODO docstring."""

import numpy as np

from skswsgp._neighbors.lists import NeighborTracker, TrackedSearch
from skswsgp._point.adam_step import STEPS_PER_BLOCK, require_finite_training
from skswsgp._solvers.data import memory_budget


class AdamSolver:
    """Epochs of minibatches: Algorithm 1 of the paper."""

    converged = False  # `History` decides
    solved = True
    keeps_best = False  # the loss of an epoch is one of many models
    usable = True  # the model, after any number of steps

    def __init__(self, engine, data, options, schedule, rng):
        self.search = TrackedSearch(engine, data.n_rows, options)
        neighbors = NeighborTracker(self.search, data.n_rows, memory_budget())
        self.plan = "epoch", schedule.epochs
        rows = engine.make_loader(data, neighbors)
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
        require_finite_training(array.sum())
    (ell, kl), total = sums.tolist(), model.total_weight
    loss = -(ell - model.kl_weight * kl / total) / visited
    return loss, (ell - kl / total) * total / visited
