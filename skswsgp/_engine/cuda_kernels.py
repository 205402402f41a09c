"""Kernels of the CUDA engine; loops only, no formula.

A block works on a datum at a time, its threads being the lanes of `_lanes`; with one
lane, each thread of a block works on a datum of its own. Work arrays belong to places:
blocks, or such threads. A step of Adam is four launches: `claim_rows`, `gradients`,
`add_up`, `update_rows`. No sum depends on which thread came first, so that results
repeat to the bit on the same kind of GPU.


----

Kernels of kriging on a GPU; loops only, no formula.

A block works on a datum at a time, its threads being the lanes of `_lanes`, as in
`_engine_cuda`. What points say is added up in an order that does not depend on which
came first.
"""

import math
from typing import NamedTuple

import numpy as np

from skswsgp._compiled.cuda_compiler import compile_kernels, kernel
from skswsgp._compiled.cuda_runtime import cuda
from skswsgp._compiled.jit import njit
from skswsgp._compiled.linalg import (
    column_sum,
    invert_factor,
    log_determinant,
    square_upper,
)
from skswsgp._compiled.team import barrier, single, team_range, team_rank, team_sum
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._engine.cuda_triangle import slot_view
from skswsgp._point.adam_step import (
    bias_corrections,
    step_factor,
    step_linear,
    step_positive,
    update_parameters,
)
from skswsgp._point.bound import (
    bound_vjp,
    count_jitter,
    factorise_point,
    fill_point,
    point_bound,
)
from skswsgp._point.full_covariance import factor_row_vjp
from skswsgp._point.kriging import krige, log_density_vjp
from skswsgp._point.likelihoods import expected_log_prob
from skswsgp._point.posterior import conditional_weights, posterior, posterior_mean
from skswsgp._point.state import thread_view

BITS_PER_WORD = 64  # uses of a row that an entry of `uses` tells


class DeviceTouchedRows(NamedTuple):
    """The inducing points that a minibatch touches, and derivatives by their rows."""

    slot: np.ndarray  # (M,) int64, slot of a row, -1 between steps
    touched: np.ndarray  # (T,) int64, row of a slot
    count: np.ndarray  # (steps,) int64, slots that a step takes, zero before
    uses: np.ndarray  # (T, n / WORD) uint64, which points use a row; zero between steps
    d_m: np.ndarray  # (T, Q)
    d_s: np.ndarray  # (T, Q), diagonal covariance
    d_Z: np.ndarray  # (T, D), trained Z
    d_L: np.ndarray  # (T, Q, M), full covariance


# --- rows of training data ------------------------------------------------------------


@kernel
def take_rows(data, index, n, out):
    """Copy n rows of a batch to the first of another."""
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        out.weight[i] = data.weight[index[i]]
    copy_rows(data.X, index, n, out.X)
    copy_rows(data.y, index, n, out.y)
    copy_rows(data.active, index, n, out.active)


@njit
def copy_rows(values, index, n, out):
    """out[i] = values[index[i]] for i < n; a thread for each number."""
    columns = values.shape[1]
    for at in range(cuda.grid(1), n * columns, cuda.gridsize(1)):
        i, j = at // columns, at % columns
        out[i, j] = values[index[i], j]


@kernel
def put_lists(lists, index, out):
    """out[index[i]] = lists[i] for all rows; a thread for each number."""
    n, H = lists.shape
    for at in range(cuda.grid(1), n * H, cuda.gridsize(1)):
        i, h = at // H, at % H
        out[index[i], h] = lists[i, h]


# --- a step ---------------------------------------------------------------------------


