"""Steps of Adam on the threads of the CPU for Z, m, S and the parameters.

The cost of a step depends on the inducing points that its minibatch touches, not on M.
Each touched row of Z, m and S gets a slot, in which its derivatives are added up in the
order of the data; then the row takes its step. The inducing points are divided into
parts, one for each thread. Results do not depend on the number of parts. The functions
from `update` on are called within `parallel_region`.
"""

from collections import namedtuple

import numpy as np
from numba import prange

from skswsgp._adam.gradients import (
    dense_gradients,
    factor_panel_vjp,
    local_gradients,
)
from skswsgp._adam.moves import step_factor, update_row
from skswsgp._adam.union import choose_active
from skswsgp._compiled.jit import njit, njit_inline, njit_inner, njit_parallel, njit_row
from skswsgp._compiled.linalg import padded
from skswsgp._compiled.pointers import by_address
from skswsgp._compiled.threads import CHUNKS
from skswsgp._point.adam_step import bias_corrections, update_parameters
from skswsgp._point.full_covariance import PANEL_COLUMNS

# The inducing points that a minibatch touches, and derivatives by their rows.
# Arrays but `slot` and `d_L` have a leading axis of parts, which `part_view` removes.
TouchedRows = namedtuple(
    "TouchedRows", "slot count ends use use_slot touched d_m d_s d_Z d_L panel product"
)
part_view = njit_row(TouchedRows, whole=("slot", "d_L"))

GATHER, FACTOR, MOVE = range(3)  # phases of `update`, of which a diagonal S has one

# The first list and the number of lists of a step with one K. Numba compiles functions
# anew for constants of Python, and not for those of NumPy.
FIRST, ONE = np.int64(0), np.int64(1)


