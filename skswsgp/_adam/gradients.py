"""Loops over the rows of a minibatch: derivatives of the bound, on the CPU.

The rows are cut into CHUNKS pieces whatever the number of threads, see
`_engine.cpu_loops`. Loops with `prange` are called within `parallel_region`.
"""

import numpy as np
from numba import get_thread_id, prange

from skswsgp._adam.adjoints import (
    bound_vjp,
    cross_covariance_vjp,
    divergence_vjp,
    posterior_vjp,
)
from skswsgp._compiled.jit import njit, njit_inline, njit_inner, njit_parallel
from skswsgp._compiled.pointers import by_address
from skswsgp._compiled.threads import CHUNKS, chunk_bounds
from skswsgp._compiled.tiles import BLOCK, set_products
from skswsgp._covariance.pairs import TRIANGLE
from skswsgp._covariance.program import fill_tile, tile_vjp
from skswsgp._engine.cpu_loops import clear_chunk, factorise_shared
from skswsgp._point import bound, posterior
from skswsgp._point.full_covariance import PANEL_COLUMNS
from skswsgp._point.likelihoods import expected_log_prob
from skswsgp._point.state import thread_view


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
                bound_vjp(model, H, weight, jitter, work, grads, i, c)


@njit_inline
def dense_bound(model, X, y, row, H, factor, work, column):
    """Return E log p(y | f) of one row; set in `work` what `dense_bound_vjp` reads."""
    for d in range(X.shape[1]):
        column[d, 0] = X[row, d]
    # covariances with all active points, then with itself
    fill_tile(model, column, 1, factor.points, H, work, 0)
    fill_tile(model, column, 1, column, TRIANGLE, work, H)
    posterior.posterior(model, factor, work, 0, H)
    return expected_log_prob(model, y, row, work)


@njit_inline
def dense_bound_vjp(model, i, weight, H, factor, work, stack, t, grads, c):
    """Adjoint of `dense_bound` for row i; sets row i of the stack, adds to chunk c."""
    g = posterior_vjp(model, factor, work, H, weight, grads, c)
    cross_covariance_vjp(work.half_adjoint, work.a, g, H, work.adjoint, 0)
    for h in range(H):
        stack.A[i, h] = work.a[0, h]
        stack.R[i, h] = work.half_adjoint[0, h]
    x, d_x, Z = stack.column[t], stack.d_column[t], factor.points
    d_log, moving = grads.d_log[c], model.train_inducing
    tile_vjp(model, x, 1, x, TRIANGLE, work, H, d_log, d_x, d_x, moving)
    d_Z = grads.d_Z[c if moving else 0]
    tile_vjp(model, x, 1, Z, H, work, 0, d_log, d_x, d_Z, moving)
    for q in range(work.d_noise.shape[0]):
        grads.d_noise[c, q] += weight * work.d_noise[q]


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
            ell = dense_bound(model, batch.X, batch.y, row, H, factor, work, column)
            grads.sums[c, 0] += weight * ell
            dense_bound_vjp(model, i, weight, H, factor, work, stack, t, grads, c)


@njit_inline
def dense_divergence_vjp(model, n, H, total, jitter, factor, stack, grads, b):
    """Adjoint of `bound.factorise_dense`, after those of n rows of the weight `total`.

    Sets d_m and d_s or d_S of block b to those of the divergence. Adds the part of d/dK
    to d_log and d_Z of the first block and chunk.
    """
    share = total * model.kl_weight / model.total_weight
    divergence_vjp(model, factor, H, share, grads, b)
    posterior.covariance_vjp(factor.d_K, stack.A, stack.R, n, H, jitter, factor.adjoint)
    Z, d_Z, d_log = factor.points, grads.d_Z[0], grads.d_log[0]
    moving = model.train_inducing
    tile_vjp(model, Z, H, Z, TRIANGLE, factor, 0, d_log, d_Z, d_Z, moving)


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
    dense_divergence_vjp(model, n, H, total, jitter, factor, stack, grads, free)
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
def factor_panel_vjp(L, q, active, at, d_S, first, panel, product, d_L):
    """Add the derivatives by all rows active[at] of L in the columns from `first`.

    d/dL_w = 2 d_S L_w, where L_w are rows active[at] of L and d_S is symmetric. There
    are PANEL_COLUMNS columns, which are multiplied in tiles. `panel` and `product`
    (side, PANEL_COLUMNS) are scratch. Entries of d_L above its diagonal are undefined.
    """
    H, stop = active.shape[1], min(first + PANEL_COLUMNS, L.shape[2])
    begin, end = np.uint64(first), np.uint64(stop)  # signed ones may be negative
    start = 0
    while start < H and active[at, start] < first:
        start += 1
    for h in range(start, H):
        row = active[at, h]
        for j in range(begin, end):
            panel[h, j - begin] = 2.0 * L[q, row, j]
    for i in range(start // BLOCK * BLOCK, H, BLOCK):
        for j in range(0, stop - first, BLOCK):
            set_products(d_S, i, panel, j, start, H, product, i, j)
    for h in range(start, H):
        row = active[at, h]
        for j in range(begin, end):
            d_L[q, row, j] += product[h, j - begin]
