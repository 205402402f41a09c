"""Loops over points and rows on the threads of the CPU; no formula stands here.

Minibatches are cut into CHUNKS pieces whatever the number of threads. A piece has its
own accumulators, and the pieces are added in order, so results do not depend on the
number of threads. Work arrays belong to threads, accumulators to chunks.
"""

import math
from typing import NamedTuple

import numpy as np

from skswsgp._adam import adam_steps, bias_corrections
from skswsgp._covariance import TRIANGLE, pull_tile, refresh
from skswsgp._jit import (
    get_thread_id,
    njit,
    njit_inline,
    njit_parallel,
    njit_small,
    prange,
)
from skswsgp._point import differentiate, evaluate, pull_divergence, weigh_covariances
from skswsgp._shared import differentiate_shared, evaluate_shared, factorise_all
from skswsgp._state import Gradients, of_thread

CHUNKS = 16
LOG_NOISE_BOUNDS = (math.log(1e-8), math.log(1e4))


class Rows(NamedTuple):
    """The inducing points that a minibatch touches, and where it does so."""

    head: np.ndarray  # (M,) last occurrence of a row, -1 between steps
    earlier: np.ndarray  # (blocks * H,) occurrence of the same row before, or -1
    touched: np.ndarray  # (<= M,) touched rows in order of appearance
    d_L: np.ndarray  # (touched, Q, M) derivatives by rows of L, full covariance
    gradient: np.ndarray  # (threads, width) derivatives by one row of Z, m and s
    step: np.ndarray  # (threads, width)


class Optimizer(NamedTuple):
    """What Adam needs: bounds, units, first and second moments, counts of steps."""

    free: np.ndarray  # (P,) bool, kernel parameters that are trained
    log_bounds: np.ndarray  # (P, 2)
    feature_scale: np.ndarray  # (D,) unit of a step of Z
    Z: np.ndarray  # (M, 2, D), or (1, 2, D) when Z is fixed
    m: np.ndarray  # (M, 2, Q)
    s: np.ndarray  # (M, 2, Q)
    L: np.ndarray  # (Q, M, 2, M)
    params: np.ndarray  # (1, 2, P)
    noise: np.ndarray  # (1, 2, Q)
    row_steps: np.ndarray  # (M,) steps that touched a row
    steps: np.ndarray  # (1,) steps in all


def make_optimizer(model, free, log_bounds, feature_scale):
    """Allocate Adam's moments at zero."""
    M, Q = model.m.shape

    def zeros(*shape):
        return np.zeros(shape, dtype=model.Z.dtype)

    return Optimizer(
        free=free,
        log_bounds=log_bounds,
        feature_scale=feature_scale.astype(model.Z.dtype),
        Z=zeros(M if model.train_inducing else 1, 2, model.Z.shape[1]),
        m=zeros(M, 2, Q),
        s=zeros(len(model.s), 2, Q),
        L=zeros(len(model.L), M, 2, M),
        params=zeros(1, 2, len(model.params)),
        noise=zeros(1, 2, len(model.noise)),
        row_steps=np.zeros(M, dtype=np.int64),
        steps=np.zeros(1, dtype=np.int64),
    )


def make_gradients(model, blocks, H):
    """Allocate for `blocks` blocks of H rows."""
    Q, D = model.m.shape[1], model.Z.shape[1]

    def zeros(*shape):
        return np.zeros(shape, dtype=model.Z.dtype)

    moving = blocks if model.train_inducing else 1
    return Gradients(
        d_m=zeros(blocks, H, Q),
        d_s=zeros(1, 0, Q) if model.full else zeros(blocks, H, Q),
        d_S=zeros(blocks, Q, H, H) if model.full else zeros(1, Q, 0, 0),
        d_Z=zeros(moving, D, H),
        d_log=np.zeros((CHUNKS, len(model.params))),
        d_noise=np.zeros((CHUNKS, len(model.noise))),
        sums=np.zeros((CHUNKS, 2)),
        events=np.zeros((CHUNKS, 2), dtype=np.int64),
    )


