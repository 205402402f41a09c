"""A linear map of the columns of X, which is learned together with a kernel.

Length-scales stretch columns, but what matters may be a combination of columns. So the
kernel is one of X W, and W is learned as the parameters of the kernel are, on the
density of rows given their nearest other rows.
"""

import numpy as np

from skswsgp._covariance.compile import compile_kernel, length_scales
from skswsgp._point.adam_step import update_matrix
from skswsgp._rows.columns import mapped

PRIOR_VARIANCE_OF_MAP = 0.1  # prior variance of an entry of S with many rows
# Rows for each entry of S, and for each length-scale, from which they are many
ROWS_PER_PARAMETER = 10
LEAST_EIGENVALUE = 1e-4  # of the matrix of slopes, over the largest one


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
        self.prior_variance = self.variance_for(len(points))

    def variance_for(self, n_rows):
        """Return the prior variance of an entry of S for a number of rows."""
        fraction = n_rows / max(ROWS_PER_PARAMETER * len(self.entries[0]), 1)
        return PRIOR_VARIANCE_OF_MAP * min(1.0, fraction) ** 2

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
        all rows. Half of the derivative by a pair S_ij = S_ji belongs to each of them.
        """
        free = self.free_slope(d_map)
        pull = fraction / self.prior_variance * self.S
        return self.moves * 0.5 * (free + free.T - pull - np.diag(pull.diagonal()))

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
    own = [slot for slot in struct.slot if len(set(slot)) == D and slot[0] >= 0]
    scaled = any(free[slot[0]] for slot in own)
    lengths = length_scales(kernel, D, otherwise=spread)
    return MovingMap(points, lengths, scaling=not scaled)


def leading_map(slopes, lengths, n_columns):
    """Return the map W (D, n_columns) to the directions in which functions change most.

    With g the slopes (n, Q, D) of the functions by X / l, the average gradient outer
    product is G = sum of g g' = V diag(a) V', and W = l^-1 V a^(1/4) for the largest
    eigenvalues a, scaled to mean 1 (Radhakrishnan, Beaglehole, Pandit and Belkin,
    Mechanism for feature learning in neural networks and backpropagation-free machine
    learning models, Science 383, 2024). The new columns have no units.
    """
    slopes = (slopes * lengths).reshape(-1, len(lengths))
    if not np.isfinite(slopes).all():
        raise FloatingPointError("slopes of the kriging mean are not finite")
    eigenvalues, V = np.linalg.eigh(slopes.T @ slopes)
    order = np.argsort(-eigenvalues)[:n_columns]
    largest = np.maximum(eigenvalues[order], LEAST_EIGENVALUE * eigenvalues[order[0]])
    if largest[0] <= 0.0:  # the functions are constant
        largest[:] = 1.0
    return V[:, order] * (largest / largest.mean()) ** 0.25 / lengths[:, None]
