"""One datum: q(f) from its active inducing points, their prior divergence, adjoints.

Notation of the paper: w are the H active inducing points, K = k(Z_w, Z_w) + jitter,
k = k(Z_w, x), a = K^-1 k, alpha = K^-1 m_w. The objective of a batch is

    sum_i weight_i (E_q(f_i)[log p(y_i | f_i)] - beta / W KL_i),  W the sum of weights,

that is n / N times Algorithm 1, line 13. Functions that take `factor` besides `work`
read K^-1, m_w and S_w from the first; the two are one and the same unless all points
share them (H = M, see _shared). Derivatives go to block `b` of the `Gradients`, sums
over points to its chunk `c`.
"""

import math

from skswsgp._covariance import TRIANGLE, fill_tile, pull_tile, row_start
from skswsgp._jit import njit, njit_inline
from skswsgp._likelihoods import expected_log_prob
from skswsgp._linalg import (
    cholesky,
    invert_factor,
    log_determinant,
    multiply,
    product,
    product_symmetric,
    solve_lower,
    solve_upper,
    square_upper,
)

MAX_JITTER = 1e-2
TINY = 1e-6  # of the jitter: added to S, and the floor of variances


@njit_inline
def gather(model, active, row, H, work):
    """Copy Z_w, m_w and S_w of the inducing points active[row] to the work arrays."""
    for h in range(H):
        at = active[row, h]
        for d in range(model.Z.shape[1]):
            work.points[d, h] = model.Z[at, d]
        for q in range(model.m.shape[1]):
            work.m[q, h] = model.m[at, q]
            if not model.full:
                work.s[q, h] = model.s[at, q]
    if model.full:
        gather_covariance(model.L, active, row, H, work.S)


@njit
def gather_covariance(L, active, row, H, S):
    """S_w = L_w L_w' with L_w the active rows of L (section 3.3 of the paper)."""
    for q in range(S.shape[0]):
        for g in range(H):
            for h in range(g + 1):
                first, second = active[row, g], active[row, h]
                total = L.dtype.type(0.0)
                for j in range(min(first, second) + 1):
                    total += L[q, first, j] * L[q, second, j]
                S[q, g, h] = total
                S[q, h, g] = total


@njit
def mean_variance(A, size):
    """Mean of the diagonal of A, the unit of jitter and floors; 1 where it is zero."""
    mean = 0.0
    for i in range(size):
        mean += A[i, i]
    return mean / size if mean > 0.0 else 1.0


@njit
def robust_cholesky(A, L, size, jitter, block):
    """Factorise A + shift I = L L'; return shift relative to the mean of diag A.

    The first shift is jitter times that mean; after a failure it grows tenfold, at most
    to MAX_JITTER. Returns -1 when that is not enough.
    """
    mean = mean_variance(A, size)
    relative = jitter
    while relative < 1.5 * MAX_JITTER:
        if cholesky(A, L, relative * mean, block):
            return relative
        relative *= 10.0
    return -1.0


@njit_inline
def factorise(model, work, H):
    """Factorise K from the tile; return the relative jitter used, -1 on failure."""
    top = work.values.shape[0] - 1
    for i in range(H):
        start = row_start(i, TRIANGLE)
        for j in range(i + 1):
            work.K[i, j] = work.values[top, start + j]
    return robust_cholesky(work.K, work.chol, H, model.jitter, work.block)


@njit_inline
def factorise_covariance(model, work, H, q, out):
    """Cholesky factor of S_w of latent function q."""
    robust_cholesky(work.S[q], out, H, TINY * model.jitter, work.block)


@njit_inline
def divergence(model, work, H):
    """KL_w = 1/2 sum_q [tr(K^-1 S) + m' alpha - H + log|K| - log|S|].

    Sets K^-1 and alpha.
    """
    invert_factor(work.chol, work.upper, work.block)
    square_upper(work.upper, work.inverse, work.block)
    log_det_K = log_determinant(work.chol, H)
    kl = 0.0
    for q in range(work.m.shape[0]):
        multiply(work.inverse, work.m, q, H, work.alpha, q)
        kl += log_det_K - H
        for h in range(H):
            kl += work.m[q, h] * work.alpha[q, h]  # Mahalanobis term
        if model.full:
            for g in range(H):
                for h in range(H):
                    kl += work.inverse[g, h] * work.S[q, g, h]  # trace term
            factorise_covariance(model, work, H, q, work.first)
            kl -= log_determinant(work.first, H)
        else:
            for h in range(H):
                kl += work.inverse[h, h] * work.s[q, h] - math.log(work.s[q, h])
    return 0.5 * kl


