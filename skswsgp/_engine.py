"""The CPU engine: compiled loops together with the arrays that they work on.

`make_engine` chooses one; everything above it knows these few methods.
"""

import numpy as np

from skswsgp import _engine_cpu as loops
from skswsgp import _evaluation_cpu as evaluation
from skswsgp import _steps_cpu as updates
from skswsgp._adam import continued, make_optimizer, require_not_lost
from skswsgp._jit import launch, threads_for
from skswsgp._neighbors import make_scan
from skswsgp._shared import make_stack
from skswsgp._state import Batch, make_work

COMPILATION = 60.0  # seconds for the kernels of a GPU in each process, about
GAIN = 10.0  # times as long on a core makes a GPU worth it; none has shown its speed


def require_device(device):
    """Raise one sentence if a fit or a prediction cannot use the device."""
    if device == "cuda":
        from skswsgp import _cuda

        _cuda.require()


def make_engine(device, model, n_active, n_threads, points=0):
    """Return the engine for a device, "auto" included, that will do so many points."""
    if device == "auto":
        device = choose_device(points, n_active, len(model.Z))
    if device == "cpu":
        return CpuEngine(model, n_active, n_threads)
    require_device(device)
    from skswsgp._device import CudaEngine  # it takes a second to import

    return CudaEngine(model, n_active, n_threads)


def choose_device(points, H, M):
    """Return "cuda" if there is an idle GPU and work enough for it, else "cpu".

    Enough is what keeps a core busy for GAIN times as long as the kernels of a GPU
    compile, in each process. Where H = M a GPU lacks the K that all points share. One
    whose memory others use may have no room left.
    """
    seconds = 1e-6 * points * microseconds_of_point(H)
    if H == M or seconds < GAIN * COMPILATION:
        return "cpu"
    from skswsgp import _cuda

    return "cpu" if _cuda.missing() or _cuda.is_busy() else "cuda"


