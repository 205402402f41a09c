"""Loops over rows of data on the threads of the CPU: evaluation, kriging.

A minibatch is cut into CHUNKS pieces whatever the number of threads. Each piece has its
own accumulators, which are added in order, so results do not depend on the number of
threads. Work arrays belong to threads, accumulators to chunks. Loops with `prange` are
called within `parallel_region`; in the others thread t takes rows `first` to `last`.
`CpuEngine` passes arrays of the rows, results and jitter counts to all of them. Results
of a row stay as they are where its matrix has no factor, and entry t of the counts has
the factorisations that failed or needed extra jitter.
"""

import math
from collections import namedtuple

import numpy as np

from skswsgp._compiled.jit import njit, njit_inner
from skswsgp._compiled.threads import CHUNKS, chunk_bounds, run_in_threads
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._point import bound
from skswsgp._point.kriging import factorise_data, krige, log_density_vjp, mean_slopes
from skswsgp._point.likelihoods import expected_log_prob
from skswsgp._point.posterior import conditional_weights, variance_floor
from skswsgp._point.state import Workspace, thread_view, work_of


@njit_inner
def clear_chunk(grads, chunk):
    """Set the sums over a chunk to zero."""
    grads.d_log[chunk] = 0.0
    grads.d_noise[chunk] = 0.0
    grads.sums[chunk] = 0.0


@njit
def factorise_shared(model, active, factors, counts):
    """Factorise K of the points active[0]; return KL and the relative jitter."""
    H, factor = active.shape[1], thread_view(factors, 0)
    kl, jitter = bound.factorise_dense(model, active, H, factor)
    bound.count_jitter(model.jitter, jitter, counts, 0)
    return kl, jitter


@njit
def weights_rows(first, last, t, model, work, X, active, noisy, a, F, counts):
    """Compute a = C^-1 k (n, R, H) and F = k(x, x) - k' a (n, R).

    C is K_w, R = 1, and F at least `variance_floor`; or if `noisy` C is
    K_w + noise_q diag(s_w) of each output, R = Q.
    """
    H = active.shape[1]
    start = row_start(H, TRIANGLE)
    for row in range(first, last):
        bound.fill_point(model, X, active, row, H, work)
        for r in range(a.shape[1]):
            jitter = factorise_data(model, work, H, r, noisy)
            bound.count_jitter(model.jitter, jitter, counts, t)
            if jitter >= 0.0:
                rest = conditional_weights(work, work, start, H)
                floor = 0.0 if noisy else variance_floor(model, work, work, start, H)
                F[row, r] = max(rest, floor)
                for h in range(a.shape[2]):  # H, or 0 for F alone
                    a[row, r, h] = work.a[0, h]


@njit
def weighted_rows(first, last, t, weights, lists, values, squares, out):
    """Set out[i, q] = sum_h weights[i, r, h] values[lists[i, h], q], (n, Q).

    There are R = Q weights, r = q, or one for all, R = 1. They are squared if asked to.
    """
    for i in range(first, last):
        for q in range(out.shape[1]):
            r, total = min(q, weights.shape[1] - 1), 0.0
            for h in range(lists.shape[1]):
                weight = weights[i, r, h]
                factor = weight * weight if squares else weight
                total += factor * values[np.uint64(lists[i, h]), q]
            out[i, q] = total


@njit
def expectation_rows(first, last, t, model, work, y, mu, v, ell, d_mu, d_v, counts):
    """Compute E log p(y | f) (n,), f ~ N(mu, v), and derivatives by mu, v (n, Q)."""
    for row in range(first, last):
        for q in range(mu.shape[1]):
            work.mean[q] = mu[row, q]
            work.variance[q] = v[row, q]
        ell[row] = expected_log_prob(model, y, row, work)
        for q in range(mu.shape[1]):
            d_mu[row, q] = work.d_mean[q]
            d_v[row, q] = work.d_variance[q]