def make_rows(model, blocks, H, n_threads):
    """Allocate for `blocks` blocks of H rows."""
    M, Q = model.m.shape
    width = max(model.Z.shape[1], Q, M if model.full else 1)
    touched = min(M, blocks * H)
    dtype = model.Z.dtype
    return Rows(
        head=np.full(M, -1, dtype=np.int64),
        earlier=np.full(blocks * H, -1, dtype=np.int64),
        touched=np.zeros(touched, dtype=np.int64),
        d_L=np.zeros((touched, Q, M) if model.full else (1, Q, 0), dtype),
        gradient=np.zeros((n_threads, width), dtype),
        step=np.zeros((n_threads, width), dtype),
    )


@njit
def chunk_bounds(chunk, n):
    """First and one past the last of the n items of a chunk."""
    return chunk * n // CHUNKS, (chunk + 1) * n // CHUNKS


@njit
def clear(grads, chunk):
    """Set the sums over a chunk to zero."""
    for p in range(grads.d_log.shape[1]):
        grads.d_log[chunk, p] = 0.0
    for q in range(grads.d_noise.shape[1]):
        grads.d_noise[chunk, q] = 0.0
    grads.sums[chunk, 0] = 0.0
    grads.sums[chunk, 1] = 0.0


@njit
def count_jitter(usual, jitter, events, chunk):
    """Count a factorisation that needed extra jitter, or that failed."""
    if jitter < 0.0:
        events[chunk, 1] += 1
    elif jitter > 1.5 * usual:
        events[chunk, 0] += 1


# --- gradients ------------------------------------------------------------------------


@njit
def point_chunk(model, batch, start, n, c, works, t, grads):
    """Gradients of chunk c of the n points from `start`, each with its own K_w."""
    work = of_thread(works, t)
    clear(grads, c)
    H = batch.active.shape[1]
    first, last = chunk_bounds(c, n)
    for i in range(first, last):
        row = start + i
        weight = batch.weight[row]
        ell, kl, jitter = evaluate(model, batch.X, batch.y, batch.active, row, H, work)
        count_jitter(model.jitter, jitter, grads.events, c)
        grads.sums[c, 0] += weight * ell
        grads.sums[c, 1] += weight * kl
        if jitter >= 0.0:
            differentiate(model, H, weight, jitter, work, grads, i, c)


@njit
def shared_chunk(model, batch, start, n, c, factors, works, t, stack, grads):
    """Gradients of chunk c of the n points from `start`; K is factorised already."""
    factor, work = of_thread(factors, 0), of_thread(works, t)
    clear(grads, c)
    grads.d_m[c] = 0.0
    grads.d_s[0 if model.full else c] = 0.0
    grads.d_S[c if model.full else 0] = 0.0
    grads.d_Z[c if model.train_inducing else 0] = 0.0
    column = stack.column[t]
    first, last = chunk_bounds(c, n)
    for i in range(first, last):
        row = start + i
        weight = batch.weight[row]
        ell = evaluate_shared(model, batch.X, batch.y, row, factor, work, column)
        grads.sums[c, 0] += weight * ell
        differentiate_shared(model, i, weight, factor, work, stack, t, grads, c)


@njit
def shared_start(model, everyone, factors, grads):
    """Factorise K once; return KL and the relative jitter."""
    kl, jitter = factorise_all(model, everyone, of_thread(factors, 0))
    count_jitter(model.jitter, jitter, grads.events, 0)
    return kl, jitter


