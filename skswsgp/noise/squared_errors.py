"""The likelihood of squared errors, from which the process of the noise is learned."""

import numpy as np
from scipy.special import digamma, polygamma

from skswsgp._point.likelihood_records import LIKELIHOODS, Poisson


class SquaredErrors(Poisson):
    """Squares of errors whose precision is exp(f), which read like Poisson counts.

    The log density of k normal errors of precision p, whose squares sum to s, is
    (k / 2) log p - p s / 2 and a constant: that of a count k / 2 of rate p and of
    exposure s / 2. Targets (n, 2) hold k / 2 and log(s / 2).
    """

    name, counts = "squared_errors", False

    def targets(self, squares):
        """Return the targets of rows with the squares (n, k)."""
        # a square of zero would be an error that no noise could have made
        half_sum = np.maximum(0.5 * squares.sum(axis=1), np.finfo(np.float32).tiny)
        return np.stack(
            [np.full(len(squares), 0.5 * squares.shape[1]), np.log(half_sum)], axis=1
        )

    def regression_targets(self, y, n_latent):
        """Return centred logarithms (n, 1) of precisions, without their bias."""
        half, log_sum = y[:, :1], y[:, 1:]
        targets = digamma(half.astype(np.float64)) - log_sum
        return (targets - targets.mean(axis=0)).astype(y.dtype)

    def prior_mean(self, averages, variance):
        """Return the mean (1,) at which the expected variance 1 / p is the average."""
        return np.log(averages) + 0.5 * variance

    def first_sites(self, y, model):
        """Return precisions and means (n, 1) of normal laws of the moments of log p.

        Given the errors, and with a flat prior, p has a gamma distribution.
        """
        half, log_sum = y[:, :1].astype(np.float64), y[:, 1:]
        mean = digamma(half) - log_sum - model.prior_mean
        return 1.0 / polygamma(1, half), mean


LIKELIHOODS["squared_errors"] = SquaredErrors()
