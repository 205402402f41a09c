"""KL_w, the divergence of q(u_w) from the prior of the active points, and its adjoint.

Notation and the two kinds of functions are those of `posterior`.
"""

from skswsgp._compiled import linalg
from skswsgp._compiled.jit import njit_inline, njit_inner, njit_small
from skswsgp._point.full_covariance import active_covariance


@njit_inline
def divergence(model, work, H):
    """Return KL_w; sets K^-1, alpha and, for a full covariance, S_w."""
    if model.full:
        active_covariance(model.L, work.rows, H, work.S)
    return _divergence(
        work.chol, work.m, work.s, work.S, model.full,
        linalg.RELATIVE_FLOOR * model.jitter, H,
        work.upper, work.inverse, work.alpha, work.S_inverse, work.blocks,
    )  # fmt: skip


@njit_inner
def _divergence(
    chol, m, s, S, full, S_jitter, H, upper, inverse, alpha, S_factor, blocks
):
    """Return KL_w = 1/2 sum_q [tr(K^-1 S) + m' alpha - H + log|K| - log|S|].

    Sets K^-1 and alpha. A full S is factorised with the relative jitter `S_jitter`.
    """
    linalg.invert_factor(chol, blocks, upper)
    linalg.square_upper(upper, inverse)
    log_det_K = linalg.log_determinant(chol, H)
    kl = 0.0
    for q in range(m.shape[0]):
        linalg.matvec(inverse, m, q, H, alpha, q)
        kl += log_det_K - H
        for h in range(H):
            kl += m[q, h] * alpha[q, h]  # Mahalanobis term
        if full:
            for g in range(H):
                for h in range(H):
                    kl += inverse[g, h] * S[q, g, h]  # trace term
            unit = linalg.mean_diagonal(S[q], H)
            linalg.jittered_cholesky(S[q], S_factor, unit, S_jitter, blocks)
            kl -= linalg.log_determinant(S_factor, H)
        else:
            for h in range(H):
                kl += inverse[h, h] * s[q, h]
            kl -= linalg.sum_of_logs(s, q, H)
    return 0.5 * kl


@njit_inline
def divergence_vjp(model, work, H, c, grads, b):
    """Set block b of d_m and of d_s or d_S, and work.d_K, to derivatives of -c KL_w."""
    _divergence_vjp(
        c, work.inverse, work.alpha, work.s, work.S, model.full,
        linalg.RELATIVE_FLOOR * model.jitter, H,
        work.upper, work.S_inverse, work.blocks,
        grads.d_m, grads.d_s, grads.d_S, b,
    )  # fmt: skip
    _divergence_by_K(
        c, work.inverse, work.alpha, work.s, work.S, model.full, H, work.scratch,
        work.S_inverse, work.sandwich, work.d_K,
    )  # fmt: skip


@njit_inner
def _divergence_vjp(
    c, inverse, alpha, s, S, full, S_jitter, H, upper, S_inverse, blocks,
    d_m, d_s, d_S, b,
):  # fmt: skip
    """Set block b of d_m and of d_s or d_S to the derivatives of -c KL_w.

    The derivative by S is -c/2 (K^-1 - S^-1).
    """
    for q in range(alpha.shape[0]):
        for h in range(H):
            d_m[b, q, h] = -c * alpha[q, h]
        if full:
            unit = linalg.mean_diagonal(S[q], H)
            linalg.jittered_cholesky(S[q], S_inverse, unit, S_jitter, blocks)
            linalg.invert_factor(S_inverse, blocks, upper)
            linalg.square_upper(upper, S_inverse)
            for g in range(H):
                for h in range(H):
                    d_S[b, q, g, h] = -0.5 * c * (inverse[g, h] - S_inverse[g, h])
        else:
            for h in range(H):
                d_s[b, q, h] = -0.5 * c * (inverse[h, h] - 1.0 / s[q, h])


@njit_inner
def _divergence_by_K(c, inverse, alpha, s, S, full, H, scratch, product, sandwich, d_K):
    """Set the lower triangle of d_K to the derivative of -c KL_w by K.

    The derivative is -c/2 sum_q (K^-1 - K^-1 S K^-1 - alpha alpha'). `product` takes
    sum_q S_q K^-1.
    """
    Q = alpha.shape[0]
    if full:
        for g in range(sandwich.shape[0]):
            for h in range(sandwich.shape[0]):
                sandwich[g, h] = 0.0
                for q in range(Q):
                    sandwich[g, h] += S[q, g, h]
        linalg.transposed_product(sandwich, inverse, product, False)
    else:
        scale_rows(inverse, s, H, scratch, product)
    linalg.transposed_product(product, inverse, sandwich, True)
    for g in range(H):
        for h in range(g + 1):
            d_K[g, h] = -0.5 * c * (Q * inverse[g, h] - sandwich[g, h])
        for q in range(Q):
            weight = 0.5 * c * alpha[q, g]
            for h in range(g + 1):
                d_K[g, h] += weight * alpha[q, h]


@njit_small
def scale_rows(inverse, s, H, scratch, out):
    """Set out = sum_q diag(s_q) K^-1, with zeros in the rows from H on."""
    for h in range(out.shape[0]):
        scratch[0, h] = 0.0
    for q in range(s.shape[0]):
        for h in range(H):
            scratch[0, h] += s[q, h]
    for g in range(out.shape[0]):
        scale = scratch[0, g]
        for h in range(out.shape[0]):
            out[g, h] = scale * inverse[g, h]
