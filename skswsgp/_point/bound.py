"""The term of one row in the bound, and its adjoint.

The objective of a batch is

    sum_i weight_i (E_q(f_i)[log p(y_i | f_i)] - beta / W KL_i),  W the sum of weights,

that is n / N times Algorithm 1, line 13. Derivatives go to block `b` of the
`Gradients`, sums over rows to chunk `c`. Formulas and notation are those of `posterior`
and `divergence`.

Functions with `dense` in their names serve H = M, where every inducing point is active
and the model is the SVGP. K is then factorised, and its divergence counted, once a
step, and a row costs O(M^2). d/dK = d_K + A' R + R' A, with the rows a_i and r_i.
"""

import math
from collections import namedtuple

import numpy as np

from skswsgp._compiled.jit import njit, njit_inline
from skswsgp._compiled.linalg import jittered_cholesky, mean_diagonal, padded
from skswsgp._compiled.team import barrier, single, team_range
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._covariance.program import fill_tile, tile_vjp
from skswsgp._point.divergence import divergence, divergence_vjp
from skswsgp._point.likelihoods import expected_log_prob
from skswsgp._point.posterior import (
    covariance_vjp,
    cross_covariance_vjp,
    posterior,
    posterior_vjp,
)

# First pair of a row of X in its tile: with itself, with the inducing points
OWN, CROSS = 0, 1


@njit
def gather_rows(values, active, row, H, out):
    """Set out[j, h] = values[active[row, h], j]."""
    for h in team_range(0, H):
        at = active[row, h]
        for j in range(values.shape[1]):
            out[j, h] = values[at, j]


@njit_inline
def gather(model, active, row, H, work):
    """Copy w = active[row], Z_w, m_w and s_w to the work arrays."""
    for h in team_range(0, H):
        work.rows[h] = active[row, h]
    gather_rows(model.Z, active, row, H, work.points)
    gather_rows(model.m, active, row, H, work.m)
    if not model.full:
        gather_rows(model.s, active, row, H, work.s)
    barrier()


@njit
def unpack(values, H, K):
    """Copy the covariances of the first H points of a tile to the triangle of K."""
    top = values.shape[0] - 1
    for i in team_range(0, H):
        start = row_start(i, TRIANGLE)
        for j in range(i + 1):
            K[i, j] = values[top, start + j]
    barrier()


@njit_inline
def factorise(model, work, H):
    """Factorise K of the tile; return the relative jitter used, -1 on failure."""
    unpack(work.values, H, work.K)
    unit = mean_diagonal(work.K, H)
    return jittered_cholesky(work.K, work.chol, unit, model.jitter, work.blocks)


@njit_inline
def fill_point(model, X, active, row, H, work):
    """Gather the neighbours of X[row]; fill the tile, which ends with k and k(x, x)."""
    gather(model, active, row, H, work)
    for d in team_range(0, X.shape[1]):
        work.points[d, H] = X[row, d]
    barrier()
    points, values, slopes = work.points, work.values, work.slopes
    fill_tile(model, points, H + 1, points, TRIANGLE, values, slopes, 0)


@njit_inline
def factorise_point(model, X, active, row, H, work):
    """Fill the tile of X[row], factorise its K_w; return the relative jitter, or -1."""
    fill_point(model, X, active, row, H, work)
    return factorise(model, work, H)


@njit_inline
def point_posterior(model, work, H):
    """Set the `posterior` of the row that `factorise_point` has put into the tile."""
    start = row_start(H, TRIANGLE)
    kxx = work.values[work.values.shape[0] - 1, start + H]
    posterior(model, work, work, start, kxx, H)


@njit_inline
def point_bound(model, X, y, active, row, H, work):
    """Return E log p(y | f), KL_w and jitter of one row; set what `bound_vjp` reads."""
    jitter = factorise_point(model, X, active, row, H, work)
    ell = math.nan
    kl = math.nan
    if jitter >= 0.0:
        kl = divergence(model, work, H)
        point_posterior(model, work, H)
        ell = expected_log_prob(model, y, row, work)
    return ell, kl, jitter


@njit
def clear_columns(points, n):
    """Set the first n columns to zero."""
    for d in range(points.shape[0]):
        for h in team_range(0, n):
            points[d, h] = 0.0
    barrier()


@njit
def copy_columns(points, n, out, b):
    """Set out[b] to the first n columns of the points."""
    for d in range(points.shape[0]):
        for h in team_range(0, n):
            out[b, d, h] = points[d, h]
    barrier()


