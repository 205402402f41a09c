"""The engine of the CPU: compiled loops together with the arrays that they work on."""

import numpy as np

from skswsgp._compiled import threads
from skswsgp._compiled.special import gaussian_log_density
from skswsgp._compiled.threads import CHUNKS, microseconds_per_point, threads_for
from skswsgp._covariance.products import CovarianceProducts
from skswsgp._engine import cpu_adam, cpu_loops
from skswsgp._engine.base import Engine
from skswsgp._linear.all_points import AllPoints
from skswsgp._neighbors.search import cpu_scan
from skswsgp._point import adam_step
from skswsgp._point.bound import allocate_stack
from skswsgp._point.likelihoods import GAUSSIAN, expected_gaussian
from skswsgp._point.state import (
    Batch,
    Workspace,
    allocate_gradients,
    allocate_workspace,
)
from skswsgp._point.union import union_arrays


class CpuEngine(Engine):
    """An engine on the threads of the CPU; each row factorises its own K_w."""

    def __init__(self, model, n_neighbors, n_threads):
        super().__init__(model, n_neighbors, n_threads)
        self.jitter_counts = np.zeros((max(CHUNKS, n_threads), 2), dtype=np.int64)
        self._allocate_workspace()

    def _allocate_workspace(self):
        """Allocate `work`, and `factor`, the work arrays that include K_w."""
        self.work = allocate_workspace(self.model, self.n_neighbors, self.n_threads)
        self.factor = self.work

    def kernel_snapshot(self):
        return self.model

    make_scan = staticmethod(cpu_scan)
    make_products = CovarianceProducts

    def place_matrix(self, matrix):
        return matrix

    def close(self):
        """Release nothing: all memory is that of the host."""

    def prepare_training(self, n, free, log_bounds, feature_scale, n_active=None):
        make = adam_step.make_optimizer
        self.optimizer = make(self.model, free, log_bounds, feature_scale)
        self.sums = np.zeros(2)
        if n_active is None:
            self._allocate_step(n, self.n_neighbors, blocks=n, lists=n)
            self._shared = None
        else:
            self._allocate_step(n, n_active, blocks=CHUNKS, lists=1)
            self._shared = self._allocate_union(n, n_active)

    def _allocate_step(self, n, H, blocks, lists):
        """Choose the threads of a step of n rows, and allocate its derivatives.

        There are some blocks of derivatives and some lists of active points, H in each.
        """
        self.step_threads = threads_for(n * microseconds_per_point(H), self.n_threads)
        grads = allocate_gradients(self.model, blocks, H)
        self.grads = grads._replace(jitter_counts=self.jitter_counts)
        self.rows = cpu_adam.allocate_touched_rows(
            self.model, lists, H, self.step_threads
        )

    def _allocate_union(self, n, n_active):
        """Return the arrays of steps in which n rows share their active points."""
        model, threads = self.model, self.n_threads
        scratch = union_arrays(n, self.n_neighbors, len(model.Z)).values()
        return (
            *(np.zeros(*array) for array in scratch),
            np.zeros(n_active, np.int32),
            allocate_workspace(model, n_active, 1),
            allocate_workspace(model, n_active, threads, dense=True),
            allocate_stack(model, n, n_active, threads),
        )

    def make_loader(self, data, neighbors):
        return RowLoader(data, neighbors)

    def steps(self, batch, n, rates):
        sums = np.zeros(2)
        if self.model.full and self._shared is None:  # rows of L are read in order
            batch = batch._replace(active=np.sort(batch.active, axis=1))
        with threads.parallel_region(self.step_threads) as variant:
            finished = self._take_steps(variant, batch, n, rates, sums)
        self.sums += sums
        adam_step.require_finite_training(self.sums if finished else np.full(2, np.nan))

    def _take_steps(self, variant, batch, n, rates, sums):
        """Run the steps and add to `sums`; return whether all factorisations worked."""
        union, works = self._shared is not None, self._shared or self.work
        steps = variant(cpu_adam.shared_steps if union else cpu_adam.local_steps)
        return steps(
            self.model,
            self.optimizer,
            self.rows,
            batch,
            n,
            rates,
            works,
            self.grads,
            sums,
        )

    def finish_epoch(self):
        sums, self.sums = self.sums, np.zeros(2)
        return sums

    def variational_expectations(self, y, mu, v):
        if self.model.family != GAUSSIAN:
            return super().variational_expectations(y, mu, v)
        noise = self.model.noise  # (Q,)
        square, d_mu, d_v, _ = expected_gaussian(y - mu, v, noise)
        ell = gaussian_log_density(square, np.log(noise)).sum(axis=1)
        return ell, d_mu, np.broadcast_to(d_v, mu.shape)

    def _fill(self, name, rows, results):
        loop = getattr(cpu_loops, name)
        works = self.work if loop is cpu_loops.expectation_rows else self.factor
        self._run(loop, works, *rows, *results, self.jitter_counts)

    def _run(self, loop, works, rows, *arguments):
        """Run a loop over rows, on as many threads as have work arrays in `works`."""
        arguments = self.model, works, rows, *arguments
        threads.run_in_threads(loop, len(works.a), len(rows), *arguments)

    def load_kriging(self, batch, n):
        self.load_mapped_kriging(batch, n, None)

    def load_mapped_kriging(self, batch, n, before):
        """Do as `load_kriging` where a map of the columns moves between calls.

        `before` are Z (N, D) and the rows of the batch (n, D) before the map. The
        caller changes model.Z and batch.X; `map_gradient` are derivatives by the map.
        """
        self.batch, self.n, H = batch, n, batch.active.shape[1]
        least = threads.MICROSECONDS_PER_NEW_THREAD
        k = threads_for(n * microseconds_per_point(H), self.n_threads, least)
        self.step_work = Workspace(*(array[:k] for array in self.work))
        self.grads = allocate_gradients(self.model, 1, H)
        Z, X = before or (None, batch.X)
        self._before = cpu_loops.allocate_map_gradient(Z, X, H, k, batch.X.shape[1])

    def kriging_gradients(self, start):
        cpu_loops.kriging_gradients(
            self.model,
            self.batch,
            start,
            self.n,
            self.step_work,
            self.grads,
            self._before,
        )
        return self.grads

    @property
    def map_gradient(self):
        """Derivatives (D, D') of the last `kriging_gradients` by a map of the columns.

        They are sum_p x0_p (d/dx_p)' over the points p, x0_p before the map and x_p
        after it, and the next call overwrites them.
        """
        return self._before.d_map[0]


