"""From a trained model to the law of observations."""

import numpy as np

from skswsgp._covariance.compile import length_scales
from skswsgp._initialization.inducing import point_of_each_row
from skswsgp._initialization.statistics import feature_spread
from skswsgp._predictive.fit_law import add_near_targets, find_neighborhoods, fit_law
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
    if lone or settings.neighbor_metric == "random":
        return None  # kriging from near rows does not show the errors of random ones
    likelihood = settings.likelihood, settings.n_latent
    model, center = build_model(trained, likelihood, settings.dtype)

    def nearest(rows, k):
        return nearest_points(model, rows, center, k, settings.n_jobs)

    around = find_neighborhoods(X, Z, nearest, group)
    residuals, points = leave_one_out(data, group, trained, settings)
    if points is None:
        return fit_law(residuals, around, earlier, stream=not settings.decay)[0]
    law, observations = fit_law(residuals, around)
    if around is None:
        return law
    scales = length_scales(trained["kernel_"], Z.shape[1], feature_spread(Z, rng))
    errors = np.empty_like(points.targets)
    errors[group] = y - residuals.mean
    places = (X, y), (Z, points.targets, errors, scales)
    return add_near_targets(law, observations, *places, around, rng)
