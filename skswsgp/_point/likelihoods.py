"""Likelihoods p(y | f_1..f_Q) for compiled code: expectations of log p, and slopes.

Expectations are those under Gaussian marginals f_q ~ N(mu_q, v_q). What the rest of the
package needs of a likelihood is in `likelihood_records`.
"""

import math
from typing import NamedTuple

import numpy as np

from skswsgp._compiled import special
from skswsgp._compiled.jit import njit_inline, njit_inner, njit_small

GAUSSIAN, BERNOULLI, SOFTMAX, LOGIT, POISSON, NEGATIVE_BINOMIAL, STUDENT_T = range(7)
MOST_LOG_RATE = 60.0  # logarithm of a Poisson rate from which it grows linearly


class Likelihood(NamedTuple):
    """A likelihood as compiled code reads it."""

    family: int  # code of the record
    joint: bool  # whether one label depends on all latent functions at once
    nodes: np.ndarray  # (1, n_nodes) Gauss-Hermite or (Q, n_nodes) standard normal
    weights: np.ndarray  # (n_nodes,), sum one
    prior_mean: np.ndarray  # (Q,) added to f before log p(y | f)
    shape: np.ndarray  # (Q,) further number of p(y | f), 0 where it has none


@njit_inner
def log_prob(family, shape, y, f):
    """Return log p(y | f) and its derivative by f, for one latent function.

    That of a negative binomial lacks the constant of `binomial_constant`.
    """
    if family == BERNOULLI:
        return log_prob_bernoulli(y, f)
    if family == LOGIT:
        return log_prob_logit(y, f)
    if family == NEGATIVE_BINOMIAL:
        return log_prob_negative_binomial(shape, y, f)
    return math.nan, math.nan


@njit_inner
def log_prob_bernoulli(y, f):
    """Return log Phi(y f) for y = -1 or 1, and its derivative by f."""
    log_p = special.log_ndtr(y * f)
    return log_p, y * math.exp(-0.5 * f * f - 0.5 * special.LOG_2PI - log_p)


@njit_inner
def log_prob_logit(y, f):
    """Return log 1 / (1 + exp(-y f)) for y = -1 or 1, and its derivative by f."""
    small = math.exp(-abs(y * f))
    log_p = (0.0 if y * f > 0.0 else y * f) - math.log1p(small)
    return log_p, y * math.exp(log_p - y * f)


@njit_inner
def log_prob_negative_binomial(size, y, f):
    """Return y t - (y + r) log(1 + exp(t)), t = f - log r, and its derivative by f.

    A count y of mean exp(f) has the variance exp(f) + exp(f)^2 / r, r being the size.
    Both results are computed in float64: for a large size, terms of its magnitude
    cancel each other and those of `binomial_constant`.
    """
    size = np.float64(size)
    t = np.float64(f) - math.log(size)
    small = math.exp(-abs(t))
    log_p = y * t - (y + size) * ((0.0 if t < 0.0 else t) + math.log1p(small))
    share = 1.0 / (1.0 + small)  # the larger one of those of t and -t
    return log_p, y - (y + size) * (share if t > 0.0 else small * share)


@njit_inner
def binomial_constant(size, y):
    """Return the part of log p(y) of a negative binomial that does not depend on f."""
    y, size = float(y), float(size)  # in float64, for the terms nearly cancel
    return math.lgamma(y + size) - math.lgamma(size) - math.lgamma(y + 1.0)


@njit_inline
def expected_log_prob(model, y, row, work):
    """Return E log p(y | prior_mean + f) of one row, f_q ~ N(mean_q, variance_q).

    That of a Student-t law is a lower bound. The moments are those of `work`.

    Sets the derivatives d_mean and d_variance of `work` and, where there is noise,
    d_noise by its logarithm. y[row] holds one target a latent function, or one label if
    all latent functions share it. The logarithm of the exposure follows after counts.
    """
    mean, variance = work.mean, work.variance
    d_mean, d_variance = work.d_mean, work.d_variance
    value = 0.0
    if model.joint:
        value = expected_softmax(
            model.nodes, model.weights, int(y[row, 0]), model.prior_mean, mean,
            variance, d_mean, d_variance, work.node_values,
        )  # fmt: skip
    else:
        Q = mean.shape[0]
        for q in range(Q):
            mu = model.prior_mean[q] + mean[q]
            if y.shape[1] > Q:
                mu += y[row, Q]  # the logarithm of the exposure
            if model.family == GAUSSIAN:
                residual, noise = y[row, q] - mean[q], model.noise[q]
                square, d_mean[q], d_variance[q], work.d_noise[q] = compiled_gaussian(
                    residual, variance[q], noise
                )
                value += special.compiled_log_density(square, math.log(noise))
            elif model.family == STUDENT_T:
                term, d_mean[q], d_variance[q], work.d_noise[q] = expected_student(
                    model.shape[q], model.noise[q], y[row, q] - mu, variance[q]
                )
                value += term
            elif model.family == POISSON:
                term, d_mean[q], d_variance[q] = expected_poisson(
                    y[row, q], mu, variance[q]
                )
                value += term
            else:
                term, d_mean[q], d_variance[q] = quadrature(
                    model, model.shape[q], y[row, q], mu, variance[q]
                )
                value += term
                if model.family == NEGATIVE_BINOMIAL:
                    value += binomial_constant(model.shape[q], y[row, q])
    return value


