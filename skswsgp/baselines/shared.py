"""What the baselines that are no SWSGP share: the course of fit and predict."""

from abc import ABCMeta, abstractmethod
from numbers import Integral, Real
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MultiOutputMixin,
    RegressorMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from skswsgp._compiled.threads import row_blocks
from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.hints import Floats, PerRow, Result
from skswsgp._estimators.observations import QuantilesMixin, require_coverage
from skswsgp._fit.targets import distinct_labels, require_two
from skswsgp._kernel_search.neighbor_likelihood import NeighborProcess, neighbor_model
from skswsgp._law.law import gaussian_law
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._rows.checks import as_numbers
from skswsgp._rows.columns import mapped
from skswsgp._rows.data import TrainingRows, center_rows
from skswsgp._rows.statistics import mean_and_scale
from skswsgp._rows.target_scale import TargetScale
from skswsgp._solvers.tuning import Tuning


class Baseline(BaseEstimator, metaclass=ABCMeta):
    """From the rows of a user to those that a baseline learns from.

    A subclass has `_latent(X)`, mean and variance (n, Q) of the latent functions at
    validated rows, prior means included, or a method of this file in its place.
    """

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        "kernel": "no_validation",  # checked by compile_kernel, which says more
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }
    _target_checks: dict  # arguments of `validate_data` that concern y
    _tuning = Tuning()
    learn_map, dtype = False, "float64"  # where they are no parameters

    @abstractmethod
    def _encode(self, y, weight):
        """Return targets (n, Q) of rows of positive weight, and learn their scale."""

    @abstractmethod
    def _learn(self, data, rng):
        """Set the fitted attributes from `TrainingRows`, which are copies."""

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None) -> Self:
        """Learn from training rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs, in any units.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Training targets, or labels of shape (n_samples,).
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row: how often it counts in learning, and for Gaussian noise
            what its variance is divided by, where a common factor of all weights
            changes nothing.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the data cannot be used; the estimator stays as it was.
        FloatingPointError
            If learning produces NaN or infinity.
        """
        with compat.unchanged_on_failure(self):
            self._validate_params()
            rng = check_random_state(self.random_state)
            X, y = compat.validate(self, X, y, **self._target_checks)
            weight = compat.check_weights(sample_weight, X, float)
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
            self._learn(TrainingRows(X, self._encode(y, weight), weight), rng)
        return self

    def _get_doc_link(self):
        from skswsgp.explain import page_of

        return page_of(self)

    def _checked(self, X):
        """Return validated rows for a prediction."""
        check_is_fitted(self)
        self._validate_params()  # `set_params` may have changed some since `fit`
        return compat.validate(self, X, reset=False)


class BaselineRegressor(
    QuantilesMixin, compat.ScoreMixin, MultiOutputMixin, RegressorMixin, Baseline
):
    """Regression of standardised targets with Gaussian noise."""

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        **Baseline._parameter_constraints,
        "initial_noise": [Interval(Real, 0, None, closed="neither")],
        "normalize_y": ["boolean"],
    }
    _target_checks = {"multi_output": True}  # noqa: RUF012

    @property
    def _likelihood(self):
        """The name of the likelihood, and the number of latent functions."""
        return "gaussian", np.size(self.y_mean_)

    def _moments(self, X):
        """Return mean and variance (n, Q) of standardised observations at rows of X."""
        mu, v = self._latent(X)
        return mu, v + np.atleast_1d(self.noise_variance_)

    def _standard_quantiles(self, X, levels):
        mu, v = self._moments(self._checked(X))
        return gaussian_law(mu, np.sqrt(v)).quantiles(levels)

    @property
    def _scale(self):
        """The `TargetScale` of the fitted model."""
        return TargetScale(self.y_mean_, self.y_scale_, None)

    def _without_axis(self, values):
        return values if np.ndim(self.y_mean_) else values[:, 0]

    def _encode(self, y, weight):
        y = as_numbers(y)
        self.y_mean_, self.y_scale_ = (
            np.zeros(y.shape[1:])[()],
            np.ones(y.shape[1:])[()],
        )
        if self.normalize_y:
            self.y_mean_, self.y_scale_ = mean_and_scale(y, weight)
        return ((y - self.y_mean_) / self.y_scale_).reshape(len(y), -1)

    def _of_outputs(self, values):
        """Return values (..., Q) without the axis of outputs where y has none."""
        return values if np.ndim(self.y_mean_) else values[..., 0][()]

    def predict(
        self, X: ArrayLike, return_std: bool = False, *,
        quantiles: ArrayLike | None = None,
    ) -> Result:  # fmt: skip
        """Predict the mean of new observations, with their deviation, or quantiles.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Whether to return standard deviations as well.
        quantiles : float or array-like of shape (n_quantiles,), default=None
            Probabilities that an observation, noise included, is smaller. If they are
            given, its quantiles are returned in place of the mean.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictive mean, in the units of y.
        std : ndarray of the same shape
            Standard deviation of an observation whose weight is the mean of the
            training rows, noise included, in the units of y. Only if `return_std`.
        y_quantiles : ndarray of shape (n_samples[, n_quantiles][, n_outputs])
            Quantiles of such observations in the units of y, without the axis of
            quantiles for a number. Returned alone, and only for `quantiles`.
        """
        if quantiles is not None:
            return self._quantiles_alone(X, quantiles, {"return_std": return_std})
        mu, v = self._moments(self._checked(X))
        mean = self._of_outputs(mu) * self.y_scale_ + self.y_mean_
        if not return_std:
            return mean
        return mean, np.sqrt(self._of_outputs(v)) * self.y_scale_

    def predict_interval(
        self, X: ArrayLike, coverage: float = 0.95, **others: object
    ) -> tuple[Floats, Floats]:
        """Predict the central interval that holds a new observation with a probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        coverage : float, default=0.95
            Probability that an observation, noise included, lies in the interval.
        **others
            No argument has another name: a TypeError says so, and how to give the
            coverage where `alpha` or `confidence_level` came.

        Returns
        -------
        lower, upper : ndarrays of shape (n_samples,) or (n_samples, n_outputs)
            Ends of the intervals, in the units of y.
        """
        require_coverage(others)
        return self._interval(X, coverage)