@njit
def bound_rows(first, last, t, model, work, X, y, active, ell, kl, counts):
    """Compute E log p(y | f) (n,) and KL_w (n,), NaN where K_w has no factor."""
    H = active.shape[1]
    for row in range(first, last):
        ell[row], kl[row], jitter = bound.point_bound(model, X, y, active, row, H, work)
        bound.count_jitter(model.jitter, jitter, counts, t)


@njit
def kriging_slopes_rows(first, last, t, model, work, X, active, slopes, d_log, counts):
    """Compute the derivatives of the mean of kriging by x (n, Q, D), NaN on failure.

    d_log (n, P) takes those by the logarithms of the kernel parameters.
    """
    H = active.shape[1]
    for row in range(first, last):
        bound.fill_point(model, X, active, row, H, work)
        for q in range(slopes.shape[1]):
            found = krige(model, work, H, q) >= 0.0
            mean_slopes(model, work, H, q, d_log[row])
            for d in range(slopes.shape[2]):
                slopes[row, q, d] = work.d_points[d, H] if found else math.nan


# For derivatives by a map of the columns, x = W' x0. Without a map the arrays have no
# entries; the axes of threads and chunks come first.
MapGradient = namedtuple("MapGradient", "Z X points d_map")


def allocate_map_gradient(before, X, n_neighbors, n_threads, n_columns):
    """Return the `MapGradient` for Z (N, D) and X (n, D) before the map, to D' columns.

    `before` is Z, or None without a map.
    """
    if before is None:
        return MapGradient(*np.empty((2, 0, 0), X.dtype), *np.empty((2, 0, 0, 0)))
    points = np.empty((n_threads, before.shape[1], n_neighbors + 1), X.dtype)
    return MapGradient(before, X, points, np.empty((CHUNKS, X.shape[1], n_columns)))


@njit_inner
def add_map_gradient(before, c, t, active, row, d_points):
    """Add sum_h x0_h (d/dx_h)' over the neighbours of a row, and itself, to d_map."""
    points, d_map, H = before.points[t], before.d_map[c], active.shape[1]
    bound.gather_rows(before.Z, active, row, H, points)
    for d in range(points.shape[0]):
        points[d, H] = before.X[row, d]
    for d in range(points.shape[0]):
        for j in range(d_map.shape[1]):
            amount = 0.0
            for h in range(H + 1):
                amount += points[d, h] * d_points[j, h]
            d_map[d, j] += amount


@njit
def kriging_gradient_chunks(
    first, last, t, model, batch, start, n, work, grads, before
):
    """Compute derivatives of the log density of chunks `first` to `last` of n rows."""
    moving = before.d_map.shape[0] > 0
    X, y, active, H = batch.X, batch.y, batch.active, batch.active.shape[1]
    for c in range(first, last):
        clear_chunk(grads, c)
        if moving:
            before.d_map[c] = 0.0
        d_log, d_noise = grads.d_log[c], grads.d_noise[c]
        begin, end = chunk_bounds(c, n)
        for row in range(start + begin, start + end):
            weight = batch.weight[row]
            grads.sums[c, 0] += weight * log_density_vjp(
                model, X, y, active, row, H, weight, work, d_log, d_noise, moving
            )
            if moving:
                add_map_gradient(before, c, t, active, row, work.d_points)


def kriging_gradients(model, batch, start, n, works, grads, before):
    """Compute derivatives of sum_i weight_i log p(y_i | m_w), n rows from `start`."""

    def work(first, last, t):
        given = model, batch, start, n, work_of(works, t, Workspace), grads, before
        kriging_gradient_chunks(first, last, t, *given)

    run_in_threads(work, len(works.a), CHUNKS)
    # In NumPy, which need not be compiled as `add_chunks` must
    for sums in grads.d_log, grads.d_noise, grads.sums, before.d_map:
        for c in range(1, len(sums)):
            sums[0] += sums[c]
