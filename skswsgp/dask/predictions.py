"""Predictions of dask collections: block by block of their rows, and lazily."""

import copy
import functools
import inspect
from itertools import count, islice
from math import isnan
from numbers import Integral
from typing import Any, Never

import numpy as np
from sklearn.base import BaseEstimator

from skswsgp._compiled.threads import one_thread
from skswsgp.dask.workers import itself

NO_FITS = (
    "DaskPredictor has no {0}: expected predictions only, by a model that is fitted; "
    "call {0} of the model, here DaskPredictor.model."
)
BY_ROW = "y", "exposure", "noise_variance"  # arguments with a number for each row
# Methods of models whose results have a row for each row of X, which depends on that
# row of the arguments alone
ROW_METHODS = (
    "predict", "predict_proba", "predict_log_proba", "decision_function",
    "predict_interval", "log_predictive_density", "noise_std",
    "latent_mean_and_variance", "sample_f", "predict_gradient", "is_novel", "_crps",
)  # fmt: skip


def predicts_blocks(cls):
    """Let the methods of an estimator class that predict rows take collections."""
    for name in ROW_METHODS:
        if hasattr(cls, name):
            setattr(cls, name, by_blocks(getattr(cls, name)))
    if hasattr(cls, "sample_y"):
        cls.sample_y = from_all_rows(cls.sample_y)
    return cls


class ScoreMixin:
    """The score of a model at dask collections."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R^2 of the predicted means, or the accuracy of predicted classes.

        Parameters
        ----------
        X : array-like or dask collection of shape (n_samples, n_features)
            Inputs.
        y : array-like or dask collection of shape (n_samples,) or \
                (n_samples, n_outputs)
            Targets or labels.
        sample_weight : array-like or dask collection of shape (n_samples,), \
                default=None
            Weight of each row in the score.

        Returns
        -------
        score : float
            The score, at most 1; larger is better. R^2 is the plain mean over outputs.
        """
        found, *others = in_memory(self.predict(X), y, sample_weight)
        return self._score_of(found, *others)


