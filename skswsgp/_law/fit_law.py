"""The law of observations from the residuals of training rows."""

from typing import NamedTuple

import numpy as np

from skswsgp._law import local_density, student, widths
from skswsgp._law.law import Observations, PredictiveLaw
from skswsgp._law.scale_waves import choose_waves, shares_of, waves_of
from skswsgp._law.shape import GAUSSIAN, fit_shape, make_shape
from skswsgp._posterior.left_out import LEAST_ERROR
from skswsgp._rows.column_scale import rank_columns
from skswsgp._rows.inducing import rows_at_points
from skswsgp._rows.statistics import MEAN_ROWS, is_gain, standing_rows

LEAST_ROWS_OF_LAW = 30  # rows that are needed to show widths, tails and near targets
FITTED_ROWS = 6000  # rows that teach near targets: 2,000 lost .02 nats of powerplant


class Neighborhoods(NamedTuple):
    """The points near a sample of training rows, and those near points."""

    own: np.ndarray  # (n,) the points to which all rows belong
    sample: np.ndarray  # (k,) numbers of the rows of the sample
    near: widths.NearPoints  # the points nearest to these, two more than `NEAR`
    nearness: widths.Nearness

    @property
    def own_of_sample(self):
        """The points (k,) to which rows of the sample belong."""
        return self.own[self.sample]


def find_neighborhoods(data, numbers, nearest, length_scales, group, sample):
    """Return the `Neighborhoods` of `TrainingRows`, or None for too few points.

    `numbers` (n,) are those of the rows for `nearest`, which are `NearestPoints`. Rows
    belong to the points `group` (n,), or to their nearest points.
    """
    Z, M = nearest.Z, len(nearest.Z)
    # a row may be the only one of a point, and loses it then
    if M < widths.REFERENCE + 2:
        return None
    lists = nearest.of(numbers[sample], min(widths.NEAR + 2, M - 1))
    K = min(widths.REFERENCE + 1, M)
    own = nearest.of(numbers, 1)[:, 0] if group is None else group
    there = np.arange(len(own)) if group is not None else rows_at_points(Z, data, own)
    at_points, first = np.unique(own[there], return_index=True)
    rows = numbers[there[first]]  # whose lists may be known
    of_points = nearest.of(rows, K) if len(at_points) == M else nearest.of_points(K)
    X = data.take(sample).inputs.astype(np.float64, copy=False)
    near = widths.measure_distances(X, Z, lists, length_scales)
    nearness = widths.measure_nearness(Z, of_points, length_scales)
    return Neighborhoods(own, sample, near, nearness)


def fit_law(residuals, around, columns):
    """Return the `PredictiveLaw` of training rows, and `Observations` at a sample.

    `around` are the `Neighborhoods` of the sample, or None where there are too few
    points, and then the residuals are those of the sample. `columns` (k, D) are the
    rows of the sample before they are mapped.
    """
    z, sizes, nearness = residuals.standardised, None, None  # (n, Q)
    if around is not None:
        nearness = around.nearness
        sizes = widths.measure_sizes(np.abs(z), around.own, len(nearness.spacing))
        near, own = left_out_points(sizes, around), around.own_of_sample
        fade = nearness.fade(near)
        logs = sizes.logarithms(near, own, np.abs(z[around.sample]))
        residuals = residuals.at(around.sample)
        z = residuals.standardised  # (k, Q)
    else:
        fade, logs = np.ones(len(z)), np.zeros(z.shape)
    Q, few = z.shape[1], standing_rows(len(z))[:FITTED_ROWS]
    shapes, coefficients = [GAUSSIAN] * Q, np.zeros((2, Q))
    ranks = rank_columns(columns, np.ones(len(columns)))
    waves, shares = [waves_of([], ranks)] * Q, shares_of(columns, ranks)
    for q in filter(lambda q: has_errors(z[:, q]), range(Q)):
        features = np.column_stack([np.ones(len(z)), logs[:, q]])
        found = choose_waves(z[few, q], features[few], ranks, shares[few])
        features = np.column_stack([features, found.features(columns)])
        c, nu = student.fit(z[:, q], features)
        gains = student.log_density(z[:, q], features @ c, nu)
        gains -= student.log_density(z[:, q], 0.0, np.inf)
        t, freedom = z[:, q], np.inf
        if is_likelier(gains, len(c) + 1):
            t, freedom = t * np.exp(-features @ c), nu
            coefficients[:, q] = c[:2]
            waves[q] = found._replace(coefficients=c[2:])
        shapes[q] = fit_shape(freedom, t)
    sizes = sizes if coefficients[1].any() else None
    process = np.sqrt(residuals.variance)
    seen = np.quantile(process, (0.05, 0.95), axis=0)
    law = PredictiveLaw(
        tuple(shapes), coefficients, nearness, np.ones(Q), None, seen, sizes,
        density=None, waves=tuple(waves),
    )  # fmt: skip
    # far away deviations are those of all errors
    far = np.sqrt(np.mean(z**2, axis=0)) / student.deviation(law.degrees_of_freedom)
    law = law._replace(far_scale=np.where(law.is_learned, far, 1.0))
    factor = law.factor(logs, columns, fade)
    law = law._replace(scale_range=np.quantile(factor, (0.05, 0.95), axis=0))
    rows = residuals.mean, process, factor, np.ones_like(z)
    return law, Observations(*rows, law.shapes)


