"""Gradients of minibatches on the threads of the CPU; loops only, no formula.

Minibatches are cut into CHUNKS pieces whatever the number of threads. A piece has its
own accumulators, and the pieces are added in order, so results do not depend on the
number of threads. Work arrays belong to threads, accumulators to chunks.


----

Prediction and the bound on given rows, on the threads of the CPU; loops only.

----

Loops of kriging on the threads of the CPU; no formula stands here.
"""

import math

import numpy as np
from numba import get_thread_id, prange

from skswsgp._compiled.jit import njit, njit_inline, njit_parallel, njit_range
from skswsgp._compiled.linalg import invert_factor, log_determinant, square_upper
from skswsgp._compiled.threads import CHUNKS, chunk_bounds, run_in_threads
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._covariance.program import tile_vjp
from skswsgp._point.bound import (
    CROSS,
    OWN,
    bound_vjp,
    count_jitter,
    dense_bound,
    dense_bound_vjp,
    factorise_dense,
    factorise_point,
    fill_dense_point,
    fill_point,
    point_bound,
    point_posterior,
)
from skswsgp._point.divergence import divergence_vjp
from skswsgp._point.kriging import krige, log_density_vjp
from skswsgp._point.likelihoods import expected_log_prob
from skswsgp._point.posterior import (
    conditional_weights,
    covariance_vjp,
    posterior,
    posterior_mean,
)
from skswsgp._point.state import thread_view


@njit
def clear_chunk(grads, chunk):
    """Set the sums over a chunk to zero."""
    for p in range(grads.d_log.shape[1]):
        grads.d_log[chunk, p] = 0.0
    for q in range(grads.d_noise.shape[1]):
        grads.d_noise[chunk, q] = 0.0
    grads.sums[chunk, 0] = 0.0
    grads.sums[chunk, 1] = 0.0


# --- gradients ------------------------------------------------------------------------


@njit
def gradient_chunk(model, batch, start, n, c, works, t, grads):
    """Gradients of chunk c of the n points from `start`, each with its own K_w."""
    work = thread_view(works, t)
    clear_chunk(grads, c)
    H = batch.active.shape[1]
    first, last = chunk_bounds(c, n)
    for i in range(first, last):
        row = start + i
        weight = batch.weight[row]
        ell, kl, jitter = point_bound(
            model, batch.X, batch.y, batch.active, row, H, work
        )
        count_jitter(model.jitter, jitter, grads.jitter_counts, c)
        grads.sums[c, 0] += weight * ell
        grads.sums[c, 1] += weight * kl
        if jitter >= 0.0:
            bound_vjp(model, H, weight, jitter, work, grads, i, c)


@njit
def dense_gradient_chunk(model, batch, start, n, c, factors, works, t, stack, grads):
    """Gradients of chunk c of the n points from `start`; K is factorised already."""
    factor, work = thread_view(factors, 0), thread_view(works, t)
    clear_chunk(grads, c)
    grads.d_m[c] = 0.0
    grads.d_s[0 if model.full else c] = 0.0
    grads.d_S[c if model.full else 0] = 0.0
    grads.d_Z[c if model.train_inducing else 0] = 0.0
    column = stack.column[t]
    first, last = chunk_bounds(c, n)
    for i in range(first, last):
        row = start + i
        weight = batch.weight[row]
        ell = dense_bound(model, batch.X, batch.y, row, factor, work, column)
        grads.sums[c, 0] += weight * ell
        dense_bound_vjp(model, i, weight, factor, work, stack, t, grads, c)


@njit
def start_dense_step(model, all_inducing, factors, grads):
    """Factorise K once; return KL and the relative jitter."""
    kl, jitter = factorise_dense(model, all_inducing, thread_view(factors, 0))
    count_jitter(model.jitter, jitter, grads.jitter_counts, 0)
    return kl, jitter


