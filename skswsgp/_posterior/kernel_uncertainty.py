"""Errors of rows that neither the other rows nor the kernel have learned from.

Predictions of a row from the others use a kernel and a noise that were fitted to that
row, too. So the rows are split into folds. For each fold the parameters move to the
maximum of the evidence of the other rows, and predict the fold from these. With C the
covariance of all targets y under these parameters and P its inverse, the errors of a
fold f, and their covariance, are

    y_f - mean_f = P_ff^-1 (P y)_f,        cov_f = P_ff^-1

(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, eq. 5.12, for
more than one row at a time).
"""

import numpy as np

from skswsgp._kernel_search.climb import ENOUGH, LAST_STEPS, LAST_WIDTHS
from skswsgp._kernel_search.marginal_likelihood import LogPosterior, inverted

FOLDS = 5
ROWS_OF_MORE_FOLDS = 400  # rows below which a fifth of them is too much to leave out


def errors_of_folds(kernel, noise, X, y, ratios, rng, noise_is_known=False):
    """Return standardised errors z (N, Q) of rows left out of the kernel, too, or None.

    `kernel` and `noise` (Q,) maximise the marginal likelihood of rows X (N, D) and y
    (N, Q), whose noise variances are noise_q ratios (N, Q). Noise that is known is no
    parameter. `rng` draws the folds. None is for a covariance matrix that cannot be
    factorised.
    """
    N, best = len(X), LogPosterior(kernel, noise, X, y, ratios)
    best.variances[:] = max(LAST_WIDTHS) ** 2  # the prior has had its say
    moves = best.moves(noise=not noise_is_known)
    n_folds = min(N, max(FOLDS, ROWS_OF_MORE_FOLDS // N))
    fold_of, z = rng.permutation(N) % n_folds, np.empty(y.shape)
    try:
        hessian = best.hessian(moves)
        for fold in range(n_folds):
            gone, rest = fold_of == fold, fold_of != fold
            part = best.given(X[rest], y[rest], ratios[rest])
            growth = np.mean(rest)
            part.start, _ = part.maximize(moves, LAST_STEPS, growth * hessian, ENOUGH)
            z[gone] = errors_without(best, part.start, gone)
    except np.linalg.LinAlgError:
        return None
    return z


def errors_without(posterior, point, gone):
    """Return the standardised errors (n, Q) of rows `gone` given all others.

    The parameters are those at a point of a `LogPosterior` of all rows.
    """
    params, noise = posterior.split(point)
    K = posterior.matrix.evaluate(params, posterior.X)
    z = np.empty((gone.sum(), len(noise)))
    for q, variance in enumerate(noise):
        precision, _ = inverted(K + np.diag(variance * posterior.ratios[:, q]))
        covariance, _ = inverted(precision[np.ix_(gone, gone)])
        z[:, q] = covariance @ (precision[gone] @ posterior.y[:, q])
        z[:, q] /= np.sqrt(np.diag(covariance))
    return z
