"""How much predictions owe to each column."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.utils import (
    _safe_indexing,
    check_array,
    check_consistent_length,
    check_random_state,
)

from skswsgp._estimators.hints import Seed
from skswsgp._rows.table import require_unmasked
from skswsgp.displays._axes import BLUE, set_axes, styled
from skswsgp.metrics.answers import computed, innermost
from skswsgp.metrics.score_input import (
    check_count,
    check_floats,
    check_like,
    check_weights,
    columns_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class RelevanceDisplay:
    """How much worse predictions get where a column is shuffled, with intervals.

    A column matters if predictions of rows that the model has not seen get worse when
    its values are dealt to the wrong rows. Points are the mean loss over rows, and
    lines intervals of 95 % that say how much other rows might change it. Where an
    interval holds zero, these rows do not tell whether the column matters. Use
    `from_estimator` to make one.

    Parameters
    ----------
    relevance : ndarray of shape (n_features,)
        Increase of the mean loss where the column is shuffled.
    error : ndarray of shape (n_features,)
        Standard errors of `relevance` over rows.
    columns : list of str
        Names of the columns.
    loss : str
        What increases, with its unit.
    name : str, default=None
        Name of the points in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure of the axes.
    line_ : matplotlib ErrorbarContainer
        Points with intervals, the most relevant column on top.

    See Also
    --------
    sklearn.inspection.permutation_importance : The same for any score, with the spread
        over shuffles in place of that over rows.

    Notes
    -----
    Each row is predicted `n_repeats` times with the value of another row in the column
    [1]_. The standard error is that of the mean difference to the rows as they are,
    where a row has a say as it is predicted, as it lends its value, and in the variance
    of y. Few shuffles make it rather too large. It is for the model as it was fitted:
    another fit would differ as well.
    Columns that know the same stand in for each other, so that each may look irrelevant
    alone. `feature_importances_` is another measure, of how steep functions are.

    References
    ----------
    .. [1] Breiman, L. (2001). Random forests. Machine Learning, 45(1), 5-32.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import BayesianRidge
    >>> from skswsgp.displays import RelevanceDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = BayesianRidge().fit(X[:300], y[:300])
    >>> RelevanceDisplay.from_estimator(model, X[300:], y[300:])  # doctest: +SKIP
    """

    ax_: "Axes"
    figure_: "Figure"

    def __init__(
        self, relevance: np.ndarray, error: np.ndarray, columns: Sequence[str],
        loss: str, *, name: str | None = None,
    ):  # fmt: skip
        self.relevance = relevance
        self.error = error
        self.columns = columns
        self.loss = loss
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, n_repeats: int = 5,
        sample_weight: ArrayLike | None = None, random_state: Seed = 0,
        name: str | None = None, ax: "Axes | None" = None, **kwargs: Any,
    ) -> Self:  # fmt: skip
        """Draw the display of a fitted estimator on rows that it has not seen.

        Parameters
        ----------
        estimator : estimator
            Fitted regressor, or classifier with `predict_proba`; also pipelines and
            searches, whose columns are those of X, before any transformer.
        X : array-like or pandas DataFrame of shape (n_samples, n_features)
            Inputs, at least two rows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Observations or labels.
        n_repeats : int, default=5
            Number of shuffles of each column.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples. None gives equal weights.
        random_state : int, RandomState instance or None, default=0
            Seeds the shuffles.
        name : str, default=None
            Name in the legend; None is the name of the estimator's class, which is not
            that of a pipeline or a search around it.
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            Arguments of `plot`.

        Returns
        -------
        display : RelevanceDisplay
            The display, drawn. Losses are squared errors over the variance of y, whose
            increase is the decrease of R2, or the log loss of classes in nats.

        Raises
        ------
        TypeError
            If the estimator is a classifier without probabilities.
        ValueError
            If observations do not differ, or arguments cannot be used.
        """
        check_count(n_repeats, "n_repeats", 5)
        X, y = computed(X), computed(y)
        require_unmasked(X=X)
        inner, _ = innermost(estimator, None)
        if not hasattr(X, "iloc"):
            X = check_array(X, dtype=None, ensure_all_finite=False)
        check_consistent_length(X, y)
        weight = check_weights(sample_weight, len(X))
        rows = np.flatnonzero(weight)
        X, y, weight = _safe_indexing(X, rows), _safe_indexing(y, rows), weight[rows]
        losses, spread = _losses_of(estimator, inner, y, weight)
        usual, rng = losses(X), check_random_state(random_state)
        relevance, error = np.empty((2, X.shape[1]))
        for d in range(X.shape[1]):
            orders = [rng.permutation(len(X)) for _ in range(n_repeats)]
            more = [losses(_shuffled(X, d, order)) - usual for order in orders]
            mean = np.average(np.mean(more, axis=0), 0, weight)  # (n_outputs,)
            influence = weight[:, None] * mean * (1.0 - spread)  # by the variance of y
            for order, differences in zip(orders, more, strict=True):
                term = weight[:, None] * (differences - mean) / n_repeats
                influence += term  # of a row that is predicted
                influence[order] += term  # of the row whose value it gets
            relevance[d] = mean.mean()
            error[d] = np.linalg.norm(influence.mean(axis=1)) / weight.sum()
        columns = getattr(X, "columns", [f"x{d}" for d in range(X.shape[1])])
        loss = "Increase of log loss (nats)"
        if not hasattr(inner, "classes_"):
            loss = "Decrease of R2"
        name = type(inner).__name__ if name is None else name
        display = cls(relevance, error, list(map(str, columns)), loss, name=name)
        return display.plot(ax, **kwargs)

    def plot(
        self, ax: "Axes | None" = None, *, n_columns: int = 20, **kwargs: Any
    ) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        n_columns : int, default=20
            Largest number of columns that are drawn, the most relevant ones.
        **kwargs : dict
            Arguments of matplotlib's `errorbar`.

        Returns
        -------
        display : RelevanceDisplay
            The display itself.
        """
        check_count(n_columns, "n_columns", 20)
        set_axes(self, ax)
        shown = np.argsort(-self.relevance, kind="stable")[:n_columns][::-1]
        places, half = np.arange(len(shown)), ndtri(0.975) * self.error[shown]
        style = {"fmt": "o", "color": BLUE, "capsize": 2, "label": self.name}
        self.ax_.axvline(0.0, color="k", linestyle=":", linewidth=1.0)
        self.line_ = self.ax_.errorbar(
            self.relevance[shown], places, xerr=half, **styled(style, kwargs)
        )
        self.ax_.set_yticks(places, [self.columns[d] for d in shown])
        self.ax_.set(xlabel=f"{self.loss} where the column is shuffled")
        if self.name is not None:
            self.ax_.legend(loc="lower right")
        return self


