"""CatBoost with its defaults."""

from catboost import CatBoostClassifier, CatBoostRegressor
from sklearn.base import BaseEstimator, RegressorMixin


def _quiet(n_threads, random_state):
    """Return arguments without files and messages."""
    quiet = {"verbose": 0, "allow_writing_files": False}
    return {"thread_count": n_threads, "random_seed": random_state, **quiet}


def regressor(n_threads=1, random_state=0):
    """Return the default, which predicts means."""
    return CatBoostRegressor(**_quiet(n_threads, random_state))


def classifier(n_threads=1, random_state=0):
    """Return the default for classes."""
    return CatBoostClassifier(**_quiet(n_threads, random_state))


class UncertainCatBoost(RegressorMixin, BaseEstimator):
    """The loss is the likelihood of a Gaussian whose variance varies, too."""

    def __init__(self, n_threads=1, random_state=0):
        self.n_threads = n_threads
        self.random_state = random_state

    def fit(self, X, y):
        """Fit the package's model."""
        options = _quiet(self.n_threads, self.random_state)
        model = CatBoostRegressor(loss_function="RMSEWithUncertainty", **options)
        self.model_ = model.fit(X, y)
        return self

    def predict(self, X, return_std=False):
        """Return mean and standard deviation in units of y, noise included."""
        kind = "RMSEWithUncertainty"  # means and variances
        mean, variance = self.model_.predict(X, prediction_type=kind).T
        return (mean, variance**0.5) if return_std else mean
