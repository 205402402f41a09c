"""SOLVE-GP: inducing points for what other inducing points leave open.

f = g + h, where g is given by its values at Z and h is the rest, a process of its own
that is given by its values at O. With L L' the covariance of the values at Z and O
together, f_i = a_i' s + e_i for the whitened values s ~ N(0, I), a_i = L^-1 k_i, whose
first entries belong to g and whose last ones to h. Both have covariances of their own
in q(s), so given sites the mean is that of a process with all these points,
B m = A' W t for B = A' W A + I, and the covariances invert the two blocks of B.
"""

from numbers import Integral

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils._param_validation import Interval

from skswsgp._compiled.threads import max_threads, row_blocks
from skswsgp._covariance.compile import length_scales
from skswsgp._engine.select import make_cpu_engine
from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.given import kernel_for
from skswsgp._estimators.hints import Seed
from skswsgp._kernel_search.kernel_learning import LearningOptions
from skswsgp._kernel_search.start import learn_fit
from skswsgp._linear.all_points import AllPoints
from skswsgp._linear.projection import Projection, mean_prior_variance
from skswsgp._linear.row_matrix import DenseMatrix
from skswsgp._linear.site_rows import SiteRows
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._rows.data import center_rows, memory_budget
from skswsgp._rows.inducing import initial_inducing_points
from skswsgp._rows.statistics import feature_spread, first_of_each, relative_weights
from skswsgp._solvers.auto import natural_jitter
from skswsgp._solvers.constraints import Count
from skswsgp._solvers.model import build_model, model_attributes
from skswsgp._solvers.natural import (
    DAMPING,
    LOSS_TOLERANCE,
    NaturalSolver,
    factor_of_inverse,
)
from skswsgp._solvers.priors import VecchiaPrior
from skswsgp._solvers.settings import Settings
from skswsgp.baselines.shared import BaselineClassifier, BaselineRegressor
from skswsgp.baselines.shared_docs import with_shared_text

__all__ = ["SOLVEGPClassifier", "SOLVEGPRegressor"]


class _TwoGroups(NaturalSolver):
    """Rounds for q(s), in which some first values are independent of the others.

    There are `n_first` of these. The engine's model has m and L of whitened values.
    """

    def __init__(self, engine, data, kernel, settings, n_first):
        self.engine, self.data, self.settings = engine, data, settings
        model, record = engine.model, settings.likelihood_record
        self.conjugate, self.losses = record.conjugate, []
        self.tolerance, self.step = LOSS_TOLERANCE, DAMPING
        points = AllPoints(model, engine.n_threads, whitened=True)
        rows = Projection(engine, kernel, data, None, memory_budget(), points)
        targets, nothing = (
            (data.y, data.weight),
            np.zeros((data.n_rows, model.m.shape[1])),
        )
        self.sites = SiteRows(rows, engine, record, *targets, nothing, nothing)
        unit = np.eye(len(model.Z))
        self.prior = VecchiaPrior(DenseMatrix(unit), np.ones(len(unit)), 0.0, unit)
        groups = slice(n_first), slice(n_first, len(unit))
        self.groups = [group for group in groups if group.start != group.stop]

    def _solve_full(self):
        model, right = self.engine.model, self.sites.right()
        for q in range(right.shape[1]):
            B = self.sites.gram(q) + self.prior.product
            model.m[:, q] = cho_solve(cho_factor(B), right[:, q])
            for group in self.groups:
                model.L[q, group, group] = factor_of_inverse(B[group, group])
        return True


