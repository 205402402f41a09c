"""Checks of what scores are given: targets, predictions and weights."""

from numbers import Integral

import numpy as np
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import check_array, column_or_1d

from skswsgp._rows.checks import require_probabilities
from skswsgp._rows.table import require_unmasked

PROBABILITY_TOLERANCE = 1e-4  # rounding error allowed in probabilities and in their sum


def check_floats(values, name):
    """Return an array of finite float64 numbers, of which none is masked."""
    require_unmasked(**{name: values})
    return check_array(values, ensure_2d=False, dtype=float, input_name=name)


def check_gaussian(y_true, y_mean, y_std):
    """Return the arguments as float64 arrays; refuse unequal shapes and y_std <= 0."""
    y_true = check_floats(y_true, "y_true")
    y_mean = check_like(y_mean, "y_mean", y_true)
    y_std = check_like(y_std, "y_std", y_true)
    position = int(y_std.argmin())
    if y_std.flat[position] <= 0:
        index = [int(i) for i in np.unravel_index(position, y_std.shape)]
        raise ValueError(
            f"y_std has a non-positive value {y_std.flat[position]} at index "
            f"{index[0] if len(index) == 1 else tuple(index)}: expected positive "
            "standard deviations; include the noise, or clip them at a small number."
        )
    return y_true, y_mean, y_std


def check_coverage(coverage):
    """Raise ValueError for the coverage of an interval that is no probability."""
    require_probabilities("coverage", coverage, "0.95 for an interval of 95 %")


def check_count(number, name, usual, least=1):
    """Raise ValueError for a number that is no integer, or too small."""
    if not isinstance(number, Integral) or number < least:
        raise ValueError(
            f"{name}={number!r}: expected an integer of at least {least}; use {usual}."
        )


def check_intervals(y_true, lower, upper):
    """Return targets and ends of their intervals as float64 arrays of one shape."""
    y_true = check_floats(y_true, "y_true")
    lower = check_like(lower, "lower", y_true)
    upper = check_like(upper, "upper", y_true)
    if (lower > upper).any():
        row = int(np.argwhere(lower > upper)[0, 0])
        raise ValueError(
            f"lower is above upper in row {row}: expected lower <= upper; swap them, "
            "or pass the ends of predict_interval."
        )
    return y_true, lower, upper


def check_like(values, name, y_true):
    """Return values as a float64 array of the shape of y_true."""
    values = check_floats(values, name)
    if values.shape != y_true.shape:
        raise ValueError(
            f"{name} has shape {values.shape}: expected {y_true.shape}, the shape of "
            f"y_true; reshape or repeat {name}."
        )
    return values


def check_quantiles(y_true, y_quantiles, quantiles):
    """Return targets, quantiles (n_samples, n_quantiles[, n_outputs]) and levels."""
    y_true, one = check_floats(y_true, "y_true"), np.ndim(quantiles) == 0
    require_unmasked(quantiles=quantiles)
    q = require_probabilities("quantiles", quantiles, "those of predict").ravel()
    require_unmasked(y_quantiles=y_quantiles)
    y_quantiles = check_array(
        y_quantiles,
        ensure_2d=False,
        allow_nd=True,
        dtype=float,
        input_name="y_quantiles",
    )
    y_quantiles = y_quantiles[:, None] if one else y_quantiles
    expected = (len(y_true), len(q), *y_true.shape[1:])
    if y_quantiles.shape != expected:
        raise ValueError(
            f"y_quantiles has shape {y_quantiles.shape}: expected {expected}, a value "
            "for each target and each level, outputs last."
        )
    return y_true, y_quantiles, q


def check_probabilities(y_proba):
    """Return the probabilities as a float64 array with one column per class."""
    y_proba = check_floats(y_proba, "y_proba")
    if (
        y_proba.min() < -PROBABILITY_TOLERANCE
        or y_proba.max() > 1 + PROBABILITY_TOLERANCE
    ):
        raise ValueError(
            f"y_proba has values from {y_proba.min()} to {y_proba.max()}: expected "
            "probabilities between 0 and 1; pass the result of predict_proba."
        )
    if y_proba.ndim == 1:
        return np.column_stack([1.0 - y_proba, y_proba])
    sums = y_proba.sum(axis=1)
    row = int(abs(sums - 1.0).argmax())
    if abs(sums[row] - 1.0) > PROBABILITY_TOLERANCE:
        raise ValueError(
            f"y_proba has a row, {row}, with the sum {sums[row]}: expected 1; pass the "
            "probabilities of all classes."
        )
    return y_proba


def columns_of(y_true, labels, n_columns):
    """Return the column of `y_proba` for each entry of `y_true`."""
    require_unmasked(y_true=y_true)
    source = "y_true" if labels is None else "labels"
    labels = np.unique(y_true) if labels is None else column_or_1d(labels)
    encoder = LabelEncoder().fit(labels)
    if not len(labels) == len(encoder.classes_) == n_columns:
        raise ValueError(
            f"the number of distinct classes in {source} is {len(encoder.classes_)}: "
            f"expected {n_columns}, one for each column of y_proba; pass the classes "
            "in the order of the columns, for example labels=classifier.classes_."
        )
    try:
        codes = encoder.transform(y_true)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"y_true has classes that are not in labels={list(labels)}: expected none; "
            "pass all classes of the classifier as labels."
        ) from error
    return encoder.transform(labels).argsort()[codes]


def check_weights(sample_weight, n_samples):
    """Return the weights as a float64 array; refuse negative ones and all zeros."""
    if sample_weight is None:
        return np.ones(n_samples)
    weights = check_floats(sample_weight, "sample_weight")
    if weights.shape != (n_samples,):
        raise ValueError(
            f"sample_weight has shape {weights.shape}: expected ({n_samples},), one "
            "weight for each sample."
        )
    if weights.min() < 0 or weights.max() == 0:
        raise ValueError(
            f"sample_weight has values from {weights.min()} to {weights.max()}: "
            "expected no negative weight and at least one positive weight."
        )
    return weights


def mean_over_samples(values, sample_weight):
    """Return the weighted mean over samples of the mean over outputs."""
    weights = check_weights(sample_weight, len(values))
    return float(np.average(values.reshape(len(values), -1).mean(axis=1), 0, weights))
