"""From a trained model to its rows as predicted without them, and to the law."""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.threads import one_blas_thread
from skswsgp._covariance.compile import length_scales
from skswsgp._kernel_search.kernel_learning import count_few_rows
from skswsgp._law.fit_law import (
    add_near_targets,
    find_neighborhoods,
    fit_law,
    normal_scores,
)
from skswsgp._posterior.kernel_uncertainty import left_out_squares
from skswsgp._posterior.left_out import leave_one_out, merge_rows
from skswsgp._posterior.prediction import nearest_points
from skswsgp._rows.inducing import point_of_each_row
from skswsgp._rows.statistics import SAMPLE_ROWS, feature_spread
from skswsgp._solvers.model import build_model


class LeftOutRows(NamedTuple):
    """Rows that train as predicted by the model without them, standardised, (n, Q)."""

    mean: np.ndarray
    variance: np.ndarray  # of an observation of the weight of the row
    score: np.ndarray  # y as a standard normal value, under the law without the row


def leave_out_rows(solver, data, trained, settings, rng):
    """Return the `PredictiveLaw` and the `LeftOutRows` of a fit, or None for either.

    `trained` are the fitted attributes. There is no law for one row, and for the
    parameter `predictive` "gaussian". No rows are returned for more rows of a solver
    that takes steps than teach the law. Copies of a row count as one, as they do for
    the noise.
    """
    part = data.n_rows > SAMPLE_ROWS and not solver.finds_optimum
    if part:
        data = data.take(np.sort(rng.permutation(data.n_rows)[:SAMPLE_ROWS]))
    merged, place = merge_rows(data)
    X, Z = merged.X, trained["inducing_points_"]
    complete = solver.finds_optimum and data.n_rows == data.n_all  # no sample
    group = point_of_each_row(Z, X) if complete else None
    lone = len(X) < 2 or (group is not None and len(Z) < 2)
    residuals, points = leave_one_out(merged, group, trained, settings)
    law, around = None, None
    if settings.predictive != "gaussian" and not lone:
        around = neighborhoods_of(X, group, trained, settings, rng)
        law = law_of_residuals(
            residuals, points, around, merged, trained, settings, rng
        )
    if part:
        return law, None
    score = normal_scores(law, residuals.standardised, around)
    noise = np.reshape(trained["noise_variance_"], (1, -1))
    own = noise * (1.0 / data.weight - 1.0 / merged.weight[place])[:, None]
    variance = residuals.variance[place] + own  # of a copy by itself
    return law, LeftOutRows(residuals.mean[place], variance, score[place])


def neighborhoods_of(X, group, trained, settings, rng):
    """Return the `Neighborhoods` of merged rows, which belong to points or None."""
    Z, likelihood = trained["inducing_points_"], settings.likelihood
    model, center = build_model(
        trained, (likelihood, settings.n_latent), settings.dtype
    )

    def nearest(rows, k):
        return nearest_points(model, rows, center, k, settings.n_jobs)

    scales = length_scales(trained["kernel_"], Z.shape[1], otherwise=np.inf)
    if np.isinf(scales).all():  # no part of the kernel is a function of distance
        scales = feature_spread(Z, rng)
    return find_neighborhoods(X, Z, nearest, scales, group)


def law_of_residuals(residuals, points, around, data, trained, settings, rng):
    """Return the `PredictiveLaw` of merged rows, whose residuals are known.

    `points` are those of `leave_one_out`.
    """
    y = data.y
    law, observations = fit_law(residuals, around)
    widening = widening_of_few(law, data, trained, settings, rng)
    law = law.widened(widening)
    if points is None or around is None:
        return law
    observations = observations._replace(factor=observations.factor * widening)
    errors = np.empty_like(points.targets)
    errors[points.group] = y - residuals.mean
    kinds = points.targets, errors
    return add_near_targets(law, observations, y, kinds, around, rng)


def widening_of_few(law, data, trained, settings, rng):
    """Return the factors (Q,) of deviations for a kernel learned from few merged rows.

    A law that was learned from errors grows as these do when rows are taken out of the
    kernel's parameters. Otherwise deviations grow to these errors, or stay as they are.
    """
    X, y, Q = data.X, data.y, data.y.shape[1]
    few = len(X) <= count_few_rows(X.shape[1], Q, settings.tuning.part_work)
    if not settings.learn_kernel or not few:
        return np.ones(Q)  # the kernel was not learned, or hardly knows a row
    noise = np.broadcast_to(trained["noise_variance_"], Q).astype(np.float64)
    ratios = np.broadcast_to(1.0 / data.weight[:, None], y.shape)
    with one_blas_thread():
        squares = left_out_squares(
            trained["kernel_"],
            noise,
            X,
            y,
            ratios,
            rng,
            noise_is_known=settings.known_noise is not None,
            flat=settings.kernel is None,
        )
    if squares is None:
        return np.ones(Q)
    before, after = np.maximum(squares, np.finfo(float).tiny)  # y may be constant
    return np.sqrt(after / np.where(law.is_learned, before, np.minimum(after, 1.0)))