def _losses_of(estimator, inner, y, weight):
    """Return a function from inputs to losses (n, n_outputs), and a factor for each.

    Losses of numbers are divided by the variance of y. The factors are the squares of
    which it is the mean, over this mean. They are 1 for classes.
    """
    if hasattr(inner, "classes_"):
        if not hasattr(inner, "predict_proba"):
            raise TypeError(
                f"{type(inner).__name__} has no predict_proba: expected a classifier "
                "with probabilities, or a regressor; for scores of labels use "
                "sklearn.inspection.permutation_importance."
            )
        classes = inner.classes_
        rows, true = np.arange(len(y)), columns_of(y, classes, len(classes))
        tiny = np.finfo(float).tiny

        def losses(X):
            proba = np.asarray(estimator.predict_proba(X), dtype=float)[rows, true]
            return -np.log(np.maximum(proba, tiny))[:, None]

        return losses, 1.0
    y = check_floats(y, "y")
    mean = np.average(y, 0, weight)
    variance = np.average((y - mean) ** 2, 0, weight)
    if np.any(np.ptp(y, axis=0) == 0.0):
        raise ValueError(
            "y is constant: expected observations that differ, in each output; pass "
            "more rows."
        )

    def losses(X):
        errors = y - check_like(estimator.predict(X), "the prediction", y)
        return (errors**2 / variance).reshape(len(y), -1)

    return losses, ((y - mean) ** 2 / variance).reshape(len(y), -1)


def _shuffled(X, d, order):
    """Return a copy of an array or a data frame with column d in another order."""
    out = X.copy()
    if hasattr(X, "iloc"):
        out.isetitem(d, X.iloc[order, d].set_axis(X.index))
    else:
        out[:, d] = X[order, d]
    return out
