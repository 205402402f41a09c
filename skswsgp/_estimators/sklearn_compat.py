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
from skswsgp._law.score_input import require_unmasked
from skswsgp._rows.table import clearer_error, require_numeric_types
from skswsgp._solvers.progress import STAGES, StageLines


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
    """The task tree of one fit: the fit itself, its stages, and epochs of one stage.

    Each stage has a printed line with the estimator's `verbose`. Callbacks may ask for
    `data`: a dict with X, y and metadata.
    """

    def __init__(self, estimator, data):
        self.estimator, self.data = estimator, data
        self.lines = StageLines(estimator.verbose)
        self.root = self.current = None
        if hasattr(estimator, "_init_callback_context"):
            self.root = estimator._init_callback_context(max_subtasks=len(STAGES))
            self.root.call_on_fit_task_begin(estimator=estimator, **data)

    @contextmanager
    def stage(self, name, max_iter=0):
        """Announce a stage, one of STAGES, with at most `max_iter` epochs."""
        with self.lines.stage(name):
            self.current = self._begin(self.root, name, max_iter)
            yield
            self._end(self.current)

    def begin_epoch(self):
        """Announce an epoch of the stage."""
        self.epoch = self._begin(self.current, "epoch")

    def end_epoch(self, attributes):
        """Report an epoch; return whether a callback asks to stop.

        `attributes()` returns the fitted attributes as if fit had stopped here.
        """
        return self._end(self.epoch, reconstruction_attributes=attributes)

    def end(self):
        """Report the end of the fit, whose attributes are set by now."""
        self._end(self.root)

    def _begin(self, parent, name, most=0):
        if parent is None:
            return None
        task = parent.subcontext(task_name=name, max_subtasks=most)
        return task.call_on_fit_task_begin(estimator=self.estimator, **self.data)

    def _end(self, task, **more):
        if task is None:
            return False
        more |= {"estimator": self.estimator}
        return task.call_on_fit_task_end(**more, **self.data)
