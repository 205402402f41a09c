"""Waves along columns, by which the sizes of errors change.

Noise may change along a column that the function ignores. Points that are near for the
kernel tell nothing of that. So the logarithm of the scale of an error at a row x has
terms

    c_j w_k(r_j(x)),    w_1(r) = 1 - 2 r,    w_k(r) = cos(pi k r) for k > 1,

where r_j is the share of training rows with a smaller value of a column, and k is a
number of half waves. The first is straight, since noise mostly grows up to the ends of
a column. The scale does not change beyond the range of training rows, where a new level
of a column of few values may lie.

A wave is taken if it could make errors likelier by `least_gain` nats. With errors z / s
from Student's t of nu degrees of freedom, u the derivatives of their log density by
log s and phi a wave without what the features so far explain of it, that gain is

    (phi' u)^2 / (2 phi' phi I),    I = 2 nu / (nu + 3)

(the score test: Rao, 1948), where I is Fisher's information of an error on log s, or
the mean square of u where tails are heavier than those of the law.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._kernel_search.waves import least_gain
from skswsgp._law import student
from skswsgp._rows.column_scale import RankColumns
from skswsgp._rows.statistics import ROUNDING

MOST_HALF_WAVES = 8  # along a column: shorter waves were in no noise that was tried
HALVES = 1 + np.arange(MOST_HALF_WAVES)


class Waves(NamedTuple):
    """The W waves of an output."""

    places: np.ndarray  # (W,) of their columns
    halves: np.ndarray  # (W,) half waves over the range of training rows
    ranks: RankColumns  # of W columns, one of each wave
    coefficients: np.ndarray  # (W,)

    def features(self, columns):
        """Return the waves (n, W) at rows of columns (n, D)."""
        return waves_along(shares_of(columns[:, self.places], self.ranks), self.halves)

    def logarithms(self, columns):
        """Return what waves add to log scales (n,) at rows of columns (n, D)."""
        return self.features(columns) @ self.coefficients


def shares_of(columns, ranks):
    """Return the shares (n, D) of training rows, within those of training rows."""
    ends = [(shares[0], shares[-1]) for shares in ranks.shares]
    return ranks.forward(columns).clip(*np.transpose(ends).reshape(2, -1))


def waves_along(shares, halves):
    """Return w_k at shares of training rows, from 0 to 1, for numbers k of halves."""
    return np.where(halves == 1, 1.0 - 2.0 * shares, np.cos(np.pi * halves * shares))


def choose_waves(z, features, ranks, shares):
    """Return the `Waves` of errors z (n,) at rows of shares (n, D), not fitted yet.

    `features` (n, p) are those of `student.fit` so far, and `ranks` the `RankColumns`.
    The likeliest wave is taken, and then another one given all so far.
    """
    waves, levels = [], np.array([len(x) for x in ranks.values])
    while True:
        gains = wave_gains(z, features, shares)  # (D, MOST_HALF_WAVES)
        gains[HALVES >= levels[:, None]] = 0.0  # between levels nothing is known
        d, k = np.unravel_index(gains.argmax(), gains.shape)
        if not gains[d, k] > least_gain():
            return waves_of(waves, ranks)
        waves.append((d, HALVES[k]))
        features = np.column_stack([features, waves_along(shares[:, d], HALVES[k])])


def waves_of(pairs, ranks):
    """Return `Waves` of pairs of a column and half waves, which change no scale yet."""
    places, halves = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    own = RankColumns(*(tuple(part[d] for d in places) for part in ranks[:2]))
    return Waves(places, halves, own, np.zeros(len(places)))


def wave_gains(z, features, shares):
    """Return how many nats waves (D, MOST_HALF_WAVES) along columns could gain."""
    c, freedom = student.fit(z, features)
    slope, information = student.score(z, features @ c, freedom)
    # tails may be heavier than those of the law
    information = max(information, np.mean(slope**2))
    basis = np.linalg.qr(features[:, features.any(axis=0)])[0]
    gains = np.empty((shares.shape[1], len(HALVES)))
    for k, half in enumerate(HALVES):
        waves = waves_along(shares, half)  # (n, D)
        waves -= basis @ (basis.T @ waves)
        norms = np.sum(waves**2, axis=0)
        norms = np.where(norms > ROUNDING * len(z), norms, np.inf)  # of a feature
        gains[:, k] = (slope @ waves) ** 2 / (2.0 * information * norms)
    return gains
