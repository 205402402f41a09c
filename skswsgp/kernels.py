"""Covariance functions that scikit-learn lacks, as scikit-learn kernel objects."""

from collections.abc import Iterable
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, DotProduct, Exponentiation, Kernel

__all__ = ["ArcCosine", "OnColumns", "Polynomial"]

Bounds = tuple[float, float] | str  # of a parameter in training, or "fixed"


class _AugmentedDotProduct(Kernel):
    """A function of s(x, z) = a(x)' a(z), a(x) = (sigma_0, x / length_scale).

    Each hyperparameter scales a block of the columns of a. A subclass defines
    `_check_shape`, `_evaluate` and `_diag`. `_evaluate` returns k and a function that
    gives the derivative of k by the logarithm of the scale of some columns.
    """

    def __init__(self, length_scale, sigma_0, length_scale_bounds, sigma_0_bounds):
        self.length_scale = length_scale
        self.sigma_0 = sigma_0
        self.length_scale_bounds = length_scale_bounds
        self.sigma_0_bounds = sigma_0_bounds

    anisotropic = RBF.anisotropic  # whether each feature has its own length-scale
    hyperparameter_length_scale = RBF.hyperparameter_length_scale
    hyperparameter_sigma_0 = DotProduct.hyperparameter_sigma_0
    is_stationary = DotProduct.is_stationary

    def __call__(self, X, Y=None, eval_gradient=False):
        """Return the kernel k(X, Y) and, if asked for, its gradient by `theta`.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
            Left argument of the kernel.
        Y : array-like of shape (n_samples_Y, n_features), default=None
            Right argument of the kernel; None means X.
        eval_gradient : bool, default=False
            Whether to return the gradient too; Y must then be None.

        Returns
        -------
        K : ndarray of shape (n_samples_X, n_samples_Y)
            The kernel.
        K_gradient : ndarray of shape (n_samples_X, n_samples_X, n_dims)
            The derivatives of K by the logarithms of the hyperparameters that are
            not fixed. Only returned if `eval_gradient` is True.
        """
        if eval_gradient and Y is not None:
            raise ValueError("eval_gradient=True with Y: expected Y=None, leave Y out.")
        A = self._augment(X)
        K, partial = self._evaluate(A, A if Y is None else self._augment(Y))
        if not eval_gradient:
            return K
        K_gradient = np.empty((*K.shape, self.n_dims))
        for p, (power, columns) in enumerate(self._free_blocks()):
            K_gradient[..., p] = power * partial(columns)
        return K, K_gradient

    def diag(self, X: ArrayLike) -> np.ndarray:
        A = self._augment(X)
        return self._diag(np.einsum("ij,ij->i", A, A))

    def __repr__(self):
        scale = ", ".join(f"{value:.3g}" for value in np.ravel(self.length_scale))
        scale = f"[{scale}]" if self.anisotropic else scale
        name, *_ = self.get_params()  # "degree" or "order"
        shape = f"{type(self).__name__}({name}={getattr(self, name)}"
        return f"{shape}, length_scale={scale}, sigma_0={self.sigma_0:.3g})"

    def _augment(self, X):
        """Check the parameters and return the rows a(x), (n_samples, 1 + D)."""
        self._check_shape()
        X = np.atleast_2d(X)
        scale = np.squeeze(self.length_scale).astype(float)
        if scale.shape not in ((), X.shape[1:]):
            raise ValueError(
                f"length_scale of shape {np.shape(self.length_scale)}: expected a "
                f"number or shape ({X.shape[1]},), one value for each feature of X; "
                "pass a number to use it for all features."
            )
        return np.insert(X / scale, 0, self.sigma_0, axis=1)

    def _free_blocks(self):
        """Return (power of the parameter in a, columns of a) in the order of theta."""
        length_scale, sigma_0 = self.hyperparameters
        blocks = [
            (-1, slice(d, d + 1 if self.anisotropic else None))
            for d in range(1, 1 + length_scale.n_elements)
        ]
        return blocks * (not length_scale.fixed) + [(1, slice(1))] * (not sigma_0.fixed)


