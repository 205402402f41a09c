"""What touches scikit-learn's private names: validation of input, callbacks."""

from collections.abc import Callable
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import validate_data

from skswsgp._estimators.hints import PerRow
from skswsgp._fit.targets import distinct_labels
from skswsgp._rows import table
from skswsgp._rows.checks import as_numbers, check_row_values, usable_weights
from skswsgp._solvers.progress import STAGES, StageLines

Method = TypeVar("Method", bound=Callable)


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
    """The score of scikit-learn's mixins, which checks targets and weights first."""

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> float:
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
        return self._score_of(self.predict(X), y, sample_weight)

    def _score_of(self, found, y, sample_weight):
        """Return the score of predictions that were found for y."""
        weight = check_row_values("sample_weight", sample_weight, len(found))
        if is_classifier(self):
            distinct_labels(y)  # raises what is wrong
            return accuracy_score(y, found, sample_weight=weight)
        return r2_score(as_numbers(y), found, sample_weight=weight)


def validate(estimator, *data, **options):
    """Return validated X, or X and y, as C-ordered floats; see `validate_data`."""
    check = partial(validate_data, estimator)
    return checked_table(check, type(estimator).__name__, *data, **options)


def checked_table(check, reader, *data, **options):
    """Return check(*data), or raise an error that names what is wrong with a table."""
    table.require_in_memory(X=data[0])
    table.require_numeric_types(data[0], reader)
    table.require_targets(*data[1:])
    options = {"dtype": [np.float64, np.float32], "order": "C"} | options
    try:
        with np.errstate(invalid="ignore"):  # it adds inf to -inf before it raises
            return check(*data, **options)
    except (TypeError, ValueError) as error:
        about_y = "Input y" in str(error)
        clearer = None if about_y else table.clearer_error(data[0], reader)
        if clearer is None:
            raise
    raise clearer


def check_weights(sample_weight, X, dtype):
    """Return the `usable_weights` of the rows of X as float64."""
    if sample_weight is None or np.isscalar(sample_weight):
        sample_weight = np.full(len(X), 1.0 if sample_weight is None else sample_weight)
    weight = check_row_values("sample_weight", sample_weight, len(X))
    return usable_weights(weight, dtype)


class CallbackSupportMixin:
    """Stands in for the mixin of scikit-learn 1.9."""


def with_callbacks(method: Method) -> Method:
    """Return the method: scikit-learn before 1.9 has no callbacks."""
    return method


with suppress(ImportError):
    from sklearn.callback import CallbackSupportMixin, with_callbacks  # noqa: F401


class FitTask:
    """The task tree of one fit: the fit itself, its stages, and epochs of one stage.

    Each stage has a printed line with the estimator's `verbose`. Callbacks may ask for
    the rows as they were `given`. The estimator keeps what the stages warned of.
    """

    def __init__(self, estimator, given):
        metadata = {"sample_weight": given.sample_weight}
        self.data = {"X": given.X, "y": given.y, "metadata": metadata}
        self.estimator = estimator
        self.lines = StageLines(estimator.verbose)
        self.root = self.current = None
        if hasattr(estimator, "_init_callback_context"):
            self.root = estimator._init_callback_context(max_subtasks=len(STAGES))
            self.root.call_on_fit_task_begin(estimator=estimator, **self.data)

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
        self.estimator._fit_warnings = list(dict.fromkeys(self.lines.heard))
        self._end(self.root)

    def _begin(self, parent, name, most=0):
        if parent is None:
            return None
        task = parent.subcontext(task_name=name, max_subtasks=most)
        return task.call_on_fit_task_begin(estimator=self.estimator, **self.data)

    def _end(self, task, **more):
        if task is None:
            return False
        return task.call_on_fit_task_end(estimator=self.estimator, **more, **self.data)
