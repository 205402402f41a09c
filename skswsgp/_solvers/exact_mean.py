"""Means of the posterior given all rows, where the prior of f is not approximated.

With the distinct rows Z, their targets t and noise variances N, the mean of f at x is
k(x, Z) alpha, where

    (K + diag(N)) alpha = t,

that of Gaussian process regression and of H = M. For labels t and N are the sites that
the natural solver ends with, and stay. Conjugate gradients solve for alpha by
products with K (Gardner et al., NeurIPS 2018), which keep its entries where they fit in
memory, with the preconditioner of `_linear.cell_preconditioner`. Rows at the same point
count as one, whose weight is the sum of theirs.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from skswsgp._compiled.linalg import numpy_cholesky
from skswsgp._compiled.threads import KERNEL_VALUE, one_blas_thread
from skswsgp._compiled.tiles import BLOCK
from skswsgp._covariance.compile import compile_kernel, length_scales
from skswsgp._covariance.products import CovarianceProducts
from skswsgp._linear.cell_preconditioner import CellPreconditioner
from skswsgp._linear.conjugate_gradients import solve_systems
from skswsgp._linear.projection import mean_prior_variance
from skswsgp._rows.data import memory_budget
from skswsgp._rows.statistics import MEAN_ROWS

# Points for each global one, at which a preconditioner and the products with K take
# about the same time for 2,000 to 8,000 points
POINTS_PER_GLOBAL = 15
NOISE_RATIO = 10.0  # most ratio of noise variances that share a preconditioner
LEAST_WEIGHT = 1e-9  # least precision of a site, relative to the largest


class ExactMean:
    """The systems of Q latent functions at points Z (M, D).

    `kernel` is the kernel object, `targets` and their `noise` variances (M, Q) belong
    to the points. `make_products` returns the products with K; that of an engine
    multiplies on its device. `steps` counts the products of the last `solve`, and
    `watch` is told of the points of each.
    """

    watch = staticmethod(lambda M: None)

    def __init__(
        self, kernel, Z, targets, noise, tuning, n_threads,
        make_products=CovarianceProducts,
    ):  # fmt: skip
        self.Z, self.targets, self.noise, self.tuning = Z, targets, noise, tuning
        M, D = Z.shape
        struct = compile_kernel(kernel, D, np.float64).struct
        self.products = make_products(struct, Z, n_threads)
        self.prior = np.asarray(kernel.diag(Z), dtype=np.float64)
        # a global point costs a number for each point, and one in a cell costs four
        numbers = memory_budget() // (8 * M)
        numbers -= self.products.keep_pairs(numbers * M // 2) // M
        n_global = min(tuning.mean_global_points, M // POINTS_PER_GLOBAL)
        most = max(1, min(n_global, numbers // 5))
        in_cell = math.isqrt(int(tuning.mean_cell_work * M * (KERNEL_VALUE + D)))
        in_cell = max(1, min(in_cell, numbers // 5))
        spread = np.std(Z, axis=0)
        scale = length_scales(kernel, D, np.where(spread > 0.0, spread, 1.0))
        self.preconditioner = CellPreconditioner(
            struct, Z, scale, most, in_cell, n_threads
        )

    @np.errstate(all="ignore")  # results are checked
    def solve(self, tolerance, held_out):
        """Return alpha (M, Q), and alpha without some points, zero there; or None.

        Both take each step together, for most of a product is its covariances. The
        energy of a residual, r' C r, where C is the preconditioner and stands for
        (K + diag(N))^-1, is at most tolerance^2 times that of t. With the inverse
        itself, the errors of means at rows would on average be `tolerance` times the
        standard deviations of observations given the others. The result is None if the
        solutions are not found.
        """
        (M, Q), self.steps = self.targets.shape, 0
        right = np.hstack([self.targets, self.targets])
        right[held_out, Q:] = 0.0
        alpha = np.zeros((M, 2 * Q))
        for outputs in noise_groups(self.noise):
            shared = np.exp(np.log(self.noise[:, outputs]).mean(axis=1))
            diagonal = self.prior + shared
            systems = np.concatenate([outputs, Q + outputs])
            try:
                inverse = self.preconditioner.factorise(diagonal)
                inverses = inverse, inverse.without(held_out)
                left = self._solve(alpha, systems, right, inverses, tolerance, held_out)
            except FloatingPointError:  # no factor of the preconditioner
                return None
            if len(left) or not np.isfinite(alpha).all():
                return None
        return alpha[:, :Q], alpha[:, Q:]

    def _solve(self, alpha, systems, right, inverses, tolerance, held_out):
        """Solve for some columns of alpha (M, 2 Q); return those that are left."""
        M, Q = self.targets.shape

        def without_held_out(u, which):
            u[np.ix_(held_out, which >= Q)] = 0.0
            return u

        def multiply(u, which):
            self.steps += 1
            self.watch(M)
            product = (self.prior[:, None] + self.noise[:, which % Q]) * u
            product += self.products.multiply_off_diagonal(u)
            return without_held_out(product, which)

        def precondition(u, which):
            parts = u[:, which < Q], u[:, which >= Q]
            pairs = zip(inverses, parts, strict=True)
            solved = [inverse.solve(part) for inverse, part in pairs]
            return without_held_out(np.hstack(solved), which)

        return solve_systems(
            alpha, systems, right, multiply, precondition, tolerance,
            self.tuning.mean_cg_steps, energy=True,
        )  # fmt: skip


def noise_groups(noise):
    """Yield the columns of noise variances (M, Q) in groups of similar ones.

    At most BLOCK are solved for together: each takes 32 numbers a point.
    """
    logs = np.log(noise)
    order = np.argsort(logs.mean(axis=0), kind="stable")
    while len(order):
        ratios = np.abs(logs[:, order] - logs[:, order[:1]]).max(axis=0)
        group = order[ratios <= np.log(NOISE_RATIO)][:BLOCK]
        yield group
        order = order[~np.isin(order, group)]


class HeldOut(NamedTuple):
    """Points that were held out, and how far means are from their targets (k, Q)."""

    points: np.ndarray  # (k,)
    errors: np.ndarray  # of means without these targets
    residuals: np.ndarray  # of means given all


class ExactFit(NamedTuple):
    """What a fit says of exact means."""

    attributes: dict = {}  # noqa: RUF012  fitted attributes, or none
    problem: str = ""  # what went wrong, as the end of a sentence
    held_out: HeldOut | None = None


def exact_mean_attributes(solver, trained, group, settings, n_threads, rng, watch):
    """Return the `ExactFit`.

    `solver` is a `NaturalSolver` after its last round, whose inducing points are the
    distinct rows, `trained` holds the attributes so far, and `group` (n,) is the
    inducing point of each row. Means at held-out points, which do not know the targets
    there, tell how well f is known. With n_neighbors="auto" means from neighbours stay
    where others are not found. `watch` is told of the points of each product.
    """
    tuning, model = settings.tuning, solver.engine.model
    unsolved = "" if settings.n_neighbors == "auto" else "did not converge"
    Z = model.Z.astype(np.float64)
    targets, noise = merge_sites(
        solver.sites.precision, solver.sites.precision_mean, group, len(Z)
    )
    how = model.kl_weight * noise, tuning, n_threads, solver.engine.make_products
    system = ExactMean(trained["kernel_"], Z, targets, *how)
    system.watch = watch
    size = max(1, min(len(Z) // 10, MEAN_ROWS))
    held_out = rng.permutation(len(Z))[:size]
    solutions = system.solve(tuning.mean_tolerance, held_out)
    if solutions is None:
        return ExactFit(problem=unsolved)
    alpha, without = solutions
    exact = system.products.multiply(Z[held_out], without)
    known, noise = targets[held_out], noise[held_out]
    left = model.kl_weight * noise * alpha[held_out]
    found = {"alpha_": alpha if alpha.shape[1] > 1 else alpha[:, 0]}
    return ExactFit(found, held_out=HeldOut(held_out, known - exact, left))


def means_of_few(solver, kernel, group):
    """Return the `ExactFit` where each row uses all points, in closed form.

    `group` (n,) is the point of each row. With site precisions w and targets t at the
    points, alpha = (K + beta / w)^-1 t, which is R (1 + R K R)^-1 R t with the diagonal
    R^2 = w / beta.
    """
    model, sites = solver.engine.model, solver.sites
    Z = model.Z.astype(np.float64)
    merged = merge_sites(sites.precision, sites.precision_mean, group, len(Z))
    alpha, K = np.empty((len(Z), model.m.shape[1])), kernel(Z)
    with one_blas_thread():
        for q, (t, noise) in enumerate(zip(*np.swapaxes(merged, 1, 2), strict=True)):
            root = 1.0 / np.sqrt(model.kl_weight * noise)
            B = root[:, None] * K * root + np.eye(len(Z))
            factor = numpy_cholesky(B, 0.0), True
            alpha[:, q] = root * cho_solve(factor, root * t)
    return ExactFit({"alpha_": alpha if alpha.shape[1] > 1 else alpha[:, 0]})


def exact_variance(variance, prior, scale):
    """Return variances given all rows from those given neighbours, and the prior's.

    What neighbours add to the precision of f is divided by `scale`: small variances are
    multiplied by it, and that of the prior, far from all rows, stays.
    """
    variance = np.minimum(variance, prior)
    rest = scale * variance + prior - variance
    return scale * variance * prior / np.maximum(rest, np.finfo(float).tiny)


def scaled_variance(variance, attributes):
    """Return variances (n, Q) of q(f) with the `variance_scale_` of fitted attributes.

    The prior variance is the mean of that at the inducing points.
    """
    scale = attributes.get("variance_scale_", 1.0)
    if scale == 1.0:
        return variance
    prior = mean_prior_variance(attributes["kernel_"], attributes["inducing_points_"])
    return exact_variance(variance, prior, scale)


def merge_sites(precision, precision_mean, group, M):
    """Return targets and noise variances (M, Q) of the sites of rows at M points.

    Sites are given by their precisions and these times their targets, each (n, Q), and
    `group` (n,) is the point of each row.
    """
    targets, noise = np.empty((2, M, precision.shape[1]))
    for q, (weight, times_mean) in enumerate(
        zip(precision.T, precision_mean.T, strict=True)
    ):
        weight = np.bincount(group, weight, M)
        least = max(LEAST_WEIGHT * weight.max(), np.finfo(float).tiny)
        weight = np.maximum(weight, least)
        targets[:, q] = np.bincount(group, times_mean, M) / weight
        noise[:, q] = 1.0 / weight
    return targets, noise
