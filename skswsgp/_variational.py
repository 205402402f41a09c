"""KL_w and q(f) of eq. 13, and their adjoints, on the work arrays of one datum.

Notation of the paper: w are the H active inducing points, K = k(Z_w, Z_w) + jitter,
k = k(Z_w, x), a = K^-1 k, alpha = K^-1 m_w. The covariance S_w of each of Q latent
functions is diag(s) or, where `full`, S = L_w L_w'. Functions take single arrays: a
struct of all work arrays costs more to hand over than few active points cost to work
on.
"""

from skswsgp._covariance import TRIANGLE, row_start
from skswsgp._factor import quadratic
from skswsgp._jit import njit, njit_small
from skswsgp._lanes import once, span, sync, total
from skswsgp._linalg import (
    cholesky,
    invert_factor,
    log_determinant,
    multiply,
    product,
    product_lower,
    solve,
    solve_transposed,
    square_upper,
    sum_of_logs,
)

MAX_JITTER = 1e-2


@njit_small
def mean_variance(A, size):
    """Mean of the diagonal of A, the unit of jitter and floors; 1 where it is zero."""
    mean = 0.0
    for i in span(0, size):
        mean += A[i, i]
    mean = total(mean)
    return mean / size if mean > 0.0 else 1.0


@njit
def robust_cholesky(A, R, unit, jitter, blocks):
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


# --- KL_w -----------------------------------------------------------------------------


@njit
def divergence(chol, m, s, S, full, tiny, H, upper, inverse, alpha, first, blocks):
    """KL_w = 1/2 sum_q [tr(K^-1 S) + m' alpha - H + log|K| - log|S|].

    Sets K^-1 and alpha. S is shifted by `tiny`, relative to its diagonal, to factorise.
    """
    invert_factor(chol, blocks, upper)
    square_upper(upper, inverse)
    log_det_K = log_determinant(chol, H)
    kl = 0.0
    for q in range(m.shape[0]):
        multiply(inverse, m, q, H, alpha, q)
        kl += once(log_det_K - H)
        for h in span(0, H):
            kl += m[q, h] * alpha[q, h]  # Mahalanobis term
        if full:
            for g in span(0, H):
                for h in range(H):
                    kl += inverse[g, h] * S[q, g, h]  # trace term
            robust_cholesky(S[q], first, mean_variance(S[q], H), tiny, blocks)
            kl -= once(log_determinant(first, H))
        else:
            for h in span(0, H):
                kl += inverse[h, h] * s[q, h]
            kl -= sum_of_logs(s, q, H)
    return 0.5 * total(kl)


@njit
def pull_divergence(
    c, inverse, alpha, s, S, full, tiny, H, upper, first, blocks, d_m, d_s, d_S, b
):
    """Set block b of d_m, and of d_s or d_S, to the derivatives of -c KL_w.

    By S: -c/2 (K^-1 - S^-1).
    """
    for q in range(alpha.shape[0]):
        for h in span(0, H):
            d_m[b, q, h] = -c * alpha[q, h]
        if full:
            robust_cholesky(S[q], first, mean_variance(S[q], H), tiny, blocks)
            invert_factor(first, blocks, upper)
            square_upper(upper, first)
            for g in span(0, H):
                for h in range(H):
                    d_S[b, q, g, h] = -0.5 * c * (inverse[g, h] - first[g, h])
            sync()
        else:
            for h in span(0, H):
                d_s[b, q, h] = -0.5 * c * (inverse[h, h] - 1.0 / s[q, h])
    sync()


@njit
def pull_prior(c, inverse, alpha, s, S, full, H, vector, first, second, d_K):
    """Set d_K to the derivative of -c KL_w by K, the lower triangle.

    It is -c/2 sum_q (K^-1 - K^-1 S K^-1 - alpha alpha').
    """
    Q = alpha.shape[0]
    if full:
        sum_matrices(S, second)
        product(second, inverse, first)
    else:
        scale_rows(inverse, s, H, vector, first)
    product_lower(first, inverse, second)
    for g in span(0, H):
        for h in range(g + 1):
            d_K[g, h] = -0.5 * c * (Q * inverse[g, h] - second[g, h])
        for q in range(Q):
            weight = 0.5 * c * alpha[q, g]
            for h in range(g + 1):
                d_K[g, h] += weight * alpha[q, h]
    sync()


@njit_small
def sum_matrices(S, out):
    """out = sum_q S_q."""
    for g in span(0, out.shape[0]):
        for h in range(out.shape[0]):
            out[g, h] = 0.0
            for q in range(S.shape[0]):
                out[g, h] += S[q, g, h]
    sync()