@kernel
def claim_rows(active, start, n, k, rows):
    """Give each row that n points from `start` use a slot; a thread for each use."""
    i, H = cuda.grid(1), active.shape[1]
    if i < n * H:
        row = active[start + i // H, i % H]
        if cuda.atomic.cas(rows.slot, row, -1, -2) == -1:
            slot = cuda.atomic.add(rows.count, k, 1)
            rows.touched[slot] = row
            rows.slot[row] = slot


@kernel
def gradients(model, batch, start, n, works, grads, rows):
    """Gradients of n points from `start`, each in a block and chunk of its own."""
    place = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    places = cuda.gridDim.x * cuda.blockDim.y
    lane, _ = team_rank()
    H = batch.active.shape[1]
    for b in range(place, n, places):
        work = slot_view(works, place)
        row = start + b
        weight = batch.weight[row]
        for p in team_range(0, grads.d_log.shape[1]):
            grads.d_log[b, p] = 0.0
        for q in team_range(0, grads.d_noise.shape[1]):
            grads.d_noise[b, q] = 0.0
        barrier()
        ell, kl, jitter = point_bound(
            model, batch.X, batch.y, batch.active, row, H, work
        )
        if lane == 0:
            count_jitter(model.jitter, jitter, grads.jitter_counts, place)
            grads.sums[b, 0] = weight * ell
            grads.sums[b, 1] = weight * kl
        if jitter >= 0.0:
            bound_vjp(model, H, weight, jitter, work, grads, b, b)
        for h in team_range(0, H):
            slot = rows.slot[batch.active[row, h]]
            bit = np.uint64(1) << np.uint64(b % BITS_PER_WORD)
            cuda.atomic.or_(rows.uses, (slot, b // BITS_PER_WORD), bit)
        barrier()


@kernel
def add_up(model, optimizer, active, start, n, k, rates, grads, rows, sums):
    """Add up the derivatives of each touched row; move the parameters.

    The first block adds those of the parameters, and the objective to `sums`.
    """
    if cuda.blockIdx.x == 0:
        add_points(grads, n, sums)
        for _ in single(0, 1):
            update_parameters(model, optimizer, grads, rates[k])
    else:
        for i in range(cuda.blockIdx.x - 1, rows.count[k], cuda.gridDim.x - 1):
            clear_slot(model, rows, i)
            for word in range(rows.uses.shape[1]):
                bits = rows.uses[i, word]
                for bit in range(BITS_PER_WORD):
                    if (bits >> np.uint64(bit)) & np.uint64(1):
                        b = word * BITS_PER_WORD + bit
                        add_use(model, active, start, b, i, grads, rows)
            barrier()
            for word in team_range(0, rows.uses.shape[1]):
                rows.uses[i, word] = 0


@njit
def add_points(grads, n, sums):
    """Add up the sums of n points, in place of the first and to `sums`."""
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


@njit
def clear_slot(model, rows, i):
    """Set the derivatives by the row of a slot to zero."""
    for j in team_range(0, rows.d_m.shape[1]):
        rows.d_m[i, j] = 0.0
    if model.full:
        for q in range(rows.d_L.shape[1]):
            for j in team_range(0, rows.d_L.shape[2]):
                rows.d_L[i, q, j] = 0.0
    else:
        for j in team_range(0, rows.d_s.shape[1]):
            rows.d_s[i, j] = 0.0
    if model.train_inducing:
        for j in team_range(0, rows.d_Z.shape[1]):
            rows.d_Z[i, j] = 0.0
    barrier()


@njit
def add_use(model, active, start, b, i, grads, rows):
    """Add what point b says of row i: columns of its block, a row of L."""
    row, place = rows.touched[i], 0
    for h in team_range(0, active.shape[1]):
        if active[start + b, h] == row:
            place = h
    h = int(team_sum(float(place)))
    for j in team_range(0, rows.d_m.shape[1]):
        rows.d_m[i, j] += grads.d_m[b, j, h]
    if model.full:
        for q in range(rows.d_L.shape[1]):
            d_S, d_row = grads.d_S[b, q], rows.d_L[i, q]
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
    """One step of Adam for the touched rows of m, S and Z; a thread for each."""
    for i in range(cuda.grid(1), rows.count[k], cuda.gridsize(1)):
        row = rows.touched[i]
        rows.slot[row] = -1
        optimizer.row_steps[row] += 1
        fast, slow = bias_corrections(optimizer.row_steps[row], rates[k])
        for j in range(model.m.shape[1]):
            unit, slope = optimizer.mean_scale[j], rows.d_m[i, j]
            step_linear(model.m, row, j, slope, unit, optimizer.m, fast, slow)
            if model.full:
                d_row = rows.d_L[i, j]
                step_factor(model.L[j], row, d_row, optimizer.L[j], fast, slow)
            else:
                slope = rows.d_s[i, j]
                step_positive(model.s, row, j, slope, optimizer.s, fast, slow)
        if model.train_inducing:
            for j in range(model.Z.shape[1]):
                unit, slope = optimizer.feature_scale[j], rows.d_Z[i, j]
                step_linear(model.Z, row, j, slope, unit, optimizer.Z, fast, slow)


# --- evaluation -----------------------------------------------------------------------


@kernel
def evaluate_posterior(model, X, active, n, works, with_variance, mu, v, jitter_counts):
    """q(f) of n rows: mu (n, Q) and, if wanted, v (n, Q) are set."""
    place = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    lane, _ = team_rank()
    H = active.shape[1]
    start = row_start(H, TRIANGLE)
    for row in range(place, n, cuda.gridDim.x * cuda.blockDim.y):
        work = slot_view(works, place)
        jitter = factorise_point(model, X, active, row, H, work)
        if lane == 0:
            count_jitter(model.jitter, jitter, jitter_counts, place)
        if jitter >= 0.0:
            if with_variance:
                kxx = work.values[work.values.shape[0] - 1, start + H]
                posterior(model, work, work, start, kxx, H)
            else:
                conditional_weights(work, work, start, 0.0, H)
                posterior_mean(work, work, H)
            for q in team_range(0, mu.shape[1]):
                mu[row, q] = work.mean[q]
                if with_variance:
                    v[row, q] = work.variance[q]
        barrier()


@kernel
def evaluate_weights(model, X, active, n, works, weights, variance, jitter_counts):
    """a = K^-1 k (n, H) and F = k(x, x) - k' a (n,) of n rows."""
    place = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    lane, _ = team_rank()
    H = active.shape[1]
    start = row_start(H, TRIANGLE)
    for row in range(place, n, cuda.gridDim.x * cuda.blockDim.y):
        work = slot_view(works, place)
        jitter = factorise_point(model, X, active, row, H, work)
        if lane == 0:
            count_jitter(model.jitter, jitter, jitter_counts, place)
        if jitter >= 0.0:
            kxx = work.values[work.values.shape[0] - 1, start + H]
            variance[row] = conditional_weights(work, work, start, kxx, H)
            for h in team_range(0, H):
                weights[row, h] = work.a[0, h]
        barrier()


@kernel
def evaluate_inverses(model, X, active, n, works, inverse, log_det, jitter_counts):
    """K_w^-1 (n, H, H) and log |K_w| (n,) of n rows."""
    place = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    lane, _ = team_rank()
    H = active.shape[1]
    for row in range(place, n, cuda.gridDim.x * cuda.blockDim.y):
        work = slot_view(works, place)
        jitter = factorise_point(model, X, active, row, H, work)
        if lane == 0:
            count_jitter(model.jitter, jitter, jitter_counts, place)
        if jitter >= 0.0:
            invert_factor(work.chol, work.blocks, work.upper)
            square_upper(work.upper, work.inverse)
            log_det[row] = log_determinant(work.chol, H)
            for g in team_range(0, H):
                for h in range(H):
                    inverse[row, g, h] = work.inverse[g, h]
        barrier()


@kernel
def evaluate_expectations(model, y, n, works, mu, v, ell, d_mu, d_v):
    """E log p(y | f) (n,), f ~ N(mu, v), and its derivatives by mu and v (n, Q)."""
    place = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    for row in range(place, n, cuda.gridDim.x * cuda.blockDim.y):
        work = thread_view(works, place)
        for q in team_range(0, mu.shape[1]):
            work.mean[q] = mu[row, q]
            work.variance[q] = v[row, q]
        barrier()
        ell[row] = expected_log_prob(model, y, row, work)
        for q in range(mu.shape[1]):
            d_mu[row, q] = work.d_mean[q]
            d_v[row, q] = work.d_variance[q]
        barrier()


@kernel
def evaluate_bounds(model, batch, n, works, ell, kl, jitter_counts):
    """E log p(y | f) and KL_w (n,) of n rows."""
    place = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    lane, _ = team_rank()
    H = batch.active.shape[1]
    for row in range(place, n, cuda.gridDim.x * cuda.blockDim.y):
        work = slot_view(works, place)
        ell[row], kl[row], jitter = point_bound(
            model, batch.X, batch.y, batch.active, row, H, work
        )
        if lane == 0:
            count_jitter(model.jitter, jitter, jitter_counts, place)
        barrier()


@kernel
def kriging_gradients(model, batch, start, n, works, results):
    """Set row b of the results to what point start + b of the n points says.

    A row holds the derivatives of weight log p(y | m_w) by the logarithms of the P
    kernel parameters and of the Q noise variances, then the value itself.
    """
    place = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    P, Q, H = model.params.shape[0], model.noise.shape[0], batch.active.shape[1]
    for b in range(place, n, cuda.gridDim.x * cuda.blockDim.y):
        work = slot_view(works, place)
        for j in team_range(0, results.shape[1]):
            results[b, j] = 0.0
        barrier()
        row, weight = start + b, batch.weight[start + b]
        d_log, d_noise = results[b, :P], results[b, P : P + Q]
        density = log_density_vjp(
            model, batch.X, batch.y, batch.active, row, H, weight, work, d_log, d_noise
        )
        for j in single(P + Q, P + Q + 1):
            results[b, j] = weight * density
        barrier()


@kernel
def add_up_points(results, n):
    """Add up the first n rows of the results in the first; a block for each column."""
    for j in range(cuda.blockIdx.x, results.shape[1], cuda.gridDim.x):
        amount = column_sum(results, n, j)
        for b in single(0, 1):
            results[b, j] = amount


@kernel
def kriging_predictions(model, X, active, n, works, mu, v):
    """mu and F of n rows, (n, Q), NaN where C has no factor."""
    place = cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y
    H = active.shape[1]
    for row in range(place, n, cuda.gridDim.x * cuda.blockDim.y):
        work = slot_view(works, place)
        fill_point(model, X, active, row, H, work)
        for q in range(mu.shape[1]):
            found = krige(model, work, H, q) >= 0.0
            for at in single(row, row + 1):
                mu[at, q] = work.mean[q] if found else math.nan
                v[at, q] = work.variance[q] if found else math.nan
        barrier()


compile_kernels(__name__)
