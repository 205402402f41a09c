"""The kernel of a classifier, refined on its own likelihood.

Labels coded as numbers say which features matter, but not how large the latent function
is, and they are no Gaussian targets. So on a part of the rows, each of them an inducing
point, q(u) and its sites are found for the kernel at hand; the sites, as data with
noise, then teach a better kernel, and so on. What predicts held-out rows best is kept.
"""

import math

import numpy as np

from skswsgp._covariance.compile import free_variance, updated_kernel
from skswsgp._initialization.holdout import MAX_HOLDOUT_ROWS, Holdout, warn_of_interrupt
from skswsgp._initialization.inducing import distinct_rows
from skswsgp._initialization.kernel_learning import (
    NEIGHBORS,
    count_learning_rows,
    learn_kernel_from_sites,
)
from skswsgp._initialization.statistics import effective_sample_size
from skswsgp._linear.projection import mean_prior_variance

VARIANCE_STEP = 3.0  # factor of the variance between two trials
MAX_VARIANCE_STEPS = 6
USUAL_VARIANCE, VARIANCE_SPREAD = 9.0, 2.0  # the latter of its logarithm
MAX_KERNELS = 4  # learned from sites
TOLERANCE = 1e-3  # nats a row: of densities, and of the bound during trials
LEAST_PRECISION = 1e-4  # of a site, relative to that of the prior


def refine_kernel(starts, data, *setting):
    """Return a kernel, as `Found`, under which held-out rows are at least as likely.

    `starts`, a list of `Found`, says where to start: the first unless another is
    better; "fixed" parameters stay. Other arguments are those of `HeldOut`.
    """
    trials = SiteRefinement(starts[0], data, *setting)
    if not trials.decisive:
        return starts[0]
    try:
        for start in starts:
            trials.begin(start)
        if trials.best is None:  # all have failed
            return starts[0]
        trials.scale(VARIANCE_STEP, MAX_VARIANCE_STEPS)
        for _ in range(MAX_KERNELS):
            if (
                not trials.consider(trials.relearned)
                and not trials.free_length_scales()
            ):
                break
        trials.scale(math.sqrt(VARIANCE_STEP), 2)
    except KeyboardInterrupt:
        warn_of_interrupt()
    return trials.found


def log_variance_prior(variance):
    """Return the log density of the variance of a classifier's kernel, up to a number.

    Its logarithm is normal.
    """
    return -0.5 * (math.log(variance / USUAL_VARIANCE) / VARIANCE_SPREAD) ** 2


class SiteRefinement(Holdout):
    """Kernels in turn, each judged by rows that q(u) has not seen.

    Attributes
    ----------
    Z : ndarray of shape (M, D)
        The distinct ones of the rows that are not held out: inducing points.
    best : NaturalSolver or None
        That of the best kernel so far.
    density : ndarray of shape (n_held,)
        Log density of the held-out rows under it.
    """

    def __init__(self, start, data, likelihood, log_density, rng, *setting):
        most = min(MAX_HOLDOUT_ROWS, count_learning_rows(data.X.shape[1]))
        super().__init__(most, data, likelihood, log_density, rng, *setting)
        self.Z, _ = distinct_rows(self.X[~self.held])
        self.start, self.rng = start, rng
        self.best, self.density = None, None

    @property
    def kernel(self):
        """The best kernel so far."""
        if self.best is None:
            return self.start.kernel
        return updated_kernel(self.start.kernel, self.best.engine.model.params)

    @property
    def found(self):
        """The best so far, as `Found`, with the scale that its variances ask for."""
        if self.best is None:
            return self.start
        scale = self.variance_scale(self.best)
        return self.start._replace(kernel=self.kernel, variance_scale=scale)

    def solver_for(self, kernel):
        """Return a solver under a kernel, which goes on from the sites of the best."""
        attributes = {"kernel_": kernel, "inducing_points_": self.Z}
        if self.best is not None:
            attributes["inducing_mean_"] = self.best.engine.model.m
            attributes["inducing_covariance_"] = self.best.engine.model.s
        solver = self.solver(attributes, NEIGHBORS)
        solver.tolerance = TOLERANCE
        if self.best is not None:
            solver.site_precision[:] = self.best.site_precision
            solver.site_precision_mean[:] = self.best.site_precision_mean
        return solver

    def begin(self, start):
        """Start there, if nothing better is known."""
        if self.consider(self.solver_for, start.kernel):
            self.start = start

    def free_length_scales(self):
        """Free the length-scales from now on; return whether they were tied."""
        tied = self.start.tied
        self.start = self.start._replace(tied=False)
        return tied

    def consider(self, make, *arguments, cost=0.0):
        """Keep a solver that is made if held-out rows are likelier; return whether so.

        Than ever, by TOLERANCE and a cost in nats that all of them share, and beyond
        chance. One that fails is worse than any.
        """
        try:
            solver = make(*arguments)
            density = self.log_densities(solver, {})
        except FloatingPointError:
            return False
        least = TOLERANCE + cost / effective_sample_size(self.weight[self.held])
        if self.best is not None and not self.better(density, self.density, least):
            return False
        self.best, self.density = solver, density
        return True

    def scale(self, factor, most):
        """Multiply the variance by a factor, or else divide it, while it helps.

        Its logarithm has a normal prior: few held-out rows that are all predicted well
        would ask for ever more.
        """
        found = free_variance(self.start.kernel, self.X.shape[1])
        if found is None:
            return
        slot, bounds = found
        for step in (factor, 1.0 / factor):
            before = self.best
            for _ in range(most):
                now = self.best.engine.model.params[slot]
                if not bounds[0] <= step * now <= bounds[1]:
                    break
                cost = log_variance_prior(now) - log_variance_prior(step * now)
                if not self.consider(self.best.scaled, slot, step, cost=cost):
                    break
            if self.best is not before:
                break

    def relearned(self):
        """Return a solver under the kernel that the sites of the best one teach."""
        kept, start = ~self.held, self.start._replace(kernel=self.kernel)
        weight = self.weight[kept, None]
        least = LEAST_PRECISION / mean_prior_variance(start.kernel, self.Z)
        precision = np.maximum(self.best.site_precision[kept] / weight, least)
        sites = (
            self.best.site_precision_mean[kept] / (weight * precision),
            1.0 / precision,
        )
        X, rng = self.X[kept], self.rng
        kernel = learn_kernel_from_sites(
            sites, X, self.weight[kept], start, rng=rng, **self.options
        )
        return self.solver_for(kernel)
