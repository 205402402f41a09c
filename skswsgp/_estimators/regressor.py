"""Regression with a Sparse-within-Sparse Gaussian process."""

from numbers import Real
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.base import BaseSWSGP, GivenRows
from skswsgp._estimators.given import solver_for, streams_only
from skswsgp._estimators.hints import Floats, Neighbors, PerRow, Result, Seed, Solver
from skswsgp._estimators.observations import ObservationsMixin
from skswsgp._estimators.shared_docs import with_shared_text
from skswsgp._fit.targets import RegressionTargets, learn_targets
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._rows.checks import require_word_of_fit
from skswsgp._rows.target_scale import TRANSFORMS, TargetScale

NAMES = {"gaussian", "heteroscedastic", "student_t", "poisson", "negative_binomial"}


@with_shared_text
class SWSGPRegressor(
    ObservationsMixin, compat.ScoreMixin, MultiOutputMixin, RegressorMixin, BaseSWSGP
):  # fmt: skip
    """Gaussian process regression in which each row uses its nearest inducing points.

    A Gaussian process predicts a row from rows that are like it, as a kernel says, and
    tells how sure it is. Here M inducing points stand for the table, and each row uses
    the H nearest of them, so it costs O(H^3) [1]_. The defaults suit most tables.
    Titles in quotes are pages of the user guide, in the folder doc/user_guide.

    Parameters
    ----------
    $model_parameters
    learn_kernel : bool, default=True
        Whether kernel and noise are learned from rows first. If not, they start as they
        are given, and Adam alone changes them. See "Fitting and solvers".
    initial_noise : float, default=0.1
        Noise variance at the start, on the scale of standardised y.
    likelihood : {"gaussian", "heteroscedastic", "student_t", "poisson", \
            "negative_binomial"}, default="gaussian"
        Law of y around the function: "heteroscedastic" is for noise that varies,
        "student_t" for outliers, and the last two for counts, whole numbers from 0, for
        which `predictive` and `normalize_y` play no role. See "Model and likelihoods".
    likelihood_shape : float or "auto", default="auto"
        Degrees of freedom of "student_t", from 2.05 to 200, or size of
        "negative_binomial", from 0.01 to 1e10. "auto" learns them, or takes 4 and 5
        with `learn_kernel=False`. Other likelihoods have none.
    predictive : {"auto", "gaussian"}, default="auto"
        Law of new observations around the mean. "auto" learns it from errors of rows
        left out. See "Intervals, quantiles and standard deviations".
    normalize_y : bool, default=True
        Whether y, after `y_transform`, is standardised inside. Counts never are.
    y_transform : {"auto", "log", "yeo-johnson"} or None, default="auto"
        Scale on which y has a Gaussian process: a logarithm, for positive y only, a
        power, or as it is. "auto" chooses. Predictions are in the units of y, latent
        functions on it. See "Intervals, quantiles and standard deviations".
    $training_parameters

    Attributes
    ----------
    $attributes
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Noise variance of standardised y, of a row of mean weight; counts have none.
    noise_model_ : object
        The process of the noise, for `likelihood="heteroscedastic"` only.
    prior_mean_ : ndarray of shape (n_outputs,)
        Means of the logarithms of rates far from the data, for counts only.
    likelihood_, likelihood_shape_ : str, ndarray of shape (n_outputs,)
        Likelihood of the fit, and its degrees of freedom or sizes, if any.
    variance_scale_ : float
        Factor of small variances of the latent functions, for counts only.
    predictive_law_ : object
        The learned law of observations, where it was learned.
    leave_one_out_ : LeaveOneOut
        `mean`, `std`, `residual` and `z_score` of `rows` predicted without themselves.
    y_transform_ : object or None
        The scale T of y, or None for y as it is.
    y_mean_, y_scale_ : float or ndarray of shape (n_outputs,)
        Standardised y is (T(y) - y_mean_) / y_scale_.

    See Also
    --------
    SWSGPClassifier : Classification with the same model of latent functions.
    sklearn.gaussian_process.GaussianProcessRegressor : Exact, for thousands of rows.

    Notes
    -----
    "Attributes of a fitted model" says more of each attribute.

    References
    ----------
    $references

    Examples
    --------
    >>> import numpy as np
    >>> from skswsgp import SWSGPRegressor
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = SWSGPRegressor(n_inducing=20, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.0], [4.0]], return_std=True)
    >>> bool(np.abs(mean - np.sin([1.0, 4.0])).max() < 0.1)
    True
    """

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        **BaseSWSGP._parameter_constraints,
        "likelihood": [StrOptions(NAMES)],
        "likelihood_shape": [
            StrOptions({"auto"}),
            Interval(Real, 0, None, closed="neither"),
        ],
        "predictive": [StrOptions({"auto", "gaussian"})],
        "initial_noise": [Interval(Real, 0, None, closed="neither")],
        "normalize_y": ["boolean"],
        "y_transform": [StrOptions({"auto", *TRANSFORMS}), None],
    }
    _target_checks = {"multi_output": True}  # noqa: RUF012

    def __init__(
        self, kernel: Kernel | None = None, *, x_transform: str | None = "auto",
        learn_map: bool | str = "auto", n_inducing: int | str = "auto",
        n_neighbors: int | str = "auto", inducing_points: ArrayLike = "kmeans",
        covariance: str = "auto", neighbor_search: str = "exact",
        learn_kernel: bool = True, initial_noise: float = 0.1,
        likelihood: str = "gaussian", likelihood_shape: float | str = "auto",
        predictive: str = "auto", normalize_y: bool = True,
        y_transform: str | None = "auto", solver: Solver = "natural",
        warm_start: bool = False, device: str = "auto", n_jobs: int | None = None,
        dtype: str = "float64", random_state: Seed = None, verbose: int = 0,
    ):  # fmt: skip
        compat.set_arguments(self, locals())

    @compat.with_callbacks
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None,
        X_val: ArrayLike | None = None, y_val: PerRow = None, *,
        exposure: PerRow = None, noise_variance: PerRow = None,
    ) -> Self:  # fmt: skip
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs, in any units. They may be a memory map; see "Streams and
            online learning". Blocks of dask are for the classes of `skswsgp.dask`; see
            "Distributed training with Dask".
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Training targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row. It divides the noise variance of the row, multiplies its
            log density with `likelihood="student_t"`, and is a number of observations
            for counts. See "Intervals, quantiles and standard deviations".
        X_val : array-like of shape (n_val, n_features), default=None
            Inputs held out to decide when to stop, in place of a fraction of X.
        y_val : array-like of shape (n_val,) or (n_val, n_outputs), default=None
            Targets that go with `X_val`. Counts there have an exposure of 1.
        exposure : array-like of shape (n_samples,), default=None
            By how much the rates of counts are multiplied, as by the time that a row
            covers. Predictions and `score` are for 1 unless they are given another one.
        noise_variance : array-like of shape (n_samples,), default=None
            Noise variance of each row, in squared units of y, where it is known. It is
            divided by `sample_weight`, clipped to 1e-8 to 1e8 times the variance of y,
            and not learned. New rows have the mean unless they are given others.

        $outcome_of_fit
        """
        rows = GivenRows(X, y, sample_weight, exposure, noise_variance)
        self._validate_params()
        if noise_variance is not None:
            self._require_usable_noise(X_val)
        with compat.unchanged_on_failure(self):
            return self._fit(rows, (X_val, y_val))

    @streams_only
    @compat.with_callbacks
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None, *,
        exposure: PerRow = None,
    ) -> Self:  # fmt: skip
        """Learn from one more chunk of a stream, in one pass.

        $how_streams_learn

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs of the chunk.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets of the chunk.
        sample_weight : array-like of shape (n_samples,), default=None
            How many observations each row of the chunk counts as.
        exposure : array-like of shape (n_samples,), default=None
            By how much the rates of counts of the chunk are multiplied, 1 by default.

        Returns
        -------
        self : object
            The estimator.

        Raises
        ------
        ValueError
            If the noise varies, because its process is learned from all rows at once,
            and after a fit that kept no rows.
        AttributeError
            With the solver Adam.
        """
        self._validate_params()
        if self._record.varying_noise:
            raise ValueError(
                f"partial_fit with likelihood={self.likelihood!r}: expected another "
                "one, because the noise is learned from all rows at once; use fit, or "
                "likelihood='gaussian'."
            )
        from skswsgp.streams import learn_chunk

        return learn_chunk(self, GivenRows(X, y, sample_weight, exposure))

    def lower_bound(
        self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None, *,
        exposure: PerRow = None,
    ) -> float:  # fmt: skip
        """Return the bound of eq. 11 on given data.

        $rows_of_bound
        exposure : array-like of shape (n_samples,), default=None
            By how much the rates of counts are multiplied, 1 by default.

        Returns
        -------
        bound : float
            Sum over the rows, in nats, of the density of standardised y. With
            `likelihood="student_t"` a lower bound stands for the expectation.

        Raises
        ------
        ValueError
            If rows differ in their noise, which `fit` was given or has learned.
        """
        data = self._training_rows(X, y, sample_weight, exposure)
        if getattr(self, "_noise_known", False) or self._record.varying_noise:
            raise ValueError(
                "lower_bound of a model whose noise differs from row to row: expected "
                "likelihood='gaussian' and a fit without noise_variance; use "
                "log_predictive_density to compare models."
            )
        return self._posterior().bound(data)

    def predict(
        self, X: ArrayLike, return_std: bool = False, return_cov: bool = False, *,
        quantiles: ArrayLike | None = None, n_neighbors: Neighbors = None,
        exposure: PerRow = None, noise_variance: PerRow = None,
    ) -> Result:  # fmt: skip
        """Predict the mean of new observations, with their deviation, or quantiles.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Whether to return standard deviations as well.
        return_cov : bool, default=False
            Whether to return covariances as well, at most one of the two.
        quantiles : float or array-like of shape (n_quantiles,), default=None
            Probabilities that an observation, noise included, is smaller. If they are
            given, its quantiles are returned in place of the mean.
        $prediction_parameters

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictive mean, in the units of y.
        std : ndarray of the same shape
            Standard deviation of an observation of mean weight, noise included, in the
            units of y, by the law of `predictive`. Only returned if `return_std`;
            `latent_mean_and_variance` leaves the noise out.
        cov : ndarray of shape (n_samples, n_samples) or \
                (n_samples, n_samples, n_outputs)
            Covariance of such observations, of the diagonal std^2. Only returned if
            `return_cov`. See "Joint predictions, covariances and samples".
        y_quantiles : ndarray of shape (n_samples[, n_quantiles][, n_outputs])
            Quantiles of new observations in the units of y, without the axis of
            quantiles for a number. Returned alone, and only for `quantiles`.

        Raises
        ------
        ValueError
            If the covariances would take more than 1 GiB, where the work takes some
            five times as much as the result. Also if they are those of counts.
        """
        if np.ndim(return_std) or (return_std and return_cov):
            hint = "deviations are the roots of the diagonal of the covariance"
            hint = "give levels as quantiles=[...]" if np.ndim(return_std) else hint
            raise ValueError(
                f"return_std={return_std!r}, return_cov={return_cov!r}: expected at "
                f"most one of the two as True; {hint}."
            )
        if quantiles is not None:
            others = {"return_std": return_std, "return_cov": return_cov}
            how = n_neighbors, exposure, noise_variance
            return self._quantiles_alone(X, quantiles, others, *how)
        check_is_fitted(self, "inducing_points_")
        self._validate_params()
        scale, counts = self._scale, self._record.counts
        if return_cov and counts:
            raise ValueError(
                f"return_cov=True with likelihood={self.likelihood!r}: expected "
                "return_cov=False, for covariances of counts are not computed; use "
                "return_std=True, or the draws of sample_y."
            )
        plain = scale.transform is None and not counts
        plain &= exposure is None and noise_variance is None
        if plain and not (return_std or return_cov):
            mean, _ = self._latent(X, False, n_neighbors)
            return self._without_axis(scale.restore(mean))
        observations = self._observations(X, n_neighbors, exposure, noise_variance)
        moments = observations.moments(scale)
        mean, std = (self._without_axis(moment) for moment in moments)
        if not return_cov:
            return (mean, std) if return_std else mean
        from skswsgp.joint import covariance_of_functions, observed_covariance

        cov = covariance_of_functions(self, X, n_neighbors)
        cov = observed_covariance(observations, cov, moments[1], scale)
        return mean, cov[:, :, 0] if self._targets(vars(self)).is_single else cov

    def sample_y(
        self, X: ArrayLike, n_samples: int = 1, random_state: Seed = 0, *,
        n_neighbors: Neighbors = None, exposure: PerRow = None,
        noise_variance: PerRow = None,
    ) -> Floats:  # fmt: skip
        """Draw observations, noise included, at rows of X.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
            Inputs.
        n_samples : int, default=1
            Number of draws of all rows.
        random_state : int, RandomState instance or None, default=0
            Which draws.
        $prediction_parameters

        Returns
        -------
        y_samples : ndarray of shape (n_samples_X, n_samples) or \
                (n_samples_X, n_outputs, n_samples)
            The functions of `sample_f` with independent noise, in the units of y, for
            observations of mean weight, or counts at rates whose logarithms `sample_f`
            gives. See "Joint predictions, covariances and samples".
        """
        from skswsgp.joint import draw_observations

        how = n_neighbors, exposure, noise_variance
        return draw_observations(self, X, n_samples, random_state, how)

    @property
    def _record(self):
        """The record of the likelihood."""
        return LIKELIHOODS[self.likelihood]

    @property
    def _scale(self):
        """The `TargetScale` of the fitted model."""
        return self._targets(vars(self)).scale

    def _targets(self, attributes):
        self._require_likelihood_of_fit(self.likelihood, attributes)
        names = "y_mean_", "y_scale_", "y_transform_", "_seen_targets"
        scale = TargetScale(*map(attributes.get, names))
        return RegressionTargets(self.likelihood, scale)

    def _learn_targets(self, rows, settings, *, free, classes=None):
        how = {"normalize": self.normalize_y, "free": () if self.warm_start else free}
        return learn_targets(rows, self.y_transform, settings, **how)

    def _require_parameters_of_targets(self, attributes):
        scale = attributes["y_transform_"]
        if self.y_transform != "auto":
            before = scale and scale.name
            word, title = self.y_transform, "transformation"
            require_word_of_fit("y_transform", word, before, title)
        self._require_usable_shape(attributes)

    def _learn_noise(self, rows, targets):
        if not self._record.varying_noise:
            return None
        from skswsgp.noise import learn_noise_model

        transform = targets.scale.transform
        name = None if transform is None else transform.name
        return learn_noise_model(self, rows.inputs, rows.y, rows.weight, name)

    def _require_no_noise(self, noise_variance):
        """Raise ValueError if rows have noise variances that suit no prediction."""
        if noise_variance is None:
            return
        transform = getattr(self, "y_transform_", None)
        wrong = {
            f"likelihood={self.likelihood!r}": not self._record.conjugate,
            f"y_transform_={transform and transform.name!r}": transform is not None,
        }
        for name in (name for name, is_wrong in wrong.items() if is_wrong):
            raise ValueError(
                f"noise_variance came with {name}: expected none; it is for Gaussian "
                "noise on the scale of y, which likelihood='gaussian' and "
                "y_transform=None have in a new fit."
            )

    def _require_usable_noise(self, X_val):
        """Raise ValueError if noise variances of training rows cannot be used."""
        method, _ = solver_for(self)
        transform = getattr(self, "y_transform_", None) if self.warm_start else None
        before = transform and transform.name
        wrong = {
            f"a warm start of y_transform_={before!r}": before is not None,
            f"likelihood={self.likelihood!r}": self.likelihood != "gaussian",
            f"y_transform={self.y_transform!r}": self.y_transform not in ("auto", None),
            f"solver={self.solver!r}": not method.exact_means,
            "X_val": X_val is not None,
        }
        for name in (name for name, is_wrong in wrong.items() if is_wrong):
            raise ValueError(
                f"noise_variance came with {name}: expected likelihood='gaussian', "
                "solver='natural', y_transform=None and no X_val; sample_weight tells "
                "how precise a row is relative to others."
            )

    def _require_usable_shape(self, attributes):
        """Raise ValueError if the shape is not of the likelihood or of the fit."""
        shape, (least, most) = self.likelihood_shape, self._record.shape_bounds
        if shape == "auto":
            return
        if not least <= shape <= most:
            expected = f"{least:g} to {most:g}, or 'auto'" if most else "'auto'"
            raise ValueError(
                f"likelihood_shape={shape} with likelihood={self.likelihood!r}: "
                f"expected {expected}."
            )
        if np.any(attributes.get("likelihood_shape_", shape) != shape):
            raise ValueError(
                f"likelihood_shape={shape} for a model that was fitted with "
                f"{attributes['likelihood_shape_']}: expected the shape of the fit; "
                "set it back, or fit again without warm_start."
            )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        logarithm = self.y_transform == "log"
        counts = getattr(LIKELIHOODS.get(self.likelihood), "counts", False)
        tags.target_tags.positive_only = logarithm or counts
        return tags
