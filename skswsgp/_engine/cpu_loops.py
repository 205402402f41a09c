"""Loops over rows of data on the threads of the CPU: gradients, evaluation, kriging.

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
from numba import get_thread_id, prange

from skswsgp._compiled.jit import njit, njit_inline, njit_inner, njit_parallel
from skswsgp._compiled.pointers import by_address
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
def gradient_chunks(model, batch, start, n, begin, end, works, t, grads):
    """Compute gradients of chunks of n rows from `start`, each row with its own K_w."""
    work = thread_view(works, t)
    X, y, active, H = batch.X, batch.y, batch.active, batch.active.shape[1]
    for c in range(begin, end):
        clear_chunk(grads, c)
        first, last = chunk_bounds(c, n)
        for i in range(first, last):
            row = start + i
            weight = batch.weight[row]
            ell, kl, jitter = bound.point_bound(model, X, y, active, row, H, work)
            bound.count_jitter(model.jitter, jitter, grads.jitter_counts, c)
            grads.sums[c, 0] += weight * ell
            grads.sums[c, 1] += weight * kl
            if jitter >= 0.0:
                bound.bound_vjp(model, H, weight, jitter, work, grads, i, c)


@njit
def dense_gradient_chunks(
    model, batch, start, n, H, begin, end, factors, works, t, stack, grads
):
    """Compute gradients of chunks of n rows from `start`; K is factorised already."""
    factor, work = thread_view(factors, 0), thread_view(works, t)
    column = stack.column[t]
    for c in range(begin, end):
        clear_chunk(grads, c)
        grads.d_m[c] = 0.0
        grads.d_s[0 if model.full else c] = 0.0
        grads.d_S[c if model.full else 0] = 0.0
        grads.d_Z[c if model.train_inducing else 0] = 0.0
        first, last = chunk_bounds(c, n)
        for i in range(first, last):
            row = start + i
            weight = batch.weight[row]
            ell = bound.dense_bound(
                model, batch.X, batch.y, row, H, factor, work, column
            )
            grads.sums[c, 0] += weight * ell
            bound.dense_bound_vjp(model, i, weight, H, factor, work, stack, t, grads, c)


@njit
def factorise_shared(model, active, factors, counts):
    """Factorise K of the points active[0]; return KL and the relative jitter."""
    H, factor = active.shape[1], thread_view(factors, 0)
    kl, jitter = bound.factorise_dense(model, active, H, factor)
    bound.count_jitter(model.jitter, jitter, counts, 0)
    return kl, jitter


@njit_inner
def end_dense_step(model, batch, start, n, H, kl, jitter, factors, stack, grads):
    """Add the blocks of derivatives, the divergence and d/dK to the first block."""
    factor = thread_view(factors, 0)
    total = 0.0
    for i in range(n):
        total += batch.weight[start + i]
    for c in range(1, CHUNKS):
        add_blocks(model, grads, c)
    if model.train_inducing:
        for c in range(1, CHUNKS):
            add_block(grads.d_Z, c)
    free = 1  # a block that has been added by now
    bound.dense_divergence_vjp(model, n, H, total, jitter, factor, stack, grads, free)
    add_blocks(model, grads, free)
    grads.sums[0, 1] = total * kl


@njit_inner
def add_block(values, block):
    """Add values[block] to values[0]."""
    flat = values.reshape(values.shape[0], values[0].size)
    for i in range(flat.shape[1]):
        flat[0, i] += flat[block, i]


@njit_inline
def add_blocks(model, grads, block):
    """Add a block of derivatives by m and S to the first block."""
    add_block(grads.d_m, block)
    if model.full:
        add_block(grads.d_S, block)
    else:
        add_block(grads.d_s, block)


@njit
def add_chunks(grads):
    """Add the sums over all chunks, in order, to those of the first chunk."""
    for c in range(1, CHUNKS):
        add_block(grads.d_log, c)
        add_block(grads.d_noise, c)
        add_block(grads.sums, c)


# A loop over `prange` is compiled three times, so it calls the code of chunks by its
# address, once in each thread.
call_chunks = by_address(gradient_chunks)
call_dense_chunks = by_address(dense_gradient_chunks)


@njit_parallel
def local_gradients(address, model, batch, start, n, works, grads):
    """Compute gradients of n rows of the batch from `start`, each with its own K_w.

    The address is that of `gradient_chunks` for these arrays.
    """
    parts = min(CHUNKS, works.a.shape[0])
    for part in prange(parts):
        p, t = np.int64(part), np.int64(get_thread_id())
        begin, end = p * CHUNKS // parts, (p + 1) * CHUNKS // parts
        given = model, batch, start, n, begin, end, works, t, grads
        call_chunks(address, given)
    add_chunks(grads)


@njit_parallel
def dense_gradients(
    address, model, batch, start, n, active, factors, works, stack, grads
):
    """Compute gradients of n rows from `start`, which all use the points active[0].

    The address is that of `dense_gradient_chunks` for these arrays.
    """
    H = active.shape[1]
    kl, jitter = factorise_shared(model, active, factors, grads.jitter_counts)
    if jitter >= 0.0:
        parts = min(CHUNKS, works.a.shape[0])
        for part in prange(parts):
            p, t = np.int64(part), np.int64(get_thread_id())
            begin, end = p * CHUNKS // parts, (p + 1) * CHUNKS // parts
            shared = factors, works, t, stack, grads
            given = model, batch, start, n, H, begin, end, *shared
            call_dense_chunks(address, given)
        end_dense_step(model, batch, start, n, H, kl, jitter, factors, stack, grads)
        add_chunks(grads)


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
