"""By how much errors grow where the kernel has not learned from their rows.

Predictions of a row from the others use a kernel and a noise that were fitted to that
row, too. So the rows are split into folds. For each fold the parameters of the kernel,
the noise, and a map of few columns move from their optimum to that of the other rows.
The form of the kernel stays.

On a grid they also use rows like it, which a new row between the levels does not have.
So whole groups of such rows are left out as well.
"""

import numpy as np
from scipy.linalg import cho_solve
from scipy.sparse.csgraph import connected_components

from skswsgp._kernel_search.climb import ENOUGH, FIRST_ROWS, LAST_STEPS, LAST_WIDTHS
from skswsgp._kernel_search.marginal_likelihood import factorised
from skswsgp._rows.column_scale import HARDLY_CHANGED

FOLDS = 5  # with ten, intervals of skewed targets held less
# Least product of rows and folds: without a fifth of 40 rows a kernel is much worse
ROWS_TIMES_FOLDS = 400
ALIKE = 1.0 - 1e-6  # correlation of f at rows that no column of the kernel tells apart
KINDS = ALIKE, HARDLY_CHANGED  # of groups of rows, by the least correlation of f


def left_out_squares(best, rng, noise_is_known=False, flat=True):
    """Return mean squares (2, Q) of standardised errors of rows left out, or None.

    First rows are left out of the predictions only, then of the parameters as well. The
    mean square grows by the factor of the median fold, and does not shrink: what a fold
    with an outlier says holds for no other rows.

    `best` is the `LogPosterior` of the rows, which starts at the most probable
    parameters under priors that are nearly `flat`, which its `variances` then become,
    or under its own. That of a map of the columns keeps its width. Noise that is known
    is no parameter. `rng` draws the folds. None is for a covariance matrix that cannot
    be factorised.
    """
    X, y, ratios = best.X, best.y, best.ratios
    if flat:
        best.variances[: best.n_logs] = max(LAST_WIDTHS) ** 2
    moves = best.moves(noise=not noise_is_known)
    N, n_folds = len(X), count_folds(len(X))
    order, growth = rng.permutation(N), []
    fold_of, few = order % n_folds, order[:FIRST_ROWS]
    try:
        mean, variance = best.leave_one_out()
        before = np.mean((y - mean) ** 2 / variance, axis=0)
        hessian = best.given(X[few], y[few], ratios[few]).hessian(moves) / len(few)
        for fold in range(n_folds):
            gone, rest = fold_of == fold, fold_of != fold
            part = best.given(X[rest], y[rest], ratios[rest])
            steps = 2 * LAST_STEPS, np.sum(rest) * hessian, np.sum(rest) * ENOUGH
            part.start, *_ = part.maximize(moves, *steps)
            usual = squares_of_new(best, best.start, gone)
            growth.append(squares_of_new(best, part.start, gone) / usual)
    except np.linalg.LinAlgError:
        return None
    return np.stack([before, before * np.maximum(np.median(growth, axis=0), 1.0)])


def group_squares(best, rng, least):
    """Return mean squares (Q,) of errors of whole groups left out, or None for none.

    Two rows are in a group where the correlation of their f is more than `least`, or
    where a chain of such rows leads from one to the other. So the rows of a level are,
    if no other column matters. There must be three groups of two rows or more, and no
    row alone. Of rows that are ALIKE half may be alone, but none is chained: rows that
    differ in idle columns are all alike, and rows that are near by chance are not. The
    errors are standardised. The other arguments are those of `left_out_squares`.
    """
    K, N = best.kernel(best.X), len(best.X)
    scale = np.sqrt(np.diag(K))
    near = K > least * np.outer(scale, scale)
    n, group = connected_components(near)
    size, most_alone = np.bincount(group), 0.5 if least >= ALIKE else 0.0
    chained = least >= ALIKE and not near[group[:, None] == group].all()
    if chained or np.sum(size > 1) < 3 or np.mean(size[group] == 1) > most_alone:
        return None
    fold_of = (rng.permutation(n) % count_folds(N))[group]
    folds = [fold_of == fold for fold in np.unique(fold_of)]
    try:
        squares = [squares_of_new(best, best.start, gone) for gone in folds]
    except np.linalg.LinAlgError:
        return None
    return np.average(squares, axis=0, weights=np.sum(folds, axis=1))


def count_folds(n_rows):
    """Return into how many folds so many rows are split, or groups of rows."""
    return min(n_rows, max(FOLDS, ROWS_TIMES_FOLDS // n_rows))


def squares_of_new(posterior, point, gone):
    """Return mean squares (Q,) of standardised errors of rows `gone` given all others.

    The parameters are those at a point of a `LogPosterior`.
    """
    out, rest = np.empty(posterior.y.shape[1]), ~gone
    for q, C in enumerate(posterior.covariances(point)):
        y, k = posterior.y[:, q], C[np.ix_(rest, gone)]
        factor, _ = factorised(C[np.ix_(rest, rest)])
        weights = cho_solve((factor, False), k)  # (N - n, n)
        errors = y[gone] - y[rest] @ weights
        out[q] = np.mean(errors**2 / (np.diag(C)[gone] - np.sum(weights * k, axis=0)))
    return np.maximum(out, np.finfo(float).tiny)  # y may be constant
