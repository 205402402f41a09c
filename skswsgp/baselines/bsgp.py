"""BSGP: inducing values and points, kernel and noise, drawn from their posterior."""

from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_consistent_length

from skswsgp._compiled.threads import max_threads, one_blas_thread, row_blocks
from skswsgp._covariance.compile import compile_kernel, updated_kernel
from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.given import kernel_for
from skswsgp._estimators.hints import Floats, Seed
from skswsgp._linear.all_points import AllPoints
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._rows.checks import as_numbers, check_outputs
from skswsgp._rows.data import center_rows
from skswsgp._rows.inducing import initial_inducing_points
from skswsgp._rows.statistics import mean_and_scale, relative_weights
from skswsgp._solvers.auto import default_kernel
from skswsgp._solvers.constraints import Count
from skswsgp._solvers.model import build_model
from skswsgp._solvers.progress import warn_caller
from skswsgp.baselines.inducing_posterior import BLOCKS, InducingPosterior
from skswsgp.baselines.predictive_density import GaussianMixture, RowDensity
from skswsgp.baselines.sampler import SGHMC, climb, split_r_hat
from skswsgp.baselines.shared import BaselineClassifier, BaselineRegressor
from skswsgp.baselines.shared_docs import with_shared_text

__all__ = ["BSGPClassifier", "BSGPRegressor"]


