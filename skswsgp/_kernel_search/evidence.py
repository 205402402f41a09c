"""The kernel of a classifier with few rows, by the variational bound of all rows.

The optimal q(f) has Gaussian sites N(f_i; t_i, v_i). For given sites the bound is,
up to a constant, log N(t; 0, K + diag(v)), so steps on the kernel and on the sites take
turns (Adam, Chang, Khan and Solin, Dual parameterization of sparse variational Gaussian
processes, NeurIPS 2021). The bound counts the volume of functions that a kernel allows,
so it needs no held-out rows to find that labels follow no pattern.
"""

from contextlib import suppress
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from skswsgp._compiled.threads import one_blas_thread
from skswsgp._covariance.compile import free_variance, updated_kernel
from skswsgp._kernel_search import holdout
from skswsgp._kernel_search.climb import FIRST_ROWS, FIRST_STEPS, MAP_STEPS
from skswsgp._kernel_search.kernel_learning import evidence_work
from skswsgp._kernel_search.marginal_likelihood import LogPosterior
from skswsgp._rows.columns import mapped
from skswsgp._rows.inducing import distinct_rows
from skswsgp._rows.statistics import climbed

LEAST_TURN = 0.1  # nats that a turn, or a step of the kernel, gains, or it is the last
BOUND_WORK = 3  # time of a search over that of learning a regression's kernel
SHAPE_STEP = 2.0  # factor between two shapes of the likelihood that are compared
VARIANCE_STEP = 3.0  # factor between two variances whose bounds are compared
MOST_VARIANCE = 1e3  # where the flat prior of the log variance ends, and 1 / it
NEGLIGIBLE = 6.0  # nats below the best bound at which a variance hardly counts


def maximize_bound(starts, first, n_rows, data, settings, options, rng):
    """Return the `KernelFit` that suits the bound of at most `n_rows` rows best.

    First all length-scales share one factor, and the start with the largest bound of
    few rows is kept. The starts are in an order along which the bound rises and falls
    once, which is climbed from the `first`. Then each length-scale moves on its own,
    with the prior of `NeighborProcess.learn` around its start, and is kept if the
    evidence for that is larger, and so is a map of the columns. Last, a variance that
    multiplies the kernel becomes the geometric mean of its posterior. The `first` start
    is returned if no bound can be computed.
    """
    # sites and bound belong together for a divergence of weight one only
    settings = settings._replace(kl_weight=1.0)
    search = BoundSearch(n_rows, data, settings, options, rng)
    few = BoundSearch(min(FIRST_ROWS, n_rows), data, settings, options, rng)
    kernels = [start.kernel for start in starts]
    try:
        with one_blas_thread():
            if len(kernels) > 1 and len(few.X) < len(search.X):
                kernels = [kernels[few.climb_starts(kernels, first)]]
                search.run(kernels, 0)
            else:
                search.run(kernels, first)
    except (FloatingPointError, np.linalg.LinAlgError):
        pass  # what was found before is kept
    if search.found is None:
        return starts[first]
    kernel, solver, linear_map = search.found
    found = {"kernel": kernel, "linear_map": linear_map, "shape": search.shape}
    shared = search.shared and starts[first].shared
    return starts[first]._replace(**found, shared=shared, posterior=solver.predict)


class Found(NamedTuple):
    """A kernel, and a solver that has converged for it."""

    kernel: object
    solver: object
    linear_map: np.ndarray | None = None  # the map (D, D) of the columns


