"""Rows that no candidate kernel has learned from, and the choice by them.

`Judges` predict such rows from their nearest others. `Holdout` predicts them by q(u),
where labels, counts or few inducing points ask for it. `TrialRows` are those on which
solvers are tried.
"""

from contextlib import closing

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize_scalar

from skswsgp._compiled.threads import one_blas_thread
from skswsgp._covariance.compile import length_scales
from skswsgp._engine.select import make_cpu_engine
from skswsgp._kernel_search import kernel_learning
from skswsgp._kernel_search.climb import FIRST_ROWS
from skswsgp._linear.projection import mean_prior_variance
from skswsgp._rows.columns import mapped
from skswsgp._rows.data import TrainingRows
from skswsgp._rows.inducing import distinct_rows, initial_inducing_points
from skswsgp._rows.statistics import (
    HELD_OUT_FRACTION,
    LARGEST_SEED,
    LEAST_EFFECTIVE,
    distinct_observations,
    effective_sample_size,
    is_gain,
)
from skswsgp._solvers.auto import dtype_of_systems, natural_jitter
from skswsgp._solvers.exact_mean import exact_variance
from skswsgp._solvers.model import build_model, shape_covariance
from skswsgp._solvers.natural import NaturalSolver
from skswsgp._solvers.rows import RowsInMemory

# Share of noise in the variance of a row that is predicted from near ones. Where it is
# larger, the mean of many rows tells more of a function than near rows do.
NOISY = 0.5
LEAST_HELD_OUT = 20  # least number of held-out rows, unless half of all rows is fewer
LEAST_ROUND = 1e-3  # nats a row that a round must gain to be followed by another one
MAX_LOG_FACTOR = 3.0  # bound on the logarithm of a variance scale
SCALE_SPREAD = 0.5  # prior standard deviation of the logarithm of a variance scale
# Prior standard deviation of the logarithm of a shape, and of the kernel variance of a
# likelihood without noise
SPREAD = 2.0
LEAST_PRECISION = 1e-4  # least precision of a site, relative to that of the prior
ROWS_PER_POINT = 4  # rows per inducing point from which a second kernel is learned


class Judges:
    """Rows, each predicted from its H nearest others, by which kernels are compared.

    `rows` are numbers of rows of a `KernelLearner`, in a random order. H is
    `n_neighbors`, or that of learning if it is None, and at most MAX_WIDE_NEIGHBORS.
    If predictions will be made from all rows, `parts` are numbers of other ones, fewer
    first, from which rows are predicted as well.
    """

    def __init__(self, learner, rows, n_neighbors, parts=()):
        self.learner, self.rows, self.parts = learner, np.sort(rows), parts
        self.n_rows, most = len(learner.X), kernel_learning.MAX_WIDE_NEIGHBORS
        self.H = min(n_neighbors or learner.n_neighbors, most)
        self.weight = learner.weight[self.rows]
        self._said = []  # fits and what the rows say of them

    def better(self, fit, other, favoured=False):
        """Return the first fit unless the rows prefer the other one.

        The mean log density must be larger by two standard errors, or the other one
        `favoured` and no less likely by as much. The mean absolute error must not be
        larger: a few rows may gain what nearly all of them lose.
        """
        if other is fit:
            return fit
        (density, error, _), (after, error_after, _) = self.say(fit), self.say(other)
        if not np.isfinite(after).all():
            return fit
        if not np.isfinite(density).all():
            return other
        if np.average(error - error_after, weights=self.weight) < 0.0:
            return fit
        gains = after - density
        better = is_gain(gains, weight=self.weight)
        better |= favoured and not is_gain(-gains, weight=self.weight)
        return other if better else fit

    def better_given_parts(self, fit, other):
        """Return the first fit unless the rows prefer the other one given each part.

        Near rows tell little of how a smooth function goes on. A fit that they prefer
        may predict a row from all others much worse. What a row gains changes with the
        logarithm of the number of rows, so all rows must be expected to prefer it, too.
        """
        gains, sizes = [], [len(part) for part in self.parts]
        for part in self.parts if other is not fit else ():
            try:
                gains.append(self.given(other, part) - self.given(fit, part))
            except np.linalg.LinAlgError:  # of a covariance matrix that has no factor
                return fit
            if not is_gain(gains[-1], weight=self.weight):
                return fit
        if gains and max(sizes) > min(sizes):
            left = max(np.log(self.n_rows / sizes[-1]), 0.0)
            slope = (gains[-1] - gains[0]) / np.log(sizes[-1] / sizes[0])
            gains.append(gains[-1] + slope * left)
        return other if gains and is_gain(gains[-1], weight=self.weight) else fit

    def given(self, fit, part):
        """Return the log density (n,) of the rows given all rows of a part at once."""
        learner, kernel, X = self.learner, fit.kernel, self.learner.X
        Z, X = (mapped(X[rows], fit.linear_map) for rows in (part, self.rows))
        K, across, v = kernel(Z), kernel(Z, X), np.empty(learner.y[self.rows].shape)
        square = np.empty_like(v)
        with one_blas_thread():
            for q, noise in enumerate(fit.noise):
                ratios, y = learner.ratios[:, q], learner.y[:, q]
                L = np.linalg.cholesky(K + np.diag(noise * ratios[part]))
                half = solve_triangular(L, across, lower=True)  # (N, n)
                error = y[self.rows] - half.T @ solve_triangular(L, y[part], lower=True)
                unknown = kernel.diag(X) - np.einsum("ij,ij->j", half, half)
                v[:, q] = np.maximum(unknown, 0.0) + noise * ratios[self.rows]
                square[:, q] = error**2 / v[:, q]
        return log_density(square, v, self.weight)

    def say(self, fit):
        """Return log density and absolute error, each (n,), and the share of noise.

        The first two are summed over outputs, and variances have the common factor that
        suits the rows best. The third is a mean over rows, of the output with the least
        noise. All are computed once for each fit.
        """
        for seen, said in self._said:
            if seen is fit:
                return said
        with closing(self.learner.process(fit, self.H)) as process:
            square, v = process.standardised(self.rows, self.weight)
            share = process.noise_of(self.rows, self.weight) / v
        share = np.average(share.min(axis=1), weights=self.weight)
        density = log_density(square, v, self.weight)
        said = density, np.sum(np.sqrt(square * v), axis=1), share
        self._said.append((fit, said))
        return said


