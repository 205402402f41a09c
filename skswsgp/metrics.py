"""Scores that measure how far the uncertainty of predictions can be trusted."""

from inspect import signature
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.metadata_routing import UNUSED, _MetadataRequester

from skswsgp._compiled.special import gaussian_log_density
from skswsgp._law import student
from skswsgp._law.law import interval_scores
from skswsgp._law.score_input import (
    check_count,
    check_coverage,
    check_gaussian,
    check_intervals,
    check_probabilities,
    check_quantiles,
    check_weights,
    columns_of,
    mean_over_samples,
)

__all__ = [
    "crps",
    "expected_calibration_error",
    "get_scorer",
    "interval_coverage",
    "interval_score",
    "mean_negative_log_density",
    "pinball",
    "reliability_curve",
]


def mean_negative_log_density(y_true, y_mean, y_std, sample_weight=None):
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


def interval_coverage(y_true, lower, upper, sample_weight=None):
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


def crps(y_true, y_mean, y_std, sample_weight=None):
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
    pinball : Score of quantiles, whose mean over all levels is half of this one.

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
    score = student.crps((y_true - y_mean) / y_std, np.inf)
    return mean_over_samples(y_std * score, sample_weight)


def interval_score(y_true, lower, upper, coverage=0.95, sample_weight=None):
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
    scores = interval_scores(y_true, lower, upper, coverage)
    return mean_over_samples(scores, sample_weight)


def pinball(y_true, y_quantiles, quantiles, sample_weight=None):
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
    crps : Twice the mean over all levels, for Gaussian predictions.
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
    error = np.moveaxis(y_true[:, None] - y_quantiles, 1, -1)
    return mean_over_samples(np.maximum(q * error, (q - 1.0) * error), sample_weight)


def get_scorer(name):
    """Return a scorer of probabilistic regression, for `GridSearchCV(scoring=...)`.

    A search calls `predict` without `return_std`, so metrics of whole predictions
    cannot go through `make_scorer`. These scorers ask an estimator how uncertain it is.

    Parameters
    ----------
    name : {"neg_log_density", "neg_crps", "neg_interval_score"}
        Negative of `mean_negative_log_density`, of `crps`, or of `interval_score` of
        95 % intervals, so that greater is better.

    Returns
    -------
    scorer : callable
        `scorer(estimator, X, y, sample_weight=None)`, whose `set_score_request` is that
        of scikit-learn's scorers.

    Raises
    ------
    TypeError
        If a scorer is given an estimator that does not tell what the score needs.

    See Also
    --------
    sklearn.metrics.make_scorer : Scorers of means, labels and probabilities.

    Notes
    -----
    An estimator is asked for the first of these that it has:

    1. the law of observations of an `SWSGPRegressor`;
    2. `predict(X, return_std=True)`, as in `BayesianRidge` and
       `GaussianProcessRegressor`, which stands for a Gaussian;
    3. `predict(X, quantiles=[...])`. The score of intervals is exact. The ranked
       probability score is twice the mean pinball loss over the hundred levels 0.005,
       0.015, ..., 0.995. Quantiles have no density;
    4. `predict_interval(X, coverage=0.95)` with two ends, or `predict_interval(X)` with
       points and intervals of shape (n_samples, 2, 1), as MAPIE returns them. These
       must be intervals of 95 %: MAPIE does not tell, so give it
       `confidence_level=0.95`. They have the score of intervals only.

    Pipelines and fitted searches are asked for the estimator in them. Others pass on
    what they can: `TransformedTargetRegressor` gives quantiles of an `SWSGPRegressor`.

    scikit-learn turns what a scorer raises into NaN and a warning with a traceback,
    whose last line is the message. ``error_score="raise"`` of `cross_validate` and of
    searches raises it.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from skswsgp import SWSGPRegressor
    >>> from skswsgp.metrics import get_scorer
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> y, model = np.sin(X[:, 0]), SWSGPRegressor(random_state=0)
    >>> scores = cross_val_score(model, X, y, scoring=get_scorer("neg_crps"), cv=3)
    >>> scores.shape
    (3,)
    """
    if name not in _OF_GAUSSIANS:
        raise ValueError(
            f"name={name!r}: expected one of {', '.join(map(repr, _OF_GAUSSIANS))}; "
            "give scikit-learn's scores by name instead, as in scoring='r2'."
        )
    return _Scorer(name)


