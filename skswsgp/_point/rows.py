"""Evaluations of one row of data, for the loops of both devices.

Each function sets entry `row` of its output arrays, which stay as they are where K_w
cannot be factorised. `work` are the work arrays of thread or slot t; a factorisation
that failed or needed extra jitter is counted in counts[t].
"""

import math

from skswsgp._compiled.jit import njit_inline
from skswsgp._compiled.team import barrier, single, team_range
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._point import bound
from skswsgp._point.kriging import krige, mean_slopes
from skswsgp._point.likelihoods import expected_log_prob
from skswsgp._point.posterior import conditional_weights, posterior, posterior_mean


@njit_inline
def factorise_row(model, X, active, row, work, counts, t):
    """Factorise K_w of X[row]; return whether this succeeded."""
    jitter = bound.factorise_point(model, X, active, row, active.shape[1], work)
    for slot in single(t, t + 1):
        bound.count_jitter(model.jitter, jitter, counts, slot)
    barrier()
    return jitter >= 0.0


@njit_inline
def store_posterior(model, factor, work, start, row, H, mu, v):
    """Set a row of mu and, if v (n, Q) has rows, of v; k begins at pair `start`."""
    if v.shape[0] > 0:
        posterior(model, factor, work, start, H)
    else:
        conditional_weights(factor, work, start, H)
        posterior_mean(work.a, factor.m, H, work.mean)
    for q in team_range(0, mu.shape[1]):
        mu[row, q] = work.mean[q]
        if v.shape[0] > 0:
            v[row, q] = work.variance[q]
    barrier()


@njit_inline
def posterior_row(model, X, active, row, work, mu, v, counts, t):
    """Compute mu and, if v (n, Q) has rows, v of eq. 13."""
    H = active.shape[1]
    if factorise_row(model, X, active, row, work, counts, t):
        store_posterior(model, work, work, row_start(H, TRIANGLE), row, H, mu, v)


@njit_inline
def weights_row(model, X, active, row, work, weights, residual, counts, t):
    """Compute a = K_w^-1 k (H,) and F = k(x, x) - k' a."""
    H = active.shape[1]
    if factorise_row(model, X, active, row, work, counts, t):
        residual[row] = conditional_weights(work, work, row_start(H, TRIANGLE), H)
        for h in team_range(0, H):
            weights[row, h] = work.a[0, h]
        barrier()


@njit_inline
def expectation_row(model, y, mu, v, row, work, ell, d_mu, d_v):
    """Compute E log p(y | f), f ~ N(mu, v), and its derivatives by mu and v (Q,)."""
    for q in team_range(0, mu.shape[1]):
        work.mean[q] = mu[row, q]
        work.variance[q] = v[row, q]
    barrier()
    ell[row] = expected_log_prob(model, y, row, work)
    for q in range(mu.shape[1]):
        d_mu[row, q] = work.d_mean[q]
        d_v[row, q] = work.d_variance[q]
    barrier()


@njit_inline
def bound_row(model, X, y, active, row, work, ell, kl, counts, t):
    """Compute E log p(y | f) and KL_w, NaN where K_w cannot be factorised."""
    H = active.shape[1]
    ell[row], kl[row], jitter = bound.point_bound(model, X, y, active, row, H, work)
    for slot in single(t, t + 1):
        bound.count_jitter(model.jitter, jitter, counts, slot)
    barrier()


@njit_inline
def kriging_row(model, X, active, row, work, mu, v):
    """Compute mu and F of kriging (Q,), NaN where C cannot be factorised."""
    H = active.shape[1]
    bound.fill_point(model, X, active, row, H, work)
    for q in range(mu.shape[1]):
        found = krige(model, work, H, q) >= 0.0
        for i in single(row, row + 1):
            mu[i, q] = work.mean[q] if found else math.nan
            v[i, q] = work.variance[q] if found else math.nan
    barrier()


@njit_inline
def kriging_slopes_row(model, X, active, row, work, slopes, d_log):
    """Compute the derivatives of the mean of kriging by x (Q, D), NaN as above.

    d_log (n, P) takes those by the logarithms of the kernel parameters.
    """
    H = active.shape[1]
    bound.fill_point(model, X, active, row, H, work)
    for q in range(slopes.shape[1]):
        found = krige(model, work, H, q) >= 0.0
        mean_slopes(model, work, H, q, d_log[row])
        for d in team_range(0, slopes.shape[2]):
            slopes[row, q, d] = work.d_points[d, H] if found else math.nan
        barrier()