def log_density(square, v, weight):
    """Return log densities (n,), summed over outputs, but for a constant.

    `square` (n, Q) are standardised squares of residuals and v (n, Q) their variances,
    which get the common factor that suits the rows best.
    """
    factor = np.average(square.mean(axis=1), weights=weight)
    factor = max(factor, np.finfo(float).tiny)
    return -0.5 * np.sum(square / factor + np.log(factor * v), axis=1)


class TrialRows:
    """At most `n_rows` of the training rows, with duplicates merged.

    X is (n, D), y (n, Q) or (n, 1), weight (n,). Solvers learn from the rows `kept`
    (n,), which are all unless a subclass holds some out. `fraction` is that of the
    training rows that take part, and `shape` (Q,) that of the likelihood.
    """

    def __init__(self, n_rows, data, settings, options, rng):
        part = data.take(np.sort(rng.permutation(data.n_rows)[:n_rows]))
        X = np.asarray(part.inputs, dtype=np.float64)
        rows = distinct_observations(part._replace(X=X, rows=None))
        self.X, self.y, self.weight, self.count = rows
        self.kept = np.ones(len(self.X), dtype=bool)
        self.fraction = part.n_rows / data.n_all
        self.seed = rng.randint(LARGEST_SEED)  # draws the order of all Vecchia priors
        self.settings, self.options = settings, options
        self.record = settings.likelihood_record
        self.shape = settings.first_shape

    def solver_for(self, attributes, H, at=None, full=False):
        """Return a `NaturalSolver` that learns from the rows that are kept.

        `attributes` are those that `build_model` takes, and `linear_map_` or none;
        without m and S the solver starts at the prior. A row uses H inducing points, or
        all M if these are fewer. If rows lie at the points, `at` says at which. S is a
        diagonal, or a matrix if `full`.
        """
        kernel, Z = attributes["kernel_"], attributes["inducing_points_"]
        X, y, weight = (array[self.kept] for array in (self.X, self.y, self.weight))
        # a graph is too slow to build for each trial
        settings = self.settings._replace(solver=NaturalSolver, neighbor_search="exact")
        M = len(Z)
        H = min(H, M)
        variance = np.maximum(kernel.diag(Z), np.finfo(self.y.dtype).eps)
        shape = M, settings.n_latent
        start = {
            "inducing_mean_": np.zeros(shape),
            "inducing_covariance_": np.broadcast_to(variance[:, None], shape),
            "prior_mean_": settings.prior_mean(mean_prior_variance(kernel, Z)),
            "likelihood_shape_": self.shape,
        }
        if self.record.counts:
            noise = self.record.unknown_part(y)
            dtype = dtype_of_systems(settings, M, H)
            start["_jitter"] = natural_jitter(kernel, Z, noise, dtype, full)
        start = shape_covariance(start | attributes, full)
        likelihood = settings.likelihood, settings.n_latent
        beta = settings.divergence_weight(M, H)
        model, center = build_model(start, likelihood, self.options.dtype, beta)
        engine = make_cpu_engine(model, H, self.options.n_threads)
        linear_map = attributes.get("linear_map_")
        rows = TrainingRows(mapped(X, linear_map), y, weight, center=center, at=at)
        rng = np.random.RandomState(self.seed)
        solver = NaturalSolver(engine, RowsInMemory(rows), kernel, settings, rng)
        solver.linear_map = linear_map
        return solver


