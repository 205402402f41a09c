"""The kernel of a classifier with few rows, by the variational bound of all rows.

The optimal q(f) has Gaussian sites N(f_i; t_i, v_i). For given sites the bound is,
up to a constant, log N(t; 0, K + diag(v)), so steps on the kernel and on the sites take
turns (Adam, Chang, Khan and Solin, Dual parameterization of sparse variational Gaussian
processes, NeurIPS 2021). The bound counts the volume of functions that a kernel allows,
so it needs no held-out rows to find that labels follow no pattern.
"""

from contextlib import suppress
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from skswsgp._compiled.threads import one_blas_thread
from skswsgp._covariance.compile import free_variance, updated_kernel
from skswsgp._kernel_search.climb import FIRST_ROWS, FIRST_STEPS, MAP_STEPS
from skswsgp._kernel_search.holdout import (
    TrialRows,
    gaussian_sites,
    log_prior_of_shape,
    train,
)
from skswsgp._kernel_search.kernel_learning import evidence_work
from skswsgp._kernel_search.marginal_likelihood import LogPosterior
from skswsgp._rows.columns import mapped
from skswsgp._rows.inducing import distinct_rows
from skswsgp._rows.statistics import climbed

LEAST_TURN = 0.1  # nats that a turn of sites and kernel gains, or it is the last
BOUND_WORK = 3  # time of a search over that of learning a regression's kernel
SHAPE_STEP = 2.0  # factor between two shapes of the likelihood that are compared
VARIANCE_STEP = 3.0  # factor between two variances whose bounds are compared
VARIANCE_BOUNDS = 1e-3, 1e3  # bounds of the flat prior of the log variance
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
    shared = search.shared and starts[first].shared
    found = search.found._asdict() | {"shape": search.shape}
    del found["solver"]
    posterior = search.found.solver.predict
    return starts[first]._replace(**found, shared=shared, posterior=posterior)


class Found(NamedTuple):
    """A kernel, and a solver that has converged for it."""

    kernel: object
    solver: object
    linear_map: np.ndarray | None = None  # the map (D, D) of the columns


