"""The law of observations from the residuals of training rows."""

from typing import NamedTuple

import numpy as np

from skswsgp._law import student
from skswsgp._law.law import Observations, PredictiveLaw, faded, scales
from skswsgp._law.local_density import (
    LocalDensity,
    NearTargets,
    fit_local_density,
)
from skswsgp._law.near_points import (
    NEIGHBORS,
    Nearness,
    NearPoints,
    measure_distances,
    measure_nearness,
)
from skswsgp._law.residual_sizes import NEAR, WIDE, measure_sizes
from skswsgp._posterior.residuals import LEAST_ERROR
from skswsgp._rows.data import memory_budget

LEAST_ROWS = 30  # rows that a law needs: fewer show neither widths nor tails
ERRORS = 2.0  # standard errors by which the mean gain of a richer law must exceed zero
FITTED_ROWS = 6000  # rows that teach near targets: 2,000 lost .02 nats of powerplant
SCORED_ROWS = 2000  # rows whose distributions are integrated and inverted
LEAST_POINTS = 12  # inducing points from which scales may vary


class Neighborhoods(NamedTuple):
    """The points near training rows, and those near points."""

    own: np.ndarray  # (n,) the points to which the rows belong
    near: NearPoints  # the K + 1 points nearest to each row
    wide: np.ndarray  # (M, WIDE) nearest points of each point
    nearness: Nearness


