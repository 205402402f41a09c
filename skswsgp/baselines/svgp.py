"""The sparse variational Gaussian process, whose rows use all inducing points."""

from inspect import signature

from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils._param_validation import StrOptions

from skswsgp._estimators.classifier import SWSGPClassifier
from skswsgp._estimators.hints import Seed
from skswsgp._estimators.regressor import SWSGPRegressor
from skswsgp._estimators.sklearn_compat import set_arguments
from skswsgp.baselines.shared_docs import with_shared_text
from skswsgp.solvers import Adam

__all__ = ["SVGPClassifier", "SVGPRegressor"]

LIKELIHOODS = {"gaussian", "student_t", "poisson", "negative_binomial"}


def _constraints(cls, **own):
    """Return the constraints of the parameters of a class, `own` before others."""
    known = cls._parameter_constraints | Adam._parameter_constraints
    known |= {"covariance": [StrOptions({"full", "diag"})]}
    known |= {"early_stopping": ["boolean"], **own}
    return {name: known[name] for name in signature(cls).parameters}


class AllInducing:
    """What an SVGP fixes of an SWSGP, and the solver of its own parameters."""

    n_neighbors, neighbor_search, kl_weight = "all", "exact", 1.0
    x_transform = y_transform = class_weight = n_shared = None
    learn_map = warm_start = False
    predictive = "gaussian"

    @property
    def solver(self):
        """`Adam` with the parameters of this estimator.

        Returns
        -------
        solver : Adam
            The solver of this estimator, which `set_params` cannot change.
        """
        names = [name for name in Adam().get_params() if hasattr(self, name)]
        return Adam(**{name: getattr(self, name) for name in names})


@with_shared_text
class SVGPRegressor(AllInducing, SWSGPRegressor):
    """Sparse variational Gaussian process regression.

    Every row uses all M inducing points, which costs O(M^3) for each minibatch. Adam
    trains kernel, noise, inducing inputs and q(u) on minibatches of the bound [1]_.

    Parameters
    ----------
    kernel : kernel object of scikit-learn, default=None
        Covariance of the latent function, in the units of X, at whose parameters
        training starts; those with ``"fixed"`` bounds stay. See "Kernels and
        seasonality". None is a variance times a Matern 5/2 kernel with one length-scale
        for each feature.
    $svgp_points
    learn_kernel : bool, default=False
        Whether the kernel with the noise is learned from near rows before, as in
        :class:`skswsgp.SWSGPRegressor`, and then trained on.
    initial_noise : float, default=0.1
        Noise variance at the start, on the scale of standardised y.
    likelihood : {"gaussian", "student_t", "poisson", "negative_binomial"}, \
            default="gaussian"
        Distribution of y given the latent function, as in
        :class:`skswsgp.SWSGPRegressor`.
    likelihood_shape : float or "auto", default="auto"
        Degrees of freedom of "student_t", or the size of "negative_binomial".
    normalize_y : bool, default=True
        Whether y is standardised inside.
    $svgp_training
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where the model is trained and evaluated, as in
        :class:`skswsgp.SWSGPRegressor`.
    $svgp_computing

    Attributes
    ----------
    kernel_ : kernel object
        Kernel with the trained parameters.
    inducing_points_ : ndarray of shape (n_inducing, n_features)
        Inducing inputs, in the units of X.
    inducing_mean_, inducing_covariance_ : ndarrays
        Mean and covariance of q(u), as in :class:`skswsgp.SWSGPRegressor`, which has
        the other attributes, too.

    See Also
    --------
    skswsgp.SWSGPRegressor : Each row uses its nearest inducing points.

    Notes
    -----
    It is a :class:`skswsgp.SWSGPRegressor` with ``n_neighbors="all"`` and
    ``solver=Adam()``, on X as it is. Its methods take `n_neighbors`: a number there is
    the SVGP-M-H of [2]_, which predicts from the H nearest inducing points of an SVGP.

    References
    ----------
    .. [1] J. Hensman, N. Fusi, N. D. Lawrence, "Gaussian Processes for Big Data", UAI
       2013.
    .. [2] G.-L. Tran, D. Milios, P. Michiardi, M. Filippone, "Sparse within Sparse
       Gaussian Processes using Neighbor Information", ICML 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from skswsgp.baselines import SVGPRegressor
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = SVGPRegressor(n_inducing=10, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.0], [4.0]], return_std=True)
    >>> bool(np.abs(mean - np.sin([1.0, 4.0])).max() < 0.05)
    True
    """

    def __init__(
        self, kernel: Kernel | None = None, *, n_inducing: int | str = "auto",
        inducing_points: ArrayLike = "kmeans", optimize_inducing: bool = True,
        covariance: str = "full", learn_kernel: bool = False,
        initial_noise: float = 0.1, likelihood: str = "gaussian",
        likelihood_shape: float | str = "auto", normalize_y: bool = True,
        batch_size: int = 64, learning_rate: float = 0.02, max_iter: int = 200,
        early_stopping: bool = False, device: str = "auto",
        n_jobs: int | None = None, dtype: str = "float64", random_state: Seed = None,
        verbose: int = 0,
    ):  # fmt: skip
        set_arguments(self, locals())

    def _require_usable_noise(self, X_val):
        raise ValueError(
            "noise_variance came with SVGPRegressor: expected none, because Adam "
            "learns one noise variance for all rows; use SWSGPRegressor, or tell by "
            "sample_weight how precise a row is relative to others."
        )


