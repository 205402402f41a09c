"""Likelihoods p(y | f_1..f_Q): functions for compiled code, and a record for Python.

Functions give the expectation of log p under Gaussian marginals f_q ~ N(mu_q, v_q) with
its derivatives. The records of `LIKELIHOODS` hold all that the rest of the package
needs of a likelihood; doc/developer/add_likelihood.md says how to add one.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, gammaln, logsumexp, ndtr, ndtri, softmax
from scipy.stats import qmc

from skswsgp._compiled import special
from skswsgp._compiled.jit import njit, njit_inline
from skswsgp._compiled.team import once, team_range, team_sum

GAUSSIAN, BERNOULLI, SOFTMAX, LOGIT, POISSON = range(5)
HERMITE_NODES = 20  # Gauss-Hermite nodes for one latent function
COUNT_NODES = 40  # those of the probability of a count
LOGIT_NODES = 64  # Gauss-Hermite nodes for probabilities under a logit link
LOGIT_SCALE = 1.702  # Phi(f / 1.702) is expit(f) to 0.01
SOFTMAX_NODES = 128  # quasi-Monte Carlo nodes for the latent functions of all classes
MOST_LOG_RATE = 60.0  # logarithm of a Poisson rate from which it grows linearly
NEWTON_STEPS, NEWTON_TOLERANCE = 100, 1e-9  # `poisson_log_probability`
LEAST_VARIANCE = 1e-12  # of f, there
MEAN_STEPS, MEAN_TOLERANCE = 500, 1e-5  # steps, log probability: `Softmax.prior_mean`

# --- compiled -------------------------------------------------------------------------


class Likelihood(NamedTuple):
    """A likelihood as compiled code reads it."""

    family: int  # code of the record
    joint: bool  # whether one label depends on all latent functions at once
    nodes: np.ndarray  # (1, n_nodes) Gauss-Hermite or (Q, n_nodes) standard normal
    weights: np.ndarray  # (n_nodes,), sum one
    prior_mean: np.ndarray  # (Q,) added to f before log p(y | f)


@njit
def log_prob(family, y, f):
    """Return log p(y | f) and its derivative by f, for one latent function."""
    if family == BERNOULLI:
        return log_prob_bernoulli(y, f)
    if family == LOGIT:
        return log_prob_logit(y, f)
    return math.nan, math.nan


@njit
def log_prob_bernoulli(y, f):
    """Return log Phi(y f) for y = -1 or 1, and its derivative by f."""
    log_p = special.log_ndtr(y * f)
    return log_p, y * math.exp(-0.5 * f * f - 0.5 * special.LOG_2PI - log_p)


@njit
def log_prob_logit(y, f):
    """Return log 1 / (1 + exp(-y f)) for y = -1 or 1, and its derivative by f."""
    small = math.exp(-abs(y * f))
    log_p = min(y * f, 0.0) - math.log1p(small)
    return log_p, y * math.exp(log_p - y * f)


@njit_inline
def expected_log_prob(model, y, row, work):
    """Return E log p(y | prior_mean + f) of one row, f_q ~ N(mean_q, variance_q).

    The moments are those of `work`.

    Sets the derivatives d_mean and d_variance of `work` and, for a Gaussian, d_noise by
    log noise. y[row] holds one target a latent function, or one label if all latent
    functions share it.
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
        for q in range(mean.shape[0]):
            if model.family == GAUSSIAN:
                residual, noise = y[row, q] - mean[q], model.noise[q]
                square = (residual * residual + variance[q]) / noise
                value += special.compiled_log_density(square, math.log(noise))
                d_mean[q] = residual / noise
                d_variance[q] = -0.5 / noise
                work.d_noise[q] = 0.5 * (square - 1.0)
            elif model.family == POISSON:
                term, d_mean[q], d_variance[q] = expected_poisson(
                    y[row, q], model.prior_mean[q] + mean[q], variance[q]
                )
                value += term
            else:
                term, d_mean[q], d_variance[q] = quadrature(
                    model, y[row, q], model.prior_mean[q] + mean[q], variance[q]
                )
                value += term
    return value


@njit
def expected_poisson(y, mu, v):
    """Return E log p(y | f) for a count of rate exp(f), f ~ N(mu, v), and derivatives.

    These are by mu and v. From MOST_LOG_RATE on the expected rate grows linearly with
    the logarithm of itself, so that nothing overflows.
    """
    log_rate = mu + 0.5 * v
    capped = min(log_rate, MOST_LOG_RATE)
    slope = math.exp(capped)
    rate = slope * (1.0 + log_rate - capped)
    return y * mu - rate - math.lgamma(y + 1.0), y - slope, -0.5 * slope