def allocate_touched_rows(model, lists, H, parts):
    """Allocate `TouchedRows` for a number of lists of H inducing points.

    A use is an entry of the lists; a part has the uses of its own points, in order.
    """
    M, Q = model.m.shape
    T, dtype = min(-(-M // parts), lists * H), model.Z.dtype
    full, moving = model.full, model.train_inducing
    side = padded(H) if full else 0

    def zeros(*shape, dtype=dtype):
        return np.zeros((parts, *shape), dtype)

    return TouchedRows(
        slot=np.full(M, -1, dtype=np.int64),  # slot in its part, -1 between steps
        count=zeros(1, dtype=np.int64),  # slots in use
        ends=zeros(lists, dtype=np.int64),  # number of uses up to the end of a list
        use=zeros(lists * H, dtype=np.int32),  # position of a use in its list
        use_slot=zeros(lists * H, dtype=np.int32),  # slot of the row that is used
        touched=zeros(T, dtype=np.int64),  # row of a slot
        d_m=zeros(T, Q),
        d_s=zeros(0 if full else T, Q),
        d_Z=zeros(T if moving else 0, model.Z.shape[1]),
        d_L=np.zeros_like(model.L),  # valid in touched rows
        panel=zeros(side, PANEL_COLUMNS),  # scratch of `factor_panel_vjp`
        product=zeros(side, PANEL_COLUMNS),
    )


@njit_inner
def list_uses(slot, touched, active, start, lists, first, last, ends, use, use_slot):
    """List the uses of rows `first` to `last`; give a slot to each, count them."""
    uses = 0
    for i in range(lists):
        for h in range(active.shape[1]):
            row = active[start + i, h]
            use[uses], use_slot[uses] = h, row
            uses += first <= row < last
        ends[i] = uses
    count = 0
    for i in range(uses):
        row = use_slot[i]
        if slot[row] < 0:
            slot[row] = count
            touched[count] = row
            count += 1
        use_slot[i] = slot[row]
    return count


@njit_inner
def add_uses(derivatives, lists, ends, use, use_slot, count, out):
    """Set out[slot] to the sum of derivatives (lists, width, H) over uses of a row."""
    for i in range(count):
        for j in range(derivatives.shape[1]):
            out[i, j] = 0.0
    for j in range(derivatives.shape[1]):
        i = 0
        for b in range(lists):
            while i < ends[b]:
                out[use_slot[i], j] += derivatives[b, j, use[i]]
                i += 1


@njit_inline
def gather_derivatives(model, rows, p, parts, active, start, lists, grads):
    """Add up the derivatives by m, s and Z of the touched points of part p."""
    part = part_view(rows, p)
    first, last = p * len(model.Z) // parts, (p + 1) * len(model.Z) // parts
    ends, use, use_slot, slots = part.ends, part.use, part.use_slot, part.slot
    count = list_uses(
        slots, part.touched, active, start, lists, first, last, ends, use, use_slot
    )
    part.count[0] = count
    add_uses(grads.d_m, lists, ends, use, use_slot, count, part.d_m)
    if model.train_inducing:
        add_uses(grads.d_Z, lists, ends, use, use_slot, count, part.d_Z)
    if not model.full:
        add_uses(grads.d_s, lists, ends, use, use_slot, count, part.d_s)
    for i in range(count if model.full else 0):
        row = part.touched[i]
        for q in range(part.d_L.shape[0]):
            for j in range(row + 1):
                part.d_L[q, row, j] = 0.0


@njit_inline
def factor_part_vjp(model, rows, p, parts, active, start, lists, grads):
    """Add up the derivatives by L in every `parts`-th panel of columns from panel p."""
    part = part_view(rows, p)
    for first in range(p * PANEL_COLUMNS, model.L.shape[2], parts * PANEL_COLUMNS):
        for b in range(lists):
            for q in range(model.L.shape[0]):
                factor_panel_vjp(
                    model.L, q, active, start + b, grads.d_S[b, q], first,
                    part.panel, part.product, part.d_L,
                )  # fmt: skip


@njit_inline
def update_part(model, optimizer, rows, p, rate):
    """Take a step of Adam for the touched rows of m, S and Z of part p."""
    part = part_view(rows, p)
    for i in range(part.count[0]):
        row = part.touched[i]
        part.slot[row] = -1
        update_row(model, optimizer, part, i, row, rate)
        fast, slow = bias_corrections(optimizer.row_steps[row], rate)
        for q in range(model.L.shape[0] if model.full else 0):
            d_row = part.d_L[q, row]
            step_factor(model.L[q], row, d_row, optimizer.L[q], fast, slow)


@njit
def move_part(
    model, optimizer, rows, p, parts, active, start, lists, grads, rate, phase
):
    """Do a phase of `update` for part p of the inducing points.

    GATHER adds up derivatives, and FACTOR those by L, which read rows of L of all
    parts. MOVE takes the step; it comes at once after GATHER where S is diagonal.
    """
    if phase == GATHER:
        gather_derivatives(model, rows, p, parts, active, start, lists, grads)
    if phase == FACTOR:
        factor_part_vjp(model, rows, p, parts, active, start, lists, grads)
    if phase == MOVE or not model.full:
        update_part(model, optimizer, rows, p, rate)


call_part = by_address(move_part)


@njit_parallel
def update(address, model, optimizer, rows, active, start, lists, grads, rate):
    """Take a step of Adam with the gradients of active[start : start + lists].

    The address is that of `move_part` for these arrays.
    """
    parts = rows.touched.shape[0]
    for phase in range(3 if model.full else 1):
        for part in prange(parts):
            p, step = np.int64(part), (active, start, lists, grads, rate, phase)
            call_part(address, (model, optimizer, rows, p, parts, *step))
    update_parameters(model, optimizer, grads, rate)


@njit_inner
def finish_step(grads, sums):
    """Add the sums over a minibatch to `sums`; return whether no K_w failed."""
    for c in range(CHUNKS):
        if grads.jitter_counts[c, 1] > 0:
            return False
    for j in range(sums.shape[0]):
        sums[j] += grads.sums[0, j]
    return True


@njit
def local_steps(addresses, model, optimizer, rows, batch, n, rates, works, grads, sums):
    """Take a step for each rate, on the next n rows; return whether no K_w failed.

    The addresses are those of `gradient_chunks` and `move_part` for these arrays.
    """
    for k in range(rates.shape[0]):
        start = k * n
        local_gradients(addresses[0], model, batch, start, n, works, grads)
        if not finish_step(grads, sums):
            return False
        how = optimizer, rows, batch.active, start, n, grads, rates[k]
        update(addresses[1], model, *how)
    return True


@njit
def shared_steps(
    addresses, model, optimizer, rows, batch, n, rates, shared, grads, sums
):
    """Take steps as `local_steps` does, each with one K, of the points of its rows.

    The addresses are those of `dense_gradient_chunks` and `move_part`. `shared` begins
    with the scratch of `choose_active`, and an array for the union of the lists.
    Without scratch the array holds the points of all steps.
    """
    uses, place, keys, points, factors, works, stack = shared
    for k in range(rates.shape[0]):
        at, count = k * n, points.shape[0]
        if uses.shape[0] > 0:
            count = choose_active(batch.active, at, n, uses, place, keys, points)
        active = points[:count].reshape(1, count)
        given = model, batch, at, n, active, factors, works, stack, grads
        dense_gradients(addresses[0], *given)
        if not finish_step(grads, sums):
            return False
        how = optimizer, rows, active, FIRST, ONE, grads, rates[k]
        update(addresses[1], model, *how)
    return True
