"""Inducing points in the plane, and which of them rows use."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skswsgp._estimators.base import BaseSWSGP
from skswsgp._estimators.hints import Neighbors
from skswsgp._posterior.prediction import nearest_points
from skswsgp._rows.columns import is_identity, mapped
from skswsgp.displays._axes import COLORS, set_axes, styled
from skswsgp.metrics.answers import innermost

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class NeighborhoodDisplay:
    """Inducing points in the plane of two columns, and the neighbors of chosen rows.

    Small points are the inducing points. Each chosen row is a cross, with lines to the
    H inducing points of largest covariance that it uses, which are circled. Use
    `from_estimator` to make one.

    Parameters
    ----------
    points : ndarray of shape (n_inducing, 2)
        Inducing points in the plane.
    rows : ndarray of shape (n_rows, 2)
        Chosen rows in the plane.
    neighbors : ndarray of shape (n_rows, n_neighbors)
        Numbers of the inducing points that each row uses, the nearest first.
    columns : (str, str)
        Names of the two columns.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure of the axes.
    points_ : matplotlib Line2D
        The inducing points.
    rows_, circles_ : matplotlib PathCollections
        The chosen rows, and the circles around their neighbors.
    links_ : matplotlib LineCollection
        The lines, row by row.

    Notes
    -----
    Of more than two columns the picture is a projection, so that neighbors may look
    far. Where the model maps the columns, neighbors are near on its map: they fill an
    ellipse. Where means come from all rows, see `alpha_`, only variances take the
    neighbors. They are those of an exact search.

    Examples
    --------
    >>> import numpy as np
    >>> from skswsgp import SWSGPRegressor
    >>> from skswsgp.displays import NeighborhoodDisplay
    >>> X = np.random.default_rng(0).uniform(size=(200, 2))
    >>> y = np.sin(6 * X[:, 0])
    >>> model = SWSGPRegressor(n_neighbors=8, random_state=0).fit(X, y)
    >>> NeighborhoodDisplay.from_estimator(model, X[:3])  # doctest: +SKIP
    """

    ax_: "Axes"
    figure_: "Figure"

    def __init__(
        self, points: np.ndarray, rows: np.ndarray, neighbors: np.ndarray,
        columns: Sequence[str],
    ):  # fmt: skip
        self.points = points
        self.rows = rows
        self.neighbors = neighbors
        self.columns = columns

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, *, columns: Sequence[int | str] = (0, 1),
        n_neighbors: Neighbors = None, ax: "Axes | None" = None, **kwargs: Any,
    ) -> Self:  # fmt: skip
        """Draw the display of a fitted model and some rows.

        Parameters
        ----------
        estimator : estimator
            Fitted `SWSGPRegressor` or `SWSGPClassifier`; also one inside of pipelines
            and searches, whose columns are those that the model itself gets.
        X : array-like of shape (n_rows, n_features)
            Rows whose neighbors are shown.
        columns : (int or str, int or str), default=(0, 1)
            Positions or names of the two columns of the plane.
        n_neighbors : int or "all", default=None
            Number of inducing points that a row uses, if not as in `fit`.
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            Arguments of `plot`.

        Returns
        -------
        display : NeighborhoodDisplay
            The display, drawn, in the units of X, or on the scale of `x_transform_`
            where that is not None.

        Raises
        ------
        TypeError
            If the estimator is no SWSGP model.
        ValueError
            If there are no such two columns, or if the model maps its columns to fewer
            ones.
        """
        check_is_fitted(estimator)
        inner, X = innermost(estimator, X)
        if not isinstance(inner, BaseSWSGP):
            raise TypeError(
                f"{type(inner).__name__} has no neighbors among inducing points: "
                "expected an SWSGPRegressor or SWSGPClassifier."
            )
        pair, names = _columns_of(inner, columns)
        posterior, X = inner._posterior_and_rows(X, n_neighbors)
        W, points = inner.linear_map_, inner.inducing_points_
        if W.shape[0] != W.shape[1]:
            raise ValueError(
                f"the model maps {W.shape[0]} columns to {W.shape[1]}, so that inducing"
                " points have no place in the plane of two of them: expected as many; "
                "use learn_map=False."
            )
        if not is_identity(W):
            points = np.linalg.solve(W.T, points.T).T
        neighbors = nearest_points(
            posterior.model, mapped(X, W), posterior.center, posterior.n_neighbors,
            posterior.n_jobs,
        )  # fmt: skip
        return cls(points[:, pair], X[:, pair], neighbors, names).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None makes a figure.
        **kwargs : dict
            Arguments of matplotlib's `plot`, for the inducing points.

        Returns
        -------
        display : NeighborhoodDisplay
            The display itself.
        """
        set_axes(self, ax)
        from matplotlib.collections import LineCollection

        (n, H), M = self.neighbors.shape, len(self.points)
        style = {"linestyle": "none", "marker": ".", "color": "0.6", "markersize": 4.0}
        style = styled({"label": f"{M} inducing points"} | style, kwargs)
        (self.points_,) = self.ax_.plot(*self.points.T, **style)
        colors = [COLORS[k % len(COLORS)] for k in range(n)]
        places = self.points[self.neighbors]  # (n, H, 2)
        starts = np.broadcast_to(self.rows[:, None], places.shape)
        links = np.stack([starts, places], axis=2).reshape(-1, 2, 2)
        each = np.repeat(colors, H)
        self.links_ = LineCollection(links, colors=each, linewidths=0.8, alpha=0.6)
        self.ax_.add_collection(self.links_)
        self.circles_ = self.ax_.scatter(
            *places.reshape(-1, 2).T, s=36, facecolors="none", edgecolors=each,
            label=f"the {H} that a row uses",
        )  # fmt: skip
        self.rows_ = self.ax_.scatter(
            *self.rows.T, s=60, c=colors, marker="X", edgecolors="w", zorder=3,
            label="rows",
        )  # fmt: skip
        self.ax_.set(xlabel=self.columns[0], ylabel=self.columns[1])
        above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 3}
        narrow = {"fontsize": "small", "columnspacing": 1.0, "handletextpad": 0.3}
        self.ax_.legend(frameon=False, **above, **narrow)
        return self


def _columns_of(estimator, columns):
    """Return the positions of two columns of a model, and their names."""
    D = estimator.n_features_in_
    names = [f"x{d}" for d in range(D)]
    names = list(getattr(estimator, "feature_names_in_", names))
    given, known = np.ravel(np.array(columns, dtype=object)), [*range(D), *names]
    pair = [known.index(one) % D for one in given if one in known]
    if len(given) != 2 or len(set(pair)) != 2:
        raise ValueError(
            f"columns={columns!r}: expected two different columns among {names}, by "
            "position or name."
        )
    scale = getattr(estimator, "x_transform_", None)
    how = "" if scale is None else f" ({scale.name} scale)"
    return pair, tuple(f"{names[d]}{how}" for d in pair)
