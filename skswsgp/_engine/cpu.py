"""The CPU engine: compiled loops together with the arrays that they work on.

`make_engine` chooses one; everything above it knows these few methods.


----

Who does the kriging: the threads of the CPU, or a GPU.

`make_kriging` chooses one; `LocalProcess` above it knows these few methods.
"""

import numpy as np

from skswsgp._compiled.threads import (
    CHUNKS,
    MICROSECONDS_PER_NEW_THREAD,
    microseconds_per_point,
    parallel_region,
    threads_for,
)
from skswsgp._engine import cpu_adam as updates
from skswsgp._engine import cpu_loops as evaluation
from skswsgp._engine import cpu_loops as loops
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


class CpuEngine:
    """Steps, predictions and bounds of a `Model` on `n_threads` threads.

    Parameters
    ----------
    model : Model
        Its arrays are modified by `steps`.
    n_neighbors : int
        H; where it equals M, K is shared and factorised once a launch.
    n_threads : int
        Threads of every launch.
    """

    def __init__(self, model, n_neighbors, n_threads):
        self.model = model
        self.n_neighbors = n_neighbors
        self.n_threads = n_threads
        self.dense = n_neighbors == len(model.Z)
        self.work = allocate_workspace(model, n_neighbors, n_threads, dense=self.dense)
        self.all_inducing = np.arange(len(model.Z), dtype=np.int32)[None, :]
        self.jitter_counts = np.zeros((max(CHUNKS, n_threads), 2), dtype=np.int64)
        if self.dense:
            self.factor = allocate_workspace(model, n_neighbors, 1)
            self.stack = allocate_stack(model, 1, n_threads)

    make_scan = staticmethod(make_scan)  # the exact search for neighbours

    def close(self):
        """Give back what a device holds: nothing."""

    def kernel_snapshot(self):
        """Return the model with kernel and Z as they are now, to look at only."""
        return self.model

    # --- training -----------------------------------------------------------------

    def prepare_training(self, n, free, log_bounds, feature_scale, optimizer=None):
        """Allocate for minibatches of n points; `optimizer` goes on from before."""
        blocks = CHUNKS if self.dense else n
        fresh = make_optimizer(self.model, free, log_bounds, feature_scale)
        self.optimizer = reuse_moments(optimizer, fresh)
        self.grads = allocate_gradients(self.model, blocks, self.n_neighbors)
        self.grads = self.grads._replace(jitter_counts=self.jitter_counts)
        work = n * microseconds_per_point(self.n_neighbors)
        self.step_threads = threads_for(work, self.n_threads)
        self.rows = updates.allocate_touched_rows(
            self.model, 1 if self.dense else n, self.n_neighbors, self.step_threads
        )
        if self.dense:
            self.stack = allocate_stack(self.model, n, self.n_threads)
        self.sums = np.zeros(2)

    def make_loader(self, data, neighbors):
        """Return rows of training data whose `batch` is what `steps` takes."""
        return RowLoader(data, neighbors)

    def steps(self, batch, n, rates):
        """Steps of Adam, each on the next n rows of the batch, one for each rate.

        Raises FloatingPointError where a covariance matrix cannot be factorised.
        """
        sums = np.zeros(2)
        if self.model.full:  # rows of L in order cost least
            batch = batch._replace(active=np.sort(batch.active, axis=1))
        state = self.model, self.optimizer, self.rows, batch, n, rates
        with parallel_region(self.step_threads):
            if self.dense:
                finished = updates.dense_steps(
                    *state,
                    self.all_inducing,
                    self.factor,
                    self.work,
                    self.stack,
                    self.grads,
                    sums,
                )
            else:
                finished = updates.local_steps(*state, self.work, self.grads, sums)
        self.sums += sums
        require_finite_training(self.sums if finished else np.full(2, np.nan))

    def finish_epoch(self):
        """Return the sums of weighted E log p(y | f) and KL since the last call."""
        sums, self.sums = self.sums, np.zeros(2)
        return sums

    # --- evaluation ---------------------------------------------------------------

    def place_matrix(self, rows):
        """Return `ListedRows` where their products are made."""
        return rows

    def predict(self, X, active, with_variance):
        """Return mu (n, Q) and v (n, Q), or None, of eq. 13 for the rows of X."""
        shape = (len(X), self.model.m.shape[1])
        mu = np.full(shape, np.nan, X.dtype)
        v = np.full(shape if with_variance else (0, shape[1]), np.nan, X.dtype)
        if self.dense:
            evaluation.evaluate_dense_posterior(
                self.model,
                X,
                self.all_inducing,
                self.factor,
                self.work,
                self.stack,
                with_variance,
                mu,
                v,
                self.jitter_counts,
            )
        else:
            batch = Batch(X, mu[:0], mu[:0, 0], active)
            evaluation.evaluate_posterior(
                self.model, batch, self.work, with_variance, mu, v, self.jitter_counts
            )
        return mu, v if with_variance else None

    def conditional_weights(self, X, active):
        """Return a = K_w^-1 k (n, H) and F = k(x, x) - k' a (n,) of the rows of X."""
        weights = np.full(active.shape, np.nan, X.dtype)
        residual = np.full(len(X), np.nan, X.dtype)
        batch = Batch(X, X, residual, active)
        evaluation.evaluate_weights(
            self.model, batch, self.work, weights, residual, self.jitter_counts
        )
        return weights, residual

    def inverse_covariances(self, X, active):
        """Return K_w^-1 (n, H, H) and log |K_w| (n,) of the rows of X."""
        n, H = active.shape
        inverse = np.full((n, H, H), np.nan, X.dtype)
        log_det = np.full(n, np.nan, X.dtype)
        work = self.factor if self.dense else self.work
        batch = Batch(X, X, log_det, active)
        evaluation.evaluate_inverses(
            self.model, batch, work, inverse, log_det, self.jitter_counts
        )
        return inverse, log_det

    def variational_expectations(self, y, mu, v):
        """Return E log p(y | f) (n,), f ~ N(mu, v), and derivatives by mu and v."""
        y, mu, v = (np.ascontiguousarray(a, self.model.Z.dtype) for a in (y, mu, v))
        ell = np.empty(len(mu), mu.dtype)
        d_mu, d_v = np.empty((2, *mu.shape), mu.dtype)
        evaluation.evaluate_expectations(
            self.model, y, self.work, mu, v, ell, d_mu, d_v
        )
        return ell, d_mu, d_v

    def bound(self, batch):
        """Return E log p(y | f) and KL_w, each (n,), of the rows of the batch."""
        ell = np.full(len(batch.X), np.nan)
        kl = np.full(len(batch.X), np.nan)
        if self.dense:
            kl[:] = evaluation.evaluate_dense_bound(
                self.model,
                batch,
                self.all_inducing,
                self.factor,
                self.work,
                self.stack,
                ell,
                self.jitter_counts,
            )
        else:
            evaluation.evaluate_bound(
                self.model, batch, self.work, ell, kl, self.jitter_counts
            )
        return ell, kl