@njit_inline
def quadrature(likelihood, y, mu, v):
    """Return E log p(y | f), f ~ N(mu, v), and its derivatives by mu and v."""
    std = math.sqrt(v)
    value = 0.0
    d_mu = 0.0
    d_std = 0.0
    for i in range(likelihood.nodes.shape[1]):
        node = likelihood.nodes[0, i]
        log_p, d_f = log_prob(likelihood.family, y, mu + std * node)
        value += likelihood.weights[i] * log_p
        d_mu += likelihood.weights[i] * d_f
        d_std += likelihood.weights[i] * d_f * node
    return value, d_mu, 0.5 * d_std / std


@njit
def expected_softmax(
    nodes, weights, label, prior_mean, mean, variance, d_mean, d_variance, node_values
):
    """Return E log softmax(prior_mean + f)_label at the nodes, f ~ N(mean, variance).

    Sets d_mean and d_variance. node_values (Q + 2, n_nodes) takes f, then
    exp(f - largest f), in Q rows; the largest f; the sum of the exponentials.
    """
    Q, n_nodes = nodes.shape
    top, sums = Q, Q + 1
    for i in team_range(0, n_nodes):
        node_values[top, i] = -np.inf
        node_values[sums, i] = 0.0
    for q in range(Q):
        mu, std = prior_mean[q] + mean[q], math.sqrt(variance[q])
        for i in team_range(0, n_nodes):
            f = mu + std * nodes[q, i]
            node_values[q, i] = f
            node_values[top, i] = max(node_values[top, i], f)
    value = 0.0
    for i in team_range(0, n_nodes):
        value += weights[i] * (node_values[label, i] - node_values[top, i])
    for q in range(Q):
        for i in team_range(0, n_nodes):
            e = special.exponential(node_values[q, i] - node_values[top, i])
            node_values[q, i] = e
            node_values[sums, i] += e
    for i in team_range(0, n_nodes):
        value -= weights[i] * math.log(node_values[sums, i])
        node_values[sums, i] = weights[i] / node_values[sums, i]
    for q in range(Q):
        d_mu = once(1.0 if q == label else 0.0)
        d_std = 0.0  # the nodes sum to zero, so that the label adds nothing
        for i in team_range(0, n_nodes):
            probability = node_values[q, i] * node_values[sums, i]
            d_mu -= probability
            d_std -= probability * nodes[q, i]
        d_mean[q] = team_sum(d_mu)
        d_variance[q] = 0.5 * team_sum(d_std) / math.sqrt(variance[q])
    return team_sum(value)


# --- records --------------------------------------------------------------------------