@njit_inline
def bound_vjp(model, H, weight, jitter, work, grads, b, c):
    """Adjoint of `point_bound` for weight (E log p - beta / W KL_w).

    Sets d_m, d_s or d_S, and d_Z of block b; adds to d_log and d_noise of chunk c.
    """
    kl_share = weight * model.kl_weight / model.total_weight
    divergence_vjp(model, work, H, kl_share, grads, b)
    g = posterior_vjp(model, work, work, H, weight, grads, b)
    covariance_vjp(work.d_K, work.a, work.half_adjoint, 1, H, jitter, work.adjoint)
    top, start = work.values.shape[0] - 1, row_start(H, TRIANGLE)
    cross_covariance_vjp(work.half_adjoint, work.a, g, H, work.adjoint, start)
    work.adjoint[top, start + H] = g
    barrier()
    points, d_points, n = work.points, work.d_points, H + 1
    d_log, moving = grads.d_log[c], model.train_inducing
    if moving:
        clear_columns(d_points, n)
    tile_vjp(
        model, points, n, points, TRIANGLE, work, 0, d_log, d_points, d_points, moving
    )
    if moving:
        copy_columns(d_points, H, grads.d_Z, b)
    for q in single(0, work.d_noise.shape[0]):
        grads.d_noise[c, q] += weight * work.d_noise[q]


@njit
def count_jitter(usual, jitter, jitter_counts, place):
    """Count a factorisation with extra jitter, or failed, in jitter_counts[place]."""
    if jitter < 0.0:
        jitter_counts[place, 1] += 1
    elif jitter > 1.5 * usual:
        jitter_counts[place, 0] += 1


DenseStack = namedtuple("DenseStack", "A R column d_column")


def allocate_stack(model, n, n_threads):
    """Allocate vectors from which d/dK of n rows follows, and a column a thread."""
    (M, D), dtype = model.Z.shape, model.Z.dtype
    return DenseStack(
        A=np.zeros((n, padded(M)), dtype),  # rows a_i
        R=np.zeros((n, padded(M)), dtype),  # rows r_i, see `Workspace.half_adjoint`
        column=np.zeros((n_threads, D, 1), dtype),  # a row of X
        d_column=np.zeros((n_threads, D, 1), dtype),
    )


@njit_inline
def factorise_dense(model, all_inducing, factor):
    """Factorise K of all inducing points (1, M); return KL and the relative jitter."""
    M = model.Z.shape[0]
    gather(model, all_inducing, 0, M, factor)
    Z, values, slopes = factor.points, factor.values, factor.slopes
    fill_tile(model, Z, M, Z, TRIANGLE, values, slopes, 0)
    jitter = factorise(model, factor, M)
    kl = math.nan
    if jitter >= 0.0:
        kl = divergence(model, factor, M)
    return kl, jitter


@njit_inline
def fill_dense_point(model, X, row, factor, work, column):
    """Set the covariances of X[row] with itself and with all inducing points."""
    for d in range(X.shape[1]):
        column[d, 0] = X[row, d]
    values, slopes, Z = work.values, work.slopes, factor.points
    fill_tile(model, column, 1, column, TRIANGLE, values, slopes, OWN)
    fill_tile(model, column, 1, Z, model.Z.shape[0], values, slopes, CROSS)


@njit_inline
def dense_bound(model, X, y, row, factor, work, column):
    """Return E log p(y | f) of one row; set in `work` what `dense_bound_vjp` reads."""
    fill_dense_point(model, X, row, factor, work, column)
    kxx = work.values[work.values.shape[0] - 1, OWN]
    posterior(model, factor, work, CROSS, kxx, model.Z.shape[0])
    return expected_log_prob(model, y, row, work)


@njit_inline
def dense_bound_vjp(model, i, weight, factor, work, stack, t, grads, c):
    """Adjoint of `dense_bound` for row i of the minibatch.

    Sets row i of the stack, from which d/dK follows; adds all else to chunk c.
    """
    M = model.Z.shape[0]
    g = posterior_vjp(model, factor, work, M, weight, grads, c)
    top = work.values.shape[0] - 1
    work.adjoint[top, OWN] = g
    cross_covariance_vjp(work.half_adjoint, work.a, g, M, work.adjoint, CROSS)
    for h in range(M):
        stack.A[i, h] = work.a[0, h]
        stack.R[i, h] = work.half_adjoint[0, h]
    x, d_x, Z = stack.column[t], stack.d_column[t], factor.points
    d_log, moving = grads.d_log[c], model.train_inducing
    tile_vjp(model, x, 1, x, TRIANGLE, work, OWN, d_log, d_x, d_x, moving)
    d_Z = grads.d_Z[c if moving else 0]
    tile_vjp(model, x, 1, Z, M, work, CROSS, d_log, d_x, d_Z, moving)
    for q in range(work.d_noise.shape[0]):
        grads.d_noise[c, q] += weight * work.d_noise[q]
