"""LightGBM with its defaults."""

from lightgbm import LGBMClassifier, LGBMRegressor

from peers.quantile_boosting import QuantileBoosting


def regressor(n_threads=1, random_state=0):
    """Return a model of means and models of quantiles."""
    boosting = LGBMRegressor(n_jobs=n_threads, random_state=random_state, verbose=-1)
    return QuantileBoosting(boosting, {"objective": "quantile"}, "alpha")


def classifier(n_threads=1, random_state=0):
    """Return the default for classes."""
    return LGBMClassifier(n_jobs=n_threads, random_state=random_state, verbose=-1)
