"""One datum: its tile, its q(f) and divergence, and the way back; structs of arrays.

The objective of a batch is

    sum_i weight_i (E_q(f_i)[log p(y_i | f_i)] - beta / W KL_i),  W the sum of weights,

that is n / N times Algorithm 1, line 13. Functions that take `factor` besides `work`
read K^-1, m_w and S_w from the first; the two are one and the same unless all points
share them (H = M, see _shared). Derivatives go to block `b` of the `Gradients`, sums
over points to its chunk `c`. The formulas stand in _variational.
"""

import math

from skswsgp import _variational as formulas
from skswsgp._covariance import TRIANGLE, fill_tile, pull_tile, row_start
from skswsgp._factor import covariance
from skswsgp._jit import njit, njit_inline
from skswsgp._lanes import solo, span, sync
from skswsgp._likelihoods import expected_log_prob
from skswsgp._variational import (
    mean_variance,
    pull_cross,
    robust_cholesky,
    weigh_covariances,
)

TINY = 1e-6  # of the jitter: added to S, and the floor of variances


@njit
def gather_rows(values, active, row, H, out):
    """out[j, h] = values[active[row, h], j]."""
    for h in span(0, H):
        at = active[row, h]
        for j in range(values.shape[1]):
            out[j, h] = values[at, j]


@njit_inline
def gather(model, active, row, H, work):
    """Copy active[row] = w and Z_w, m_w and s_w to the work arrays."""
    for h in span(0, H):
        work.rows[h] = active[row, h]
    gather_rows(model.Z, active, row, H, work.points)
    gather_rows(model.m, active, row, H, work.m)
    if not model.full:
        gather_rows(model.s, active, row, H, work.s)
    sync()


@njit
def unpack(values, H, K):
    """Copy the covariances of the first H points of a tile to the triangle of K."""
    top = values.shape[0] - 1
    for i in span(0, H):
        start = row_start(i, TRIANGLE)
        for j in range(i + 1):
            K[i, j] = values[top, start + j]
    sync()


@njit_inline
def factorise(model, work, H):
    """Factorise K from the tile; return the relative jitter used, -1 on failure."""
    unpack(work.values, H, work.K)
    unit = mean_variance(work.K, H)
    return robust_cholesky(work.K, work.chol, unit, model.jitter, work.blocks)


@njit_inline
def divergence(model, work, H):
    """KL_w; sets K^-1, alpha and a full S_w."""
    if model.full:
        covariance(model.L, work.rows, H, work.S)
    return formulas.divergence(
        work.chol,
        work.m,
        work.s,
        work.S,
        model.full,
        TINY * model.jitter,
        H,
        work.upper,
        work.inverse,
        work.alpha,
        work.first,
        work.blocks,
    )


@njit_inline
def pull_divergence(model, work, H, c, grads, b):
    """Set d_m, d_s or d_S of block b, and work.d_K, to the derivatives of -c KL_w."""
    inverse, alpha, s, S = work.inverse, work.alpha, work.s, work.S
    full, first = model.full, work.first
    formulas.pull_divergence(
        c,
        inverse,
        alpha,
        s,
        S,
        full,
        TINY * model.jitter,
        H,
        work.upper,
        first,
        work.blocks,
        grads.d_m,
        grads.d_s,
        grads.d_S,
        b,
    )
    vector, second, d_K = work.vector, work.second, work.d_K
    formulas.pull_prior(c, inverse, alpha, s, S, full, H, vector, first, second, d_K)


@njit_inline
def regress(factor, work, start, kxx, H):
    """work.a = K^-1 k; returns F = k(x, x) - k' K^-1 k.

    k begins at pair `start` of the tile of `work`.
    """
    return formulas.regress(
        work.values, start, kxx, factor.chol, H, work.vector, work.a
    )


@njit_inline
def posterior_mean(factor, work, H):
    """mu of eq. 13 in work.latent[0]."""
    formulas.posterior_mean(work.a, factor.m, H, work.latent)


