"""Adjoints of the term of one row in the bound, and of its divergence KL_w.

Notation is that of `_point.bound`, `_point.posterior` and `_point.divergence`.
"""

from skswsgp._compiled import linalg, tiles
from skswsgp._compiled.jit import njit, njit_inline, njit_inner, njit_small
from skswsgp._compiled.tiles import BLOCK
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._covariance.program import tile_vjp
from skswsgp._point.bound import clear_points
from skswsgp._point.posterior import covariance_vjp


@njit_inline
def bound_vjp(model, H, weight, jitter, work, grads, b, c):
    """Adjoint of `point_bound` for weight (E log p - beta / W KL_w).

    Sets d_m, d_s or d_S, and d_Z of block b; adds to d_log and d_noise of chunk c.
    """
    kl_share = weight * model.kl_weight / model.total_weight
    divergence_vjp(model, work, H, kl_share, grads, b)
    g = posterior_vjp(model, work, work, H, weight, grads, b)
    r, start = work.half_adjoint, row_start(H, TRIANGLE)
    covariance_vjp(work.d_K, work.a, r, 1, H, jitter, work.adjoint)
    cross_covariance_vjp(r, work.a, g, H, work.adjoint, start)
    Z, d_Z, n = work.points, work.d_points, H + 1
    d_log, moving = grads.d_log[c], model.train_inducing
    if moving:
        clear_points(d_Z, n)
    tile_vjp(model, Z, n, Z, TRIANGLE, work, 0, d_log, d_Z, d_Z, moving)
    if moving:
        for d in range(d_Z.shape[0]):
            for h in range(H):
                grads.d_Z[b, d, h] = d_Z[d, h]
    for q in range(work.d_noise.shape[0]):
        grads.d_noise[c, q] += weight * work.d_noise[q]


@njit_inline
def posterior_vjp(model, factor, work, H, weight, grads, b):
    """Adjoint of `posterior`, for `weight` times work.d_mean and work.d_variance.

    Adds to block b of the gradients, sets work.half_adjoint, returns d/d k(x, x).
    """
    return _posterior_vjp(
        weight, work.d_mean, work.d_variance, work.a, factor.inverse, factor.alpha,
        factor.s, factor.S, model.full, H, work.scratch, work.half_adjoint,
        grads.d_m, grads.d_s, grads.d_S, b,
    )  # fmt: skip


@njit_inner
def _posterior_vjp(
    weight, d_mean, d_variance, a, inverse, alpha, s, S, full, H, scratch, r,
    d_m, d_s, d_S, b,
):  # fmt: skip
    """Adjoint of mu and v for `weight` times their derivatives d_mean and d_variance.

    Adds to block b of d_m and of d_s or d_S. Sets r so that d/dK = a r' + r a' and
    d/dk = -2 r - g a, where g = d/d k(x, x) is returned.
    """
    for h in range(H):
        scratch[0, h] = 0.0  # sum_q g_mu alpha
        scratch[1, h] = 0.0  # sum_q g_v S a
    g = 0.0
    for q in range(alpha.shape[0]):
        g_mu, g_v = weight * d_mean[q], weight * d_variance[q]
        g += g_v
        for h in range(H):
            scratch[0, h] += g_mu * alpha[q, h]
            d_m[b, q, h] += g_mu * a[0, h]
        if full:
            linalg.matvec(S[q], a, 0, H, r, 0)
            for h in range(H):
                scratch[1, h] += g_v * r[0, h]
                for j in range(H):
                    d_S[b, q, h, j] += g_v * a[0, h] * a[0, j]
        else:
            for h in range(H):
                scratch[1, h] += g_v * s[q, h] * a[0, h]
                d_s[b, q, h] += g_v * a[0, h] * a[0, h]
    linalg.matvec(inverse, scratch, 1, H, r, 0)
    for h in range(H):
        r[0, h] = 0.5 * (g * a[0, h] - scratch[0, h]) - r[0, h]
    return g


@njit_inner
def cross_covariance_vjp(r, a, g, H, adjoint, start):
    """Set the adjoints of k, -2 r - g a, and k(x, x), g, from pair `start` on."""
    top = adjoint.shape[0] - 1
    for h in range(H):
        adjoint[top, start + h] = -2.0 * r[0, h] - g * a[0, h]
    adjoint[top, start + H] = g


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
        transposed_product(sandwich, inverse, product, False)
    else:
        scale_rows(inverse, s, H, scratch, product)
    transposed_product(product, inverse, sandwich, True)
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


@njit
def transposed_product(X, Y, A, lower):
    """Set A = X' Y, or if `lower` only its tiles on and below the diagonal."""
    side = X.shape[0]
    for i in range(0, side, BLOCK):
        for j in range(0, i + 1 if lower else side, BLOCK):
            tiles.set_products(X, i, Y, j, 0, side, A, i, j)