def expected_gaussian(residual, v, noise):
    """Return E (y - f)^2 / noise, f ~ N(y - residual, v), and slopes of E log p(y | f).

    These are by the mean, by v and by log noise. Arguments are numbers or arrays.
    """
    square = (residual * residual + v) / noise
    return square, residual / noise, -0.5 / noise, 0.5 * (square - 1.0)


compiled_gaussian = njit_small(expected_gaussian)


@njit_inner
def expected_student(freedom, noise, residual, v):
    """Return a lower bound of E log p(y | f), f ~ N(y - residual, v), and derivatives.

    These are by the mean and by v, and by log noise. A Student-t variable of scale
    sqrt(noise) is a normal one whose precision has a gamma distribution. The bound is
    that of the best approximate posterior of this precision, whose mean over 1 / noise
    is (nu + 1) / (nu + E (y - f)^2 / noise); at v = 0 it is log p(y | f).
    """
    square = residual * residual + v
    log_ratio = math.log1p(square / (freedom * noise))
    value = special.compiled_student_density(log_ratio, math.log(noise), freedom)
    precision = (freedom + 1.0) / (freedom * noise + square)
    slope = 0.5 * (precision * square - 1.0)
    return value, precision * residual, -0.5 * precision, slope


@njit_inner
def expected_poisson(y, mu, v):
    """Return E log p(y | f) for a count of rate exp(f), f ~ N(mu, v), and derivatives.

    These are by mu and v. From MOST_LOG_RATE on the expected rate grows linearly with
    the logarithm of itself, so that nothing overflows.
    """
    log_rate = mu + 0.5 * v
    # Comparisons keep NaN, which `min` of a GPU would lose
    capped = MOST_LOG_RATE if log_rate > MOST_LOG_RATE else log_rate
    slope = math.exp(capped)
    rate = slope * (1.0 + log_rate - capped)
    return y * mu - rate - math.lgamma(y + 1.0), y - slope, -0.5 * slope


@njit_inline
def quadrature(likelihood, shape, y, mu, v):
    """Return E log p(y | f), f ~ N(mu, v), and its derivatives by mu and v."""
    std = math.sqrt(v)
    value = 0.0
    d_mu = 0.0
    d_std = 0.0
    for i in range(likelihood.nodes.shape[1]):
        node = likelihood.nodes[0, i]
        log_p, d_f = log_prob(likelihood.family, shape, y, mu + std * node)
        value += likelihood.weights[i] * log_p
        d_mu += likelihood.weights[i] * d_f
        d_std += likelihood.weights[i] * d_f * node
    return value, d_mu, 0.5 * d_std / std


@njit_inner
def expected_softmax(
    nodes, weights, label, prior_mean, mean, variance, d_mean, d_variance, node_values
):
    """Return E log softmax(prior_mean + f)_label at the nodes, f ~ N(mean, variance).

    Sets d_mean and d_variance. node_values (Q + 2, n_nodes) takes f, then
    exp(f - largest f), in Q rows; the largest f; the sum of the exponentials.
    """
    Q, n_nodes = nodes.shape
    top, sums = Q, Q + 1
    for i in range(n_nodes):
        node_values[top, i] = -np.inf
        node_values[sums, i] = 0.0
    for q in range(Q):
        mu, std = prior_mean[q] + mean[q], math.sqrt(variance[q])
        for i in range(n_nodes):
            f = mu + std * nodes[q, i]
            node_values[q, i] = f
            node_values[top, i] = max(node_values[top, i], f)
    value = 0.0
    for i in range(n_nodes):
        value += weights[i] * (node_values[label, i] - node_values[top, i])
    for q in range(Q):
        for i in range(n_nodes):
            e = special.exponential(node_values[q, i] - node_values[top, i])
            node_values[q, i] = e
            node_values[sums, i] += e
    for i in range(n_nodes):
        value -= weights[i] * math.log(node_values[sums, i])
        node_values[sums, i] = weights[i] / node_values[sums, i]
    for q in range(Q):
        d_mu = 1.0 if q == label else 0.0
        d_std = 0.0  # the nodes sum to zero, so that the label adds nothing
        for i in range(n_nodes):
            probability = node_values[q, i] * node_values[sums, i]
            d_mu -= probability
            d_std -= probability * nodes[q, i]
        d_mean[q] = d_mu
        d_variance[q] = 0.5 * d_std / math.sqrt(variance[q])
    return value
