"""The course of a fit: losses, and scores of held-out rows."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skswsgp.displays._axes import BLUE, GREEN, VERMILLION, set_axes, styled
from skswsgp.metrics.answers import innermost

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class TrainingDisplay:
    """Loss of each epoch or round of a fit, and scores of the rows held out.

    A loss that still falls at the end asks for more epochs. Scores of held-out rows
    that fall while the loss falls are a sign of overfitting; the fit keeps the model of
    the epoch of the best score. Use `from_estimator` to make one.

    Parameters
    ----------
    losses : array-like of shape (n_epochs,)
        Training loss of each epoch or round.
    scores : array-like of shape (n_epochs,), default=None
        Scores of held-out rows, greater is better. None is for fits without such rows.
    epoch : str, default="Epoch"
        What an entry belongs to.
    unit : str, default=""
        Unit of losses and scores in the labels of the axes.
    name : str, default=None
        Name of the fit in the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the losses.
    score_ax_ : matplotlib Axes or None
        Axes with the scores on the right, or None without scores.
    figure_ : matplotlib Figure
        Figure of the axes.
    loss_line_ : matplotlib Line2D
        The losses.
    score_line_ : matplotlib Line2D or None
        The scores.
    kept_line_ : matplotlib Line2D or None
        Vertical line at the epoch of the best score.

    See Also
    --------
    sklearn.model_selection.LearningCurveDisplay : Scores by the number of rows.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.neural_network import MLPRegressor
    >>> from skswsgp.displays import TrainingDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MLPRegressor(early_stopping=True, max_iter=2000).fit(X, y)
    >>> TrainingDisplay.from_estimator(model)  # doctest: +SKIP
    """

    ax_: "Axes"
    figure_: "Figure"

    def __init__(
        self, losses: ArrayLike, scores: ArrayLike | None = None, *,
        epoch: str = "Epoch", unit: str = "", name: str | None = None,
    ):  # fmt: skip
        self.losses = losses
        self.scores = scores
        self.epoch = epoch
        self.unit = unit
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, name: str | None = None, ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> Self:  # fmt: skip
        """Draw the display of a fitted estimator.

        Parameters
        ----------
        estimator : estimator
            Fitted estimator with `loss_curve_`, and `validation_scores_` where rows
            were held out, as those of this package and scikit-learn's networks; also
            one inside of pipelines and searches.
        name : str, default=None
            Name in the legend; None is the name of the estimator's class, which is not
            that of a pipeline or a search around it.
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            Arguments of `plot`.

        Returns
        -------
        display : TrainingDisplay
            The display, drawn. Losses and scores of this package are means over rows
            in nats, losses for standardised y, and scores in its units.

        Raises
        ------
        TypeError
            If the estimator has no curve of losses.
        """
        check_is_fitted(estimator)
        inner, _ = innermost(estimator, None)
        losses = getattr(inner, "loss_curve_", None)
        if losses is None or len(losses) == 0:
            raise TypeError(
                f"{type(inner).__name__} has no losses in `loss_curve_`: expected an "
                "estimator that keeps the loss of each epoch, as SWSGPRegressor does."
            )
        solver = getattr(inner, "solver", "")
        solver = solver if isinstance(solver, str) else type(solver).__name__
        epoch = "Round" if solver.lower() == "natural" else "Epoch"
        own = type(inner).__module__.startswith("skswsgp.")
        display = cls(
            losses, getattr(inner, "validation_scores_", None),
            epoch=epoch if hasattr(inner, "n_iter_") else "Step",
            unit="nats per row" if own else "",
            name=type(inner).__name__ if name is None else name,
        )  # fmt: skip
        return display.plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            Arguments of matplotlib's `plot`, for the losses.

        Returns
        -------
        display : TrainingDisplay
            The display itself.
        """
        set_axes(self, ax)
        prefix = "" if self.name is None else f"{self.name}, "
        unit = f" ({self.unit})" if self.unit else ""
        epochs = 1 + np.arange(len(self.losses))
        style = {"color": BLUE, "marker": "o", "markersize": 3.0}
        style = styled({"label": f"{prefix}training"} | style, kwargs)
        (self.loss_line_,) = self.ax_.plot(epochs, self.losses, **style)
        self.ax_.set(xlabel=self.epoch, ylabel=f"Training loss{unit}")
        self.score_ax_ = self.score_line_ = self.kept_line_ = None
        lines = [self.loss_line_]
        if self.scores is not None:
            best = epochs[np.argmax(self.scores)]
            kept = {"color": GREEN, "linestyle": ":"}
            kept["label"] = f"kept: {self.epoch.lower()} {best}"
            self.kept_line_ = self.ax_.axvline(best, **kept)
            self.score_ax_ = self.ax_.twinx()
            style = {"color": VERMILLION, "marker": "s", "markersize": 3.0}
            style |= {"linestyle": "--", "label": f"{prefix}held-out rows"}
            (self.score_line_,) = self.score_ax_.plot(epochs, self.scores, **style)
            self.score_ax_.set(ylabel=f"Score of held-out rows{unit}")
            lines += [self.score_line_, self.kept_line_]
        self.ax_.xaxis.get_major_locator().set_params(integer=True)
        self.ax_.legend(handles=lines, loc="center right")
        return self