@njit_inline
def pull_divergence(model, work, H, c, grads, b):
    """Set d_m, d_s or d_S of block b, and work.d_K, to the derivatives of -c KL_w.

    By S: -c/2 (K^-1 - S^-1); by K: -c/2 sum_q (K^-1 - K^-1 S K^-1 - alpha alpha').
    """
    Q = work.m.shape[0]
    for q in range(Q):
        for h in range(H):
            grads.d_m[b, q, h] = -c * work.alpha[q, h]
        if model.full:
            factorise_covariance(model, work, H, q, work.first)
            invert_factor(work.first, work.upper, work.block)
            square_upper(work.upper, work.first, work.block)
            for g in range(H):
                for h in range(H):
                    gap = work.inverse[g, h] - work.first[g, h]
                    grads.d_S[b, q, g, h] = -0.5 * c * gap
        else:
            for h in range(H):
                gap = work.inverse[h, h] - 1.0 / work.s[q, h]
                grads.d_s[b, q, h] = -0.5 * c * gap
    multiply_by_covariance(model, work, H)
    product_symmetric(work.first, work.inverse, work.second, work.block)
    for g in range(H):
        for h in range(g + 1):
            total = Q * work.inverse[g, h] - work.second[g, h]
            for q in range(Q):
                total -= work.alpha[q, g] * work.alpha[q, h]
            work.d_K[g, h] = -0.5 * c * total


@njit_inline
def multiply_by_covariance(model, work, H):
    """work.first = K^-1 sum_q S_q; rows and columns beyond H do not matter."""
    Q = work.m.shape[0]
    if model.full:
        for g in range(H):
            for h in range(H):
                work.second[g, h] = 0.0
                for q in range(Q):
                    work.second[g, h] += work.S[q, g, h]
        product(work.inverse, work.second, work.first, work.block)
    else:
        for h in range(H):
            work.vector[0, h] = 0.0
            for q in range(Q):
                work.vector[0, h] += work.s[q, h]
        for g in range(H):
            for h in range(H):
                work.first[g, h] = work.inverse[g, h] * work.vector[0, h]


@njit_inline
def regress(factor, work, start, kxx, H):
    """work.a = K^-1 k; returns F = k(x, x) - k' K^-1 k, at least zero.

    k begins at pair `start` of the tile of `work`. Sets vector[0] = L^-1 k.
    """
    top = work.values.shape[0] - 1
    for h in range(H):
        work.vector[1, h] = work.values[top, start + h]
    solve_lower(factor.chol, work.vector, 1, H, work.vector, 0)
    solve_upper(factor.chol, work.vector, H, work.a)
    F = kxx
    for h in range(H):
        F -= work.vector[0, h] ** 2
    return 0.0 if F < 0.0 else F


@njit_inline
def posterior_mean(factor, work, H):
    """mu = a' m_w of eq. 13 in work.latent[0]."""
    for q in range(factor.m.shape[0]):
        mu = 0.0
        for h in range(H):
            mu += work.a[0, h] * factor.m[q, h]
        work.latent[0, q] = mu


@njit_inline
def posterior(model, factor, work, start, kxx, H):
    """mu and v = F + V of eq. 13 in work.latent[0] and [1]; sets work.a.

    F = k(x, x) - k' K^-1 k, V = a' S_w a; v is at least TINY times the jitter.
    """
    F = regress(factor, work, start, kxx, H)
    posterior_mean(factor, work, H)
    floor = TINY * model.jitter * max(kxx, mean_variance(factor.K, H))
    for q in range(factor.m.shape[0]):
        V = 0.0
        if model.full:
            multiply(factor.S[q], work.a, 0, H, work.vector, 1)
            for h in range(H):
                V += work.a[0, h] * work.vector[1, h]
        else:
            for h in range(H):
                V += work.a[0, h] ** 2 * factor.s[q, h]
        v = F + V
        work.latent[1, q] = floor if v < floor else v


