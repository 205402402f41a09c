"""The engine of the CPU: compiled loops together with the arrays that they work on."""

from functools import cached_property

import numpy as np

from skswsgp._compiled import threads
from skswsgp._compiled.special import gaussian_log_density
from skswsgp._compiled.threads import CHUNKS, microseconds_per_point, threads_for
from skswsgp._covariance.products import CovarianceProducts
from skswsgp._covariance.program import allow_vjp
from skswsgp._engine import cpu_loops
from skswsgp._engine.base import Engine
from skswsgp._linear.all_points import AllPoints
from skswsgp._linear.row_matrix import SparseRowMatrix
from skswsgp._neighbors.search import cpu_scan
from skswsgp._point import state
from skswsgp._point.bound import allocate_stack
from skswsgp._point.likelihoods import GAUSSIAN, expected_gaussian
from skswsgp._point.state import Workspace, allocate_gradients, allocate_workspace


class CpuEngine(Engine):
    """An engine on the threads of the CPU; each row factorises its own K_w."""

    def __init__(self, model, n_neighbors, n_threads):
        super().__init__(model, n_neighbors, n_threads)
        self.jitter_counts = np.zeros((max(CHUNKS, n_threads), 2), dtype=np.int64)
        self._allocate_workspace()

    def _allocate_workspace(self):
        """Allocate `work`, and `factor`, the work arrays that include K_w."""
        sizes = self.n_neighbors, self.n_threads
        self.work = self.factor = allocate_workspace(self.model, *sizes, vjp=False)

    def allow_vjp(self):
        """Let loops that take derivatives use `work`, which compiles them."""
        allow_vjp(self.work.calls, self.model)

    def kernel_snapshot(self):
        return self.model

    make_scan = staticmethod(cpu_scan)
    make_products = CovarianceProducts

    def place_matrix(self, matrix):
        return matrix

    def close(self):
        """Release nothing: all memory is that of the host."""

    def predict(self, X, active, with_variance):
        model = self.model
        a, F = self._weights(X, active, 1, noisy=False)
        mu = self._weighted_sums(a, active, model.m)
        if not with_variance:
            return mu, None
        if model.full:
            rows = SparseRowMatrix(active, a[:, 0], len(model.Z), self.n_threads)
            v = np.stack([rows.quadratic_forms(L) for L in model.L], axis=1)
        else:
            v = self._weighted_sums(a, active, model.s, squares=True)
        return mu, (F + v).astype(self._dtype, copy=False)

    def conditional_weights(self, X, active):
        a, F = self._weights(X, active, 1, noisy=False)
        return a[:, 0], F[:, 0]

    def _weights(self, X, active, R, noisy, stored=True):
        """Return weights (n, R, H), or (n, R, 0), and F (n, R); see `weights_rows`."""
        (n, H), rows = active.shape, (X, active)
        shapes = (n, R, H if stored else 0), (n, R)
        return self._evaluate(cpu_loops.weights_rows, rows, shapes, options=(noisy,))

    def _weighted_sums(self, weights, active, values, squares=False):
        """Return sums (n, Q) of values (M, Q) over the lists; see `weighted_rows`."""
        out = np.empty((len(active), values.shape[1]), self._dtype)
        given = weights, active, values, squares, out
        loop = cpu_loops.weighted_rows
        threads.run_in_threads(loop, self.n_threads, len(out), *given, cost=0.1)
        return out

    def variational_expectations(self, y, mu, v):
        if self.model.family == GAUSSIAN:
            noise = self.model.noise  # (Q,)
            square, d_mu, d_v, _ = expected_gaussian(y - mu, v, noise)
            ell = gaussian_log_density(square, np.log(noise)).sum(axis=1)
            return ell, d_mu, np.broadcast_to(d_v, mu.shape)
        rows = [np.ascontiguousarray(array, self._dtype) for array in (y, mu, v)]
        shapes = len(mu), mu.shape, mu.shape
        return self._evaluate(cpu_loops.expectation_rows, rows, shapes)

    def bound(self, batch):
        rows, n = (batch.X, batch.y, batch.active), len(batch.X)
        return self._evaluate(cpu_loops.bound_rows, rows, (n, n), np.float64)

    def _evaluate(self, loop, rows, shapes, dtype=None, options=()):
        """Return arrays that a loop has filled, NaN where it left them."""
        results = [np.full(shape, np.nan, dtype or self._dtype) for shape in shapes]
        expecting = loop is cpu_loops.expectation_rows
        works = self.work if expecting else self.factor
        struct = state.ExpectationWork if expecting else Workspace
        arguments = *rows, *options, *results, self.jitter_counts

        def work(first, last, t):
            own = state.work_of(works, t, struct)
            loop(first, last, t, self.model, own, *arguments)

        cost = microseconds_per_point(self.n_neighbors)
        threads.run_in_threads(work, len(works.a), len(rows[0]), cost=cost)
        return results

    def load_kriging(self, batch, n):
        self.load_mapped_kriging(batch, n, None)

    def load_mapped_kriging(self, batch, n, before):
        """Do as `load_kriging` where a map of the columns moves between calls.

        `before` are Z (N, D) and the rows of the batch (n, D) before the map. The
        caller changes model.Z and batch.X; `map_gradient` are derivatives by the map.
        """
        self.allow_vjp()
        self.batch, self.n, H = batch, n, batch.active.shape[1]
        least = threads.MICROSECONDS_PER_NEW_THREAD
        k = threads_for(n * microseconds_per_point(H), self.n_threads, least)
        self.step_work = Workspace(*(array[:k] for array in self.work))
        self.grads = allocate_gradients(self.model, 1, H)
        Z, X = before or (None, batch.X)
        self._before = cpu_loops.allocate_map_gradient(Z, X, H, k, batch.X.shape[1])

    def kriging_predictions(self, X, active, with_mean=True):
        a, F = self._weights(X, active, self._n_latent, noisy=True, stored=with_mean)
        if not with_mean:
            return None, F
        return self._weighted_sums(a, active, self.model.m), F

    def kriging_slopes(self, X, active):
        self.allow_vjp()
        (n, D), P = X.shape, len(self.model.params)
        shapes, loop = ((n, self._n_latent, D), (n, P)), cpu_loops.kriging_slopes_rows
        return self._evaluate(loop, (X, active), shapes, np.float64)[0]

    def kriging_gradients(self, start):
        arrays = self.step_work, self.grads, self._before
        cpu_loops.kriging_gradients(self.model, self.batch, start, self.n, *arrays)
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
        self.work = allocate_workspace(model, M, self.n_threads, dense=True, vjp=False)

    @cached_property
    def factor(self):
        """The work arrays of K and its factor, which only training needs."""
        return allocate_workspace(self.model, self.n_neighbors, 1)

    @cached_property
    def stack(self):
        """The work arrays of rows that share K, which only training needs."""
        return allocate_stack(self.model, 1, self.n_neighbors, self.n_threads)

    def predict(self, X, active, with_variance):
        model, n, Q = self.model, len(X), self._n_latent
        try:
            points = AllPoints(model, self.n_threads, whitened=model.full)
            weights, F = points.weights(X)
        except FloatingPointError:
            mu = np.full((n, Q), np.nan, self._dtype)
            return mu, mu.copy() if with_variance else None
        mu = weights.matvec(points.coefficients(model.m)).astype(self._dtype)
        if not with_variance:
            return mu, None
        if model.full:
            factors = (points.coefficients(L) for L in model.L)
            v = np.stack([weights.quadratic_forms(L) for L in factors], axis=1)
        else:
            v = weights.matvec(model.s, squares=True)
        return mu, (F[:, None] + v).astype(self._dtype)

    def prior_part(self, X, active):
        points = AllPoints(self.model, self.n_threads, whitened=True)
        return points.weights(X)[1]

    def bound(self, batch):
        mu, v = self.predict(batch.X, batch.active, True)
        ell = self.variational_expectations(batch.y, mu, v)[0]
        factor = self.factor, self.jitter_counts
        kl, _ = cpu_loops.factorise_shared(self.model, self.all_inducing, *factor)
        return ell, np.full(len(ell), kl)
