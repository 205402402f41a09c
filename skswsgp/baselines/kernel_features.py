"""Random features of kernels, to put a Gaussian process into a linear model."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.gaussian_process.kernels import RBF, Kernel
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skswsgp._covariance.compile import compile_kernel
from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.hints import Floats, Seed
from skswsgp._solvers.constraints import Count
from skswsgp.joint.random_features import random_features, require_features
from skswsgp.kernels import with_positions

__all__ = ["KernelFeatures"]


class KernelFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Columns whose products are a kernel, on average over random draws.

    A linear model on `n_components` random features Phi(X) is a Gaussian process with
    the kernel Phi(X) Phi(Z)', whose expectation is the kernel. The error of an entry
    falls as one over the root of `n_components`.

    Parameters
    ----------
    kernel : kernel object of scikit-learn, default=None
        The kernel, in the units of X; its parameters stay as they are. It may be
        composed as "Kernels and seasonality" says, but of no `WhiteKernel` and with
        integer powers only. None is `RBF()`.
    n_components : int, default=512
        Number of features.
    orthogonal : bool, default=True
        Whether directions are orthogonal to each other, in blocks of as many as X has
        columns, which makes errors smaller [2]_. With False they are independent.
    random_state : int, RandomState instance or None, default=None
        Which features are drawn.

    Attributes
    ----------
    kernel_ : kernel object
        The kernel, whose `OnColumns` hold positions.
    seed_ : int
        Seed of the features.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X had any.

    See Also
    --------
    sklearn.kernel_approximation.RBFSampler : Independent features of the RBF kernel.
    sklearn.kernel_approximation.Nystroem : Features of any kernel from training rows.

    Notes
    -----
    Features are cosines of random frequencies for stationary kernels [1]_, neurons of
    one layer for `ArcCosine` [3]_, linear functions for dot products, and products of
    independent ones for products of kernels.

    References
    ----------
    .. [1] A. Rahimi, B. Recht, "Random Features for Large-Scale Kernel Machines", NIPS
       2007.
    .. [2] F. X. Yu, A. T. Suresh, K. Choromanski, D. Holtmann-Rice, S. Kumar,
       "Orthogonal Random Features", NIPS 2016.
    .. [3] Y. Cho, L. K. Saul, "Kernel Methods for Deep Learning", NIPS 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from sklearn.linear_model import BayesianRidge
    >>> from sklearn.pipeline import make_pipeline
    >>> from skswsgp.baselines import KernelFeatures
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = make_pipeline(KernelFeatures(RBF(1.0), random_state=0), BayesianRidge())
    >>> bool(np.abs(model.fit(X, y).predict(X) - y).max() < 0.01)
    True
    """

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        "kernel": "no_validation",  # checked by compile_kernel, which says more
        "n_components": [Count()],
        "orthogonal": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(
        self, kernel: Kernel | None = None, *, n_components: int = 512,
        orthogonal: bool = True, random_state: Seed = None,
    ):  # fmt: skip
        compat.set_arguments(self, locals())

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Choose the features of a table.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, of which the number and the names of the columns are read.
        y : None
            Not used.

        Returns
        -------
        self : object
            The transformer.
        """
        self._validate_params()
        with compat.unchanged_on_failure(self):
            D = compat.validate(self, X).shape[1]
            kernel = RBF() if self.kernel is None else self.kernel
            names = getattr(self, "feature_names_in_", None)
            self.kernel_ = with_positions(kernel, D, names)
            require_features(compile_kernel(self.kernel_, D, np.float64).struct)
            largest = np.iinfo(np.int32).max
            self.seed_ = check_random_state(self.random_state).randint(largest)
            self._n_features_out = self.n_components
            self._orthogonal = bool(self.orthogonal)
        return self

    def _get_doc_link(self):
        from skswsgp.explain import page_of

        return page_of(self)

    def transform(self, X: ArrayLike) -> Floats:
        """Return the features of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        features : ndarray of shape (n_samples, n_components)
            Values of the features, in float64, with the parameters of the fit.
        """
        check_is_fitted(self)
        X = compat.validate(self, X, reset=False)
        kernel = compile_kernel(self.kernel_, X.shape[1], np.float64).struct
        rng, n = np.random.RandomState(self.seed_), self._n_features_out
        return random_features(kernel, X, n, rng, self._orthogonal) / np.sqrt(n)
