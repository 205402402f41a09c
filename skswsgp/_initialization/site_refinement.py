"""The kernel of a classifier, refined on its own likelihood.

Labels coded as numbers show which features matter, but not how large the latent
function is, and they are not Gaussian. So q(u) and its sites are computed for the
present kernel, on a part of the rows, each of which is an inducing point. A better
kernel is then learned from the sites as noisy targets, and so on. The result is the
kernel under which held-out rows are likeliest.
"""

import math

from skswsgp._covariance.compile import (
    compile_kernel,
    free_variance,
    updated_kernel,
)
from skswsgp._initialization.holdout import Holdout, warn_of_interrupt
from skswsgp._initialization.inducing import distinct_rows
from skswsgp._initialization.kernel_learning import (
    KernelLearner,
    count_learning_rows,
    learn_kernel_from_sites,
)
from skswsgp._initialization.metric import learns_map
from skswsgp._initialization.statistics import effective_sample_size
from skswsgp._initialization.trial_rows import gaussian_sites
from skswsgp._linear.columns import mapped

VARIANCE_STEP = 3.0  # factor of the kernel variance between two trials
MAX_VARIANCE_STEPS = 6  # trials in one direction
USUAL_VARIANCE = 9.0  # median of the prior of a classifier's kernel variance
MAX_KERNELS = 4  # largest number of kernels learned from sites
MAX_MAPS = 3  # largest number of maps of the columns learned from sites
TOLERANCE = 1e-3  # nats a row: least gain of a trial, and convergence of its bound


def refine_kernel(starts, data, settings, options, rng):
    """Return the `KernelFit`, of those tried, that suits held-out rows best.

    `starts` is a list of `KernelFit`: the first is the start unless another is better.
    Fixed parameters do not change. Other arguments are those of `Holdout`.
    """
    search = SiteRefinement(starts[0], data, settings, options, rng)
    if not search.decisive:
        return starts[0]
    try:
        for start in starts:
            search.begin(start)
        if search.best is None:  # all candidates have failed
            return starts[0]
        search.scale(VARIANCE_STEP, MAX_VARIANCE_STEPS)
        for _ in range(MAX_KERNELS):
            if search.consider(search.relearned):
                continue
            if not search.start.shared:
                break
            search.start = search.start._replace(shared=False)  # frees length-scales
        if learns_map(settings.metric, data.X.shape[1]):
            # the fit by the bound of few rows has a posterior
            labels = next(start for start in starts if start.posterior is None)
            search.turn(labels, always=settings.metric == "full")
        search.scale(math.sqrt(VARIANCE_STEP), 2)
    except KeyboardInterrupt:
        warn_of_interrupt()
    return search.fit


