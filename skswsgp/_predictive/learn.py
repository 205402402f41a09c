"""From a trained model to the law of observations."""

import numpy as np

from skswsgp._compiled.linalg import require_finite
from skswsgp._compiled.threads import max_threads, one_blas_thread
from skswsgp._covariance.compile import length_scales
from skswsgp._initialization.inducing import point_of_each_row
from skswsgp._initialization.kernel_learning import count_few_rows
from skswsgp._initialization.statistics import feature_spread, merge_duplicates
from skswsgp._predictive.fit_law import add_near_targets, find_neighborhoods, fit_law
from skswsgp._predictive.left_out import left_out_squares
from skswsgp._predictive.prediction import (
    Evaluation,
    latent_posterior,
    nearest_points,
)
from skswsgp._predictive.residuals import (
    ExactMeans,
    Points,
    predictions_from_others,
    residuals_from_neighbors,
    residuals_of_exact_means,
    residuals_of_posterior,
)
from skswsgp._solvers.exact_mean import merge_sites
from skswsgp._solvers.model import build_model, with_draws

# Rows that the law of a solver that takes steps is learned from. Such a solver may read
# X from a file, which would not fit in memory.
MOST_ROWS = 20_000


def learn_law(solver, data, trained, exact, settings, earlier, rng):
    """Return the `PredictiveLaw` of the rows that train, or None for one row.

    `trained` are the fitted attributes, and `exact` is the `ExactFit`. In a stream,
    `earlier` is the law of the chunks before, or None; its sizes of residuals are added
    to those of this chunk. Copies of a row count as one, as they do for the noise.
    """
    if data.n_rows > MOST_ROWS and not solver.finds_optimum:
        data = data.take(np.sort(rng.permutation(data.n_rows)[:MOST_ROWS]))
    X, y, weight = merge_duplicates(data.inputs, data.y, data.weight)
    data = data._replace(X=X, y=y, weight=weight, rows=None)
    X, y = X.astype(np.float64, copy=False), y.astype(np.float64)
    Z = trained["inducing_points_"]
    group = point_of_each_row(Z, X) if solver.exact_means else None
    lone = len(X) < 2 or (group is not None and len(Z) < 2)
    if lone or settings.neighbor_metric == "random":
        return None  # kriging from near rows does not show the errors of random ones
    likelihood = settings.likelihood, settings.n_latent
    model, center = build_model(trained, likelihood, settings.dtype)

    def nearest(rows, k):
        return nearest_points(model, rows, center, k, settings.n_jobs)

    around = find_neighborhoods(X, Z, nearest, group)
    noise = np.reshape(trained["noise_variance_"], (1, -1)) / weight[:, None]
    noise = noise.astype(np.float64)  # (n, Q)
    if group is None:
        residuals = residuals_of_model(data, noise, trained, settings)
        require_finite(residuals.standardised)
        return fit_law(residuals, around, earlier, stream=not settings.decay)[0]
    beta = solver.engine.model.kl_weight
    sites = 1.0 / (beta * noise), y / (beta * noise)
    points = Points(Z, *merge_sites(*sites, group, len(Z)), group)
    rows = points, y, noise, beta
    residuals = residuals_at_points(*rows, trained, exact, settings)
    require_finite(residuals.standardised)
    law, observations = fit_law(residuals, around)
    widening = widening_of_few(law, X, y, weight, trained, settings)
    law = law.widened(widening)
    observations = observations._replace(factor=observations.factor * widening)
    if around is None:
        return law
    scales = length_scales(trained["kernel_"], Z.shape[1], feature_spread(Z, rng))
    errors = np.empty_like(points.targets)
    errors[group] = y - residuals.mean
    places = (X, y), (Z, points.targets, errors, scales)
    return add_near_targets(law, observations, *places, around, rng)


def widening_of_few(law, X, y, weight, trained, settings):
    """Return the factors (Q,) of deviations for a kernel learned from few rows.

    A law that was learned from errors grows as these do when rows are taken out of the
    kernel's parameters. Otherwise deviations grow to these errors, or stay as they are.
    """
    Q = y.shape[1]
    few = len(X) <= count_few_rows(X.shape[1], Q, settings.tuning)
    if settings.init != "local" or not few:
        return np.ones(Q)  # the kernel was not learned, or hardly knows a row
    noise = np.broadcast_to(trained["noise_variance_"], Q).astype(np.float64)
    ratios = np.broadcast_to(1.0 / weight[:, None], y.shape)
    with one_blas_thread():
        squares = left_out_squares(trained["kernel_"], noise, X, y, ratios)
    if squares is None:
        return np.ones(Q)
    before, after = np.maximum(squares, np.finfo(float).tiny)  # y may be constant
    return np.sqrt(after / np.where(law.is_learned, before, np.minimum(after, 1.0)))


def residuals_at_points(points, y, noise, beta, trained, exact, settings):
    """Return the `Residuals` of rows whose distinct inputs are the inducing points."""
    kernel, M = trained["kernel_"], len(points.Z)
    most = settings.tuning.most_neighbors
    H = min(trained["n_neighbors_predict_"], most, M - 1)
    device = "cuda" if settings.device == "cuda" else "cpu"
    options = max_threads(settings.n_jobs, M), "auto", device
    mean, variance = predictions_from_others(points, kernel, H, options)
    if exact.standardised is None:
        return residuals_from_neighbors(points, y, noise, mean, variance, beta)
    alpha = trained["alpha_"].reshape(M, -1)
    scale = np.atleast_1d(trained["local_variance_scale_"])
    means = ExactMeans(alpha, scale, exact.held_out, exact.standardised)
    prior = kernel.diag(points.Z)
    return residuals_of_exact_means(points, y, noise, variance, prior, means, beta)


def residuals_of_model(data, noise, trained, settings):
    """Return the `Residuals` of rows by taking each of them out of q(f)."""
    likelihood = settings.likelihood, settings.n_latent
    model, center = build_model(with_draws(trained), likelihood, settings.dtype)
    certain = model._replace(s=np.zeros_like(model.s), L=np.zeros_like(model.L))
    options = settings.search_options
    evaluation = Evaluation(settings.device, settings.n_jobs, options)
    rows = np.asarray(data.inputs), None, center
    how = trained["n_neighbors_predict_"], True, evaluation
    mean, variance = latent_posterior(model, *rows, *how)
    _, prior_part = latent_posterior(certain, *rows, *how)
    arrays = data.y, noise, mean, variance, prior_part
    return residuals_of_posterior(*(array.astype(np.float64) for array in arrays))
