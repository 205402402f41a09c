"""Simpler models, to compare the estimators with."""

from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from skswsgp._cluster.predictions import by_blocks
from skswsgp._compiled.threads import max_threads
from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.given import kernel_for
from skswsgp._kernel_search.kernel_choice import learn_kernel
from skswsgp._kernel_search.kernel_learning import (
    LearningOptions,
    count_learning_rows,
)
from skswsgp._kernel_search.neighbor_likelihood import NeighborProcess, neighbor_model
from skswsgp._rows.columns import mapped
from skswsgp._rows.data import TrainingRows
from skswsgp._rows.statistics import mean_and_scale, relative_weights
from skswsgp._solvers.tuning import Tuning

__all__ = ["NearestNeighborGPRegressor"]


class NearestNeighborGPRegressor(
    compat.UnmaskedScoreMixin, MultiOutputMixin, RegressorMixin, BaseEstimator
):
    """Gaussian process regression from the training rows nearest to each new one.

    Each prediction is that of an exact Gaussian process on the `n_neighbors` nearest
    training rows, at a cost of O(n_neighbors^3). Kernel and noise maximise the density
    of training rows given their 32 nearest others, the nearest-neighbour likelihood
    [1]_ [2]_, on minibatches. It is hard to beat on tables with many rows, but predicts
    one point at a time: there is no joint distribution of several predictions.

    Parameters
    ----------
    kernel : kernel object of scikit-learn, default=None
        Covariance of the latent function, in the units of X; its parameters are where
        learning starts, those with ``"fixed"`` bounds stay. It may be composed as in
        :class:`skswsgp.SWSGPRegressor`. None is a variance times a Matern kernel with
        one length-scale a feature, whose nu of 0.5, 1.5 or 2.5 is the one under which
        the rows are the most likely.
    learn_map : bool or "auto", default="auto"
        Whether a linear map of the columns is learned with the kernel, as in
        :class:`skswsgp.SWSGPRegressor`.
    n_neighbors : int, default=64
        Training rows that a prediction uses; cut to their number.
    neighbor_search : {"exact", "approximate"}, default="exact"
        Whether a prediction uses the nearest rows, or most of them, which a graph of
        PyNNDescent finds. Learning uses the nearest rows in both.
    initial_noise : float, default=0.1
        Noise variance where learning starts, on the scale of standardised y.
    normalize_y : bool, default=True
        Whether y is standardised inside.
    n_jobs : int, default=None
        Number of threads. None takes all that Numba may use, and one in a task of dask;
        results are the same for any number.
    dtype : {"float64", "float32"}, default="float64"
        Precision of all computations.
    random_state : int, RandomState instance or None, default=None
        Drives the choice of rows for learning.

    Attributes
    ----------
    kernel_ : kernel object
        Kernel with the learned parameters, a function of rows of X @ linear_map_.
    linear_map_ : ndarray of shape (n_features, n_columns)
        Linear map of the columns of X, the identity with `learn_map=False`.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Learned noise variance of a row of mean weight, on the scale of standardised y.
    X_train_ : ndarray of shape (n_samples, n_features)
        Training inputs, in the units of X, without rows of weight zero.
    y_train_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Training targets, standardised.
    sample_weight_ : ndarray of shape (n_samples,)
        Weights of the training rows, divided by their mean over distinct rows.
    y_mean_, y_scale_ : float or ndarray of shape (n_outputs,)
        y is standardised as (y - y_mean_) / y_scale_.
    loss_curve_ : list of float
        Negative mean log density of the rows of each step of learning, given their
        nearest others, before the step; in nats, of standardised y and summed over
        outputs. Empty after a fit to one row.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had any.

    See Also
    --------
    skswsgp.SWSGPRegressor : Variational, with inducing points.
    sklearn.gaussian_process.GaussianProcessRegressor : Exact, for thousands of rows.

    Notes
    -----
    The first eight attributes are the whole model: `predict` reads nothing else. With
    `n_neighbors` at least the number of rows, predictions are those of the exact
    Gaussian process. At most 200,000 random rows take part in learning; all are used in
    predictions.

    References
    ----------
    .. [1] A. V. Vecchia, "Estimation and Model Identification for Continuous Spatial
       Processes", Journal of the Royal Statistical Society B 50(2), 1988.
    .. [2] A. Datta, S. Banerjee, A. O. Finley, A. E. Gelfand, "Hierarchical
       Nearest-Neighbor Gaussian Process Models for Large Geostatistical Datasets",
       Journal of the American Statistical Association 111(514), 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from skswsgp.baselines import NearestNeighborGPRegressor
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = NearestNeighborGPRegressor(n_neighbors=8, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.0], [4.0]], return_std=True)
    >>> bool(np.abs(mean - np.sin([1.0, 4.0])).max() < 0.01)
    True
    """

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        "kernel": "no_validation",  # checked by compile_kernel, which says more
        "learn_map": [StrOptions({"auto"}), "boolean"],
        "n_neighbors": [compat.Count()],
        "neighbor_search": [StrOptions({"exact", "approximate"})],
        "initial_noise": [Interval(Real, 0, None, closed="neither")],
        "normalize_y": ["boolean"],
        "n_jobs": [Integral, None],
        "dtype": [StrOptions({"float64", "float32"})],
        "random_state": ["random_state"],
    }
    _tuning = Tuning()

    def __init__(
        self, kernel=None, *, learn_map="auto", n_neighbors=64, neighbor_search="exact",
        initial_noise=0.1, normalize_y=True, n_jobs=None, dtype="float64",
        random_state=None,
    ):  # fmt: skip
        compat.set_arguments(self, locals())

    def fit(self, X, y, sample_weight=None):
        """Keep the training rows; learn kernel and noise from them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs, in any units.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Training targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row: how often it counts in learning, and what its noise
            variance is divided by. A common factor of all weights changes nothing.

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
            self._fit(X, y, sample_weight)
        return self

    def _fit(self, X, y, sample_weight):
        self._validate_params()
        rng = check_random_state(self.random_state)
        X, y = compat.validate(self, X, y, multi_output=True)
        y, weight = compat.as_numbers(y), compat.check_weights(sample_weight, X, float)
        X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]  # copies
        self.y_mean_, self.y_scale_ = (
            np.zeros(y.shape[1:])[()],
            np.ones(y.shape[1:])[()],
        )
        if self.normalize_y:
            self.y_mean_, self.y_scale_ = mean_and_scale(y, weight)
        self.X_train_, self.y_train_ = X, (y - self.y_mean_) / self.y_scale_
        n_threads = max_threads(self.n_jobs, len(X))
        tuning = self._tuning
        options = LearningOptions(n_threads, self.dtype, tuning=tuning)
        data = TrainingRows(X, self.y_train_.reshape(len(y), -1), weight)
        n_rows = count_learning_rows(X.shape[1], tuning)
        data = relative_weights(data, n_rows)
        self.sample_weight_ = data.weight
        kernel = kernel_for(self, X.shape[1])
        learn_map = self.learn_map if self.learn_map == "auto" else bool(self.learn_map)
        how = {"n_neighbors": self.n_neighbors, "learn_map": learn_map}
        fit = learn_kernel(data, kernel, float(self.initial_noise), rng, options, **how)
        D = X.shape[1]
        self.linear_map_ = np.eye(D) if fit.linear_map is None else fit.linear_map
        self.kernel_, noise, curve = fit.kernel, fit.noise, fit.curve
        self.noise_variance_ = noise if y.ndim > 1 else float(noise[0])
        self.loss_curve_ = (-curve).tolist()

    @by_blocks
    def predict(self, X, return_std=False):
        """Predict the mean, and the standard deviation, of new observations.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Whether to return standard deviations as well.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictive mean, in the units of y.
        std : ndarray of the same shape
            Standard deviation of an observation whose weight is the mean of the
            training rows, noise included, in the units of y. Only if `return_std`.
        """
        check_is_fitted(self, "X_train_")
        self._validate_params()  # `set_params` may have changed some since `fit`
        X = compat.validate(self, X, reset=False)
        N = len(self.X_train_)
        y, noise = self.y_train_.reshape(N, -1), np.atleast_1d(self.noise_variance_)
        Z, ratios = mapped(self.X_train_, self.linear_map_), 1.0 / self.sample_weight_
        model, center = neighbor_model(
            Z, y, ratios[:, None], self.kernel_, noise, self.dtype
        )
        H, n_threads = min(self.n_neighbors, N), max_threads(self.n_jobs, len(X))
        process = NeighborProcess(model, H, n_threads, self.neighbor_search)
        mu, v = process.predict_rows(X, center, self.linear_map_)
        shape = len(X), *self.y_train_.shape[1:]
        mean = mu.reshape(shape) * self.y_scale_ + self.y_mean_
        if not return_std:
            return mean
        return mean, np.sqrt(v + noise).reshape(shape) * self.y_scale_