class DaskPredictor(ScoreMixin):
    """A fitted model that predicts dask collections block by block, and lazily.

    Methods that predict rows, such as `predict` and `predict_interval`, take dask
    arrays and data frames, and return dask arrays with the blocks of X. Rows in memory
    and everything else are left to the model, which it does not fit again.

    Parameters
    ----------
    model : estimator
        A fitted model of this package.

    Examples
    --------
    >>> import dask.array as da
    >>> from skswsgp import SWSGPRegressor
    >>> from skswsgp.dask import DaskPredictor
    >>> X = da.random.default_rng(0).uniform(size=(300, 2), chunks=(100, 2))
    >>> rows = X[:100].compute()
    >>> model = SWSGPRegressor(random_state=0).fit(rows, rows[:, 0])
    >>> DaskPredictor(model).predict(X).numblocks
    (3,)
    """

    def __init__(self, model: BaseEstimator):
        if not isinstance(model, BaseEstimator):
            raise TypeError(
                f"model is {model!r}: expected a fitted estimator, as "
                "DaskPredictor(SWSGPRegressor().fit(X, y))."
            )
        self.model = model

    def fit(self, *arguments: Any, **others: Any) -> Never:
        """Raise TypeError: the model is fitted, but scikit-learn asks for `fit`."""
        raise TypeError(NO_FITS.format("fit"))

    def __sklearn_is_fitted__(self) -> bool:
        """Return True: the model is fitted."""
        return True

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the model, a method of rows as one of blocks."""
        if name == "model":  # while a copy is made
            raise AttributeError(name)
        if name in ("partial_fit", "set_params"):
            raise AttributeError(NO_FITS.format(name))
        found = getattr(self.model, name)
        if name not in (*ROW_METHODS, "sample_y"):
            return found
        wrap = by_blocks if name in ROW_METHODS else from_all_rows
        return functools.partial(wrap(getattr(type(self.model), name)), self.model)


def by_blocks(method):
    """Return a method of rows X that takes a dask collection in place of X as well.

    What it returns has an axis of rows first, each row a function of that row of the
    arguments, and so does every part of a tuple.
    """
    name, signature = method.__name__, inspect.signature(method)

    @functools.wraps(method)
    def call(self, X, *args, **kwargs):
        if not is_collection(X):
            return method(self, X, *args, **kwargs)
        options = signature.bind(self, X, *args, **kwargs).arguments
        options |= options.pop("others", {})
        return _predict(name, *(options.pop(each) for each in ("self", "X")), options)

    return call


def from_all_rows(method):
    """Return `sample_y` as a method that refuses a dask collection in place of X."""

    @functools.wraps(method)
    def call(self, X, *args, **kwargs):
        if is_collection(X):
            advice = "draws noise for all rows; use sample_f, or X.compute()"
            _refuse(X, f"rows in memory, for {method.__name__} {advice}")
        return method(self, X, *args, **kwargs)

    return call


def is_collection(X):
    """Return whether X is a collection of dask, which is not imported for others."""
    if not hasattr(X, "__dask_graph__"):
        return False
    from dask import is_dask_collection

    return is_dask_collection(X)


def are_collections(*values):
    """Return whether any of some values is a collection of dask."""
    return any(map(is_collection, values))


def in_memory(*values):
    """Return values, with the results of collections, which are computed together."""
    if not are_collections(*values):
        return values
    from dask import compute

    # dask warns of frames beside arrays
    return compute(*map(_without_index, values), traverse=False)


def _without_index(values):
    """Return a series or frame of dask as an array, and others as they are."""
    if not (is_collection(values) and hasattr(values, "map_partitions")):
        return values
    meta = np.asarray(values._meta)
    return values.map_partitions(np.asarray, meta=meta)


def _refuse(X, what):
    raise ValueError(f"X is of dask's type {type(X).__name__}: expected {what}.")


def _predict(method, model, X, options):
    """Return the predictions of a method as dask arrays with the blocks of X.

    The method predicts one made-up row here, which refuses wrong columns and options
    before any block is computed, and tells shapes and types of the results.
    """
    import dask.array as da
    from dask import delayed

    _require_rows_apart(X, options)
    X, row = _array_and_row(X)
    others = {name: options.pop(name) for name in BY_ROW if name in options}
    others = {k: _aligned(k, v, X) for k, v in others.items() if v is not None}
    ones = {name: np.ones((1, *values.shape[1:])) for name, values in others.items()}
    example = _stacked(getattr(model, method)(row, **options, **ones))
    numbers, arrays = count(example.ndim), []  # of axes: rows are the axis 1
    for values in (X, *others.values()):
        arrays += [values, [1, *islice(numbers, values.ndim - 1)]]
    sizes = {k: n for k, n in enumerate(example.shape) if k != 1}
    options |= {"method": method, "names": tuple(others), "empty": example[:, :0]}
    # a copy, because the model may be fitted anew before anything is computed
    options["model"] = delayed(copy.copy(model), pure=True, traverse=False)
    how = {"new_axes": sizes, "align_arrays": False, "meta": example[:0, :0]}
    parts = da.blockwise(_predict_block, range(example.ndim), *arrays, **how, **options)
    return parts[0] if len(example) == 1 else tuple(parts)


def _predict_block(X, *others, model, method, names, empty, **options):
    """Return the stacked predictions (k, n, ...) of a block of rows.

    A block of two axes comes in a list, as dask hands over all columns of its rows.
    """
    X, *others = (b[0] if isinstance(b, list) else b for b in (X, *others))
    if X.shape[0] == 0:  # a sparse block has no length
        return empty
    with one_thread():
        by_row = dict(zip(names, others, strict=True))
        return _stacked(getattr(model, method)(X, **by_row, **options))


def _stacked(results):
    """Return an array, or a tuple of k arrays of one shape, as one (k, n, ...)."""
    return np.stack(results if isinstance(results, tuple) else [results])


def _require_rows_apart(X, options):
    """Raise ValueError for options with which rows cannot be predicted in blocks."""
    if options.get("return_cov"):
        _refuse(X, "return_cov=False, for covariances join all rows; use return_std")
    seed = options.get("random_state", 0)
    if not isinstance(seed, Integral):
        _refuse(X, f"an integer in place of random_state={seed!r}, so that all blocks "
                "draw the same functions")  # fmt: skip


def _array_and_row(X):
    """Return X as a dask array with all columns in a block, and a row like its rows.

    Blocks of a data frame stay frames of pandas, with their names and types.
    """
    import dask.array as da
    from dask.utils import is_dataframe_like

    if is_dataframe_like(X):
        from dask.dataframe.utils import meta_nonempty

        meta = np.empty((0, len(X.columns)))
        blocks = X.map_partitions(itself, meta=meta, enforce_metadata=False)
        return blocks, meta_nonempty(X._meta)[:1]
    if not isinstance(X, da.Array) or any(isnan(n) for n in X.shape[1:]):
        _refuse(X, "an array with a known number of columns, or a data frame")
    if X.ndim == 2:
        X = X.rechunk({1: -1})
    return X, np.ones((1, *X.shape[1:]))


def _aligned(name, values, X):
    """Return a value for each row, or several, as a dask array with the blocks of X."""
    import dask.array as da

    if not is_collection(values):
        values = da.from_array(np.asanyarray(values))
    values = _without_index(values)
    if values.ndim > 1:
        values = values.rechunk({1: -1})
    lengths = X.chunks[0], values.chunks[0]
    unknown = np.isnan(np.concatenate(lengths))
    if not unknown.any() and len(values) == len(X):
        return values.rechunk({0: lengths[0]})
    if unknown.all() and len(lengths[0]) == len(lengths[1]):
        return values
    has, expected = (
        f"{'an unknown number of' if isnan(n := sum(each)) else n} rows in "
        f"{len(each)} blocks" for each in reversed(lengths)
    )  # fmt: skip
    raise ValueError(
        f"{name} has {has}: expected {expected}, as X has; where rows are not counted, "
        f"take X and {name} from one data frame, or call compute_chunk_sizes()."
    )
