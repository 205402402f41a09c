"""A random forest with quantiles, after Meinshausen (2006).

A training row weighs as much as the mean over trees of its share of the leaf that a
new row falls into. Quantiles are those of the training targets with these weights.
"""

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import RandomForestRegressor

ROWS_AT_ONCE = 256


class QuantileForest(RegressorMixin, BaseEstimator):
    """scikit-learn's forest, and quantiles of all training rows in its leaves."""

    def __init__(self, n_threads=1, random_state=0):
        self.n_threads = n_threads
        self.random_state = random_state

    def fit(self, X, y):
        """Grow the forest, and keep the leaf of each training row, sorted by y."""
        forest = RandomForestRegressor(
            n_jobs=self.n_threads, random_state=self.random_state
        )
        self.forest_ = forest.fit(X, y)
        order = np.argsort(y)
        self.y_, self.leaves_ = y[order], self.forest_.apply(X[order])
        return self

    def predict(self, X, quantiles=None):
        """Return means, or quantiles of shape (n_samples, n_quantiles)."""
        if quantiles is None:
            return self.forest_.predict(X)
        leaves = self.forest_.apply(X)
        parts = np.split(leaves, range(ROWS_AT_ONCE, len(X), ROWS_AT_ONCE))
        return np.concatenate([self._quantiles(part, quantiles) for part in parts])

    def _quantiles(self, leaves, levels):
        weights = np.zeros((len(leaves), len(self.y_)))
        for own, new in zip(self.leaves_.T, leaves.T, strict=True):
            sizes = np.bincount(own)
            weights += (new[:, None] == own) / sizes[new, None]
        shares = np.cumsum(weights, axis=1) / leaves.shape[1]
        at = np.stack([np.searchsorted(row, levels) for row in shares])
        return self.y_[np.minimum(at, len(self.y_) - 1)]
