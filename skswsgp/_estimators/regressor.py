"""Regression with a Sparse-within-Sparse Gaussian process."""

from numbers import Real

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skswsgp._cluster.predictions import by_blocks, from_all_rows
from skswsgp._estimators.base import BaseSWSGP
from skswsgp._estimators.fit_stages import GivenRows
from skswsgp._estimators.given import learns_streams
from skswsgp._estimators.observations import ObservationsMixin
from skswsgp._estimators.shared_docs import with_shared_text
from skswsgp._estimators.sklearn_compat import (
    ScoreMixin,
    log_exposure,
    set_arguments,
    unchanged_on_failure,
    with_callbacks,
)
from skswsgp._estimators.targets import TargetsMixin
from skswsgp._point import log_rates
from skswsgp._point.likelihood_records import LIKELIHOODS

NAMES = {"gaussian", "heteroscedastic", "student_t", "poisson", "negative_binomial"}


@with_shared_text
class SWSGPRegressor(
    ObservationsMixin, TargetsMixin, ScoreMixin,
    MultiOutputMixin, RegressorMixin, BaseSWSGP,
):  # fmt: skip
    """Gaussian process regression in which each row uses its nearest inducing points.

    A sparse variational Gaussian process keeps M inducing points and pays O(M^3) a
    training step. Here each row uses only its H nearest inducing points, so it costs
    O(H^3), in training and in prediction [1]_.

    Parameters
    ----------
    $model_parameters
    learn_kernel : bool, default=True
        Whether kernel and noise are learned before q(u) is sought: from the evidence of
        up to some thousand rows, and with more rows, or Adam, from the likelihood of
        rows given their nearest other rows. With False they start as they are given.
        The natural solver leaves them there, and steps of Adam move them in any case.
    initial_noise : float, default=0.1
        Noise variance at the start, on the scale of standardised y.
    likelihood : {"gaussian", "heteroscedastic", "student_t", "poisson", \
            "negative_binomial"}, default="gaussian"
        Distribution of y given the latent function f. "heteroscedastic" is Gaussian
        with noise that varies with X: the logarithm of its variance has a Gaussian
        process of its own, `noise_model_`, whose kernel is learned as well [3]_. Rows
        in little noise then say more about f than others. A fit takes five to ten times
        as long as one with constant noise. "student_t" is for outliers: noise has heavy
        tails, and rows far from what others predict have little say in f; `predictive`
        plays no role. "poisson" and "negative_binomial" are for counts of the mean
        exp(f) and the variance exp(f), or exp(f) + exp(f)^2 / r: `predict` returns
        expected counts, quantiles are whole numbers and densities are probabilities. y
        must then hold whole numbers that are not negative, `predictive` and
        `normalize_y` play no role, and `initial_noise` is only the start of the noise
        of log(y + 1 / 2), from which a kernel is learned. With `solver="natural"` that
        kernel is then refined on the counts.
    likelihood_shape : float or "auto", default="auto"
        Degrees of freedom of "student_t", from 2.05 to 200, or the size r of
        "negative_binomial", from 0.01 to 10,000. "auto" learns them with
        `learn_kernel=True`, by how far rows are from what their nearest others predict,
        or from held-out counts, and is 4 or 5 otherwise. Other likelihoods have no such
        number.
    predictive : {"auto", "gaussian"}, default="auto"
        Law of observations around the mean, for standard deviations, intervals,
        quantiles, densities and samples of y. "gaussian" is that of the process and
        its noise. "auto" learns from the errors of training rows, each
        predicted from the others, by how much the deviation of the process is
        multiplied around a row, how heavy the tails of a Student-t distribution are,
        and whether targets of near rows get a share of the density; it keeps the
        Gaussian where nothing is better by more than two standard errors. With up to
        some 1,000 rows it makes either law wider, by how much errors grow where kernel
        and noise have not learned from their rows.
    normalize_y : bool, default=True
        Whether y, after `y_transform`, is standardised inside.
    y_transform : {"auto", "log", "yeo-johnson"} or None, default="auto"
        Scale on which y has a Gaussian process. "log" needs positive targets and gives
        positive predictions. "yeo-johnson" is a power that makes training targets
        nearest to a Gaussian, for any sign. "auto" takes one of the two, for all
        outputs, where the evidence of 250 distinct rows, in the units of y, is larger
        by 19 nats and predictions of rows left out get no worse, and None otherwise.
        It takes None where most targets of an output share their value with others, or
        the scale of y is given: with `kernel`, `learn_kernel=False`,
        `normalize_y=False`, `warm_start`, `noise_variance` or `X_val`, in
        `partial_fit`, and for other likelihoods than "gaussian" and "heteroscedastic".
        After a logarithm, which is taken of positive targets only, a target of zero or
        less has density zero.
        Means, deviations, covariances, quantiles and densities are in the units of y;
        latent functions are on the transformed scale.
    $training_parameters

    Attributes
    ----------
    $attributes
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Learned noise variance of a row of mean weight, on the scale of standardised y;
        for "student_t" the square of the scale of the noise.
        Counts have none. With noise that varies it is the harmonic mean over rows.
    noise_model_ : object
        The process of the noise, for `likelihood="heteroscedastic"` only, with the
        fitted attributes `kernel_` and so on; `noise_std` predicts by it.
    prior_mean_ : ndarray of shape (n_outputs,)
        Prior means of the latent functions of counts, at which the expected count is
        the weighted mean of y over that of exposures, under the kernel before Adam
        changes it.
        `inducing_mean_` describes the latent functions less these means.
    likelihood_ : str
        Likelihood of the fit.
    likelihood_shape_ : ndarray of shape (n_outputs,)
        Degrees of freedom of "student_t", or sizes of "negative_binomial"; other
        likelihoods have none.
    variance_scale_ : float
        Factor of small variances of q(f) in predictions of counts, as that of a
        `SWSGPClassifier`.
    predictive_law_ : object
        The law of observations, where it was learned. `degrees_of_freedom`
        (n_outputs,) are infinite for a Gaussian, `scale_range` (2, n_outputs) holds the
        5 and 95 % quantiles over training rows of the factor of deviations, and
        `density` is not None where near targets have a share, `density.share`
        (n_outputs,).
    leave_one_out_ : LeaveOneOut
        Each row of X as predicted by the model without that row, a named tuple of
        `mean`, `std`, `residual` and `z_score`, each of the shape of y. Kernel and
        noise stay as all rows have taught them. `std` is that of an observation of the
        weight of the row under the process, without the law of `predictive`, and
        `residual` is y - mean. `z_score` is the value of a standard normal variable
        that is as probable as y, under the law of `predictive` around the row and on
        the scale of `y_transform`. Copies of a row are left out together, and rows that
        did not train are predicted as new rows. Where the distinct rows are the
        inducing points, a row is predicted from all others, or from its nearest ones
        where neither H is M nor means come from all rows. With fewer inducing points it
        is taken out of q(f), where the residual at most doubles. Only for Gaussian
        noise; a stream has none, and neither has Adam with more than 20,000 rows.
    y_mean_, y_scale_ : float or ndarray of shape (n_outputs,)
        T(y) is standardised as (T(y) - y_mean_) / y_scale_, where T is `y_transform_`,
        or leaves y alone where that is None. They are 0 and 1 for counts.
    y_transform_ : object or None
        The transformation of y. That of "yeo-johnson" has a `power` for each output: 1
        is linear, and 0 the logarithm of 1 + y / `unit` for positive y.

    See Also
    --------
    SWSGPClassifier : Classification with the same model of latent functions.
    sklearn.gaussian_process.GaussianProcessRegressor : Exact, for thousands of rows.

    Notes
    -----
    `kernel_`, `linear_map_`, `noise_variance_`, the inducing attributes, the numbers of
    neighbours and, where there are some, `posterior_draws_`, `alpha_`,
    `local_variance_scale_`, `predictive_law_` and what the likelihood adds are the
    whole model: `predict` reads nothing else but the scale of y. Where all rows have
    one noise, an exact Gaussian process with this kernel is
    ``GaussianProcessRegressor(kernel_ + WhiteKernel(noise_variance_), optimizer=None)``
    of scikit-learn, fitted to ``X @ linear_map_`` and standardised y.

    References
    ----------
    $references
    .. [3] M. Lazaro-Gredilla, M. K. Titsias, "Variational Heteroscedastic Gaussian
       Process Regression", ICML 2011.

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
        "y_transform": [StrOptions({"log", "yeo-johnson", "auto"}), None],
    }
    _target_checks = {"multi_output": True}  # noqa: RUF012

    def __init__(
        self, kernel=None, *, x_transform="auto", learn_map="auto", n_inducing="auto",
        n_neighbors="auto", inducing_points="kmeans", covariance="auto",
        neighbor_search="exact", learn_kernel=True, initial_noise=0.1,
        likelihood="gaussian", likelihood_shape="auto", predictive="auto",
        normalize_y=True, y_transform="auto", solver="natural", warm_start=False,
        device="auto", n_jobs=None, dtype="float64", random_state=None, verbose=0,
    ):  # fmt: skip
        set_arguments(self, locals())

    @with_callbacks
    def fit(
        self, X, y, sample_weight=None, X_val=None, y_val=None, *, exposure=None,
        noise_variance=None,
    ):  # fmt: skip
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs, in any units. With `solver="adam"` and
            `learn_kernel=False` floats are not copied, and a memory map is read piece
            by piece, unless the noise varies or `x_transform` is a word other than
            "auto". X, y and `sample_weight` may be dask arrays or data frames with the
            same blocks of rows, which stay where they are; see the guide, "What
            if one machine is not enough?".
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Training targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row, in training and when it is held out. For counts it is a
            number of observations. Otherwise it divides the noise variance of the row,
            and a common factor of all weights changes nothing, because the noise is
            learned; with `likelihood="student_t"` it multiplies the log density.
        X_val : array-like of shape (n_val, n_features), default=None
            Inputs held out to decide when to stop, in place of a fraction of X.
        y_val : array-like of shape (n_val,) or (n_val, n_outputs), default=None
            Targets that go with `X_val`. Counts there have an exposure of 1.
        exposure : array-like of shape (n_samples,), default=None
            By how much the rates of counts are multiplied: the time or the area that a
            row covers, for instance. Predictions are for an exposure of 1 unless they
            are given another one, and so is `score`.
        noise_variance : array-like of shape (n_samples,), default=None
            Noise variance of each row, in squared units of y, where it is known. It is
            divided by `sample_weight` and not learned. Variances are clipped to 1e-8
            to 1e8 times that of y. Predictions of new observations have the weighted
            mean of these variances unless they are given others.

        $outcome_of_fit
        """
        rows = GivenRows(X, y, sample_weight, exposure, noise_variance)
        self._validate_params()
        if noise_variance is not None:
            self._require_usable_noise(X_val)
        with unchanged_on_failure(self):
            return self._fit(rows, (X_val, y_val))

    @available_if(learns_streams)
    def partial_fit(self, X, y, sample_weight=None, *, exposure=None):
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
        return self._partial_fit(X, y, sample_weight, exposure)

    def lower_bound(self, X, y, sample_weight=None, *, exposure=None):
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
        check_is_fitted(self, "inducing_points_")
        self._validate_params()
        if getattr(self, "_noise_known", False) or self._record.varying_noise:
            raise ValueError(
                "lower_bound of a model whose noise differs from row to row: expected "
                "likelihood='gaussian' and a fit without noise_variance; use "
                "log_predictive_density to compare models."
            )
        data = self._training_rows(X, y, sample_weight, exposure)
        return self._posterior(draws=False).bound(data)

    @by_blocks
    def predict(
        self, X, return_std=False, return_cov=False, *, quantiles=None,
        n_neighbors=None, exposure=None, noise_variance=None,
    ):  # fmt: skip
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
            Predictive mean, eq. 13, or given all rows where there is `alpha_`, in the
            units of y. Behind `y_transform_` it is the mean of y for a Gaussian T(y),
            whose deviation is at most that of training targets.
        std : ndarray of the same shape
            Standard deviation of an observation whose weight is the mean of the
            training rows, noise included, in the units of y, from the law of
            observations (see `predictive`). Only returned if `return_std`;
            `latent_mean_and_variance` leaves the noise out.
        cov : ndarray of shape (n_samples, n_samples) or \
                (n_samples, n_samples, n_outputs)
            Covariance of such observations, noise included on the diagonal, which is
            std^2. Factors and tails of the law of observations act on each row by its
            own. With a transformation of y it is that of y for a Gaussian T(y). Only
            returned if `return_cov`.
        y_quantiles : ndarray of shape (n_samples[, n_quantiles][, n_outputs])
            Quantiles of new observations in the units of y, without the axis of
            quantiles for a number. Returned alone, and only for `quantiles`.

        Raises
        ------
        ValueError
            If the covariances would take more than 1 GiB, where the work takes some
            five times as much as the result. Also if they are those of counts.
        """
        if return_std and return_cov:
            raise ValueError(
                "return_std and return_cov are both true: expected at most one; the "
                "standard deviations are the roots of the diagonal of the covariance."
            )
        if quantiles is not None:
            others = {"return_std": return_std, "return_cov": return_cov}
            how = n_neighbors, exposure, noise_variance
            return self._quantiles_alone(X, quantiles, others, *how)
        check_is_fitted(self, "inducing_points_")
        self._validate_params()
        scale, counts = self._target_scale(vars(self)), self._record.counts
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
        cov = self._latent_covariance(X, n_neighbors) if return_cov else None
        observations = self._observations(X, n_neighbors, exposure, noise_variance)
        if scale.transform is not None:
            observations = observations.as_gaussian(scale.most_deviation)
        moments = scale.moments(observations.mean, observations.deviation())
        mean, std = (self._without_axis(moment) for moment in moments)
        if cov is None:
            return (mean, std) if return_std else mean
        observations.join(cov)
        cov = scale.covariance(observations.mean, cov)
        return mean, cov[:, :, 0] if self._has_one_function() else cov

    @from_all_rows("draws noise for all rows; use sample_f, or X.compute()")
    def sample_y(
        self, X, n_samples=1, random_state=0, *, n_neighbors=None, exposure=None,
        noise_variance=None,
    ):  # fmt: skip
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
            observations whose weight is the mean of the training rows. A learned law
            acts on each row by its own, so paths are not smooth where it
            is not Gaussian. For counts they are draws of the rates whose logarithms
            `sample_f` gives. Outputs are independent of each other.
            Other rows or another number of draws get other noise for the same
            `random_state`.
        """
        rng = check_random_state(random_state)
        functions = self.sample_f(X, n_samples, rng, n_neighbors=n_neighbors)
        observations = self._observations(X, n_neighbors, exposure, noise_variance)
        functions = functions.reshape(len(functions), np.size(self.y_mean_), -1)
        if self._record.counts:
            shifts = log_exposure(exposure, len(functions))[:, None, None]
            draws = log_rates.draw(functions + shifts, observations.size, rng)
            return self._without_axis(draws)
        offset, factor = (np.reshape(v, (-1, 1)) for v in (self.y_mean_, self.y_scale_))
        standard = (functions - offset) / factor
        if not self._record.conjugate:
            values = standard + observations.draw_noise(standard.shape, rng)
        else:
            errors = standard - observations.mean[:, :, None]
            noise = self._noise_of_rows(noise_variance, X)[:, :, None]
            errors += np.sqrt(noise) * rng.standard_normal(errors.shape)
            values = observations.draw(errors, rng)
        return self._without_axis(self._target_scale(vars(self)).restore(values))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        logarithm = self.y_transform == "log"
        counts = getattr(LIKELIHOODS.get(self.likelihood), "counts", False)
        tags.target_tags.positive_only = logarithm or counts
        return tags
