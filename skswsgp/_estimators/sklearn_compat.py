"""What touches scikit-learn's private names: validation of input, callbacks."""

from contextlib import contextmanager
from numbers import Integral

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import assert_all_finite
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _check_sample_weight, validate_data

from skswsgp._cluster.predictions import in_memory
from skswsgp._rows.table import clearer_error, require_numeric_types


class Count(Interval):
    """Constraint of a parameter: a positive integer, but neither True nor False."""

    def __init__(self):
        super().__init__(Integral, 1, None, closed="left")

    def is_satisfied_by(self, val):
        """Return whether a value is a count."""
        return not isinstance(val, bool) and super().is_satisfied_by(val)


def set_arguments(estimator, arguments):
    """Set the arguments of an `__init__`, which are its `locals()`, as attributes."""
    del arguments["self"]
    vars(estimator).update(arguments)


@contextmanager
def unchanged_on_failure(estimator):
    """Restore the attributes of an estimator if what follows raises."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        # scikit-learn keeps the state of callbacks in attributes of such names
        of_callbacks = {k: v for k, v in vars(estimator).items() if "callback" in k}
        vars(estimator).clear()
        vars(estimator).update(before | of_callbacks)
        raise


def require_unmasked(**arrays):
    """Raise ValueError if an array by this name is masked at some entry.

    NumPy and scikit-learn drop masks, and what lies below them is read as data.
    """
    for name, values in arrays.items():
        if np.ma.is_masked(values):
            n_masked = np.ma.count_masked(values)
            raise ValueError(
                f"{name} is a masked array with {n_masked} masked entries: expected "
                "none, for the values below the mask would count as data; leave their "
                "rows out, or fill the entries."
            )


class ScoreMixin:
    """The score of scikit-learn's mixins, of rows that may be collections of dask.

    It refuses masked targets and weights.
    """

    def score(self, X, y, sample_weight=None):
        """Return R^2 of the predicted means, or the accuracy of predicted classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets or labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row in the score.

        Returns
        -------
        score : float
            The score, at most 1; larger is better. R^2 is the plain mean over outputs.
        """
        require_unmasked(y=y, sample_weight=sample_weight)
        found, y, weight = in_memory(self.predict(X), y, sample_weight)
        score = accuracy_score if is_classifier(self) else r2_score
        return score(y, found, sample_weight=weight)


def validate(estimator, *data, **options):
    """Return validated X, or X and y, as C-ordered floats; see `validate_data`."""
    require_unmasked(**dict(zip("Xy", data, strict=False)))
    reader = type(estimator).__name__
    require_numeric_types(data[0], reader)
    options = {"dtype": [np.float64, np.float32], "order": "C"} | options
    try:
        with np.errstate(invalid="ignore"):  # it adds inf to -inf before it raises
            return validate_data(estimator, *data, **options)
    except (TypeError, ValueError) as error:
        about_y = "Input y" in str(error)
        clearer = None if about_y else clearer_error(data[0], reader)
        if clearer is None:
            raise
    raise clearer


def check_weights(sample_weight, X, dtype):
    """Return the weights of the rows of X as float64, of which one must be positive.

    Weights that rounding in `dtype` would hide beside the largest one count as zero.
    """
    require_unmasked(sample_weight=sample_weight)
    with np.errstate(invalid="ignore"):
        weight = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
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


def check_row_values(name, values, n_rows, rows=None):
    """Return positive numbers (n,) of some or all of the rows of X, or None for None.

    `values` has one for each of n_rows rows.
    """
    if values is None:
        return None
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
    require_unmasked(y=y)
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


try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:
        """Stands in for the mixin of scikit-learn 1.9."""

    def with_callbacks(method):
        """Return the method: there are no callbacks."""
        return method


class FitTask:
    """The task tree of one fit: the fit itself, and at most `max_iter` epochs.

    Callbacks may ask for `data`: a dict with X, y and metadata.
    """

    def __init__(self, estimator, max_iter, data):
        self.estimator = estimator
        self.data = data
        self.root = None
        if hasattr(estimator, "_init_callback_context"):
            self.root = estimator._init_callback_context(max_subtasks=max_iter)
            self.root.call_on_fit_task_begin(estimator=estimator, **data)

    def begin_epoch(self):
        """Announce an epoch."""
        if self.root is not None:
            self.epoch = self.root.subcontext(task_name="epoch")
            self.epoch.call_on_fit_task_begin(estimator=self.estimator, **self.data)

    def end_epoch(self, attributes):
        """Report an epoch; return whether a callback asks to stop.

        `attributes()` returns the fitted attributes as if fit had stopped here.
        """
        if self.root is None:
            return False
        return self.epoch.call_on_fit_task_end(
            estimator=self.estimator, reconstruction_attributes=attributes, **self.data
        )

    def end(self):
        """Report the end of the fit, whose attributes are set by now."""
        if self.root is not None:
            self.root.call_on_fit_task_end(estimator=self.estimator, **self.data)
