"""Scores of densities, intervals and quantiles, as functions of predictions."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from skswsgp._compiled.special import gaussian_log_density
from skswsgp.metrics.score_input import (
    check_coverage,
    check_gaussian,
    check_intervals,
    check_quantiles,
    mean_over_samples,
)


def mean_negative_log_density(
    y_true: ArrayLike, y_mean: ArrayLike, y_std: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:  # fmt: skip
    """Mean negative log density of the targets under Gaussian predictions.

    Smaller is better: a good prediction has a high density at the target. The score is
    negative where the density is above 1.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    y_mean : array-like of the shape of `y_true`
        Means of the predictions.
    y_std : array-like of the shape of `y_true`
        Standard deviations of the predictions, noise included, in the units of
        `y_true`. Positive.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None gives equal weights.

    Returns
    -------
    score : float
        Weighted mean over samples, and plain mean over outputs, in nats per value.

    See Also
    --------
    interval_coverage : Fraction of the targets inside an interval of the prediction.
    sklearn.metrics.log_loss : The same score for class probabilities.

    Notes
    -----
    The score of one value is `log(2 pi s^2) / 2 + (y - m)^2 / (2 s^2)`. It depends on
    the units of y: if targets, means and standard deviations are multiplied by c, then
    log(c) is added. Its expectation is smallest for the true distribution [1]_.

    References
    ----------
    .. [1] Gneiting, T. and Raftery, A. E. (2007). Strictly proper scoring rules,
       prediction, and estimation. Journal of the American Statistical Association,
       102(477), 359-378.

    Examples
    --------
    >>> from skswsgp.metrics import mean_negative_log_density
    >>> score = mean_negative_log_density([1.0, 2.0], [1.0, 2.5], [0.5, 0.5])
    >>> print(f"{score:.3f}")
    0.476
    """
    y_true, y_mean, y_std = check_gaussian(y_true, y_mean, y_std)
    z = (y_true - y_mean) / y_std
    density = -gaussian_log_density(z**2, 2.0 * np.log(y_std))
    return mean_over_samples(density, sample_weight)


def interval_coverage(
    y_true: ArrayLike, lower: ArrayLike, upper: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:  # fmt: skip
    """Fraction of the targets inside prediction intervals.

    It is the `coverage` that `predict_interval` was asked for if predictions are
    calibrated, less if the intervals are too narrow, and more if they are too wide.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    lower, upper : array-likes of the shape of `y_true`
        Ends of the intervals, as `predict_interval` returns them.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None gives equal weights.

    Returns
    -------
    coverage : float
        Weighted fraction of samples, and plain mean over outputs, between 0 and 1.

    See Also
    --------
    interval_score : Score of intervals that also counts their width.

    Notes
    -----
    Intervals that are wide everywhere can have the right coverage, too. Compare models
    by a proper score [1]_. With n independent targets the standard error of a coverage
    c is `sqrt(c (1 - c) / n)`. Intervals of counts end at whole numbers, so they hold
    at least what they promise.

    References
    ----------
    .. [1] Gneiting, T., Balabdaoui, F. and Raftery, A. E. (2007). Probabilistic
       forecasts, calibration and sharpness. Journal of the Royal Statistical Society
       B, 69(2), 243-268.

    Examples
    --------
    >>> from skswsgp.metrics import interval_coverage
    >>> interval_coverage([0.0, 1.0, 3.0, -1.0], [-2.0] * 4, [2.0] * 4)
    0.75
    """
    y_true, lower, upper = check_intervals(y_true, lower, upper)
    return mean_over_samples((lower <= y_true) & (y_true <= upper), sample_weight)


def crps(
    y_true: ArrayLike, y_mean: ArrayLike, y_std: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:  # fmt: skip
    """Compute the continuous ranked probability score of Gaussian predictions.

    Smaller is better. The score is in the units of the targets, and is the absolute
    error where standard deviations go to zero. Errors far out count less than in
    `mean_negative_log_density`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    y_mean : array-like of the shape of `y_true`
        Means of the predictions.
    y_std : array-like of the shape of `y_true`
        Standard deviations of the predictions, noise included, in the units of
        `y_true`. Positive.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None gives equal weights.

    Returns
    -------
    score : float
        Weighted mean over samples, and plain mean over outputs.

    See Also
    --------
    crps_of_quantiles : The same score of predictions that are told by quantiles.
    get_scorer : ``-get_scorer("neg_crps")(model, X, y)`` is the same score of the whole
        law that a model predicts.

    Notes
    -----
    The score of one value is the integral over x of (F(x) - [x >= y])^2 for the
    predicted distribution function F. For a Gaussian and z = (y - m) / s it is
    `s (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi))` [1]_.

    References
    ----------
    .. [1] Gneiting, T. and Raftery, A. E. (2007). Strictly proper scoring rules,
       prediction, and estimation. Journal of the American Statistical Association,
       102(477), 359-378.

    Examples
    --------
    >>> from skswsgp.metrics import crps
    >>> print(f"{crps([1.0, 2.0], [1.0, 2.5], [0.5, 0.5]):.3f}")
    0.209
    """
    y_true, y_mean, y_std = check_gaussian(y_true, y_mean, y_std)
    z = (y_true - y_mean) / y_std
    density = np.exp(gaussian_log_density(z**2, 0.0))
    score = z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi)
    return mean_over_samples(y_std * score, sample_weight)


def crps_of_quantiles(
    y_true: ArrayLike, y_quantiles: ArrayLike, quantiles: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:  # fmt: skip
    """Compute the continuous ranked probability score of quantiles.

    Smaller is better. The score is in the units of the targets. It comes as close to
    that of the whole distribution as the levels come to all of (0, 1).

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    y_quantiles : array-like of shape (n_samples[, n_quantiles][, n_outputs])
        Quantiles, as `predict(X, quantiles=quantiles)` returns them: without the axis
        of quantiles for a number.
    quantiles : float or array-like of shape (n_quantiles,)
        Levels of the quantiles, between 0 and 1, in any order.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None gives equal weights.

    Returns
    -------
    score : float
        Weighted mean over samples, and plain mean over outputs.

    See Also
    --------
    crps : The same score of Gaussian predictions.
    pinball : The plain mean of the losses over levels.

    Notes
    -----
    The score of one value is twice the integral of its pinball loss over all levels
    [1]_. A level stands for those that are nearer to it than to another one, so for
    evenly spaced levels 0.005, 0.015, ..., 0.995 the score is twice `pinball`.

    References
    ----------
    .. [1] Laio, F. and Tamea, S. (2007). Verification tools for probabilistic forecasts
       of continuous hydrological variables. Hydrology and Earth System Sciences, 11(4),
       1267-1277.

    Examples
    --------
    >>> from skswsgp.metrics import crps_of_quantiles
    >>> crps_of_quantiles([1.0, 3.0], [[1.0, 2.0], [1.0, 2.0]], [0.25, 0.75])
    0.75
    """
    y_true, y_quantiles, q = check_quantiles(y_true, y_quantiles, quantiles)
    order = np.argsort(q)
    ends = np.concatenate([[0.0], 0.5 * (q[order][1:] + q[order][:-1]), [1.0]])
    losses = _pinball_losses(y_true, y_quantiles, q)[..., order]
    return mean_over_samples(2.0 * losses @ np.diff(ends), sample_weight)


def interval_score(
    y_true: ArrayLike, lower: ArrayLike, upper: ArrayLike, coverage: float = 0.95,
    sample_weight: ArrayLike | None = None,
) -> float:  # fmt: skip
    """Compute Winkler's score of central prediction intervals.

    Smaller is better. An interval pays its width, and for a target outside it the
    distance times 2 / (1 - coverage). So intervals that are wide everywhere do not win.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    lower, upper : array-likes of the shape of `y_true`
        Ends of the intervals, as `predict_interval` returns them.
    coverage : float, default=0.95
        Probability of the intervals under the prediction, between 0 and 1.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None gives equal weights.

    Returns
    -------
    score : float
        Weighted mean over samples, and plain mean over outputs, in units of y.

    Notes
    -----
    The score is proper: it is smallest on average for the true quantiles [1]_.

    References
    ----------
    .. [1] Winkler, R. L. (1972). A decision-theoretic approach to interval estimation.
       Journal of the American Statistical Association, 67(337), 187-191.

    Examples
    --------
    >>> from skswsgp.metrics import interval_score
    >>> round(interval_score([0.0, 3.0], [-1.0, -1.0], [1.0, 1.0], coverage=0.5), 2)
    6.0
    """
    check_coverage(coverage)
    y_true, lower, upper = check_intervals(y_true, lower, upper)
    outside = np.maximum(lower - y_true, 0.0) + np.maximum(y_true - upper, 0.0)
    scores = upper - lower + 2.0 / (1.0 - coverage) * outside
    return mean_over_samples(scores, sample_weight)


def pinball(
    y_true: ArrayLike, y_quantiles: ArrayLike, quantiles: ArrayLike,
    sample_weight: ArrayLike | None = None,
) -> float:  # fmt: skip
    """Mean pinball loss of quantiles of several levels.

    Smaller is better. For one level it is scikit-learn's `mean_pinball_loss`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    y_quantiles : array-like of shape (n_samples[, n_quantiles][, n_outputs])
        Quantiles, as `predict(X, quantiles=quantiles)` returns them: without the axis
        of quantiles for a number.
    quantiles : float or array-like of shape (n_quantiles,)
        Levels of the quantiles, between 0 and 1.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None gives equal weights.

    Returns
    -------
    loss : float
        Weighted mean over samples, and plain mean over outputs and levels, in the
        units of y.

    See Also
    --------
    crps_of_quantiles : Twice the mean over all levels.
    sklearn.metrics.mean_pinball_loss : The same loss for one level.

    Notes
    -----
    The loss of one value is `max(q (y - x), (q - 1) (y - x))` for the quantile x of
    level q [1]_.

    References
    ----------
    .. [1] Koenker, R. and Bassett, G. (1978). Regression quantiles. Econometrica,
       46(1), 33-50.

    Examples
    --------
    >>> from skswsgp.metrics import pinball
    >>> pinball([1.0, 3.0], [[1.0, 2.0], [1.0, 2.0]], [0.5, 0.75])
    0.5
    """
    y_true, y_quantiles, q = check_quantiles(y_true, y_quantiles, quantiles)
    losses = _pinball_losses(y_true, y_quantiles, q)
    return mean_over_samples(losses, sample_weight)


def _pinball_losses(y_true, y_quantiles, q):
    """Return the losses of checked quantiles, levels last."""
    error = np.moveaxis(y_true[:, None] - y_quantiles, 1, -1)
    return np.maximum(q * error, (q - 1.0) * error)
