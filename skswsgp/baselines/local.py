"""A Gaussian process for each part of the space."""

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils._param_validation import StrOptions

from skswsgp._compiled.threads import max_threads, row_blocks
from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.given import kernel_for
from skswsgp._estimators.hints import Seed
from skswsgp._kernel_search.kernel_choice import learn_kernel
from skswsgp._kernel_search.kernel_learning import KernelFit, LearningOptions
from skswsgp._rows.data import TrainingRows
from skswsgp._rows.inducing import initial_inducing_points
from skswsgp._rows.statistics import feature_spread, relative_weights
from skswsgp._solvers.constraints import Count
from skswsgp.baselines.shared import BaselineRegressor, krige

__all__ = ["LocalGPRegressor"]


class LocalGPRegressor(BaselineRegressor):
    """Gaussian process regression by experts, each of which knows the rows around it.

    The centres of k-means are the places of experts. Each learns kernel and noise from
    the `n_neighbors` training rows nearest to its place, and predicts the rows to which
    it is the nearest expert: given its own rows, or given the rows nearest to a new
    row. Predictions jump where one expert takes over from another.

    Parameters
    ----------
    kernel : kernel object of scikit-learn, default=None
        Covariance of the latent function, in the units of X; its parameters are where
        learning starts, those with ``"fixed"`` bounds stay. See "Kernels and
        seasonality". None is a variance times a Matern kernel, whose length-scales and
        nu of 0.5, 1.5, 2.5 or infinity suit the rows of an expert.
    mode : {"inductive", "transductive"}, default="inductive"
        Whether an expert predicts from its own rows, or from the training rows nearest
        to a new row.
    n_experts : int, default=64
        Number of experts, cut to the number of distinct rows.
    n_neighbors : int, default=100
        Number of rows of an expert, cut to that of training rows.
    initial_noise : float, default=0.1
        Noise variance where learning starts, on the scale of standardised y.
    normalize_y : bool, default=True
        Whether y is standardised inside.
    n_jobs : int, default=None
        Number of threads; the results are the same for any number.
    dtype : {"float64", "float32"}, default="float64"
        Precision of predictions; results are float64 in both.
    random_state : int, RandomState instance or None, default=None
        Seeds k-means.

    Attributes
    ----------
    centers_ : ndarray of shape (n_experts, n_features)
        Places of the experts.
    kernels_ : list of kernel objects
        Learned kernels, one for each expert.
    noise_variances_ : ndarray of shape (n_experts,) or (n_experts, n_outputs)
        Learned noise variances of a row of mean weight, on the scale of standardised y.
    expert_rows_ : ndarray of shape (n_experts, n_neighbors)
        Numbers of the rows of `X_train_` that belong to each expert.
    X_train_ : ndarray of shape (n_rows, n_features)
        Training inputs, without rows of weight zero.
    y_train_ : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        Standardised targets.
    sample_weight_ : ndarray of shape (n_rows,)
        Weights of the training rows over their mean.
    X_scale_ : ndarray of shape (n_features,)
        Spreads of the columns, the units of distances to experts.
    y_mean_, y_scale_ : float or ndarray of shape (n_outputs,)
        y is standardised as (y - y_mean_) / y_scale_.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had any.

    See Also
    --------
    NearestNeighborGPRegressor : One kernel for all rows, learned from all.

    Notes
    -----
    Near rows are looked for with the kernel of the expert in the transductive mode.
    The logarithms of parameters have the priors of :class:`skswsgp.SWSGPRegressor`:
    without them the noise of some experts goes to zero, and their densities of new
    observations with it. An expert whose y are all equal, as of a capped y, cannot tell
    its noise, and takes the median of those of others.

    References
    ----------
    .. [1] H.-M. Kim, B. K. Mallick, C. C. Holmes, "Analyzing Nonstationary Spatial Data
       Using Piecewise Gaussian Processes", Journal of the American Statistical
       Association 100(470), 2005.
    .. [2] R. Urtasun, T. Darrell, "Sparse Probabilistic Regression for
       Activity-Independent Human Pose Inference", CVPR 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from skswsgp.baselines import LocalGPRegressor
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = LocalGPRegressor(n_experts=4, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.0], [4.0]], return_std=True)
    >>> bool(np.abs(mean - np.sin([1.0, 4.0])).max() < 0.01)
    True
    """

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        **BaselineRegressor._parameter_constraints,
        "mode": [StrOptions({"inductive", "transductive"})],
        "n_experts": [Count()],
        "n_neighbors": [Count()],
        "dtype": [StrOptions({"float64", "float32"})],
    }

    def __init__(
        self, kernel: Kernel | None = None, *, mode: str = "inductive",
        n_experts: int = 64, n_neighbors: int = 100, initial_noise: float = 0.1,
        normalize_y: bool = True, n_jobs: int | None = None, dtype: str = "float64",
        random_state: Seed = None,
    ):  # fmt: skip
        compat.set_arguments(self, locals())

    def _learn(self, data, rng):
        data = relative_weights(data, data.n_rows)
        kernel = kernel_for(self, data.X.shape[1])
        self.X_train_, self.sample_weight_ = data.X, data.weight
        self.y_train_ = self._of_outputs(data.y)
        self.X_scale_ = feature_spread(data.X, rng, dtype=self.dtype)
        self.centers_ = initial_inducing_points(
            data.X, self.n_experts, "kmeans", rng, self.X_scale_, self._tuning,
            data.weight,
        )  # fmt: skip
        X = self._in_spreads(data.X)
        nearest = [
            np.argsort(cdist(center[None], X)[0], kind="stable")[: self.n_neighbors]
            for center in self._in_spreads(self.centers_)
        ]
        self.expert_rows_ = np.stack(nearest)
        options = LearningOptions(
            max_threads(self.n_jobs, data.n_rows), tuning=self._tuning
        )
        noise, seed = float(self.initial_noise), rng.randint(2**31 - 1)
        fits = [
            learn_kernel(
                data.take(rows), kernel, noise, np.random.RandomState(seed), options,
                by="evidence",
            )
            for rows in self.expert_rows_
        ]  # fmt: skip
        self.kernels_ = [fit.kernel for fit in fits]
        noises, y = np.stack([fit.noise for fit in fits]), data.y[self.expert_rows_]
        equal = (y == y[:, :1]).all(axis=1)
        for noise, same in zip(noises.T, equal.T, strict=True):
            if not same.all():  # equal targets, as of a capped y, tell no noise
                noise[same] = np.median(noise[~same])
        self.noise_variances_ = self._of_outputs(noises)

    def _in_spreads(self, X):
        """Return rows of X in the units of distances to experts."""
        with np.errstate(over="ignore"):  # of rows far from all others
            return X / self.X_scale_

    def _moments(self, X):
        N, Q = len(self.X_train_), np.size(self.y_mean_)
        y, out = self.y_train_.reshape(N, Q), np.empty((2, len(X), Q))
        data = TrainingRows(self.X_train_, y, self.sample_weight_)
        noise = self.noise_variances_.reshape(-1, Q)
        centers = self._in_spreads(self.centers_)
        expert = [
            cdist(self._in_spreads(X[rows]), centers).argmin(axis=1)
            for rows in row_blocks(len(X))
        ]
        expert, H = np.concatenate(expert), self.expert_rows_.shape[1]
        for e in np.unique(expert):
            rows, fit = (
                np.flatnonzero(expert == e),
                KernelFit(self.kernels_[e], noise[e]),
            )
            own = self.mode == "inductive"
            known = data.take(self.expert_rows_[e]) if own else data
            n_threads = max_threads(self.n_jobs, len(rows))
            mu, v = krige(X[rows], known, fit, H, n_threads, self.dtype)
            out[:, rows] = mu, v + noise[e]
        return out
