"""Cholesky factors, solves and products of small matrices, on arrays passed in.

All products run over pairs of rows, four rows against four at a time, because both
operands then lie contiguous in memory and sixteen sums stay in registers. Matrices are
row-major with a side that is a multiple of BLOCK; `padded` gives it, and rows beyond
the true size hold the identity.
"""

import math

import numpy as np

from skswsgp._jit import njit, njit_small

BLOCK = 4


def padded(size):
    """Return the side of the work matrix that holds `size` rows."""
    return -(-size // BLOCK) * BLOCK


@njit_small
def block_dots(A, i, B, j, start, stop, out):
    """out[p, q] = sum_{start <= k < stop} A[i + p, k] B[j + q, k]; out is (4, 4).

    An index that may be negative would keep the sums from being vectorised.
    """
    zero = A.dtype.type(0.0)
    c00 = c01 = c02 = c03 = zero
    c10 = c11 = c12 = c13 = zero
    c20 = c21 = c22 = c23 = zero
    c30 = c31 = c32 = c33 = zero
    for k in range(np.uint64(start), np.uint64(stop)):
        a0, a1, a2, a3 = A[i, k], A[i + 1, k], A[i + 2, k], A[i + 3, k]
        b0, b1, b2, b3 = B[j, k], B[j + 1, k], B[j + 2, k], B[j + 3, k]
        c00 += a0 * b0
        c01 += a0 * b1
        c02 += a0 * b2
        c03 += a0 * b3
        c10 += a1 * b0
        c11 += a1 * b1
        c12 += a1 * b2
        c13 += a1 * b3
        c20 += a2 * b0
        c21 += a2 * b1
        c22 += a2 * b2
        c23 += a2 * b3
        c30 += a3 * b0
        c31 += a3 * b1
        c32 += a3 * b2
        c33 += a3 * b3
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = c00, c01, c02, c03
    out[1, 0], out[1, 1], out[1, 2], out[1, 3] = c10, c11, c12, c13
    out[2, 0], out[2, 1], out[2, 2], out[2, 3] = c20, c21, c22, c23
    out[3, 0], out[3, 1], out[3, 2], out[3, 3] = c30, c31, c32, c33


@njit_small
def solve_block(L, d, b0, b1, b2, b3):
    """Solve with the (4, 4) diagonal block of the lower factor L that begins at d."""
    x0 = b0 / L[d, d]
    x1 = (b1 - x0 * L[d + 1, d]) / L[d + 1, d + 1]
    x2 = (b2 - x0 * L[d + 2, d] - x1 * L[d + 2, d + 1]) / L[d + 2, d + 2]
    x3 = b3 - x0 * L[d + 3, d] - x1 * L[d + 3, d + 1] - x2 * L[d + 3, d + 2]
    return x0, x1, x2, x3 / L[d + 3, d + 3]


@njit
def cholesky(A, L, shift, block):
    """Factorise A + shift I = L L' from the lower triangle of A; False if not possible.

    L is modified; above its diagonal it is left as it was. `block` is (4, 4) scratch.
    """
    side = A.shape[0]
    for j in range(0, side, BLOCK):
        block_dots(L, j, L, j, 0, j, block)
        for p in range(BLOCK):
            for q in range(p + 1):
                rest = A[j + p, j + q] - block[p, q]
                for k in range(j, j + q):
                    rest -= L[j + p, k] * L[j + q, k]
                if q < p:
                    L[j + p, j + q] = rest / L[j + q, j + q]
                elif rest + shift > 0.0:
                    L[j + p, j + p] = math.sqrt(rest + shift)
                else:
                    return False
        for i in range(j + BLOCK, side, BLOCK):
            block_dots(L, i, L, j, 0, j, block)
            for p in range(i, i + BLOCK):
                L[p, j], L[p, j + 1], L[p, j + 2], L[p, j + 3] = solve_block(
                    L,
                    j,
                    A[p, j] - block[p - i, 0],
                    A[p, j + 1] - block[p - i, 1],
                    A[p, j + 2] - block[p - i, 2],
                    A[p, j + 3] - block[p - i, 3],
                )
    return True


@njit
def invert_factor(L, R, block):
    """R = L^-T, upper triangular: row j of R is column j of the inverse of L.

    R is modified; below its diagonal blocks it is left as it was.
    """
    side = L.shape[0]
    for j in range(0, side, BLOCK):
        for q in range(BLOCK):
            R[j + q, j], R[j + q, j + 1], R[j + q, j + 2], R[j + q, j + 3] = (
                solve_block(
                    L,
                    j,
                    1.0 if q == 0 else 0.0,
                    1.0 if q == 1 else 0.0,
                    1.0 if q == 2 else 0.0,
                    1.0 if q == 3 else 0.0,
                )
            )
        for i in range(j + BLOCK, side, BLOCK):
            block_dots(L, i, R, j, j, i, block)
            for q in range(BLOCK):
                row = j + q
                R[row, i], R[row, i + 1], R[row, i + 2], R[row, i + 3] = solve_block(
                    L, i, -block[0, q], -block[1, q], -block[2, q], -block[3, q]
                )


@njit
def square_upper(R, A, block):
    """A = R R' for upper triangular R (zero inside its diagonal blocks too); full A."""
    side = R.shape[0]
    for i in range(0, side, BLOCK):
        for j in range(0, i + 1, BLOCK):
            block_dots(R, i, R, j, i, side, block)
            for p in range(BLOCK):
                for q in range(BLOCK):
                    A[i + p, j + q] = block[p, q]
                    A[j + q, i + p] = block[p, q]


@njit
def product(A, B, C, block):
    """C = A B'."""
    side = A.shape[0]
    for i in range(0, side, BLOCK):
        for j in range(0, side, BLOCK):
            block_dots(A, i, B, j, 0, side, block)
            for p in range(BLOCK):
                for q in range(BLOCK):
                    C[i + p, j + q] = block[p, q]


@njit
def product_symmetric(A, B, C, block):
    """C = A B' where C is known to be symmetric: half of it is computed."""
    side = A.shape[0]
    for i in range(0, side, BLOCK):
        for j in range(0, i + 1, BLOCK):
            block_dots(A, i, B, j, 0, side, block)
            for p in range(BLOCK):
                for q in range(BLOCK):
                    C[i + p, j + q] = block[p, q]
                    C[j + q, i + p] = block[p, q]


@njit_small
def solve_lower(L, b, row, size, out, to):
    """out[to] = L^-1 b[row]."""
    for i in range(size):
        rest = b[row, i]
        for k in range(i):
            rest -= L[i, k] * out[to, k]
        out[to, i] = rest / L[i, i]


@njit_small
def solve_upper(L, b, size, out):
    """out[0] = L^-T b[0]; b and out have rows."""
    for i in range(size):
        out[0, i] = b[0, i]
    for i in range(size - 1, -1, -1):
        value = out[0, i] / L[i, i]
        out[0, i] = value
        for k in range(i):
            out[0, k] -= value * L[i, k]


@njit_small
def multiply(A, b, row, size, out, to):
    """out[to] = A b[row] for the leading (size, size) block of A."""
    for i in range(size):
        total = A.dtype.type(0.0)
        for k in range(size):
            total += A[i, k] * b[row, k]
        out[to, i] = total


@njit_small
def log_determinant(L, size):
    """log|L L'|."""
    total = 0.0
    for i in range(size):
        total += math.log(L[i, i])
    return 2.0 * total
