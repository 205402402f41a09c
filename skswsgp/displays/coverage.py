"""How often observations lie where a regressor expects them."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from skswsgp.displays._axes import set_axes_of_calibration
from skswsgp.metrics import interval_coverage
from skswsgp.metrics.answers import computed, innermost, quantiles_of
from skswsgp.metrics.calibration import interval_of_share
from skswsgp.metrics.score_input import check_count, check_quantiles, check_weights

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class CoverageDisplay:
    """How often observations lie where a regressor expects them.

    The coverage curve shows the share of observations inside central intervals of each
    nominal coverage: a line on the diagonal belongs to a calibrated model, one below it
    to intervals that are too narrow. The histogram shows where observations lie in the
    predicted distribution, as values of its distribution function (probability
    integral transform, PIT): flat for a calibrated model, high at both ends for
    intervals that are too narrow, high at one end for means that are too low or too
    high. Use `from_estimator` or `from_predictions` to make one.

    Parameters
    ----------
    levels : ndarray of shape (n_quantiles,)
        Levels of the quantiles, rising.
    nominal, coverage : ndarrays of shape (n_intervals,)
        Nominal and observed coverage of the central intervals between the quantiles.
    lower, upper : ndarrays of shape (n_intervals,)
        Ends of intervals of 95 % for each coverage.
    shares : ndarray of shape (n_quantiles + 1,)
        Shares of the observations below, between and above the quantiles.
    name : str, default=None
        Name of the line or of the bars in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure of the axes.
    line_ : matplotlib Line2D or StepPatch
        The coverage curve, or the histogram.
    band_ : matplotlib FillBetweenPolyCollection or None
        The intervals around the coverage curve, or None beside the histogram.

    See Also
    --------
    skswsgp.metrics.interval_coverage : Coverage of given intervals.
    sklearn.metrics.PredictionErrorDisplay : Predicted means against observations.

    Notes
    -----
    Observations of several outputs count alike, as if all were independent, in the
    intervals of a coverage, which are those of
    :func:`skswsgp.metrics.reliability_curve`. For counts several
    quantiles may be one number, so that intervals hold more than they promise and the
    histogram is not flat.

    References
    ----------
    .. [1] Gneiting, T., Balabdaoui, F. and Raftery, A. E. (2007). Probabilistic
       forecasts, calibration and sharpness. Journal of the Royal Statistical Society
       B, 69(2), 243-268.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import BayesianRidge
    >>> from skswsgp.displays import CoverageDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianRidge().fit(X, y)
    >>> CoverageDisplay.from_estimator(model, X, y, kind="pit")  # doctest: +SKIP
    """

    ax_: "Axes"
    figure_: "Figure"
    line_: Any
    band_: Any

    def __init__(
        self, levels: np.ndarray, nominal: np.ndarray, coverage: np.ndarray,
        lower: np.ndarray, upper: np.ndarray, shares: np.ndarray, *,
        name: str | None = None,
    ):  # fmt: skip
        self.levels = levels
        self.nominal = nominal
        self.coverage = coverage
        self.lower = lower
        self.upper = upper
        self.shares = shares
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, n_bins: int = 20,
        sample_weight: ArrayLike | None = None, name: str | None = None,
        ax: "Axes | None" = None, **kwargs: Any,
    ) -> Self:  # fmt: skip
        """Draw the display of a fitted regressor on data.

        Counts with an exposure need `from_predictions`: predictions are asked for
        without one.

        Parameters
        ----------
        estimator : estimator
            Fitted regressor with `predict(X, quantiles=[...])`, or with `predict(X,
            return_std=True)`, which stands for a Gaussian; also one inside of pipelines
            and searches.
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Observations.
        n_bins : int, default=20
            Number of bins of the histogram, each of the same predicted probability; at
            least 2. They are cut at 0.025 and 0.975, the ends of the interval of 95 %.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples. None gives equal weights.
        name : str, default=None
            Name in the legend; None is the name of the regressor's class, which is not
            that of a pipeline or a search around it.
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            Arguments of `plot`.

        Returns
        -------
        display : CoverageDisplay
            The display, drawn.

        Raises
        ------
        TypeError
            If the estimator does not say how uncertain it is.
        """
        check_count(n_bins, "n_bins", 20, least=2)
        y = computed(y)
        levels, quantiles, inner = cls._quantiles(estimator, X, y, n_bins)
        name = type(inner).__name__ if name is None else name
        return cls.from_predictions(
            y, quantiles, levels, sample_weight=sample_weight, name=name, ax=ax,
            **kwargs,
        )  # fmt: skip

    @staticmethod
    def _quantiles(estimator, X, y, n_bins=20):
        """Return levels, quantiles at the rows of X, and the regressor itself."""
        inner, X = innermost(estimator, X)
        levels = np.union1d(np.arange(1, n_bins) / n_bins, [0.025, 0.975])
        quantiles = computed(quantiles_of(inner, X, levels))
        if quantiles is None:
            raise TypeError(
                f"{type(inner).__name__} does not say how uncertain it is: expected "
                "predict(X, quantiles=[...]) or predict(X, return_std=True); use "
                "ReliabilityDisplay for a classifier, and "
                "sklearn.metrics.PredictionErrorDisplay for means alone."
            )
        expected = quantiles.shape[:1] + quantiles.shape[2:]
        if np.shape(y) != expected:
            raise ValueError(
                f"y has shape {np.shape(y)}: expected {expected}, that of predictions; "
                "pass the observations at the rows of X."
            )
        return levels, quantiles, inner

    @classmethod
    def from_groups(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, groups: ArrayLike, *,
        sample_weight: ArrayLike | None = None, ax: "Axes | None" = None, **kwargs: Any,
    ) -> dict[Any, Self]:  # fmt: skip
        """Draw a coverage curve with its band for each group of samples.

        A model may be calibrated over all samples and not within a group of them, such
        as a city, a month or a range of predictions.

        Parameters
        ----------
        estimator : estimator
            Fitted regressor, as in `from_estimator`.
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Observations.
        groups : str or array-like of shape (n_samples,)
            The name of a column of a data frame X, or the group of each sample.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples. None gives equal weights.
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            Arguments of `plot`.

        Returns
        -------
        displays : dict
            The display of each group, all drawn in the same axes. Keys are the groups
            in sorted order, and the name in the legend is the group with its number of
            samples.

        Raises
        ------
        TypeError
            If the estimator does not say how uncertain it is.
        ValueError
            If there is not one group for each sample, or one is missing.
        """
        y = computed(y)
        labels = _groups_of(groups, X, len(y))
        levels, quantiles, _ = cls._quantiles(estimator, X, y)
        weight, displays = check_weights(sample_weight, len(y)), {}
        for group in np.unique(labels):
            own = labels == group
            given = np.asarray(y)[own], quantiles[own], levels
            how = {"sample_weight": weight[own], "name": f"{group} ({own.sum()})"}
            displays[group] = cls.from_predictions(*given, ax=ax, **how, **kwargs)
            ax = displays[group].ax_
        return displays

    @classmethod
    def from_predictions(
        cls, y_true: ArrayLike, y_quantiles: ArrayLike, quantiles: ArrayLike, *,
        sample_weight: ArrayLike | None = None, name: str | None = None,
        ax: "Axes | None" = None, **kwargs: Any,
    ) -> Self:  # fmt: skip
        """Draw the display of predicted quantiles.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Observations.
        y_quantiles : array-like of shape (n_samples, n_quantiles[, n_outputs])
            Quantiles, as `predict(X, quantiles=quantiles)` returns them.
        quantiles : array-like of shape (n_quantiles,)
            Levels of the quantiles, between 0 and 1 and rising. The intervals are
            those between the first and the last, the second and the last but one, and
            so on, whose levels must add up to one.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples. None gives equal weights.
        name : str, default=None
            Name in the legend.
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            Arguments of `plot`.

        Returns
        -------
        display : CoverageDisplay
            The display, drawn.
        """
        y, found, levels = check_quantiles(y_true, y_quantiles, quantiles)
        if np.any(np.diff(levels) <= 0.0) or not np.allclose(levels + levels[::-1], 1):
            raise ValueError(
                f"quantiles={levels.tolist()}: expected rising levels, the first and "
                "the last of which add up to one, and so on; use "
                "numpy.arange(1, 20) / 20."
            )
        below = np.sum(y[:, None] > found, axis=1)  # quantiles below y, of its shape
        weight = check_weights(sample_weight, len(y))
        each = np.broadcast_to(weight, y.T.shape).T
        shares = np.bincount(below.ravel(), each.ravel(), len(levels) + 1)
        pairs = range(len(levels) // 2)[::-1]
        nominal = np.array([levels[-1 - k] - levels[k] for k in pairs])
        ends = [(found[:, k], found[:, -1 - k]) for k in pairs]
        coverage = np.array([interval_coverage(y, *pair, weight) for pair in ends])
        band = interval_of_share(coverage, each.sum() ** 2 / np.sum(each**2))
        display = cls(
            levels, nominal, coverage, *band, shares / shares.sum(), name=name
        )
        return display.plot(ax, **kwargs)

    def plot(
        self, ax: "Axes | None" = None, *, kind: str = "coverage", **kwargs: Any
    ) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        kind : {"coverage", "pit"}, default="coverage"
            Whether to draw the coverage curve or the histogram.
        **kwargs : dict
            Arguments of matplotlib's `plot`, or of its `stairs` for the histogram.

        Returns
        -------
        display : CoverageDisplay
            The display itself.
        """
        if kind not in ("coverage", "pit"):
            raise ValueError(f"kind={kind!r}: expected 'coverage' or 'pit'.")
        if kind == "coverage":
            set_axes_of_calibration(self, ax, 0.0)
            style = {"marker": "o", "label": self.name} | kwargs
            (self.line_,) = self.ax_.plot(self.nominal, self.coverage, **style)
            how = {"color": self.line_.get_color(), "alpha": 0.2, "linewidth": 0.0}
            ends = self.lower, self.upper
            self.band_ = self.ax_.fill_between(self.nominal, *ends, **how)
            self.ax_.set(xlabel="Nominal coverage", ylabel="Observed coverage")
        else:
            set_axes_of_calibration(self, ax, 1.0)
            edges = np.concatenate([[0.0], self.levels, [1.0]])
            style = {"label": self.name} | kwargs
            self.line_ = self.ax_.stairs(self.shares / np.diff(edges), edges, **style)
            self.band_ = None
            self.ax_.set(xlabel="Probability integral transform", ylabel="Density")
        self.ax_.legend()
        return self


def _groups_of(groups, X, n_samples):
    """Return the group of each sample, (n_samples,)."""
    labels = X[groups] if isinstance(groups, str) and hasattr(X, "columns") else groups
    labels = np.asarray(labels)
    if labels.shape != (n_samples,):
        raise ValueError(
            f"groups have the shape {labels.shape}: expected ({n_samples},), a group "
            "for each row of X, or the name of a column of a data frame X."
        )
    missing = labels != labels if labels.dtype.kind in "fO" else np.zeros(1, bool)
    if np.any(missing) or None in set(labels.tolist()):
        raise ValueError(
            "some rows of X have no group: expected a group for each row; fill the gaps"
            ", for instance with 'unknown'."
        )
    return labels