@njit_inline
def pull_posterior(model, factor, work, H, weight, grads, b):
    """Adjoint of `posterior` for the derivatives by mu and v in work.latent[2], [3].

    Adds to d_m, d_s or d_S of block b; sets work.r so that d/dK = a r' + r a' and
    d/dk = -2 r - g a, where g = d/d k(x, x) is returned.
    """
    for h in range(H):
        work.vector[0, h] = 0.0  # sum_q g_mu alpha
        work.vector[1, h] = 0.0  # sum_q g_v S a
    g = 0.0
    for q in range(factor.m.shape[0]):
        g_mu = weight * work.latent[2, q]
        g_v = weight * work.latent[3, q]
        g += g_v
        for h in range(H):
            work.vector[0, h] += g_mu * factor.alpha[q, h]
            grads.d_m[b, q, h] += g_mu * work.a[0, h]
        if model.full:
            multiply(factor.S[q], work.a, 0, H, work.r, 0)
            for h in range(H):
                work.vector[1, h] += g_v * work.r[0, h]
                for j in range(H):
                    grads.d_S[b, q, h, j] += g_v * work.a[0, h] * work.a[0, j]
        else:
            for h in range(H):
                a = work.a[0, h]
                work.vector[1, h] += g_v * factor.s[q, h] * a
                grads.d_s[b, q, h] += g_v * a * a
    multiply(factor.inverse, work.vector, 1, H, work.r, 0)
    for h in range(H):
        half = 0.5 * (g * work.a[0, h] - work.vector[0, h])
        work.r[0, h] = half - work.r[0, h]
    return g


@njit
def weigh_covariances(d_K, A, R, n, H, jitter, adjoint):
    """Fold d/dK = d_K + sum_{p < n} (a_p r_p' + r_p a_p') onto the triangle of a tile.

    A and R hold a_p and r_p as rows. The diagonal also takes its share in the jitter,
    jitter * mean(diag K). The result is the adjoint of the last operation.
    """
    top = adjoint.shape[0] - 1
    trace = 0.0
    for i in range(H):
        start = row_start(i, TRIANGLE)
        for j in range(i + 1):
            adjoint[top, start + j] = 2.0 * d_K[i, j]
        for p in range(n):
            a, r = 2.0 * A[p, i], 2.0 * R[p, i]
            for j in range(i + 1):
                adjoint[top, start + j] += a * R[p, j] + r * A[p, j]
        adjoint[top, start + i] *= 0.5
        trace += adjoint[top, start + i]
    for i in range(H):
        adjoint[top, row_start(i + 1, TRIANGLE) - 1] += jitter * trace / H


@njit_inline
def prepare(model, X, active, row, H, work):
    """Factorise K_w of X[row]; k(Z_w, x) and k(x, x) end the tile.

    Returns the relative jitter used, -1 on failure.
    """
    gather(model, active, row, H, work)
    for d in range(X.shape[1]):
        work.points[d, H] = X[row, d]
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
        ell = expected_log_prob(model, model.noise, y, row, work.latent, work.d_noise)
    return ell, kl, jitter


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
    for h in range(H):
        work.adjoint[top, start + h] = -2.0 * work.r[0, h] - g * work.a[0, h]
    work.adjoint[top, start + H] = g
    points, d_points, n = work.points, work.d_points, H + 1
    for d in range(points.shape[0]):
        for h in range(n):
            d_points[d, h] = 0.0
    d_log, moving = grads.d_log[c], model.train_inducing
    pull_tile(
        model, points, n, points, TRIANGLE, work, 0, d_log, d_points, d_points, moving
    )
    if moving:
        for d in range(points.shape[0]):
            for h in range(H):
                grads.d_Z[b, d, h] = d_points[d, h]
    for q in range(work.d_noise.shape[0]):
        grads.d_noise[c, q] += weight * work.d_noise[q]
