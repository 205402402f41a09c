"""TODO docstring."""

from skswsgp._compiled.jit import njit, njit_inline, njit_small
from skswsgp._compiled.linalg import (
    RELATIVE_FLOOR,
    invert_factor,
    jittered_cholesky,
    log_determinant,
    matvec,
    mean_diagonal,
    square_upper,
    sum_of_logs,
    transposed_product,
    transposed_product_lower,
)
from skswsgp._compiled.team import barrier, once, team_range, team_sum
from skswsgp._point.full_covariance import active_covariance

# --- KL_w -----------------------------------------------------------------------------


@njit
def compute_divergence(
    chol, m, s, S, full, tiny, H, upper, inverse, alpha, first, blocks
):
    """KL_w = 1/2 sum_q [tr(K^-1 S) + m' alpha - H + log|K| - log|S|].

    Sets K^-1 and alpha. S is shifted by `tiny`, relative to its diagonal, to factorise.
    """
    invert_factor(chol, blocks, upper)
    square_upper(upper, inverse)
    log_det_K = log_determinant(chol, H)
    kl = 0.0
    for q in range(m.shape[0]):
        matvec(inverse, m, q, H, alpha, q)
        kl += once(log_det_K - H)
        for h in team_range(0, H):
            kl += m[q, h] * alpha[q, h]  # Mahalanobis term
        if full:
            for g in team_range(0, H):
                for h in range(H):
                    kl += inverse[g, h] * S[q, g, h]  # trace term
            jittered_cholesky(S[q], first, mean_diagonal(S[q], H), tiny, blocks)
            kl -= once(log_determinant(first, H))
        else:
            for h in team_range(0, H):
                kl += inverse[h, h] * s[q, h]
            kl -= sum_of_logs(s, q, H)
    return 0.5 * team_sum(kl)


@njit
def compute_divergence_vjp(
    c, inverse, alpha, s, S, full, tiny, H, upper, first, blocks, d_m, d_s, d_S, b
):
    """Set block b of d_m, and of d_s or d_S, to the derivatives of -c KL_w.

    By S: -c/2 (K^-1 - S^-1).
    """
    for q in range(alpha.shape[0]):
        for h in team_range(0, H):
            d_m[b, q, h] = -c * alpha[q, h]
        if full:
            jittered_cholesky(S[q], first, mean_diagonal(S[q], H), tiny, blocks)
            invert_factor(first, blocks, upper)
            square_upper(upper, first)
            for g in team_range(0, H):
                for h in range(H):
                    d_S[b, q, g, h] = -0.5 * c * (inverse[g, h] - first[g, h])
            barrier()
        else:
            for h in team_range(0, H):
                d_s[b, q, h] = -0.5 * c * (inverse[h, h] - 1.0 / s[q, h])
    barrier()


@njit
def compute_prior_vjp(c, inverse, alpha, s, S, full, H, vector, first, second, d_K):
    """Set d_K to the derivative of -c KL_w by K, the lower triangle.

    It is -c/2 sum_q (K^-1 - K^-1 S K^-1 - alpha alpha').
    """
    Q = alpha.shape[0]
    if full:
        sum_matrices(S, second)
        transposed_product(second, inverse, first)
    else:
        scale_rows(inverse, s, H, vector, first)
    transposed_product_lower(first, inverse, second)
    for g in team_range(0, H):
        for h in range(g + 1):
            d_K[g, h] = -0.5 * c * (Q * inverse[g, h] - second[g, h])
        for q in range(Q):
            weight = 0.5 * c * alpha[q, g]
            for h in range(g + 1):
                d_K[g, h] += weight * alpha[q, h]
    barrier()


@njit_small
def sum_matrices(S, out):
    """out = sum_q S_q."""
    for g in team_range(0, out.shape[0]):
        for h in range(out.shape[0]):
            out[g, h] = 0.0
            for q in range(S.shape[0]):
                out[g, h] += S[q, g, h]
    barrier()


@njit_small
def scale_rows(inverse, s, H, vector, out):
    """out = sum_q diag(s_q) K^-1, zero beyond H."""
    for h in team_range(0, out.shape[0]):
        vector[0, h] = 0.0
    for q in range(s.shape[0]):
        for h in team_range(0, H):
            vector[0, h] += s[q, h]
    for g in team_range(0, out.shape[0]):
        scale = vector[0, g]
        for h in range(out.shape[0]):
            out[g, h] = scale * inverse[g, h]
    barrier()


@njit_inline
def divergence(model, work, H):
    """KL_w; sets K^-1, alpha and a full S_w."""
    if model.full:
        active_covariance(model.L, work.rows, H, work.S)
    return compute_divergence(
        work.chol,
        work.m,
        work.s,
        work.S,
        model.full,
        RELATIVE_FLOOR * model.jitter,
        H,
        work.upper,
        work.inverse,
        work.alpha,
        work.first,
        work.blocks,
    )


@njit_inline
def divergence_vjp(model, work, H, c, grads, b):
    """Set d_m, d_s or d_S of block b, and work.d_K, to the derivatives of -c KL_w."""
    inverse, alpha, s, S = work.inverse, work.alpha, work.s, work.S
    full, first = model.full, work.first
    compute_divergence_vjp(
        c,
        inverse,
        alpha,
        s,
        S,
        full,
        RELATIVE_FLOOR * model.jitter,
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
    compute_prior_vjp(c, inverse, alpha, s, S, full, H, vector, first, second, d_K)
