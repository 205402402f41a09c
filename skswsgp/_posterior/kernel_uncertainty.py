"""By how much errors grow where the kernel has not learned from their rows.

Predictions of a row from the others use a kernel and a noise that were fitted to that
row, too. So the rows are split into folds. For each fold the parameters of the kernel,
the noise, and a map of few columns move from their optimum to that of the other rows.
The form of the kernel stays.
"""

import numpy as np
from scipy.linalg import cho_solve

from skswsgp._kernel_search.climb import ENOUGH, FIRST_ROWS, LAST_STEPS, LAST_WIDTHS
from skswsgp._kernel_search.marginal_likelihood import factorised

FOLDS = 5  # with ten, intervals of skewed targets held less
# Least product of rows and folds: without a fifth of 40 rows a kernel is much worse
ROWS_TIMES_FOLDS = 400


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