class BoundSearch(holdout.TrialRows):
    """A search for a kernel by the bound of all rows, each of which is a point of Z.

    `found` is the best kernel so far, or None before the first, and `shared` says
    whether its length-scales kept their ratios.
    """

    found, shared = None, True

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.Z, self.at = distinct_rows(self.X)

    def run(self, kernels, first):
        """Find the kernel, from several starts that are climbed from the `first`."""
        if self.settings.learns_shape:
            self.choose_shape(Found(kernels[first], self.solved(kernels[first])))
        self.climb_starts(kernels, first)
        self.enrich(shared=False)
        (n, D), Q = self.X.shape, self.settings.n_latent
        affordable = evidence_work(n, D, Q) <= self.settings.tuning.evidence_work
        if self.settings.learn_map == "auto" and D > 1 and affordable:
            with suppress(FloatingPointError, np.linalg.LinAlgError):
                self.enrich(self.shared, turn=True)
        self.average_variance()
        self.found = self.choose_shape(self.found)

    def climb_starts(self, kernels, first):
        """Find the kernel with shared length-scales; return the place of its start."""
        best, best_place = -np.inf, first

        def density(place):
            nonlocal best, best_place
            start, before = kernels[place], self.found and self.found.solver
            first = Found(start, self.solved(start, before))
            tied, value, _ = self.climb(first, start, shared=True)
            if value > best:
                self.found, best, best_place = tied, value, place
            return value

        climbed(density, len(kernels), first)
        return best_place

    def choose_shape(self, found):
        """Learn the shapes of the likelihood by the bound; return what is `Found` then.

        Their logarithms have the priors of `Holdout.likeliest_shape`.
        """
        if not self.settings.learns_shape:
            return found
        first, (low, high) = self.settings.first_shape, self.record.shape_bounds

        def value(found, shape):
            return found.solver.bound + holdout.log_prior_of_shape(shape, first)

        for step, q in product((SHAPE_STEP, 1.0 / SHAPE_STEP), range(len(first))):
            while low <= step * self.shape[q] <= high:
                before, better = self.shape.copy(), False
                self.shape[q] *= step
                try:
                    solver = self.solved(found.kernel, found.solver, found.linear_map)
                    other = found._replace(solver=solver)
                    better = value(other, self.shape) > value(found, before)
                finally:  # also where the solver fails
                    self.shape = self.shape if better else before
                if not better:
                    break
                found = other
        return found

    def enrich(self, shared, turn=False):
        """Let more parameters move, and keep what is found if its evidence is larger.

        They are the length-scales if not `shared`, and a map of the columns with
        `turn`.
        """
        before, start = self.found, self.found.kernel
        posterior = self.posterior(before, start)
        moves = [posterior.moves(shared=s, noise=False) for s in (self.shared, shared)]
        if not turn and moves[0].shape == moves[1].shape:
            return
        least = before.solver.bound + posterior.log_volume(moves[0]) + LEAST_TURN
        found, value, volume = self.climb(before, start, shared, turn)
        # the volume, which takes long, only makes the evidence smaller
        if value > least and value + volume() > least:
            self.found, self.shared = found, shared

    def climb(self, found, start, shared, turn=False):
        """Take turns between sites and kernel until the bound hardly grows.

        Return what is `Found` at the end, the bound plus log prior there, and a
        function for the log volume of the posterior given its sites over the prior,
        without flat directions. Priors are around the kernel `start`.
        """
        posterior = self.posterior(found, start, turn)
        moves = posterior.moves(shared=shared, noise=False)
        steps, best, gain = MAP_STEPS if turn else FIRST_STEPS, -np.inf, np.inf
        if not turn:  # with a map the first turn may lose a little
            best = found.solver.bound - posterior.prior_loss(posterior.start)[0]
        while gain >= LEAST_TURN:
            point, density, _ = posterior.maximize(moves, steps, enough=LEAST_TURN)
            if density == -np.inf:
                break
            kernel, linear_map = posterior.kernel_at(point), posterior.map_at(point)
            solver = self.solved(kernel, found.solver, linear_map)
            value = solver.bound - posterior.prior_loss(point)[0]
            gain = value - best
            if gain > 0.0:
                found, best = Found(kernel, solver, linear_map), value
                sites = holdout.gaussian_sites(solver)
                posterior = posterior.given(posterior.X, *sites)
                posterior.start = point
        return found, best, partial(posterior.log_volume, moves)

    def posterior(self, found, start, turn=False):
        """Return the `LogPosterior` given the sites that were found, at that kernel.

        Its priors are around the kernel `start`, but those of constants are flat:
        labels coded as numbers do not show how large f is. With `turn` a map of the
        columns moves too.
        """
        targets, variances = holdout.gaussian_sites(found.solver)
        X, noise = self.X - found.solver.data.center, np.ones(targets.shape[1])
        return LogPosterior(
            found.kernel, noise, X, targets, variances, around=start, turn=turn
        )

    def solved(self, kernel, before=None, linear_map=None):
        """Return a converged solver with a full S, started from the q(u) of another.

        The columns are mapped by a `linear_map`, or stay.
        """
        Z = mapped(self.Z, linear_map)
        attributes = {"kernel_": kernel, "inducing_points_": Z}
        attributes["linear_map_"] = linear_map
        solver = self.solver_for(attributes, len(Z), self.at, full=True)
        if before is not None:
            model = solver.engine.model
            model.m[:], model.L[:] = before.engine.model.m, before.engine.model.L
        return holdout.train(solver)

    def average_variance(self):
        """Give the kernel the geometric mean of its variance under the posterior.

        The variance at the maximum is too large where labels follow a pattern by chance
        and a smaller variance is nearly as likely.
        """
        kernel, solver, linear_map = self.found
        free = free_variance(kernel, self.X.shape[1])
        if free is None:
            return
        slot, bounds = free
        low, high = np.clip((1.0 / MOST_VARIANCE, MOST_VARIANCE), *bounds)

        def variance(trial):
            return trial.engine.model.params[slot]

        least, trials = solver.bound - NEGLIGIBLE, [solver]
        for step in (VARIANCE_STEP, 1.0 / VARIANCE_STEP):
            trial = solver
            while trial.bound > least and low <= step * variance(trial) <= high:
                trial = holdout.train(trial.scaled(slot, step))
                trials.append(trial)
        logs = np.log([variance(trial) for trial in trials])
        mean = softmax([trial.bound for trial in trials]) @ logs
        nearest = trials[np.argmin(np.abs(logs - mean))]
        factor = np.exp(mean) / variance(nearest)
        solver = holdout.train(nearest.scaled(slot, factor))
        kernel = updated_kernel(kernel, solver.engine.model.params)
        self.found = Found(kernel, solver, linear_map)
