"""A linear map of the columns of X, which is learned together with a kernel.

Length-scales stretch columns, but what matters may be a combination of columns. So the
kernel is one of X W, and W is learned as the parameters of the kernel are, on the
density of rows given their nearest other rows.
"""

import numpy as np

from skswsgp._covariance.compile import compile_kernel, length_scales
from skswsgp._linear.columns import mapped
from skswsgp._point.adam_step import update_matrix

PRIOR_VARIANCE = 0.1  # prior variance of an entry of S with many rows
ROWS_PER_ENTRY = 10  # rows for each entry of S from which they are many


# Columns up to which "auto" tries a map. With 64 the derivatives by the map
# take as long as the rest of a step; "full" learns a map of any size.
MOST_COLUMNS = 64


def learns_map(metric, n_features):
    """Return whether a map of the columns is learned, for a parameter `metric`."""
    if metric == "auto":
        return 1 < n_features <= MOST_COLUMNS
    return metric == "full" and n_features > 1


class MovingMap:
    """The map W = I + l^-1 S l, with S symmetric, while Adam moves S from zero.

    `points` (N, D) are the rows before the map, and `lengths` l (D,) the length-scales
    at the start, so that S is free of units and the new columns keep the units of the
    old ones. A symmetric S and the length-scales together reach every metric. Its
    diagonal stays zero unless `scaling`, which is for kernels that have no
    length-scale for each column. Entries of S have a normal prior around zero. With few
    rows for each entry it is narrow, because a map that fits the noise makes
    predictions too sure of themselves.
    """

    def __init__(self, points, lengths, scaling=False):
        D = len(lengths)
        self.points, self.lengths = points.copy(), lengths
        self.S, self.moments = np.zeros((D, D)), np.zeros((D, 2, D))
        self.moves = np.ones((D, D)) if scaling else 1.0 - np.eye(D)
        self.steps = 0
        self.entries = np.nonzero(np.triu(self.moves))  # that move, of a symmetric S
        fraction = len(points) / max(ROWS_PER_ENTRY * len(self.entries[0]), 1)
        self.prior_variance = PRIOR_VARIANCE * min(1.0, fraction) ** 2

    @property
    def matrix(self):
        """The map W (D, D)."""
        return np.eye(len(self.S)) + self.S / self.lengths[:, None] * self.lengths

    def place(self, Z, rows):
        """Set these rows of Z to the mapped points."""
        Z[rows] = mapped(self.points[rows], self.matrix)

    def slope(self, d_map, fraction):
        """Return the derivatives by S of the log density plus log prior, symmetric.

        `d_map` (D, D) are the derivatives by W of the log density of a `fraction` of
        all rows.
        """
        free = self.free_slope(d_map)
        slope = 0.5 * (free + free.T) - fraction / self.prior_variance * self.S
        return self.moves * slope

    def free_slope(self, d_map):
        """Return the derivatives by S, if S need not be symmetric, from those by W."""
        return d_map / self.lengths[:, None] * self.lengths

    def step(self, d_map, fraction, rate):
        """Take a step of Adam, uphill; see `slope`."""
        self.steps += 1
        slope = self.slope(d_map, fraction)
        update_matrix(self.S, slope, self.moments, self.steps, rate)


def moving_map(kernel, points):
    """Return the `MovingMap` of points (N, D) for a kernel.

    A kernel without length-scales takes the spread of the columns in their place.
    """
    D, spread = points.shape[1], points.std(axis=0)
    spread = np.where(spread > 0.0, spread, 1.0)
    struct, free, *_ = compile_kernel(kernel, D, np.float64)
    scaled = free[struct.scale[struct.n_scales == D]].any()
    lengths = length_scales(kernel, D, otherwise=spread)
    return MovingMap(points, lengths, scaling=not scaled)
