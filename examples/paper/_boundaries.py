"""Pictures of two classes in two columns, as in the thesis."""

import numpy as np
from _runs import rows_of, run


def draw_boundary(ax, model, X, y, title):
    """Draw training rows, inducing inputs, and where both classes are as likely."""
    low, high = X.min(axis=0), X.max(axis=0)
    a, b = np.meshgrid(*np.linspace(low, high, 80).T)
    proba = model.predict_proba(np.column_stack([a.ravel(), b.ravel()]))[:, 1]
    for label, color in ((0, "tab:orange"), (1, "tab:blue")):
        ax.plot(*X[y == label].T, ".", color=color, ms=1.5, alpha=0.4)
    ax.contour(a, b, proba.reshape(a.shape), levels=[0.5], colors="k", linewidths=1.2)
    ax.plot(*model.inducing_points_.T, "ro", ms=3)
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])
    ax.set_title(title, fontsize=9)


def run_boundaries(script, description, cells, n_columns):
    """Run a script on banana, whose picture has a panel a cell, some in a line."""

    def draw(plt, rows, scores, fit):
        return boundaries(plt, cells, rows, fit, n_columns)

    run(script, description, cells, ("error", "MNLL"), folds=3, draw=draw)


def boundaries(plt, cells, rows, fit, n_columns):
    """Draw a panel a cell, with the error of its row in the title."""
    errors = {row["model"]: row["error"] for row in rows}
    cells = [cell for cell in cells if errors.get(cell.model) is not None]
    n_lines = -(-len(cells) // n_columns)
    figure, axes = plt.subplots(
        n_lines, n_columns, figsize=(2.1 * n_columns, 2.5 * n_lines), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for ax in axes.flat[len(cells) :]:
        ax.set_axis_off()
    for ax, cell in zip(axes.flat, cells, strict=False):
        X, y, train, _ = rows_of(cell, 0)
        title = f"{cell.model}\nerror {errors[cell.model]:.3f}"
        draw_boundary(ax, fit(cell), X[train], y[train], title)
    return figure
