"""Checks of what a user gives for each row: numbers, targets, parameters of a fit."""

import numpy as np
from sklearn.utils import assert_all_finite

from skswsgp._rows.table import kind_of, require_in_memory, require_targets


def check_row_values(name, values, n_rows, rows=None):
    """Return positive numbers (n,) of some or all of the rows of X, or None for None.

    `values` has one for each of n_rows rows. Weights of rows may be zero.
    """
    if values is None:
        return None
    require_in_memory(**{name: values})
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} cannot be read as numbers ({error}): expected {n_rows} positive "
            "numbers, one for each row of X."
        ) from None
    if found.shape != (n_rows,):
        raise ValueError(
            f"{name} has shape {found.shape}: expected ({n_rows},), one number for "
            "each row of X."
        )
    found = found if rows is None else found[rows]
    may_be_zero = name == "sample_weight"
    wrong = ~np.isfinite(found) | (found < 0.0) | ((found == 0.0) & (not may_be_zero))
    if wrong.any():
        raise ValueError(
            f"{name} holds {found[wrong][0]}: expected a positive number for each row "
            "of X; leave out rows without one, or give them sample_weight=0."
        )
    return found


def require_probabilities(name, values, advice):
    """Return numbers strictly between 0 and 1 as an array of at most one axis."""
    most = 0 if name == "coverage" else 1
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    unlikely = (found <= 0.0) | ~(found < 1.0)
    if found.ndim > most or found.size == 0 or unlikely.any():
        some = "a number" if most == 0 else "a number or a list of numbers"
        percents = (found >= 1.0) & (found < 100.0)
        if percents.all() and np.any(found >= 2.0):
            advice = f"{np.round(found / 100.0, 6).tolist()} in place of percents"
        raise ValueError(
            f"{name}={values!r}: expected {some} above 0 and below 1; use {advice}."
        )
    return found


def log_exposure(exposure, n_rows):
    """Return the logarithms (n,) of exposures, zeros for None."""
    found = check_row_values("exposure", exposure, n_rows)
    return np.zeros(n_rows) if found is None else np.log(found)


def as_numbers(y):
    """Return y as float64; raise an error unless all values are finite numbers."""
    require_targets(y)
    try:
        y = np.asarray(y)
        types = map(type, y.flat) if y.dtype == object else [y.dtype.type]
        for kind in filter(None, map(kind_of, {each.__name__ for each in types})):
            raise TypeError(f"it holds {kind}")
        y = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"y cannot be read as numbers ({error}): expected a real number for each "
            "row and output; read text by pandas.to_numeric, or use SWSGPClassifier "
            "for labels."
        ) from None
    with np.errstate(invalid="ignore"):
        assert_all_finite(y, input_name="y")
    return y


def check_outputs(y, mean):
    """Raise ValueError if y has other outputs than in an earlier fit."""
    if y.shape[1:] != np.shape(mean):
        expected = f"(n_samples, {len(mean)})" if np.ndim(mean) else "(n_samples,)"
        raise ValueError(
            f"y has shape {y.shape}: expected {expected} as in fit; reshape y, or fit "
            "a new estimator."
        )


def require_word_of_fit(parameter, word, fitted, title):
    """Raise ValueError if a parameter is another word than a model was fitted with.

    `title` says what the words name.
    """
    if word != fitted:
        raise ValueError(
            f"{parameter}={word!r} for a model that was fitted with {fitted!r}: "
            f"expected the {title} of the fit; set it back, or fit again without "
            "warm_start."
        )


def usable_weights(weight, dtype, name="sample_weight"):
    """Return weights (n,) with zeros for those that rounding in `dtype` would hide.

    Raises ValueError unless the largest of them is a number of usual size.
    """
    if not weight.any():
        raise ValueError(
            f"{name} is zero for every row: expected at least one positive weight; "
            f"leave {name} out to weigh all rows alike."
        )
    limits, largest = np.finfo(dtype), weight.max()
    high = float(np.cbrt(limits.max))
    if not 1.0 / high <= largest <= high:
        raise ValueError(
            f"{name} reaches {largest:.0e}: expected {1.0 / high:.0e} to "
            f"{high:.0e} with dtype={str(dtype)!r}; divide the weights by their mean."
        )
    return np.where(weight < limits.eps**2 * largest, 0.0, weight)
