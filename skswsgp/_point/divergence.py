"""KL_w, the divergence of q(u_w) from the prior of the active points.

Notation and the two kinds of functions are those of `posterior`.
"""

from skswsgp._compiled import linalg
from skswsgp._compiled.jit import njit_inline, njit_inner
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