class CpuEngine:
    """Steps, predictions and bounds of a `Model` on `n_threads` threads.

    Parameters
    ----------
    model : Model
        Its arrays are modified by `steps`.
    n_active : int
        H; where it equals M, K is shared and factorised once a launch.
    n_threads : int
        Threads of every launch.
    """

    def __init__(self, model, n_active, n_threads):
        self.model = model
        self.n_active = n_active
        self.n_threads = n_threads
        self.shared = n_active == len(model.Z)
        self.work = make_work(model, n_active, n_threads, shared=self.shared)
        self.everyone = np.arange(len(model.Z), dtype=np.int32)[None, :]
        self.events = np.zeros((max(loops.CHUNKS, n_threads), 2), dtype=np.int64)
        if self.shared:
            self.factor = make_work(model, n_active, 1)
            self.stack = make_stack(model, 1, n_threads)

    make_scan = staticmethod(make_scan)  # the exact search for neighbours

    def close(self):
        """Give back what a device holds: nothing."""

    def glance(self):
        """Return the model with kernel and Z as they are now, to look at only."""
        return self.model

    # --- training -----------------------------------------------------------------

    def prepare_training(self, n, free, log_bounds, feature_scale, optimizer=None):
        """Allocate for minibatches of n points; `optimizer` goes on from before."""
        blocks = loops.CHUNKS if self.shared else n
        fresh = make_optimizer(self.model, free, log_bounds, feature_scale)
        self.optimizer = continued(optimizer, fresh)
        self.grads = loops.make_gradients(self.model, blocks, self.n_active)
        self.grads = self.grads._replace(events=self.events)
        work = n * microseconds_of_point(self.n_active)
        self.step_threads = threads_for(work, self.n_threads)
        self.rows = updates.make_rows(
            self.model, 1 if self.shared else n, self.n_active, self.step_threads
        )
        if self.shared:
            self.stack = make_stack(self.model, n, self.n_threads)
        self.sums = np.zeros(2)

    def load(self, data, neighbors):
        """Return rows of training data whose `batch` is what `steps` takes."""
        return Rows(data, neighbors)

    def steps(self, batch, n, rates):
        """Steps of Adam, each on the next n rows of the batch, one for each rate.

        Raises FloatingPointError where a covariance matrix cannot be factorised.
        """
        sums = np.zeros(2)
        if self.model.full:  # rows of L in order cost least
            batch = batch._replace(active=np.sort(batch.active, axis=1))
        state = self.model, self.optimizer, self.rows, batch, n, rates
        with launch(self.step_threads):
            if self.shared:
                finished = updates.shared_steps(
                    *state,
                    self.everyone,
                    self.factor,
                    self.work,
                    self.stack,
                    self.grads,
                    sums,
                )
            else:
                finished = updates.local_steps(*state, self.work, self.grads, sums)
        self.sums += sums
        require_not_lost(self.sums if finished else np.full(2, np.nan))

    def finish_epoch(self):
        """Return the sums of weighted E log p(y | f) and KL since the last call."""
        sums, self.sums = self.sums, np.zeros(2)
        return sums

    # --- evaluation ---------------------------------------------------------------

    def hold(self, rows):
        """Return `ListedRows` where their products are made."""
        return rows

    def predict(self, X, active, with_variance):
        """Return mu (n, Q) and v (n, Q), or None, of eq. 13 for the rows of X."""
        shape = (len(X), self.model.m.shape[1])
        mu = np.full(shape, np.nan, X.dtype)
        v = np.full(shape if with_variance else (0, shape[1]), np.nan, X.dtype)
        if self.shared:
            evaluation.predict_shared(
                self.model,
                X,
                self.everyone,
                self.factor,
                self.work,
                self.stack,
                with_variance,
                mu,
                v,
                self.events,
            )
        else:
            batch = Batch(X, mu[:0], mu[:0, 0], active)
            evaluation.predict_local(
                self.model, batch, self.work, with_variance, mu, v, self.events
            )
        return mu, v if with_variance else None

    def regress(self, X, active):
        """Return a = K_w^-1 k (n, H) and F = k(x, x) - k' a (n,) of the rows of X."""
        weights = np.full(active.shape, np.nan, X.dtype)
        residual = np.full(len(X), np.nan, X.dtype)
        batch = Batch(X, X, residual, active)
        evaluation.weigh_neighbors(
            self.model, batch, self.work, weights, residual, self.events
        )
        return weights, residual

    def invert(self, X, active):
        """Return K_w^-1 (n, H, H) and log |K_w| (n,) of the rows of X."""
        n, H = active.shape
        inverse = np.full((n, H, H), np.nan, X.dtype)
        log_det = np.full(n, np.nan, X.dtype)
        work = self.factor if self.shared else self.work
        batch = Batch(X, X, log_det, active)
        evaluation.invert_covariances(
            self.model, batch, work, inverse, log_det, self.events
        )
        return inverse, log_det

    def expect(self, y, mu, v):
        """Return E log p(y | f) (n,), f ~ N(mu, v), and derivatives by mu and v."""
        y, mu, v = (np.ascontiguousarray(a, self.model.Z.dtype) for a in (y, mu, v))
        ell = np.empty(len(mu), mu.dtype)
        d_mu, d_v = np.empty((2, *mu.shape), mu.dtype)
        evaluation.expectations(self.model, y, self.work, mu, v, ell, d_mu, d_v)
        return ell, d_mu, d_v

    def bound(self, batch):
        """Return E log p(y | f) and KL_w, each (n,), of the rows of the batch."""
        ell = np.full(len(batch.X), np.nan)
        kl = np.full(len(batch.X), np.nan)
        if self.shared:
            kl[:] = evaluation.bound_shared(
                self.model,
                batch,
                self.everyone,
                self.factor,
                self.work,
                self.stack,
                ell,
                self.events,
            )
        else:
            evaluation.bound_local(self.model, batch, self.work, ell, kl, self.events)
        return ell, kl


class Rows:
    """Rows of training data, which stay where they are, and their neighbours."""

    def __init__(self, data, neighbors):
        self.data, self.neighbors = data, neighbors

    def batch(self, rows):
        """Return these rows of the data."""
        X, y, weight = self.data.block(rows)
        return Batch(X, y, weight, self.neighbors.lookup(rows, X))


def microseconds_of_point(H):
    """Return about how long a point with H neighbours takes in training."""
    return 1.0 + 0.15 * H + 0.012 * H**2  # 1.6, 5, 15, 130 at H = 4, 16, 32, 100
