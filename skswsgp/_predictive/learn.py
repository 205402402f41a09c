"""From a trained model to the law of observations."""

import numpy as np

from skswsgp._compiled.threads import one_blas_thread
from skswsgp._covariance.compile import length_scales
from skswsgp._initialization.inducing import point_of_each_row
from skswsgp._initialization.kernel_learning import count_few_rows
from skswsgp._initialization.statistics import feature_spread
from skswsgp._predictive.fit_law import add_near_targets, find_neighborhoods, fit_law
from skswsgp._predictive.kernel_uncertainty import left_out_squares
from skswsgp._predictive.leave_one_out import leave_one_out, merge_rows
from skswsgp._predictive.prediction import nearest_points
from skswsgp._solvers.model import build_model

# Rows that the law of a solver that takes steps is learned from. Such a solver may read
# X from a file, which would not fit in memory.
MOST_ROWS = 20_000


def learn_law(solver, data, trained, settings, earlier, rng):
    """Return the `PredictiveLaw` of the rows that train, or None for one row.

    `trained` are the fitted attributes. In a stream, `earlier` is the law of the chunks
    before, or None; its sizes of residuals are added to those of this chunk. Copies of
    a row count as one, as they do for the noise.
    """
    if data.n_rows > MOST_ROWS and not solver.finds_optimum:
        data = data.take(np.sort(rng.permutation(data.n_rows)[:MOST_ROWS]))
    data = merge_rows(data)
    X, y, Z = data.X, data.y, trained["inducing_points_"]
    group = point_of_each_row(Z, X) if solver.exact_means else None
    lone = len(X) < 2 or (group is not None and len(Z) < 2)
    if lone:
        return None
    likelihood = settings.likelihood, settings.n_latent
    model, center = build_model(trained, likelihood, settings.dtype)

    def nearest(rows, k):
        return nearest_points(model, rows, center, k, settings.n_jobs)

    scales = length_scales(trained["kernel_"], Z.shape[1], otherwise=np.inf)
    if np.isinf(scales).all():  # no part of the kernel is a function of distance
        scales = feature_spread(Z, rng)
    around = find_neighborhoods(X, Z, nearest, scales, group)
    residuals, points = leave_one_out(data, group, trained, settings)
    stream = not settings.decay
    law, observations = fit_law(residuals, around, earlier, stream=stream)
    if stream:
        return law
    widening = widening_of_few(law, X, y, data.weight, trained, settings)
    law = law.widened(widening)
    if points is None:
        return law
    observations = observations._replace(factor=observations.factor * widening)
    if around is None:
        return law
    errors = np.empty_like(points.targets)
    errors[group] = y - residuals.mean
    kinds = points.targets, errors
    return add_near_targets(law, observations, y, kinds, around, rng)


def widening_of_few(law, X, y, weight, trained, settings):
    """Return the factors (Q,) of deviations for a kernel learned from few rows.

    A law that was learned from errors grows as these do when rows are taken out of the
    kernel's parameters. Otherwise deviations grow to these errors, or stay as they are.
    """
    Q = y.shape[1]
    few = len(X) <= count_few_rows(X.shape[1], Q, settings.tuning.part_work)
    if settings.init != "local" or not few:
        return np.ones(Q)  # the kernel was not learned, or hardly knows a row
    noise = np.broadcast_to(trained["noise_variance_"], Q).astype(np.float64)
    ratios = np.broadcast_to(1.0 / weight[:, None], y.shape)
    with one_blas_thread():
        known = settings.known_noise is not None
        squares = left_out_squares(trained["kernel_"], noise, X, y, ratios, known)
    if squares is None:
        return np.ones(Q)
    before, after = np.maximum(squares, np.finfo(float).tiny)  # y may be constant
    return np.sqrt(after / np.where(law.is_learned, before, np.minimum(after, 1.0)))
