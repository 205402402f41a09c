"""Rows held out: they tell which of some kernels serves q(u) best.

----

A kernel for few inducing points.

A kernel learned from nearest rows knows details that few inducing points cannot hold;
learned from a part of the rows, whose neighbours are further away, it does not, nor
with scales tied. Rows that no kernel's q(u) has seen tell which one serves best.
"""

import warnings
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from skswsgp._covariance.compile import length_scales
from skswsgp._engine.select import make_cpu_engine
from skswsgp._initialization.auto import divergence_weight, natural_jitter
from skswsgp._initialization.inducing import distinct_rows, initial_inducing_points
from skswsgp._initialization.kernel_learning import count_learning_rows
from skswsgp._initialization.statistics import (
    HELD_OUT_FRACTION,
    effective_sample_size,
    exceeds_standard_error,
    merge_duplicates,
)
from skswsgp._solvers.data import TrainingRows
from skswsgp._solvers.model import JITTER, build_model
from skswsgp._solvers.natural import NaturalSolver
from skswsgp._solvers.progress import callers_level

MAX_HOLDOUT_ROWS = 20_000  # that q(u) is found on and judged by, at most
LEAST_HELD_OUT = 20  # rows, or half of them if these are fewer
LEAST_EFFECTIVE = 8.0  # as many equal weights have the same spread
LEAST_GAIN = 1e-3  # nats a row, for which a variance is scaled
SCALE_SPREAD, MAX_LOG_SCALE = 0.5, 3.0  # of the logarithm of that scale; its bound
ROWS_PER_POINT = 4  # rows for each inducing point in the part that teaches


class PriorSettings(NamedTuple):
    """What the natural solver takes of the user's parameters for q(u)."""

    kl: str = "vecchia"  # or "local"
    kl_weight: object = "auto"  # or a number
    metric: str = "kernel"  # of neighbours, or "euclidean" or "random"


