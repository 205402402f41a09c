"""Kernels of the CUDA engine: rows of a minibatch, steps of Adam, evaluation, kriging.

A block of threads works on one row of data at a time, in a slot of the work arrays. A
step of Adam is four launches: `claim_rows`, `gradients`, `add_up`, `update_rows`. No
sum depends on the order in which threads arrive, so results repeat to the bit on the
same kind of GPU.
"""

from collections import namedtuple

import numpy as np

from skswsgp._compiled.jit import njit_inner
from skswsgp._compiled.team import barrier, single, team_range, team_sum
from skswsgp._point import rows as evaluate
from skswsgp._point.adam_step import update_parameters, update_row
from skswsgp._point.bound import bound_vjp, count_jitter, point_bound
from skswsgp._point.full_covariance import factor_row_vjp
from skswsgp._point.kriging import log_density_vjp
from skswsgp._point.state import thread_view
from skswsgp.cuda.compiler import compile_kernels, kernel
from skswsgp.cuda.runtime import cuda

BITS_PER_WORD = 64  # bits of an entry of `DeviceTouchedRows.uses`

# The inducing points that a minibatch touches, and derivatives by their rows
FIELDS = "slot touched count uses d_m d_s d_Z d_L"
DeviceTouchedRows = namedtuple("DeviceTouchedRows", FIELDS)


@njit_inner
def column_sum(A, n, j):
    """Return the sum of A[:n, j]."""
    amount = 0.0
    for i in team_range(0, n):
        amount += A[i, j]
    return team_sum(amount)


@njit_inner
def slot_view(works, n):
    """Return the work arrays of this block's slot, the slot, and its rows of n."""
    slot = cuda.blockIdx.x
    return thread_view(works, slot), slot, range(slot, n, cuda.gridDim.x)


@kernel
def take_rows(data, index, n, out):
    """Copy the rows `index` (n,) of a batch to the first n rows of another."""
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        out.weight[i] = data.weight[index[i]]
    copy_rows(data.X, index, n, out.X)
    copy_rows(data.y, index, n, out.y)
    copy_rows(data.active, index, n, out.active)


@njit_inner
def copy_rows(values, index, n, out):
    """Set out[i] = values[index[i]] for i < n; a thread copies an entry at a time."""
    columns = values.shape[1]
    for at in range(cuda.grid(1), n * columns, cuda.gridsize(1)):
        i, j = at // columns, at % columns
        out[i, j] = values[index[i], j]


@kernel
def put_lists(lists, index, out):
    """Set out[index[i]] = lists[i] for all rows; a thread copies an entry at a time."""
    n, H = lists.shape
    for at in range(cuda.grid(1), n * H, cuda.gridsize(1)):
        i, h = at // H, at % H
        out[index[i], h] = lists[i, h]


