"""The law of observations from the residuals of training rows."""

from typing import NamedTuple

import numpy as np

from skswsgp._neighbors.lists import without_own
from skswsgp._predictive import student
from skswsgp._predictive.law import Observations, PredictiveLaw, log_scales
from skswsgp._predictive.local_density import (
    MOST_ROWS,
    NEIGHBORS,
    LocalDensity,
    NearTargets,
    distances_to,
    fit_local_density,
)
from skswsgp._predictive.residual_sizes import NEAR, WIDE, LeftOut, measure_sizes
from skswsgp._solvers.data import memory_budget

ERRORS = 2.0  # standard errors of its gain by which a richer law must be likelier
INTERVAL_ROWS = 2000  # rows whose intervals are scored, which bisections find
LEAST_POINTS = NEAR + 2  # inducing points from which scales may vary


class Neighborhoods(NamedTuple):
    """The points near training rows, and those near points."""

    lists: np.ndarray  # (n, K + 1) nearest points of each row, the nearest first
    wide: np.ndarray  # (M, WIDE) nearest points of each point

    @property
    def own(self):
        """The points (n,) to which the rows belong."""
        return self.lists[:, 0]


def find_neighborhoods(X, Z, nearest):
    """Return the `Neighborhoods` of rows X and points Z, or None for too few points.

    `nearest(X, k)` returns the k nearest points of rows, the nearest first.
    """
    M = len(Z)
    if M < LEAST_POINTS:
        return None
    most = max(NEAR, min(WIDE, M, memory_budget() // (4 * M)))
    return Neighborhoods(nearest(X, min(NEIGHBORS + 1, M - 1)), nearest(Z, most))


def fit_law(residuals, around, together=False, earlier=None):
    """Return the `PredictiveLaw` of training rows, and `Observations` at them.

    `around` are `Neighborhoods` or None. Rows of a point are left out `together`, as
    where points are the distinct rows, or each by itself. `earlier` is the law of rows
    before these, or None.
    """
    z = residuals.standardised  # (n, Q)
    sizes, logs = None, np.zeros((len(z), 2, z.shape[1]))
    if around is not None:
        before = None if earlier is None else earlier.sizes
        sizes = measure_sizes(np.abs(z), around.own, around.wide, before)
        left_out = LeftOut(around.own, np.abs(z), np.ones(len(z)))
        if together:
            sums, counts = sizes.sums[around.own], sizes.counts[around.own]
            left_out = LeftOut(around.own, sums, counts)
        near = around_each(around, left_out.counts == sizes.counts[around.own])
        logs = sizes.without(near, left_out, around.wide)
    freedom, coefficients = np.full(z.shape[1], np.inf), np.zeros((3, z.shape[1]))
    for q in range(z.shape[1]):
        features = np.column_stack([np.ones(len(z)), logs[:, :, q]])
        c, nu = student.fit(z[:, q], features)
        gains = student.log_density(z[:, q], features @ c, nu)
        if is_better(gains - student.log_density(z[:, q], 0.0, np.inf)):
            freedom[q], coefficients[:, q] = nu, c
    scales = np.exp(log_scales(coefficients, logs))
    spread = np.quantile(scales, (0.05, 0.95), axis=0)
    if together and not coefficients[1:].any():
        sizes = None  # a stream needs them for its next rows
    law = PredictiveLaw(freedom, coefficients, spread, sizes, None)
    process = np.sqrt(residuals.variance)
    return law, Observations(residuals.mean, process, scales, freedom)


def add_near_targets(law, observations, rows, points, around, rng):
    """Return the law with a share of near targets in it, where this is better.

    `observations` are those at the rows under the law so far. `rows` are (X (n, D), y
    (n, Q)), and `points` are (Z (M, D), targets (M, Q), residuals (M, Q), length-scales
    (D,)) of the distinct rows. Where values repeat, the density alone would be a poor
    judge, for it grows without bound at such values. So the ranked probability score
    must be better too, and the score of intervals no worse.
    """
    (X, y), (Z, *kinds, length_scales) = rows, points
    Q, chosen = y.shape[1], rng.permutation(len(y))[:MOST_ROWS]
    lists = without_own(around.lists, around.own)[chosen]
    distances = distances_to(X[chosen], Z, lists, length_scales)
    before, y = observations.at(chosen), y[chosen]
    density, shape, is_residual = before.log_density(y), np.ones((3, Q)), np.zeros(Q)
    near = np.empty((*lists.shape, Q))
    for q in range(Q):
        usual = np.exp(np.log(before.scale[:, q]).mean())
        fits = []
        for kind, start in zip(kinds, (0.0, before.mean[:, q, None]), strict=True):
            values = y[:, q], density[:, q], start + kind[lists, q]
            fits.append((*fit_local_density(*values, distances, usual), values[2]))
        is_residual[q] = fits[1][1] < fits[0][1]
        shape[:, q], _, near[:, :, q] = fits[int(is_residual[q])]
    after = before._replace(near=NearTargets(near, distances, *shape))
    likelier, closer = after.log_density(y) - density, before.crps(y) - after.crps(y)
    few = slice(0, INTERVAL_ROWS)
    narrower = before.at(few).interval_score(y[few])
    narrower -= after.at(few).interval_score(y[few])
    for q in range(Q):
        better = is_better(likelier[:, q]) and is_better(closer[:, q])
        if not (better and narrower[:, q].mean() >= 0.0):
            shape[0, q] = 0.0
    if not shape[0].any():
        return law
    targets = np.where(is_residual, kinds[1], kinds[0])
    found = LocalDensity(targets, is_residual > 0.0, length_scales, *shape)
    return law._replace(density=found)


def around_each(around, gone):
    """Return the nearest points (n, NEAR) of each row, as if it had been left out.

    `gone` (n,) says whether no row would belong to its point then, which would not be
    there.
    """
    return without_own(around.lists, np.where(gone, around.own, -1))[:, :NEAR]


def is_better(gains):
    """Return whether the gains (n,) of single rows are more than chance."""
    error = gains.std() / np.sqrt(len(gains))
    return bool(gains.mean() > ERRORS * error)
