"""Sparse-within-Sparse Gaussian processes for scikit-learn."""

from skswsgp._estimators.classifier import SWSGPClassifier
from skswsgp._estimators.regressor import SWSGPRegressor

__all__ = ["SWSGPClassifier", "SWSGPRegressor"]
__version__ = "0.1.0.dev0"