class BaselineClassifier(compat.ScoreMixin, ClassifierMixin, Baseline):
    """Classes with a probit link for two and a softmax for more."""

    _target_checks = {}  # noqa: RUF012

    @property
    def _likelihood(self):
        """The name of the likelihood, and the number of latent functions."""
        n_classes = len(self.classes_)
        name = "bernoulli" if n_classes == 2 else "softmax"
        return name, LIKELIHOODS[name].count_latent(n_classes)

    def _encode(self, y, weight):
        self.classes_ = distinct_labels(y)
        require_two(self.classes_)
        record, codes = LIKELIHOODS[self._likelihood[0]], self.classes_.searchsorted(y)
        return record.encode(codes, len(self.classes_))

    def _of_outputs(self, values):
        """Return values (..., Q) without the axis of functions where there is one."""
        return values if self._likelihood[1] > 1 else values[..., 0]

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Probabilities, columns in the order of `classes_`.
        """
        return self._probabilities(self._checked(X))

    def _probabilities(self, X):
        """Return probabilities (n, n_classes) at validated rows."""
        return LIKELIHOODS[self._likelihood[0]].probabilities(*self._latent(X))

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        label : ndarray of shape (n_samples,)
            Labels.
        """
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]


def krige(X, data, learned, n_neighbors, n_threads, dtype, search="exact"):
    """Return mean and variance (n, Q) of functions at X given the nearest rows of data.

    `data` holds the rows that may be neighbours, and `learned` is a `KernelFit`. Other
    arguments are those of `NeighborProcess`.
    """
    Z = data.mapped(learned.linear_map).inputs
    ratios = 1.0 / data.weight[:, None]
    model, center = neighbor_model(Z, data.y, ratios, *learned[:2], dtype)
    process = NeighborProcess(model, min(n_neighbors, len(Z)), n_threads, search)
    return predict_from_near(process, X, center, learned.linear_map)


def predict_from_near(process, X, center, linear_map=None):
    """Return mean and variance (n, Q) of the latent functions at rows of X.

    X is in the units of the user, the rows of the `NeighborProcess` in those of
    X @ linear_map, less the `center`. Each row is predicted from H rows of data.
    """
    query, dtype = process.make_search(process.H).query, process.model.Z.dtype
    pairs = []
    for rows in row_blocks(len(X)):
        block = center_rows(mapped(X[rows], linear_map), center, dtype)
        pairs.append(process.engine.kriging_predictions(block, query(block)))
    mean, variance = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    if not np.all(np.isfinite(mean) & np.isfinite(variance)):
        raise FloatingPointError(
            "a covariance matrix of neighbours could not be factorised: expected "
            "finite kernel parameters and a positive noise variance; check kernel_ "
            "and noise_variance_, or scale X."
        )
    return mean, variance
