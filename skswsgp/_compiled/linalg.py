"""Cholesky factors, inverses and solves of small matrices, on arrays passed in.

A matrix has the factor A = R' R with R lower triangular, found from the last row up:
all that follows then multiplies columns of row-major arrays, which `_tiles` does an
8 x 8 tile at a time. Arrays have a side that is a multiple of BLOCK; `padded` gives it,
and rows beyond the true size hold the identity.
"""

import math

import numpy as np

from skswsgp._compiled.jit import njit, njit_small
from skswsgp._compiled.team import (
    BLOCK,
    barrier,
    once,
    team_columns,
    team_inner_tiles,
    team_outer_tiles,
    team_range,
    team_sum,
    team_tiles,
)
from skswsgp._compiled.tiles import (
    factorise_tile,
    set_negative_products,
    set_products,
    subtract_products,
)

MAX_JITTER = 1e-2
RELATIVE_FLOOR = 1e-6  # of the jitter: added to S, and the floor of variances


def padded(size):
    """Return the side of the work matrix that holds `size` rows."""
    return -(-size // BLOCK) * BLOCK


@njit
def cholesky(A, R, shift, blocks):
    """Factorise A + shift I = R' R from the lower triangle of A.

    Returns False where A + shift I is not positive definite beyond rounding. R is
    modified; above its diagonal blocks it is left as it was. `blocks` (side, 8) takes
    the inverses of these blocks.
    """
    side = A.shape[0]
    for k in range(side - BLOCK, -1, -BLOCK):
        for p in range(k, k + BLOCK):
            for j in team_range(0, k + BLOCK):
                R[p, j] = A[p, j]
        barrier()
        for j in team_tiles(0, k + BLOCK):
            subtract_products(R, k, R, j, k + BLOCK, side, R, k, j)
        barrier()
        if not factorise_tile(A, R, k, shift, blocks):
            return False
        for j in team_tiles(0, k):
            set_products(blocks, 0, R, j, k, k + BLOCK, R, k, j)
        barrier()
    return True


@njit
def invert_factor(R, blocks, P):
    """P = R^-T, upper triangular; below its diagonal blocks it is left as it was."""
    side = R.shape[0]
    for i in range(side - BLOCK, -1, -BLOCK):
        for p in range(BLOCK):
            for q in team_columns(0):
                P[i + p, i + q] = blocks[i + q, p]
        for j in team_tiles(i + BLOCK, side):
            set_negative_products(R, i, P, j, i + BLOCK, j + BLOCK, P, i, j)
            set_products(blocks, 0, P, j, i, i + BLOCK, P, i, j)
        barrier()


@njit
def square_upper(P, A):
    """A = P' P for upper triangular P (zero inside its diagonal blocks too); full A."""
    side = P.shape[0]
    for i in team_outer_tiles(0, side):
        for j in team_inner_tiles(0, i + 1):
            set_products(P, i, P, j, 0, j + BLOCK, A, i, j)
            if j < i:
                for p in range(i, i + BLOCK):
                    for q in team_columns(j):
                        A[q, p] = A[p, q]
    barrier()


@njit
def transposed_product(X, Y, A):
    """A = X' Y."""
    side = X.shape[0]
    for i in team_outer_tiles(0, side):
        for j in team_inner_tiles(0, side):
            set_products(X, i, Y, j, 0, side, A, i, j)
    barrier()


@njit
def transposed_product_lower(X, Y, A):
    """A = X' Y, its blocks on and below the diagonal only."""
    side = X.shape[0]
    for i in team_outer_tiles(0, side):
        for j in team_inner_tiles(0, i + 1):
            set_products(X, i, Y, j, 0, side, A, i, j)
    barrier()


@njit_small
def solve(R, b, row, size, out, to):
    """out[to] = R^-1 b[row]."""
    for i in range(size):
        rest = once(b[row, i])
        for k in team_range(0, i):
            rest -= R[i, k] * out[to, k]
        out[to, i] = team_sum(rest) / R[i, i]
        barrier()


@njit_small
def solve_transposed(R, b, row, size, out, to):
    """out[to] = R^-T b[row]."""
    for i in team_range(0, size):
        out[to, i] = b[row, i]
    barrier()
    for i in range(size - 1, -1, -1):
        value = out[to, i] / R[i, i]
        barrier()
        out[to, i] = value
        for k in team_range(0, i):
            out[to, k] -= value * R[i, k]
        barrier()


@njit_small
def matvec(A, b, row, size, out, to):
    """out[to] = A b[row] for the leading (size, size) block of A."""
    for i in team_range(0, size):
        value = A.dtype.type(0.0)
        for k in range(size):
            value += A[i, k] * b[row, k]
        out[to, i] = value
    barrier()


@njit_small
def log_determinant(R, size):
    """log|R' R|."""
    log = 0.0
    for i in team_range(0, size):
        log += math.log(R[i, i])
    return 2.0 * team_sum(log)


@njit_small
def sum_of_logs(values, row, size):
    """The share of this lane in sum_h log values[row, h], by products of eight."""
    log = 0.0
    for block in team_range(0, (size + BLOCK - 1) // BLOCK):
        first, last = BLOCK * block, min(BLOCK * (block + 1), size)
        product = np.float64(1.0)
        for h in range(first, last):
            product *= values[row, h]
        if 1e-290 < product < 1e290:
            log += math.log(product)
        else:  # too small or large together, or NaN
            for h in range(first, last):
                log += math.log(np.float64(values[row, h]))
    return log


@njit
def column_sum(A, n, j):
    """Return the sum of A[:n, j]."""
    amount = 0.0
    for i in team_range(0, n):
        amount += A[i, j]
    return team_sum(amount)


@njit_small
def mean_diagonal(A, size):
    """Mean of the diagonal of A, the unit of jitter and floors; 1 where it is zero."""
    mean = 0.0
    for i in team_range(0, size):
        mean += A[i, i]
    mean = team_sum(mean)
    return mean / size if mean > 0.0 else 1.0


@njit
def jittered_cholesky(A, R, unit, jitter, blocks):
    """Factorise A + shift I = R' R; return shift relative to `unit`.

    The first shift is jitter times the unit; after a failure it grows tenfold, at most
    to MAX_JITTER. Returns -1 when that is not enough.
    """
    relative = jitter
    while relative < 1.5 * MAX_JITTER:
        if cholesky(A, R, relative * unit, blocks):
            return relative
        relative *= 10.0
    return -1.0


def dense_cholesky(K, jitter):
    """Return the lower factor of K + jitter I, with ten times more until it exists."""
    jitter = max(jitter, np.finfo(K.dtype).tiny ** 0.5)
    require_finite(K)
    limit = max(1.0, jitter, np.diag(K).max())
    while jitter <= limit:
        try:
            return np.linalg.cholesky(K + jitter * np.eye(len(K)))
        except np.linalg.LinAlgError:
            jitter *= 10.0
    require_finite(np.nan)


def require_finite(values):
    """Raise if a covariance matrix could not be factorised."""
    if not np.all(np.isfinite(values)):
        raise FloatingPointError(
            "a covariance matrix of inducing points could not be factorised: expected "
            "finite kernel parameters and inducing points; check kernel_ and "
            "inducing_points_, or fit again with tighter bounds on the kernel."
        )
