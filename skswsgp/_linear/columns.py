"""Rows of X times a matrix, which makes new columns of the old ones."""

import numpy as np

from skswsgp._compiled.jit import njit


def mapped(X, metric):
    """Return X @ metric (n, D') in float64, or X itself if metric is the identity.

    `metric` is (D, D'), or None for the identity. A row of the result does not depend
    on the other rows, which a product by BLAS does not promise.
    """
    if metric is None or is_identity(metric):
        return X
    X = np.asarray(X, dtype=np.float64)
    out = np.zeros((len(X), metric.shape[1]))
    _add_product(X, metric, out)
    return out


def is_identity(metric):
    """Return whether a matrix is the identity."""
    return metric.shape[0] == metric.shape[1] and np.array_equal(
        metric, np.eye(len(metric))
    )


@njit
def _add_product(X, metric, out):
    """Add X @ metric to out."""
    for i in range(X.shape[0]):
        for d in range(X.shape[1]):
            x = X[i, d]
            for j in range(metric.shape[1]):
                out[i, j] += x * metric[d, j]
