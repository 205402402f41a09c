"""Gradient boosting with a model for means and one for each of some quantiles."""

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone

LEVELS = 0.05, 0.25, 0.5, 0.75, 0.95


class QuantileBoosting(RegressorMixin, BaseEstimator):
    """Levels between those of the models are interpolated, those beyond are cut.

    `settings` makes `boosting` one of quantiles, whose level is its parameter `level`.
    """

    def __init__(self, boosting, settings, level, levels=LEVELS):
        self.boosting = boosting
        self.settings = settings
        self.level = level
        self.levels = levels

    def fit(self, X, y):
        """Fit all models to the same rows."""
        self.mean_ = clone(self.boosting).fit(X, y)
        self.models_ = []
        for level in self.levels:
            model = clone(self.boosting).set_params(**self.settings)
            self.models_.append(model.set_params(**{self.level: level}).fit(X, y))
        return self

    def predict(self, X, quantiles=None):
        """Return means, or quantiles of shape (n_samples, n_quantiles)."""
        if quantiles is None:
            return self.mean_.predict(X)
        own = np.sort(np.stack([model.predict(X) for model in self.models_], axis=1))
        return np.stack([np.interp(quantiles, self.levels, row) for row in own])
