"""Cholesky factors, inverses and solves of small matrices; nothing allocates.

A matrix A has the factor R, lower triangular with A = R' R, which is found from the
last row up. Everything else then multiplies columns of row-major arrays, and `tiles`
does that by tiles of 8 x 8 entries. The sides of matrices are multiples of BLOCK, see
`padded`; rows beyond the true size hold the identity.

Jitter is a multiple of I, added to a covariance matrix that rounding has made
indefinite, and multiplied by ten until a factor exists. `jittered_cholesky` factorises
the K of one datum; its jitter is relative to the mean of the diagonal and stops at
MAX_JITTER. `numpy_cholesky` factorises one large matrix; its jitter is absolute and
stops at the largest variance (or at 1, or at the first jitter, if these are larger),
far above any rounding, so that a failure says that K is no covariance matrix.
"""

import math

import numba
import numpy as np
from scipy.linalg.lapack import dpotri, dpotrs, dtrtri

from skswsgp._compiled import tiles
from skswsgp._compiled.jit import njit, njit_inner, njit_small
from skswsgp._compiled.pointers import address_of, by_address
from skswsgp._compiled.tiles import BLOCK

MAX_JITTER = 1e-2  # largest jitter of a datum's K, relative to its mean diagonal
NO_FACTOR = (
    "a covariance matrix of inducing points could not be factorised: expected finite "
    "kernel parameters and inducing points; check kernel_ and inducing_points_, scale "
    "X, or fit again with tighter bounds on the kernel."
)
# The jitter of S and the least variance of f, as fractions of the jitter of K
RELATIVE_FLOOR = 1e-6