@kernel
def claim_rows(active, start, n, k, rows):
    """Give a slot in step k to each point that n rows use; a thread takes an entry."""
    i, H = cuda.grid(1), active.shape[1]
    if i < n * H:
        row = active[start + i // H, i % H]
        if cuda.atomic.cas(rows.slot, row, -1, -2) == -1:
            slot = cuda.atomic.add(rows.count, k, 1)
            rows.touched[slot] = row
            rows.slot[row] = slot


@kernel
def gradients(model, batch, start, n, works, grads, rows):
    """Compute gradients of n rows from `start`, each in its own block and chunk."""
    work, t, own_rows = slot_view(works, n)
    X, y, active, H = batch.X, batch.y, batch.active, batch.active.shape[1]
    for b in own_rows:
        row = start + b
        weight = batch.weight[row]
        for p in team_range(0, grads.d_log.shape[1]):
            grads.d_log[b, p] = 0.0
        for q in team_range(0, grads.d_noise.shape[1]):
            grads.d_noise[b, q] = 0.0
        barrier()
        ell, kl, jitter = point_bound(model, X, y, active, row, H, work)
        for slot in single(t, t + 1):
            count_jitter(model.jitter, jitter, grads.jitter_counts, slot)
            grads.sums[b, 0] = weight * ell
            grads.sums[b, 1] = weight * kl
        if jitter >= 0.0:
            bound_vjp(model, H, weight, jitter, work, grads, b, b)
        for h in team_range(0, H):
            slot = rows.slot[active[row, h]]
            bit = np.uint64(1) << np.uint64(b % BITS_PER_WORD)
            cuda.atomic.or_(rows.uses, (slot, b // BITS_PER_WORD), bit)
        barrier()


@kernel
def add_up(model, optimizer, active, start, n, k, rates, grads, rows, sums):
    """Move the parameters and set `sums` in block 0; add up derivatives in others."""
    if cuda.blockIdx.x == 0:
        add_row_sums(grads, n, sums)
        for _ in single(0, 1):
            update_parameters(model, optimizer, grads, rates[k])
    else:
        for i in range(cuda.blockIdx.x - 1, rows.count[k], cuda.gridDim.x - 1):
            clear_slot(model, rows, i)
            for word in range(rows.uses.shape[1]):
                bits = rows.uses[i, word]
                while bits != np.uint64(0):
                    b = word * BITS_PER_WORD + cuda.ffs(bits) - 1
                    add_use(model, active, start, b, i, grads, rows)
                    bits &= bits - np.uint64(1)  # without its lowest bit
            barrier()
            for word in team_range(0, rows.uses.shape[1]):
                rows.uses[i, word] = 0


@njit_inner
def add_row_sums(grads, n, sums):
    """Add up d_log and d_noise of n rows in row 0, and grads.sums in `sums`."""
    for p in range(grads.d_log.shape[1]):
        amount = column_sum(grads.d_log, n, p)
        for _ in single(0, 1):
            grads.d_log[0, p] = amount
    for q in range(grads.d_noise.shape[1]):
        amount = column_sum(grads.d_noise, n, q)
        for _ in single(0, 1):
            grads.d_noise[0, q] = amount
    for j in range(sums.shape[0]):
        amount = column_sum(grads.sums, n, j)
        for _ in single(0, 1):
            sums[j] += amount
    barrier()


@njit_inner
def clear_slot(model, rows, i):
    """Set the derivatives in slot i to zero."""
    for j in team_range(0, rows.d_m.shape[1]):
        rows.d_m[i, j] = 0.0
    if model.full:
        for q in range(rows.d_L.shape[0]):
            for j in team_range(0, rows.d_L.shape[2]):
                rows.d_L[q, i, j] = 0.0
    else:
        for j in team_range(0, rows.d_s.shape[1]):
            rows.d_s[i, j] = 0.0
    if model.train_inducing:
        for j in team_range(0, rows.d_Z.shape[1]):
            rows.d_Z[i, j] = 0.0
    barrier()


@njit_inner
def add_use(model, active, start, b, i, grads, rows):
    """Add the derivatives of row b of the minibatch to slot i."""
    row, found = rows.touched[i], 0
    for h in team_range(0, active.shape[1]):
        if active[start + b, h] == row:
            found = h
    h = int(team_sum(float(found)))  # where the list of row b has the inducing point
    for j in team_range(0, rows.d_m.shape[1]):
        rows.d_m[i, j] += grads.d_m[b, j, h]
    if model.full:
        for q in range(rows.d_L.shape[0]):
            d_S, d_row = grads.d_S[b, q], rows.d_L[q, i]
            factor_row_vjp(model.L, q, active, start + b, d_S, h, d_row)
    else:
        for j in team_range(0, rows.d_s.shape[1]):
            rows.d_s[i, j] += grads.d_s[b, j, h]
    if model.train_inducing:
        for j in team_range(0, rows.d_Z.shape[1]):
            rows.d_Z[i, j] += grads.d_Z[b, j, h]
    barrier()


@kernel
def update_rows(model, optimizer, k, rates, rows):
    """Take a step of Adam for the touched rows of m, S and Z, a thread for each."""
    for i in range(cuda.grid(1), rows.count[k], cuda.gridsize(1)):
        update_row(model, optimizer, rows, i, i, rates[k])


@kernel
def weights_rows(model, works, n, X, active, noisy, a, F, counts):
    """Compute a (n, R, H) and F (n, R); see `weights_row`."""
    work, t, rows = slot_view(works, n)
    for row in rows:
        evaluate.weights_row(model, X, active, row, noisy, work, a, F, counts, t)


@kernel
def expectation_rows(model, works, n, y, mu, v, ell, d_mu, d_v, counts):
    """Compute E log p(y | f) (n,), f ~ N(mu, v), and derivatives by mu, v (n, Q)."""
    work, _, rows = slot_view(works, n)
    for row in rows:
        evaluate.expectation_row(model, y, mu, v, row, work, ell, d_mu, d_v)


@kernel
def bound_rows(model, works, n, X, y, active, ell, kl, counts):
    """Compute E log p(y | f) (n,) and KL_w (n,)."""
    work, t, rows = slot_view(works, n)
    for row in rows:
        evaluate.bound_row(model, X, y, active, row, work, ell, kl, counts, t)


@kernel
def kriging_slopes_rows(model, works, n, X, active, slopes, d_log, counts):
    """Compute the derivatives of the mean of kriging by the rows of X (n, Q, D)."""
    work, _, rows = slot_view(works, n)
    for row in rows:
        evaluate.kriging_slopes_row(model, X, active, row, work, slopes, d_log)


@kernel
def kriging_gradients(model, batch, start, n, works, results):
    """Set row b of the results to the terms of row start + b of the batch, b < n.

    These are the derivatives of weight log p(y | m_w) by the logarithms of the kernel
    parameters and of the noise variances, and weight log p(y | m_w) itself.
    """
    work, _, rows = slot_view(works, n)
    P, Q, H = model.params.shape[0], model.noise.shape[0], batch.active.shape[1]
    for b in rows:
        for j in team_range(0, results.shape[1]):
            results[b, j] = 0.0
        barrier()
        row, weight = start + b, batch.weight[start + b]
        d_log, d_noise = results[b, :P], results[b, P : P + Q]
        density = log_density_vjp(
            model, batch.X, batch.y, batch.active, row, H, weight, work, d_log, d_noise,
            False,
        )  # fmt: skip
        for j in single(P + Q, P + Q + 1):
            results[b, j] = weight * density
        barrier()


@kernel
def add_results(results, n):
    """Add up the first n rows of the results in row 0; a block adds up a column."""
    for j in range(cuda.blockIdx.x, results.shape[1], cuda.gridDim.x):
        amount = column_sum(results, n, j)
        for b in single(0, 1):
            results[b, j] = amount


compile_kernels(__name__)
