"""One row from its noisy neighbours: simple kriging, its log density, its adjoint.

For output q, with neighbours w among data (Z, m), whose noise variances are
noise_q s_w, and a row (x, y) of noise variance noise_q ratio:

    C = K_w + noise_q diag(s_w)     a = C^-1 k     mu = a' m_w     F = k(x, x) - k' a
    log p(y | m_w) = log N(y; mu, F + noise_q ratio)

A row of the array y holds the Q targets of a row of X and then its Q ratios. Functions
take a `Model` whose Z, m and s hold data in the place of inducing points. The product
of these densities over the data is the likelihood of Vecchia (1988).
"""

import math

from skswsgp._compiled import linalg
from skswsgp._compiled.jit import njit_inline
from skswsgp._compiled.special import compiled_log_density
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._covariance.program import CHOLESKY, tile_vjp
from skswsgp._point.bound import clear_points, fill_point, unpack
from skswsgp._point.posterior import conditional_weights, covariance_vjp, weighted_mean


@njit_inline
def factorise_data(model, work, H, q, noisy):
    """Factorise C of the tile of `fill_point`, or K_w unless `noisy`.

    Returns its relative jitter, or -1.
    """
    unpack(work.values, H, work.K)
    # The unit of jitter excludes the noise, which is large for a small weight
    unit, least = linalg.mean_diagonal(work.K, H), model.jitter
    if noisy:
        least = linalg.RELATIVE_FLOOR * model.jitter
        for i in range(H):
            work.K[i, i] += model.noise[q] * work.s[q, i]
    given = work.K, work.chol, unit, least, work.blocks
    return linalg.call_cholesky(work.calls[CHOLESKY], given)


@njit_inline
def krige(model, work, H, q):
    """Set work.mean[q] to mu and work.variance[q] to F, for the tile of `fill_point`.

    Sets work.a and work.alpha[q] = C^-1 m_w. Returns the relative jitter of C, or -1.
    """
    jitter = factorise_data(model, work, H, q, True)
    if jitter >= 0.0:
        linalg.solve_transposed(work.chol, work.m, q, H, work.scratch, 0)
        linalg.solve(work.chol, work.scratch, 0, H, work.alpha, q)
        F = conditional_weights(work, work, row_start(H, TRIANGLE), H)
        work.mean[q], work.variance[q] = weighted_mean(work.a, work.m, q, H), F
    return jitter


@njit_inline
def log_density(model, y, row, q, work):
    """Return log N(y; mu, F + noise_q ratio) of output q.

    Sets the derivatives by mu, F and log(noise_q ratio).
    """
    own = model.noise[q] * y[row, work.mean.shape[0] + q]
    variance = work.variance[q] + own
    residual = y[row, q] - work.mean[q]
    square = residual * residual / variance
    work.d_mean[q] = residual / variance
    work.d_variance[q] = 0.5 * (square - 1.0) / variance
    work.d_noise[q] = own * work.d_variance[q]
    return compiled_log_density(square, math.log(variance))


@njit_inline
def kriging_vjp(model, work, H, q, weight, d_noise):
    """Adjoint of `krige` and `log_density` for output q, times the weight of the row.

    Adds to work.d_K, work.adjoint and d_noise. d/dC = a r' + r a' with r = (g_F a -
    g_mu C^-1 m) / 2, and d/dk = -2 r - g_F a.
    """
    g_mu, g_F = weight * work.d_mean[q], weight * work.d_variance[q]
    top, start = work.values.shape[0] - 1, row_start(H, TRIANGLE)
    half = work.half_adjoint
    for h in range(H):
        half[0, h] = 0.5 * (g_F * work.a[0, h] - g_mu * work.alpha[q, h])
        work.adjoint[top, start + h] += -2.0 * half[0, h] - g_F * work.a[0, h]
    d_variance = 0.0
    for i in range(H):
        a, r = work.a[0, i], half[0, i]
        d_variance += 2.0 * a * r * work.s[q, i]
        for j in range(i + 1):
            work.d_K[i, j] += a * half[0, j] + r * work.a[0, j]
    work.adjoint[top, start + H] += g_F
    d_noise[q] += model.noise[q] * d_variance + weight * work.d_noise[q]


@njit_inline
def mean_slopes(model, work, H, q, d_log):
    """Set work.d_points[:, H] to dmu/dx = sum_h (C^-1 m_w)_h dk(x, z_h)/dx, output q.

    Adds the derivatives by the logarithms of the kernel parameters to d_log.
    """
    top, start = work.values.shape[0] - 1, row_start(H, TRIANGLE)
    for p in range(start):
        work.adjoint[top, p] = 0.0
    for h in range(H):
        work.adjoint[top, start + h] = work.alpha[q, h]
    work.adjoint[top, start + H] = 0.0
    clear_points(work.d_points, H + 1)
    Z, d_Z = work.points, work.d_points
    tile_vjp(model, Z, H + 1, Z, TRIANGLE, work, 0, d_log, d_Z, d_Z, True)


@njit_inline
def log_density_vjp(model, X, y, active, row, H, weight, work, d_log, d_noise, inputs):
    """Return log p(y | m_w) of one row, NaN where C has no factor.

    Adds `weight` times its derivatives by the logarithms of the kernel parameters to
    d_log, and by those of the noise variances to d_noise. If `inputs` is true, sets
    work.d_points (D, H + 1) to `weight` times those by the neighbours and by X[row].
    """
    fill_point(model, X, active, row, H, work)
    top, start = work.values.shape[0] - 1, row_start(H, TRIANGLE)
    for i in range(H):
        for j in range(i + 1):
            work.d_K[i, j] = 0.0
    for h in range(H + 1):
        work.adjoint[top, start + h] = 0.0
    density = 0.0
    for q in range(work.m.shape[0]):
        if krige(model, work, H, q) < 0.0:
            density = math.nan
        else:
            density += log_density(model, y, row, q, work)
            kriging_vjp(model, work, H, q, weight, d_noise)
    covariance_vjp(work.d_K, work.a, work.half_adjoint, 0, H, 0.0, work.adjoint)
    Z, d_Z = work.points, work.d_points
    clear_points(d_Z, H + 1)
    tile_vjp(model, Z, H + 1, Z, TRIANGLE, work, 0, d_log, d_Z, d_Z, inputs)
    return density
