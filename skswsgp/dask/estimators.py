"""Estimators that are fitted to dask collections, and predict them block by block."""

from typing import Any, Self

from skswsgp._estimators.base import GivenRows
from skswsgp._estimators.classifier import SWSGPClassifier
from skswsgp._estimators.regressor import SWSGPRegressor
from skswsgp._estimators.shared_docs import with_shared_text
from skswsgp._estimators.sklearn_compat import with_callbacks
from skswsgp.dask.fit import fit_blocks
from skswsgp.dask.predictions import ScoreMixin, are_collections, predicts_blocks


class BlocksMixin(ScoreMixin):
    """What both estimators share: fits and scores of collections."""

    # Types of `predicts_blocks`, whose results are those of dask for its collections
    predict: Any
    latent_mean_and_variance: Any
    sample_f: Any
    predict_gradient: Any
    is_novel: Any

    @with_callbacks
    def _fit_blocks(self, given, **more):
        """Fit the model to `GivenRows` of collections and nothing more."""
        return fit_blocks(self, given, {k: v is not None for k, v in more.items()})


@predicts_blocks
@with_shared_text
class DaskSWSGPRegressor(BlocksMixin, SWSGPRegressor):
    """`SWSGPRegressor` for tables that are dask collections.

    X, y and weights are dask arrays or data frames with the same blocks of rows, which
    stay with their workers; a sample of the rows teaches the kernel. Predictions of
    collections are lazy dask arrays with the blocks of X. Rows in memory are fitted and
    predicted as by `SWSGPRegressor`, whose parameters and attributes are these. See
    "Distributed training with Dask", in the folder doc/user_guide.

    See Also
    --------
    skswsgp.SWSGPRegressor : The parameters, attributes and methods.
    DaskPredictor : Predictions of collections by any other model.

    Examples
    --------
    >>> import dask.array as da
    >>> from skswsgp.dask import DaskSWSGPRegressor
    >>> X = da.random.default_rng(0).uniform(size=(300, 2), chunks=(100, 2))
    >>> model = DaskSWSGPRegressor(n_inducing=30, random_state=0).fit(X, X[:, 0])
    >>> model.predict(X).numblocks
    (3,)
    """

    predict_interval: Any
    log_predictive_density: Any
    noise_std: Any

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, X_val: Any = None,
        y_val: Any = None, *, exposure: Any = None, noise_variance: Any = None,
    ) -> Self:  # fmt: skip
        """Fit the model.

        Parameters
        ----------
        X : array-like or dask collection of shape (n_samples, n_features)
            Training inputs, in any units.
        y : array-like or dask collection of shape (n_samples,) or \
                (n_samples, n_outputs)
            Training targets.
        sample_weight : array-like or dask collection of shape (n_samples,), \
                default=None
            Weight of each row.
        X_val, y_val, exposure, noise_variance : default=None
            As for `SWSGPRegressor`, and None where X is a collection.

        $outcome_of_fit
        """
        more = {"exposure": exposure, "noise_variance": noise_variance}
        if not are_collections(X, y, sample_weight):
            return super().fit(X, y, sample_weight, X_val, y_val, **more)
        more |= {"X_val": X_val, "y_val": y_val}
        return self._fit_blocks(GivenRows(X, y, sample_weight), **more)


@predicts_blocks
@with_shared_text
class DaskSWSGPClassifier(BlocksMixin, SWSGPClassifier):
    """`SWSGPClassifier` for tables that are dask collections.

    X, y and weights are dask arrays or data frames with the same blocks of rows, which
    stay with their workers; a sample of the rows teaches the kernel. Predictions of
    collections are lazy dask arrays with the blocks of X. Rows in memory are fitted and
    predicted as by `SWSGPClassifier`, whose parameters and attributes are these. See
    "Distributed training with Dask", in the folder doc/user_guide.

    See Also
    --------
    skswsgp.SWSGPClassifier : The parameters, attributes and methods.
    DaskPredictor : Predictions of collections by any other model.

    Examples
    --------
    >>> import dask.array as da
    >>> from skswsgp.dask import DaskSWSGPClassifier
    >>> X = da.random.default_rng(0).uniform(size=(300, 2), chunks=(100, 2))
    >>> model = DaskSWSGPClassifier(n_inducing=30, random_state=0)
    >>> model.fit(X, X[:, 0] > 0.5).predict_proba(X).numblocks
    (3, 1)
    """

    predict_proba: Any
    predict_log_proba: Any
    decision_function: Any

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, X_val: Any = None,
        y_val: Any = None,
    ) -> Self:  # fmt: skip
        """Fit the model.

        Parameters
        ----------
        X : array-like or dask collection of shape (n_samples, n_features)
            Training inputs, in any units.
        y : array-like or dask collection of shape (n_samples,)
            Labels.
        sample_weight : array-like or dask collection of shape (n_samples,), \
                default=None
            Weight of each row.
        X_val, y_val : default=None
            As for `SWSGPClassifier`, and None where X is a collection.

        $outcome_of_fit
        """
        more = {"X_val": X_val, "y_val": y_val}
        if not are_collections(X, y, sample_weight):
            return super().fit(X, y, sample_weight, **more)
        return self._fit_blocks(GivenRows(X, y, sample_weight), **more)