@with_shared_text
class SVGPClassifier(AllInducing, SWSGPClassifier):
    """Sparse variational Gaussian process classification.

    Every row uses all M inducing points, which costs O(M^3) for each minibatch. Adam
    trains kernel, inducing inputs and q(u) on minibatches of the bound [1]_. Two
    classes have one latent function, more have one each.

    Parameters
    ----------
    kernel : kernel object of scikit-learn, default=None
        Covariance of the latent functions, in the units of X, at whose parameters
        training starts; those with ``"fixed"`` bounds stay. See "Kernels and
        seasonality". None is a variance times a Matern 5/2 kernel with one length-scale
        for each feature.
    $svgp_points
    learn_kernel : bool, default=False
        Whether the kernel is learned from near rows before, as in
        :class:`skswsgp.SWSGPClassifier`, and then trained on.
    likelihood : {"auto", "bernoulli", "logit", "softmax"}, default="auto"
        Link of latent functions and classes, as in :class:`skswsgp.SWSGPClassifier`.
    $svgp_training
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where the model is trained and evaluated, as in
        :class:`skswsgp.SWSGPClassifier`.
    $svgp_computing

    Attributes
    ----------
    kernel_ : kernel object
        Kernel with the trained parameters.
    inducing_points_ : ndarray of shape (n_inducing, n_features)
        Inducing inputs, in the units of X.
    inducing_mean_, inducing_covariance_ : ndarrays
        Mean and covariance of q(u), as in :class:`skswsgp.SWSGPClassifier`, which has
        the other attributes, too.

    See Also
    --------
    skswsgp.SWSGPClassifier : Each row uses its nearest inducing points.

    Notes
    -----
    It is a :class:`skswsgp.SWSGPClassifier` with ``n_neighbors="all"`` and
    ``solver=Adam()``, on X as it is. Its methods take `n_neighbors`: a number there is
    the SVGP-M-H of [2]_, which predicts from the H nearest inducing points of an SVGP.

    References
    ----------
    .. [1] J. Hensman, A. G. de G. Matthews, Z. Ghahramani, "Scalable Variational
       Gaussian Process Classification", AISTATS 2015.
    .. [2] G.-L. Tran, D. Milios, P. Michiardi, M. Filippone, "Sparse within Sparse
       Gaussian Processes using Neighbor Information", ICML 2021.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skswsgp.baselines import SVGPClassifier
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> model = SVGPClassifier(n_inducing=20, max_iter=60, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    def __init__(
        self, kernel: Kernel | None = None, *, n_inducing: int | str = "auto",
        inducing_points: ArrayLike = "kmeans", optimize_inducing: bool = True,
        covariance: str = "full", learn_kernel: bool = False,
        likelihood: str = "auto", batch_size: int = 64, learning_rate: float = 0.02,
        max_iter: int = 200, early_stopping: bool = False, device: str = "auto",
        n_jobs: int | None = None, dtype: str = "float64", random_state: Seed = None,
        verbose: int = 0,
    ):  # fmt: skip
        set_arguments(self, locals())


SVGPRegressor._parameter_constraints = _constraints(
    SVGPRegressor, likelihood=[StrOptions(LIKELIHOODS)]
)
SVGPClassifier._parameter_constraints = _constraints(SVGPClassifier)
