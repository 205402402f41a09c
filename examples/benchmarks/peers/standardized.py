"""Regressors whose packages expect standardised X and y."""

from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.preprocessing import StandardScaler


class Standardized(RegressorMixin, BaseEstimator):
    """Standardise X and y, and predict in the units of y.

    Subclasses have `_fit(X, y)` and `_moments(X)`, the means and variances of new
    observations, both of standardised data.
    """

    def __init__(self, n_threads=1, random_state=0):
        self.n_threads = n_threads
        self.random_state = random_state

    def fit(self, X, y):
        """Fit standardised rows."""
        self.scaler_ = StandardScaler().fit(X)
        self.y_mean_, self.y_scale_ = y.mean(), y.std()
        self._fit(self.scaler_.transform(X), (y - self.y_mean_) / self.y_scale_)
        return self

    def predict(self, X, return_std=False):
        """Return mean and standard deviation in units of y, noise included."""
        mean, variance = self._moments(self.scaler_.transform(X))
        mean = self.y_mean_ + self.y_scale_ * mean
        return (mean, self.y_scale_ * variance**0.5) if return_std else mean
