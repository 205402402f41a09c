"""A Gaussian process on the nearest training rows."""

import numpy as np
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils._param_validation import StrOptions

from skswsgp._compiled.threads import max_threads
from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.given import kernel_for
from skswsgp._estimators.hints import Seed
from skswsgp._kernel_search.kernel_choice import learn_kernel
from skswsgp._kernel_search.kernel_learning import (
    KernelFit,
    LearningOptions,
    count_learning_rows,
)
from skswsgp._rows.data import TrainingRows
from skswsgp._rows.statistics import relative_weights
from skswsgp._solvers.constraints import Count
from skswsgp.baselines.shared import BaselineRegressor, krige

__all__ = ["NearestNeighborGPRegressor"]


class NearestNeighborGPRegressor(BaselineRegressor):
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
        learning starts, those with ``"fixed"`` bounds stay. See "Kernels and
        seasonality". None is a variance times a Matern kernel with one length-scale a
        feature, whose nu of 0.5, 1.5 or 2.5 is the one under which the rows are the
        most likely.
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
        **BaselineRegressor._parameter_constraints,
        "learn_map": [StrOptions({"auto"}), "boolean"],
        "n_neighbors": [Count()],
        "neighbor_search": [StrOptions({"exact", "approximate"})],
        "dtype": [StrOptions({"float64", "float32"})],
    }

    def __init__(
        self, kernel: Kernel | None = None, *, learn_map: bool | str = "auto",
        n_neighbors: int = 64, neighbor_search: str = "exact",
        initial_noise: float = 0.1, normalize_y: bool = True,
        n_jobs: int | None = None, dtype: str = "float64", random_state: Seed = None,
    ):  # fmt: skip
        compat.set_arguments(self, locals())

    def _learn(self, data, rng):
        n_threads = max_threads(self.n_jobs, data.n_rows)
        options = LearningOptions(n_threads, self.dtype, tuning=self._tuning)
        D = data.X.shape[1]
        data = relative_weights(data, count_learning_rows(D, self._tuning))
        kernel = kernel_for(self, D)
        learn_map = self.learn_map if self.learn_map == "auto" else bool(self.learn_map)
        how = {"n_neighbors": self.n_neighbors, "learn_map": learn_map}
        fit = learn_kernel(data, kernel, float(self.initial_noise), rng, options, **how)
        self.X_train_, self.sample_weight_ = data.X, data.weight
        self.y_train_ = self._of_outputs(data.y)
        self.linear_map_ = np.eye(D) if fit.linear_map is None else fit.linear_map
        noise = self._of_outputs(fit.noise)
        self.kernel_, self.noise_variance_ = fit.kernel, noise
        self.loss_curve_ = (-fit.curve).tolist()

    def _latent(self, X):
        N = len(self.X_train_)
        data = TrainingRows(
            self.X_train_, self.y_train_.reshape(N, -1), self.sample_weight_
        )
        fit = KernelFit(
            self.kernel_, np.atleast_1d(self.noise_variance_),
            linear_map=self.linear_map_,
        )  # fmt: skip
        H, n_threads = self.n_neighbors, max_threads(self.n_jobs, len(X))
        return krige(X, data, fit, H, n_threads, self.dtype, self.neighbor_search)
