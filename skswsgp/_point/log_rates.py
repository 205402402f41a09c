"""Counts y whose rate is exp(f): probabilities given f, and for a Gaussian f.

Counts are Poisson, or negative binomial of size r: those of a Poisson variable whose
rate is exp(f) times a gamma variable of mean 1 and variance 1 / r. The size is infinite
for Poisson counts. Arrays of sizes have an entry for each of Q outputs, and others are
(n, Q) or shapes that go with it.
"""

import numpy as np
from scipy import special

from skswsgp._point.likelihoods import MOST_LOG_RATE

NODES = 64  # Gauss-Hermite nodes of the probability of a count or a label
STEPS, TOLERANCE = 100, 1e-9  # of the search for the largest integrand
LEAST_VARIANCE = 1e-12  # of f


def log_probability(f, y, size):
    """Return log p(y | f)."""
    rest = np.where(np.isinf(size), 1.0, size)
    t = f - np.log(rest)
    constant = -np.log(y + rest) - special.betaln(rest, y + 1.0)
    binomial = constant + y * special.log_expit(t) + rest * special.log_expit(-t)
    poisson = y * f - np.exp(np.minimum(f, MOST_LOG_RATE)) - special.gammaln(y + 1.0)
    return np.where(np.isinf(size), poisson, binomial)


def slopes(f, y, size):
    """Return the first derivative of log p(y | f) by f, and minus the second one."""
    rate = np.exp(np.minimum(f, MOST_LOG_RATE))
    rest = np.where(np.isinf(size), 1.0, size)
    share = special.expit(f - np.log(rest))
    first = np.where(np.isinf(size), y - rate, y - (y + rest) * share)
    return first, np.where(np.isinf(size), rate, (y + rest) * share * (1.0 - share))


def expected_log_probability(mean, variance, y, size):
    """Return log p(y) in nats for f ~ N(mean, variance).

    Quadrature is around the largest integrand, which safeguarded Newton steps find.
    """
    y, size = np.asarray(y, dtype=np.float64), np.asarray(size, dtype=np.float64)
    mu, v = mean.astype(np.float64), np.maximum(variance, LEAST_VARIANCE)
    # the slope of log p(y | f) shrinks on the way from mu to the zero
    step = v * slopes(mu, y, size)[0]
    low, high = mu + np.minimum(step, 0.0), mu + np.maximum(step, 0.0)
    f = np.clip(np.log(np.maximum(y, 0.1)), low, high)
    for _ in range(STEPS):
        slope, curvature = slopes(f, y, size)
        slope = slope - (f - mu) / v
        low, high = np.where(slope > 0.0, f, low), np.where(slope > 0.0, high, f)
        new = f + slope / (curvature + 1.0 / v)
        inside = (low <= new) & (new <= high)
        new = np.where(inside, new, 0.5 * (low + high))
        done = np.abs(new - f).max(initial=0.0) < TOLERANCE
        f = new
        if done:
            break
    curvature = slopes(f, y, size)[1]
    std = 1.0 / np.sqrt(curvature + 1.0 / v)  # of the normal law of this curvature
    terms = []
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        at = f + std * node
        ratio = 0.5 * (node**2 - (at - mu) ** 2 / v - np.log(v))
        terms.append(log_probability(at, y, size) + ratio + np.log(weight * std))
    return special.logsumexp(terms, axis=0)
