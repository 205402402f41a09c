"""Rows of X times a matrix, which makes new columns of the old ones."""

import numpy as np

from skswsgp._compiled.jit import njit


def mapped(X, W):
    """Return X @ W (n, D') in float64, or X itself if W is the identity.

    `W` is (D, D'), or None for the identity. A row of the result does not depend
    on the other rows, which a product by BLAS does not promise.
    """
    if W is None or is_identity(W):
        return X
    X = np.asarray(X, dtype=np.float64)
    out = np.zeros((len(X), W.shape[1]))
    _add_product(X, W, out)
    return out


def is_identity(W):
    """Return whether a matrix is the identity."""
    return W.shape[0] == W.shape[1] and np.array_equal(W, np.eye(len(W)))


@njit
def _add_product(X, W, out):
    """Add X @ W to out."""
    for i in range(X.shape[0]):
        for d in range(X.shape[1]):
            x = X[i, d]
            for j in range(W.shape[1]):
                out[i, j] += x * W[d, j]
