"""What training starts from when the user does not say."""

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

SPREAD_SAMPLE = 20_000  # rows from which the spread of the features is measured


def feature_spread(X, rng, rows=None):
    """Return a robust standard deviation of each feature, 1 for constant ones, (D,).

    The smaller of the standard deviation and the scaled interquartile range (where that
    is not zero), so that a few outlying rows do not set the scale. `rows` are those of
    X that count, None for all.
    """
    rows = np.arange(len(X)) if rows is None else rows
    if len(rows) > SPREAD_SAMPLE:
        rows = np.sort(rng.choice(rows, SPREAD_SAMPLE, replace=False))
    sample, exponent = fractions(np.asarray(X[rows], dtype=np.float64))
    spread = sample.std(axis=0)
    low, high = np.percentile(sample, [25, 75], axis=0)
    quartiles = (high - low) / 1.349
    spread = np.where(quartiles > 0, np.minimum(spread, quartiles), spread)
    rounding = 8 * np.finfo(X.dtype).eps * np.abs(sample).max(axis=0)
    return np.where(spread > rounding, np.ldexp(spread, exponent), 1.0)


def default_kernel(spread):
    """Return a variance times a Matern 5/2 kernel with one length-scale a feature."""
    lengths = spread * np.sqrt(len(spread))
    bounds = np.stack([1e-3 * lengths, 1e3 * lengths], axis=1)
    if len(spread) == 1:
        lengths, bounds = float(lengths[0]), tuple(bounds[0])
    return ConstantKernel(1.0, (1e-3, 1e3)) * Matern(lengths, bounds, nu=2.5)


def mean_and_scale(y, sample_weight):
    """Return weighted mean and standard deviation (1 if constant) of each output."""
    y, exponent = fractions(y)
    mean = np.average(y, axis=0, weights=sample_weight)
    scale = np.sqrt(np.average((y - mean) ** 2, axis=0, weights=sample_weight))
    rounding = 1e-12 * np.abs(y).max(axis=0)
    scale = np.where(scale > rounding, np.ldexp(scale, exponent), 1.0)[()]
    return np.ldexp(mean, exponent), scale


def fractions(values):
    """Return (values in (-1, 1), exponents): columns divided by powers of two.

    That changes no bit, and the squares of large numbers do not overflow.
    """
    _, exponent = np.frexp(np.abs(values).max(axis=0))
    return np.ldexp(values, -exponent), exponent
