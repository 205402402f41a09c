"""From a fitted model to the residuals of its training rows."""

import numpy as np

from skswsgp._compiled.linalg import require_finite
from skswsgp._compiled.threads import max_threads
from skswsgp._posterior.prediction import Posterior
from skswsgp._posterior.residuals import (
    ExactMeans,
    Points,
    predictions_from_all_others,
    predictions_from_others,
    residuals_from_neighbors,
    residuals_of_exact_means,
    residuals_of_posterior,
)
from skswsgp._rows.statistics import copies_of_rows
from skswsgp._solvers.exact_mean import merge_sites
from skswsgp._solvers.model import build_model, with_draws


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