class Polynomial(_AugmentedDotProduct):
    r"""Polynomial kernel with one length-scale for all features, or one for each.

    .. math::
        k(x, z) = s(x, z)^p, \qquad
        s(x, z) = \sigma_0^2 + \sum_d x_d z_d / \ell_d^2

    with degree p, bias :math:`\sigma_0` and length-scales :math:`\ell_d`.

    Parameters
    ----------
    degree : int, default=3
        The power, 1 or more. It is not learned.
    length_scale : float or array-like of shape (n_features,), default=1.0
        The length-scale of all features, or one for each feature, in the units of X.
    sigma_0 : float, default=1.0
        The bias, 0 or more. Fix it if it is 0; only terms of degree p then remain.
    length_scale_bounds, sigma_0_bounds : pair of floats or "fixed", default=(1e-5, 1e5)
        Bounds of `length_scale` and `sigma_0` in training; "fixed" keeps the value.

    References
    ----------
    .. [1] Rasmussen and Williams (2006). "Gaussian Processes for Machine Learning".

    Examples
    --------
    >>> from skswsgp.kernels import Polynomial
    >>> kernel = Polynomial(degree=2, length_scale=2.0)
    >>> kernel
    Polynomial(degree=2, length_scale=2, sigma_0=1)
    >>> kernel([[1.0, 2.0], [3.0, 4.0]])
    array([[ 5.0625, 14.0625],
           [14.0625, 52.5625]])
    """

    def __init__(
        self, degree: int = 3, length_scale: ArrayLike = 1.0, sigma_0: float = 1.0,
        length_scale_bounds: Bounds = (1e-5, 1e5), sigma_0_bounds: Bounds = (1e-5, 1e5),
    ):  # fmt: skip
        super().__init__(length_scale, sigma_0, length_scale_bounds, sigma_0_bounds)
        self.degree = degree

    def _check_shape(self):
        if not isinstance(self.degree, Integral) or self.degree < 1:
            raise ValueError(
                f"degree={self.degree!r}: expected a positive integer; pass 2 or 3."
            )

    def _evaluate(self, A, B):
        s = A @ B.T
        slope = s ** (self.degree - 1)
        return slope * s, lambda c: slope * (2 * self.degree * A[:, c] @ B[:, c].T)

    def _diag(self, s):
        return s**self.degree


class ArcCosine(_AugmentedDotProduct):
    r"""Arc-cosine kernel, the covariance of an infinitely wide layer of neurons.

    .. math::
        k_0(x, z) &= 1 - \theta / \pi \\
        k_1(x, z) &= \sqrt{s(x, x) s(z, z)}
            \left(\sin\theta + (\pi - \theta) \cos\theta\right) / \pi \\
        \cos\theta &= s(x, z) / \sqrt{s(x, x) s(z, z)}, \qquad
        s(x, z) = \sigma_0^2 + \sum_d x_d z_d / \ell_d^2

    It is the covariance of a neural network with one infinite layer, whose weights
    are Gaussian and whose activation is a step (order 0) or a ramp, ReLU (order 1).

    Parameters
    ----------
    order : {0, 1}, default=1
        The power of the activation. It is not learned.
    length_scale : float or array-like of shape (n_features,), default=1.0
        The length-scale of all features, or one for each feature, in the units of X.
    sigma_0 : float, default=1.0
        The bias, 0 or more. Fix it if it is 0; k at x = 0 is then the limit of a
        small bias. Order 0 depends on `sigma_0 * length_scale` only: fix one of them.
    length_scale_bounds, sigma_0_bounds : pair of floats or "fixed", default=(1e-5, 1e5)
        Bounds of `length_scale` and `sigma_0` in training; "fixed" keeps the value.

    References
    ----------
    .. [1] Cho and Saul (2009). "Kernel Methods for Deep Learning". NIPS 22.

    Examples
    --------
    >>> from skswsgp.kernels import ArcCosine
    >>> ArcCosine(order=0)([[1.0], [-1.0]])
    array([[1. , 0.5],
           [0.5, 1. ]])
    """

    def __init__(
        self, order: int = 1, length_scale: ArrayLike = 1.0, sigma_0: float = 1.0,
        length_scale_bounds: Bounds = (1e-5, 1e5), sigma_0_bounds: Bounds = (1e-5, 1e5),
    ):  # fmt: skip
        super().__init__(length_scale, sigma_0, length_scale_bounds, sigma_0_bounds)
        self.order = order

    def _check_shape(self):
        if self.order not in (0, 1):
            raise ValueError(
                f"order={self.order!r}: expected 0 or 1; pass 0 for steps, 1 for ramps."
            )

    def _evaluate(self, A, B):
        (U, s_x), (V, s_z) = _unit_rows(A), _unit_rows(B)
        # From the half angle: arccos would lose half of the digits near 0 and pi.
        minus, plus = cdist(U, V), cdist(U, -V)  # 2 sin(theta / 2), 2 cos(theta / 2)
        theta = 2 * np.arctan2(minus, plus)

        def d_theta(c):
            # Both quotients tend to 0 with their divisors.
            d_minus = cdist(U[:, c], V[:, c], "sqeuclidean") / (minus + (minus == 0))
            d_plus = cdist(U[:, c], -V[:, c], "sqeuclidean") / (plus + (plus == 0))
            return (plus * d_minus - minus * d_plus) / 2

        if self.order == 0:
            return 1 - theta / np.pi, lambda c: -d_theta(c) / np.pi

        scale = np.sqrt(np.outer(s_x, s_z))
        sin, rest = np.sin(theta), np.pi - theta
        K = scale * ((sin + rest * np.cos(theta)) / np.pi)

        def partial(c):
            d_log_scale = np.add.outer(*((W[:, c] ** 2).sum(axis=1) for W in (U, V)))
            return K * d_log_scale - scale * (rest * sin / np.pi) * d_theta(c)

        return K, partial

    def _diag(self, s):
        return s if self.order == 1 else np.ones_like(s)


