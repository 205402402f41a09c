"""Waves along columns, and along pairs of columns, that a kernel takes for noise.

With r the share of rows that are smaller in a column, a wave of k half waves is
cos(pi k r), and one along two columns a product of two such waves. How many nats a wave
could gain in the mean of targets is told by the score test, so no climb is needed.
"""

import math

import numpy as np
from scipy.special import chdtri

from skswsgp._rows.column_scale import rank_columns
from skswsgp._rows.statistics import spans

ROWS_PER_HALF_WAVE = 3  # along a column: fewer rows do not tell waves apart
# Probability by chance of the gain that a wave must have. Hundreds of waves are looked
# at, of which one is taken by chance in one table of some 300.
CHANCE = 1e-5


def least_gain(n_outputs=1):
    """Return the nats that a wave must gain in targets of so many outputs.

    By chance twice the gain is from the chi-squared law of as many degrees of freedom.
    """
    return 0.5 * chdtri(n_outputs, CHANCE)


def quarter_waves(posterior, n_before, pairs):
    """Return quarters of the likeliest waves along columns (D,), infinite for none.

    They are length-scales that see these waves, in the units of the columns. Rows of a
    `LogPosterior` are given its kernel and noise. Slow waves that `n_before` rows would
    have shown are too weak for a climb. Waves along two columns are among them if
    `pairs` is true.
    """
    X, lengths = posterior.X, np.full(posterior.X.shape[1], np.inf)
    least = least_gain(posterior.y.shape[1])
    ranks = rank_columns(X, np.ones(len(X)))
    levels = np.array([len(values) for values in ranks.values])
    moving = np.flatnonzero(levels > 1)  # of D columns, d
    shares = ranks.forward(X)[:, moving]  # (N, d)
    # no more waves than rows, so that their gains take as long as the evidence
    each = max(ROWS_PER_HALF_WAVE, len(moving))
    halves = np.arange(len(X) // each) + 1
    waves = np.cos(np.pi * shares[:, :, None] * halves)  # (N, d, K)
    waves *= halves < levels[moving, None]  # between levels nothing is known
    gains = gains_of_waves(posterior, waves, n_before // each, pairs)
    if gains.size:
        seen, best = gains.max(axis=1) > least, halves[gains.argmax(axis=1)]
        lengths[moving[seen]] = spans(X)[moving[seen]] / (2.0 * best[seen])
    return lengths


def gains_of_waves(posterior, waves, n_slow, pairs):
    """Return the gains (d, K) of waves (N, d, K), but for the `n_slow` slowest ones.

    If `pairs` is true, they are at least those of a wave times the best wave of another
    column. There are no more products than rows, those of the slowest waves.
    """
    N, d, K = waves.shape
    first, second = np.triu_indices(d, 1) if pairs else np.empty((2, 0), dtype=np.intp)
    k = min(K, math.isqrt(N // max(len(first), 1)))
    products = waves[:, first, :k, None] * waves[:, second, None, :k]
    features = waves[:, :, n_slow:].reshape(N, -1), products.reshape(N, -1)
    found = posterior.feature_gains(np.hstack(features))
    single, double = np.split(found, [features[0].shape[1]])
    gains = np.zeros((d, K))
    gains[:, n_slow:] = single.reshape(gains[:, n_slow:].shape)
    if double.size:
        double = double.reshape(-1, k, k)
        np.maximum.at(gains[:, :k], first, double.max(axis=2))
        np.maximum.at(gains[:, :k], second, double.max(axis=1))
    return gains