def padded(size):
    """Return the least multiple of BLOCK that is not below `size`."""
    return -(-size // BLOCK) * BLOCK


@njit_inner
def cholesky(A, R, shift, blocks):
    """Set R with A + shift I = R' R; return False if there is none beyond rounding.

    Only the lower triangle of A is read. R keeps its old entries above the diagonal
    tiles. `blocks` (side, 8) takes the inverses of the diagonal tiles of R.
    """
    side = A.shape[0]
    for k in range(side - BLOCK, -1, -BLOCK):
        for p in range(k, k + BLOCK):
            for j in range(k + BLOCK):
                R[p, j] = A[p, j]
        for j in range(0, k + BLOCK, BLOCK):
            tiles.subtract_products(R, k, R, j, k + BLOCK, side, R, k, j)
        if not tiles.factorise_tile(A, R, k, shift, blocks):
            return False
        for j in range(0, k, BLOCK):
            tiles.set_products(blocks, 0, R, j, k, k + BLOCK, R, k, j)
    return True


@njit
def invert_factor(R, blocks, P):
    """Set P = R^-T, but not below its diagonal tiles, from `blocks` of `cholesky`."""
    side = R.shape[0]
    for i in range(side - BLOCK, -1, -BLOCK):
        for p in range(BLOCK):
            for q in range(BLOCK):
                P[i + p, i + q] = blocks[i + q, p]
        for j in range(i + BLOCK, side, BLOCK):
            tiles.set_negative_products(R, i, P, j, i + BLOCK, j + BLOCK, P, i, j)
            tiles.set_products(blocks, 0, P, j, i, i + BLOCK, P, i, j)


@njit
def square_upper(P, A):
    """Set all of A = P' P for upper triangular P, zero below the diagonal."""
    side = P.shape[0]
    for i in range(0, side, BLOCK):
        for j in range(0, i + 1, BLOCK):
            tiles.set_products(P, i, P, j, 0, j + BLOCK, A, i, j)
            if j < i:
                for p in range(i, i + BLOCK):
                    for q in range(j, j + BLOCK):
                        A[q, p] = A[p, q]


@njit_small
def solve(R, b, row, size, out, to):
    """Set out[to] = R^-1 b[row]."""
    for i in range(size):
        rest = b[row, i]
        for k in range(i):
            rest -= R[i, k] * out[to, k]
        out[to, i] = rest / R[i, i]


@njit_small
def solve_transposed(R, b, row, size, out, to):
    """Set out[to] = R^-T b[row]."""
    for i in range(size):
        out[to, i] = b[row, i]
    for i in range(size - 1, -1, -1):
        value = out[to, i] / R[i, i]
        out[to, i] = value
        for k in range(i):
            out[to, k] -= value * R[i, k]


@njit_small
def matvec(A, b, row, size, out, to):
    """Set out[to] = A b[row] for the leading (size, size) block of A."""
    for i in range(size):
        value = A.dtype.type(0.0)
        for k in range(size):
            value += A[i, k] * b[row, k]
        out[to, i] = value


@njit_small
def log_determinant(R, size):
    """Return log|R' R| = 2 sum_i log R[i, i]."""
    log = 0.0
    for i in range(size):
        log += math.log(R[i, i])
    return 2.0 * log


@njit_small
def sum_of_logs(values, row, size):
    """Return sum_h log values[row, h]."""
    log = 0.0  # a logarithm of a product of eight values costs less than eight
    for block in range((size + BLOCK - 1) // BLOCK):
        first, last = BLOCK * block, min(BLOCK * (block + 1), size)
        product = np.float64(1.0)
        for h in range(first, last):
            product *= values[row, h]
        if 1e-290 < product < 1e290:
            log += math.log(product)
        else:  # the product underflows or overflows, or it is NaN
            for h in range(first, last):
                log += math.log(np.float64(values[row, h]))
    return log


@njit_small
def mean_diagonal(A, size):
    """Return the mean of the diagonal of A, the unit of jitter, or 1 if it is zero."""
    trace = 0.0
    for i in range(size):
        trace += A[i, i]
    return trace / size if trace > 0.0 else 1.0


@njit
def jittered_cholesky(A, R, unit, jitter, blocks):
    """Set R with A + shift I = R' R; return shift / unit, -1 if there is no factor."""
    relative = jitter
    while relative < 1.5 * MAX_JITTER:
        if cholesky(A, R, relative * unit, blocks):
            return relative
        relative *= 10.0
    return -1.0


def cholesky_address(A):
    """Return the address of `jittered_cholesky` for matrices like A."""
    return address_of(jittered_cholesky, A, A, 1.0, 1.0, A, result=numba.float64)


call_cholesky = by_address(jittered_cholesky, result=numba.float64)


def numpy_cholesky(K, jitter):
    """Return the lower factor of K + shift I, where shift is `jitter` or larger."""
    shift = max(jitter, np.finfo(K.dtype).tiny ** 0.5)
    require_finite(K)
    limit = max(1.0, shift, np.diag(K).max())
    while shift <= limit:
        try:
            return np.linalg.cholesky(K + shift * np.eye(len(K)))
        except np.linalg.LinAlgError:
            shift *= 10.0
    raise FloatingPointError(NO_FACTOR)


def inverse_of_factor(factor):
    """Return (L L')^-1 for a lower factor L."""
    half = np.tril(dpotri(factor, lower=True)[0])
    inverse = half + half.T
    inverse[np.diag_indices(len(half))] *= 0.5
    return inverse


def given_others(factor, y):
    """Return mean and variance (n,) of y_i given all other entries.

    y (n,) is Gaussian with mean zero and covariance L L', L the factor. With P the
    inverse of L L' they are y_i - (P y)_i / P_ii and 1 / P_ii (Rasmussen and Williams,
    Gaussian Processes for Machine Learning, 2006, eq. 5.12). P_ii is the squared norm
    of a column of L^-1.
    """
    half = np.triu(dtrtri(factor.T)[0])
    variance = 1.0 / np.einsum("ij,ij->i", half, half)
    return y - dpotrs(factor.T, y)[0] * variance, variance


def require_finite(values):
    """Raise FloatingPointError if some values of a factorised matrix are not finite."""
    if not np.all(np.isfinite(values)):
        raise FloatingPointError(NO_FACTOR)
