"""Student-t densities of residuals, whose scales depend on the rows around.

The logarithm of the scale of a standardised residual z is linear in a few features,

    log s = c' phi,        z / s ~ t with nu degrees of freedom,

and c and nu maximise the likelihood, with a weak prior that holds where rows are few.
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import digamma, ndtr, ndtri, stdtr, stdtrit

from skswsgp._compiled.special import gaussian_log_density, student_log_density
from skswsgp._point.likelihood_records import LIKELIHOODS

# Degrees of freedom of the law. Draws of fewer go far beyond what targets were, and
# averages over them settle slowly.
LEAST_FREEDOM = 4.0
# Degrees of freedom from which the law is taken for a Gaussian
_, MOST_FREEDOM = LIKELIHOODS["student_t"].shape_bounds
MOST_FACTOR = 30.0  # of a scale, at mean features or where a feature grows e-fold
# Prior standard deviations of the coefficients: of the first, which makes all scales
# larger or smaller, and of the others, by which the scale follows a feature.
LEVEL_PRIOR, SLOPE_PRIOR = 0.3, 0.5
FREEDOM_PRIOR = 0.1  # mean of the exponential prior of 1 / nu


def log_density(z, log_scale, freedom):
    """Return the log density of z; freedom may be infinite."""
    square = (z * np.exp(-log_scale)) ** 2
    if np.isinf(freedom):
        return gaussian_log_density(square, 2.0 * log_scale)
    log_ratio = np.log1p(square / freedom)
    return student_log_density(log_ratio, 2.0 * log_scale, freedom)


def score(z, log_scale, freedom):
    """Return the derivatives of log densities by the log scale, and their variance.

    The variance of one derivative is Fisher's information on the log scale.
    """
    share = 1.0 / freedom  # 0 of a Gaussian
    square = (z * np.exp(-log_scale)) ** 2
    slope = (1.0 + share) * square / (1.0 + share * square) - 1.0
    return slope, 2.0 / (1.0 + 3.0 * share)


def normal_score(z, freedom):
    """Return the standard normal value that is as probable as z."""
    if np.isinf(freedom):
        return z
    return np.copysign(ndtri(stdtr(freedom, -np.abs(z))), z)


def from_normal(z, freedom):
    """Return the value that is as probable as the standard normal value z."""
    if np.isinf(freedom):
        return z
    return np.copysign(stdtrit(freedom, ndtr(-np.abs(z))), z)


def deviation(freedom):
    """Return the standard deviation, of the shape of freedom."""
    return 1.0 / np.sqrt(1.0 - 2.0 / freedom)


def fit(z, features):
    """Return the coefficients (p,) and the degrees of freedom for z (n,).

    `features` (n, p) have a first column of ones.
    """
    n, p = features.shape
    prior = np.full(p, SLOPE_PRIOR**-2)
    prior[0] = LEVEL_PRIOR**-2

    def loss(parameters):
        c, freedom = parameters[:-1], np.exp(parameters[-1])
        log_scale = features @ c
        square = (z * np.exp(-log_scale)) ** 2
        value = -log_density(z, log_scale, freedom).sum() + 0.5 * prior @ c**2
        value += 1.0 / (FREEDOM_PRIOR * freedom)
        slope, _ = score(z, log_scale, freedom)
        by_c = prior * c - features.T @ slope
        by_freedom = digamma(0.5 * (freedom + 1.0)) - digamma(0.5 * freedom)
        by_freedom += slope / freedom - np.log1p(square / freedom)
        by_log = -0.5 * freedom * by_freedom.sum() - 1.0 / (FREEDOM_PRIOR * freedom)
        return value / n, np.append(by_c, by_log) / n

    bounds = [(-np.log(MOST_FACTOR), np.log(MOST_FACTOR))] * p
    bounds += [np.log((LEAST_FREEDOM, MOST_FREEDOM))]
    start = np.append(np.zeros(p), np.log(6.0))
    found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    freedom = np.exp(found[-1])
    return found[:-1], np.inf if freedom > 0.99 * MOST_FREEDOM else float(freedom)
