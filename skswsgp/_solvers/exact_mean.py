"""Means of the posterior given all rows, where the prior of f is not approximated.

With the distinct rows Z, their targets t and noise variances N, the mean of f at x is
k(x, Z) alpha, where

    (K + diag(N)) alpha = t,

that of Gaussian process regression and of H = M. Conjugate gradients solve for alpha by
products with K that never store it (Gardner et al., NeurIPS 2018), with the
preconditioner of `_linear.cell_preconditioner`. Rows at the same point count as one,
whose weight is the sum of theirs.
"""

import numpy as np

from skswsgp._compiled.special import gaussian_log_density
from skswsgp._covariance.compile import compile_kernel, length_scales
from skswsgp._covariance.products import CovarianceProducts
from skswsgp._linear.cell_preconditioner import CellPreconditioner
from skswsgp._linear.conjugate_gradients import solve_systems
from skswsgp._solvers.data import memory_budget

NOISE_RATIO = 10.0  # most ratio of noise variances that share a preconditioner
ABSENT = 1e12  # noise of points that are left out, in units of the prior variance
ERRORS = 2.0  # standard errors by which exact means must be worse to be given up
N_SCALES = 41  # factors of local variances that are compared
LEAST_SCALE = 0.05  # least factor of local variances; 2,000 rows know it to some 0.05