@njit
def end_dense_step(model, batch, start, n, kl, jitter, factors, stack, grads):
    """Gather the chunks, the divergence and d/dK in the first block and chunk."""
    factor = thread_view(factors, 0)
    M = model.Z.shape[0]
    total = 0.0
    for i in range(n):
        total += batch.weight[start + i]
    for c in range(1, CHUNKS):
        add_blocks(model, grads, c)
    if model.train_inducing:
        for c in range(1, CHUNKS):
            add_block(grads.d_Z, c)
    share = total * model.kl_weight / model.total_weight
    divergence_vjp(model, factor, M, share, grads, 1)  # block 1 is free by now
    add_blocks(model, grads, 1)
    covariance_vjp(factor.d_K, stack.A, stack.R, n, M, jitter, factor.adjoint)
    Z, d_Z, d_log = factor.points, grads.d_Z[0], grads.d_log[0]
    moving = model.train_inducing
    tile_vjp(model, Z, M, Z, TRIANGLE, factor, 0, d_log, d_Z, d_Z, moving)
    grads.sums[0, 1] = total * kl


@njit
def add_block(values, block):
    """values[0] += values[block]."""
    flat = values.reshape(values.shape[0], values[0].size)
    for i in range(flat.shape[1]):
        flat[0, i] += flat[block, i]


@njit_inline
def add_blocks(model, grads, block):
    """Add a block of derivatives by m and S to the first."""
    add_block(grads.d_m, block)
    if model.full:
        add_block(grads.d_S, block)
    else:
        add_block(grads.d_s, block)


@njit
def add_chunks(grads):
    """Add the sums over chunks in order, in place of the first."""
    for c in range(1, CHUNKS):
        for p in range(grads.d_log.shape[1]):
            grads.d_log[0, p] += grads.d_log[c, p]
        for q in range(grads.d_noise.shape[1]):
            grads.d_noise[0, q] += grads.d_noise[c, q]
        grads.sums[0, 0] += grads.sums[c, 0]
        grads.sums[0, 1] += grads.sums[c, 1]


# --- launches; call them within `launch` ----------------------------------------------


@njit_parallel
def local_gradients(model, batch, start, n, works, grads):
    """Gradients of n points from row `start` of the batch, each with its own K_w."""
    for chunk in prange(CHUNKS):
        c = np.int64(chunk)
        gradient_chunk(model, batch, start, n, c, works, get_thread_id(), grads)
    add_chunks(grads)


@njit_parallel
def dense_gradients(model, batch, start, n, all_inducing, factors, works, stack, grads):
    """The same where every inducing point is active."""
    kl, jitter = start_dense_step(model, all_inducing, factors, grads)
    if jitter >= 0.0:
        for chunk in prange(CHUNKS):
            c = np.int64(chunk)
            t = get_thread_id()
            dense_gradient_chunk(
                model, batch, start, n, c, factors, works, t, stack, grads
            )
        end_dense_step(model, batch, start, n, kl, jitter, factors, stack, grads)
        add_chunks(grads)


@njit_inline
def store_posterior(work, with_variance, row, mu, v):
    """Copy mu, and v if wanted, from the work arrays to a row of the results."""
    for q in range(mu.shape[1]):
        mu[row, q] = work.mean[q]
        if with_variance:
            v[row, q] = work.variance[q]


@njit_range
def predict_rows(
    first, last, t, model, batch, works, with_variance, mu, v, jitter_counts
):
    """q(f) of rows first to last of the batch, each with its own K_w."""
    work = thread_view(works, t)
    H = batch.active.shape[1]
    for row in range(first, last):
        jitter = factorise_point(model, batch.X, batch.active, row, H, work)
        count_jitter(model.jitter, jitter, jitter_counts, t)
        if jitter >= 0.0:
            if with_variance:
                point_posterior(model, work, H)
            else:
                conditional_weights(work, work, row_start(H, TRIANGLE), 0.0, H)
                posterior_mean(work, work, H)
            store_posterior(work, with_variance, row, mu, v)


