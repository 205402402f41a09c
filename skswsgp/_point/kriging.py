"""One datum from its noisy neighbours: simple kriging, its log density, its adjoint.

For output q, with neighbours w among data (Z, m), whose noise variances are
noise_q s_w, and a datum (x, y) of noise variance noise_q r:

    C = K_w + noise_q diag(s_w)     a = C^-1 k     mu = a' m_w     F = k(x, x) - k' a
    log p(y | m_w) = log N(y; mu, F + noise_q r)

A row of the array y holds the Q targets of a datum and then its Q ratios r. Functions
take a `Model` whose Z, m and s hold data in the place of inducing points. The product
of these densities over the data is the likelihood of Vecchia (1988).
"""

import math

from skswsgp._compiled.jit import njit_inline
from skswsgp._compiled.linalg import (
    RELATIVE_FLOOR,
    jittered_cholesky,
    mean_diagonal,
    solve,
    solve_transposed,
)
from skswsgp._compiled.special import LOG_2PI
from skswsgp._compiled.team import barrier, single, team_range, team_rank, team_sum
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._covariance.program import fill_tile, tile_vjp
from skswsgp._point.bound import gather, unpack
from skswsgp._point.posterior import conditional_weights, covariance_vjp


@njit_inline
def gather_data(model, X, active, row, H, work):
    """Copy the neighbours of X[row] to the work arrays and fill their tile."""
    gather(model, active, row, H, work)
    for d in team_range(0, X.shape[1]):
        work.points[d, H] = X[row, d]
    barrier()
    points, values, slopes = work.points, work.values, work.slopes
    fill_tile(model, points, H + 1, points, TRIANGLE, values, slopes, 0)


@njit_inline
def krige(model, work, H, q):
    """mu and F of output q in work.latent[0], [1]; sets work.a, and work.r = C^-1 m.

    Returns the relative jitter used, -1 on failure.
    """
    top, noise = work.values.shape[0] - 1, model.noise[q]
    unpack(work.values, H, work.K)
    unit = mean_diagonal(work.K, H)  # not of the noise, which small weights make large
    for i in team_range(0, H):
        work.K[i, i] += noise * work.s[q, i]
    barrier()
    jitter = jittered_cholesky(
        work.K, work.chol, unit, RELATIVE_FLOOR * model.jitter, work.blocks
    )
    if jitter >= 0.0:
        solve_transposed(work.chol, work.m, q, H, work.vector, 0)
        solve(work.chol, work.vector, 0, H, work.r, 0)
        start = row_start(H, TRIANGLE)
        F = conditional_weights(work, work, start, work.values[top, start + H], H)
        mu = 0.0
        for h in team_range(0, H):
            mu += work.a[0, h] * work.m[q, h]
        work.latent[0, q] = team_sum(mu)
        work.latent[1, q] = F
        barrier()
    return jitter


@njit_inline
def log_density(noise, y, row, q, latent, d_noise):
    """log N(y; mu, F + noise_q r).

    Sets latent[2], [3] and d_noise to the derivatives by mu, F and log(noise_q r).
    """
    own = noise[q] * y[row, latent.shape[1] + q]
    variance = latent[1, q] + own
    residual = y[row, q] - latent[0, q]
    square = residual * residual / variance
    latent[2, q] = residual / variance
    latent[3, q] = 0.5 * (square - 1.0) / variance
    d_noise[q] = own * latent[3, q]
    return -0.5 * (LOG_2PI + math.log(variance) + square)


@njit_inline
def kriging_vjp(model, work, H, q, weight, d_noise):
    """Adjoint of `krige` and `log_density`: adds to d_noise, d_K and the tile's end.

    d/dC = a r' + r a' with r = (g_F a - g_mu C^-1 m) / 2, and d/dk = -2 r - g_F a.
    """
    g_mu, g_F = weight * work.latent[2, q], weight * work.latent[3, q]
    top, start = work.values.shape[0] - 1, row_start(H, TRIANGLE)
    d_variance = 0.0
    lane, _ = team_rank()
    for i in range(H):
        if lane == 0:
            work.r[0, i] = 0.5 * (g_F * work.a[0, i] - g_mu * work.r[0, i])
        barrier()
        a, r = work.a[0, i], work.r[0, i]
        d_variance += 2.0 * a * r * work.s[q, i]
        if lane == 0:
            work.adjoint[top, start + i] += -2.0 * r - g_F * a
        for j in team_range(0, i + 1):
            work.d_K[i, j] += a * work.r[0, j] + r * work.a[0, j]
    for h in single(H, H + 1):
        work.adjoint[top, start + h] += g_F
        d_noise[q] += model.noise[q] * d_variance + weight * work.d_noise[q]
    barrier()


@njit_inline
def log_density_vjp(model, X, y, active, row, H, weight, work, d_log, d_noise):
    """Add the derivatives of weight log p(y | m_w) of one datum; return its value.

    NaN if C could not be factorised.
    """
    gather_data(model, X, active, row, H, work)
    top, start = work.values.shape[0] - 1, row_start(H, TRIANGLE)
    for i in team_range(0, H):
        for j in range(i + 1):
            work.d_K[i, j] = 0.0
    for h in team_range(0, H + 1):
        work.adjoint[top, start + h] = 0.0
    barrier()
    density = 0.0
    for q in range(work.m.shape[0]):
        if krige(model, work, H, q) < 0.0:
            density = math.nan
        else:
            density += log_density(model.noise, y, row, q, work.latent, work.d_noise)
            kriging_vjp(model, work, H, q, weight, d_noise)
    covariance_vjp(work.d_K, work.a, work.r, 0, H, 0.0, work.adjoint)
    Z, d_Z = work.points, work.d_points
    tile_vjp(model, Z, H + 1, Z, TRIANGLE, work, 0, d_log, d_Z, d_Z, False)
    return density