def _unit_rows(A):
    """Return the rows of A divided by their lengths, 0 as 0, and squared lengths."""
    s = np.einsum("ij,ij->i", A, A)
    return A / np.sqrt(s + (s == 0))[:, np.newaxis], s


class OnColumns(Kernel):
    r"""A kernel on some columns of X, while the others do not matter to it.

    .. math::
        k(x, z) = k_0(x_c, z_c)

    with a kernel :math:`k_0` and the values :math:`x_c` in the chosen columns.

    Parameters
    ----------
    kernel : kernel object
        The kernel on these columns, which may be a sum or a product. Its length-scales
        are one number, or as many as there are columns, in their order.
    columns : int, str or list of these
        Positions of the columns, counted from 0, or their names. Estimators of this
        package look names up in the data frame that they are fitted to; their `kernel_`
        holds positions.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, ExpSineSquared
    >>> from skswsgp.kernels import OnColumns
    >>> hours = OnColumns(ExpSineSquared(periodicity=24.0), [0])
    >>> kernel = hours + OnColumns(RBF(), [1, 2])
    >>> kernel.k1
    OnColumns(ExpSineSquared(length_scale=1, periodicity=24), [0])
    >>> kernel([[0.0, 5.0, 6.0], [48.0, 5.0, 6.0]])
    array([[2., 2.],
           [2., 2.]])
    """

    def __init__(self, kernel: Kernel, columns: int | str | Iterable[int | str]):
        self.kernel = kernel
        self.columns = columns

    hyperparameters = Exponentiation.hyperparameters
    theta = Exponentiation.theta
    bounds = Exponentiation.bounds
    is_stationary = Exponentiation.is_stationary

    def get_params(self, deep: bool = True) -> dict:
        """Return the parameters of this kernel, and those of the kernel inside.

        Parameters
        ----------
        deep : bool, default=True
            Whether to return the parameters of the kernel inside too.

        Returns
        -------
        params : dict
            Values by name; those of the kernel inside start with ``kernel__``.
        """
        params = {"kernel": self.kernel, "columns": self.columns}
        if deep:
            inner = self.kernel.get_params().items()
            params |= {f"kernel__{name}": value for name, value in inner}
        return params

    def __call__(self, X, Y=None, eval_gradient=False):
        """Return the kernel k(X, Y) and, if asked for, its gradient by `theta`.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
            Left argument of the kernel. Names of columns need a data frame.
        Y : array-like of shape (n_samples_Y, n_features), default=None
            Right argument of the kernel; None means X.
        eval_gradient : bool, default=False
            Whether to return the gradient too; Y must then be None.

        Returns
        -------
        K : ndarray of shape (n_samples_X, n_samples_Y)
            The kernel.
        K_gradient : ndarray of shape (n_samples_X, n_samples_X, n_dims)
            The derivatives of K by the logarithms of the hyperparameters that are
            not fixed. Only returned if `eval_gradient` is True.
        """
        Y = None if Y is None else self._part(Y)
        return self.kernel(self._part(X), Y, eval_gradient)

    def diag(self, X: ArrayLike) -> np.ndarray:
        """Return the diagonal of the kernel k(X, X).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Argument of the kernel.

        Returns
        -------
        K_diag : ndarray of shape (n_samples,)
            The diagonal.
        """
        return self.kernel.diag(self._part(X))

    def __eq__(self, other):
        """Return whether the other has an equal kernel on the same columns."""
        return (
            type(self) is type(other)
            and self.kernel == other.kernel
            and _as_list(self.columns) == _as_list(other.columns)
        )

    def __repr__(self):
        """Return an expression that makes the kernel."""
        return f"OnColumns({self.kernel!r}, {_as_list(self.columns)})"

    def _part(self, X):
        """Return the chosen columns of X, float64."""
        names = getattr(X, "columns", None)
        X = np.atleast_2d(X)
        return X[:, self._positions(X.shape[1], names)].astype(np.float64)

    def _positions(self, n_features, names=None):
        """Return the positions of the columns among so many, with names or without."""
        columns = _as_list(self.columns)
        given, use = f"columns={columns} of OnColumns", "pass positions such as [0, 2]"
        if columns and all(isinstance(column, str) for column in columns):
            if names is None:
                raise ValueError(
                    f"{given} came with X without names: expected a data frame; {use}, "
                    "or fit an estimator of skswsgp to a data frame and take its "
                    "kernel_."
                )
            unknown = [name for name in columns if name not in list(names)]
            if unknown:
                raise ValueError(
                    f"{given}: expected names of columns of X, which has no "
                    f"{unknown[0]!r} but {', '.join(map(repr, names))}; correct it."
                )
            columns = [list(names).index(name) for name in columns]
        known = all(
            isinstance(column, Integral) and not isinstance(column, bool)
            for column in columns
        )
        if not known or not columns:
            raise ValueError(
                f"{given}: expected one or more positions, or one or more names; {use}."
            )
        if not all(0 <= column < n_features for column in columns):
            raise ValueError(
                f"{given}: expected positions from 0 to {n_features - 1}, because X "
                f"has {n_features} columns; {use}."
            )
        if len(set(columns)) < len(columns):
            raise ValueError(f"{given}: expected each column once; leave copies out.")
        return [int(column) for column in columns]


