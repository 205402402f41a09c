"""Residuals of training rows from predictions that do not know them.

Where every distinct row is an inducing point, the others predict the function at a
point, with mean mu and variance v: by kriging from the H nearest of them or, where
alpha solves (K + N) alpha = t, by all. The latter's mean is

    t_i - alpha_i (v + N_i)

(Rasmussen and Williams, 2006, eq. 5.12), so no system has to be solved anew. Other rows
at the same point, of precision p and mean target t', make that

    v' = 1 / (1 / v + p)        mu' = v' (mu / v + p t').

Otherwise a row is taken out of q(f_i), whose variance is F_i + s_i with the first part
the same for all q:

    mu' = mu - s (y - mu) / (noise - s).

Residuals are standardised by the deviation that a prediction has, noise included.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.linalg import given_others, numpy_cholesky, require_finite
from skswsgp._compiled.threads import max_threads, one_blas_thread, row_blocks
from skswsgp._kernel_search.neighbor_likelihood import NeighborProcess, neighbor_model
from skswsgp._neighbors.lists import without_own
from skswsgp._posterior.prediction import Posterior
from skswsgp._rows.statistics import copies_of_rows
from skswsgp._solvers.exact_mean import LEAST_WEIGHT, exact_variance, merge_sites
from skswsgp._solvers.model import build_model, with_draws

LEAST_ERROR = 1e-3  # standardised, below which errors may be those of rounding
MOST_LEVEL = 3.0  # factor by which few held-out points may change residuals
MOST_LEVERAGE = 0.5  # share of a row in its own mean that is taken out of it


class Residuals(NamedTuple):
    """Predictions of observations (n, Q), noise included, from other rows."""

    mean: np.ndarray
    variance: np.ndarray
    standardised: np.ndarray  # (y - mean) / deviation


class Points(NamedTuple):
    """The distinct inputs of rows, and the rows merged there."""

    Z: np.ndarray  # (M, D)
    targets: np.ndarray  # (M, Q) means of y, by precision
    noise: np.ndarray  # (M, Q) 1 / the sum of the precisions
    group: np.ndarray  # (n,) the point of each row


class ExactMeans(NamedTuple):
    """The exact means of a fit: see `exact_mean_attributes`."""

    alpha: np.ndarray  # (M, Q)
    scale: np.ndarray  # (Q,) of the local variances
    held_out: np.ndarray  # (k,) points that were held out for a comparison
    standardised: np.ndarray  # (k, Q) errors there in units of predicted deviations


def residuals_from_neighbors(points, y, noise, mean, variance, beta=1.0):
    """Return the `Residuals` of rows y (n, Q), whose noise variances are (n, Q).

    `mean` and `variance` (M, Q) are those of f at each of the `Points` from others, for
    which noise counts `beta` times.
    """
    group, precision = points.group, 1.0 / (beta * noise)
    rest = 1.0 / points.noise[group] - precision  # of other rows at the same point
    alone = rest <= LEAST_WEIGHT * precision  # where it may be rounding
    rest[alone] = 0.0
    sums = (points.targets / points.noise)[group] - precision * y
    sums[alone] = 0.0
    elsewhere = 1.0 / np.maximum(variance[group], np.finfo(float).tiny)
    mean = (elsewhere * mean[group] + sums) / (elsewhere + rest)
    variance = 1.0 / (elsewhere + rest) + noise
    return Residuals(mean, variance, (y - mean) / np.sqrt(variance))


def residuals_of_exact_means(points, y, noise, variance, prior, exact, beta=1.0):
    """Return the `Residuals` of rows from the `ExactMeans` of all other points.

    Arguments are those of `residuals_from_neighbors`, and `prior` (M,) is the variance
    of the prior. The variances are local ones, so the identity gives residuals up to a
    factor, which the held-out points tell.
    """
    variance = exact_variance(variance, prior[:, None], exact.scale)
    total = variance + points.noise
    at_points = np.abs(exact.alpha) * total / np.sqrt(variance + points.noise / beta)
    level = np.abs(exact.standardised).mean(axis=0)
    level /= np.maximum(at_points[exact.held_out].mean(axis=0), LEAST_ERROR)
    level = np.clip(level, 1.0 / MOST_LEVEL, MOST_LEVEL)
    mean = points.targets - level * exact.alpha * total
    return residuals_from_neighbors(points, y, noise, mean, variance, beta)


def predictions_from_others(points, kernel, H, options):
    """Return mean and variance (M, Q) of f at each point from its H nearest others.

    `options` are the threads, the kind of search and the device of a `NeighborProcess`.
    Without neighbours they are those of the prior.
    """
    Z, targets, noise, _ = points
    if H == 0:
        variance = np.broadcast_to(kernel.diag(Z)[:, None], targets.shape)
        return np.zeros_like(targets), variance
    model, _ = neighbor_model(Z, targets, noise, kernel, 1.0, np.float64)
    process = NeighborProcess(model, H, *options)
    parts = []
    try:
        search = process.make_search(H + 1)
        for block in row_blocks(len(Z)):
            X = model.Z[block]
            lists = without_own(search.query(X), np.arange(len(Z))[block])
            parts.append(process.engine.kriging_predictions(X, lists))
    finally:
        process.close()
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def predictions_from_all_others(points, kernel):
    """Return mean and variance (M, Q) of f at each point given all others.

    The target of a point has that mean, and that variance plus the one of its noise.
    """
    Z, targets, noise, _ = points
    K, mean, total = kernel(Z), np.empty_like(targets), np.empty_like(targets)
    with one_blas_thread():
        for q, t in enumerate(targets.T):
            factor = numpy_cholesky(K + np.diag(noise[:, q]), 0.0)
            mean[:, q], total[:, q] = given_others(factor, t)
    return mean, np.maximum(total - noise, 0.0)


def residuals_of_posterior(y, noise, mean, variance, prior_part, beta):
    """Return the `Residuals` of rows (n, Q) that are taken out of q(f).

    `mean` and `variance` are those of q(f), `prior_part` (n, Q) is F, and `beta` the
    weight of the divergence, which multiplies S. Where s is
    more than half the noise, S is not that of the optimum for such a row, or hardly
    known; the residual is doubled there.
    """
    leverage = (variance - prior_part) / (beta * noise)
    leverage = np.clip(leverage, 0.0, MOST_LEVERAGE)
    variance = variance + noise
    mean = y - (y - mean) / (1.0 - leverage)
    return Residuals(mean, variance, (y - mean) / np.sqrt(variance))


def merge_rows(data):
    """Return `TrainingRows` in float64 without copies, and the place of each row there.

    The weight of a row that stands for its copies is the sum of theirs.
    """
    X, y, weight = data.inputs, data.y, data.weight
    rows, place = copies_of_rows(X, y)
    if len(rows) < len(X):
        total = np.bincount(place, weight)
        X, y, weight = X[rows], y[rows], total.astype(weight.dtype)
    X, y = X.astype(np.float64, copy=False), y.astype(np.float64)
    return data._replace(X=X, y=y, weight=weight, rows=None), place


def leave_one_out(data, group, trained, settings):
    """Return the `Residuals` of the rows of `merge_rows`, and their `Points` or None.

    `group` (n,) is the inducing point of each row, or None where a row is taken out of
    q(f) instead, and there are no `Points`. `trained` are the fitted attributes and the
    `comparison` of an `ExactFit`.
    """
    noise = np.reshape(trained["noise_variance_"], (1, -1)) / data.weight[:, None]
    noise = noise.astype(np.float64)  # (n, Q)
    points = None
    if group is None:
        residuals = residuals_of_model(data, noise, trained, settings)
    else:
        beta, Z = trained["_kl_weight"], trained["inducing_points_"]
        points = Points(
            Z,
            *merge_sites(1.0 / (beta * noise), data.y / (beta * noise), group, len(Z)),
            group,
        )
        residuals = residuals_at_points(points, data.y, noise, trained, settings)
    require_finite(residuals.standardised)
    return residuals, points


def residuals_at_points(points, y, noise, trained, settings):
    """Return the `Residuals` of rows whose distinct inputs are the inducing points."""
    kernel, M, beta = trained["kernel_"], len(points.Z), trained["_kl_weight"]
    H = min(trained["n_neighbors_"], settings.tuning.most_neighbors, M - 1)
    if trained["n_neighbors_"] == M and M > 1:
        mean, variance = predictions_from_all_others(points, kernel)
    else:
        device = "cuda" if settings.device == "cuda" else "cpu"
        options = max_threads(settings.n_jobs, M), "exact", device
        mean, variance = predictions_from_others(points, kernel, H, options)
    if "held_out" not in trained:
        return residuals_from_neighbors(points, y, noise, mean, variance, beta)
    alpha = trained["alpha_"].reshape(M, -1)
    scale = np.atleast_1d(trained["local_variance_scale_"])
    means = ExactMeans(alpha, scale, trained["held_out"], trained["errors"])
    prior = kernel.diag(points.Z)
    return residuals_of_exact_means(points, y, noise, variance, prior, means, beta)


def residuals_of_model(data, noise, trained, settings):
    """Return the `Residuals` of rows by taking each of them out of q(f)."""
    likelihood = settings.likelihood, settings.n_latent
    model, center = build_model(with_draws(trained), likelihood, settings.dtype)
    posterior = Posterior(
        model,
        trained["kernel_"],
        None,  # the rows are mapped
        center,
        trained["n_neighbors_"],
        settings.device,
        settings.n_jobs,
        settings.search_options,
    )
    certain = model._replace(s=np.zeros_like(model.s), L=np.zeros_like(model.L))
    mean, variance = posterior.local_moments(data.inputs)
    _, prior_part = posterior._replace(model=certain).local_moments(data.inputs)
    arrays = data.y, noise, mean, variance, prior_part
    arrays = (array.astype(np.float64) for array in arrays)
    return residuals_of_posterior(*arrays, trained["_kl_weight"])