class SiteRefinement(Holdout):
    """A search for the kernel under which held-out rows are likeliest.

    `best` is the solver of the best kernel so far, or None, and `density` the log
    density of the held-out rows under this kernel. The other distinct rows are the
    inducing points Z.
    """

    def __init__(self, start, data, settings, options, rng):
        tuning = settings.tuning
        n_rows = count_learning_rows(data.X.shape[1], tuning)
        n_rows = min(n_rows, tuning.holdout_rows)
        super().__init__(n_rows, data, settings, options, rng)
        self.Z, _ = distinct_rows(self.X[~self.held_out])
        self.start, self.rng = start, rng
        self.best, self.density = None, None

    @property
    def kernel(self):
        """The best kernel so far."""
        if self.best is None:
            return self.start.kernel
        return updated_kernel(self.start.kernel, self.best.engine.model.params)

    @property
    def fit(self):
        """The best `KernelFit` so far, with its variance scale."""
        if self.best is None:
            return self.start
        scale, posterior = self.variance_scale(self.best), self.best.predict
        return self.start._replace(
            kernel=self.kernel, variance_scale=scale, posterior=posterior
        )

    def solver_of(self, kernel, metric=None):
        """Return a solver for a kernel of X @ metric.

        It starts from the q(u) of the best solver.
        """
        Z = mapped(self.Z, metric)
        attributes = {"kernel_": kernel, "inducing_points_": Z, "metric_": metric}
        if self.best is not None:
            attributes["inducing_mean_"] = self.best.engine.model.m
            attributes["inducing_covariance_"] = self.best.engine.model.s
        solver = self.solver_for(attributes, self.settings.tuning.learning_neighbors)
        solver.tolerance, solver.metric = TOLERANCE, metric
        return solver

    def begin(self, start):
        """Take a `KernelFit` as the start if its kernel is the best so far."""
        if self.consider(self.solver_of, start.kernel):
            self.start = start

    def consider(self, make, *arguments, cost=0.0, always=False):
        """Store make(*arguments), a solver, if held-out rows are likeliest under it.

        The mean gain must exceed its standard error, and also TOLERANCE plus `cost`, in
        nats, over the effective sample size, unless a solver is stored `always`. A
        solver that fails is not stored. Returns whether the solver was stored.
        """
        try:
            solver = make(*arguments)
            density = self.log_density(solver)
        except FloatingPointError:
            return False
        least = TOLERANCE + cost / effective_sample_size(self.held_out_weight)
        if not always and self.best is not None:
            if not self.is_better(density, self.density, least):
                return False
        self.best, self.density = solver, density
        return True

    def scale(self, factor, most):
        """Multiply or divide the kernel variance by a factor while rows are likelier.

        There are at most `most` steps either way. The logarithm of the variance has a
        normal prior: few rows that are all predicted well favour ever larger variances.
        """
        n_columns = self.start.count_columns(self.X.shape[1])
        found = free_variance(self.start.kernel, n_columns)
        if found is None:
            return
        slot, bounds = found
        for step in (factor, 1.0 / factor):
            before = self.best
            for _ in range(most):
                now = self.best.engine.model.params[slot]
                if not bounds[0] <= step * now <= bounds[1]:
                    break
                cost = self.log_variance_prior(now) - self.log_variance_prior(
                    step * now
                )
                if not self.consider(self.best.scaled, slot, step, cost=cost):
                    break
            if self.best is not before:
                break

    def log_variance_prior(self, variance):
        """Return the log density of a kernel variance, up to a constant."""
        distance = math.log(variance / USUAL_VARIANCE)
        return -0.5 * (distance / self.settings.tuning.variance_spread) ** 2

    def relearned(self):
        """Return a solver for a kernel learned from the sites of the best solver."""
        return self.solver_of(self.learned().kernel, self.start.metric)

    def turn(self, start, always):
        """Let a map of the columns move while held-out rows are likelier with it.

        The first map is learned by regression of the labels, from a start, and is kept
        in any case if `always`. Later ones are learned from sites.
        """
        if self.consider(self.turned_by_labels, start, always=always):
            self.start = start._replace(metric=self.best.metric)
        for _ in range(MAX_MAPS):
            if not self.consider(self.turned):
                break
            self.start = self.start._replace(metric=self.best.metric)

    def turned_by_labels(self, start):
        """Return a solver for a map of the columns learned by regression of labels."""
        kept = ~self.held_out
        targets = self.record.regression_targets(self.y, self.settings.n_latent)
        weight = self.weight[kept]
        data = self.X[kept], targets[kept], 1.0 / weight[:, None], weight
        fit = KernelLearner(*data, self.options).turned(start, self.seed)
        kernel, found = fit.kernel, free_variance(fit.kernel, fit.metric.shape[1])
        if found is not None:
            # labels do not show how large f is, but the best q(u) does
            slot, _ = found
            params = compile_kernel(kernel, fit.metric.shape[1], float).struct.params
            params[slot] = self.best.engine.model.params[slot]
            kernel = updated_kernel(kernel, params)
        return self.solver_of(kernel, fit.metric)

    def turned(self):
        """Return a solver for a map of the columns learned from the best sites."""
        fit = self.learned(turn=True)
        return self.solver_of(fit.kernel, fit.metric)

    def learned(self, turn=False):
        """Return the `KernelFit` learned from the sites of the best solver."""
        kept, start = ~self.held_out, self.start._replace(kernel=self.kernel)
        weight = self.weight[kept]
        targets, variances = gaussian_sites(self.best)
        sites = targets[kept], weight[:, None] * variances[kept]
        rows = self.X[kept], weight, start, self.rng, self.options
        return learn_kernel_from_sites(sites, *rows, turn)
