"""Steps of Adam on the threads of the CPU: the rows of Z, m and S, and parameters.

A step costs what it touches. The rows of a minibatch get consecutive slots, in which
their derivatives are added up in the order of the data; then each row takes its step.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._adam import (
    bias_corrections,
    step_linear,
    step_positive,
    update_parameters,
)
from skswsgp._engine_cpu import (
    CHUNKS,
    chunk_bounds,
    local_gradients,
    shared_gradients,
)
from skswsgp._jit import njit, njit_inline, njit_parallel, prange


class Rows(NamedTuple):
    """The inducing points that a minibatch touches, and derivatives by their rows.

    T is the largest number of such points.
    """

    slot: np.ndarray  # (M,) slot of a row, -1 between steps
    touched: np.ndarray  # (T,) row of a slot
    scale: np.ndarray  # (T, 2) bias corrections of a row
    d_m: np.ndarray  # (T, Q)
    d_s: np.ndarray  # (T, Q), diagonal covariance
    d_Z: np.ndarray  # (T, D), trained Z
    d_L: np.ndarray  # (T, Q, M), full covariance
    last: np.ndarray  # (T,) last occurrence of a row, full covariance
    before: np.ndarray  # (blocks * H,) the occurrence of the same row before, or -1


def make_rows(model, blocks, H):
    """Allocate for `blocks` blocks of H rows."""
    M, Q = model.m.shape
    T, dtype = min(M, blocks * H), model.Z.dtype
    return Rows(
        slot=np.full(M, -1, dtype=np.int64),
        touched=np.zeros(T, dtype=np.int64),
        scale=np.zeros((T, 2)),
        d_m=np.zeros((T, Q), dtype),
        d_s=np.zeros((0 if model.full else T, Q), dtype),
        d_Z=np.zeros((T if model.train_inducing else 0, model.Z.shape[1]), dtype),
        d_L=np.zeros((T if model.full else 0, Q, M), dtype),
        last=np.zeros(T if model.full else 0, dtype=np.int64),
        before=np.zeros(blocks * H if model.full else 0, dtype=np.int64),
    )


# --- derivatives by rows --------------------------------------------------------------


@njit
def number_rows(slot, touched, active, start, blocks):
    """Give each touched row a slot; return their number."""
    count = 0
    for block in range(start, start + blocks):
        for h in range(active.shape[1]):
            row = active[block, h]
            if slot[row] < 0:
                slot[row] = count
                touched[count] = row
                count += 1
    return count


@njit
def add_up(derivatives, slot, active, start, blocks, count, out):
    """out[slot] = sum of derivatives (blocks, width, H) over the uses of a row."""
    for i in range(count):
        for j in range(derivatives.shape[1]):
            out[i, j] = 0.0
    for block in range(blocks):
        for j in range(derivatives.shape[1]):
            for h in range(active.shape[1]):
                out[slot[active[start + block, h]], j] += derivatives[block, j, h]


@njit
def chain_uses(rows, active, start, blocks, count):
    """Link the uses of each row, from the last to the first."""
    H = active.shape[1]
    for i in range(count):
        rows.last[i] = -1
    for block in range(blocks):
        for h in range(H):
            i = rows.slot[active[start + block, h]]
            rows.before[block * H + h] = rows.last[i]
            rows.last[i] = block * H + h


@njit
def factor_chunk(model, rows, c, count, active, start, grads):
    """Derivatives by a chunk of the touched rows of L.

    d/dL_r = 2 sum over the uses of r in a list w of row r of (d/dS_w) L_w.
    """
    H = active.shape[1]
    first, last = chunk_bounds(c, count)
    for i in range(first, last):
        row = rows.touched[i]
        for q in range(model.m.shape[1]):
            for j in range(row + 1):
                rows.d_L[i, q, j] = 0.0
            use = rows.last[i]
            while use >= 0:
                block, h = use // H, use % H
                for g in range(H):
                    other = active[start + block, g]
                    w = 2.0 * grads.d_S[block, q, h, g]
                    for j in range(min(row, other) + 1):
                        rows.d_L[i, q, j] += w * model.L[q, other, j]
                use = rows.before[use]


# --- steps ----------------------------------------------------------------------------


@njit_inline
def step_means(values, derivatives, unit, moments, rows, first, last):
    """Move rows of m or Z, in their units."""
    for j in range(values.shape[1]):
        for i in range(first, last):
            row, fast, slow = rows.touched[i], rows.scale[i, 0], rows.scale[i, 1]
            step_linear(values, row, j, derivatives[i, j], unit[j], moments, fast, slow)


@njit_inline
def step_variances(s, derivatives, moments, rows, first, last):
    """Move rows of s in their logarithm."""
    for j in range(s.shape[1]):
        for i in range(first, last):
            row, fast, slow = rows.touched[i], rows.scale[i, 0], rows.scale[i, 1]
            step_positive(s, row, j, derivatives[i, j], moments, fast, slow)


@njit_inline
def step_factors(L, derivatives, moments, rows, first, last):
    """Move rows of L, those of the diagonal in their logarithm."""
    for q in range(L.shape[0]):
        for i in range(first, last):
            row, fast, slow = rows.touched[i], rows.scale[i, 0], rows.scale[i, 1]
            for j in range(row):
                step_linear(
                    L[q], row, j, derivatives[i, q, j], 1.0, moments[q], fast, slow
                )
            step_positive(
                L[q], row, row, derivatives[i, q, row], moments[q], fast, slow
            )


@njit
def update_chunk(model, optimizer, rows, c, count, rate):
    """One step of Adam for a chunk of the touched rows of m, S and Z."""
    first, last = chunk_bounds(c, count)
    for i in range(first, last):
        row = rows.touched[i]
        rows.slot[row] = -1
        optimizer.row_steps[row] += 1
        scales = bias_corrections(optimizer.row_steps[row], rate)
        rows.scale[i, 0], rows.scale[i, 1] = scales
    unit = optimizer.mean_scale
    step_means(model.m, rows.d_m, unit, optimizer.m, rows, first, last)
    if model.full:
        step_factors(model.L, rows.d_L, optimizer.L, rows, first, last)
    else:
        step_variances(model.s, rows.d_s, optimizer.s, rows, first, last)
    if model.train_inducing:
        unit = optimizer.feature_scale
        step_means(model.Z, rows.d_Z, unit, optimizer.Z, rows, first, last)


# --- launches; call them within `launch` ----------------------------------------------


@njit_parallel
def update(model, optimizer, rows, active, start, blocks, grads, rate):
    """One step of Adam with the gradients of `blocks` blocks of rows active[start:]."""
    slot = rows.slot
    count = number_rows(slot, rows.touched, active, start, blocks)
    add_up(grads.d_m, slot, active, start, blocks, count, rows.d_m)
    if model.train_inducing:
        add_up(grads.d_Z, slot, active, start, blocks, count, rows.d_Z)
    if model.full:
        chain_uses(rows, active, start, blocks, count)
        for chunk in prange(CHUNKS):
            factor_chunk(model, rows, np.int64(chunk), count, active, start, grads)
    else:
        add_up(grads.d_s, slot, active, start, blocks, count, rows.d_s)
    for chunk in prange(CHUNKS):
        update_chunk(model, optimizer, rows, np.int64(chunk), count, rate)
    update_parameters(model, optimizer, grads, rate)


@njit
def finish_step(grads, sums):
    """Add the sums over a minibatch to those before; False after a failure."""
    for c in range(CHUNKS):
        if grads.events[c, 1] > 0:
            return False
    for j in range(sums.shape[0]):
        sums[j] += grads.sums[0, j]
    return True


@njit
def local_steps(model, optimizer, rows, batch, n, rates, works, grads, sums):
    """Steps of Adam, each on the next n points of the batch, at the given rates.

    Returns False, at once, when a covariance matrix cannot be factorised.
    """
    for k in range(rates.shape[0]):
        start = k * n
        local_gradients(model, batch, start, n, works, grads)
        if not finish_step(grads, sums):
            return False
        update(model, optimizer, rows, batch.active, start, n, grads, rates[k])
    return True


@njit
def shared_steps(
    model,
    optimizer,
    rows,
    batch,
    n,
    rates,
    all_rows,
    factors,
    works,
    stack,
    grads,
    sums,
):
    """The same where every inducing point is active."""
    for k in range(rates.shape[0]):
        start = k * n
        shared_gradients(model, batch, start, n, all_rows, factors, works, stack, grads)
        if not finish_step(grads, sums):
            return False
        update(model, optimizer, rows, all_rows, 0, 1, grads, rates[k])
    return True
