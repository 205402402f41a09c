"""The term of one row in the bound.

The objective of a batch is

    sum_i weight_i (E_q(f_i)[log p(y_i | f_i)] - beta / W KL_i),  W the sum of weights,

that is n / N times Algorithm 1, line 13. Derivatives go to block `b` of the
`Gradients`, sums over rows to chunk `c`. Formulas and notation are those of `posterior`
and `divergence`.

Functions with `dense` in their names serve rows that share H active points: all of them
(H = M, the SVGP), or the union of a minibatch (SWSGP-U). One K is factorised, and its
divergence counted, once a step, and a row costs O(H^2). d/dK = d_K + A' R + R' A, with
the rows a_i and r_i.
"""

import math
from collections import namedtuple

import numpy as np

from skswsgp._compiled.jit import njit, njit_inline, njit_inner
from skswsgp._compiled.linalg import call_cholesky, mean_diagonal, padded
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._covariance.program import CHOLESKY, fill_tile
from skswsgp._point import posterior
from skswsgp._point.divergence import divergence
from skswsgp._point.likelihoods import expected_log_prob


@njit_inner
def gather_rows(values, active, row, H, out):
    """Set out[j, h] = values[active[row, h], j]."""
    for h in range(H):
        at = active[row, h]
        for j in range(values.shape[1]):
            out[j, h] = values[at, j]


@njit_inline
def gather(model, active, row, H, work):
    """Copy w = active[row], Z_w, m_w and s_w to the work arrays."""
    for h in range(H):
        work.rows[h] = active[row, h]
    gather_rows(model.Z, active, row, H, work.points)
    gather_rows(model.m, active, row, H, work.m)
    if not model.full:
        gather_rows(model.s, active, row, H, work.s)


@njit
def unpack(values, H, K):
    """Copy the covariances of the first H points of a tile to the triangle of K."""
    top = values.shape[0] - 1
    for i in range(H):
        start = row_start(i, TRIANGLE)
        for j in range(i + 1):
            K[i, j] = values[top, start + j]


@njit_inline
def factorise(model, work, H):
    """Factorise K of the tile; return the relative jitter used, -1 on failure."""
    unpack(work.values, H, work.K)
    unit = mean_diagonal(work.K, H)
    given = work.K, work.chol, unit, model.jitter, work.blocks
    return call_cholesky(work.calls[CHOLESKY], given)


@njit_inline
def fill_point(model, X, active, row, H, work):
    """Gather the neighbours of X[row]; fill the tile, which ends with k and k(x, x)."""
    gather(model, active, row, H, work)
    for d in range(X.shape[1]):
        work.points[d, H] = X[row, d]
    fill_tile(model, work.points, H + 1, work.points, TRIANGLE, work, 0)


@njit_inline
def factorise_point(model, X, active, row, H, work):
    """Fill the tile of X[row], factorise its K_w; return the relative jitter, or -1."""
    fill_point(model, X, active, row, H, work)
    return factorise(model, work, H)


@njit_inline
def point_bound(model, X, y, active, row, H, work):
    """Return E log p(y | f), KL_w and jitter of one row; set what `bound_vjp` reads."""
    jitter = factorise_point(model, X, active, row, H, work)
    ell = kl = math.nan
    if jitter >= 0.0:
        kl = divergence(model, work, H)
        posterior.posterior(model, work, work, row_start(H, TRIANGLE), H)
        ell = expected_log_prob(model, y, row, work)
    return ell, kl, jitter


@njit_inner
def clear_points(d_points, n):
    """Set the derivatives by the coordinates of the first n points to zero."""
    for d in range(d_points.shape[0]):
        for h in range(n):
            d_points[d, h] = 0.0


@njit_inner
def count_jitter(usual, jitter, jitter_counts, place):
    """Count a factorisation with extra jitter, or failed, in jitter_counts[place]."""
    if jitter < 0.0:
        jitter_counts[place, 1] += 1
    elif jitter > 1.5 * usual:
        jitter_counts[place, 0] += 1


DenseStack = namedtuple("DenseStack", "A R column d_column")


def allocate_stack(model, n, H, n_threads):
    """Allocate vectors from which d/dK of n rows follows, and a column a thread."""
    D, dtype = model.Z.shape[1], model.Z.dtype
    return DenseStack(
        A=np.zeros((n, padded(H)), dtype),  # rows a_i
        R=np.zeros((n, padded(H)), dtype),  # rows r_i, see `Workspace.half_adjoint`
        column=np.zeros((n_threads, D, 1), dtype),  # a row of X
        d_column=np.zeros((n_threads, D, 1), dtype),
    )


@njit_inner
def restore_padding(A, H):
    """Let the lower triangle of A hold the identity in the rows from H on."""
    for i in range(H, A.shape[0]):
        for j in range(i):
            A[i, j] = 0.0
        A[i, i] = 1.0


@njit_inline
def factorise_dense(model, active, H, factor):
    """Factorise K of the first H points of active[0]; return KL and relative jitter."""
    restore_padding(factor.K, H)  # a step before may have had more active points
    for q in range(factor.S.shape[0]):
        restore_padding(factor.S[q], H)
    gather(model, active, 0, H, factor)
    fill_tile(model, factor.points, H, factor.points, TRIANGLE, factor, 0)
    jitter = factorise(model, factor, H)
    kl = divergence(model, factor, H) if jitter >= 0.0 else math.nan
    return kl, jitter