class BoundSearch(TrialRows):
    """A search for a kernel by the bound of all rows, each of which is a point of Z.

    `found` is the best kernel so far, or None before the first, and `shared` says
    whether its length-scales kept their ratios.
    """

    found, shared = None, True

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.Z, _ = distinct_rows(self.X)

    def run(self, kernels, first):
        """Find the kernel, from several starts that are climbed from the `first`."""
        if self.settings.learns_shape:
            self.choose_shape(Found(kernels[first], self.solved(kernels[first])))
        self.climb_starts(kernels, first)
        self.free_length_scales()
        if self.may_turn:
            with suppress(FloatingPointError, np.linalg.LinAlgError):
                self.turn()
        self.average_variance()
        self.found = self.choose_shape(self.found)

    def climb_starts(self, kernels, first):
        """Find the kernel with shared length-scales; return the place of its start."""
        best, best_place = -np.inf, first

        def density(place):
            nonlocal best, best_place
            start, before = kernels[place], self.found and self.found.solver
            first = Found(start, self.solved(start, before))
            tied = self.climb(first, start, shared=True)
            value = self.log_density(tied, start)
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
            return found.solver.bound + log_prior_of_shape(shape, first)

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

    def free_length_scales(self):
        """Let each length-scale move on its own if the evidence for that is larger."""
        tied, start = self.found, self.found.kernel
        posterior = self.posterior(tied, start)
        if posterior.moves(shared=True).shape == posterior.moves().shape:
            return
        evidence = self.log_evidence(tied, start, shared=True)
        free = self.climb(tied, start, shared=False)
        # the volume, which takes long, only makes the evidence smaller
        if (
            self.log_density(free, start) > evidence
            and self.log_evidence(free, start, shared=False) > evidence
        ):
            self.found, self.shared = free, False

    @property
    def may_turn(self):
        """Whether a map of the columns is compared, which takes an evidence of it."""
        (n, D), Q = self.X.shape, self.settings.n_latent
        affordable = evidence_work(n, D, Q) <= self.settings.tuning.evidence_work
        return self.settings.learn_map == "auto" and D > 1 and affordable

    def turn(self):
        """Learn a map of the columns, and keep it if the evidence is larger with it."""
        found, start = self.found, self.found.kernel
        least = self.log_evidence(found, start, self.shared) + LEAST_TURN
        posterior = self.posterior(found, start, turn=True)
        moves, best = posterior.moves(shared=self.shared, noise=False), -np.inf
        while True:
            point, _ = posterior.maximize(moves, MAP_STEPS)
            kernel, linear_map = posterior.kernel_at(point), posterior.map_at(point)
            solver = self.solved(kernel, found.solver, linear_map)
            value = solver.bound - posterior.prior_loss(point)[0]
            level = not value >= best + LEAST_TURN
            if value > best:
                found, best = Found(kernel, solver, linear_map), value
                posterior = posterior.given(posterior.X, *gaussian_sites(solver))
                posterior.start = point
            if level:
                break
        # the volume, which takes long, only makes the evidence smaller
        if best > least and best + posterior.log_volume(moves) > least:
            self.found = found

    def climb(self, found, start, shared):
        """Take turns between sites and kernel until the bound hardly grows.

        Return what is `Found` at the end; priors are around the kernel `start`.
        """
        while True:
            posterior = self.posterior(found, start)
            moves = posterior.moves(shared=shared, noise=False)
            point, value = posterior.maximize(moves, FIRST_STEPS)
            if value == -np.inf:
                break
            kernel = posterior.kernel_at(point)
            other = Found(kernel, self.solved(kernel, found.solver))
            gain = self.log_density(other, start) - self.log_density(found, start)
            found = other if gain > 0.0 else found
            if gain < LEAST_TURN:
                break
        return found

    def log_density(self, found, start):
        """Return the bound plus log prior, with priors around the kernel `start`."""
        posterior = self.posterior(found, start)
        return found.solver.bound - posterior.prior_loss(posterior.start)[0]

    def log_evidence(self, found, start, shared):
        """Return `log_density` plus the log volume of the posterior over the prior.

        The volume is that for given sites, without flat directions.
        """
        posterior = self.posterior(found, start)
        moves = posterior.moves(shared=shared, noise=False)
        return self.log_density(found, start) + posterior.log_volume(moves)

    def posterior(self, found, start, turn=False):
        """Return the `LogPosterior` given the sites that were found, at that kernel.

        Its priors are around the kernel `start`, but those of constants are flat:
        labels coded as numbers do not show how large f is. With `turn` a map of the
        columns moves too.
        """
        targets, variances = gaussian_sites(found.solver)
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
        solver = self.solver_for(attributes, len(Z), full=True)
        if before is not None:
            model = solver.engine.model
            model.m[:], model.L[:] = before.engine.model.m, before.engine.model.L
        return train(solver)

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
        low, high = np.clip(VARIANCE_BOUNDS, *bounds)

        def variance(trial):
            return trial.engine.model.params[slot]

        least, trials = solver.bound - NEGLIGIBLE, [solver]
        for step in (VARIANCE_STEP, 1.0 / VARIANCE_STEP):
            trial = solver
            while trial.bound > least and low <= step * variance(trial) <= high:
                trial = train(trial.scaled(slot, step))
                trials.append(trial)
        logs = np.log([variance(trial) for trial in trials])
        mean = softmax([trial.bound for trial in trials]) @ logs
        nearest = trials[np.argmin(np.abs(logs - mean))]
        factor = np.exp(mean) / variance(nearest)
        solver = train(nearest.scaled(slot, factor))
        kernel = updated_kernel(kernel, solver.engine.model.params)
        self.found = Found(kernel, solver, linear_map)
