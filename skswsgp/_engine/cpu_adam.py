"""Steps of Adam on the threads of the CPU: the rows of Z, m and S, and parameters.

A step costs what it touches. The rows of a minibatch get consecutive slots, in which
their derivatives are added up in the order of the data, those of L by columns; then
each row takes its step. A thread does both for its part of the inducing points, so that
results do not depend on the number of parts.
"""

from typing import NamedTuple

import numpy as np
from numba import prange

from skswsgp._compiled.jit import njit, njit_inline, njit_parallel
from skswsgp._compiled.linalg import padded
from skswsgp._compiled.threads import CHUNKS
from skswsgp._engine.cpu_loops import dense_gradients, local_gradients
from skswsgp._point.adam_step import (
    bias_corrections,
    step_factor,
    step_linear,
    step_positive,
    update_parameters,
)
from skswsgp._point.full_covariance import (
    PANEL_COLUMNS,
    clear_factor_row,
    factor_panel_vjp,
)


class TouchedRows(NamedTuple):
    """The inducing points that a minibatch touches, and derivatives by their rows.

    All but `slot` and `d_L` have a leading axis of parts, which `of_part` cuts off. T
    is the largest number of such points in a part.
    """

    slot: np.ndarray  # (M,) slot of a row within its part, -1 between steps
    count: np.ndarray  # (1,) slots in use
    ends: np.ndarray  # (blocks,) uses of these rows, up to the end of a block
    use: np.ndarray  # (blocks * H,) which of the H of its block a use is
    place: np.ndarray  # (blocks * H,) its slot
    touched: np.ndarray  # (T,) row of a slot
    scale: np.ndarray  # (T, 2) bias corrections of a row
    d_m: np.ndarray  # (T, Q)
    d_s: np.ndarray  # (T, Q), diagonal covariance
    d_Z: np.ndarray  # (T, D), trained Z
    d_L: np.ndarray  # (Q, M, M) in touched rows, full covariance
    panel: np.ndarray  # (side, PANEL), see `pull_panel`
    product: np.ndarray  # (side, PANEL)


