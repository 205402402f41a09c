"""Columns of X on another scale, by functions of each.

A stationary kernel takes a step of a column for equally large wherever it is. Columns
that span orders of magnitude, or have a few far values, suit it better as powers of
themselves, or as shares of training rows that are smaller. Powers go on beyond the
range of training rows, and shares go on in straight lines.

A column of few values, such as months or codes of categories, may have an effect at
each value that does not follow from those beside it. So it can get more columns, one
for each value.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._rows.statistics import MEAN_ROWS, fractions, weighted_quantiles
from skswsgp._rows.target_scale import YeoJohnson, best_power, gaussian_loss

OUTER = 0.05  # share of the rows that tell how far apart values beyond all others lie
MOST_KNOTS = 1000  # values of a column at which shares are kept
# Correlation of a column, or of y, with itself on another scale from which the scale
# hardly changes it
HARDLY_CHANGED = 0.99


class PowerColumns(NamedTuple):
    """Powers of 1 + |x - center| / unit, as `YeoJohnson` takes them of targets.

    The center of a column is its median, and the unit the mean distance from it. A
    column of positive values may have a logarithm instead, arsinh(x / unit) with a
    tenth of the least value as unit, which goes on through zero.
    """

    center: np.ndarray  # (D,)
    unit: np.ndarray  # (D,)
    power: np.ndarray  # (D,) 1 is linear, and less draws large values together
    is_log: np.ndarray  # (D,) whether a column has a logarithm
    name: str = "yeo-johnson"

    def forward(self, X):
        """Return the columns (n, D), (x - center) / unit where the power is 1."""
        powers = YeoJohnson(self.unit, self.power).forward(X - self.center)
        return np.where(self.is_log, np.arcsinh(X / self.unit), powers)

    def slopes(self, X):
        """Return the derivatives (n, D) of columns X (n, D) on the new scale."""
        law = YeoJohnson(self.unit, self.power)
        powers = np.exp(law.log_slope(X - self.center))
        return np.where(self.is_log, 1.0 / np.hypot(X, self.unit), powers)


class RankColumns(NamedTuple):
    """Shares of training rows that are smaller, equal ones counted half."""

    values: tuple  # D arrays (k,), increasing values of training rows
    shares: tuple  # D arrays (k,), at the values
    name: str = "ranks"

    def forward(self, X):
        """Return the columns (n, D) on the new scale."""
        out = np.empty(X.shape)
        for d, (values, shares) in enumerate(self.knots()):
            x = np.asarray(X[:, d], dtype=np.float64)
            beyond = x - np.clip(x, values[0], values[-1])
            slope = slopes_beyond(values, shares)[np.where(beyond < 0.0, 0, 1)]
            out[:, d] = np.interp(x, values, shares) + beyond * slope
        return out

    def knots(self):
        """Return pairs of values and their shares."""
        return zip(self.values, self.shares, strict=True)


class LevelColumns(NamedTuple):
    """Columns, and after them one more for each value of those with few values.

    The column of a value is 1 there and 0 at the other values of training rows. Between
    two values it is linear, and beyond them constant.
    """

    base: PowerColumns | RankColumns | None  # scale of the columns themselves
    places: tuple  # of the columns with few values
    values: tuple  # an array (k,) for each of these, increasing
    covariances: tuple = ()  # (k + 1, k + 1) of each and its new columns, in training
    name: str = "levels"

    def forward(self, X):
        """Return the columns (n, D') on the new scale."""
        X = np.asarray(X)
        own = X if self.base is None else self.base.forward(X)
        parts = [near_levels(X[:, d], values) for d, values in self.levels()]
        return np.hstack([own, *parts])

    def n_columns(self, D):
        """Return the number of new columns, for D old ones."""
        return D + sum(map(len, self.values))

    def levels(self):
        """Return pairs of a place and its values."""
        return zip(self.places, self.values, strict=True)


def near_levels(x, values):
    """Return how near x (n,) is to increasing values (k,), 1 there and 0 at others."""
    place = np.interp(x, values, np.arange(len(values)))
    return np.maximum(1.0 - np.abs(place[:, None] - np.arange(len(values))), 0.0)


def slopes_beyond(values, shares):
    """Return the slopes of shares below the least and above the largest value.

    They are the mean ones over the share `OUTER` of the rows at each end, and at most
    that over all rows. A row twice as far away as a long tail has reached would
    otherwise be as far from all rows as these are from each other.
    """
    if len(values) == 1:
        return np.ones(2)
    ends, places = shares[[0, -1]], values[[0, -1]]
    within = np.interp(ends + np.array([OUTER, -OUTER]), shares, values)
    slopes = OUTER / np.maximum(np.abs(within - places), np.finfo(float).tiny)
    return np.minimum(slopes, np.ptp(ends) / np.ptp(places))


def power_columns(X, weight):
    """Return the `PowerColumns` that make columns (n, D) nearest to Gaussian ones.

    The first rows, in random order, choose powers and logarithms.
    """
    center = weighted_quantiles(X, weight, [0.5])[0]
    unit = np.average(np.abs(X - center), axis=0, weights=weight)
    unit = np.where(unit > 0.0, unit, 1.0)
    low = np.finfo(float).tiny * np.maximum(X.max(axis=0), 1.0)  # x / low is finite
    least = np.maximum(0.1 * X.min(axis=0), low)
    few, weight = X[:MEAN_ROWS], weight[:MEAN_ROWS]
    power = np.array([best_power(x, weight) for x in ((few - center) / unit).T])
    is_log = X.min(axis=0) > 0.0
    for d in np.flatnonzero(is_log):
        x, own = few[:, [d]], (few[:, d] - center[d]) / unit[d]
        loss = gaussian_loss(0.0, x[:, 0] / least[d], weight) + np.log(least[d])
        is_log[d] = loss < gaussian_loss(power[d], own, weight) + np.log(unit[d])
        is_log[d] &= np.any(correlations(x, np.log(x)) < HARDLY_CHANGED)
    center, unit = np.where(is_log, (0.0 * center, least), (center, unit))
    return PowerColumns(center, unit, power, is_log)


def rank_columns(X, weight):
    """Return the `RankColumns` of columns (n, D)."""
    knots = [column_knots(x, weight) for x in X.T]
    return RankColumns(*map(tuple, zip(*knots, strict=True)))


def column_knots(x, weight):
    """Return values (k,) of a column (n,), and the shares of weight below them."""
    values, place = np.unique(x, return_inverse=True)
    mass = np.bincount(place, weight)
    shares = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    if len(values) > MOST_KNOTS:
        wanted = np.linspace(shares[0], shares[-1], MOST_KNOTS)
        kept = np.unique(np.searchsorted(shares, wanted))
        values, shares = values[kept], shares[kept]
    return values, shares


def level_columns(X, most, base=None):
    """Return the `LevelColumns` of columns (n, D), `most` columns in all.

    Columns of two values need no more, and those of few values come first. A column
    has at most as many values as each of them has rows on average, for values that are
    rarely met say little about themselves.
    """
    values = [distinct(x) for x in X.T]
    n, left, places = len(X), most - X.shape[1], []
    for d in sorted(range(len(values)), key=lambda d: len(values[d])):
        k = len(values[d])
        if 2 < k <= min(left, n / k):
            places.append(d)
            left -= k
    values = tuple(values[d] for d in places)
    own = X if base is None else base.forward(X)
    covariances = [
        np.cov(np.column_stack([own[:, d], near_levels(X[:, d], found)]).T)
        for d, found in zip(places, values, strict=True)
    ]
    return LevelColumns(base, tuple(places), values, tuple(covariances))


def distinct(x):
    """Return the different values (k,) of x (n,), increasing.

    Values that differ by rounding only, as 0.3 and 3 * 0.1 do, count as one.
    """
    values = np.unique(x)
    rounding = 8.0 * np.finfo(np.float64).eps * np.abs(values).max()
    return values[np.diff(values, prepend=-np.inf) > rounding]


INCREASING = {"yeo-johnson": power_columns, "ranks": rank_columns}
SCALES = (*INCREASING, "levels")  # names of all scales


def fit_columns(name, X, weight, most=np.inf):
    """Return the scale of a name for columns (n, D) of rows with weights (n,).

    `most` is the largest number of new columns of "levels". "centered" are the columns
    less their medians.
    """
    X = np.asarray(X, dtype=np.float64)
    if name == "centered":
        center, ones = weighted_quantiles(X, weight, [0.5])[0], np.ones(X.shape[1])
        return PowerColumns(center, ones, ones, ones < 0.0, name)
    return level_columns(X, most) if name == "levels" else INCREASING[name](X, weight)


def changes_columns(columns, X):
    """Return whether a scale makes another column of some column of X (n, D)."""
    return bool(np.any(correlations(X, columns.forward(X)) < HARDLY_CHANGED))


def correlations(X, moved):
    """Return the correlation of each column that varies before and after a move."""
    both = (fractions(Z)[0] for Z in (X, moved))
    before, after = (Z - Z.mean(axis=0) for Z in both)
    norms = np.sqrt(np.sum(before**2, axis=0) * np.sum(after**2, axis=0))
    varies = norms > 0.0
    return np.sum(before * after, axis=0)[varies] / norms[varies]
