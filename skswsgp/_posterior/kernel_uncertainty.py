"""By how much errors grow where the kernel has not learned from their rows.

Predictions of a row from the others use a kernel and a noise that were fitted to that
row, too. So the rows are split into folds. For each fold the parameters of the kernel
and the noise move from their optimum to that of the other rows. The form of the kernel
and the map of the columns stay. With C the covariance of all targets y and P its
inverse, the errors of a fold f given the other rows, and their covariance, are

    y_f - mean_f = P_ff^-1 (P y)_f,        cov_f = P_ff^-1

(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, eq. 5.12, for
more than one row at a time).
"""

import numpy as np

from skswsgp._kernel_search.climb import ENOUGH, LAST_STEPS, LAST_WIDTHS
from skswsgp._kernel_search.marginal_likelihood import LogPosterior, inverted

FOLDS = 5  # with ten, intervals of skewed targets held less
# Least product of rows and folds: without a fifth of 40 rows a kernel is much worse
ROWS_TIMES_FOLDS = 400


def left_out_squares(kernel, noise, X, y, ratios, rng, noise_is_known=False, flat=True):
    """Return mean squares (2, Q) of standardised errors of rows left out, or None.

    First rows are left out of the predictions only, then of the parameters as well. The
    mean square grows by the factor of the median fold, and does not shrink: what a fold
    with an outlier says holds for no other rows.

    `kernel` and `noise` (Q,) are the most probable ones given rows X (N, D) and y
    (N, Q), whose noise variances are noise_q ratios (N, Q), under priors that are
    nearly `flat` or those of `LogPosterior`. Noise that is known is no parameter. `rng`
    draws the folds. None is for a covariance matrix that cannot be factorised.
    """
    N, best = len(X), LogPosterior(kernel, noise, X, y, ratios)
    if flat:
        best.variances[:] = max(LAST_WIDTHS) ** 2
    moves = best.moves(noise=not noise_is_known)
    n_folds = min(N, max(FOLDS, ROWS_TIMES_FOLDS // N))
    fold_of, growth = rng.permutation(N) % n_folds, []
    try:
        hessian, (found, sums) = best.hessian(moves), precisions(best, best.start)
        before = np.stack([np.diag(P) for P in found], axis=1)
        before = np.mean(sums**2 / before, axis=0)
        for fold in range(n_folds):
            gone, rest = fold_of == fold, fold_of != fold
            part = best.given(X[rest], y[rest], ratios[rest])
            steps = LAST_STEPS, np.mean(rest) * hessian, ENOUGH
            part.start, _ = part.maximize(moves, *steps)
            moved = squares_without(gone, *precisions(best, part.start))
            growth.append(moved / squares_without(gone, found, sums))
    except np.linalg.LinAlgError:
        return None
    return np.stack([before, before * np.maximum(np.median(growth, axis=0), 1.0)])


def precisions(posterior, point):
    """Return the inverses P of the covariances of targets, Q of (N, N), and P y (N, Q).

    The parameters are those at a point of a `LogPosterior`.
    """
    params, noise = posterior.split(point)
    K = posterior.matrix.evaluate(params, posterior.X)
    found = [
        inverted(K + np.diag(variance * posterior.ratios[:, q]))[0]
        for q, variance in enumerate(noise)
    ]
    sums = [P @ posterior.y[:, q] for q, P in enumerate(found)]
    return found, np.stack(sums, axis=1)


def squares_without(gone, precisions, sums):
    """Return mean squares (Q,) of standardised errors of rows `gone` given all others.

    Other arguments are what the function `precisions` returns.
    """
    out = np.empty(len(precisions))
    for q, P in enumerate(precisions):
        covariance, _ = inverted(P[np.ix_(gone, gone)])
        errors = covariance @ sums[gone, q]
        out[q] = np.mean(errors**2 / np.diag(covariance))
    return np.maximum(out, np.finfo(float).tiny)  # y may be constant
