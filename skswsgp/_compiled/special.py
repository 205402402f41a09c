"""Special functions, and the densities of normal and Student-t distributions."""

import math

import numpy as np
from scipy.special import logsumexp

from skswsgp._compiled.jit import njit_inner, njit_small

LOG_2PI = math.log(2.0 * math.pi)
# Nodes of `student_precisions`: log densities are within 1e-6, and within 0.1 some
# 10,000 deviations from the mean, where nodes end.
PRECISION_NODES = 80
LEAST_SHARE = 1e-14  # of the density of log g at its mode, where nodes end


def gaussian_log_density(square, log_variance):
    """Return log N(y; mu, v), with square = (y - mu)^2 / v, of numbers or arrays."""
    return -0.5 * (LOG_2PI + log_variance + square)


compiled_log_density = njit_small(gaussian_log_density)


def student_log_density(log_ratio, log_variance, freedom):
    """Return the log density of a Student-t variable of finite degrees of freedom.

    log_ratio is log(1 + (y - mu)^2 / (nu s^2)) and log_variance log s^2 for the scale
    s, numbers or arrays; nu is a number.
    """
    half = 0.5 * (freedom + 1.0)
    constant = math.lgamma(half) - math.lgamma(0.5 * freedom)
    constant -= 0.5 * math.log(math.pi * freedom)
    return constant - 0.5 * log_variance - half * log_ratio


compiled_student_density = njit_small(student_log_density)


@njit_small
def exponential(x):
    """Return exp(x) for x < 700 to 4e-14, by arithmetic that LLVM can vectorise."""
    x = -700.0 if x < -700.0 else x
    known = x == x  # no integer stands for NaN
    exponent = math.floor(x * 1.4426950408889634 + 0.5) if known else 0.0
    r = x - exponent * 0.6931471803691238 - exponent * 1.9082149292705877e-10
    p = 1.0 / 39916800.0  # Taylor series to order 11 on |r| <= log(2) / 2
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * np.int64((np.int64(exponent) + 1023) << 52).view(np.float64)


@njit_inner
def log_ndtr(x):
    """Return log Phi(x), Phi the standard normal distribution function."""
    if x > -30.0:
        return math.log(0.5 * math.erfc(-x * math.sqrt(0.5)))
    z = 1.0 / (x * x)  # an expansion, for Phi(x) is too small a number
    tail = math.log1p(-z + 3.0 * z * z)  # the next term, 15 z^3, is below 3e-8
    return -0.5 * x * x - math.log(-x) - 0.5 * LOG_2PI + tail


def student_precisions(freedom):
    """Return nodes of the precision of a Student-t variable and log weights, (K,).

    Such a variable is a normal one whose precision g has a gamma distribution of shape
    and rate freedom / 2. So laws of its sums with Gaussian variables are sums over
    nodes of log g. The density of log g falls off exponentially on both sides, and
    equal steps are very accurate then. The weights add up to one.
    """
    half = 0.5 * freedom

    def fall(x):  # of the log density of x = log g below that at its mode, 0
        return half * (x - np.expm1(x))

    low = high = 0.0
    while fall(low) > np.log(LEAST_SHARE):
        low -= 2.0 / half
    while fall(high) > np.log(LEAST_SHARE):
        high += 0.5 / np.sqrt(half)
    x = np.linspace(low, high, PRECISION_NODES)
    logs = fall(x)
    return np.exp(x), logs - logsumexp(logs)


def noisy_student_log_density(mean, variance, y, noise, freedom):
    """Return log p(y) (n,) in nats for y = f + s t, t a Student-t variable.

    f is N(mean, variance), arrays (n,). `noise` is s^2, a number or (n,), and `freedom`
    a number.
    """
    square, terms = (y - mean) ** 2, []
    g, log_weights = student_precisions(freedom)
    for one, log_weight in zip(g, log_weights, strict=True):
        total = variance + noise / one
        terms.append(log_weight + gaussian_log_density(square / total, np.log(total)))
    density = logsumexp(terms, axis=0)
    # far from the mean only precisions below all nodes matter, and f hardly does
    log_ratio = np.log1p(square / (freedom * noise))
    alone = student_log_density(log_ratio, np.log(noise), freedom)
    far = (freedom + 1.0) / (freedom + square / noise) < g[0]
    return np.where(far, np.maximum(density, alone), density)
