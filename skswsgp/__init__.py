"""Sparse-within-Sparse Gaussian processes for scikit-learn."""

from skswsgp import baselines, displays, kernels, metrics, solvers
from skswsgp._estimators.classifier import SWSGPClassifier
from skswsgp._estimators.regressor import SWSGPRegressor
from skswsgp._posterior.extrapolation import ExtrapolationWarning

__all__ = [
    "ExtrapolationWarning",
    "SWSGPClassifier",
    "SWSGPRegressor",
    "baselines",
    "displays",
    "kernels",
    "metrics",
    "solvers",
]
__version__ = "0.1.0.dev0"
