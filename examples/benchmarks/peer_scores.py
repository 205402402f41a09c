"""Scores of fitted models, of whole predictions where a model has them."""

import math

import numpy as np
from scipy.special import ndtri
from sklearn.metrics import log_loss, root_mean_squared_error

from skswsgp.metrics import (
    expected_calibration_error,
    get_scorer,
    interval_coverage,
    interval_score,
)

COVERAGE = 0.9  # of the intervals


def of_classes(model, X, y):
    """Return error, mean negative log probability and calibration error by name."""
    proba = model.predict_proba(X)
    found = {
        "error": np.mean(model.classes_[proba.argmax(axis=1)] != y),
        "NLL": log_loss(y, proba, labels=model.classes_),
        "ECE": expected_calibration_error(y, proba, labels=model.classes_),
    }
    return {name: float(score) for name, score in found.items()}


def of_regression(model, X, y, unit):
    """Return scores by name in `unit`, the deviation of the training targets."""
    found = {"RMSE": root_mean_squared_error(y, model.predict(X)) / unit}
    density = _scored("neg_log_density", model, X, y)
    if density is not None:
        found["NLL"] = density - math.log(unit)
    crps = _scored("neg_crps", model, X, y)
    if crps is not None:
        found["CRPS"] = crps / unit
    ends = interval(model, X)
    if ends is not None:
        found["coverage"] = interval_coverage(y, *ends)
        found["interval score"] = interval_score(y, *ends, COVERAGE) / unit
    return {name: float(score) for name, score in found.items()}


def interval(model, X):
    """Return the ends of central intervals, None of models without."""
    levels = [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2]
    try:
        return model.predict(X, quantiles=levels).T
    except TypeError:
        pass
    try:
        mean, std = model.predict(X, return_std=True)
    except TypeError:
        return None
    half = ndtri(levels[1]) * std
    return mean - half, mean + half


def _scored(name, model, X, y):
    """Return a score where smaller is better, None of models without."""
    try:
        return -get_scorer(name)(model, X, y)
    except TypeError:
        return None
