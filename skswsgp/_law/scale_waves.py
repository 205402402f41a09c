"""Waves along columns, by which the sizes of errors change.

Noise may change along a column that the function ignores. Points that are near for the
kernel tell nothing of that. So the logarithm of the scale of an error at a row x has
terms

    c_j w_k(r_j(x)),    w_1(r) = 1 - 2 r,    w_k(r) = cos(pi k r) for k > 1,

where r_j is the share of training rows with a smaller value of a column, and k is a
number of half waves. The first is straight, since noise mostly grows up to the ends of
a column. The scale does not change beyond the range of training rows.

A wave is taken if it could make errors likelier by `LEAST_WAVE` nats. With errors z / s
from Student's t of nu degrees of freedom, u the derivatives of their log density by
log s and phi a wave without what the features so far explain of it, that gain is

    (phi' u)^2 / (2 phi' phi I),    I = 2 nu / (nu + 3)

(the score test: Rao, 1948), where I is Fisher's information of an error on log s.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._kernel_search.waves import LEAST_WAVE
from skswsgp._law import student
from skswsgp._rows.column_scale import RankColumns
from skswsgp._rows.statistics import ROUNDING

MOST_HALF_WAVES = 8  # along a column: shorter waves were in no noise that was tried


class Waves(NamedTuple):
    """The W waves of an output."""

    places: np.ndarray  # (W,) of their columns
    halves: np.ndarray  # (W,) half waves over the range of training rows
    ranks: RankColumns  # of W columns, one of each wave
    coefficients: np.ndarray  # (W,)

    def features(self, columns):
        """Return the waves (n, W) at rows of columns (n, D)."""
        shares = self.ranks.forward(columns[:, self.places])
        return waves_along(np.clip(shares, 0.0, 1.0), self.halves)

    def logarithms(self, columns):
        """Return what waves add to log scales (n,) at rows of columns (n, D)."""
        return self.features(columns) @ self.coefficients


def waves_along(shares, halves):
    """Return w_k at shares of training rows, from 0 to 1, for numbers k of halves."""
    return np.where(halves == 1, 1.0 - 2.0 * shares, np.cos(np.pi * halves * shares))


def choose_waves(z, features, ranks, columns):
    """Return the `Waves` of errors z (n,) at rows of columns (n, D), not fitted yet.

    `features` (n, p) are those of `student.fit` so far, and `ranks` the `RankColumns`.
    The likeliest wave is taken, and then another one given all so far.
    """
    waves, halves = [], 1 + np.arange(MOST_HALF_WAVES)
    levels, shares = np.array([len(x) for x in ranks.values]), ranks.forward(columns)
    while True:
        gains = wave_gains(z, features, shares, halves)  # (D, MOST_HALF_WAVES)
        gains[halves >= levels[:, None]] = 0.0  # between levels nothing is known
        d, k = np.unravel_index(gains.argmax(), gains.shape)
        if not gains[d, k] > LEAST_WAVE:
            return waves_of(waves, ranks)
        waves.append((d, halves[k]))
        wave = waves_along(shares[:, d], halves[k])
        features = np.column_stack([features, wave])


def waves_of(pairs, ranks):
    """Return `Waves` of pairs of a column and half waves, which change no scale yet."""
    places, halves = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    own = RankColumns(*(tuple(part[d] for d in places) for part in ranks[:2]))
    return Waves(places, halves, own, np.zeros(len(places)))


def wave_gains(z, features, shares, halves):
    """Return how many nats could be gained by waves (D, K), of K numbers of halves."""
    c, freedom = student.fit(z, features)
    slope, information = student.score(z, features @ c, freedom)
    basis = np.linalg.qr(features)[0]  # (n, p), along which there is no slope left
    gains = np.empty((shares.shape[1], len(halves)))
    for k, half in enumerate(halves):
        waves = waves_along(shares, half)  # (n, D)
        norms = np.sum(waves**2, axis=0) - np.sum((basis.T @ waves) ** 2, axis=0)
        norms = np.where(norms > ROUNDING * len(z), norms, np.inf)  # of a feature
        gains[:, k] = (slope @ waves) ** 2 / (2.0 * information * norms)
    return gains
