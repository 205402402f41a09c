"""NGBoost with its defaults: natural gradients of the likelihood of a law."""

import numpy as np
from ngboost import NGBRegressor
from ngboost.distns import LogNormal
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator, RegressorMixin


class NGBoost(RegressorMixin, BaseEstimator):
    """Give means and deviations by the names of scikit-learn; one thread."""

    def __init__(self, n_threads=1, random_state=0):
        self.n_threads = n_threads
        self.random_state = random_state

    def fit(self, X, y):
        """Fit the package's model."""
        model = NGBRegressor(random_state=self.random_state, verbose=False)
        self.model_ = model.fit(X, y)
        return self

    def predict(self, X, return_std=False):
        """Return mean and standard deviation in units of y, noise included."""
        law = self.model_.pred_dist(X)
        return (law.loc, law.scale) if return_std else law.loc


class LogNormalNGBoost(RegressorMixin, BaseEstimator):
    """The logarithm of y, which is positive, is a Gaussian; one thread."""

    def __init__(self, n_threads=1, random_state=0):
        self.n_threads = n_threads
        self.random_state = random_state

    def fit(self, X, y):
        """Fit the package's model to X (n_samples, n_features), y (n_samples,)."""
        options = {"random_state": self.random_state, "verbose": False}
        self.model_ = NGBRegressor(Dist=LogNormal, **options).fit(X, y)
        return self

    def predict(self, X, quantiles=None):
        """Return means of the law, or quantiles (n_samples, n_quantiles)."""
        law = self.model_.pred_dist(X)
        if quantiles is None:
            return law.dist.mean()
        return np.exp(law.loc[:, None] + law.scale[:, None] * ndtri(quantiles))

    def log_predictive_density(self, X, y):
        """Return log densities (n_samples,) of y; rows of 0 or less have -inf."""
        return self.model_.pred_dist(X).dist.logpdf(y)

    def _crps(self, X, y):
        """Return ranked probability scores (n_samples,), by which scorers know a law.

        With z = (log y - m) / s, y (2 Phi(z) - 1) - 2 E[y] (Phi(z - s) + Phi(s / sqrt
        2) - 1); Phi is the distribution function of a Gaussian.
        """
        law = self.model_.pred_dist(X)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = (np.log(np.maximum(y, 0.0)) - law.loc) / law.scale
        both = ndtr(z - law.scale) + ndtr(law.scale / np.sqrt(2.0)) - 1.0
        return y * (2.0 * ndtr(z) - 1.0) - 2.0 * law.dist.mean() * both
