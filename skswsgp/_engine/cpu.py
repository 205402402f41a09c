"""The engine of the CPU: compiled loops together with the arrays that they work on."""

import numpy as np

from skswsgp._compiled.threads import (
    CHUNKS,
    MICROSECONDS_PER_NEW_THREAD,
    microseconds_per_point,
    parallel_region,
    run_in_threads,
    threads_for,
)
from skswsgp._engine import cpu_adam, cpu_loops
from skswsgp._engine.base import Engine
from skswsgp._neighbors.search import make_scan
from skswsgp._point.adam_step import (
    make_optimizer,
    require_finite_training,
    reuse_moments,
)
from skswsgp._point.bound import allocate_stack
from skswsgp._point.state import (
    Batch,
    Workspace,
    allocate_gradients,
    allocate_workspace,
)


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
        """Return the model, which is always current."""
        return self.model

    make_scan = staticmethod(make_scan)

    def place_matrix(self, matrix):
        """Return the matrix, whose products are made on the CPU."""
        return matrix

    def close(self):
        """Release nothing: all memory is that of the host."""

    # --- training -----------------------------------------------------------------

    def prepare_training(self, n, free, log_bounds, feature_scale, optimizer=None):
        """Allocate arrays for minibatches of n rows."""
        fresh = make_optimizer(self.model, free, log_bounds, feature_scale)
        self.optimizer = reuse_moments(optimizer, fresh)
        work = n * microseconds_per_point(self.n_neighbors)
        self.step_threads = threads_for(work, self.n_threads)
        self._allocate_gradients(n, lists=n)
        self.sums = np.zeros(2)

    def _allocate_gradients(self, blocks, lists):
        """Allocate blocks of H derivatives, and slots for the rows in some lists."""
        H, threads = self.n_neighbors, self.step_threads
        grads = allocate_gradients(self.model, blocks, H)
        self.grads = grads._replace(jitter_counts=self.jitter_counts)
        self.rows = cpu_adam.allocate_touched_rows(self.model, lists, H, threads)

    def make_loader(self, data, neighbors):
        """Return a `RowLoader`."""
        return RowLoader(data, neighbors)

    def steps(self, batch, n, rates):
        """Take a step of Adam for each learning rate, each on the next n rows."""
        sums = np.zeros(2)
        if self.model.full:  # rows of L are read fastest in order
            batch = batch._replace(active=np.sort(batch.active, axis=1))
        with parallel_region(self.step_threads) as variant:
            finished = self._take_steps(variant, batch, n, rates, sums)
        self.sums += sums
        require_finite_training(self.sums if finished else np.full(2, np.nan))

    def _take_steps(self, variant, batch, n, rates, sums):
        """Run the steps and add to `sums`; return whether all factorisations worked."""
        state = self.model, self.optimizer, self.rows
        rest = self.work, self.grads, sums
        return variant(cpu_adam.local_steps)(*state, batch, n, rates, *rest)

    def finish_epoch(self):
        """Return the sums of weighted E log p(y | f) and KL_w since the last call."""
        sums, self.sums = self.sums, np.zeros(2)
        return sums

    # --- evaluation ---------------------------------------------------------------

    def _map_rows(self, loop, works, n, *arguments):
        """Run a loop over n rows, on as many threads as have work arrays in `works`."""
        run_in_threads(loop, len(works.a), n, self.model, works, *arguments)

    def predict(self, X, active, with_variance):
        """Return mu (n, Q) and v (n, Q), or None, of eq. 13 for the rows of X."""
        n, Q = len(X), self.model.m.shape[1]
        mu = np.full((n, Q), np.nan, X.dtype)
        v = np.full((n if with_variance else 0, Q), np.nan, X.dtype)
        self._predict(X, active, mu, v)
        return mu, v if with_variance else None

    def _predict(self, X, active, mu, v):
        rows = X, active, mu, v, self.jitter_counts
        self._map_rows(cpu_loops.posterior_rows, self.work, len(X), *rows)

    def conditional_weights(self, X, active):
        """Return a = K_w^-1 k (n, H) and F = k(x, x) - k' a (n,) of the rows of X."""
        weights = np.full(active.shape, np.nan, X.dtype)
        residual = np.full(len(X), np.nan, X.dtype)
        rows = X, active, weights, residual, self.jitter_counts
        self._map_rows(cpu_loops.weights_rows, self.factor, len(X), *rows)
        return weights, residual

    def inverse_covariances(self, X, active):
        """Return K_w^-1 (n, H, H) and log |K_w| (n,) of the rows of X."""
        n, H = active.shape
        inverse = np.full((n, H, H), np.nan, X.dtype)
        log_det = np.full(n, np.nan, X.dtype)
        rows = X, active, inverse, log_det, self.jitter_counts
        self._map_rows(cpu_loops.inverse_rows, self.factor, n, *rows)
        return inverse, log_det

    def variational_expectations(self, y, mu, v):
        """Return E log p(y | f) (n,), f ~ N(mu, v), and derivatives by mu and v."""
        y, mu, v = (np.ascontiguousarray(a, self.model.Z.dtype) for a in (y, mu, v))
        ell = np.empty(len(mu), mu.dtype)
        d_mu, d_v = np.empty((2, *mu.shape), mu.dtype)
        rows = y, mu, v, ell, d_mu, d_v
        self._map_rows(cpu_loops.expectation_rows, self.work, len(mu), *rows)
        return ell, d_mu, d_v

    def bound(self, batch):
        """Return E log p(y | f) and KL_w, each (n,) in float64, of a batch of rows."""
        ell, kl = np.full((2, len(batch.X)), np.nan)
        rows = batch, ell, kl, self.jitter_counts
        self._map_rows(cpu_loops.bound_rows, self.work, len(ell), *rows)
        return ell, kl

    # --- kriging ------------------------------------------------------------------

    def load_kriging(self, batch, n):
        """Set the rows for the next calls of `kriging_gradients`, n for each call."""
        H = batch.active.shape[1]
        self.batch, self.n = batch, n
        work = n * microseconds_per_point(H)
        threads = threads_for(work, self.n_threads, MICROSECONDS_PER_NEW_THREAD)
        self.step_work = Workspace(*(array[:threads] for array in self.work))
        self.grads = allocate_gradients(self.model, 1, H)

    def kriging_gradients(self, start):
        """Return the derivatives of sum_i weight_i log p(y_i | m_w) for n rows."""
        rows = self.model, self.batch, start, self.n
        cpu_loops.kriging_gradients(*rows, self.step_work, self.grads)
        return self.grads

    def kriging_predictions(self, X, active):
        """Return mean and variance of the latent functions at rows of X, (n, Q)."""
        mu, v = np.empty((2, len(X), self.model.m.shape[1]), dtype=X.dtype)
        self._map_rows(cpu_loops.kriging_rows, self.work, len(X), X, active, mu, v)
        return mu, v


