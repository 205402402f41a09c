"""Evaluations of one row of data, for the loops of the CPU.

Each function sets entry `row` of its output arrays, which stay as they are where K_w
cannot be factorised. `work` are the work arrays of thread t; a factorisation that
failed or needed extra jitter is counted in counts[t].
"""

import math

from skswsgp._compiled.jit import njit_inline
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._point import bound
from skswsgp._point.kriging import factorise_data, krige, mean_slopes
from skswsgp._point.likelihoods import expected_log_prob
from skswsgp._point.posterior import conditional_weights, variance_floor


@njit_inline
def weights_row(model, X, active, row, noisy, work, weights, residual, counts, t):
    """Compute a = C^-1 k (R, H) and F = k(x, x) - k' a (R,).

    C is K_w, R = 1, and F at least `variance_floor`; or if `noisy` C is
    K_w + noise_q diag(s_w) of each output, R = Q.
    """
    H = active.shape[1]
    bound.fill_point(model, X, active, row, H, work)
    for r in range(weights.shape[1]):
        if noisy:
            jitter = factorise_data(model, work, H, r)
        else:
            jitter = bound.factorise(model, work, H)
        bound.count_jitter(model.jitter, jitter, counts, t)
        if jitter >= 0.0:
            start = row_start(H, TRIANGLE)
            F = conditional_weights(work, work, start, H)
            floor = 0.0 if noisy else variance_floor(model, work, work, start, H)
            residual[row, r] = max(F, floor)
            for h in range(weights.shape[2]):  # H, or 0 for F alone
                weights[row, r, h] = work.a[0, h]


@njit_inline
def expectation_row(model, y, mu, v, row, work, ell, d_mu, d_v):
    """Compute E log p(y | f), f ~ N(mu, v), and its derivatives by mu and v (Q,)."""
    for q in range(mu.shape[1]):
        work.mean[q] = mu[row, q]
        work.variance[q] = v[row, q]
    ell[row] = expected_log_prob(model, y, row, work)
    for q in range(mu.shape[1]):
        d_mu[row, q] = work.d_mean[q]
        d_v[row, q] = work.d_variance[q]


@njit_inline
def bound_row(model, X, y, active, row, work, ell, kl, counts, t):
    """Compute E log p(y | f) and KL_w, NaN where K_w cannot be factorised."""
    H = active.shape[1]
    ell[row], kl[row], jitter = bound.point_bound(model, X, y, active, row, H, work)
    bound.count_jitter(model.jitter, jitter, counts, t)


@njit_inline
def kriging_slopes_row(model, X, active, row, work, slopes, d_log):
    """Compute the derivatives of the mean of kriging by x (Q, D), NaN after a failure.

    d_log (n, P) takes those by the logarithms of the kernel parameters.
    """
    H = active.shape[1]
    bound.fill_point(model, X, active, row, H, work)
    for q in range(slopes.shape[1]):
        found = krige(model, work, H, q) >= 0.0
        mean_slopes(model, work, H, q, d_log[row])
        for d in range(slopes.shape[2]):
            slopes[row, q, d] = work.d_points[d, H] if found else math.nan
