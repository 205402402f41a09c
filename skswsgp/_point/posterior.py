"""q(f) of eq. 13 and adjoints of covariances, on the work arrays of one row of data.

Notation of the paper: w are the H active inducing points, K = k(Z_w, Z_w) + jitter,
k = k(Z_w, x), a = K^-1 k, alpha = K^-1 m_w. The covariance S_w of each of the Q latent
functions is diag(s) or, where `full` is set, S = L_w L_w'.

A function whose name begins with an underscore takes single arrays, and the function of
that name without the underscore takes structs: handing a struct of all work arrays to a
compiled function costs more than the arithmetic on few active points. Functions that
take `factor` besides `work` read K^-1, m_w and S_w from `factor`. The two are the same
struct unless all inducing points are active, when all rows share K.
"""

from skswsgp._compiled import linalg
from skswsgp._compiled.jit import njit, njit_inline, njit_inner, njit_small
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._point.full_covariance import quadratic_form


@njit_inline
def conditional_weights(factor, work, start, H):
    """Set work.a = K^-1 k; return F = k(x, x) - k' a. k and k(x, x) are at `start`."""
    scratch = work.scratch
    return _conditional_weights(work.values, start, factor.chol, H, scratch, work.a)


@njit_inner
def _conditional_weights(values, start, chol, H, scratch, a):
    """Set a = K^-1 k and scratch[0] = R^-T k; return F = k(x, x) - k' a, at least 0."""
    top = values.shape[0] - 1
    for h in range(H):
        scratch[1, h] = values[top, start + h]
    linalg.solve_transposed(chol, scratch, 1, H, scratch, 0)
    linalg.solve(chol, scratch, 0, H, a, 0)
    F = values[top, start + H]
    for h in range(H):
        F -= scratch[0, h] * scratch[0, h]
    return 0.0 if F < 0.0 else F


@njit_small
def weighted_mean(a, m, q, H):
    """Return mu = a' m_w of eq. 13 for latent function q."""
    mu = 0.0
    for h in range(H):
        mu += a[0, h] * m[q, h]
    return mu


@njit
def posterior_mean(a, m, H, mean):
    """Set mean[q] = a' m_w of eq. 13."""
    for q in range(m.shape[0]):
        mean[q] = weighted_mean(a, m, q, H)


@njit_inline
def variance_floor(model, factor, work, start, H):
    """Return the least variance of a row: RELATIVE_FLOOR times the jitter of K."""
    kxx = work.values[work.values.shape[0] - 1, start + H]
    unit = max(kxx, linalg.mean_diagonal(factor.K, H))
    return linalg.RELATIVE_FLOOR * model.jitter * unit


@njit_inline
def posterior(model, factor, work, start, H):
    """Set mu and v of eq. 13, v at least `variance_floor`; sets a."""
    F = conditional_weights(factor, work, start, H)
    posterior_mean(work.a, factor.m, H, work.mean)
    floor = variance_floor(model, factor, work, start, H)
    _posterior_variance(
        F, work.a, factor.s, model.L, factor.rows, model.full, H, floor,
        work.projection, work.variance,
    )  # fmt: skip


@njit_inner
def _posterior_variance(F, a, s, L, rows, full, H, floor, projection, variance):
    """Set variance[q] = v = F + a' S_w a of eq. 13, at least `floor`."""
    for q in range(variance.shape[0]):
        v = F
        if full:
            v += quadratic_form(L, q, rows, H, a, projection)
        else:
            for h in range(H):
                v += a[0, h] * a[0, h] * s[q, h]
        variance[q] = floor if v < floor else v


@njit_inner
def covariance_vjp(d_K, A, R, n, H, jitter, adjoint):
    """Fold d/dK = d_K + sum_{p < n} (a_p r_p' + r_p a_p') onto the triangle of a tile.

    A and R hold a_p and r_p as rows. The diagonal also takes its part in the jitter,
    jitter * mean(diag K). The result is the adjoint of the last operation of the tile.
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