class _SampledMixin:
    """Chains and predictions of both estimators."""

    _blocks: tuple[str, ...] = BLOCKS
    _of_chains = {  # noqa: RUF012
        "n_inducing": [Count()],
        "prior": "no_validation",  # checked by `_check_choices`, which says more
        "objective": [StrOptions({"fitc", "vfe"})],
        "sample": "no_validation",
        "adam_steps": [Interval(Integral, 0, None, closed="left")],
        "burn_in": [Interval(Integral, 0, None, closed="left")],
        "n_samples": [Count()],
        "spacing": [Count()],
        "n_chains": [Count()],
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "friction": [Interval(Real, 0, 1, closed="neither")],
        "batch_size": [Count()],
    }

    def _check_choices(self):
        """Raise ValueError for another prior, or another group to sample."""
        if self.prior not in ("normal", "dpp", "uniform"):
            raise ValueError(
                f"prior={self.prior!r}: expected 'normal', 'dpp' or 'uniform'; use "
                "'uniform' in place of a Strauss process, which counts near pairs of "
                "points and so has a gradient of zero, as if it were uniform."
            )
        given = self.sample
        if not (isinstance(given, tuple) and set(given) <= set(self._blocks)):
            raise ValueError(
                f"sample={given!r}: expected a tuple of names among {self._blocks}; "
                "use () for the point estimate alone."
            )

    def _learn(self, data, rng):
        self._check_choices()
        (name, Q), D = self._likelihood, data.X.shape[1]
        noise = np.zeros(0)
        if name == "gaussian":
            data = relative_weights(data, data.n_rows)
            noise = np.full(Q, float(self.initial_noise))
        X = data.X.astype(np.float64)
        self.X_mean_, self.X_scale_ = mean_and_scale(X, data.weight)
        kernel = kernel_for(self, D)
        kernel = default_kernel(self.X_scale_) if kernel is None else kernel
        compiled = compile_kernel(kernel, D, "float64")
        center = self.X_mean_ if compiled.stationary else np.zeros(D)
        scale, tuning = self.X_scale_, self._tuning
        Z = initial_inducing_points(
            X, self.n_inducing, "kmeans", rng, scale, tuning, data.weight
        )
        posterior = InducingPosterior(
            compiled, (X - center, data.y, data.weight),
            np.stack([self.X_mean_ - center, scale]), Z - center, noise,
            RowDensity(name, Q, self.objective == "fitc"), self.prior, self.batch_size,
        )  # fmt: skip
        try:
            with one_blas_thread(), np.errstate(all="ignore"):  # results are checked
                draws = self._sample(posterior, rng)
        except FloatingPointError as error:
            raise FloatingPointError(
                f"the chain diverged ({error}): lower step_size, or scale X and y."
            ) from error
        found = [posterior.unpack(x) for x in draws]
        v, Z, params, noise = map(np.stack, zip(*found, strict=True))
        self.inducing_values_, self.inducing_points_ = self._of_outputs(v), Z + center
        kernels = [updated_kernel(kernel, each) for each in params]
        self.kernel_theta_ = np.stack([each.theta for each in kernels])
        self.kernel_ = kernel.clone_with_theta(self.kernel_theta_.mean(axis=0))
        if name == "gaussian":
            self.noise_variances_ = self._of_outputs(noise)
        self.energy_curve_ = posterior.energies
        self._judge()

    def _sample(self, posterior, rng):
        """Return x of all samples, (S, n)."""
        x, rng = posterior.start.copy(), np.random.default_rng(rng.randint(2**31))
        climb(posterior.slope, x, self.adam_steps, self.step_size, rng)
        sampled = np.isin(posterior.block, [BLOCKS.index(name) for name in self.sample])
        if not sampled.any():
            return x[None]
        draws = []
        try:
            for chain_rng in rng.spawn(self.n_chains):
                how = posterior.total, self.step_size, self.friction, chain_rng
                chain = SGHMC(np.count_nonzero(sampled), *how)
                lengths = self.burn_in, self.n_samples, self.spacing
                chain.run(posterior.slope, x.copy(), sampled, *lengths, draws)
        except KeyboardInterrupt:
            if not draws:
                raise
            warn_caller(
                f"sampling was interrupted: the {len(draws)} samples so far are kept.",
            )
        return np.stack(draws)

    def _judge(self):
        """Set r_hat_, and warn of chains that do not agree."""
        logs = [np.zeros((len(self.kernel_theta_), 0))]
        if "kernel" in self.sample:
            logs.append(self.kernel_theta_)
        if "noise" in self.sample:
            logs.append(np.log(self.noise_variances_).reshape(len(logs[0]), -1))
        self.r_hat_ = split_r_hat(np.concatenate(logs, axis=1), self.n_chains)
        if (self.r_hat_ > 1.2).any():
            warn_caller(
                "split R-hat of kernel parameters and noise reaches "
                f"{self.r_hat_.max():.1f}: expected less than 1.2; raise burn_in or "
                "spacing, which matters less for predictions than for parameters.",
                ConvergenceWarning,
            )

    def _sampled(self, X):
        """Yield mean (n, Q) and variance (n, 1) of f at rows of X for each sample."""
        n_threads = max_threads(self.n_jobs, len(X))
        samples = self.kernel_theta_, self.inducing_points_, self.inducing_values_
        for theta, Z, v in zip(*samples, strict=True):
            kernel = self.kernel_.clone_with_theta(theta)
            known = {"kernel_": kernel, "inducing_points_": Z}
            known |= {"inducing_mean_": v, "inducing_covariance_": np.zeros_like(v)}
            model, center = build_model(known, self._likelihood, "float64")
            factor = AllPoints(model, n_threads, whitened=True)
            A, F = factor.weights(center_rows(X, center, "float64"))
            yield A.matvec(model.m), F[:, None]

    def _by_block(self, function, *arrays):
        """Return function(*arrays) of arrays (n, ...), of a few rows at a time."""
        blocks = row_blocks(len(arrays[0]))
        found = [function(*(array[rows] for array in arrays)) for rows in blocks]
        return np.concatenate(found)


