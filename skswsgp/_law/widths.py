"""The inducing points nearest to rows, and how large residuals are around a row.

What near points tell of a row counts less where they lie further away from it than
from each other. With d the distance of its tenth nearest point, in length-scales, and
d_near the largest such distance of its near points from the others, each times its
weight, it fades as (1.5 d_near / d)^2 where d > 1.5 d_near.

How large residuals are is an average of |z| over near training rows, each of which
belongs to its nearest inducing point. The average at a new row is taken over the rows
of its nearest points, with weights 1 - (d_k / d)^2, where d_k are the distances of
these points and d ends the neighbourhood. If each point had one row, d would be the
distance of the next point, and the weights would have some sum. Points with several
rows reach this sum of weights nearer to the row, and d is the distance where they do:
where rows share their places, few places are enough. The average is relative to that
over all rows, which counts as a few rows more. Leaving a row out leaves the average
over all rows as it is.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.threads import row_blocks
from skswsgp._neighbors.lists import mask_of_others
from skswsgp._rows.statistics import ROUNDING

REFERENCE = 10  # the neighbour whose distance is that of a neighbourhood
# Times this distance, which varies by some half where points are at random
DISTANCE_SLACK = 1.5
LEAST_NEAR_WEIGHT = 1e-3  # of the nearest, where all points are equally far away
NEAR = 40  # nearest inducing points of a row that are looked at
PRIOR_ROWS = 3.0  # rows of average size that are added to each average


class NearPoints(NamedTuple):
    """The K points nearest to n rows."""

    lists: np.ndarray  # (n, K) the nearest first
    distances: np.ndarray  # (n, K) in length-scales

    @property
    def unit(self):
        """The distance (n,) of the tenth point."""
        k = min(REFERENCE, self.distances.shape[1]) - 1
        return np.maximum(np.sort(self.distances, axis=1)[:, k], ROUNDING)

    def nearest(self, k):
        """Return the nearest k points."""
        return NearPoints(self.lists[:, :k], self.distances[:, :k])

    def at(self, rows):
        """Return the points near some of the rows."""
        return NearPoints(self.lists[rows], self.distances[rows])

    def without(self, points):
        """Return the K - 1 other points, where each row has one (n,) to leave out."""
        others = mask_of_others(self.lists, points)
        return NearPoints(*(a[others].reshape(len(a), -1) for a in self))


class Nearness(NamedTuple):
    """What near means around M points."""

    length_scales: np.ndarray  # (D,) of the mapped columns
    spacing: np.ndarray  # (M,) from a point to the tenth other one, in length-scales
    points: np.ndarray | None = None  # (M, D) if these are no inducing points

    def fade(self, near):
        """Return the factors (n,) of what `NearPoints` tell of rows."""
        near = near.nearest(REFERENCE + 1)
        weights = weights_within(near.distances)
        usual = np.max(weights * self.spacing[near.lists[:, :-1]], axis=1)
        return np.minimum(1.0, (DISTANCE_SLACK * usual / near.unit) ** 2)


def measure_distances(X, Z, lists, length_scales):
    """Return `NearPoints` for rows X (n, D) and the lists (n, K) of points of Z."""
    distances = np.empty(lists.shape)
    most = np.finfo(float).max ** 0.25  # length-scales, whose squares do not overflow
    for rows in row_blocks(len(X)):
        for k, points in enumerate(lists[rows].T):
            steps = (X[rows] - Z[points]) / length_scales
            np.clip(steps, -most, most, out=steps)
            distances[rows, k] = np.sqrt(np.einsum("nd,nd->n", steps, steps))
    return NearPoints(lists, distances)


def measure_nearness(Z, lists, length_scales):
    """Return the `Nearness` of points Z.

    `lists` (M, K) are the nearest points of each, which is its own nearest.
    """
    near = measure_distances(Z, Z, lists[:, : REFERENCE + 1], length_scales)
    return Nearness(length_scales, np.maximum(near.distances.max(axis=1), ROUNDING))


def weights_within(distances, counts=None):
    """Return weights (n, k), at most 1, of the first k of points at distances.

    `distances` are (n, k + 1), and the largest in each row is where weights end. So
    averages hardly jump where another point comes near. Where points stand for `counts`
    (n, k) of rows, they end nearer, see `edge_of_rows`.
    """
    edge = np.maximum(distances.max(axis=1, keepdims=True), ROUNDING)
    squares = (distances[:, :-1] / edge) ** 2
    if counts is not None:
        squares = squares / edge_of_rows(squares, counts)
    weights = np.maximum(1.0 + LEAST_NEAR_WEIGHT - squares, 0.0)
    return weights / weights.max(axis=1, keepdims=True)


def edge_of_rows(squares, counts):
    """Return e (n, 1), at most 1, with sum_k counts_k (1 - s_k / e)_+ = sum_k 1 - s_k.

    These are sums of weights at squared distances s, relative to that where weights
    would end if each point had one row; e is where they end for `counts` of rows. It is
    at least nine times the least s, three times the least distance: otherwise the
    weights between two points with many rows would step from one of them to the other.

    `squares` are s (n, k) <= 1. The left side grows with e, and between two of the s it
    is C - B / e with the sums C of counts and B of counts times s so far.
    """
    order = np.argsort(squares, axis=1, kind="stable")
    s, c = (np.take_along_axis(a, order, axis=1) for a in (squares, counts))
    mass = np.sum(1.0 - s, axis=1, keepdims=True)
    C, B = np.cumsum(c, axis=1), np.cumsum(c * s, axis=1)
    ends = np.maximum(np.hstack([s[:, 1:], np.ones_like(mass)]), ROUNDING)
    enough = C - B / ends >= mass
    enough[:, -1] = True  # at the latest
    j = np.argmax(enough, axis=1)[:, None]
    C, B, begin, end = (np.take_along_axis(a, j, axis=1) for a in (C, B, s, ends))
    edge = np.clip(B / np.maximum(C - mass, ROUNDING), begin, end)
    return np.maximum(edge, np.clip(9.0 * s[:, :1], ROUNDING, 1.0))


class ResidualSizes(NamedTuple):
    """Sums of |z| of rows at inducing points, for Q outputs."""

    sums: np.ndarray  # (M, Q) over the rows that belong to a point
    counts: np.ndarray  # (M,)

    @property
    def mean(self):
        """The average over all rows (Q,)."""
        total = self.sums.sum(axis=0) / max(self.counts.sum(), 1.0)
        return np.maximum(total, np.finfo(float).tiny)

    def logarithms(self, near, own=None, sizes=None):
        """Return the logarithms (n, Q) of the average at rows.

        `near` are their nearest points, `NEAR` of them and one that ends the list. Of
        training rows `own` (n,) are the points to which they belong, and `sizes` (n, Q)
        their |z|: each is left out then. A row that was in no sum is taken out all the
        same, and no sum falls below zero.
        """
        mean, out = self.mean, np.empty((len(near.lists), self.sums.shape[1]))
        for rows in row_blocks(len(out)):
            lists = near.lists[rows, :-1]
            sums, counts = self.sums[lists], self.counts[lists]  # (n, NEAR, Q), ...
            if own is not None:
                here = lists == own[rows, None]
                sums = np.maximum(sums - here[:, :, None] * sizes[rows, None], 0.0)
                counts = np.maximum(counts - here, 0.0)
            weights = weights_within(near.distances[rows], counts)
            total = np.einsum("nk,nkq->nq", weights, sums) / mean + PRIOR_ROWS
            count = np.sum(weights * counts, axis=1)[:, None] + PRIOR_ROWS
            out[rows] = np.log(total / count)
        return out


def measure_sizes(sizes, own, M):
    """Return the `ResidualSizes` of rows whose |z| are `sizes` (n, Q).

    `own` (n,) are the points, out of M, to which the rows belong.
    """
    counts = np.bincount(own, minlength=M).astype(np.float64)
    sums = np.stack([np.bincount(own, z, M) for z in sizes.T], axis=1)
    return ResidualSizes(sums, counts)
