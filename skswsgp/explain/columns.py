"""Slopes by the columns of X, and the directions in which a kernel changes most.

`model` is a fitted estimator.
"""

from functools import partial

import numpy as np

from skswsgp._covariance.compile import length_scales
from skswsgp._rows.column_scale import LevelColumns
from skswsgp._rows.support import at_known_levels
from skswsgp.explain.gradient import slopes_and_variances, slopes_at_points

MOST_NAMES = 5  # columns that the description of a direction names


def gradient_and_std(model, X, return_std, n_neighbors):
    """Return slopes (n, Q, D) by the columns of validated rows X, and their std.

    Both are in the units of predictions. Without `return_std` the second is None.
    """
    posterior, rows = model._posterior(n_neighbors), model._on_scale(X)
    _, factor = model._targets(vars(model)).units(vars(model))
    factor, columns = np.reshape(factor, (-1, 1)), model._columns
    levels = isinstance(columns, LevelColumns)
    if columns is not None and not levels:
        factor = factor * columns.slope(X)[:, None]

    def slopes_at(rows, X):
        by_columns = partial(columns.by_old_columns, X) if levels else None
        return slopes_and_variances(posterior, rows, return_std, by_columns)

    slopes, variance = slopes_at(rows, X)
    new = at_known_levels(rows, posterior.categories)
    if new is not None:
        found = [slopes_at(Z, X[new.rows]) for Z in new.versions]
        new.put(slopes, variance, found)
    return factor * slopes, factor * np.sqrt(variance) if return_std else None


def squared_slopes(model):
    """Return the squared slopes (n, D) of the latent means at n inducing points.

    They are by columns in units of their robust deviations, and summed over functions.
    """
    slopes = slopes_at_points(model._posterior())
    if isinstance(model._columns, LevelColumns):
        return model._columns.squared_slopes(slopes, model._feature_scale)
    return np.sum((slopes * model._feature_scale) ** 2, axis=1)


def describe(model, n_directions):
    """Return the kernel, and a line for each of the directions that matter most."""
    W, spread = model.linear_map_, np.reshape(model._feature_scale, (-1, 1))
    lengths = length_scales(model.kernel_, W.shape[1], otherwise=np.inf)
    directions, steps, _ = np.linalg.svd(spread * W / lengths, full_matrices=False)
    numbers = [f"x{d}" for d in range(model.n_features_in_)]
    names = getattr(model, "feature_names_in_", numbers)
    if isinstance(model._columns, LevelColumns):
        names = model._columns.names(names)
    title = "length-scales per spread (the more, the more it matters), direction:"
    lines = [f"{model.kernel_}", title]
    for step, direction in zip(steps[:n_directions], directions.T, strict=False):
        order = np.argsort(-np.abs(direction))[:MOST_NAMES]
        direction = direction * np.sign(direction[order[0]])
        parts = [f"{direction[d]:+.2f} {names[d]}" for d in order]
        parts = [part for part in parts if part[1:5] != "0.00"]
        lines.append(f"{step:8.3g}  {' '.join(parts)}")
    if len(steps) > n_directions:
        rest = len(steps) - n_directions
        lines.append(f"and {rest} more of at most {steps[n_directions]:.3g}")
    return "\n".join(lines)
