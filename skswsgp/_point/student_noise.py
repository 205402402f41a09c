"""Observations y = f + s t for a Gaussian f and a Student-t variable t.

A Student-t variable with nu degrees of freedom is a normal one whose precision g has a
gamma distribution of shape and rate nu / 2. Given g, y is Gaussian of variance
v + s^2 / g for f ~ N(mu, v). So laws of y are sums over nodes of log g: the density of
log g falls off exponentially on both sides, and equal steps are very accurate then.
"""

import numpy as np
from scipy.special import logsumexp

from skswsgp._compiled.special import gaussian_log_density, student_log_density

# Log densities are within 1e-6, and within 0.1 some 10,000 deviations from the mean,
# where nodes end.
NODES = 80
LEAST_SHARE = 1e-14  # of the density of log g at its mode, where nodes end


def precision_nodes(freedom):
    """Return nodes of the precision g and the logarithms of their weights, each (K,).

    The weights add up to one.
    """
    half = 0.5 * freedom

    def fall(x):  # of the log density of x = log g below that at its mode, 0
        return half * (x - np.expm1(x))

    low = high = 0.0
    while fall(low) > np.log(LEAST_SHARE):
        low -= 2.0 / half
    while fall(high) > np.log(LEAST_SHARE):
        high += 0.5 / np.sqrt(half)
    x = np.linspace(low, high, NODES)
    logs = fall(x)
    return np.exp(x), logs - logsumexp(logs)


def log_density(mean, variance, y, noise, freedom):
    """Return log p(y) (n,) in nats for f ~ N(mean, variance), arrays (n,).

    `noise` is s^2, a number or (n,), and `freedom` a number.
    """
    square, terms = (y - mean) ** 2, []
    g, log_weights = precision_nodes(freedom)
    for one, log_weight in zip(g, log_weights, strict=True):
        total = variance + noise / one
        terms.append(log_weight + gaussian_log_density(square / total, np.log(total)))
    density = logsumexp(terms, axis=0)
    # far from the mean only precisions below all nodes matter, and f hardly does
    log_ratio = np.log1p(square / (freedom * noise))
    alone = student_log_density(log_ratio, np.log(noise), freedom)
    far = (freedom + 1.0) / (freedom + square / noise) < g[0]
    return np.where(far, np.maximum(density, alone), density)