@njit
def shared_end(model, batch, start, n, kl, jitter, factors, stack, grads):
    """Gather the chunks, the divergence and d/dK in the first block and chunk."""
    factor = of_thread(factors, 0)
    M = model.Z.shape[0]
    total = 0.0
    for i in range(n):
        total += batch.weight[start + i]
    for c in range(1, CHUNKS):
        grads.d_m[0] += grads.d_m[c]
        if model.full:
            grads.d_S[0] += grads.d_S[c]
        else:
            grads.d_s[0] += grads.d_s[c]
        if model.train_inducing:
            grads.d_Z[0] += grads.d_Z[c]
    share = total * model.kl_weight / model.total_weight
    pull_divergence(model, factor, M, share, grads, 1)  # block 1 is free by now
    grads.d_m[0] += grads.d_m[1]
    if model.full:
        grads.d_S[0] += grads.d_S[1]
    else:
        grads.d_s[0] += grads.d_s[1]
    weigh_covariances(factor.d_K, stack.A, stack.R, n, M, jitter, factor.adjoint)
    Z, d_Z = factor.points, factor.d_points
    d_Z[:] = 0.0
    d_log, moving = grads.d_log[0], model.train_inducing
    pull_tile(model, Z, M, Z, TRIANGLE, factor, 0, d_log, d_Z, d_Z, moving)
    if moving:
        grads.d_Z[0] += d_Z[:, :M]
    grads.sums[0, 1] = total * kl


# --- rows of Z, m and S ---------------------------------------------------------------


@njit
def collect(rows, active, start, blocks, H):
    """Chain the occurrences of each touched row; return the number of such rows."""
    count = 0
    for i in range(blocks):
        for h in range(H):
            row = active[start + i, h]
            if rows.head[row] < 0:
                rows.touched[count] = row
                count += 1
            rows.earlier[i * H + h] = rows.head[row]
            rows.head[row] = i * H + h
    return count


