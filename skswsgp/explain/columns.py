"""Slopes by the columns of X, and the directions in which a kernel changes most.

`model` is a fitted estimator.
"""

import re
from functools import partial

import numpy as np
from sklearn.gaussian_process.kernels import Exponentiation, Product, Sum

from skswsgp._covariance.compile import length_scales
from skswsgp._rows.column_scale import LevelColumns, PowerColumns, slopes_beyond
from skswsgp._rows.columns import is_identity
from skswsgp._rows.support import at_known_levels
from skswsgp.explain.gradient import slopes_and_variances, slopes_at_points
from skswsgp.kernels import OnColumns

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
        factor = factor * column_slopes(columns, X)[:, None]

    def slopes_at(rows, X):
        by_columns = partial(slopes_by_old_columns, columns, X) if levels else None
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
        return squared_level_slopes(model._columns, slopes, model._feature_scale)
    return np.sum((slopes * model._feature_scale) ** 2, axis=1)


def column_slopes(columns, X):
    """Return the derivatives (n, D) of powers or ranks of columns by the columns."""
    if isinstance(columns, PowerColumns):
        return columns.slopes(X)
    out = np.empty(X.shape)
    for d, (values, shares) in enumerate(columns.knots()):
        below, above = slopes_beyond(values, shares)
        slopes = np.r_[below, np.diff(shares) / np.diff(values), above]
        out[:, d] = mean_of_sides(slopes, values, X[:, d])
    return out


def slopes_by_old_columns(columns, X, slopes):
    """Return slopes (n, ..., D) by the columns of X from those by `LevelColumns`.

    At a value a slope is the mean of the slopes on both of its sides.
    """
    D = X.shape[1]
    out, rest = slopes[..., :D].copy(), slopes[..., D:]
    if columns.base is not None:
        out *= between(column_slopes(columns.base, X), out)
    for d, values in columns.levels():
        part, rest = np.split(rest, [len(values)], axis=-1)
        by_value = between(slopes_near_levels(X[:, d], values), part)
        out[..., d] += np.sum(part * by_value, axis=-1)
    return out


def slopes_near_levels(x, values):
    """Return the derivatives (n, k) of `near_levels`."""
    k = len(values)
    steps = np.zeros((k + 1, k))  # below the first value, between two, above the last
    inside = np.arange(k - 1)
    steps[inside + 1, inside + 1] = 1.0 / np.diff(values)
    steps[inside + 1, inside] = -1.0 / np.diff(values)
    return mean_of_sides(steps, values, x)


def mean_of_sides(steps, values, x):
    """Return the entries (n, ...) of steps (k + 1, ...) between values (k,) at x (n,).

    At a value it is the mean of the two beside it.
    """
    sides = (np.searchsorted(values, x, side=side) for side in ("left", "right"))
    return 0.5 * sum(steps[side] for side in sides)


def between(factors, slopes):
    """Return factors (n, D) with as many axes as slopes (n, ..., D)."""
    n, D = factors.shape
    return factors.reshape(n, *[1] * (slopes.ndim - 2), D)


def squared_level_slopes(columns, slopes, scale):
    """Return squared slopes (n, D) by the columns of X, summed over functions.

    `slopes` (n, Q, D') are those by `LevelColumns`, which have the deviations `scale`
    (D',). The new columns of an old one move together, so that their slopes count by
    the variance of what they make of training rows.
    """
    D = slopes.shape[2] - sum(map(len, columns.values))
    out, first = np.sum((slopes * scale)[..., :D] ** 2, axis=1), D
    for d, C in zip(columns.places, columns.covariances, strict=True):
        part = slopes[..., [d, *range(first, first + len(C) - 1)]]
        out[:, d] = np.einsum("nqi,ij,nqj->n", part, C, part)
        first += len(C) - 1
    return out


def names_of_columns(model):
    """Return the names of the columns that the map of the columns reads."""
    numbers = [f"x{d}" for d in range(model.n_features_in_)]
    names = getattr(model, "feature_names_in_", numbers)
    levels = isinstance(model._columns, LevelColumns)
    return level_names(model._columns, names) if levels else list(names)


def level_names(columns, old):
    """Return names of new `LevelColumns`, from those (D,) of the old ones."""
    levels = [f"{old[d]}={x:.15g}" for d, values in columns.levels() for x in values]
    return [*old, *levels]


def kernel_by_name(model):
    """Return the kernel of a model in words, with names of columns where it has any."""
    plain = is_identity(model.linear_map_)
    return kernel_in_words(model.kernel_, names_of_columns(model) if plain else None)


def kernel_in_words(kernel, names):
    """Return the words for a kernel of columns with these names, or None for none."""
    if isinstance(kernel, Sum | Product):
        parts = [kernel_in_words(part, names) for part in (kernel.k1, kernel.k2)]
        if isinstance(kernel, Sum):
            return " + ".join(parts)
        sums = isinstance(kernel.k1, Sum), isinstance(kernel.k2, Sum)
        pairs = zip(parts, sums, strict=True)
        return " * ".join(f"({part})" if is_sum else part for part, is_sum in pairs)
    if isinstance(kernel, Exponentiation):
        return f"({kernel_in_words(kernel.kernel, names)}) ** {kernel.exponent}"
    if isinstance(kernel, OnColumns):
        chosen = None if names is None else [names[d] for d in kernel.columns]
        inner = kernel_in_words(kernel.kernel, chosen)
        return f"OnColumns({inner}, {chosen or kernel.columns})"
    lengths = np.ravel(getattr(kernel, "length_scale", ()))
    if names is None or len(lengths) != len(names) or len(names) == 1:
        return repr(kernel)
    pairs = zip(names, lengths, strict=True)
    shown = [f"{name}: {length:.3g}" for name, length in pairs]
    if len(shown) > 12:
        shown[10:] = [f"and {len(shown) - 10} more"]
    named = ", ".join(shown)
    listed = r"length_scale=\[[^]]*\]"
    return re.sub(listed, lambda _: f"length_scale=[{named}]", repr(kernel))


def directions(model, n_directions):
    """Return heads, rows and a line below of the directions that matter most.

    A row has how many length-scales a step of one spread along it is, and its columns.
    """
    W, spread = model.linear_map_, np.reshape(model._feature_scale, (-1, 1))
    lengths = length_scales(model.kernel_, W.shape[1], otherwise=np.inf)
    axes, steps, _ = np.linalg.svd(spread * W / lengths, full_matrices=False)
    names, rows = names_of_columns(model), []
    for step, axis in zip(steps[:n_directions], axes.T, strict=False):
        shown = np.round(np.abs(axis), 2)  # equal ones in the order of the columns
        order = np.argsort(-shown, kind="stable")[:MOST_NAMES]
        axis = axis * np.sign(axis[order[0]])
        parts = [f"{axis[d]:+.2f} {names[d]}" for d in order]
        parts = [part for part in parts if part[1:5] != "0.00"]
        rows.append((f"{step:.3g}", " ".join(parts)))
    more = len(steps) - n_directions
    rest = [f"and {more} more of at most {steps[n_directions]:.3g}"] if more > 0 else []
    heads = "length-scales per spread (the more, the more it matters)", "direction"
    return heads, rows, rest
