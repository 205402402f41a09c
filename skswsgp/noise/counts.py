"""The law of counts of the rate exp(f), where f is Gaussian.

An observation y has the p(y | f) of `log_rates` for f ~ N(mean, variance). Means and
deviations have closed forms; probabilities are integrals over f by quadrature.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import betainc, digamma, gammaincc, ndtr, ndtri, polygamma

from skswsgp._compiled.threads import ROWS_AT_ONCE, row_blocks
from skswsgp._linear.site_rows import SiteRows
from skswsgp._point import log_rates
from skswsgp._point.likelihoods import MOST_LOG_RATE
from skswsgp._solvers.progress import warn_caller

# Nodes of the integral over f for the probability of at most k, and of the sum over
# counts on either side of y for a score. The former are evenly spaced, for the
# integrand is narrow where k is large.
N_NODES = 200
REACH = 7.0  # deviations of f up to which there are nodes
TAIL = 1e-7  # probability left out at either end of these counts


class Counts(NamedTuple):
    """The law at n rows, for Q outputs, each of which has its own f."""

    latent_mean: np.ndarray  # (n, Q) of f
    latent_variance: np.ndarray  # (n, Q) of f
    size: np.ndarray  # (Q,) of negative binomials, infinite for Poisson counts

    @property
    def mean(self):
        """The expected counts (n, Q)."""
        log_rate = self.latent_mean + 0.5 * self.latent_variance
        return np.exp(np.minimum(log_rate, MOST_LOG_RATE))

    def deviation(self):
        """Return the standard deviations (n, Q) of counts."""
        mean, v = self.mean, np.minimum(self.latent_variance, MOST_LOG_RATE)
        return np.sqrt(mean + mean**2 * (np.expm1(v) + np.exp(v) / self.size))

    def moments(self, scale):
        """Return mean and deviation (n, Q) of counts, whose scale is that of y."""
        return self.mean, self.deviation()

    def log_density(self, y):
        """Return the log probability (n, Q) of counts y (n, Q), in nats."""
        return log_rates.expected_log_probability(
            self.latent_mean, self.latent_variance, y, self.size
        )

    def cdf(self, k):
        """Return the probabilities (n, Q) of counts of at most k (n, Q), whole numbers.

        Given f it is the probability of a variable above f. The integral over f for the
        normal law with the moments of that variable is exact, and quadrature adds the
        rest, which is small and smooth.
        """
        whole = np.maximum(k, 0.0)
        center, square = log_threshold_moments(whole, self.size)
        spread, std = np.sqrt(square), np.sqrt(self.latent_variance)
        total = ndtr((center - self.latent_mean) / np.hypot(spread, std))
        nodes = np.linspace(-REACH, REACH, N_NODES)
        weights = np.exp(-0.5 * nodes**2)
        weights /= weights.sum()
        for part in row_blocks(N_NODES, 1 + ROWS_AT_ONCE // (1 + total.size)):
            f = self.latent_mean + np.multiply.outer(nodes[part], std)
            given = probability_of_at_most(whole, f, self.size)
            rest = given - ndtr((center - f) / spread)
            terms = [total[None], (weights[part] * rest.T).T]
            # in the same order whatever the number of rows
            total = np.cumsum(np.concatenate(terms), axis=0)[-1]
        return np.where(k < 0.0, 0.0, np.clip(total, 0.0, 1.0))

    def quantiles(self, probabilities):
        """Return the quantiles (n, Q, P), whole numbers, of P probabilities.

        Each is the smallest count that is not exceeded with this probability.
        """
        shape = (*self.latent_mean.shape, len(probabilities))
        parts = *(part[..., None] for part in self), np.asarray(probabilities)
        *law, p = (np.broadcast_to(part, shape).ravel() for part in parts)
        return Counts(*law)._quantiles(p).reshape(shape)

    def _quantiles(self, p):
        """Return quantiles (N,) of as many laws, by steps that grow and then halve."""
        most, step, k = np.exp(MOST_LOG_RATE), 1.0, np.zeros(p.shape)
        for _ in range(4):  # to where a normal law with moments of L ends, see `cdf`
            center, square = log_threshold_moments(k, self.size)
            f = self.latent_mean + np.sqrt(self.latent_variance + square) * ndtri(p)
            k = (k + 0.5) * np.exp(np.minimum(f - center, MOST_LOG_RATE)) - 0.5
            k = np.floor(np.clip(k, 0.0, most))
        low, high = np.full(k.shape, -1.0), np.full(k.shape, 2.0 * most)
        rows = np.arange(len(k))  # those whose quantile is still between two counts
        while len(rows) > 0:
            law, at = Counts(*(part[rows] for part in self)), k[rows]
            short = (law.cdf(at) < p[rows]) & (at < most)
            low[rows[short]], high[rows[~short]] = at[short], at[~short]
            middle = np.floor(0.5 * (low + high))
            up, down = np.minimum(low + step, middle), np.maximum(high - step, middle)
            k, step = np.where(low == k, up, down), 4.0 * step
            rows = np.flatnonzero((middle > low) & (middle < high))
        return high

    def crps(self, y, scale=None):
        """Return the ranked probability score (n, Q) of y (n, Q).

        Counts keep their scale, whatever `scale` is. The score is the sum of
        (F(k) - [k >= y])^2 over counts k. Where many counts are likely, F is taken at
        some of them for those around.
        """
        low, high = np.moveaxis(self.quantiles([TAIL, 1.0 - TAIL]), -1, 0)
        low, high = np.minimum(low, y), np.maximum(high, y)
        total = np.zeros(y.shape)
        # the sum up to y - 1 of F^2, and from y on of (1 - F)^2
        for start, width, step in ((low, y - low, 0.0), (y, high + 1.0 - y, 1.0)):
            n_nodes = min(N_NODES, int(np.max(width, initial=0.0)))
            # at most one count between two edges where there are enough nodes
            shares = np.arange(n_nodes + 1) / max(n_nodes, 1)
            edges = [start + np.round(share * width) for share in shares]
            for left, right in pairwise(edges):
                middle = np.floor(0.5 * (left + right - 1.0))
                total += (right - left) * (self.cdf(middle) - step) ** 2
        return total


def warn_of_large_counts(solver):
    """Warn where the jitter of K, as small as rounding allows, widens intervals.

    A count tells f but for the variance of its site. What the jitter adds to q(f) is at
    most the jitter itself, and intervals are wider by the root of one plus its ratio to
    that variance: by 5 % where the ratio is 0.1. Beyond, the shape of a negative
    binomial is too small as well.
    """
    model, sites = solver.engine.model, solver.sites
    if not isinstance(sites, SiteRows):
        return
    precision, _ = sites.record.first_sites(sites.y, model)
    if sites.rows.at is None:
        _, added = sites.marginals(model.m, model.L if model.full else model.s)
    else:  # values at points contain the jitter of K, and predictions do not
        _, added = solver.predict(solver.data.inputs)
    added = np.minimum(added, model.jitter * solver.prior_variance)
    if np.median(precision * added) > 0.1:
        usual = np.median(sites.y[:, : model.m.shape[1]])
        warn_caller(
            f"counts near {usual:.1g} tell more of their rates than rounding leaves: "
            "intervals are wider than those of the law; use likelihood='gaussian' "
            "with y_transform='log' for such counts.",
        )


def probability_of_at_most(k, f, size):
    """Return the probability of a count of at most k >= 0, given f."""
    rate, poisson = np.exp(np.minimum(f, MOST_LOG_RATE)), np.isinf(size)
    if np.all(poisson):
        return gammaincc(k + 1.0, rate)
    rest = np.where(poisson, 1.0, size)
    found = betainc(rest, k + 1.0, rest / (rest + rate))
    if np.any(poisson):
        found = np.where(poisson, gammaincc(k + 1.0, rate), found)
    return found


def log_threshold_moments(k, size):
    """Return mean and variance of L, where `probability_of_at_most` is that of L > f.

    L is the logarithm of a gamma variable of shape k + 1, less that of the gamma
    variable of mean 1 which multiplies the rate.
    """
    infinite = np.isinf(size)
    rest = np.where(infinite, 1.0, size)
    mean = digamma(k + 1.0) - np.where(infinite, 0.0, digamma(rest))
    mean = mean + np.where(infinite, 0.0, np.log(rest))
    variance = polygamma(1, k + 1.0)
    return mean, variance + np.where(infinite, 0.0, polygamma(1, rest))