@njit_range
def predict_dense_rows(
    first, last, t, model, X, factors, works, stack, with_variance, mu, v
):
    """q(f) of rows first to last of X; K is factorised already."""
    factor, work = thread_view(factors, 0), thread_view(works, t)
    M = model.Z.shape[0]
    for row in range(first, last):
        fill_dense_point(model, X, row, factor, work, stack.column[t])
        if with_variance:
            kxx = work.values[work.values.shape[0] - 1, OWN]
            posterior(model, factor, work, CROSS, kxx, M)
        else:
            conditional_weights(factor, work, CROSS, 0.0, M)
            posterior_mean(factor, work, M)
        store_posterior(work, with_variance, row, mu, v)


@njit_range
def weight_rows(first, last, t, model, batch, works, weights, variance, jitter_counts):
    """a and F of rows first to last of the batch."""
    work = thread_view(works, t)
    H = batch.active.shape[1]
    start = row_start(H, TRIANGLE)
    for row in range(first, last):
        jitter = factorise_point(model, batch.X, batch.active, row, H, work)
        count_jitter(model.jitter, jitter, jitter_counts, t)
        if jitter >= 0.0:
            kxx = work.values[work.values.shape[0] - 1, start + H]
            variance[row] = conditional_weights(work, work, start, kxx, H)
            for h in range(H):
                weights[row, h] = work.a[0, h]


@njit_range
def inverse_rows(first, last, t, model, batch, works, inverse, log_det, jitter_counts):
    """K_w^-1 and log |K_w| of rows first to last of the batch."""
    work = thread_view(works, t)
    H = batch.active.shape[1]
    for row in range(first, last):
        jitter = factorise_point(model, batch.X, batch.active, row, H, work)
        count_jitter(model.jitter, jitter, jitter_counts, t)
        if jitter >= 0.0:
            invert_factor(work.chol, work.blocks, work.upper)
            square_upper(work.upper, work.inverse)
            log_det[row] = log_determinant(work.chol, H)
            for g in range(H):
                for h in range(H):
                    inverse[row, g, h] = work.inverse[g, h]


@njit_range
def expectation_rows(first, last, t, model, y, works, mu, v, ell, d_mu, d_v):
    """E log p(y | f), f ~ N(mu, v), and its derivatives for rows first to last."""
    work = thread_view(works, t)
    for row in range(first, last):
        for q in range(mu.shape[1]):
            work.mean[q] = mu[row, q]
            work.variance[q] = v[row, q]
        ell[row] = expected_log_prob(model, y, row, work)
        for q in range(mu.shape[1]):
            d_mu[row, q] = work.d_mean[q]
            d_v[row, q] = work.d_variance[q]


@njit_range
def bound_rows(first, last, t, model, batch, works, ell, kl, jitter_counts):
    """E log p(y | f) and KL_w of rows first to last of the batch."""
    work = thread_view(works, t)
    H = batch.active.shape[1]
    for row in range(first, last):
        ell[row], kl[row], jitter = point_bound(
            model, batch.X, batch.y, batch.active, row, H, work
        )
        count_jitter(model.jitter, jitter, jitter_counts, t)


@njit_range
def bound_dense_rows(first, last, t, model, batch, factors, works, stack, ell):
    """E log p(y | f) of rows first to last of the batch; K is factorised already."""
    factor, work = thread_view(factors, 0), thread_view(works, t)
    for row in range(first, last):
        ell[row] = dense_bound(
            model, batch.X, batch.y, row, factor, work, stack.column[t]
        )


@njit
def start_dense(model, all_inducing, factors, jitter_counts):
    """Factorise K once; return KL and the relative jitter."""
    kl, jitter = factorise_dense(model, all_inducing, thread_view(factors, 0))
    count_jitter(model.jitter, jitter, jitter_counts, 0)
    return kl, jitter


# --- launches, on as many threads as there are work arrays ----------------------------


def evaluate_posterior(model, batch, works, with_variance, mu, v, jitter_counts):
    """q(f) of all rows of the batch: mu (n, Q) and, if wanted, v (n, Q) are set."""
    arguments = model, batch, works, with_variance, mu, v, jitter_counts
    run_in_threads(predict_rows, len(works.a), len(mu), *arguments)


