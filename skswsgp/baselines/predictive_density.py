"""log p(y | u) of a row whose f is N(mu, F) given u, and its derivatives.

The exact logarithm of the expectation over f is that of FITC, where rows are
independent given u. The expectation of the logarithm is that of VFE, a lower bound.
Predictions from several u are a mixture.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, log_softmax, logsumexp, ndtr, ndtri, softmax

from skswsgp._compiled.special import LOG_2PI, gaussian_log_density
from skswsgp._law.law import quantiles_between
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._point.likelihoods import expected_gaussian


class RowDensity:
    """The density of a row for Gaussian noise, or for classes by name of likelihood.

    With `exact` it is the logarithm of an expectation, else the other way round.
    """

    def __init__(self, name, n_latent, exact):
        self.name, self.n_latent, self.exact = name, n_latent, exact
        nodes, weights = LIKELIHOODS[name].make_nodes(n_latent)
        self.nodes, self.weights = nodes.T[None], weights[:, None]  # (1, K, Q), (K, 1)

    def __call__(self, y, mu, F, noise):
        """Return values (n,), and derivatives by mu, F and log noise.

        y are encoded targets, mu is (n, Q), F (n,) one positive variance for all
        functions, and noise (Q,), empty for classes. Derivatives by noise are (n, Q).
        """
        if self.name == "gaussian":
            value, d_mu, d_F, d_noise = self._gaussian(y - mu, F[:, None], noise)
            return value.sum(axis=1), d_mu, d_F.sum(axis=1), d_noise
        if self.name == "bernoulli" and self.exact:
            found = self._probit(y, mu, F[:, None])
        else:
            found = self._at_nodes(y, mu, np.sqrt(F)[:, None])
        return *found, np.zeros((len(y), 0))

    def _gaussian(self, residual, F, noise):
        if not self.exact:
            square, d_mu, d_F, d_noise = expected_gaussian(residual, F, noise)
            value = gaussian_log_density(square, np.log(noise))
            return value, d_mu, np.broadcast_to(d_F, d_mu.shape), d_noise
        total = F + noise
        square = residual**2 / total
        d_F = 0.5 * (square - 1.0) / total
        value = gaussian_log_density(square, np.log(total))
        return value, residual / total, d_F, noise * d_F

    def _probit(self, y, mu, F):
        """Return log Phi(y mu / sqrt(1 + F)) and its derivatives."""
        std = np.sqrt(1.0 + F)
        value, slope = log_probit(y, mu / std)
        return value[:, 0], slope / std, -0.5 * (slope * mu / std**3)[:, 0]

    def _at_nodes(self, y, mu, std):
        """Return the density by quadrature over f = mu + std node, and derivatives."""
        f = mu[:, None] + std[:, None] * self.nodes  # (n, K, Q)
        if self.name == "bernoulli":
            log_p, d_f = log_probit(y[:, None], f)
        else:
            one_hot = (y == np.arange(mu.shape[1]))[:, None]
            logs = log_softmax(f, axis=2)
            log_p = np.sum(logs, axis=2, where=one_hot, keepdims=True)
            d_f = one_hot - np.exp(logs)
        if self.exact:
            joint = log_p + np.log(self.weights)
            value, share = logsumexp(joint, axis=1), softmax(joint, axis=1)
        else:
            value, share = np.sum(self.weights * log_p, axis=1), self.weights
        d_f = share * d_f
        d_std = np.sum(d_f * self.nodes, axis=(1, 2))
        return value[:, 0], d_f.sum(axis=1), 0.5 * d_std / std[:, 0]


class GaussianMixture(NamedTuple):
    """Equal parts of S Gaussians, of n observations of Q outputs."""

    mean: np.ndarray  # (S, n, Q)
    variance: np.ndarray  # (S, n, Q)

    def moments(self):
        """Return mean and variance, (n, 2, Q)."""
        variance = self.variance.mean(axis=0) + self.mean.var(axis=0)
        return np.stack([self.mean.mean(axis=0), variance], axis=1)

    def log_density(self, y):
        """Return the log density (n, Q) of y (n, Q)."""
        squares = (y - self.mean) ** 2 / self.variance
        logs = gaussian_log_density(squares, np.log(self.variance))
        return logsumexp(logs, axis=0) - np.log(len(logs))

    def quantiles(self, probabilities):
        """Return the quantiles (n, Q, P) of an array of P probabilities."""
        found = np.empty((*self.mean.shape[1:], len(probabilities)))
        for q in range(found.shape[1]):
            mean, std = self.mean[:, :, q], np.sqrt(self.variance[:, :, q])

            def cdf(y, rows, mean=mean, std=std):
                return ndtr((y - mean[:, rows]) / std[:, rows]).mean(axis=0)

            for p, probability in enumerate(
                probabilities
            ):  # between those of the parts
                parts, more = mean + std * ndtri(probability), std.max(axis=0)
                ends = parts.min(axis=0) - more, parts.max(axis=0) + more
                found[:, q, p] = quantiles_between(cdf, probability, *ends)
        return found


def log_probit(y, f):
    """Return log Phi(y f) for y = -1 or 1, and its derivative by f."""
    log_p = log_ndtr(y * f)
    return log_p, y * np.exp(-0.5 * (f * f + LOG_2PI) - log_p)
