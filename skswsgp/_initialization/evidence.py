"""The kernel of a classifier with few rows, by the variational bound of all rows.

The optimal q(f) has Gaussian sites N(f_i; t_i, v_i). For given sites the bound is,
up to a constant, log N(t; 0, K + diag(v)), so steps on the kernel and on the sites take
turns (Adam, Chang, Khan and Solin, Dual parameterization of sparse variational Gaussian
processes, NeurIPS 2021). The bound counts the volume of functions that a kernel allows,
so it needs no held-out rows to find that labels follow no pattern.
"""

import numpy as np
from scipy.special import softmax

from skswsgp._compiled.threads import one_blas_thread
from skswsgp._covariance.compile import free_variance, updated_kernel
from skswsgp._initialization.holdout import warn_of_interrupt
from skswsgp._initialization.inducing import distinct_rows
from skswsgp._initialization.marginal_likelihood import LogPosterior
from skswsgp._initialization.trial_rows import TrialRows, gaussian_sites, train

BOUND_WORK = 3  # time of a search, in times that of one for a Gaussian likelihood
MAX_TURNS = 10  # steps on the kernel
TOLERANCE = 0.1  # nats of all rows: gain below which they stop
VARIANCE_STEP = 3.0  # factor between two variances whose bounds are compared
VARIANCE_BOUNDS = 1e-3, 1e3  # of a flat prior, on a log scale
NEGLIGIBLE = 6.0  # nats below the best bound at which a variance hardly counts


def maximize_bound(start, n_rows, data, settings, options, rng):
    """Return the `KernelFit` that suits the bound of at most `n_rows` rows best.

    First all length-scales share one factor. Then each moves on its own, with the prior
    of `NeighborProcess.learn` around the first, and is kept if the evidence for that is
    larger. Last, a variance that multiplies the kernel becomes the geometric mean of
    its posterior. The start is returned if its bound cannot be computed.
    """
    search = BoundSearch(n_rows, data, settings, options, rng)
    try:
        with one_blas_thread():
            search.run(start.kernel)
    except KeyboardInterrupt:
        warn_of_interrupt()
    except (FloatingPointError, np.linalg.LinAlgError):
        pass  # what was found before is kept
    if search.solver is None:
        return start
    posterior = search.solver.predict
    learned = {"kernel": search.kernel, "shared": search.shared}
    return start._replace(**learned, posterior=posterior)


class BoundSearch(TrialRows):
    """A search for a kernel by the bound of all rows, each of which is a point of Z.

    `solver` is that of the present `kernel`, or None before the first, and `shared`
    says whether its length-scales kept their ratios.
    """

    kernel, solver, shared = None, None, True

    def run(self, kernel):
        """Find the kernel, from a start."""
        self.Z, _ = distinct_rows(self.X)
        self.climb(kernel, shared=True)
        tied, solver = self.kernel, self.solver
        posterior = self.posterior(tied)
        if posterior.moves(shared=True).shape != posterior.moves().shape:
            evidence = self.log_evidence(tied, shared=True)
            self.climb(tied, shared=False)
            # the volume, which takes long, only makes the evidence smaller
            self.shared = (
                self.log_density(tied) <= evidence
                or self.log_evidence(tied, shared=False) <= evidence
            )
            if self.shared:
                self.kernel, self.solver = tied, solver
        self.average_variance()

    def climb(self, start, shared):
        """Take turns between sites and kernel until the bound hardly grows."""
        if self.solver is None:
            self.kernel, self.solver = start, self.solved(start)
        for _ in range(MAX_TURNS):
            before, posterior = self.log_density(start), self.posterior(start)
            found = posterior.maximize(posterior.moves(shared=shared, noise=False))
            if found is None:
                break
            kernel, solver = self.kernel, self.solver
            self.kernel = posterior.kernel_at(found)
            self.solver = self.solved(self.kernel)
            gain = self.log_density(start) - before
            if gain < 0.0:
                self.kernel, self.solver = kernel, solver
            if gain < TOLERANCE:
                break

    def log_density(self, start):
        """Return the bound plus log prior, with priors around the kernel `start`."""
        posterior = self.posterior(start)
        return self.solver.bound + posterior.log_prior(posterior.start)

    def log_evidence(self, start, shared):
        """Return `log_density` plus the log volume of the posterior over the prior."""
        posterior = self.posterior(start)
        moves = posterior.moves(shared=shared, noise=False)
        return self.log_density(start) + posterior.log_volume(moves)

    def posterior(self, start):
        """Return the `LogPosterior` given the present sites, at the present kernel.

        Its priors are around the kernel `start`, but those of constants are flat:
        labels coded as numbers do not show how large f is.
        """
        targets, variances = gaussian_sites(self.solver)
        X, noise = self.X - self.solver.data.center, np.ones(targets.shape[1])
        return LogPosterior(self.kernel, noise, X, targets, variances, around=start)

    def solved(self, kernel):
        """Return a converged solver with a full S, started from the present sites."""
        attributes = {"kernel_": kernel, "inducing_points_": self.Z}
        H = self.settings.tuning.learning_neighbors
        solver, before = self.solver_for(attributes, H, full=True), self.solver
        if before is not None:
            model = solver.engine.model
            model.m[:], model.L[:] = before.engine.model.m, before.engine.model.L
            solver.site_precision[:] = before.site_precision
            solver.site_precision_mean[:] = before.site_precision_mean
        return train(solver)

    def average_variance(self):
        """Give the kernel the geometric mean of its variance under the posterior.

        The variance at the maximum is too large where labels follow a pattern by chance
        and a smaller variance is nearly as likely.
        """
        found = free_variance(self.kernel, self.X.shape[1])
        if found is None:
            return
        slot, bounds = found
        low, high = np.clip(VARIANCE_BOUNDS, *bounds)

        def variance(solver):
            return solver.engine.model.params[slot]

        least, trials = self.solver.bound - NEGLIGIBLE, [self.solver]
        for step in (VARIANCE_STEP, 1.0 / VARIANCE_STEP):
            trial = self.solver
            while trial.bound > least and low <= step * variance(trial) <= high:
                trial = train(trial.scaled(slot, step))
                trials.append(trial)
        logs = np.log([variance(trial) for trial in trials])
        mean = softmax([trial.bound for trial in trials]) @ logs
        nearest = trials[np.argmin(np.abs(logs - mean))]
        factor = np.exp(mean) / variance(nearest)
        self.solver = train(nearest.scaled(slot, factor))
        self.kernel = updated_kernel(self.kernel, self.solver.engine.model.params)
