"""CatBoost with its defaults, and stopped by rows that are held out."""

from catboost import CatBoostClassifier, CatBoostRegressor
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import train_test_split

HELD_OUT = 0.2  # share of the rows that say when to stop
PATIENCE = 40  # trees without a gain, as in the package's tutorial


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


class StoppedCatBoost(RegressorMixin, BaseEstimator):
    """Means of as many trees as suit rows that are held out."""

    def __init__(self, n_threads=1, random_state=0):
        self.n_threads = n_threads
        self.random_state = random_state

    def fit(self, X, y):
        """Fit four fifths of the rows; X (n_samples, n_features), y (n_samples,)."""
        X, X_held, y, y_held = train_test_split(
            X, y, test_size=HELD_OUT, random_state=self.random_state
        )
        options = _quiet(self.n_threads, self.random_state)
        model = CatBoostRegressor(early_stopping_rounds=PATIENCE, **options)
        self.model_ = model.fit(X, y, eval_set=(X_held, y_held))
        return self

    def predict(self, X):
        """Return means (n_samples,)."""
        return self.model_.predict(X)