class DenseCpuEngine(CpuEngine):
    """An engine for H = M, the SVGP: all rows share one K, factorised once a launch."""

    def _allocate_workspace(self):
        model, M = self.model, self.n_neighbors
        self.all_inducing = np.arange(M, dtype=np.int32)[None, :]
        self.factor = allocate_workspace(model, M, 1)  # K and its factor
        self.work = allocate_workspace(model, M, self.n_threads, dense=True)
        self.stack = allocate_stack(model, 1, self.n_threads)

    def prepare_training(self, n, *arguments, **options):
        """Allocate arrays for minibatches of n rows."""
        super().prepare_training(n, *arguments, **options)
        self.stack = allocate_stack(self.model, n, self.n_threads)

    def _allocate_gradients(self, blocks, lists):
        """Allocate one block for each chunk, and slots for the rows in one list."""
        super()._allocate_gradients(CHUNKS, lists=1)

    def _take_steps(self, variant, batch, n, rates, sums):
        shared = self.all_inducing, self.factor, self.work, self.stack
        state = self.model, self.optimizer, self.rows
        steps = variant(cpu_adam.dense_steps)
        return steps(*state, batch, n, rates, shared, self.grads, sums)

    def _factorise(self):
        """Factorise K; return KL and whether this succeeded."""
        kl, jitter = cpu_loops.factorise_all(
            self.model, self.all_inducing, self.factor, self.jitter_counts
        )
        return kl, jitter >= 0.0

    def _predict(self, X, active, mu, v):
        if self._factorise()[1]:
            rows = self.factor, self.stack, X, mu, v
            self._map_rows(cpu_loops.dense_posterior_rows, self.work, len(X), *rows)

    def bound(self, batch):
        """Return E log p(y | f) and KL, each (n,) in float64, of a batch of rows."""
        ell, kl = np.full((2, len(batch.X)), np.nan)
        kl[:], succeeded = self._factorise()
        if succeeded:
            rows = self.factor, self.stack, batch, ell
            self._map_rows(cpu_loops.dense_bound_rows, self.work, len(ell), *rows)
        return ell, kl


class RowLoader:
    """Rows of training data and their lists of neighbours, in the host's memory."""

    def __init__(self, data, neighbors):
        self.data, self.neighbors = data, neighbors

    def batch(self, rows):
        """Return the `Batch` of the rows with these indices."""
        X, y, weight = self.data.block(rows)
        return Batch(X, y, weight, self.neighbors.lookup(rows, X))
