"""Fits and predictions of dask collections, whose rows stay with their workers."""

from skswsgp.dask.estimators import DaskSWSGPClassifier, DaskSWSGPRegressor
from skswsgp.dask.predictions import DaskPredictor

__all__ = ["DaskPredictor", "DaskSWSGPClassifier", "DaskSWSGPRegressor"]
