"""Checks of what a user hands over: counts, inputs, weights, numbers to predict."""

from numbers import Integral

import numpy as np
from sklearn.utils import assert_all_finite
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _check_sample_weight, validate_data


class Count(Interval):
    """Constraint of a parameter: a positive integer, True and False being none."""

    def __init__(self):
        super().__init__(Integral, 1, None, closed="left")

    def is_satisfied_by(self, val):
        """Whether a value is a count."""
        return not isinstance(val, bool) and super().is_satisfied_by(val)


def validate(estimator, *data, **options):
    """Return validated X, or X and y, as C-ordered floats; see `validate_data`."""
    options = {"dtype": [np.float64, np.float32], "order": "C"} | options
    with np.errstate(invalid="ignore"):  # it adds inf to -inf before it raises
        return validate_data(estimator, *data, **options)


def check_weights(sample_weight, X, dtype):
    """Return the weights of the rows of X, ones for None, at least one positive."""
    with np.errstate(invalid="ignore"):
        weight = _check_sample_weight(
            sample_weight, X, dtype=np.dtype(dtype), ensure_non_negative=True
        )
    if not weight.any():
        raise ValueError(
            "sample_weight is zero for every row: expected at least one positive "
            "weight; leave sample_weight out to weigh all rows alike."
        )
    return weight


def as_numbers(y):
    """Return y as float64; raise ValueError for what is no finite number."""
    try:
        y = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"y cannot be read as numbers ({error}): expected a real number for each "
            "row and output; for labels use SWSGPClassifier."
        ) from None
    with np.errstate(invalid="ignore"):
        assert_all_finite(y, input_name="y")
    return y


def check_outputs(y, mean):
    """Raise if y has another shape than in an earlier fit, but for the rows."""
    if y.shape[1:] != np.shape(mean):
        expected = f"(n_samples, {len(mean)})" if np.ndim(mean) else "(n_samples,)"
        raise ValueError(
            f"y has shape {y.shape}: expected {expected} as in fit; reshape y, or fit "
            "a new estimator."
        )
