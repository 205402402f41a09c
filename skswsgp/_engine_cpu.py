"""Gradients of minibatches on the threads of the CPU; loops only, no formula.

Minibatches are cut into CHUNKS pieces whatever the number of threads. A piece has its
own accumulators, and the pieces are added in order, so results do not depend on the
number of threads. Work arrays belong to threads, accumulators to chunks.
"""

import numpy as np

from skswsgp._covariance import TRIANGLE, pull_tile
from skswsgp._jit import get_thread_id, njit, njit_inline, njit_parallel, prange
from skswsgp._linalg import padded
from skswsgp._point import differentiate, evaluate, pull_divergence
from skswsgp._shared import differentiate_shared, evaluate_shared, factorise_all
from skswsgp._state import Gradients, of_thread
from skswsgp._variational import weigh_covariances

CHUNKS = 16


def make_gradients(model, blocks, H):
    """Allocate for `blocks` blocks of H rows."""
    Q, D = model.m.shape[1], model.Z.shape[1]
    side = padded(H)

    def zeros(*shape):
        return np.zeros(shape, dtype=model.Z.dtype)

    moving = blocks if model.train_inducing else 1
    return Gradients(
        d_m=zeros(blocks, Q, H),
        d_s=zeros(1, Q, 0) if model.full else zeros(blocks, Q, H),
        d_S=zeros(blocks, Q, side, side) if model.full else zeros(1, Q, 0, 0),
        d_Z=zeros(moving, D, H),
        d_log=np.zeros((CHUNKS, len(model.params))),
        d_noise=np.zeros((CHUNKS, len(model.noise))),
        sums=np.zeros((CHUNKS, 2)),
        events=np.zeros((CHUNKS, 2), dtype=np.int64),
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
def count_jitter(usual, jitter, events, place):
    """Count a factorisation that needed extra jitter, or that failed."""
    if jitter < 0.0:
        events[place, 1] += 1
    elif jitter > 1.5 * usual:
        events[place, 0] += 1


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
        add_blocks(model, grads, c)
    if model.train_inducing:
        for c in range(1, CHUNKS):
            add_block(grads.d_Z, c)
    share = total * model.kl_weight / model.total_weight
    pull_divergence(model, factor, M, share, grads, 1)  # block 1 is free by now
    add_blocks(model, grads, 1)
    weigh_covariances(factor.d_K, stack.A, stack.R, n, M, jitter, factor.adjoint)
    Z, d_Z, d_log = factor.points, grads.d_Z[0], grads.d_log[0]
    moving = model.train_inducing
    pull_tile(model, Z, M, Z, TRIANGLE, factor, 0, d_log, d_Z, d_Z, moving)
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