class Holdout:
    """A part of the training rows, and which of them no q(u) learns from.

    Copies of a row are merged, and rows that share X are held out together: one would
    tell the others' targets. q(u) has a diagonal S here, whatever the estimator says.

    Parameters
    ----------
    most : int
        Rows that take part, at most.
    data : Data
        Training rows.
    likelihood : tuple
        Its name and the number of latent functions.
    log_density : callable
        log_density(mu, v, y, attributes), the density of rows with q(f) = N(mu, v).
    rng : RandomState
        Source of random numbers.
    options : dict
        Threads, precision, kind of search, and device of learning: n_threads, dtype,
        search, device.
    prior : Prior
        Of q(u).

    Attributes
    ----------
    X, y, weight : ndarrays of shapes (n, D), (n, Q) or (n, 1), (n,)
        The rows that take part.
    held : ndarray of shape (n,)
        Which rows are held out.
    decisive : bool
        Whether these are enough to decide between kernels, and others are left.
    """

    def __init__(self, most, data, likelihood, log_density, rng, options, prior):
        part = data.take(np.sort(rng.permutation(data.n_rows)[:most]))
        X = np.asarray(part.X[part.rows], dtype=np.float64)
        self.X, self.y, self.weight = merge_duplicates(X, part.y, part.weight)
        distinct, group = distinct_rows(self.X)
        M = len(distinct)
        n_held = max(HELD_OUT_FRACTION * M, min(LEAST_HELD_OUT, M // 2))
        self.held = (rng.permutation(M) < n_held)[group]
        self.share = part.n_rows / data.n_rows  # of the rows, that take part
        enough = effective_sample_size(self.weight[self.held]) >= LEAST_EFFECTIVE
        self.decisive = enough and not self.held.all()
        self.seed = rng.randint(2**31 - 1)  # of the order of all chains
        self.likelihood, self.log_density = likelihood, log_density
        self.options, self.prior = options, prior

    def solver(self, attributes, H):
        """Return a solver that does not learn from held-out rows.

        `attributes` are those that `build_model` takes; m and S to start from may be
        missing: then they are the prior's. H points are active, if there are so many.
        """
        (kl, kl_weight, metric), options = self.prior, self.options
        kernel, Z = attributes["kernel_"], attributes["inducing_points_"]
        M = len(Z)
        H = min(H, M)
        variance = np.maximum(kernel.diag(Z), np.finfo(self.y.dtype).eps)
        shape = M, self.likelihood[1]
        start = {
            "inducing_mean_": np.zeros(shape),
            "inducing_covariance_": np.broadcast_to(variance[:, None], shape),
        }
        model, center = build_model(
            start | attributes,
            self.likelihood,
            options["dtype"],
            divergence_weight(kl_weight, kl, M, H),
            total_weight=self.weight.sum(dtype=np.float64),
        )
        solver = NaturalSolver(
            make_cpu_engine(model, H, options["n_threads"]),
            kernel,
            TrainingRows(self.X, self.y, self.weight, center=center),
            {"metric": metric, "search": options["search"]},
            np.random.RandomState(self.seed),
            kl,
        )
        solver.weight = np.where(self.held, 0.0, self.weight)
        return solver

    def log_densities(self, solver, attributes):
        """Let a solver converge; return the log density of the held-out rows."""
        while not solver.converged:
            solver.advance(0)
        held, (mu, v) = self.held, solver.marginals()
        return self.log_density(mu[held], v[held], self.y[held], attributes)

    def variance_scale(self, solver):
        """Return the factor of the variance of q(f) that suits held-out rows best.

        Its logarithm has a normal prior. 1 if no other is better beyond chance; one
        found on a share of the rows must gain the more.
        """
        held, (mu, v) = self.held, solver.marginals()
        mu, v, y, weight = mu[held], v[held], self.y[held], self.weight[held]

        def density(shift):
            return self.log_density(mu, v, y, {"variance_scale_": np.exp(shift)})

        def loss(shift):
            prior = 0.5 * (shift / SCALE_SPREAD) ** 2 / effective_sample_size(weight)
            return prior - np.average(density(shift), weights=weight)

        bounds = -MAX_LOG_SCALE, MAX_LOG_SCALE
        shift = minimize_scalar(loss, bounds=bounds, options={"xatol": 0.05}).x
        least = LEAST_GAIN / self.share
        better = self.better(density(shift), density(0.0), least)
        return float(np.exp(shift)) if better else 1.0

    def better(self, density, other, least=0.0):
        """Whether held-out rows are likelier, by `least` and beyond chance."""
        weight = self.weight[self.held]
        return self.decisive and exceeds_standard_error(density - other, weight, least)


def warn_of_interrupt():
    """Say that Ctrl-C ended a search, and not the fit."""
    warnings.warn(
        "the search for a kernel was interrupted: the fit goes on with the best one so "
        "far.",
        stacklevel=callers_level(),
    )


def has_few_points(M, n_rows, n_features, rows_a_point=ROWS_PER_POINT):
    """Whether M inducing points are few for so many rows, and for those that judge."""
    most = min(
        count_learning_rows(n_features),
        int((1.0 - HELD_OUT_FRACTION) * MAX_HOLDOUT_ROWS),
    )
    return rows_a_point * M < min(n_rows, most)


def learning_part(M, data, rng):
    """Return the part of the data that teaches a kernel for M inducing points."""
    rows = rng.permutation(data.n_rows)[: max(ROWS_PER_POINT * M, 200)]
    return data.take(np.sort(rows))


class CandidateComparison(Holdout):
    """Judges kernels by the q(u) of M inducing points, of which a row sees H.

    `points` says how they are chosen, "kmeans" or "random", and `spread` (D,) is that
    of the features, as they stand in for length-scales where a kernel has none.
    """

    def __init__(self, M, H, points, spread, data, *setting):
        super().__init__(MAX_HOLDOUT_ROWS, data, *setting)
        self.M, self.H = M, H
        self.points, self.spread = points, spread

    def solve(self, found):
        """Return a solver that has converged, and the densities of held-out rows."""
        kernel, noise = found[:2]
        rng, kept, D = np.random.RandomState(self.seed), ~self.held, self.X.shape[1]
        scale = length_scales(kernel, D, otherwise=self.spread)
        Z = initial_inducing_points(
            self.X[kept], self.M, self.points, rng, scale, self.weight[kept]
        )
        attributes = {
            "kernel_": kernel,
            "inducing_points_": Z,
            "noise_variance_": noise,
            "jitter_": JITTER,
            "y_scale_": 1.0,
        }
        if self.likelihood[0] == "gaussian":
            dtype = self.options["dtype"]
            attributes["jitter_"] = natural_jitter(kernel, Z, noise, dtype)
        solver = self.solver(attributes, self.H)
        return solver, self.log_densities(solver, attributes)

    def best_of(self, candidates):
        """Return the first of some `Found` unless others are better.

        Better: held-out rows are likelier, beyond chance. One that fails is no better,
        and any that does not is better than a first that fails. For classes it comes
        with the scale that its variances ask for.
        """
        best, solver, density = candidates[0], None, None
        for one in candidates:
            try:
                other, likelier = self.solve(one)
            except FloatingPointError:  # of a kernel that is not needed
                continue
            except KeyboardInterrupt:
                warn_of_interrupt()
                break
            if density is None or self.better(likelier, density):
                best, solver, density = one, other, likelier
        if self.likelihood[0] == "gaussian":
            return best
        scale = 1.0 if solver is None else self.variance_scale(solver)
        return best._replace(variance_scale=scale)