def _as_list(columns):
    """Return columns as a list; a single one need not be in a list."""
    single = isinstance(columns, str) or not hasattr(columns, "__iter__")
    return [columns] if single else list(columns)


def with_positions(kernel, n_features, names=None):
    """Return a kernel whose `OnColumns` hold positions of columns.

    Parameters
    ----------
    kernel : object
        The kernel, which is returned as it is if it holds no `OnColumns`.
    n_features : int
        Number of columns of X.
    names : sequence of str, default=None
        Names of the columns of X, if they have any.

    Returns
    -------
    kernel : object
        A clone with positions.
    """
    if not chooses_columns(kernel):
        return kernel
    changes = {}
    if isinstance(kernel, OnColumns):
        columns = changes["columns"] = kernel._positions(n_features, names)
        names = None if names is None else [names[column] for column in columns]
        n_features = len(columns)
    for name, value in kernel.get_params(deep=False).items():
        if isinstance(value, Kernel):
            changes[name] = with_positions(value, n_features, names)
    return clone(kernel).set_params(**changes)


def chooses_columns(kernel):
    """Return whether a kernel is or holds an `OnColumns`.

    Parameters
    ----------
    kernel : object
        The kernel, or anything else.

    Returns
    -------
    chooses : bool
        Whether an `OnColumns` was found.
    """
    return isinstance(kernel, OnColumns) or (
        isinstance(kernel, Kernel)
        and any(map(chooses_columns, kernel.get_params(deep=False).values()))
    )
