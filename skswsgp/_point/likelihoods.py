"""Likelihoods p(y | f_1..f_Q): expectations under Gaussian marginals, and derivatives.

To add one: a code, its `log_prob` with the derivative by f (and by its parameter), a
branch in `expected_log_prob` (`quadrature` serves every likelihood of one latent
function), a name in `CODES`, and a row in tests/reference.py.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from skswsgp._compiled.jit import njit, njit_inline
from skswsgp._compiled.special import LOG_2PI, exponential, log_ndtr
from skswsgp._compiled.team import once, team_range, team_sum

GAUSSIAN, BERNOULLI, SOFTMAX = 0, 1, 2
CODES = {"gaussian": GAUSSIAN, "bernoulli": BERNOULLI, "softmax": SOFTMAX}


class Likelihood(NamedTuple):
    """A likelihood as data, with the nodes of its quadrature."""

    family: int
    nodes: np.ndarray  # (1, n_nodes) Gauss-Hermite or (Q, n_nodes) standard normal
    weights: np.ndarray  # (n_nodes,), sum one


def make_likelihood(name, n_latent, dtype):
    """Return the `Likelihood` for a name of `CODES`.

    One latent function uses 20 Gauss-Hermite nodes, several the antithetic
    quasi-Monte Carlo nodes of `normal_nodes`.
    """
    if name == "softmax":
        nodes = np.ascontiguousarray(normal_nodes(128, n_latent).T)
        weights = np.full(nodes.shape[1], 1.0 / nodes.shape[1])
    else:
        x, w = np.polynomial.hermite.hermgauss(20)
        nodes, weights = math.sqrt(2.0) * x[None], w / math.sqrt(math.pi)
    return Likelihood(CODES[name], nodes.astype(dtype), weights.astype(dtype))


def normal_nodes(n_nodes, n_dims):
    """Return `n_nodes` standard normal Sobol points and mirror images, (n_nodes, D)."""
    sobol = qmc.Sobol(n_dims, scramble=True, rng=np.random.default_rng(0))
    half = ndtri(sobol.random(n_nodes // 2))
    return np.concatenate([half, -half])


@njit
def log_prob_bernoulli(y, f):
    """Return log Phi(y f) for y = -1 or 1, and its derivative by f."""
    log_p = log_ndtr(y * f)
    return log_p, y * math.exp(-0.5 * f * f - 0.5 * LOG_2PI - log_p)


@njit_inline
def quadrature(likelihood, y, mu, v):
    """E log p(y|f), f ~ N(mu, v), by Gauss-Hermite, and derivatives by mu and v."""
    std = math.sqrt(v)
    value = 0.0
    d_mu = 0.0
    d_std = 0.0
    for i in range(likelihood.nodes.shape[1]):
        node = likelihood.nodes[0, i]
        log_p, d_f = log_prob_bernoulli(y, mu + std * node)
        value += likelihood.weights[i] * log_p
        d_mu += likelihood.weights[i] * d_f
        d_std += likelihood.weights[i] * d_f * node
    return value, d_mu, 0.5 * d_std / std


@njit
def expected_softmax(nodes, weights, label, latent, scratch):
    """E log softmax(f)_label over f_q ~ N(mu_q, v_q) at the nodes; see below.

    scratch (Q + 2, n_nodes) takes f, then exp(f - largest f), the largest, the sum.
    """
    Q, n_nodes = nodes.shape
    top, sums = Q, Q + 1
    for i in team_range(0, n_nodes):
        scratch[top, i] = -np.inf
        scratch[sums, i] = 0.0
    for q in range(Q):
        mu, std = latent[0, q], math.sqrt(latent[1, q])
        for i in team_range(0, n_nodes):
            f = mu + std * nodes[q, i]
            scratch[q, i] = f
            scratch[top, i] = max(scratch[top, i], f)
    value = 0.0
    for i in team_range(0, n_nodes):
        value += weights[i] * (scratch[label, i] - scratch[top, i])
    for q in range(Q):
        for i in team_range(0, n_nodes):
            e = exponential(scratch[q, i] - scratch[top, i])
            scratch[q, i] = e
            scratch[sums, i] += e
    for i in team_range(0, n_nodes):
        value -= weights[i] * math.log(scratch[sums, i])
        scratch[sums, i] = weights[i] / scratch[sums, i]
    for q in range(Q):
        d_mu = once(1.0 if q == label else 0.0)
        d_std = 0.0  # the nodes sum to zero
        for i in team_range(0, n_nodes):
            share = scratch[q, i] * scratch[sums, i]
            d_mu -= share
            d_std -= share * nodes[q, i]
        latent[2, q] = team_sum(d_mu)
        latent[3, q] = 0.5 * team_sum(d_std) / math.sqrt(latent[1, q])
    return team_sum(value)


@njit_inline
def expected_log_prob(likelihood, noise, y, row, latent, scratch, d_noise):
    """Return E_q log p(y | f) of one point; set its derivatives.

    y[row] holds one value a latent function (Gaussian), a sign (Bernoulli) or a class
    index (softmax). latent (4, Q) holds mu and v and takes the derivatives by them,
    d_noise (Q,) those by log noise. Gaussian:
    -1/2 sum_q [log(2 pi noise_q) + ((y_q - mu_q)^2 + v_q) / noise_q].
    """
    value = 0.0
    if likelihood.family == GAUSSIAN:
        for q in range(latent.shape[1]):
            residual = y[row, q] - latent[0, q]
            square = (residual * residual + latent[1, q]) / noise[q]
            value -= 0.5 * (LOG_2PI + math.log(noise[q]) + square)
            latent[2, q] = residual / noise[q]
            latent[3, q] = -0.5 / noise[q]
            d_noise[q] = 0.5 * (square - 1.0)
    elif likelihood.family == BERNOULLI:
        value, latent[2, 0], latent[3, 0] = quadrature(
            likelihood, y[row, 0], latent[0, 0], latent[1, 0]
        )
    else:
        nodes, weights = likelihood.nodes, likelihood.weights
        value = expected_softmax(nodes, weights, int(y[row, 0]), latent, scratch)
    return value


from scipy.special import ndtr, softmax  # temporary


class _Record:
    def __init__(self, name):
        self.name, self.code, self.conjugate = name, CODES[name], name == "gaussian"

    def regression_targets(self, y, n_latent):
        if self.name != "softmax":
            return y
        t = (y == np.arange(n_latent)).astype(y.dtype)
        t -= t.mean(axis=0)
        return t

    def probabilities(self, mu, v):
        if mu.shape[1] == 1:
            argument = mu[:, 0] / np.sqrt(1.0 + v[:, 0])
            return np.stack([ndtr(-argument), ndtr(argument)], axis=1)
        total = np.zeros_like(mu)
        std = np.sqrt(v)
        for node in normal_nodes(256, mu.shape[1]).astype(mu.dtype):
            total += softmax(mu + std * node, axis=1)
        return total / total.sum(axis=1, keepdims=True)

    def log_density(self, mu, v, y, noise):
        if self.conjugate:
            variance = v + noise
            return (
                -0.5
                * (math.log(2 * math.pi) + np.log(variance) + (y - mu) ** 2 / variance)
            ).sum(axis=1)
        labels = y[:, 0].astype(int)
        if mu.shape[1] == 1:
            labels = (labels + 1) // 2
        proba = self.probabilities(mu, v)[np.arange(len(labels)), labels]
        return np.log(np.maximum(proba, np.finfo(proba.dtype).tiny))


LIKELIHOODS = {name: _Record(name) for name in CODES}
