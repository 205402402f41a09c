"""Factors of many small covariance matrices at once, with jitter; see `linalg`."""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.linalg import MAX_JITTER

ROUNDINGS = 4.0  # of a diagonal entry: a pivot that is no larger is noise


class Factors(NamedTuple):
    """L^-1 of n matrices K + shift I = L L'; NaN where there is no factor."""

    inverse: object  # (n, H, H), lower
    jitter: object  # (n,), shift / unit

    def log_determinants(self, xp):
        """Return log|K + shift I| (n,)."""
        return -2.0 * xp.log(diagonals(self.inverse)).sum(axis=1)

    def solve(self, k):
        """Return (K + shift I)^-1 k and the squared norm of L^-1 k, for k (n, H)."""
        half = matvec(self.inverse, k)
        return matvec(transposed(self.inverse), half), (half * half).sum(axis=1)

    def inverses(self):
        """Return (K + shift I)^-1, (n, H, H)."""
        return transposed(self.inverse) @ self.inverse


def transposed(A):
    """Return the transposes of matrices (n, g, h), which share their memory."""
    return A.transpose(0, 2, 1)


def matvec(A, b):
    """Return A b (n, g) for matrices A (n, g, h) and vectors b (n, h)."""
    return (A @ b[:, :, None])[:, :, 0]


def diagonals(A):
    """Return the diagonals (n, H) of matrices (n, H, H), which share their memory."""
    n, H, _ = A.shape
    return A.reshape(n, H * H)[:, :: H + 1]


def mean_diagonals(xp, K):
    """Return the units (n,) of jitter, means of the diagonals; 1 where these are 0."""
    means = diagonals(K).mean(axis=1)
    return xp.where(means > 0.0, means, means.dtype.type(1.0))


def jittered(device, K, units, jitter):
    """Return the `Factors` of K (n, H, H), with as little jitter as each one needs."""
    xp, (n, H, _) = device.xp, K.shape
    L, used = xp.empty_like(K), xp.full(n, np.nan, K.dtype)
    left, relative = xp.arange(n), jitter
    while len(left) and relative < 1.5 * MAX_JITTER:
        A = K[left]
        diagonals(A)[...] += (relative * units[left])[:, None]
        L[left], failed = factorise(device, A, diagonals(K)[left])
        used[left] = xp.where(failed, np.nan, relative)
        left, relative = left[failed], 10.0 * relative
    L[left] = np.nan
    eye = xp.broadcast_to(xp.eye(H, dtype=K.dtype), K.shape)
    return Factors(device.solve_triangular(L, eye), used)


def factorise(device, A, scale):
    """Return lower factors of A, and whether a pivot is no more than rounding, (n,)."""
    L, failed = device.cholesky(A)
    rounding = ROUNDINGS * np.finfo(A.dtype).eps
    pivots = diagonals(L)
    enough = (pivots > 0.0) & (pivots * pivots > rounding * scale)
    return L, failed | ~enough.all(axis=1)