@with_shared_text
class BSGPRegressor(_SampledMixin, BaselineRegressor):
    """Gaussian process regression with samples of all parts of a sparse process.

    Inducing values and points, the kernel's parameters and the noise have priors.
    Stochastic gradient Hamiltonian Monte Carlo draws all of them together from their
    posterior [1]_. Predictions are means over the samples.

    Parameters
    ----------
    kernel : kernel object of scikit-learn, default=None
        Covariance of the latent function, in the units of X. Its parameters are the
        medians of their priors and the start; those with ``"fixed"`` bounds stay. See
        "Kernels and seasonality". None is a variance times a Matern 5/2 kernel with one
        length-scale for each feature.
    $chain_model
    sample : tuple of names, default=("inducing_values", "inducing_points", \
            "kernel", "noise")
        What is sampled. All else stays where Adam has put it; () gives this point
        estimate alone.
    $chain_steps
    initial_noise : float, default=0.1
        Noise variance at the start and the median of its prior, on the scale of
        standardised y.
    normalize_y : bool, default=True
        Whether y is standardised inside.
    n_jobs : int, default=None
        Number of threads of predictions; the results are the same for any number.
    random_state : int, RandomState instance or None, default=None
        Seeds the choice of points, minibatches and the noise of chains.

    Attributes
    ----------
    inducing_points_ : ndarray of shape (n_samples, n_inducing, n_features)
        Samples of inducing points, in the units of X; here and below, those of all
        chains, one after the other.
    inducing_values_ : ndarray of shape (n_samples, n_inducing[, n_outputs])
        Samples of whitened values: the function at the points is the lower factor of
        the covariance of these values times them.
    kernel_theta_ : ndarray of shape (n_samples, n_parameters)
        Samples of the kernel's `theta`, the logarithms of its free parameters.
    noise_variances_ : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        Samples of noise variances, on the scale of standardised y. With "fitc" they are
        no estimates of the noise: the variance of f given inducing values, which is
        independent from row to row, takes its place. Their sum is right.
    kernel_ : kernel object
        Kernel at the mean of `kernel_theta_`.
    r_hat_ : ndarray of shape (n_sampled,)
        Split R-hat of the columns of `kernel_theta_`
        and of log noise, where these are sampled.
        Values near 1 say that the halves of chains agree.
    energy_curve_ : list of float
        Negative log posterior density over the total weight of rows, as estimated at
        each step from its minibatch, those of Adam first.
    X_mean_, X_scale_ : ndarrays of shape (n_features,)
        Columns are standardised as (X - X_mean_) / X_scale_ for steps and priors.
    y_mean_, y_scale_ : float or ndarray of shape (n_outputs,)
        y is standardised as (y - y_mean_) / y_scale_.
    $features

    See Also
    --------
    SVGPRegressor : One q(u), and one set of points and parameters.

    $chain_notes

    Examples
    --------
    >>> import numpy as np
    >>> from skswsgp.baselines import BSGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200)
    >>> how = {"burn_in": 1000, "n_samples": 50, "spacing": 20}
    >>> model = BSGPRegressor(n_inducing=10, **how, sample=("inducing_values",),
    ...                       random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.0], [4.0]], return_std=True)
    >>> bool(np.abs(mean - np.sin([1.0, 4.0])).max() < 0.1)
    True
    """

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        **BaselineRegressor._parameter_constraints,
        **_SampledMixin._of_chains,
    }

    def __init__(
        self, kernel: Kernel | None = None, *, n_inducing: int = 100,
        prior: str = "normal", objective: str = "fitc",
        sample: tuple[str, ...] = BLOCKS, adam_steps: int = 1000, burn_in: int = 10_000,
        n_samples: int = 128, spacing: int = 50, n_chains: int = 1,
        step_size: float = 0.01, friction: float = 0.05, batch_size: int = 500,
        initial_noise: float = 0.1, normalize_y: bool = True, n_jobs: int | None = None,
        random_state: Seed = None,
    ):  # fmt: skip
        compat.set_arguments(self, locals())

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> Floats:
        """Return the log density of observations under their predictions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Observations.

        Returns
        -------
        density : ndarray of the shape of y
            Log density of each value by itself, in nats, in the units of y: that of the
            mean of the normal densities of all samples.
        """
        X, y = self._checked(X), as_numbers(y)
        check_consistent_length(X, y)
        check_outputs(y, self.y_mean_)
        y = ((y - self.y_mean_) / self.y_scale_).reshape(len(y), -1)
        density = self._by_block(lambda X, y: self._observed(X).log_density(y), X, y)
        return self._of_outputs(density) - np.log(self.y_scale_)

    def _moments(self, X):
        moments = self._by_block(lambda X: self._observed(X).moments(), X)
        return np.moveaxis(moments, 1, 0)

    def _standard_quantiles(self, X, levels):
        X = self._checked(X)
        return self._by_block(lambda X: self._observed(X).quantiles(levels), X)

    def _observed(self, X):
        """Return the law of observations, a part for each sample."""
        mu, v = map(np.stack, zip(*self._sampled(X), strict=True))
        return GaussianMixture(mu, v + self.noise_variances_.reshape(len(mu), 1, -1))


