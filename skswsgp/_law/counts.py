"""The law of counts of the rate exp(f), where f is Gaussian.

An observation y has the p(y | f) of `log_rates` for f ~ N(mean, variance). Means and
deviations have closed forms; probabilities are integrals over f by quadrature.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from skswsgp._point import log_rates
from skswsgp._point.likelihoods import MOST_LOG_RATE

# Nodes of the probability of at most k, and how many deviations of f they reach. They
# are evenly spaced, for the integrand is narrow where k is large.
GRID_SIZE, REACH = 128, 7.0
SCORE_NODES = 200  # most counts on either side of y for which F is computed
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
        center, square = log_rates.log_threshold_moments(whole, self.size)
        spread, std = np.sqrt(square), np.sqrt(self.latent_variance)
        total = ndtr((center - self.latent_mean) / np.hypot(spread, std))
        nodes = np.linspace(-REACH, REACH, GRID_SIZE)
        weights = np.exp(-0.5 * nodes**2)
        for node, weight in zip(nodes, weights / weights.sum(), strict=True):
            f = self.latent_mean + std * node
            given = log_rates.cdf(f, whole, self.size)
            total += weight * (given - ndtr((center - f) / spread))
        return np.where(k < 0.0, 0.0, np.clip(total, 0.0, 1.0))

    def quantiles(self, probabilities):
        """Return the quantiles (n, Q, P), whole numbers, of P probabilities.

        Each is the smallest count that is not exceeded with this probability.
        """
        return np.stack([self._quantile(p) for p in probabilities], axis=-1)

    def _quantile(self, probability):
        """Return a quantile (n, Q), for which a range is found first."""
        f = self.latent_mean + np.sqrt(self.latent_variance) * ndtri(probability)
        low = np.full(f.shape, -1.0)
        high = np.ceil(np.exp(np.minimum(f, MOST_LOG_RATE))) + 1.0
        while True:
            short = (self.cdf(high) < probability) & (high < np.exp(MOST_LOG_RATE))
            if not short.any():
                break
            low, high = np.where(short, high, low), np.where(short, 2.0 * high, high)
        while True:
            middle = np.floor(0.5 * (low + high))
            if np.all((middle == low) | (middle == high)):  # or no number is between
                return high
            below = self.cdf(middle) < probability
            low, high = np.where(below, middle, low), np.where(below, high, middle)

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
            n_nodes = min(SCORE_NODES, int(np.max(width, initial=0.0)))
            # at most one count between two edges where there are enough nodes
            shares = np.arange(n_nodes + 1) / max(n_nodes, 1)
            edges = [start + np.round(share * width) for share in shares]
            for left, right in pairwise(edges):
                middle = np.floor(0.5 * (left + right - 1.0))
                total += (right - left) * (self.cdf(middle) - step) ** 2
        return total


def require_counts(y, likelihood):
    """Return y; raise ValueError unless all values are non-negative whole numbers."""
    wrong = (y < 0.0) | (y != np.floor(y))
    if np.any(wrong):
        raise ValueError(
            f"y holds {y[wrong].flat[0]:g} with likelihood={likelihood!r}: expected "
            "counts, which are whole numbers and not negative; pass the exposure of "
            "rates as exposure, or use likelihood='gaussian' for other numbers."
        )
    return y