def allocate_touched_rows(model, blocks, H, parts):
    """Allocate for `blocks` blocks of H rows."""
    M, Q = model.m.shape
    T, dtype = min(-(-M // parts), blocks * H), model.Z.dtype
    full, moving = model.full, model.train_inducing
    side = padded(H) if full else 0

    def zeros(shape, dtype=dtype):
        return np.zeros((parts, *shape), dtype)

    return TouchedRows(
        slot=np.full(M, -1, dtype=np.int64),
        count=zeros((1,), np.int64),
        ends=zeros((blocks,), np.int64),
        use=zeros((blocks * H,), np.int32),
        place=zeros((blocks * H,), np.int32),
        touched=zeros((T,), np.int64),
        scale=zeros((T, 2), np.float64),
        d_m=zeros((T, Q)),
        d_s=zeros((0 if full else T, Q)),
        d_Z=zeros((T if moving else 0, model.Z.shape[1])),
        d_L=np.zeros_like(model.L),
        panel=zeros((side, PANEL_COLUMNS)),
        product=zeros((side, PANEL_COLUMNS)),
    )


@njit_inline
def part_view(rows, p):
    """Return the arrays of part p."""
    return TouchedRows(
        rows.slot,
        rows.count[p],
        rows.ends[p],
        rows.use[p],
        rows.place[p],
        rows.touched[p],
        rows.scale[p],
        rows.d_m[p],
        rows.d_s[p],
        rows.d_Z[p],
        rows.d_L,
        rows.panel[p],
        rows.product[p],
    )


# --- derivatives by rows --------------------------------------------------------------


@njit
def list_uses(slot, touched, active, start, blocks, first, last, ends, use, place):
    """List the uses of rows from first to last, and give each touched row a slot.

    Returns the number of slots.
    """
    uses = 0
    for block in range(blocks):
        for h in range(active.shape[1]):
            row = active[start + block, h]
            use[uses], place[uses] = h, row
            uses += first <= row < last
        ends[block] = uses
    count = 0
    for i in range(uses):
        row = place[i]
        if slot[row] < 0:
            slot[row] = count
            touched[count] = row
            count += 1
        place[i] = slot[row]
    return count


@njit
def add_up(derivatives, blocks, ends, use, place, count, out):
    """out[slot] = sum of derivatives (blocks, width, H) over the uses of a row."""
    for i in range(count):
        for j in range(derivatives.shape[1]):
            out[i, j] = 0.0
    for j in range(derivatives.shape[1]):
        i = 0
        for block in range(blocks):
            while i < ends[block]:
                out[place[i], j] += derivatives[block, j, use[i]]
                i += 1


@njit
def gather_derivatives(model, rows, p, parts, active, start, blocks, grads):
    """Sum up the derivatives by rows of a part of the inducing points."""
    part = part_view(rows, p)
    M = model.Z.shape[0]
    first, last = p * M // parts, (p + 1) * M // parts
    ends, use, place = part.ends, part.use, part.place
    count = list_uses(
        part.slot, part.touched, active, start, blocks, first, last, ends, use, place,
    )  # fmt: skip
    part.count[0] = count
    add_up(grads.d_m, blocks, ends, use, place, count, part.d_m)
    if model.train_inducing:
        add_up(grads.d_Z, blocks, ends, use, place, count, part.d_Z)
    if not model.full:
        add_up(grads.d_s, blocks, ends, use, place, count, part.d_s)
        return
    for i in range(count):
        clear_factor_row(part.d_L, part.touched[i])


@njit
def factor_part_vjp(model, rows, p, parts, active, start, blocks, grads):
    """Sum up the derivatives by every `parts`-th panel of columns of L."""
    part = part_view(rows, p)
    for first in range(p * PANEL_COLUMNS, model.L.shape[2], parts * PANEL_COLUMNS):
        for b in range(blocks):
            for q in range(model.L.shape[0]):
                factor_panel_vjp(
                    model.L, q, active, start + b, grads.d_S[b, q], first,
                    part.panel, part.product, part.d_L,
                )  # fmt: skip


# --- steps ----------------------------------------------------------------------------


@njit_inline
def step_means(values, derivatives, unit, moments, rows):
    """Move rows of m or Z, in their units."""
    for i in range(rows.count[0]):
        row, fast, slow = rows.touched[i], rows.scale[i, 0], rows.scale[i, 1]
        for j in range(values.shape[1]):
            step_linear(values, row, j, derivatives[i, j], unit[j], moments, fast, slow)


@njit_inline
def step_variances(s, derivatives, moments, rows):
    """Move rows of s in their logarithm."""
    for i in range(rows.count[0]):
        row, fast, slow = rows.touched[i], rows.scale[i, 0], rows.scale[i, 1]
        for j in range(s.shape[1]):
            step_positive(s, row, j, derivatives[i, j], moments, fast, slow)


@njit_inline
def step_factors(L, derivatives, moments, rows):
    """Move rows of L."""
    for q in range(L.shape[0]):
        for i in range(rows.count[0]):
            row, fast, slow = rows.touched[i], rows.scale[i, 0], rows.scale[i, 1]
            d_row = derivatives[q, row]
            step_factor(L[q], row, d_row, moments[q], fast, slow)


@njit
def update_part(model, optimizer, rows, p, rate):
    """One step of Adam for the touched rows of m, S and Z of a part."""
    part = part_view(rows, p)
    for i in range(part.count[0]):
        row = part.touched[i]
        part.slot[row] = -1
        optimizer.row_steps[row] += 1
        scales = bias_corrections(optimizer.row_steps[row], rate)
        part.scale[i, 0], part.scale[i, 1] = scales
    step_means(model.m, part.d_m, optimizer.mean_scale, optimizer.m, part)
    if model.full:
        step_factors(model.L, part.d_L, optimizer.L, part)
    else:
        step_variances(model.s, part.d_s, optimizer.s, part)
    if model.train_inducing:
        step_means(model.Z, part.d_Z, optimizer.feature_scale, optimizer.Z, part)


# --- launches; call them within `launch` ----------------------------------------------


@njit_parallel
def update(model, optimizer, rows, active, start, blocks, grads, rate):
    """One step of Adam with the gradients of `blocks` blocks of rows active[start:]."""
    parts = rows.touched.shape[0]
    for part in prange(parts):
        gather_derivatives(
            model, rows, np.int64(part), parts, active, start, blocks, grads
        )
        if not model.full:
            update_part(model, optimizer, rows, np.int64(part), rate)
    if model.full:  # whose derivatives take rows of all parts before any moves
        for part in prange(parts):
            factor_part_vjp(
                model, rows, np.int64(part), parts, active, start, blocks, grads
            )
        for part in prange(parts):
            update_part(model, optimizer, rows, np.int64(part), rate)
    update_parameters(model, optimizer, grads, rate)


@njit
def finish_step(grads, sums):
    """Add the sums over a minibatch to those before; False after a failure."""
    for c in range(CHUNKS):
        if grads.jitter_counts[c, 1] > 0:
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
def dense_steps(
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
        dense_gradients(model, batch, start, n, all_rows, factors, works, stack, grads)
        if not finish_step(grads, sums):
            return False
        update(model, optimizer, rows, all_rows, 0, 1, grads, rates[k])
    return True
