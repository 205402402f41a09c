"""Waves along columns, and along pairs of columns, that a kernel takes for noise.

With r the share of rows that are smaller in a column, a wave of k half waves is
cos(pi k r), and one along two columns a product of two such waves. How many nats a wave
could gain in the mean of targets is told by the score test, so no climb is needed.
"""

import math

import numpy as np

from skswsgp._rows.column_scale import rank_columns
from skswsgp._rows.statistics import spans

ROWS_PER_HALF_WAVE = 3  # along a column: fewer rows do not tell waves apart
# Nats that a wave must gain. Hundreds of waves are looked at, and the best of them
# gains ten nats by chance in one table of a thousand.
LEAST_WAVE = 10.0


def quarter_waves(posterior, n_before, pairs):
    """Return quarters of the likeliest waves along columns (D,), infinite for none.

    They are length-scales that see these waves, in the units of the columns. Rows of a
    `LogPosterior` are given its kernel and noise. Slow waves that `n_before` rows would
    have shown are too weak for a climb. Waves along two columns are among them if
    `pairs` is true.
    """
    X, lengths = posterior.X, np.full(posterior.X.shape[1], np.inf)
    ranks = rank_columns(X, np.ones(len(X)))
    levels = np.array([len(values) for values in ranks.values])
    moving = np.flatnonzero(levels > 1)  # of D columns, d
    shares = ranks.forward(X)[:, moving]  # (N, d)
    # no more waves than rows, so that their gains take as long as the evidence
    each = max(ROWS_PER_HALF_WAVE, len(moving))
    halves = np.arange(len(X) // each) + 1
    waves = np.cos(np.pi * shares[:, :, None] * halves)  # (N, d, K)
    waves *= halves < levels[moving, None]  # between levels nothing is known
    gains = posterior.feature_gains(waves.reshape(len(X), -1))
    gains = gains.reshape(waves.shape[1:])
    gains[:, : n_before // each] = 0.0
    if pairs:
        gains = np.maximum(gains, gains_of_pairs(posterior, waves))
    if gains.size:
        seen, best = gains.max(axis=1) > LEAST_WAVE, halves[gains.argmax(axis=1)]
        lengths[moving[seen]] = spans(X)[moving[seen]] / (2.0 * best[seen])
    return lengths


def gains_of_pairs(posterior, waves):
    """Return the gains (d, K) of waves (N, d, K) times the best wave of another column.

    There are no more products than rows, those of the slowest waves.
    """
    N, d, K = waves.shape
    first, second = np.triu_indices(d, 1)  # of p pairs
    k = min(K, math.isqrt(N // max(len(first), 1)))
    gains = np.zeros((d, K))
    if len(first) * k:
        products = waves[:, first, :k, None] * waves[:, second, None, :k]
        found = posterior.feature_gains(products.reshape(N, -1)).reshape(-1, k, k)
        np.maximum.at(gains[:, :k], first, found.max(axis=2))
        np.maximum.at(gains[:, :k], second, found.max(axis=1))
    return gains
