"""Which rows are of a kind that training rows have not shown."""

import numpy as np

from skswsgp._posterior import extrapolation
from skswsgp._rows.support import EVERYWHERE, spread_of_levels


def novel_rows(model, X):
    """Return which rows of X (n,) are novel to a fitted estimator; see `is_novel`."""
    X = model._checked(X)
    rows, posterior = model._on_scale(X), model._posterior()
    _, variance = posterior.moments(rows)
    novel = are_far(getattr(model, "_support", EVERYWHERE), X)
    novel |= are_alone(posterior, rows, variance)
    return novel | (spread_of_levels(rows, posterior.categories) > 0.0)


def are_far(support, X):
    """Return which rows (n,) lie further outside a range than it is wide."""
    rounding = np.finfo(np.float32).eps * np.maximum(*map(np.abs, support[:2]))
    width = np.maximum(support.high - support.low, rounding)
    return np.any((X < support.low - width) | (X > support.high + width), axis=1)


def are_alone(posterior, X, variance):
    """Return which rows (n,) are unknown, or none where most points are as well.

    `variance` (n, Q) is the local one of a `Posterior` at rows of X.
    """
    unknown = extrapolation.are_unknown(posterior, X, variance)
    share = extrapolation.share_of_unknown_points
    if unknown.any() and share(posterior) > extrapolation.MOST_UNKNOWN:
        return np.zeros_like(unknown)
    return unknown