def normal_nodes(n_nodes, n_dims):
    """Return normal Sobol points and their mirror images, (n_nodes, n_dims)."""
    sobol = qmc.Sobol(n_dims, scramble=True, rng=np.random.default_rng(0))
    half = ndtri(sobol.random(n_nodes // 2))
    return np.concatenate([half, -half])


def gauss_hermite(n_nodes):
    """Return nodes and weights, each (n_nodes,), for means over N(0, 1)."""
    x, w = np.polynomial.hermite.hermgauss(n_nodes)
    return math.sqrt(2.0) * x, w / math.sqrt(math.pi)


def poisson_log_probability(mean, variance, y):
    """Return log p(y) of counts of rate exp(f), f ~ N(mean, variance), in nats.

    Arrays have one shape. Quadrature is around the largest integrand.
    """
    y = np.asarray(y, dtype=np.float64)
    mu, v = mean.astype(np.float64), np.maximum(variance, LEAST_VARIANCE)
    # Newton steps for a concave slope stay above its zero if they start there
    f = np.maximum(mu, np.log(np.maximum(y, np.finfo(float).tiny)))
    f = np.minimum(np.minimum(f, mu + v * y), MOST_LOG_RATE)
    for _ in range(NEWTON_STEPS):
        step = (y - np.exp(f) - (f - mu) / v) / (np.exp(f) + 1.0 / v)
        f = f + step
        if np.abs(step).max(initial=0.0) < NEWTON_TOLERANCE:
            break
    std = 1.0 / np.sqrt(np.exp(f) + 1.0 / v)  # of the normal law of this curvature
    terms = []
    for node, weight in zip(*gauss_hermite(COUNT_NODES), strict=True):
        at = f + std * node
        log_p = y * at - np.exp(at) - gammaln(y + 1.0)
        ratio = 0.5 * (node**2 - (at - mu) ** 2 / v - np.log(v))
        terms.append(log_p + ratio + np.log(weight * std))
    return logsumexp(terms, axis=0)


class LikelihoodRecord:
    """The properties of a likelihood; the defaults suit one latent function.

    Each has a `name` for users and a `code` for compiled functions. If it is conjugate,
    q(u) has a closed form: the sites are then the data, and each output has a noise
    variance. If it is joint, one label depends on all latent functions at once.
    """

    conjugate = False
    joint = False
    counts = False  # whether targets are counts, which are not standardised
    usual_variance = 9.0  # median of the prior of the kernel's variance

    def make_nodes(self, n_latent):
        """Return the quadrature: nodes (1 or n_latent, n) and weights (n,)."""
        nodes, weights = gauss_hermite(HERMITE_NODES)
        return nodes[None], weights

    def regression_targets(self, y, n_latent):
        """Return numbers (n, n_latent) for the targets y, to learn a kernel from."""
        return y

    def averages(self, y, weight, n_latent):
        """Return the weighted averages that `prior_mean` takes, or None."""
        return None

    def first_sites(self, y, prior_mean):
        """Return precisions and means (n, Q) of the first sites of f, or None.

        None stands for those at the q(f) that training starts from.
        """
        return None


class Gaussian(LikelihoodRecord):
    """y_q = f_q + N(0, noise_q); the expectation has a closed form."""

    name, code, conjugate = "gaussian", GAUSSIAN, True

    def make_nodes(self, n_latent):
        return np.zeros((1, 0)), np.zeros(0)

    def log_density(self, mean, variance, y, noise):
        """Return log p(y) (n,) in nats, summed over outputs, for f ~ N(mean, variance).

        mean, variance and y are (n, Q), noise is one variance or (Q,).
        """
        variance = variance + noise
        square = (y - mean) ** 2 / variance
        return special.gaussian_log_density(square, np.log(variance)).sum(axis=1)


class Poisson(LikelihoodRecord):
    """Counts y_q of rate exp(f_q); the expectation has a closed form."""

    name, code, counts = "poisson", POISSON, True
    usual_variance = 1.0  # counts seldom vary by more than a factor of exp(2)

    def make_nodes(self, n_latent):
        return np.zeros((1, 0)), np.zeros(0)

    def regression_targets(self, y, n_latent):
        """Return centred logarithms (n, n_latent) of counts."""
        targets = np.log(y + 0.5)
        return targets - targets.mean(axis=0)

    def averages(self, y, weight, n_latent):
        """Return the weighted mean count (n_latent,); half a count is the least sum."""
        total = weight.sum(dtype=np.float64)
        sums = np.maximum(weight.astype(np.float64) @ y, 0.5 * np.mean(weight))
        return sums / total

    def prior_mean(self, averages, variance):
        """Return the means (n_latent,) at which the expected counts are averages."""
        return np.log(averages) - 0.5 * variance

    def first_sites(self, y, prior_mean):
        """Return precisions and means (n, Q) of normal laws around log(y + 1 / 2).

        At the prior, a large count would ask for an f as large as itself.
        """
        y = y.astype(np.float64) + 0.5
        return y, np.log(y) - prior_mean

    def log_density(self, mean, variance, y, noise=None):
        """Return log p(y) (n,) in nats, summed over outputs, for f ~ N(mean, variance).

        Arrays are (n, Q).
        """
        return poisson_log_probability(mean, variance, y).sum(axis=1)


class ClassLikelihood(LikelihoodRecord):
    """Base of the likelihoods of labels, which have two classes unless they are joint.

    A subclass adds the method `probabilities(mean, variance)`, which returns
    (n, n_classes) for mean and variance (n, n_latent), and its inverse for one row,
    `prior_mean(shares, variance)`: where no data are near, the probabilities are the
    shares of the classes.
    """

    def averages(self, y, weight, n_latent):
        """Return the weighted fraction of each class; an absent one has half a row."""
        counts = np.bincount(self.decode(y), weight, max(2, n_latent))
        counts = np.maximum(counts, 0.5 * np.mean(weight))
        return counts / counts.sum()

    def count_latent(self, n_classes):
        """Return the number of latent functions."""
        return n_classes if self.joint else 1

    def encode(self, labels, n_classes):
        """Return class indices (n,) as targets (n, 1)."""
        return labels[:, None].astype(np.float64)

    def decode(self, y):
        """Return targets (n, 1) as class indices (n,)."""
        return y[:, 0].astype(int)

    def log_density(self, mean, variance, y, noise=None):
        """Return the log probability (n,) of the encoded labels y (n, 1), in nats.

        A probability counts as no less than the smallest positive number.
        """
        proba = self.probabilities(mean, variance)
        proba = proba[np.arange(len(y)), self.decode(y)]
        return np.log(np.maximum(proba, np.finfo(proba.dtype).tiny))


class Bernoulli(ClassLikelihood):
    """Two classes coded as -1 and 1, with a probit link: p(y | f) = Phi(y f)."""

    name, code = "bernoulli", BERNOULLI

    def encode(self, labels, n_classes):
        return 2.0 * labels[:, None] - 1.0

    def decode(self, y):
        return (y[:, 0] > 0).astype(int)

    def probabilities(self, mean, variance):
        """Return (n, 2), with Phi(mu / sqrt(1 + v)) for the second class."""
        argument = mean[:, 0] / np.sqrt(1.0 + variance[:, 0])
        return np.stack([ndtr(-argument), ndtr(argument)], axis=1)

    def prior_mean(self, shares, variance):
        """Return the mean (1,) at which the second class has its share."""
        return np.sqrt(1.0 + variance) * ndtri(shares[1:])


class Logit(Bernoulli):
    """Two classes coded as -1 and 1, with a logit link: p(y | f) = expit(y f)."""

    name, code = "logit", LOGIT

    def probabilities(self, mean, variance):
        """Return (n, 2), means of expit(-f) and expit(f) to 0.002.

        expit(f) is Phi(f / LOGIT_SCALE), whose mean is exact, and a small rest, whose
        mean is that over quadrature nodes. Nodes alone would be 0.03 off where
        the variance is 900.
        """
        std = np.sqrt(variance[:, 0])
        argument = mean[:, 0] / np.sqrt(LOGIT_SCALE**2 + variance[:, 0])
        no, yes = ndtr(-argument), ndtr(argument)
        for node, weight in zip(*gauss_hermite(LOGIT_NODES), strict=True):
            f = mean[:, 0] + std * mean.dtype.type(node)
            weight = mean.dtype.type(weight)
            no += weight * (expit(-f) - ndtr(-f / LOGIT_SCALE))
            yes += weight * (expit(f) - ndtr(f / LOGIT_SCALE))
        return np.maximum(np.stack([no, yes], axis=1), 0.0)

    def prior_mean(self, shares, variance):
        """Return the mean (1,) at which the second class has its share."""

        def excess(mean):
            moments = np.array([[mean]]), np.array([[variance]])
            return self.probabilities(*moments)[0, 1] - shares[1]

        bound = 1e3 + 20.0 * np.sqrt(variance)  # where one class is certain
        return np.array([brentq(excess, -bound, bound)])


class Softmax(ClassLikelihood):
    """Two classes or more, with a latent function each: p(y | f) = softmax(f)_y."""

    name, code, joint = "softmax", SOFTMAX, True

    def make_nodes(self, n_latent):
        nodes = np.ascontiguousarray(normal_nodes(SOFTMAX_NODES, n_latent).T)
        return nodes, np.full(SOFTMAX_NODES, 1.0 / SOFTMAX_NODES)

    def regression_targets(self, y, n_latent):
        """Return centred indicators (n, n_latent) of the classes."""
        targets = (y == np.arange(n_latent)).astype(y.dtype)
        return targets - targets.mean(axis=0)

    def probabilities(self, mean, variance):
        """Return (n, n_classes), the mean of softmax(f) over nodes of all rows."""
        total = np.zeros_like(mean)
        std = np.sqrt(variance)
        nodes = normal_nodes(SOFTMAX_NODES, mean.shape[1]).astype(mean.dtype)
        for node in nodes:
            total += softmax(mean + std * node, axis=1)
        return total / total.sum(axis=1, keepdims=True)

    def prior_mean(self, shares, variance):
        """Return the means (n_classes,) at which each class has its share."""
        # the contraction of Berry, Levinsohn and Pakes (Econometrica, 1995)
        noise = np.sqrt(variance) * normal_nodes(SOFTMAX_NODES, len(shares))
        mean = np.log(shares)
        for _ in range(MEAN_STEPS):
            step = np.log(shares / softmax(mean + noise, axis=1).mean(axis=0))
            mean += step
            if np.abs(step).max() < MEAN_TOLERANCE:
                break
        return mean - mean.mean()


RECORDS = Gaussian(), Bernoulli(), Softmax(), Logit(), Poisson()
LIKELIHOODS = {record.name: record for record in RECORDS}


def make_likelihood(name, n_latent, dtype, prior_mean=0.0):
    """Return the `Likelihood` for a name of `LIKELIHOODS`."""
    record = LIKELIHOODS[name]
    nodes, weights = record.make_nodes(n_latent)
    mean = np.zeros(n_latent, dtype) + np.asarray(prior_mean, dtype)
    return Likelihood(
        record.code, record.joint, nodes.astype(dtype), weights.astype(dtype), mean
    )