@njit_inline
def posterior(model, factor, work, start, kxx, H):
    """mu and v of eq. 13 in work.latent[0] and [1]; sets work.a.

    v is at least TINY times the jitter.
    """
    F = regress(factor, work, start, kxx, H)
    posterior_mean(factor, work, H)
    floor = TINY * model.jitter * max(kxx, mean_variance(factor.K, H))
    formulas.posterior_variance(
        F,
        work.a,
        factor.s,
        model.L,
        factor.rows,
        model.full,
        H,
        floor,
        work.projection,
        work.latent,
    )


@njit_inline
def pull_posterior(model, factor, work, H, weight, grads, b):
    """Adjoint of `posterior` for the derivatives by mu and v in work.latent[2], [3]."""
    return formulas.pull_posterior(
        weight,
        work.latent,
        work.a,
        factor.inverse,
        factor.alpha,
        factor.s,
        factor.S,
        model.full,
        H,
        work.vector,
        work.r,
        grads.d_m,
        grads.d_s,
        grads.d_S,
        b,
    )


@njit_inline
def prepare(model, X, active, row, H, work):
    """Factorise K_w of X[row]; k(Z_w, x) and k(x, x) end the tile.

    Returns the relative jitter used, -1 on failure.
    """
    gather(model, active, row, H, work)
    for d in span(0, X.shape[1]):
        work.points[d, H] = X[row, d]
    sync()
    Z, values, slopes = work.points, work.values, work.slopes
    fill_tile(model, Z, H + 1, Z, TRIANGLE, values, slopes, 0)
    return factorise(model, work, H)


@njit_inline
def posterior_of_tile(model, work, H):
    """`posterior` of the point that `prepare` has put at the end of the tile."""
    start = row_start(H, TRIANGLE)
    kxx = work.values[work.values.shape[0] - 1, start + H]
    posterior(model, work, work, start, kxx, H)


@njit_inline
def evaluate(model, X, y, active, row, H, work):
    """Return E log p(y | f), KL_w and the relative jitter; keeps what adjoints need."""
    jitter = prepare(model, X, active, row, H, work)
    ell = math.nan
    kl = math.nan
    if jitter >= 0.0:
        kl = divergence(model, work, H)
        posterior_of_tile(model, work, H)
        ell = expected_log_prob(
            model, model.noise, y, row, work.latent, work.scratch, work.d_noise
        )
    return ell, kl, jitter


@njit
def clear_columns(points, n):
    """Set the first n columns to zero."""
    for d in range(points.shape[0]):
        for h in span(0, n):
            points[d, h] = 0.0
    sync()


@njit
def copy_columns(points, n, out, b):
    """out[b] = the first n columns."""
    for d in range(points.shape[0]):
        for h in span(0, n):
            out[b, d, h] = points[d, h]
    sync()


@njit_inline
def differentiate(model, H, weight, jitter, work, grads, b, c):
    """Adjoint of `evaluate` for weight (E log p - beta / W KL_w).

    Sets d_m, d_s or d_S, and d_Z of block b; adds to d_log and d_noise of chunk c.
    """
    share = weight * model.kl_weight / model.total_weight
    pull_divergence(model, work, H, share, grads, b)
    g = pull_posterior(model, work, work, H, weight, grads, b)
    weigh_covariances(work.d_K, work.a, work.r, 1, H, jitter, work.adjoint)
    top, start = work.values.shape[0] - 1, row_start(H, TRIANGLE)
    pull_cross(work.r, work.a, g, H, work.adjoint, start)
    work.adjoint[top, start + H] = g
    sync()
    points, d_points, n = work.points, work.d_points, H + 1
    d_log, moving = grads.d_log[c], model.train_inducing
    if moving:
        clear_columns(d_points, n)
    pull_tile(
        model, points, n, points, TRIANGLE, work, 0, d_log, d_points, d_points, moving
    )
    if moving:
        copy_columns(d_points, H, grads.d_Z, b)
    for q in solo(0, work.d_noise.shape[0]):
        grads.d_noise[c, q] += weight * work.d_noise[q]
