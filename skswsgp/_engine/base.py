"""The interface of engines for solvers, neighbour searches and predictions."""

from abc import ABC, abstractmethod

from skswsgp._covariance.program import kernel_of
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

    @abstractmethod
    def predict(self, X, active, with_variance):
        """Return mu (n, Q) and v (n, Q), or None, of eq. 13 for the rows of X."""

    @abstractmethod
    def conditional_weights(self, X, active):
        """Return a = K_w^-1 k (n, H) and F = k(x, x) - k' a (n,) of the rows of X."""

    def prior_part(self, X, active):
        """Return F (n,) of eq. 13 for the rows of X, which is the same for all q."""
        return self.conditional_weights(X, active)[1]

    @abstractmethod
    def variational_expectations(self, y, mu, v):
        """Return E log p(y | f) (n,), f ~ N(mu, v), and derivatives by mu and v."""

    @abstractmethod
    def bound(self, batch):
        """Return E log p(y | f) and KL_w, each (n,) in float64, of a batch of rows."""

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

    @abstractmethod
    def kriging_predictions(self, X, active, with_mean=True):
        """Return mean (or None) and variance of f at rows of X, each (n, Q)."""

    @abstractmethod
    def kriging_slopes(self, X, active):
        """Return the derivatives of the kriging mean by the rows of X, (n, Q, D)."""
