"""How large residuals are around a row: an average of |z| over near training rows.

Each training row belongs to its nearest inducing point. The average at a new row is
taken over the rows of its nearest points, with weights 1 - (d_k / d)^2, where d_k are
the distances of these points and d that of the next. It is relative to the average over
all rows, which counts as a few rows more. Leaving a row out leaves the average over all
rows as it is.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.threads import row_blocks
from skswsgp._law.near_points import weights_within

NEAR = 40  # nearest inducing points of a row that have weights above zero
PRIOR_ROWS = 3.0  # rows of average size that are added to each average


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
            weights = weights_within(near.distances[rows])
            sums, counts = self.sums[lists], self.counts[lists]  # (n, NEAR, Q), ...
            if own is not None:
                here = lists == own[rows, None]
                sums = np.maximum(sums - here[:, :, None] * sizes[rows, None], 0.0)
                counts = np.maximum(counts - here, 0.0)
            total = np.einsum("nk,nkq->nq", weights, sums) / mean + PRIOR_ROWS
            count = np.sum(weights * counts, axis=1)[:, None] + PRIOR_ROWS
            out[rows] = np.log(total / count)
        return out


def measure_sizes(sizes, own, M, earlier=None):
    """Return the `ResidualSizes` of rows whose |z| are `sizes` (n, Q).

    `own` (n,) are the points, out of M, to which the rows belong. Sums of `earlier`
    rows are added.
    """
    counts = np.bincount(own, minlength=M).astype(np.float64)
    sums = np.stack([np.bincount(own, z, M) for z in sizes.T], axis=1)
    if earlier is not None:
        counts, sums = counts + earlier.counts, sums + earlier.sums
    return ResidualSizes(sums, counts)
