"""Observations against predictions, with intervals."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skswsgp.displays._axes import BLUE, VERMILLION, drawn_rows, set_axes
from skswsgp.metrics import interval_coverage
from skswsgp.metrics.answers import innermost, intervals_of, quantiles_of
from skswsgp.metrics.score_input import (
    check_count,
    check_coverage,
    check_intervals,
    check_like,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


class PredictionIntervalDisplay:
    """Observations against predictions, each with the interval it was expected in.

    A vertical line for each sample is its central interval, at its prediction. Points
    are observations, those outside of their interval in another color and shape. The
    legend says which share lies inside, and the dotted diagonal is where predictions
    are right. Use `from_estimator` or `from_predictions` to make one.

    Parameters
    ----------
    y_true : ndarray of shape (n_samples,)
        Observations.
    y_pred : ndarray of shape (n_samples,)
        Predictions, in the units of y.
    lower, upper : ndarrays of shape (n_samples,)
        Ends of the intervals, in the units of y.
    coverage : float
        Nominal coverage of the intervals.
    share : float
        Weighted share of the observations inside.
    name : str, default=None
        Name of the intervals in the legend.
    target : str, default="value"
        What is predicted, with its unit, in the labels of the axes.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure of the axes.
    intervals_ : matplotlib LineCollection
        The intervals.
    inside_, outside_ : matplotlib Line2D
        Observations inside and outside of their intervals.

    See Also
    --------
    CoverageDisplay : Shares inside of intervals of all levels.
    skswsgp.metrics.interval_coverage : The share of observations inside.
    sklearn.metrics.PredictionErrorDisplay : The same without intervals.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import BayesianRidge
    >>> from skswsgp.displays import PredictionIntervalDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianRidge().fit(X, y)
    >>> PredictionIntervalDisplay.from_estimator(model, X, y)  # doctest: +SKIP
    """

    ax_: "Axes"
    figure_: "Figure"
    inside_: "Line2D"
    outside_: "Line2D"

    def __init__(
        self, y_true: np.ndarray, y_pred: np.ndarray, lower: np.ndarray,
        upper: np.ndarray, coverage: float, share: float, *,
        name: str | None = None, target: str = "value",
    ):  # fmt: skip
        self.y_true = y_true
        self.y_pred = y_pred
        self.lower = lower
        self.upper = upper
        self.coverage = coverage
        self.share = share
        self.name = name
        self.target = target

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, coverage: float = 0.95,
        sample_weight: ArrayLike | None = None, name: str | None = None,
        target: str | None = None, ax: "Axes | None" = None, **kwargs: Any,
    ) -> Self:  # fmt: skip
        """Draw the display of a fitted regressor on data.

        Counts with an exposure need `from_predictions`: predictions are asked for
        without one.

        Parameters
        ----------
        estimator : estimator
            Fitted regressor with `predict(X, quantiles=[...])`, with `predict(X,
            return_std=True)`, which stands for a Gaussian, or with `predict_interval`,
            as :func:`skswsgp.metrics.get_scorer` reads it; also one inside of pipelines
            and searches.
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,)
            Observations of one output.
        coverage : float, default=0.95
            Nominal coverage of the intervals, between 0 and 1.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the share. None gives equal weights.
        name : str, default=None
            Name in the legend; None is the name of the regressor's class, which is not
            that of a pipeline or a search around it.
        target : str, default=None
            What is predicted, with its unit, as in "price (EUR)". None is the name of
            a pandas series y, or "value".
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            Arguments of `plot`.

        Returns
        -------
        display : PredictionIntervalDisplay
            The display, drawn.

        Raises
        ------
        TypeError
            If the estimator does not say how uncertain it is.
        """
        check_coverage(coverage)
        inner, X = innermost(estimator, X)
        quantiles = quantiles_of(inner, X, [0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage])
        if quantiles is not None:
            ends = quantiles[:, 0], quantiles[:, 1]
        elif hasattr(inner, "predict_interval"):
            ends = intervals_of(inner, X, coverage)
        else:
            raise TypeError(
                f"{type(inner).__name__} does not say how uncertain it is: expected "
                "predict(X, quantiles=[...]), predict(X, return_std=True) or "
                "predict_interval(X); use from_predictions for intervals of others."
            )
        return cls.from_predictions(
            y, inner.predict(X), *ends, coverage=coverage, sample_weight=sample_weight,
            name=type(inner).__name__ if name is None else name, target=target, ax=ax,
            **kwargs,
        )  # fmt: skip

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, y_pred: ArrayLike, lower: ArrayLike, upper: ArrayLike,
        *, coverage: float = 0.95, sample_weight: ArrayLike | None = None,
        name: str | None = None, target: str | None = None, ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> Self:  # fmt: skip
        """Draw the display of predictions and their intervals.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Observations of one output.
        y_pred : array-like of shape (n_samples,)
            Predictions, in the units of y.
        lower, upper : array-likes of shape (n_samples,)
            Ends of the intervals, as `predict_interval` returns them.
        coverage : float, default=0.95
            Nominal coverage of the intervals, between 0 and 1.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples in the share. None gives equal weights.
        name : str, default=None
            Name in the legend.
        target : str, default=None
            What is predicted, with its unit, as in "price (EUR)". None is the name of
            a pandas series y_true, or "value".
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            Arguments of `plot`.

        Returns
        -------
        display : PredictionIntervalDisplay
            The display, drawn.
        """
        check_coverage(coverage)
        if np.ndim(y_true) != 1:
            raise ValueError(
                f"y_true has shape {np.shape(y_true)}: expected one dimension; draw "
                "each output by itself, with from_predictions."
            )
        if target is None:  # arrays of dask have a name too, but no index
            series = y_true if hasattr(y_true, "index") else None
            target = getattr(series, "name", None) or "value"
        y_true, lower, upper = check_intervals(y_true, lower, upper)
        y_pred = check_like(y_pred, "y_pred", y_true)
        share = interval_coverage(y_true, lower, upper, sample_weight)
        display = cls(
            y_true, y_pred, lower, upper, coverage, share, name=name, target=target
        )
        return display.plot(ax, **kwargs)

    def plot(
        self, ax: "Axes | None" = None, *, subsample: int | None = 1000, **kwargs: Any
    ) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        subsample : int or None, default=1000
            Largest number of samples that are drawn, evenly spaced by their
            predictions; None draws all. The share is that of all samples.
        **kwargs : dict
            Arguments of matplotlib's `vlines`, for the intervals.

        Returns
        -------
        display : PredictionIntervalDisplay
            The display itself.
        """
        if subsample is not None:
            check_count(subsample, "subsample", 1000)
        set_axes(self, ax)
        rows = drawn_rows(self.y_pred, subsample)
        x, y, ends = self.y_pred[rows], self.y_true[rows], (self.lower, self.upper)
        lower, upper = (end[rows] for end in ends)
        percent = f"{100 * self.coverage:.4g} % interval"
        label = percent if self.name is None else f"{self.name}, {percent}"
        style = {"colors": BLUE, "alpha": 0.3, "linewidth": 1.0, "label": label}
        self.intervals_ = self.ax_.vlines(x, lower, upper, **(style | kwargs))
        inside = (lower <= y) & (y <= upper)
        how = {"linestyle": "none", "markersize": 3.0}
        for attribute, of, share, marker, color in (
            ("inside", inside, self.share, "o", "black"),
            ("outside", ~inside, 1.0 - self.share, "X", VERMILLION),
        ):
            style = how | {"marker": marker, "color": color}
            label = f"{attribute}: {100 * share:.1f} %"
            (points,) = self.ax_.plot(x[of], y[of], **style, label=label)
            setattr(self, f"{attribute}_", points)
        self.outside_.set_markersize(6.0)
        middle = [x.min(), x.max()]
        self.ax_.plot(middle, middle, "k:", linewidth=1.0)
        target = self.target
        self.ax_.set(xlabel=f"Predicted {target}", ylabel=f"Observed {target}")
        self.ax_.legend(loc="upper left")
        return self