class OrthogonalPoints:
    """Learning and latent functions of both estimators."""

    _of_points = {  # noqa: RUF012
        "n_inducing": [Count()],
        "n_orthogonal": [Interval(Integral, 0, None, closed="left")],
    }

    def _learn(self, data, rng):
        (name, Q), D = self._likelihood, data.X.shape[1]
        if name == "gaussian":
            data = relative_weights(data, data.n_rows)
        averages = LIKELIHOODS[name].averages(data.y, data.weight, Q)
        settings = Settings(
            name, Q, NaturalSolver, averages=averages, kernel=kernel_for(self, D),
            learn_map=False, initial_noise=getattr(self, "initial_noise", 0.1),
            n_jobs=self.n_jobs, tuning=self._tuning,
        )  # fmt: skip
        n_threads = max_threads(self.n_jobs, data.n_rows)
        options = LearningOptions(n_threads, tuning=self._tuning)
        fit = learn_fit(data, settings, options, rng, None, "both")
        unit = feature_spread(data.X, rng)
        spread = length_scales(fit.kernel, D, otherwise=unit)
        Z = initial_inducing_points(
            data.X, self.n_inducing, "kmeans", rng, spread, self._tuning, data.weight
        )
        points = np.concatenate([Z, data.X[rng.permutation(data.n_rows)]])
        # rounding errors move a centre of k-means off the only row that it has
        first, _ = first_of_each(np.round((points - points[0]) / unit, 6))
        n_first = np.count_nonzero(first < len(Z))
        points = points[first[: n_first + self.n_orthogonal]]
        variance = mean_prior_variance(fit.kernel, points)
        start = {
            "kernel_": fit.kernel,
            "inducing_points_": points,
            "inducing_mean_": np.zeros((len(points), Q)),
            "inducing_covariance_": np.repeat(
                np.eye(len(points))[..., None], Q, axis=2
            ),
            "prior_mean_": settings.prior_mean(variance),
            "_jitter": natural_jitter(fit.kernel, points, fit.noise, "float64", True),
        }
        if name == "gaussian":
            start["noise_variance_"] = fit.noise
        total = data.weight.sum()
        model, center = build_model(start, (name, Q), "float64", total_weight=total)
        data = data._replace(center=center)
        engine = make_cpu_engine(model, 1, n_threads)
        solver = _TwoGroups(engine, data, fit.kernel, settings, n_first)
        while not solver.converged:
            _, self.lower_bound_ = solver.advance(len(solver.losses))
        vars(self).update(start | model_attributes(model, center, fit.kernel))
        self.inducing_points_, self.orthogonal_points_ = np.split(points, [n_first])

    def _latent(self, X):
        points = np.concatenate([self.inducing_points_, self.orthogonal_points_])
        known = vars(self) | {"inducing_points_": points}
        model, center = build_model(known, self._likelihood, "float64")
        n_threads, parts = max_threads(self.n_jobs, len(X)), []
        factor = AllPoints(model, n_threads, whitened=True)
        for rows in row_blocks(len(X)):
            A, F = factor.weights(center_rows(X[rows], center, "float64"))
            forms = [A.quadratic_forms(L) for L in model.L]
            parts.append((A.matvec(model.m), F[:, None] + np.stack(forms, axis=1)))
        mu, v = map(np.concatenate, zip(*parts, strict=True))
        return mu + self.prior_mean_, v


