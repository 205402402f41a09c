"""Checks of what a user gives for each row: numbers, targets, parameters of a fit."""

import numpy as np
from sklearn.utils import assert_all_finite

from skswsgp._rows.table import refuse_collections, require_targets, require_unmasked


def check_row_values(name, values, n_rows, rows=None):
    """Return positive numbers (n,) of some or all of the rows of X, or None for None.

    `values` has one for each of n_rows rows.
    """
    if values is None:
        return None
    refuse_collections(**{name: values})
    require_unmasked(**{name: values})
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
    wrong = ~((found > 0.0) & np.isfinite(found))
    if wrong.any():
        raise ValueError(
            f"{name} holds {found[wrong][0]}: expected a positive number for each row "
            "of X; leave out rows without one, or give them sample_weight=0."
        )
    return found


def log_exposure(exposure, n_rows):
    """Return the logarithms (n,) of exposures, zeros for None."""
    found = check_row_values("exposure", exposure, n_rows)
    return np.zeros(n_rows) if found is None else np.log(found)


def as_numbers(y):
    """Return y as float64; raise ValueError unless all values are finite numbers."""
    refuse_collections(y=y)
    require_unmasked(y=y)
    require_targets(y)
    try:
        if np.asarray(y).dtype.kind in "mM":
            raise TypeError("they are dates or times")
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


def usable_weights(weight, dtype):
    """Return weights (n,) with zeros for those that rounding in `dtype` would hide.

    Raises ValueError unless the largest of them is a number of usual size.
    """
    if not weight.any():
        raise ValueError(
            "sample_weight is zero for every row: expected at least one positive "
            "weight; leave sample_weight out to weigh all rows alike."
        )
    limits, largest = np.finfo(dtype), weight.max()
    high = float(np.cbrt(limits.max))
    if not 1.0 / high <= largest <= high:
        raise ValueError(
            f"sample_weight reaches {largest:.0e}: expected {1.0 / high:.0e} to "
            f"{high:.0e} with dtype={str(dtype)!r}; divide the weights by their mean."
        )
    return np.where(weight < limits.eps**2 * largest, 0.0, weight)