class RowLoader:
    """Rows of training data, which stay where they are, and their neighbours."""

    def __init__(self, data, neighbors):
        self.data, self.neighbors = data, neighbors

    def batch(self, rows):
        """Return these rows of the data."""
        X, y, weight = self.data.block(rows)
        return Batch(X, y, weight, self.neighbors.lookup(rows, X))


class CpuKrigingEngine:
    """Densities of rows, their derivatives, and predictions on `n_threads` threads.

    Parameters
    ----------
    model : Model
        The data; kernel parameters and noise may change between calls.
    n_neighbors : int
        H, from how many data a row is predicted.
    n_threads : int
        Threads of every launch.
    """

    make_scan = staticmethod(make_scan)  # the exact search for neighbours

    def __init__(self, model, n_neighbors, n_threads):
        self.model, self.n_threads = model, n_threads
        self.work = allocate_workspace(model, n_neighbors, n_threads)
        self.grads = allocate_gradients(model, 1, n_neighbors)

    def close(self):
        """Give back what a device holds: nothing."""

    def load(self, batch, n):
        """Take the rows of the next steps, n each; y holds ratios as in `_kriging`."""
        self.batch, self.n = batch, n
        work = n * microseconds_per_point(batch.active.shape[1])
        threads = threads_for(work, self.n_threads, MICROSECONDS_PER_NEW_THREAD)
        self.step_work = Workspace(*(array[:threads] for array in self.work))

    def differentiate(self, start):
        """Return derivatives of sum_i weight_i log p(y_i | neighbours), rows of a step.

        Those from `start` on. They and the sum stand first in the `Gradients`, which
        the next call overwrites; the sum is NaN where C could not be factorised.
        """
        rows = self.model, self.batch, start, self.n
        loops.kriging_gradients(*rows, self.step_work, self.grads)
        return self.grads

    def predict(self, X, active):
        """Return mean and variance of the latent functions at rows of X, (n, Q)."""
        shape = len(X), self.model.m.shape[1]
        mu, v = np.empty((2, *shape), dtype=X.dtype)
        batch = Batch(X, mu[:0], mu[:0, 0], active)
        loops.kriging_predictions(self.model, batch, self.work, mu, v)
        return mu, v