def evaluate_dense_posterior(
    model, X, all_inducing, factors, works, stack, with_variance, mu, v, jitter_counts
):
    """The same where every inducing point is active."""
    _, jitter = start_dense(model, all_inducing, factors, jitter_counts)
    if jitter >= 0.0:
        arguments = model, X, factors, works, stack, with_variance, mu, v
        run_in_threads(predict_dense_rows, len(works.a), len(mu), *arguments)


def evaluate_weights(model, batch, works, weights, variance, jitter_counts):
    """a = K^-1 k (n, H) and F = k(x, x) - k' a (n,) of all rows of the batch."""
    arguments = model, batch, works, weights, variance, jitter_counts
    run_in_threads(weight_rows, len(works.a), len(weights), *arguments)


def evaluate_inverses(model, batch, works, inverse, log_det, jitter_counts):
    """K_w^-1 (n, H, H) and log |K_w| (n,) of all rows of the batch."""
    arguments = model, batch, works, inverse, log_det, jitter_counts
    run_in_threads(inverse_rows, len(works.a), len(inverse), *arguments)


def evaluate_expectations(model, y, works, mu, v, ell, d_mu, d_v):
    """E log p(y | f) (n,) and its derivatives by mu and v (n, Q)."""
    arguments = model, y, works, mu, v, ell, d_mu, d_v
    run_in_threads(expectation_rows, len(works.a), len(mu), *arguments)


def evaluate_bound(model, batch, works, ell, kl, jitter_counts):
    """E log p(y | f) and KL_w (n,) of all rows of the batch."""
    arguments = model, batch, works, ell, kl, jitter_counts
    run_in_threads(bound_rows, len(works.a), len(ell), *arguments)


def evaluate_dense_bound(
    model, batch, all_inducing, factors, works, stack, ell, jitter_counts
):
    """The same where every inducing point is active; returns the one KL."""
    kl, jitter = start_dense(model, all_inducing, factors, jitter_counts)
    if jitter >= 0.0:
        arguments = model, batch, factors, works, stack, ell
        run_in_threads(bound_dense_rows, len(works.a), len(ell), *arguments)
    return kl


@njit_range
def kriging_gradient_chunks(first, last, t, model, batch, start, n, works, grads):
    """Derivatives of the log density of some chunks of the n rows from `start`."""
    work = thread_view(works, t)
    H = batch.active.shape[1]
    for c in range(first, last):
        clear_chunk(grads, c)
        d_log, d_noise = grads.d_log[c], grads.d_noise[c]
        begin, end = chunk_bounds(c, n)
        for row in range(start + begin, start + end):
            weight = batch.weight[row]
            grads.sums[c, 0] += weight * log_density_vjp(
                model, batch.X, batch.y, batch.active, row, H, weight, work, d_log,
                d_noise,
            )  # fmt: skip


@njit_range
def kriging_prediction_rows(first, last, t, model, batch, works, mu, v):
    """mu and F of rows first to last of the batch, NaN where C has no factor."""
    work = thread_view(works, t)
    H = batch.active.shape[1]
    for row in range(first, last):
        fill_point(model, batch.X, batch.active, row, H, work)
        for q in range(mu.shape[1]):
            if krige(model, work, H, q) < 0.0:
                work.mean[q] = math.nan
                work.variance[q] = math.nan
        store_posterior(work, True, row, mu, v)


# --- launches, on as many threads as there are work arrays ----------------------------


def kriging_gradients(model, batch, start, n, works, grads):
    """Derivatives of sum_i weight_i log p(y_i | neighbours), n rows from `start`."""
    arguments = model, batch, start, n, works, grads
    run_in_threads(kriging_gradient_chunks, len(works.a), CHUNKS, *arguments)
    add_chunks(grads)


def kriging_predictions(model, batch, works, mu, v):
    """mu and F of all rows of the batch, (n, Q)."""
    run_in_threads(
        kriging_prediction_rows, len(works.a), len(batch.X), model, batch, works, mu, v
    )
