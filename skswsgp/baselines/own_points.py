"""Rows that each have inducing points, and a q(u), of their own.

A model of M points is rewritten before each row. The numbers of a row, its outputs of a
network, are those of Z (M, D), of m (M, Q), and of the lower factors of S (Q, M, M) row
by row, the diagonals as logarithms. Z is offset + scale times its numbers. Derivatives
by the numbers follow from those of `_point.bound`.
"""

import math

import numpy as np

from skswsgp._adam.adjoints import bound_vjp
from skswsgp._adam.gradients import add_chunks
from skswsgp._compiled.jit import njit, njit_inner
from skswsgp._compiled.threads import (
    CHUNKS,
    MICROSECONDS_PER_NEW_THREAD,
    chunk_bounds,
    microseconds_per_point,
    run_in_threads,
    threads_for,
)
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._engine.cpu_loops import clear_chunk
from skswsgp._point import bound
from skswsgp._point.posterior import posterior
from skswsgp._point.state import allocate_gradients, allocate_workspace, thread_view


@njit_inner
def load_row(model, units, outputs, row):
    """Set Z, m and L of the model to those of outputs[row]."""
    (M, D), Q, k = model.Z.shape, model.m.shape[1], 0
    for h in range(M):
        for d in range(D):
            model.Z[h, d] = units[0, d] + units[1, d] * outputs[row, k]
            k += 1
    for h in range(M):
        for q in range(Q):
            model.m[h, q] = outputs[row, k]
            k += 1
    for q in range(Q):
        for i in range(M):
            for j in range(i):
                model.L[q, i, j] = outputs[row, k]
                k += 1
            model.L[q, i, i] = math.exp(outputs[row, k])
            k += 1


@njit_inner
def store_row(model, units, grads, block, d_outputs, row):
    """Set d_outputs[row] from the derivatives by Z, m and S in a block.

    The derivatives by L are twice the lower triangle of those by S times L.
    """
    (M, D), Q, k = model.Z.shape, model.m.shape[1], 0
    for h in range(M):
        for d in range(D):
            d_outputs[row, k] = units[1, d] * grads.d_Z[block, d, h]
            k += 1
    for h in range(M):
        for q in range(Q):
            d_outputs[row, k] = grads.d_m[block, q, h]
            k += 1
    for q in range(Q):
        for i in range(M):
            for j in range(i + 1):
                slope = 0.0
                for h in range(j, M):
                    slope += grads.d_S[block, q, i, h] * model.L[q, h, j]
                d_outputs[row, k] = 2.0 * slope * (model.L[q, i, i] if i == j else 1.0)
                k += 1


@njit
def gradient_chunks(
    first, last, t, model, units, works, X, y, weight, active, outputs, d_outputs, grads
):
    """Compute derivatives by the outputs of rows in chunks `first` to `last`."""
    work, n, M = thread_view(works, t), X.shape[0], active.shape[1]
    for c in range(first, last):
        clear_chunk(grads, c)
        begin, end = chunk_bounds(c, n)
        for row in range(begin, end):
            load_row(model, units, outputs, row)
            ell, kl, jitter = bound.point_bound(model, X, y, active, row, M, work)
            bound.count_jitter(model.jitter, jitter, grads.jitter_counts, c)
            grads.sums[c, 0] += weight[row] * ell
            grads.sums[c, 1] += weight[row] * kl
            if jitter >= 0.0:
                bound_vjp(model, M, weight[row], jitter, work, grads, c, c)
                store_row(model, units, grads, c, d_outputs, row)


@njit
def posterior_rows(
    first, last, t, model, units, works, X, active, outputs, mu, v, counts
):
    """Compute mu and v (n, Q) of eq. 13."""
    work, M = thread_view(works, t), active.shape[1]
    for row in range(first, last):
        load_row(model, units, outputs, row)
        jitter = bound.factorise_point(model, X, active, row, M, work)
        bound.count_jitter(model.jitter, jitter, counts, t)
        if jitter >= 0.0:
            posterior(model, work, work, row_start(M, TRIANGLE), M)
            for q in range(mu.shape[1]):
                mu[row, q], v[row, q] = work.mean[q], work.variance[q]


class OwnPoints:
    """Loops over rows with points of their own, on the threads of the CPU.

    `model` says how many points a row has, and holds the kernel and the noise, which
    training modifies. `offset` and `scale` (D,) are those of the outputs for Z.
    """

    def __init__(self, model, offset, scale, n_threads):
        M, Q = model.m.shape
        self.model, self.units = model, np.stack([offset, scale])
        self.n_outputs = M * model.Z.shape[1] + Q * (M + M * (M + 1) // 2)
        self.works = allocate_workspace(model, M, n_threads)
        self.grads = allocate_gradients(model, CHUNKS, M)
        self.jitter_counts = np.zeros((n_threads, 2), dtype=np.int64)
        own = "Z", "m", "L"  # of each thread; other arrays are shared
        self._models = [
            model._replace(**{name: getattr(model, name).copy() for name in own})
            for _ in range(n_threads)
        ]

    def gradients(self, X, y, weight, outputs):
        """Return the derivatives of the objective of `_point.bound` by outputs (n, K).

        Those by kernel parameters and noise, and the sums, are in the first chunk of
        `grads`.
        """
        d_outputs = np.zeros_like(outputs)
        rows = X, y, weight, self._lists(len(X))
        self._run(gradient_chunks, CHUNKS, *rows, outputs, d_outputs, self.grads)
        add_chunks(self.grads)
        return d_outputs

    def predict(self, X, outputs):
        """Return mean and variance (n, Q) of q(f) at rows of X, NaN after a failure."""
        mu, v = np.full((2, len(X), self.model.m.shape[1]), np.nan)
        found = outputs, mu, v, self.jitter_counts
        self._run(posterior_rows, len(X), X, self._lists(len(X)), *found)
        return mu, v

    def points(self, outputs):
        """Return the inducing points (n, M, D) of rows."""
        M, D = self.model.Z.shape
        return self.units[0] + self.units[1] * outputs[:, : M * D].reshape(-1, M, D)

    def _lists(self, n):
        M = len(self.model.Z)
        return np.tile(np.arange(M, dtype=np.int32), (n, 1))

    def _run(self, loop, n_tasks, X, *arguments):
        """Call a loop over tasks, each thread with a model of its own."""
        work = len(X) * microseconds_per_point(len(self.model.Z))
        k = threads_for(work, len(self._models), MICROSECONDS_PER_NEW_THREAD)

        def in_thread(first, last, t):
            known = self._models[t], self.units, self.works, X
            loop(first, last, t, *known, *arguments)

        run_in_threads(in_thread, k, n_tasks)