class ExactMean:
    """The systems of Q latent functions at points Z (M, D).

    `kernel` is the kernel object, `targets` (M, Q) and `weight` (M,) belong to the
    points, and `noise` (Q,) is the noise variance of a target of weight 1. `steps`
    counts the products with K of the last `solve`.
    """

    def __init__(self, kernel, Z, targets, weight, noise, tuning, n_threads):
        self.Z, self.targets, self.weight = Z, targets, weight
        self.noise, self.tuning = noise, tuning
        M, D = Z.shape
        struct = compile_kernel(kernel, D, np.float64).struct
        self.products = CovarianceProducts(struct, Z, n_threads)
        self.prior = np.asarray(kernel.diag(Z), dtype=np.float64)
        # a global point costs a number for each point, and one in a cell costs two
        numbers = memory_budget() // (8 * M)
        most = max(1, min(tuning.mean_global_points, numbers // 3))
        in_cell = max(1, min(tuning.mean_cell_points, numbers // 3))
        spread = np.std(Z, axis=0)
        scale = length_scales(kernel, D, np.where(spread > 0.0, spread, 1.0))
        sizes = scale, most, in_cell, n_threads
        self.preconditioner = CellPreconditioner(struct, Z, *sizes)

    @np.errstate(all="ignore")  # results are checked
    def solve(self, tolerance, alpha=None, without=None):
        """Return alpha (M, Q), zero at the points `without`; None if it is not found.

        The energy of the residual, r' (K + diag(N))^-1 r, is at most tolerance^2 times
        that of t; so the errors of means are on average `tolerance` times the standard
        deviations of observations given the others. `alpha` is an initial solution.
        """
        without = slice(0) if without is None else without
        right = self.targets.copy()
        alpha = np.zeros_like(right) if alpha is None else alpha.copy()
        self.steps = 0
        right[without] = alpha[without] = 0.0
        for outputs in noise_groups(self.noise):
            level = np.exp(np.log(self.noise[outputs]).mean())
            diagonal = self.prior + level / self.weight
            diagonal[without] = ABSENT * self.prior.mean()
            try:
                self.preconditioner.factorise(diagonal)
                left = self._solve(alpha, outputs, right, tolerance, without)
            except FloatingPointError:  # no factor of the preconditioner
                return None
            if len(left) or not np.isfinite(alpha).all():
                return None
        return alpha

    def _solve(self, alpha, outputs, right, tolerance, without):
        """Solve for some columns of alpha; return those that are left."""

        def multiply(u, which):
            self.steps += 1
            noise = self.noise[which] / self.weight[:, None]
            product = (self.prior[:, None] + noise) * u
            product += self.products.multiply_off_diagonal(u)
            product[without] = 0.0
            return product

        def precondition(u, which):
            z = self.preconditioner.solve(u)
            z[without] = 0.0
            return z

        limits = tolerance, self.tuning.mean_cg_steps
        return solve_systems(
            alpha, outputs, right, multiply, precondition, *limits, energy=True
        )


def noise_groups(noise):
    """Yield the indices of noise variances (Q,) in groups of similar size."""
    order = np.argsort(noise, kind="stable")
    while len(order):
        similar = noise[order] <= NOISE_RATIO * noise[order[0]]
        yield order[similar]
        order = order[~similar]


def exact_mean_attributes(solver, kernel, group, settings, n_threads, rng):
    """Return the fitted attributes of exact means, or none, and what went wrong.

    `solver` is a `NaturalSolver` after its last round, whose inducing points are the
    distinct rows, and `group` (n,) the inducing point of each row. Means from
    neighbours and from all points are compared at held-out points, both without the
    targets there. With n_neighbors="auto" the former stay if their error is less, by
    more than twice the standard error, or if the latter are not found.
    """
    tuning, model = settings.tuning, solver.engine.model
    unsolved = "" if settings.n_neighbors == "auto" else "did not converge"
    Z, noise = model.Z.astype(np.float64), model.noise.astype(np.float64)
    weight, targets = merge_rows(solver.data, group, len(Z))
    system = ExactMean(kernel, Z, targets, weight, noise, tuning, n_threads)
    held_out = rng.permutation(len(Z))[: min(len(Z) // 10, tuning.mean_held_out)]
    alpha = system.solve(tuning.held_out_mean_tolerance, without=held_out)
    if alpha is None:
        return {}, unsolved
    exact = system.products.multiply(Z[held_out], alpha)
    counts = counts_for_variances(settings, solver.engine.n_neighbors, len(Z))
    there = np.isin(group, held_out)
    local = solver.predict_without(held_out, there, counts, rng)
    known, weight = targets[held_out], weight[held_out, None]
    if settings.n_neighbors == "auto":
        gain = (known - local[-1][0]) ** 2 - (known - exact) ** 2
        gain = np.sum(weight * gain, axis=1)
        if gain.mean() < -ERRORS * gain.std() / np.sqrt(len(gain)):
            return {}, ""
    prior = system.prior[held_out, None]
    fits = [
        fit_scale(known - exact, mean - exact, variance, prior, noise / weight)
        for mean, variance in local
    ]
    best = next(
        i for i, fit in enumerate(fits) if fit[1] >= fits[-1][1] - tuning.density_loss
    )
    alpha = system.solve(tuning.mean_tolerance, alpha)
    if alpha is None:
        return {}, unsolved
    scale, one = fits[best][0], len(noise) == 1
    return {
        "alpha_": alpha[:, 0] if one else alpha,
        "local_variance_scale_": float(scale[0]) if one else scale,
        "n_neighbors_predict_": counts[best],
    }, ""


def counts_for_variances(settings, H, M):
    """Return numbers of neighbours from which variances may come, the largest last."""
    if settings.n_neighbors_predict != "auto":
        return [min(settings.n_neighbors_predict, M - 1)]
    return [count for count in settings.tuning.variance_neighbors if count < H] + [H]


def exact_variance(variance, prior, scale):
    """Return variances given all rows from those given neighbours, and the prior's.

    What neighbours add to the precision of f is divided by `scale`: small variances are
    multiplied by it, and that of the prior, far from all rows, stays.
    """
    variance = np.minimum(variance, prior)
    rest = scale * variance + prior - variance
    return scale * variance * prior / np.maximum(rest, np.finfo(float).tiny)


def fit_scale(errors, differences, variance, prior, noise):
    """Return the `scale` (Q,) of variances, and the log density of held-out errors.

    Arrays are (k, Q), `prior` (k, 1). For a function of the prior the mean square of
    the `differences` of local and exact means is by how much the variance given all
    rows is smaller. The scale is the likeliest of those that make it no smaller than
    this, and is at most 1.
    """
    scales = np.geomspace(LEAST_SCALE, 1.0, N_SCALES)[:, None, None]
    exact = exact_variance(variance, prior, scales)  # (N_SCALES, k, Q)
    total = exact + noise
    density = gaussian_log_density(errors**2 / total, np.log(total)).mean(axis=1)
    least = np.mean(np.minimum(variance, prior) - differences**2, axis=0)
    density[exact.mean(axis=1) < least] = -np.inf
    best, q = density.argmax(axis=0), np.arange(len(least))
    return scales[best, 0, 0], density[best, q].sum()


def merge_rows(data, group, M):
    """Return weights (M,) and weighted mean targets (M, Q) of the rows at M points."""
    weight = data.weight.astype(np.float64)
    sums = np.bincount(group, weight, M)
    columns = [np.bincount(group, weight * y, M) / sums for y in data.y.T]
    return sums, np.stack(columns, axis=1)