def train(solver):
    """Advance a solver until it has converged; return it."""
    while not solver.converged:
        solver.advance(0)
    return solver


def gaussian_sites(solver):
    """Return means and variances (n, Q) of a solver's sites, weights included.

    Sites that say nothing get a large variance.
    """
    least = LEAST_PRECISION / solver.prior_variance
    precision = np.maximum(solver.sites.precision, least)
    return solver.sites.precision_mean / precision, 1.0 / precision


class Holdout(TrialRows):
    """A part of the training rows, of which some are held out from every q(u).

    Rows that share X are held out together, because one would reveal the targets of the
    others. `held_out` (n,) says which rows are held out, and `decisive` whether they
    are enough to decide, and others are left.
    """

    def __init__(self, n_rows, data, settings, options, rng):
        super().__init__(n_rows, data, settings, options, rng)
        distinct, group = distinct_rows(self.X)
        M = len(distinct)
        n_held_out = max(HELD_OUT_FRACTION * M, min(LEAST_HELD_OUT, M // 2))
        self.held_out = (rng.permutation(M) < n_held_out)[group]
        self.held_out_weight = self.count[self.held_out]
        self.kept = ~self.held_out
        enough = effective_sample_size(self.held_out_weight) >= LEAST_EFFECTIVE
        self.decisive = enough and not self.held_out.all()

    def log_density(self, solver):
        """Train a solver until it has converged; return log p of held-out rows (n,)."""
        train(solver)
        y, model = self.y[self.held_out], solver.engine.model
        own = (self.count / self.weight)[self.held_out, None]  # 1 but for known noise
        noise = model.noise * own if self.record.conjugate else model.noise
        return self.record.log_density(*self._marginals(solver), y, noise, model.shape)

    def _marginals(self, solver):
        """Return mean and variance of q(f) at the held-out rows, each (n, Q)."""
        rows = mapped(self.X[self.held_out], solver.linear_map)
        mean, variance = solver.predict(rows)
        return mean + solver.engine.model.prior_mean, variance

    def variance_scale(self, solver):
        """Return the scale of `exact_variance` that makes held-out rows likeliest.

        It is for likelihoods without noise variances. Its logarithm has a normal prior.
        The factor is 1 if held-out rows gain no more than by chance. A smaller part of
        the training rows must gain more, for it says less of all of them.
        """
        weight, y = self.held_out_weight, self.y[self.held_out]
        mean, variance = self._marginals(solver)

        def density(shift):
            scaled = exact_variance(variance, solver.prior_variance, np.exp(shift))
            shape = solver.engine.model.shape
            return self.record.log_density(mean, scaled, y, shape=shape)

        def loss(shift):
            prior = 0.5 * (shift / SCALE_SPREAD) ** 2 / effective_sample_size(weight)
            return prior - np.average(density(shift), weights=weight)

        bounds = -MAX_LOG_FACTOR, MAX_LOG_FACTOR
        shift = minimize_scalar(loss, bounds=bounds, options={"xatol": 0.05}).x
        least = LEAST_ROUND / self.fraction
        better = self.is_better(density(shift), density(0.0), least=least)
        return float(np.exp(shift)) if better else 1.0

    def likeliest_shape(self, solver):
        """Return the shapes (Q,) of the likelihood that make held-out rows likeliest.

        `log_prior_of_shape` is their prior around the first ones.
        """
        weight, y = self.held_out_weight, self.y[self.held_out]
        moments, shape = self._marginals(solver), self.shape.copy()
        first, bounds = self.settings.first_shape, np.log(self.record.shape_bounds)
        noise, n = solver.engine.model.noise, effective_sample_size(weight)

        def loss(log_shape, q):
            shape[q] = np.exp(log_shape)
            density = self.record.log_density(*moments, y, noise, shape)
            prior = log_prior_of_shape(shape[q], first[q])
            return -prior / n - np.average(density, weights=weight)

        for q in range(len(shape)):
            how = {"bounds": bounds, "options": {"xatol": 0.05}}
            shape[q] = np.exp(minimize_scalar(loss, args=(q,), **how).x)
        return shape

    def is_better(self, density, other, cost=0.0, least=LEAST_ROUND):
        """Return whether held-out rows are likelier than under another model.

        They gain more than `cost` nats and `least` each, which rounds of trials leave
        open, and more than a standard error. Two of these would keep parameters from
        their places, as if the model were richer there.
        """
        gains, weight = density - other, self.held_out_weight
        clear = self.decisive and is_gain(gains, weight=weight, errors=1.0)
        return clear and is_gain(gains - least, cost, weight, errors=0.0)


class CandidateComparison(Holdout):
    """A comparison of kernels by q(u) with M inducing points, of which a row uses H.

    A kernel learned from nearest rows fits details that few inducing points cannot
    represent. A kernel learned from a part of the rows, whose neighbours are further
    away, does not, nor does one whose length-scales keep their ratios.

    `spread` (D,) holds the standard deviations of the features, which replace
    length-scales if a kernel has none. Other arguments are those of `Holdout`.
    """

    def __init__(self, M, H, spread, data, settings, options, rng):
        super().__init__(settings.tuning.holdout_rows, data, settings, options, rng)
        self.M, self.H, self.spread = M, H, spread

    def solve(self, fit):
        """Return a solver that has converged, and log p of the held-out rows."""
        kernel, noise = fit[:2]
        rng = np.random.RandomState(self.seed)
        X = mapped(self.X[self.kept], fit.linear_map)
        scale = length_scales(kernel, X.shape[1], otherwise=self.spread)
        method, tuning = self.settings.inducing_points, self.settings.tuning
        Z = initial_inducing_points(
            X, self.M, method, rng, scale, tuning, self.weight[self.kept]
        )
        attributes = {"kernel_": kernel, "inducing_points_": Z}
        attributes["linear_map_"] = fit.linear_map
        if fit.shape is not None:
            self.shape = fit.shape
        if self.record.conjugate:
            attributes["_jitter"] = natural_jitter(kernel, Z, noise, self.options.dtype)
        if self.record.has_noise:
            attributes["noise_variance_"] = noise
        solver = self.solver_for(attributes, self.H)
        return solver, self.log_density(solver)

    def best_of(self, fits):
        """Return the first `KernelFit` unless another one is better.

        Candidates that fail are skipped; if the first fails, any other replaces it. The
        fit of a classifier gets its variance scale.
        """
        best, solver, density = fits[0], None, None
        for fit in fits:
            try:
                other, likelier = self.solve(fit)
            except FloatingPointError:  # other candidates remain
                continue
            if density is None or self.is_better(likelier, density):
                best, solver, density = fit, other, likelier
        if self.record.has_noise:
            return best
        scale = 1.0 if solver is None else self.variance_scale(solver)
        return best._replace(variance_scale=scale)


def prior_loss_around(values, usual):
    """Return minus the log prior densities of positive numbers, up to a constant.

    Their logarithms have a normal prior around those of their usual values.
    """
    return 0.5 * (np.log(values / usual) / SPREAD) ** 2


def log_prior_of_shape(shape, usual):
    """Return the log prior density of shapes (Q,) of a likelihood, up to a constant.

    Their logarithms have a Student-t prior with one degree of freedom, because the
    shape of large counts may exceed the usual one by orders of magnitude.
    """
    return -np.sum(np.log1p(prior_loss_around(shape, usual)))


def has_few_points(M, n_rows, n_features, tuning, rows_per_point=ROWS_PER_POINT):
    """Return whether M is small relative to the data and to a `Holdout`."""
    kept = int((1.0 - HELD_OUT_FRACTION) * tuning.holdout_rows)
    most = min(n_rows, kernel_learning.count_learning_rows(n_features, tuning), kept)
    return rows_per_point * M < most


def learning_part(M, data, rng):
    """Return the rows from which a kernel for M inducing points is learned."""
    size = max(ROWS_PER_POINT * M, FIRST_ROWS)
    return data.take(np.sort(rng.permutation(data.n_rows)[:size]))
