"""The interface of engines for solvers, neighbour searches and predictions."""

from abc import ABC, abstractmethod

import numpy as np

from skswsgp._compiled.threads import run_in_threads
from skswsgp._covariance.program import kernel_of
from skswsgp._engine.cpu_loops import weighted_rows
from skswsgp._linear.row_matrix import SparseRowMatrix
from skswsgp._neighbors.search import NeighborSearch


class Engine(ABC):
    """A `Model`, and the device that computes with it.

    A row uses H inducing points, which `active` (n, H) lists for n rows. Results keep
    the dtype of the model. Rows whose covariance matrix cannot be factorised get NaN.
    Launches on the CPU, and the parts that a GPU leaves to it, use `n_threads`.

    Attributes
    ----------
    model : Model
        The model on the host, which training modifies. A caller that changes its arrays
        reads it again after steps of a solver, and before the next ones.
    all_inducing : ndarray of shape (1, M), or None
        The list of every inducing point if all rows share it (`DenseCpuEngine`);
        `predict` and `bound` do not read `active` then, and there is no kriging.
    jitter_counts : ndarray of shape (k, 2)
        How many factorisations needed more than the usual jitter and how many failed,
        in k parts to be added up.
    """

    all_inducing = None

    def __init__(self, model, n_neighbors, n_threads):
        self.model = model
        self._dtype, self._n_latent = model.Z.dtype, model.m.shape[1]
        self.n_neighbors = n_neighbors
        self.n_threads = n_threads

    def model_snapshot(self):
        """Return the current model, which must not be changed."""
        return self.model

    @abstractmethod
    def kernel_snapshot(self):
        """Return a model with the current kernel and Z, which must not be changed."""

    def make_search(self, options):
        """Return the `NeighborSearch` among the current Z; `options` are its own."""
        model = self.kernel_snapshot()
        sizes = {"n_neighbors": self.n_neighbors, "n_threads": self.n_threads}
        options = sizes | {"make_scan": self.make_scan} | options
        return NeighborSearch(model.Z, kernel_of(model), **options)

    @abstractmethod
    def make_scan(self, points, n_neighbors, n_threads, kernel=None):
        """Return the exact search among points (M, D), by distance or kernel value."""

    @abstractmethod
    def place_matrix(self, matrix):
        """Return a `SparseRowMatrix`, or its copy on the device that multiplies it."""

    @abstractmethod
    def make_products(self, kernel, Z, n_threads):
        """Return `CovarianceProducts` on this device; those of a GPU have no `slopes`.

        `kernel` is a `Kernel` in float64, which need not be that of the model.
        """

    @abstractmethod
    def close(self):
        """Release the memory of the device; the model stays on the host."""

    def predict(self, X, active, with_variance):
        """Return mu (n, Q) and v (n, Q), or None, of eq. 13 for the rows of X."""
        model = self.model_snapshot()
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
        """Return a = K_w^-1 k (n, H) and F = k(x, x) - k' a (n,) of the rows of X."""
        a, F = self._weights(X, active, 1, noisy=False)
        return a[:, 0], F[:, 0]

    def _weights(self, X, active, R, noisy, stored=True):
        """Return the weights (n, R, H), or (n, R, 0), and F (n, R) of `weights_row`."""
        (n, H), rows = active.shape, (X, active)
        shapes = (n, R, H if stored else 0), (n, R)
        return self._evaluate("weights_rows", rows, shapes, options=(noisy,))

    def _weighted_sums(self, weights, active, values, squares=False):
        """Return sums (n, Q) of values (M, Q) over the lists; see `weighted_rows`."""
        out = np.empty((len(active), values.shape[1]), self._dtype)
        given = weights, active, values, squares, out
        run_in_threads(weighted_rows, self.n_threads, len(out), *given, cost=0.1)
        return out

    def prior_part(self, X, active):
        """Return F (n,) of eq. 13 for the rows of X, which is the same for all q."""
        return self.conditional_weights(X, active)[1]

    def variational_expectations(self, y, mu, v):
        """Return E log p(y | f) (n,), f ~ N(mu, v), and derivatives by mu and v."""
        rows = [np.ascontiguousarray(array, self._dtype) for array in (y, mu, v)]
        return self._evaluate("expectation_rows", rows, (len(mu), mu.shape, mu.shape))

    def bound(self, batch):
        """Return E log p(y | f) and KL_w, each (n,) in float64, of a batch of rows."""
        rows, n = (batch.X, batch.y, batch.active), len(batch.X)
        return self._evaluate("bound_rows", rows, (n, n), np.float64)

    def _evaluate(self, name, rows, shapes, dtype=None, options=()):
        """Return arrays that the loop (CPU) or kernel (GPU) of this name has filled."""
        results = [np.full(shape, np.nan, dtype or self._dtype) for shape in shapes]
        self._fill(name, rows, options, results)
        return results

    @abstractmethod
    def _fill(self, name, rows, options, results):
        """Fill results of n rows, NaN so far.

        A loop or kernel takes the rows, the options and the results, in this order.
        """

    @abstractmethod
    def load_kriging(self, batch, n):
        """Set the rows for calls of `kriging_gradients`, n for each; see `kriging`."""

    @abstractmethod
    def kriging_gradients(self, start):
        """Return the derivatives of sum_i weight_i log p(y_i | m_w) for n rows.

        The rows begin at `start`. The derivatives and the sum, NaN after a failure, are
        in the first chunk of the returned `Gradients`, which the next call overwrites.
        Kernel parameters and noise may change between calls.
        """

    def kriging_predictions(self, X, active, with_mean=True):
        """Return mean (or None) and variance of f at rows of X, each (n, Q)."""
        a, F = self._weights(X, active, self._n_latent, noisy=True, stored=with_mean)
        if not with_mean:
            return None, F
        return self._weighted_sums(a, active, self.model_snapshot().m), F

    def kriging_slopes(self, X, active):
        """Return the derivatives of the kriging mean by the rows of X, (n, Q, D)."""
        (n, D), P = X.shape, len(self.model.params)
        shapes = (n, self._n_latent, D), (n, P)
        rows = X, active
        return self._evaluate("kriging_slopes_rows", rows, shapes, np.float64)[0]