@njit_small
def sum_row(head, earlier, derivatives, H, width, out, t):
    """out[t] = sum of derivatives (blocks, H, width) over the occurrences of a row."""
    for j in range(width):
        out[t, j] = 0.0
    at = head
    while at >= 0:
        for j in range(width):
            out[t, j] += derivatives[at // H, at % H, j]
        at = earlier[at]


@njit
def factor_chunk(model, rows, c, count, active, start, grads):
    """Derivatives by a chunk of the touched rows of L.

    d/dL_r = 2 sum over the occurrences of r in a list w of row r of (d/dS_w) L_w.
    """
    H = active.shape[1]
    first, last = chunk_bounds(c, count)
    for index in range(first, last):
        row = rows.touched[index]
        for q in range(model.m.shape[1]):
            for j in range(row + 1):
                rows.d_L[index, q, j] = 0.0
            at = rows.head[row]
            while at >= 0:
                block, h = at // H, at % H
                for g in range(H):
                    other = active[start + block, g]
                    w = 2.0 * grads.d_S[block, q, h, g]
                    for j in range(min(row, other) + 1):
                        rows.d_L[index, q, j] += w * model.L[q, other, j]
                at = rows.earlier[at]


@njit
def update_chunk(model, optimizer, rows, c, count, grads, H, rate, t):
    """One step of Adam for a chunk of the touched rows."""
    first, last = chunk_bounds(c, count)
    for index in range(first, last):
        update_row(model, optimizer, rows, index, grads, H, rate, t)


@njit_inline
def update_row(model, optimizer, rows, index, grads, H, rate, t):
    """One step of Adam for a row of Z, m and S; variances step in their logarithm."""
    row = rows.touched[index]
    head, earlier, gradient, step = (
        rows.head[row],
        rows.earlier,
        rows.gradient,
        rows.step,
    )
    optimizer.row_steps[row] += 1
    scale = bias_corrections(optimizer.row_steps[row], rate)
    Q, D = model.m.shape[1], model.Z.shape[1]
    sum_row(head, earlier, grads.d_m, H, Q, gradient, t)
    adam_steps(gradient, t, optimizer.m, row, scale, Q, step, t)
    for q in range(Q):
        model.m[row, q] += step[t, q]
    if model.full:
        for q in range(Q):
            L = model.L[q]
            rows.d_L[index, q, row] *= L[row, row]
            adam_steps(rows.d_L[index], q, optimizer.L[q], row, scale, row + 1, step, t)
            for j in range(row):
                L[row, j] += step[t, j]
            L[row, row] *= math.exp(step[t, row])
    else:
        sum_row(head, earlier, grads.d_s, H, Q, gradient, t)
        for q in range(Q):
            gradient[t, q] *= model.s[row, q]
        adam_steps(gradient, t, optimizer.s, row, scale, Q, step, t)
        for q in range(Q):
            model.s[row, q] *= math.exp(step[t, q])
    if model.train_inducing:
        unit = optimizer.feature_scale
        sum_inputs(head, earlier, grads.d_Z, H, unit, gradient, t)
        adam_steps(gradient, t, optimizer.Z, row, scale, D, step, t)
        for d in range(D):
            model.Z[row, d] += step[t, d] * unit[d]
    rows.head[row] = -1


@njit
def sum_inputs(head, earlier, derivatives, H, unit, out, t):
    """out[t] = sum of derivatives (blocks, D, H) by Z, in units of its steps."""
    for d in range(unit.shape[0]):
        out[t, d] = 0.0
    at = head
    while at >= 0:
        for d in range(unit.shape[0]):
            out[t, d] += derivatives[at // H, d, at % H] * unit[d]
        at = earlier[at]


@njit
def update_parameters(model, optimizer, grads, rate):
    """One step of Adam for the logarithms of kernel parameters and noise."""
    optimizer.steps[0] += 1
    scale = bias_corrections(optimizer.steps[0], rate)
    params, noise, free, bounds = (
        model.params,
        model.noise,
        optimizer.free,
        optimizer.log_bounds,
    )
    d_log, d_noise = grads.d_log, grads.d_noise
    adam_steps(d_log, 0, optimizer.params, 0, scale, params.shape[0], d_log, 1)
    for p in range(params.shape[0]):
        if free[p]:
            moved = max(math.log(params[p]) + d_log[1, p], bounds[p, 0])
            params[p] = math.exp(min(moved, bounds[p, 1]))
    adam_steps(d_noise, 0, optimizer.noise, 0, scale, noise.shape[0], d_noise, 1)
    for q in range(noise.shape[0]):
        moved = max(math.log(noise[q]) + d_noise[1, q], LOG_NOISE_BOUNDS[0])
        noise[q] = math.exp(min(moved, LOG_NOISE_BOUNDS[1]))
    refresh(model)


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
        point_chunk(model, batch, start, n, c, works, get_thread_id(), grads)
    add_chunks(grads)


@njit_parallel
def shared_gradients(model, batch, start, n, everyone, factors, works, stack, grads):
    """The same where every inducing point is active."""
    kl, jitter = shared_start(model, everyone, factors, grads)
    if jitter >= 0.0:
        for chunk in prange(CHUNKS):
            c = np.int64(chunk)
            t = get_thread_id()
            shared_chunk(model, batch, start, n, c, factors, works, t, stack, grads)
        shared_end(model, batch, start, n, kl, jitter, factors, stack, grads)
        add_chunks(grads)


@njit_parallel
def update(model, optimizer, rows, active, start, blocks, grads, rate):
    """One step of Adam with the gradients of `blocks` blocks of rows active[start:]."""
    H = active.shape[1]
    count = collect(rows, active, start, blocks, H)
    if model.full:
        for chunk in prange(CHUNKS):
            factor_chunk(model, rows, np.int64(chunk), count, active, start, grads)
    for chunk in prange(CHUNKS):
        t = get_thread_id()
        update_chunk(model, optimizer, rows, np.int64(chunk), count, grads, H, rate, t)
    update_parameters(model, optimizer, grads, rate)
