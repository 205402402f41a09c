"""What estimators, inside of pipelines and searches too, say of their uncertainty."""

from inspect import signature

import numpy as np
from scipy.special import ndtri


def innermost(estimator, X):
    """Return the estimator inside of pipelines and searches, and its rows for X.

    X may be None, and stays that.
    """
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif hasattr(estimator, "steps"):
            if X is not None and len(estimator.steps) > 1:
                X = estimator[:-1].transform(X)
            estimator = estimator[-1]
        else:
            return estimator, X


def computed(values):
    """Return values, or those of a collection of dask in memory."""
    return values.compute() if hasattr(values, "__dask_graph__") else values


def asked(estimator, X, **how):
    """Return predict(X, name=value), or the exception that says it has no such name.

    A method without the name may pass it on, as those of meta-estimators do.
    """
    (name,) = how
    named = name in signature(estimator.predict).parameters
    refused = () if named else (TypeError, AttributeError, ValueError)
    try:
        return estimator.predict(X, **how)
    except refused as error:
        return error


def intervals_of(estimator, X, coverage=0.95):
    """Return the two ends of central intervals, from `predict_interval`."""
    if "coverage" in signature(estimator.predict_interval).parameters:
        return estimator.predict_interval(X, coverage=coverage)
    found = estimator.predict_interval(X)
    level = getattr(estimator, "confidence_level", coverage)
    shapes = [np.shape(part) for part in found]
    if shapes[1:] != [(shapes[0][0], 2, 1)] or np.any(np.not_equal(level, coverage)):
        raise ValueError(
            f"predict_interval(X) of {type(estimator).__name__} has results of the "
            f"shapes {shapes} and confidence_level={level}: expected points and ends "
            f"{[(len(X), 2, 1)]} of intervals of {100 * coverage:.4g} %; use "
            f"confidence_level={coverage:.4g}."
        )
    return found[1][:, 0, 0], found[1][:, 1, 0]


def quantiles_of(estimator, X, levels):
    """Return quantiles (n, n_levels[, n_outputs]) of the law that an estimator tells.

    Without quantiles of its own, `return_std` stands for a Gaussian. None is for an
    estimator with neither.
    """
    quantiles = asked(estimator, X, quantiles=levels)
    if not isinstance(quantiles, Exception):
        return quantiles
    moments = asked(estimator, X, return_std=True)
    if not isinstance(moments, tuple):
        return None
    mean, std = moments
    return np.stack([mean + std * z for z in ndtri(levels)], axis=1)