class _Scorer(_MetadataRequester):
    """A scorer that can be pickled and cloned, by its name."""

    # scikit-learn reads from `score` that a weight may be routed to it
    __metadata_request__score = {"estimator": UNUSED}  # noqa: RUF012

    def __init__(self, name):
        self.name = name

    def score(self, estimator, X, y, sample_weight=None):
        """Return the score of predictions for rows of X; greater is better."""
        estimator, X = _innermost(estimator, X)
        if hasattr(estimator, "classes_"):
            raise TypeError(
                f"{type(estimator).__name__} is a classifier: expected a regressor for "
                f"{self!r}; use scoring='neg_log_loss' for probabilities of classes."
            )
        if hasattr(estimator, "_crps"):
            return -_OF_LAWS[self.name](estimator, X, y, sample_weight)
        moments = _asked(estimator, X, return_std=True)
        if isinstance(moments, tuple):
            return -_OF_GAUSSIANS[self.name](y, *moments, sample_weight=sample_weight)
        levels, factor = _OF_QUANTILES[self.name]
        quantiles = _asked(estimator, X, quantiles=levels)
        shape = np.shape(y)
        if np.shape(quantiles) == (shape[0], len(levels), *shape[1:]):
            if np.any(np.diff(quantiles, axis=1) < 0.0):
                raise self._refusal(estimator, "has quantiles that fall with the level")
            if factor is None:
                raise self._refusal(estimator, "has quantiles, which have no density")
            return -factor * pinball(y, quantiles, levels, sample_weight)
        if not hasattr(estimator, "predict_interval"):
            why = f" ({quantiles})" if isinstance(quantiles, Exception) else ""
            raise self._refusal(estimator, f"does not say how uncertain it is{why}")
        if self.name != "neg_interval_score":
            raise self._refusal(estimator, "has intervals, which are no whole law")
        ends = _intervals(estimator, X)
        return -interval_score(y, *ends, 0.95, sample_weight)

    __call__ = score

    def _accept_sample_weight(self):  # asked by searches for several scores
        return True

    def _refusal(self, estimator, what):
        """Return the TypeError for an estimator that has not what the score needs."""
        needed = "predict(X, return_std=True)"
        if self.name != "neg_log_density":
            needed += " or predict(X, quantiles=[...])"
        if self.name == "neg_interval_score":
            needed += " or predict_interval(X)"
        return TypeError(
            f"{type(estimator).__name__} {what}: expected {needed} for {self!r}; for "
            "means use scoring='r2'."
        )

    def __repr__(self):
        return f"get_scorer({self.name!r})"

    _routing_repr = __repr__  # in scikit-learn's messages on routing


def _innermost(estimator, X):
    """Return the estimator inside of pipelines and searches, and its rows for X.

    X may be None, and stays that.
    """
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif hasattr(estimator, "steps"):
            if X is not None and len(estimator.steps) > 1:
                X = estimator[:-1].transform(X)
            estimator = estimator[-1]
        else:
            return estimator, X


def _asked(estimator, X, **how):
    """Return predict(X, name=value), or the exception that says it has no such name.

    A method without the name may pass it on, as those of meta-estimators do.
    """
    (name,) = how
    named = name in signature(estimator.predict).parameters
    refused = () if named else (TypeError, AttributeError, ValueError)
    try:
        return estimator.predict(X, **how)
    except refused as error:
        return error


def _intervals(estimator, X, coverage=0.95):
    """Return the two ends of central intervals, from `predict_interval`."""
    if "coverage" in signature(estimator.predict_interval).parameters:
        return estimator.predict_interval(X, coverage=coverage)
    found = estimator.predict_interval(X)
    level = getattr(estimator, "confidence_level", coverage)
    shapes = [np.shape(part) for part in found]
    if shapes[1:] != [(shapes[0][0], 2, 1)] or np.any(np.not_equal(level, coverage)):
        raise ValueError(
            f"predict_interval(X) of {type(estimator).__name__} has results of the "
            f"shapes {shapes} and confidence_level={level}: expected points and ends "
            f"{[(len(X), 2, 1)]} of intervals of {100 * coverage:.4g} %; use "
            f"confidence_level={coverage:.4g}."
        )
    return found[1][:, 0, 0], found[1][:, 1, 0]


def _quantiles(estimator, X, levels):
    """Return quantiles (n, n_levels[, n_outputs]) of the law that an estimator tells.

    Without quantiles of its own, `return_std` stands for a Gaussian. None is for an
    estimator with neither.
    """
    quantiles = _asked(estimator, X, quantiles=levels)
    if not isinstance(quantiles, Exception):
        return quantiles
    moments = _asked(estimator, X, return_std=True)
    if not isinstance(moments, tuple):
        return None
    mean, std = moments
    return np.stack([mean + std * z for z in ndtri(levels)], axis=1)


