"""Few inducing points that tell all of a function, as far as its rows can.

A smooth function of many rows needs no point for each of them. Given the values at M
points f keeps the variance F = k(x, x) - k' K^-1 k. Given n rows of noise s^2, a model
of M values has on average at most the variance s^2 M / n at rows. So M points
leave out next to nothing where the mean of F is at most a tenth of that.

Points are chosen one after the other, each where F is largest by then, which is the
pivoted Cholesky factorisation of the covariance of the rows that are looked at (Fine
and Scheinberg, JMLR 2001; Burt, Rasmussen and van der Wilk, ICML 2019).
"""

import numpy as np

from skswsgp._rows.inducing import LEAST_ROWS_PER_CENTER
from skswsgp._rows.statistics import ROUNDING, standing_rows

# F may be at most this share of what rows leave unknown. Then it adds at most 5 % to
# the deviation of f from its prediction.
HARDLY_LESS = 0.1


def few_points(kernel, noise, data, most, least=1, n_near=np.inf):
    """Return as few of the `TrainingRows` as tell all of f, (M, D), or None.

    `kernel` is the kernel object, and `noise` the variance of a row of mean weight. M
    is at most `most`, and at least `least` unless fewer points tell f but for rounding.
    So many points as `most` are also taken if they leave no more than the noise leaves
    of f behind the mean of `n_near` rows, from which f would be predicted else. The
    search ends at half of `most` if F falls too slowly to come so far.
    """
    rows = standing_rows(data.n_rows)[: LEAST_ROWS_PER_CENTER * most]
    X = data.take(rows).inputs.astype(np.float64)
    left, chosen = np.array(kernel.diag(X), dtype=np.float64), []  # F (m,) of the rows
    most, rounding = min(most, len(X)), ROUNDING * left.max(initial=0.0)
    factor, means = np.empty((most, len(X))), []
    known, unknown = noise / n_near, HARDLY_LESS * noise / data.n_all
    for M in range(1, most + 1):
        pivot = int(np.argmax(left))
        if not left[pivot] > 0.0:
            return None
        row = kernel(X[[pivot]], X)[0] - factor[: M - 1, pivot] @ factor[: M - 1]
        factor[M - 1] = row / np.sqrt(left[pivot])
        left = np.maximum(left - factor[M - 1] ** 2, 0.0)
        left[pivot] = 0.0
        chosen.append(pivot)
        means.append(left.sum() / max(len(X) - M, 1))
        if means[-1] <= unknown * M and (M >= least or means[-1] <= rounding):
            return X[chosen]
        if M == most // 2:  # from here on F may fall by the square of its last fall
            fall = means[-1] / means[M // 2]
            if means[-1] * fall**2 > max(known, unknown * most):
                return None
    return X[chosen] if chosen and means[-1] <= known else None
