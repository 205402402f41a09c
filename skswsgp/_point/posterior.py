"""KL_w and q(f) of eq. 13, and their adjoints, on the work arrays of one datum.

Notation of the paper: w are the H active inducing points, K = k(Z_w, Z_w) + jitter,
k = k(Z_w, x), a = K^-1 k, alpha = K^-1 m_w. The covariance S_w of each of Q latent
functions is diag(s) or, where `full`, S = L_w L_w'. Functions take single arrays: a
struct of all work arrays costs more to hand over than few active points cost to work
on.
"""

from skswsgp._compiled.jit import njit, njit_inline
from skswsgp._compiled.linalg import (
    RELATIVE_FLOOR,
    matvec,
    mean_diagonal,
    solve,
    solve_transposed,
)
from skswsgp._compiled.team import barrier, once, team_range, team_sum
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._point.full_covariance import quadratic_form

# --- q(f) -----------------------------------------------------------------------------


@njit
def compute_weights(k, start, kxx, chol, H, vector, a):
    """a = K^-1 k; returns F = k(x, x) - k' a, at least zero.

    k is the last row of `k`, a tile, from `start`. Sets vector[0] = R^-T k.
    """
    top = k.shape[0] - 1
    for h in team_range(0, H):
        vector[1, h] = k[top, start + h]
    barrier()
    solve_transposed(chol, vector, 1, H, vector, 0)
    solve(chol, vector, 0, H, a, 0)
    F = once(kxx)
    for h in team_range(0, H):
        F -= vector[0, h] * vector[0, h]
    F = team_sum(F)
    return 0.0 if F < 0.0 else F


@njit
def compute_mean(a, m, H, latent):
    """latent[0] = mu = a' m_w of eq. 13."""
    for q in range(m.shape[0]):
        mu = 0.0
        for h in team_range(0, H):
            mu += a[0, h] * m[q, h]
        latent[0, q] = team_sum(mu)
    barrier()


@njit
def compute_variance(F, a, s, L, rows, full, H, floor, projection, latent):
    """latent[1] = v = F + a' S_w a of eq. 13, at least `floor`."""
    for q in range(latent.shape[1]):
        v = once(F)
        if full:
            v += once(quadratic_form(L, q, rows, H, a, projection))
        else:
            for h in team_range(0, H):
                v += a[0, h] * a[0, h] * s[q, h]
        v = team_sum(v)
        latent[1, q] = floor if v < floor else v
    barrier()


@njit
def compute_posterior_vjp(
    weight, latent, a, inverse, alpha, s, S, full, H, vector, r, d_m, d_s, d_S, b
):
    """Adjoint of mu and v for the derivatives by them in latent[2], [3].

    Adds to block b of d_m, d_s or d_S; sets r so that d/dK = a r' + r a' and
    d/dk = -2 r - g a, where g = d/d k(x, x) is returned.
    """
    for h in team_range(0, H):
        vector[0, h] = 0.0  # sum_q g_mu alpha
        vector[1, h] = 0.0  # sum_q g_v S a
    g = 0.0
    for q in range(alpha.shape[0]):
        g_mu, g_v = weight * latent[2, q], weight * latent[3, q]
        g += g_v
        for h in team_range(0, H):
            vector[0, h] += g_mu * alpha[q, h]
            d_m[b, q, h] += g_mu * a[0, h]
        if full:
            matvec(S[q], a, 0, H, r, 0)
            for h in team_range(0, H):
                vector[1, h] += g_v * r[0, h]
                for j in range(H):
                    d_S[b, q, h, j] += g_v * a[0, h] * a[0, j]
        else:
            for h in team_range(0, H):
                vector[1, h] += g_v * s[q, h] * a[0, h]
                d_s[b, q, h] += g_v * a[0, h] * a[0, h]
    barrier()
    matvec(inverse, vector, 1, H, r, 0)
    for h in team_range(0, H):
        r[0, h] = 0.5 * (g * a[0, h] - vector[0, h]) - r[0, h]
    barrier()
    return g


@njit
def covariance_vjp(d_K, A, R, n, H, jitter, adjoint):
    """Fold d/dK = d_K + sum_{p < n} (a_p r_p' + r_p a_p') onto the triangle of a tile.

    A and R hold a_p and r_p as rows. The diagonal also takes its share in the jitter,
    jitter * mean(diag K). The result is the adjoint of the last operation.
    """
    top = adjoint.shape[0] - 1
    trace = 0.0
    for i in team_range(0, H):
        start = row_start(i, TRIANGLE)
        for j in range(i + 1):
            adjoint[top, start + j] = 2.0 * d_K[i, j]
        for p in range(n):
            a, r = 2.0 * A[p, i], 2.0 * R[p, i]
            for j in range(i + 1):
                adjoint[top, start + j] += a * R[p, j] + r * A[p, j]
        adjoint[top, start + i] *= 0.5
        trace += adjoint[top, start + i]
    trace = team_sum(trace)
    for i in team_range(0, H):
        adjoint[top, row_start(i + 1, TRIANGLE) - 1] += jitter * trace / H
    barrier()


@njit
def cross_covariance_vjp(r, a, g, H, adjoint, start):
    """Adjoint -2 r - g a of k, from pair `start` of the last operation of a tile."""
    top = adjoint.shape[0] - 1
    for h in team_range(0, H):
        adjoint[top, start + h] = -2.0 * r[0, h] - g * a[0, h]
    barrier()


@njit_inline
def conditional_weights(factor, work, start, kxx, H):
    """work.a = K^-1 k; returns F = k(x, x) - k' K^-1 k.

    k begins at pair `start` of the tile of `work`.
    """
    return compute_weights(work.values, start, kxx, factor.chol, H, work.vector, work.a)


@njit_inline
def posterior_mean(factor, work, H):
    """mu of eq. 13 in work.latent[0]."""
    compute_mean(work.a, factor.m, H, work.latent)


@njit_inline
def posterior(model, factor, work, start, kxx, H):
    """mu and v of eq. 13 in work.latent[0] and [1]; sets work.a.

    v is at least TINY times the jitter.
    """
    F = conditional_weights(factor, work, start, kxx, H)
    posterior_mean(factor, work, H)
    floor = RELATIVE_FLOOR * model.jitter * max(kxx, mean_diagonal(factor.K, H))
    compute_variance(
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
def posterior_vjp(model, factor, work, H, weight, grads, b):
    """Adjoint of `posterior` for the derivatives by mu and v in work.latent[2], [3]."""
    return compute_posterior_vjp(
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