def _gaussian_interval_score(y_true, y_mean, y_std, sample_weight=None):
    """Return the interval score of the central intervals of 95 %."""
    y_true, y_mean, y_std = check_gaussian(y_true, y_mean, y_std)
    half = ndtri(0.975) * y_std
    return interval_score(
        y_true, y_mean - half, y_mean + half, sample_weight=sample_weight
    )


def _law_log_density(estimator, X, y, sample_weight):
    """Return the mean negative log density under the law of an estimator."""
    density = np.asarray(estimator.log_predictive_density(X, y))  # dask's are lazy
    return -mean_over_samples(density, sample_weight)


def _law_crps(estimator, X, y, sample_weight):
    """Return the mean ranked probability score of the law of an estimator."""
    return mean_over_samples(estimator._crps(X, y), sample_weight)


def _law_interval_score(estimator, X, y, sample_weight):
    """Return the interval score of the intervals of 95 % of an estimator."""
    return interval_score(y, *estimator.predict_interval(X), 0.95, sample_weight)


_OF_LAWS = {
    "neg_log_density": _law_log_density,
    "neg_crps": _law_crps,
    "neg_interval_score": _law_interval_score,
}
_OF_GAUSSIANS = {
    "neg_log_density": mean_negative_log_density,
    "neg_crps": crps,
    "neg_interval_score": _gaussian_interval_score,
}
# Levels of quantiles, and the factor that makes a score of their mean pinball loss. A
# single level would come back without its axis from some meta-estimators.
_OF_QUANTILES = {
    "neg_log_density": ([0.025, 0.975], None),
    "neg_crps": ((np.arange(100) + 0.5) / 100, 2.0),
    "neg_interval_score": ([0.025, 0.975], 2.0 / 0.025),
}


class ReliabilityCurve(NamedTuple):
    """Accuracy by confidence; arrays have an entry for each bin (n_bins,).

    In an empty bin all but the weight, and the middle of the bin, are NaN.
    """

    accuracy: np.ndarray  # weighted share of samples whose class is the predicted one
    confidence: np.ndarray  # the mean in the bin, or the middle of the bin
    weight: np.ndarray  # share of the weights of all samples
    lower: np.ndarray  # end of the interval of 95 % for the accuracy
    upper: np.ndarray  # its other end


def reliability_curve(
    y_true,
    y_proba,
    *,
    n_bins=20,
    confidence="mean",
    labels=None,
    sample_weight=None,
):
    """Compute the accuracy of a classifier as a function of its confidence.

    The prediction for a sample is its most probable class, and the confidence is the
    probability of that class. A calibrated classifier is right as often as it is
    confident.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Class labels.
    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Probabilities of the classes, as `predict_proba` returns them, or the
        probabilities of the second of two classes.
    n_bins : int, default=20
        Number of bins of equal width on [0, 1].
    confidence : {"mean", "middle"}, default="mean"
        Confidence of a bin: the weighted mean over its samples, or its middle.
    labels : array-like of shape (n_classes,), default=None
        Class of each column of `y_proba`, for example `classifier.classes_`. None
        stands for the sorted labels of `y_true`.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None gives equal weights.

    Returns
    -------
    curve : ReliabilityCurve
        A named tuple of arrays of shape (n_bins,): `accuracy`, `confidence`, `weight`,
        which sums to one, and `lower` and `upper`, the ends of an interval of 95 % for
        the accuracy. In an empty bin all but the weight, and the middle of the bin, are
        NaN.

    See Also
    --------
    expected_calibration_error : The mean gap between accuracy and confidence.
    skswsgp.displays.ReliabilityDisplay : A picture of the curve.
    sklearn.calibration.calibration_curve : The same for the second of two classes.

    Notes
    -----
    Bin b holds the samples with a confidence in (b / n_bins, (b + 1) / n_bins] [1]_.
    The interval holds the p with `|a - p| <= 1.96 sqrt(p (1 - p) / n)` for the accuracy
    a of n samples [2]_, so that it stays wide where all of few samples are hits. With
    weights w, n is `(sum w)^2 / sum w^2`.

    References
    ----------
    .. [1] Guo, C., Pleiss, G., Sun, Y. and Weinberger, K. Q. (2017). On calibration of
       modern neural networks. ICML, 1321-1330.
    .. [2] Wilson, E. B. (1927). Probable inference, the law of succession, and
       statistical inference. Journal of the American Statistical Association, 22(158),
       209-212.

    Examples
    --------
    >>> from skswsgp.metrics import reliability_curve
    >>> y_true = ["cat", "cat", "dog", "dog"]
    >>> y_proba = [[0.75, 0.25], [0.75, 0.25], [0.75, 0.25], [0.0, 1.0]]
    >>> curve = reliability_curve(y_true, y_proba, n_bins=5)
    >>> curve.accuracy.round(2)
    array([ nan,  nan,  nan, 0.67, 1.  ])
    >>> curve.confidence
    array([ nan,  nan,  nan, 0.75, 1.  ])
    """
    check_count(n_bins, "n_bins", 20)
    if confidence not in ("mean", "middle"):
        raise ValueError(f"confidence={confidence!r}: expected 'mean' or 'middle'.")
    y_true = column_or_1d(y_true)
    y_proba = check_probabilities(y_proba)
    check_consistent_length(y_true, y_proba)
    weights = check_weights(sample_weight, len(y_true))
    true_columns = columns_of(y_true, labels, y_proba.shape[1])

    predicted_columns = y_proba.argmax(axis=1)
    hits, most = predicted_columns == true_columns, y_proba.max(axis=1)
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    # bins hold their upper edge; the first and the last one what rounding left outside
    bins = np.searchsorted(edges[1:-1], most, side="left")
    sums = [np.bincount(bins, each * weights, n_bins) for each in (hits, most, weights)]
    weight = np.bincount(bins, weights, n_bins)
    accuracy, mean, square = np.divide(
        sums, weight, out=np.full((3, n_bins), np.nan), where=weight > 0.0
    )
    middle = edges[:-1] + 0.5 / n_bins
    chosen = mean if confidence == "mean" else middle
    ends = _interval_of_share(accuracy, weight / square)
    return ReliabilityCurve(accuracy, chosen, weight / weight.sum(), *ends)