@with_shared_text
class BSGPClassifier(_SampledMixin, BaselineClassifier):
    """Gaussian process classification with samples of all parts of a sparse process.

    Inducing values and points and the kernel's parameters have priors. Stochastic
    gradient Hamiltonian Monte Carlo draws all of them together from their posterior
    [1]_. Predictions are means over the samples.

    Parameters
    ----------
    kernel : kernel object of scikit-learn, default=None
        Covariance of the latent functions, in the units of X. Its parameters are the
        medians of their priors and the start; those with ``"fixed"`` bounds stay. See
        "Kernels and seasonality". None is a variance times a Matern 5/2 kernel with one
        length-scale for each feature.
    $chain_model
    sample : tuple of names, default=("inducing_values", "inducing_points", \
            "kernel")
        What is sampled. All else stays where Adam has put it; () gives this point
        estimate alone.
    $chain_steps
    n_jobs : int, default=None
        Number of threads of predictions; the results are the same for any number.
    random_state : int, RandomState instance or None, default=None
        Seeds the choice of points, minibatches and the noise of chains.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    inducing_points_ : ndarray of shape (n_samples, n_inducing, n_features)
        Samples of inducing points, in the units of X; here and below, those of all
        chains, one after the other.
    inducing_values_ : ndarray of shape (n_samples, n_inducing[, n_classes])
        Samples of whitened values: the function at the points is the lower factor of
        the covariance of these values times them.
    kernel_theta_ : ndarray of shape (n_samples, n_parameters)
        Samples of the kernel's `theta`, the logarithms of its free parameters.
    kernel_ : kernel object
        Kernel at the mean of `kernel_theta_`.
    r_hat_ : ndarray of shape (n_sampled,)
        Split R-hat of the columns of `kernel_theta_`, where these are sampled.
        Values near 1 say that the halves of chains agree.
    energy_curve_ : list of float
        Negative log posterior density over the total weight of rows, as estimated at
        each step from its minibatch, those of Adam first.
    X_mean_, X_scale_ : ndarrays of shape (n_features,)
        Columns are standardised as (X - X_mean_) / X_scale_ for steps and priors.
    $features

    See Also
    --------
    SVGPClassifier : One q(u), and one set of points and parameters.

    $chain_notes

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skswsgp.baselines import BSGPClassifier
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> how = {"burn_in": 1000, "n_samples": 50, "spacing": 20}
    >>> model = BSGPClassifier(n_inducing=10, **how, sample=("inducing_values",),
    ...                        random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        **BaselineClassifier._parameter_constraints,
        **_SampledMixin._of_chains,
    }

    _blocks = BLOCKS[:3]

    def __init__(
        self, kernel: Kernel | None = None, *, n_inducing: int = 100,
        prior: str = "normal", objective: str = "fitc",
        sample: tuple[str, ...] = BLOCKS[:3], adam_steps: int = 1000,
        burn_in: int = 10_000, n_samples: int = 128, spacing: int = 50,
        n_chains: int = 1, step_size: float = 0.01, friction: float = 0.05,
        batch_size: int = 500, n_jobs: int | None = None, random_state: Seed = None,
    ):  # fmt: skip
        compat.set_arguments(self, locals())

    def _probabilities(self, X):
        record = LIKELIHOODS[self._likelihood[0]]

        def mean(X):
            each = [record.probabilities(*moments) for moments in self._sampled(X)]
            return np.mean(each, axis=0)

        return self._by_block(mean, X)
