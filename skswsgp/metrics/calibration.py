"""How often the probabilities of a classifier are right, by what they say."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.utils import check_consistent_length, column_or_1d

from skswsgp._rows.table import require_unmasked
from skswsgp.metrics.score_input import (
    check_count,
    check_probabilities,
    check_weights,
    columns_of,
)


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
    y_true: ArrayLike, y_proba: ArrayLike, *, n_bins: int = 20,
    confidence: str = "mean", labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> ReliabilityCurve:  # fmt: skip
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
    require_unmasked(y_true=y_true)
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
    ends = interval_of_share(accuracy, weight / square)
    return ReliabilityCurve(accuracy, chosen, weight / weight.sum(), *ends)


def interval_of_share(share, n):
    """Return the ends of Wilson's interval of 95 % for a share of n observations."""
    z2 = ndtri(0.975) ** 2 / n
    middle, half = share + 0.5 * z2, np.sqrt(z2 * (share * (1.0 - share) + 0.25 * z2))
    lower, upper = (middle - half) / (1.0 + z2), (middle + half) / (1.0 + z2)
    return np.minimum(lower, share), np.maximum(upper, share)  # where they round


def expected_calibration_error(
    y_true: ArrayLike, y_proba: ArrayLike, n_bins: int = 15,
    labels: ArrayLike | None = None, sample_weight: ArrayLike | None = None, *,
    confidence: str = "mean",
) -> float:  # fmt: skip
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