def add_near_targets(law, observations, y, kinds, around, rng):
    """Return the law with a share of near targets in it, where this is better.

    `observations` are those at the rows y (k, Q) of the sample under the law so far,
    and `kinds` the targets and the residuals (M, Q) of the distinct rows.
    """
    Q, chosen = y.shape[1], rng.permutation(len(y))[:FITTED_ROWS]
    own = around.own_of_sample[chosen]
    points = around.near.at(chosen).without(own).nearest(widths.NEAR)
    distances = points.distances / points.unit[:, None]
    before, y = observations.at(chosen), y[chosen]
    density, errors = before.log_density(y), (y - before.mean) / before.process
    shape, is_residual = np.zeros((3, Q)), np.zeros(Q, dtype=bool)
    for q in filter(lambda q: has_errors(errors[:, q]), range(Q)):
        targets, residuals = (kind[points.lists, q] for kind in kinds)
        both = targets, before.mean[:, [q]] + residuals
        usual = np.exp(np.log(before.scale[:, q]).mean())
        rows = y[:, q], density[:, q], both, distances
        shape[:, q], is_residual[q] = local_density.learn_shape(*rows, usual)
    if not shape[0].any():
        return law
    targets = np.where(is_residual, kinds[1], kinds[0])
    near = local_density.LocalDensity(targets, is_residual, *shape)
    after = local_density.near_targets(near, points, np.ones_like(y), before.mean)
    better = are_better(before, before._replace(near=after), y)
    share = np.where(better, near.share, 0.0)
    return law._replace(density=near._replace(share=share)) if share.any() else law


def are_better(before, after, y):
    """Return for which outputs (Q,) near targets make a better law of rows y (n, Q).

    Where values repeat, the density alone would be a poor judge, for it grows without
    bound at such values. So the ranked probability score must be better too, than that
    of the law before its errors had a shape.
    """
    likelier = after.log_density(y) - before.log_density(y)
    outputs = [q for q in range(y.shape[1]) if after.mixes(q)]
    outputs = [q for q in outputs if is_likelier(likelier[:, q], 3)]
    better, few = np.zeros(y.shape[1], dtype=bool), slice(0, MEAN_ROWS)
    if outputs:
        plain = tuple(make_shape(one.freedom, 0.0 * one.tilt) for one in before.shapes)
        plain = before._replace(shapes=plain).at(few)
        closer = plain.crps(y[few]) - after.at(few).crps(y[few])
        better[outputs] = [is_gain(closer[:, q]) for q in outputs]
    return better


def left_out_points(sizes, around):
    """Return the points near each row of the sample without it, one more than `NEAR`.

    The only row of a point takes it away, for it would not be an inducing point
    without the row.
    """
    own = around.own_of_sample
    gone = sizes.counts[own] == 1.0
    return around.near.without(np.where(gone, own, -1)).nearest(widths.NEAR + 1)


def has_errors(z):
    """Return whether standardised errors z (n,) are more than rounding.

    They are not where y is constant, whose noise is the least that a fit allows.
    """
    return bool(np.abs(z).max() > LEAST_ERROR)


def is_likelier(gains, n_parameters):
    """Return whether gains (n,) of log density, in nats, are more than chance.

    No row counts by more than log n, for n rows tell of probabilities down to 1 / n. An
    outlier that one law finds impossible would hide all gains in the standard error.
    """
    enough = len(gains) >= LEAST_ROWS_OF_LAW
    return enough and is_gain(np.minimum(gains, np.log(len(gains))), n_parameters)