@with_shared_text
class SOLVEGPRegressor(OrthogonalPoints, BaselineRegressor):
    """Gaussian process regression with two groups of inducing points.

    A sparse variational Gaussian process with `n_inducing` points, and for what these
    leave open another one with `n_orthogonal` points [1]_. q(u) keeps a covariance for
    either group but none between them. Means given the kernel are those of an SVGP with
    all points, and so is the cost here: O(n_points^2) for each row and O(n_points^3),
    once.

    Parameters
    ----------
    kernel : kernel object of scikit-learn, default=None
        Covariance of the latent function, in the units of X; its parameters are where
        learning starts, those with ``"fixed"`` bounds stay. See "Kernels and
        seasonality". None is a variance times a Matern kernel with one length-scale a
        feature, whose smoothness is learned.
    n_inducing : int, default=1024
        Number of inducing points, centres of k-means, cut to that of distinct rows.
    n_orthogonal : int, default=1024
        Number of the other points, random rows, cut to that of distinct rows that are
        not inducing points already; 0 gives an SVGP.
    initial_noise : float, default=0.1
        Noise variance where learning starts, on the scale of standardised y.
    normalize_y : bool, default=True
        Whether y is standardised inside.
    n_jobs : int, default=None
        Number of threads; the results are the same for any number.
    random_state : int, RandomState instance or None, default=None
        Seeds the choice of points and of rows to learn from.

    Attributes
    ----------
    kernel_ : kernel object
        Learned kernel.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Learned noise variance, on the scale of standardised y.
    $orthogonal_points
    lower_bound_ : float
        Bound on the log likelihood of the training rows, in nats, for standardised y.
    y_mean_, y_scale_ : float or ndarray of shape (n_outputs,)
        y is standardised as (y - y_mean_) / y_scale_.
    $features

    See Also
    --------
    SVGPRegressor : One group of inducing points.

    Notes
    -----
    The kernel is learned before, from the evidence of rows and from near rows, and the
    points stay where they are. q(u) is then found in closed form. The paper
    trains all of them together by Adam.

    References
    ----------
    .. [1] J. Shi, M. K. Titsias, A. Mnih, "Sparse Orthogonal Variational Inference for
       Gaussian Processes", AISTATS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from skswsgp.baselines import SOLVEGPRegressor
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> how = {"n_inducing": 8, "n_orthogonal": 8, "random_state": 0}
    >>> model = SOLVEGPRegressor(**how).fit(X, y)
    >>> mean, std = model.predict([[1.0], [4.0]], return_std=True)
    >>> bool(np.abs(mean - np.sin([1.0, 4.0])).max() < 0.01)
    True
    """

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        **BaselineRegressor._parameter_constraints,
        **OrthogonalPoints._of_points,
    }

    def __init__(
        self, kernel: Kernel | None = None, *, n_inducing: int = 1024,
        n_orthogonal: int = 1024, initial_noise: float = 0.1,
        normalize_y: bool = True, n_jobs: int | None = None, random_state: Seed = None,
    ):  # fmt: skip
        compat.set_arguments(self, locals())


@with_shared_text
class SOLVEGPClassifier(OrthogonalPoints, BaselineClassifier):
    """Gaussian process classification with two groups of inducing points.

    A sparse variational Gaussian process with `n_inducing` points, and for what these
    leave open another one with `n_orthogonal` points [1]_. q(u) keeps a covariance for
    either group but none between them. Means given the kernel are those of an SVGP with
    all points, and so is the cost here: O(n_points^2) for each row and O(n_points^3),
    in each round.

    Parameters
    ----------
    kernel : kernel object of scikit-learn, default=None
        Covariance of the latent functions, in the units of X; its parameters are where
        learning starts, those with ``"fixed"`` bounds stay. See "Kernels and
        seasonality". None is a variance times a Matern kernel with one length-scale a
        feature, whose smoothness is learned.
    n_inducing : int, default=1024
        Number of inducing points, centres of k-means, cut to that of distinct rows.
    n_orthogonal : int, default=1024
        Number of the other points, random rows, cut to that of distinct rows that are
        not inducing points already; 0 gives an SVGP.
    n_jobs : int, default=None
        Number of threads; the results are the same for any number.
    random_state : int, RandomState instance or None, default=None
        Seeds the choice of points and of rows to learn from.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    kernel_ : kernel object
        Learned kernel.
    $orthogonal_points
    lower_bound_ : float
        Bound on the log likelihood of the training rows, in nats.
    $features

    See Also
    --------
    SVGPClassifier : One group of inducing points.

    Notes
    -----
    The kernel is learned before, from the evidence of rows and from near rows, and the
    points stay where they are. q(u) is then found in closed form,
    in rounds of natural-gradient steps. The paper
    trains all of them together by Adam.

    References
    ----------
    .. [1] J. Shi, M. K. Titsias, A. Mnih, "Sparse Orthogonal Variational Inference for
       Gaussian Processes", AISTATS 2020.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skswsgp.baselines import SOLVEGPClassifier
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> how = {"n_inducing": 20, "n_orthogonal": 20, "random_state": 0}
    >>> model = SOLVEGPClassifier(**how).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        **BaselineClassifier._parameter_constraints,
        **OrthogonalPoints._of_points,
    }

    def __init__(
        self, kernel: Kernel | None = None, *, n_inducing: int = 1024,
        n_orthogonal: int = 1024, n_jobs: int | None = None, random_state: Seed = None,
    ):  # fmt: skip
        compat.set_arguments(self, locals())
