"""Sparse-within-Sparse Gaussian processes for scikit-learn."""

from skswsgp._classifier import SWSGPClassifier
from skswsgp._regressor import SWSGPRegressor

__all__ = ["SWSGPClassifier", "SWSGPRegressor"]
__version__ = "0.1.0.dev0"
