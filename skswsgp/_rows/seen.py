"""What training rows have shown: ranges of columns, and levels of categories.

Encoders tell the level of a category by a block of columns of which one is 1 and the
others are 0, or by a column of the codes 0, 1, ... They tell a level that training
never had by zeros only, or by the code -1. The length-scales of such columns say how
levels differ, but a row of zeros is no further from all levels than from their average,
which is well known.

So a function at a new level is taken for one of those at the levels of training rows.
Given k of them, each m_j with the variance v_j, the new one has their mean, and the
variance mean_j v_j + (1 + 1/k) s^2 (k - 1) / (k - 3), where s^2 is that of the m_j. So
much has Student's t with k - 1 degrees of freedom, which predicts one more of k draws
from a normal law of unknown mean and variance.
"""

from typing import NamedTuple

import numpy as np

MOST_LEVELS = (
    32  # levels that are averaged, whose s^2 is within a quarter of that of all
)


class Category(NamedTuple):
    """Columns that tell the level of a category, as the kernel reads them."""

    columns: np.ndarray  # (c,) their places
    tells: np.ndarray  # (c,) bool, whether a column differs between levels of training
    unknown: np.ndarray  # (c,) values at a level that training never had
    levels: np.ndarray  # (l, c) values at some levels of training rows
    n_levels: int  # k, of training rows

    def is_new(self, X):
        """Return which rows (n,) are of a level that training never had."""
        tells = self.tells
        return np.all(X[:, self.columns[tells]] == self.unknown[tells], axis=1)


class SeenRows(NamedTuple):
    """What a sample of training rows has shown of D columns, before they are scaled."""

    low: np.ndarray  # (D,)
    high: np.ndarray  # (D,)
    categories: tuple  # of the scaled columns

    def is_far(self, X):
        """Return which rows (n,) lie further outside a range than it is wide."""
        width = self.high - self.low
        return np.any((X < self.low - width) | (X > self.high + width), axis=1)


NOTHING_SEEN = SeenRows(-np.inf, np.inf, ())  # of models that do not say


def find_seen(X, columns):
    """Return the `SeenRows` of rows (n, D); `columns` is their scale, or None."""
    held, n = X == 1.0, len(X)
    counts = np.where(np.all(held | (X == 0.0), axis=0), held.sum(axis=0), n + 1)
    total, categories, end = np.append(0, np.cumsum(counts)), [], 0
    for first in np.flatnonzero(counts):
        last = np.searchsorted(total, total[first] + n, side="right") - 1
        rest, one = np.arange(first, last), held[:, first:last].sum(axis=1)
        if first >= end and last > first + 1 and np.all(one == 1):
            levels = np.eye(len(rest))[counts[rest] > 0]
            categories.append(category(X, columns, rest, levels, 0.0))
            end = last
    for d in np.flatnonzero((X.min(axis=0) == 0.0) & (counts > n)):
        values = np.unique(X[:, d])  # more than two, for 0 and 1 may be a flag
        if np.all(values == np.arange(len(values))):
            categories.append(category(X, columns, [d], values[:, None], -1.0))
    return SeenRows(X.min(axis=0), X.max(axis=0), tuple(categories))


def category(X, columns, places, levels, unknown):
    """Return the `Category` of `places` (c,), with values of its levels (k, c)."""
    rows = np.repeat(X[:1], len(levels) + 1, axis=0)
    rows[:-1, places], rows[-1, places] = levels, unknown
    scaled = rows if columns is None else columns.forward(rows)
    varies = np.ptp(scaled, axis=0) > 0.0
    all_places = np.union1d(places, np.flatnonzero(varies))
    few = np.random.RandomState(0).permutation(len(levels))[:MOST_LEVELS]
    kept = scaled[:, all_places]
    return Category(all_places, varies[all_places], kept[-1], kept[few], len(levels))


def move_to_new_levels(mean, variance, X, categories, moments):
    """Put what is known of new levels in mean and variance (n, Q) of f at rows of X.

    `moments` returns those of rows of known levels. The variance may be None.
    """
    new = np.stack([one.is_new(X) for one in categories], axis=1)
    rows = np.flatnonzero(new.any(axis=1))
    if len(rows) == 0:
        return
    new, found = new[rows], []
    for j in range(max(len(one.levels) for one in categories)):
        Z = X[rows]
        for own, one in zip(new.T, categories, strict=True):
            Z[np.ix_(own, one.columns)] = one.levels[j % len(one.levels)]
        found.append(moments(Z))
    means, variances = zip(*found, strict=True)
    mean[rows] = np.mean(means, axis=0)
    if variance is not None:
        k = np.where(new, [one.n_levels for one in categories], np.inf).min(axis=1)
        factor = (1.0 + 1.0 / k) * (k - 1.0) / np.maximum(k - 3.0, 1.0)
        spread = np.var(means, axis=0, ddof=1)
        variance[rows] = np.mean(variances, axis=0) + factor[:, None] * spread