@njit_small
def scale_rows(inverse, s, H, vector, out):
    """out = sum_q diag(s_q) K^-1, zero beyond H."""
    for h in span(0, out.shape[0]):
        vector[0, h] = 0.0
    for q in range(s.shape[0]):
        for h in span(0, H):
            vector[0, h] += s[q, h]
    for g in span(0, out.shape[0]):
        scale = vector[0, g]
        for h in range(out.shape[0]):
            out[g, h] = scale * inverse[g, h]
    sync()


# --- q(f) -----------------------------------------------------------------------------


@njit
def regress(k, start, kxx, chol, H, vector, a):
    """a = K^-1 k; returns F = k(x, x) - k' a, at least zero.

    k is the last row of `k`, a tile, from `start`. Sets vector[0] = R^-T k.
    """
    top = k.shape[0] - 1
    for h in span(0, H):
        vector[1, h] = k[top, start + h]
    sync()
    solve_transposed(chol, vector, 1, H, vector, 0)
    solve(chol, vector, 0, H, a, 0)
    F = once(kxx)
    for h in span(0, H):
        F -= vector[0, h] * vector[0, h]
    F = total(F)
    return 0.0 if F < 0.0 else F


@njit
def posterior_mean(a, m, H, latent):
    """latent[0] = mu = a' m_w of eq. 13."""
    for q in range(m.shape[0]):
        mu = 0.0
        for h in span(0, H):
            mu += a[0, h] * m[q, h]
        latent[0, q] = total(mu)
    sync()


@njit
def posterior_variance(F, a, s, L, rows, full, H, floor, projection, latent):
    """latent[1] = v = F + a' S_w a of eq. 13, at least `floor`."""
    for q in range(latent.shape[1]):
        v = once(F)
        if full:
            v += once(quadratic(L, q, rows, H, a, projection))
        else:
            for h in span(0, H):
                v += a[0, h] * a[0, h] * s[q, h]
        v = total(v)
        latent[1, q] = floor if v < floor else v
    sync()


@njit
def pull_posterior(
    weight, latent, a, inverse, alpha, s, S, full, H, vector, r, d_m, d_s, d_S, b
):
    """Adjoint of mu and v for the derivatives by them in latent[2], [3].

    Adds to block b of d_m, d_s or d_S; sets r so that d/dK = a r' + r a' and
    d/dk = -2 r - g a, where g = d/d k(x, x) is returned.
    """
    for h in span(0, H):
        vector[0, h] = 0.0  # sum_q g_mu alpha
        vector[1, h] = 0.0  # sum_q g_v S a
    g = 0.0
    for q in range(alpha.shape[0]):
        g_mu, g_v = weight * latent[2, q], weight * latent[3, q]
        g += g_v
        for h in span(0, H):
            vector[0, h] += g_mu * alpha[q, h]
            d_m[b, q, h] += g_mu * a[0, h]
        if full:
            multiply(S[q], a, 0, H, r, 0)
            for h in span(0, H):
                vector[1, h] += g_v * r[0, h]
                for j in range(H):
                    d_S[b, q, h, j] += g_v * a[0, h] * a[0, j]
        else:
            for h in span(0, H):
                vector[1, h] += g_v * s[q, h] * a[0, h]
                d_s[b, q, h] += g_v * a[0, h] * a[0, h]
    sync()
    multiply(inverse, vector, 1, H, r, 0)
    for h in span(0, H):
        r[0, h] = 0.5 * (g * a[0, h] - vector[0, h]) - r[0, h]
    sync()
    return g


@njit
def weigh_covariances(d_K, A, R, n, H, jitter, adjoint):
    """Fold d/dK = d_K + sum_{p < n} (a_p r_p' + r_p a_p') onto the triangle of a tile.

    A and R hold a_p and r_p as rows. The diagonal also takes its share in the jitter,
    jitter * mean(diag K). The result is the adjoint of the last operation.
    """
    top = adjoint.shape[0] - 1
    trace = 0.0
    for i in span(0, H):
        start = row_start(i, TRIANGLE)
        for j in range(i + 1):
            adjoint[top, start + j] = 2.0 * d_K[i, j]
        for p in range(n):
            a, r = 2.0 * A[p, i], 2.0 * R[p, i]
            for j in range(i + 1):
                adjoint[top, start + j] += a * R[p, j] + r * A[p, j]
        adjoint[top, start + i] *= 0.5
        trace += adjoint[top, start + i]
    trace = total(trace)
    for i in span(0, H):
        adjoint[top, row_start(i + 1, TRIANGLE) - 1] += jitter * trace / H
    sync()


@njit
def pull_cross(r, a, g, H, adjoint, start):
    """Adjoint -2 r - g a of k, from pair `start` of the last operation of a tile."""
    top = adjoint.shape[0] - 1
    for h in span(0, H):
        adjoint[top, start + h] = -2.0 * r[0, h] - g * a[0, h]
    sync()
