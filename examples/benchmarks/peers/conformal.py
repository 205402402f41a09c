"""Conformalized quantile regression of MAPIE on scikit-learn's boosting."""

import numpy as np
from mapie.regression import ConformalizedQuantileRegressor
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

HELD_OUT = 0.2  # share of the rows that say how wide intervals must be
COVERAGE = 0.9  # of the intervals
LEVELS = (1 - COVERAGE) / 2, (1 + COVERAGE) / 2  # of their ends


class ConformalBoosting(RegressorMixin, BaseEstimator):
    """Medians and intervals of 90 %, which are no whole law."""

    def __init__(self, random_state=0):
        self.random_state = random_state

    def fit(self, X, y):
        """Fit three models of quantiles to X (n_samples, n_features), y (n_samples,).

        Rows that are held out tell how far both ends of the intervals move.
        """
        X, X_held, y, y_held = train_test_split(
            X, y, test_size=HELD_OUT, random_state=self.random_state
        )
        boosting = HistGradientBoostingRegressor(
            loss="quantile", quantile=0.5, random_state=self.random_state
        )
        model = ConformalizedQuantileRegressor(boosting, COVERAGE)
        self.model_ = model.fit(X, y).conformalize(X_held, y_held)
        return self

    def predict(self, X, quantiles=None):
        """Return medians (n_samples,), or the ends of intervals (n_samples, 2).

        Raises TypeError for other levels, as models without quantiles do.
        """
        if quantiles is None:
            return self.model_.predict(X)
        if len(quantiles) != len(LEVELS) or not np.allclose(quantiles, LEVELS):
            raise TypeError(
                f"quantiles={list(quantiles)}: expected 0.05 and 0.95, the ends of "
                "intervals of 90 %; pass these."
            )
        ends = self.model_.predict_interval(X)[1][:, :, 0]
        return np.sort(ends, axis=1)  # they may cross


def boosting(n_threads=1, random_state=0):
    """Return the model, whose threads are OpenMP's."""
    return ConformalBoosting(random_state)
