"""What training rows have shown: ranges of columns, and levels of categories.

Encoders tell the level of a category by a block of columns with two values each, one of
which is high, or by a column of the codes 0, 1, ... They tell a level that training
never had by a block of low values only, or by the code -1. The length-scales of such
columns say how levels differ, but a block of low values is no further from all levels
than from their average, which is well known.

So a function at a new level is taken for one of those at the levels of training rows.
With the means m_j and the variances v_j at k of them, the new one has the mean of the
m_j, and the variance

    mean_j v_j + (1 + 1/k) s^2 (t / z)^2,

where s^2 is that of the m_j, and t and z are the 95 % quantiles of Student's t with
k - 1 degrees of freedom and of a Gaussian. So intervals of 90 % are those that predict
one more of k draws from a normal law of unknown mean and variance. Of several
categories whose levels are new, all are drawn, the degrees of freedom are added up, and
k is the least.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._rows.statistics import student_width

MOST_LEVELS = 32  # levels that are averaged: s is within an eighth of that of all


class Category(NamedTuple):
    """Columns that tell the level of a category, as the kernel reads them."""

    columns: np.ndarray  # (c,) their places
    tells: np.ndarray  # (c,) bool, whether a column differs between levels of training
    unknown: np.ndarray  # (c,) values at a level that training never had
    levels: np.ndarray  # (k, c) values at levels of training rows, at most MOST_LEVELS
    order: np.ndarray | None  # (k,) that of codes, None for a block

    def is_new(self, X):
        """Return which rows (n,) are of a level that training never had."""
        tells = self.tells
        return np.all(X[:, self.columns[tells]] == self.unknown[tells], axis=1)


class Support(NamedTuple):
    """What a sample of training rows has shown of D columns, before they are scaled."""

    low: np.ndarray  # (D,)
    high: np.ndarray  # (D,)
    categories: tuple  # of the scaled columns


EVERYWHERE = Support(-np.inf, np.inf, ())  # of models that do not say


def find_support(X, columns):
    """Return the `Support` of rows (n, D); `columns` is their scale, or None."""
    low, high, n = X.min(axis=0), X.max(axis=0), len(X)
    held = (X == high) & (high > low)
    two = np.all(held | (X == low), axis=0)
    counts = np.where(two, held.sum(axis=0), n + 1)
    total, categories, end = np.append(0, np.cumsum(counts)), [], 0
    for first in np.flatnonzero(counts):
        last = np.searchsorted(total, total[first] + n, side="right") - 1
        if first < end or total[last] - total[first] != n or last - first < 2:
            continue
        places = np.arange(first, last)
        shown = places[counts[places] > 0]
        if len(shown) > 1 and np.all(held[:, places].sum(axis=1) == 1):
            levels = np.where(shown[:, None] == places, high[places], low[places])
            categories.append(category(X, columns, places, levels, low[places]))
            end = last
    for d in np.flatnonzero((low == 0.0) & ~two & (2.0 * high < n)):
        values = np.unique(X[:, d])  # some rows each, and hardly a gap
        if 2 * len(values) > high[d] and np.all(values == np.round(values)):
            categories.append(category(X, columns, [d], values[:, None], -1.0))
    return Support(low, high, tuple(categories))


def category(X, columns, places, levels, unknown):
    """Return the `Category` of `places` (c,), with values of its levels (k, c)."""
    rows = np.repeat(X[:1], len(levels) + 1, axis=0)
    rows[:-1, places], rows[-1, places] = levels, unknown
    scaled = rows if columns is None else columns.forward(rows)
    varies = np.ptp(scaled, axis=0) > 0.0
    all_places = np.union1d(places, np.flatnonzero(varies))
    # not in one order for all categories, for levels of several are drawn together
    few = np.random.RandomState(places[0]).permutation(len(levels))[:MOST_LEVELS]
    order = np.argsort(few) if len(places) == 1 else None
    kept, unknown = scaled[few][:, all_places], scaled[-1, all_places]
    return Category(all_places, varies[all_places], unknown, kept, order)


def spread_of_levels(X, categories):
    """Return by what the variance of means over known levels is multiplied, (n,).

    The product is what a new level adds to the variance at a row of X (n, D'), as the
    text above says. It is zero for rows whose levels are all known.
    """
    factor, freedom, k = np.zeros(len(X)), np.zeros(len(X)), np.full(len(X), np.inf)
    for one in categories:
        own = one.is_new(X)
        k[own] = np.minimum(k[own], len(one.levels))
        freedom[own] += len(one.levels) - 1
    new = freedom > 0.0
    ratio = (k[new] + 1.0) / (k[new] - 1.0)
    factor[new] = ratio * student_width(freedom[new]) ** 2
    return factor


class NewLevels(NamedTuple):
    """Rows of which some are of new levels, and these rows at known levels."""

    rows: np.ndarray  # (r,) numbers of the rows of new levels
    versions: list  # arrays (r, D') of these, one after the other
    factor: np.ndarray  # (r, 1) of the variance of means over versions
    codes: list  # pairs of which rows (r,) only have a new code, and `order`

    def put(self, mean, variance, found):
        """Change mean and variance (n, Q, ...) at rows to those at new levels.

        `found` are both at each of the versions. The variances may be None.
        """
        means, variances = zip(*found, strict=True)
        share, drawn = self.shares(means), np.mean(means, axis=0)
        gap = mean[self.rows] - drawn
        mean[self.rows] = drawn + (1.0 - share) * gap
        if variance is not None:
            factor = self.factor.reshape(-1, *[1] * (mean.ndim - 1))
            wide = np.mean(variances, axis=0) + factor * np.var(means, axis=0)
            before = variance[self.rows] + share * gap**2
            variance[self.rows] = share * wide + (1.0 - share) * before

    def shares(self, means):
        """Return the shares (r, Q, ...) of known levels in what is said of rows.

        It is all but for codes along which the means change smoothly, as those of
        whole numbers do: there the function goes on. Of levels without an order, two
        neighbours differ as much as any two, whose squares are twice the variance. The
        ratio is squared, so that along a line the share of the squared distance to the
        average is small against a step.
        """
        share, tiny = np.ones(means[0].shape), np.finfo(float).tiny
        for rows, order in self.codes:
            along = np.stack(means)[order][:, rows]
            steps = np.mean(np.diff(along, axis=0) ** 2, axis=0)
            share[rows] = np.minimum(1.0, steps / (np.var(along, axis=0) + tiny)) ** 2
        return share


def at_known_levels(X, categories):
    """Return the `NewLevels` of rows X (n, D'), or None without any."""
    new = [(one, one.is_new(X)) for one in categories]
    new = [(one, rows) for one, rows in new if rows.any()]
    if not new:
        return None
    rows = np.flatnonzero(np.any([of_one for _, of_one in new], axis=0))
    new = [(one, of_one[rows]) for one, of_one in new]
    versions = []
    for j in range(max(len(one.levels) for one, _ in new)):
        Z = X[rows]
        for one, own in new:
            Z[np.ix_(own, one.columns)] = one.levels[j % len(one.levels)]
        versions.append(Z)
    factor = spread_of_levels(X[rows], categories)[:, None]
    alone = np.sum([own for _, own in new], axis=0) == 1
    codes = [(own & alone, one.order) for one, own in new if one.order is not None]
    return NewLevels(rows, versions, factor, codes)