class DenseCpuEngine(CpuEngine):
    """An engine for H = M, the SVGP: all rows share one K, factorised once a launch."""

    def _allocate_workspace(self):
        model, M = self.model, self.n_neighbors
        self.all_inducing = np.arange(M, dtype=np.int32)[None, :]
        self.factor = allocate_workspace(model, M, 1)  # K and its factor
        self.work = allocate_workspace(model, M, self.n_threads, dense=True)
        self.stack = allocate_stack(model, 1, M, self.n_threads)

    def _allocate_step(self, n, H, blocks, lists):
        super()._allocate_step(n, H, CHUNKS, 1)
        self.stack = allocate_stack(self.model, n, H, self.n_threads)

    def _allocate_union(self, n, n_active):
        """Return nothing: the union of the rows' lists is always all points."""

    def _take_steps(self, variant, batch, n, rates, sums):
        scratch = (np.zeros(*array) for array in union_arrays(0, 0, 0).values())
        points = self.all_inducing[0], self.factor, self.work, self.stack
        shared = *scratch, *points
        return variant(cpu_adam.shared_steps)(
            self.model,
            self.optimizer,
            self.rows,
            batch,
            n,
            rates,
            shared,
            self.grads,
            sums,
        )

    def predict(self, X, active, with_variance):
        model, n, Q = self.model, len(X), self._n_latent
        try:
            weights, F = AllPoints(model, self.n_threads).weights(X)
        except FloatingPointError:
            mu = np.full((n, Q), np.nan, self._dtype)
            return mu, mu.copy() if with_variance else None
        mu = weights.matvec(model.m).astype(self._dtype)
        if not with_variance:
            return mu, None
        if model.full:
            v = np.stack([weights.quadratic_forms(L) for L in model.L], axis=1)
        else:
            v = weights.matvec(model.s, squares=True)
        return mu, (F[:, None] + v).astype(self._dtype)

    def _fill(self, name, rows, results):
        if name != "bound_rows":
            return super()._fill(name, rows, results)
        kl, jitter = cpu_loops.factorise_shared(
            self.model, self.all_inducing, self.factor, self.jitter_counts
        )
        results[1][:] = kl
        if jitter >= 0.0:
            loop = cpu_loops.dense_bound_rows
            self._run(loop, self.work, *rows, *results, self.factor, self.stack)


class RowLoader:
    """Rows of training data and their lists of neighbours, in the host's memory."""

    def __init__(self, data, neighbors):
        self.data, self.neighbors = data, neighbors

    def batch(self, rows):
        """Return the `Batch` of the rows with these indices."""
        X, y, weight = self.data.block(rows)
        return Batch(X, y, weight, self.neighbors.lookup(rows, X))
