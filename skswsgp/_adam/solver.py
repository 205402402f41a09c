"""Stochastic gradient ascent with Adam: Algorithm 1 of the paper."""

import numpy as np

from skswsgp._adam.schedule import STEPS_PER_BLOCK, Schedule, steps_per_epoch
from skswsgp._adam.steps import make_steps, require_finite_training
from skswsgp._covariance.compile import compile_kernel
from skswsgp._neighbors.lists import NeighborTracker, TrackedSearch
from skswsgp._rows.data import memory_budget
from skswsgp._solvers.auto import bytes_of_full_covariance
from skswsgp._solvers.solver import Solver


class AdamSolver(Solver):
    """Epochs of minibatches, which train kernel, noise, q(u) and inducing inputs.

    The learning rate falls over `settings.max_iter` epochs, or earlier where losses
    stall: see `Schedule`.
    """

    title = "steps of Adam"
    unit = "epoch"
    finds_optimum = False
    takes_steps = True
    local_divergences = True
    converged = False  # `ends` decides when to stop

    def __init__(self, engine, rows, kernel, settings, rng, feature_scale):
        data = rows.sample
        n_steps = steps_per_epoch(data.n_rows, settings.batch_size)
        self.schedule = Schedule(settings.learning_rate, settings.max_iter, n_steps)
        compiled = compile_kernel(kernel, data.X.shape[1], settings.dtype)
        n = data.n_rows // n_steps
        n_active = settings.count_shared(len(engine.model.Z), engine.n_neighbors)
        moving = compiled.free, compiled.log_bounds, feature_scale
        self.steps = make_steps(engine, n, *moving, n_active)
        self.engine, self.rng, self.weight = engine, rng, data.weight
        self.search = TrackedSearch(engine, data.n_rows, settings.search_options)
        lists = NeighborTracker(self.search, data.n_rows, memory_budget())
        self.loader = self.steps.make_loader(data, lists)

    @property
    def n_rounds(self):
        return self.schedule.epochs

    def advance(self, index, part=None):
        given = self.steps, self.weight, self.loader, self.rng, self.schedule
        return run_epoch(*given, index, part)

    def ends(self, history):
        n_epochs, held_out = len(history.losses), len(history.scores) > 0
        if history.stalled and not held_out:
            self.schedule = self.schedule.falling(n_epochs)
        return n_epochs >= self.schedule.epochs or (held_out and history.stalled)

    @classmethod
    def count_inducing(cls, n_rows, n_features, tuning):
        return tuning.adam_inducing

    @classmethod
    def count_neighbors(cls, n_rows, M, tuning):
        return tuning.least_neighbors

    @classmethod
    def takes_full_covariance(cls, settings, n_rows, M, H):
        size = bytes_of_full_covariance(settings, M, H)
        return size <= settings.tuning.auto_covariance_bytes

    @classmethod
    def count_points(cls, n_rows, M, settings):
        unions = settings.n_shared is not None  # these run on a CPU only
        return 0 if unions else settings.max_iter * n_rows


def run_epoch(steps, weight, loader, rng, schedule, epoch, part=None):
    """Visit the rows once in random order; return (loss per row, bound in nats).

    Rows that do not fill the last minibatch are left out of the epoch. `weight` (n,)
    are the weights of the rows that the loader holds. A `part` of the epoch is a range
    of its steps.
    """
    order = rng.permutation(len(weight))
    n = len(order) // schedule.n_steps
    part = range(schedule.n_steps) if part is None else part
    visited = 0.0
    for first in part[::STEPS_PER_BLOCK]:
        last = min(first + STEPS_PER_BLOCK, part.stop)
        index = order[first * n : last * n]
        rates = [schedule.rate_at(epoch, step) for step in range(first, last)]
        steps.take(loader.batch(index), n, np.array(rates))
        visited += weight[index].sum(dtype=np.float64)
    sums, model = steps.finish_epoch(), steps.engine.model_snapshot()
    for array in (sums, model.params, model.noise, model.m, model.s, model.L):
        require_finite_training(array.sum())
    (ell, kl), total = sums.tolist(), model.total_weight
    loss = -(ell - model.kl_weight * kl / total) / visited
    return loss, (ell - kl / total) * total / visited
