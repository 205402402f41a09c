"""Few inducing points that tell all of a function, as far as its rows can.

A smooth function of many rows needs no point for each of them. Given the values at M
points f keeps the variance F = k(x, x) - k' K^-1 k. Given n rows of noise s^2, a model
of M values has on average at most the variance s^2 M / n at rows. So M points leave out
no more than what rows leave unknown where the mean of F is at most that.

Points are chosen one after the other, each where F is largest by then, which is the
pivoted Cholesky factorisation of the covariance of the rows that are looked at (Fine
and Scheinberg, JMLR 2001; Burt, Rasmussen and van der Wilk, ICML 2019).
"""

import numpy as np

from skswsgp._rows.inducing import LEAST_ROWS_PER_CENTER
from skswsgp._rows.statistics import ROUNDING, standing_rows


def few_points(kernel, noise, data, most, least=1, n_near=np.inf):
    """Return as few of the `TrainingRows` as tell all of f, (M, D), or None.

    `kernel` is the kernel object, and `noise` the variance of a row of mean weight. M
    is at most `most`, and at least `least` unless fewer points tell f but for rounding.
    So many points as `most` are also taken if they leave no more than the noise leaves
    of f behind the mean of `n_near` rows, from which f would be predicted else.
    """
    rows = standing_rows(data.n_rows)[: LEAST_ROWS_PER_CENTER * most]
    X = data.take(rows).inputs.astype(np.float64)
    left, chosen = np.array(kernel.diag(X), dtype=np.float64), []  # F (m,) of the rows
    most, rounding = min(most, len(X)), ROUNDING * left.max(initial=0.0)
    factor = np.empty((most, len(X)))
    for j in range(most):
        pivot = int(np.argmax(left))
        if not left[pivot] > 0.0:
            return None
        row = kernel(X[[pivot]], X)[0] - factor[:j, pivot] @ factor[:j]
        factor[j] = row / np.sqrt(left[pivot])
        left = np.maximum(left - factor[j] ** 2, 0.0)
        left[pivot] = 0.0
        chosen.append(pivot)
        mean, M = left.sum() / max(len(X) - len(chosen), 1), len(chosen)
        if mean <= noise * M / data.n_all and (M >= least or mean <= rounding):
            return X[chosen]
    return X[chosen] if chosen and mean <= noise / n_near else None