def _interval_of_share(share, n):
    """Return the ends of Wilson's interval of 95 % for a share of n observations."""
    z2 = ndtri(0.975) ** 2 / n
    middle, half = share + 0.5 * z2, np.sqrt(z2 * (share * (1.0 - share) + 0.25 * z2))
    lower, upper = (middle - half) / (1.0 + z2), (middle + half) / (1.0 + z2)
    return np.minimum(lower, share), np.maximum(upper, share)  # where they round


def expected_calibration_error(
    y_true, y_proba, n_bins=15, labels=None, sample_weight=None, *, confidence="mean"
):
    """Mean gap between the confidence of a classifier and its accuracy.

    Smaller is better. The prediction for a sample is its most probable class, and the
    confidence is the probability of that class.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Class labels.
    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Probabilities of the classes, as `predict_proba` returns them, or the
        probabilities of the second of two classes.
    n_bins : int, default=15
        Number of bins of equal width on [0, 1].
    labels : array-like of shape (n_classes,), default=None
        Class of each column of `y_proba`, for example `classifier.classes_`. None
        stands for the sorted labels of `y_true`.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None gives equal weights.
    confidence : {"mean", "middle"}, default="mean"
        Confidence of a bin: the weighted mean over its samples, or its middle, as some
        papers have it. The two errors differ by at most half the width of a bin.

    Returns
    -------
    error : float
        Expected calibration error, between 0 and 1.

    See Also
    --------
    reliability_curve : Accuracy and confidence of each bin.
    sklearn.metrics.log_loss : A proper score of the probabilities.
    sklearn.metrics.brier_score_loss : Another one.

    Notes
    -----
    The error is `sum_b (n_b / n) |accuracy_b - confidence_b|`, where bin b holds the
    samples with a confidence in (b / n_bins, (b + 1) / n_bins] [1]_, [2]_. The noise of
    small bins increases it, so compare models on the same samples and bins.

    References
    ----------
    .. [1] Naeini, M. P., Cooper, G. F. and Hauskrecht, M. (2015). Obtaining well
       calibrated probabilities using Bayesian binning. AAAI, 2901-2907.
    .. [2] Guo, C., Pleiss, G., Sun, Y. and Weinberger, K. Q. (2017). On calibration of
       modern neural networks. ICML, 1321-1330.

    Examples
    --------
    >>> from skswsgp.metrics import expected_calibration_error
    >>> y_true = ["cat", "cat", "dog", "dog"]
    >>> y_proba = [[0.75, 0.25], [0.75, 0.25], [0.75, 0.25], [0.0, 1.0]]
    >>> error = expected_calibration_error(y_true, y_proba)
    >>> print(f"{error:.4f}")
    0.0625
    """
    curve = reliability_curve(
        y_true,
        y_proba,
        n_bins=n_bins,
        confidence=confidence,
        labels=labels,
        sample_weight=sample_weight,
    )
    return float(np.nansum(curve.weight * abs(curve.accuracy - curve.confidence)))
