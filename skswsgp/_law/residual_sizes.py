"""How large residuals are around a row: averages of |z| over near training rows.

Each training row belongs to its nearest inducing point. The average at a new row is
taken over the rows of the nearest few points, and a wider one over the rows of the
nearest points of these. Both are relative to the average over all rows, which counts
as a few rows more. Leaving a row out leaves the average over all rows as it is.

The few points have weights 1 - (d_k / d)^2, with d_k the distances of the nearest k
points and d that of the next.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.threads import row_blocks
from skswsgp._law.near_points import weights_within

NEAR = 20  # nearest inducing points of a row that have weights above zero
WIDE = 100  # nearest inducing points of an inducing point
PRIOR_ROWS = 3.0  # rows of average size that are added to each average
ROWS_IN_BLOCK = 1000  # rows whose lists of lists, two million numbers, are read at once


class ResidualSizes(NamedTuple):
    """Sums of |z| of rows at inducing points, for Q outputs."""

    sums: np.ndarray  # (M, Q) over the rows that belong to a point
    counts: np.ndarray  # (M,)
    wide_sums: np.ndarray  # (M, Q) over the rows of the nearest WIDE points
    wide_counts: np.ndarray  # (M,)

    @property
    def mean(self):
        """The average over all rows (Q,)."""
        total = self.sums.sum(axis=0) / max(self.counts.sum(), 1.0)
        return np.maximum(total, np.finfo(float).tiny)

    def logarithms(self, near):
        """Return the logarithms (n, 2, Q) of both averages at new rows.

        `near` are their nearest points, `NEAR` of them and one that ends the list.
        """
        n = len(near.lists)
        nothing = np.zeros((n, 1, self.sums.shape[1])), np.zeros((n, 1))
        return self._logarithms(near, self.mean, nothing, nothing)

    def without_own(self, near, own, sizes, wide):
        """Return `logarithms` at training rows as if each had been left out.

        `own` (n,) are the points to which the rows belong, and `sizes` (n, Q) their
        |z|. `wide` (M, WIDE) are the nearest points of each point. A row that was in no
        sum is taken out all the same, and no sum falls below zero.
        """
        parts, mean = [], self.mean
        for rows in row_blocks(len(own), ROWS_IN_BLOCK):
            lists = near.lists[rows, :-1]
            here = lists == own[rows, None]
            inside = (wide[lists] == own[rows, None, None]).any(axis=2)
            size = sizes[rows, None, :]
            taken = [(each[:, :, None] * size, each) for each in (here, inside)]
            parts.append(self._logarithms(near.at(rows), mean, *taken))
        return np.concatenate(parts)

    def _logarithms(self, near, mean, taken, wide_taken):
        lists, weights = near.lists[:, :-1], weights_within(near.distances)

        def rest(kept, out):
            return np.maximum(kept[lists] - out, 0.0)

        sums = np.einsum("nk,nkq->nq", weights, rest(self.sums, taken[0])) / mean
        counts = np.sum(weights * rest(self.counts, taken[1]), axis=1)[:, None]
        wide_sums = rest(self.wide_sums, wide_taken[0]) / mean
        wide_counts = rest(self.wide_counts, wide_taken[1])[:, :, None]
        narrow = (sums + PRIOR_ROWS) / (counts + PRIOR_ROWS)
        wide = (wide_sums + PRIOR_ROWS) / (wide_counts + PRIOR_ROWS)
        weights /= weights.sum(axis=1, keepdims=True)
        wide = np.einsum("nk,nkq->nq", weights, wide)
        return np.log(np.stack([narrow, wide], axis=1))


def measure_sizes(sizes, own, lists, earlier=None):
    """Return the `ResidualSizes` of rows whose |z| are `sizes` (n, Q).

    `own` (n,) are the points to which the rows belong, and `lists` (M, WIDE) the
    nearest points of each of M points. Sums of `earlier` rows are added.
    """
    M = len(lists)
    counts = np.bincount(own, minlength=M).astype(np.float64)
    sums = np.stack([np.bincount(own, z, M) for z in sizes.T], axis=1)
    if earlier is not None:
        counts, sums = counts + earlier.counts, sums + earlier.sums
    wide = np.empty_like(sums)
    for rows in row_blocks(M, ROWS_IN_BLOCK):
        wide[rows] = sums[lists[rows]].sum(axis=1)
    return ResidualSizes(sums, counts, wide, counts[lists].sum(axis=1))
