"""Models of scikit-learn."""

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from peers.quantile_boosting import QuantileBoosting


class _ExactGP(RegressorMixin, BaseEstimator):
    """Make the kernel for the columns that come."""

    def __init__(self, random_state=0):
        self.random_state = random_state

    def fit(self, X, y):
        """Fit with a length-scale a column."""
        matern = Matern(np.full(X.shape[1], X.shape[1] ** 0.5), nu=2.5)
        kernel = ConstantKernel() * matern + WhiteKernel(0.1)
        options = {"normalize_y": True, "random_state": self.random_state}
        self.model_ = GaussianProcessRegressor(kernel, **options).fit(X, y)
        return self

    def predict(self, X, return_std=False):
        """Return mean and standard deviation, noise included."""
        return self.model_.predict(X, return_std=return_std)


def exact_gp(n_threads=1, random_state=0):
    """Return the exact Gaussian process."""
    return make_pipeline(StandardScaler(), _ExactGP(random_state))


def bayesian_ridge(n_threads=1, random_state=0):
    """Return the linear model, whose deviations are those of new observations."""
    return make_pipeline(StandardScaler(), BayesianRidge())


def histogram_regressor(n_threads=1, random_state=0):
    """Return a model of means and models of quantiles; threads are OpenMP's."""
    boosting = HistGradientBoostingRegressor(random_state=random_state)
    return QuantileBoosting(boosting, {"loss": "quantile"}, "quantile")


def histogram_classifier(n_threads=1, random_state=0):
    """Return histogram gradient boosting; its threads are those of OpenMP."""
    return HistGradientBoostingClassifier(random_state=random_state)


def logistic_regression(n_threads=1, random_state=0):
    """Return the linear model, with enough steps to converge."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


def forest_classifier(n_threads=1, random_state=0):
    """Return the forest."""
    return RandomForestClassifier(n_jobs=n_threads, random_state=random_state)


def laplace_gp(n_threads=1, random_state=0):
    """Return the Gaussian process with Laplace's approximation, one against others."""
    kernel = ConstantKernel() * RBF(3.0)
    options = {"n_jobs": n_threads, "random_state": random_state}
    model = GaussianProcessClassifier(kernel, **options)
    return make_pipeline(StandardScaler(), model)