def find_neighborhoods(X, Z, nearest, length_scales, group=None):
    """Return the `Neighborhoods` of rows X and points Z, or None for too few points.

    `nearest(X, k)` returns the k nearest points of rows, the nearest first. Rows belong
    to the points `group` (n,), or to their nearest points.
    """
    M = len(Z)
    if M < LEAST_POINTS:
        return None
    most = min(M, max(NEAR, min(WIDE, memory_budget() // (4 * M))))
    lists = nearest(X, min(NEIGHBORS + 1, M - 1))
    own = lists[:, 0] if group is None else group
    near, wide = measure_distances(X, Z, lists, length_scales), nearest(Z, most)
    return Neighborhoods(own, near, wide, measure_nearness(Z, wide, length_scales))


def fit_law(residuals, around, earlier=None, stream=False):
    """Return the `PredictiveLaw` of training rows, and `Observations` at them.

    `around` are `Neighborhoods` or None. `earlier` is the law of rows before these, or
    None, and stays where rows are few. Of a `stream` sizes are kept for its next rows.
    """
    z = residuals.standardised  # (n, Q)
    few = earlier is not None and len(z) < LEAST_ROWS
    sizes, nearness = None, None
    fade, logs = np.ones(len(z)), np.zeros((len(z), 2, z.shape[1]))
    if around is not None:
        before = None if earlier is None else earlier.sizes
        sizes = measure_sizes(np.abs(z), around.own, around.wide, before)
        near = left_out_points(sizes, around)
        nearness = around.nearness
        if few and earlier.nearness is not None:
            nearness = earlier.nearness
        fade = nearness.fade(near)
        logs = sizes.without_own(near, around.own, np.abs(z), around.wide)
    freedom, coefficients = np.full(z.shape[1], np.inf), np.zeros((3, z.shape[1]))
    if few:
        freedom, coefficients = earlier.degrees_of_freedom, earlier.coefficients
    for q in () if few else range(z.shape[1]):
        if not has_errors(z[:, q]):
            continue
        features = np.column_stack([np.ones(len(z)), logs[:, :, q]])
        c, nu = student.fit(z[:, q], features)
        gains = student.log_density(z[:, q], features @ c, nu)
        gains -= student.log_density(z[:, q], 0.0, np.inf)
        if is_better(gains, len(c) + 1):
            freedom[q], coefficients[:, q] = nu, c
    factor = scales(coefficients, logs)
    far = earlier.far_scale if few else np.sqrt(np.mean(factor**2, axis=0))
    factor = faded(factor, fade, far)
    spread = np.quantile(factor, (0.05, 0.95), axis=0)
    if not (stream or coefficients[1:].any()):
        sizes = None
    process = np.sqrt(residuals.variance)
    seen = earlier.process_range if few else np.quantile(process, (0.05, 0.95), axis=0)
    law = PredictiveLaw(
        freedom, coefficients, nearness, far, spread, seen, sizes, density=None
    )
    return law, Observations(residuals.mean, process, factor, freedom)


def normal_scores(law, z, around):
    """Return z (n, Q) of rows left out as standard normal values of their probability.

    Scales and tails are those of the law, without its near targets.
    """
    if law is None:
        return z
    factor = np.exp(law.coefficients[0])
    if law.coefficients[1:].any():
        near = left_out_points(law.sizes, around)
        logs = law.sizes.without_own(near, around.own, np.abs(z), around.wide)
        fade = law.nearness.fade(near)
        factor = faded(scales(law.coefficients, logs), fade, law.far_scale)
    unit = np.ones_like(z)
    left_out = Observations(0.0 * z, unit, unit * factor, law.degrees_of_freedom)
    return left_out.normal_scores(z)


def add_near_targets(law, observations, y, kinds, around, rng):
    """Return the law with a share of near targets in it, where this is better.

    `observations` are those at the rows y (n, Q) under the law so far, and `kinds` the
    targets and the residuals (M, Q) of the distinct rows. Where values repeat, the
    density alone would be a poor judge, for it grows without bound at such values. So
    the ranked probability score must be better too, and the score of intervals no
    worse than by chance.
    """
    Q, chosen = y.shape[1], rng.permutation(len(y))[:FITTED_ROWS]
    real = [has_errors(z) for z in observations.errors(y).T]
    points = around.near.at(chosen).without(around.own[chosen])
    distances = points.distances / points.unit[:, None]
    before, y = observations.at(chosen), y[chosen]
    density = before.log_density(y)
    shape, is_residual = np.ones((3, Q)), np.zeros(Q, dtype=bool)
    near = np.empty((*distances.shape, Q))
    for q in range(Q):
        usual = np.exp(np.log(before.scale[:, q]).mean())
        fits = []
        for kind, start in zip(kinds, (0.0, before.mean[:, q, None]), strict=True):
            values = y[:, q], density[:, q], start + kind[points.lists, q]
            fits.append((*fit_local_density(*values, distances, usual), values[2]))
        is_residual[q] = fits[1][1] < fits[0][1]
        shape[:, q], _, near[:, :, q] = fits[int(is_residual[q])]
    mixture = NearTargets(near, distances, np.ones_like(y), *shape)
    after = before._replace(near=mixture)
    likelier = after.log_density(y) - density
    better = np.array([real[q] and is_better(likelier[:, q], 3) for q in range(Q)])
    if not better.any():
        return law
    few = slice(0, SCORED_ROWS)
    before, after, y = before.at(few), after.at(few), y[few]
    closer = before.crps(y) - after.crps(y)
    narrower = before.interval_score(y) - after.interval_score(y)
    better &= [is_better(closer[:, q], 0) for q in range(Q)]
    better &= [not is_better(-narrower[:, q], 0) for q in range(Q)]
    shape[0, ~better] = 0.0
    if not better.any():
        return law
    targets = np.where(is_residual, kinds[1], kinds[0])
    return law._replace(density=LocalDensity(targets, is_residual, *shape))


def left_out_points(sizes, around):
    """Return the points near each row as if it had been left out, one more than `NEAR`.

    The only row of a point takes it away, for it would not be an inducing point
    without the row.
    """
    gone = sizes.counts[around.own] == 1.0
    return around.near.without(np.where(gone, around.own, -1)).nearest(NEAR + 1)


def has_errors(z):
    """Return whether standardised errors z (n,) are more than rounding.

    They are not where y is constant, whose noise is the least that a fit allows.
    """
    return bool(np.abs(z).max() > LEAST_ERROR)


def is_better(gains, n_parameters):
    """Return whether the gains (n,) of single rows are more than chance.

    So many parameters that were fitted to the rows gain about one over the number of
    rows each where there is nothing to learn.
    """
    n = len(gains)
    error = gains.std() / np.sqrt(n)
    return n >= LEAST_ROWS and bool(gains.mean() > n_parameters / n + ERRORS * error)
