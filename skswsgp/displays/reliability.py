"""How often a classifier is right, by how confident it is."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skswsgp.displays._axes import set_axes_of_calibration
from skswsgp.metrics import reliability_curve
from skswsgp.metrics.answers import innermost
from skswsgp.metrics.calibration import ReliabilityCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class ReliabilityDisplay:
    """Accuracy of a classifier as a function of its confidence.

    A line on the diagonal belongs to a calibrated classifier, one below it to a
    classifier that is too confident. Points have intervals of 95 %, which are wide for
    bins of few samples, and bars show the share of samples in each bin. Use
    `from_estimator` or `from_predictions` to make one.

    Parameters
    ----------
    curve : ReliabilityCurve
        What :func:`skswsgp.metrics.reliability_curve` returns.
    name : str, default=None
        Name of the line in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the line.
    figure_ : matplotlib Figure
        Figure of the axes.
    line_ : matplotlib ErrorbarContainer
        Line with intervals of 95 % for the accuracy.
    bars_ : matplotlib BarContainer or None
        Shares of the samples, where they were asked for.

    See Also
    --------
    skswsgp.metrics.expected_calibration_error : The mean gap to the diagonal.
    sklearn.calibration.CalibrationDisplay : The same for the second of two classes.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skswsgp.displays import ReliabilityDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GaussianNB().fit(X, y)
    >>> ReliabilityDisplay.from_estimator(model, X, y, n_bins=5)  # doctest: +SKIP
    """

    ax_: "Axes"
    figure_: "Figure"

    def __init__(self, curve: ReliabilityCurve, *, name: str | None = None):
        self.curve = curve
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, n_bins: int = 20,
        confidence: str = "mean", sample_weight: ArrayLike | None = None,
        name: str | None = None, ax: "Axes | None" = None, **kwargs: Any,
    ) -> Self:  # fmt: skip
        """Draw the display of a fitted classifier on data.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier with `predict_proba` and `classes_`, also one inside of
            pipelines and searches.
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,)
            Class labels.
        n_bins : int, default=20
            Number of bins of equal width on [0, 1].
        confidence : {"mean", "middle"}, default="mean"
            Confidence of a bin: the weighted mean over its samples, or its middle.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples. None gives equal weights.
        name : str, default=None
            Name of the line; None is the name of the classifier's class, which is not
            that of a pipeline or a search around it.
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            Arguments of `plot`.

        Returns
        -------
        display : ReliabilityDisplay
            The display, drawn.

        Raises
        ------
        TypeError
            If the estimator has no probabilities, as regressors.
        """
        inner, X = innermost(estimator, X)
        if not hasattr(inner, "predict_proba"):
            raise TypeError(
                f"{type(inner).__name__} has no predict_proba: expected a classifier "
                "with probabilities; use CoverageDisplay for a regressor."
            )
        return cls.from_predictions(
            y, inner.predict_proba(X), n_bins=n_bins, confidence=confidence,
            labels=inner.classes_, sample_weight=sample_weight,
            name=type(inner).__name__ if name is None else name, ax=ax, **kwargs,
        )  # fmt: skip

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, y_proba: ArrayLike, *, n_bins: int = 20,
        confidence: str = "mean", labels: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None, name: str | None = None,
        ax: "Axes | None" = None, **kwargs: Any,
    ) -> Self:  # fmt: skip
        """Draw the display of probabilities.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Class labels.
        y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
            Probabilities of the classes, or of the second of two.
        n_bins : int, default=20
            Number of bins of equal width on [0, 1].
        confidence : {"mean", "middle"}, default="mean"
            Confidence of a bin: the weighted mean over its samples, or its middle.
        labels : array-like of shape (n_classes,), default=None
            Class of each column of `y_proba`. None stands for the sorted labels of
            `y_true`.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples. None gives equal weights.
        name : str, default=None
            Name of the line in the legend.
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            Arguments of `plot`.

        Returns
        -------
        display : ReliabilityDisplay
            The display, drawn.
        """
        curve = reliability_curve(
            y_true, y_proba, n_bins=n_bins, confidence=confidence, labels=labels,
            sample_weight=sample_weight,
        )  # fmt: skip
        return cls(curve, name=name).plot(ax, **kwargs)

    def plot(
        self, ax: "Axes | None" = None, *, histogram: bool = True, **kwargs: Any
    ) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        histogram : bool, default=True
            Whether bars show the share of samples in each bin.
        **kwargs : dict
            Arguments of matplotlib's `errorbar`.

        Returns
        -------
        display : ReliabilityDisplay
            The display itself.
        """
        set_axes_of_calibration(self, ax, 0.0)
        curve, n_bins = self.curve, len(self.curve.weight)
        marker = {} if "fmt" in kwargs else {"marker": "o"}
        style = marker | {"capsize": 2, "label": self.name} | kwargs
        below, above = curve.accuracy - curve.lower, curve.upper - curve.accuracy
        self.line_ = self.ax_.errorbar(
            curve.confidence, curve.accuracy, [below, above], **style
        )
        self.bars_ = None
        if histogram:
            left, color = np.arange(n_bins) / n_bins, self.line_[0].get_color()
            how = {"align": "edge", "color": color, "alpha": 0.2}
            self.bars_ = self.ax_.bar(left, curve.weight, 1.0 / n_bins, **how)
        self.ax_.set(xlabel="Confidence", ylabel="Accuracy")
        self.ax_.legend()
        return self
