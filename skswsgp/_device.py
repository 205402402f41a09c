"""The CUDA engine: kernels together with the arrays on the device they work on.

It has the methods of `CpuEngine`. The model is on the device from the first step of
training on, and comes back when it is asked for; evaluation brings along the model of
the host, which a solver may have changed.
"""

from weakref import WeakSet

import numpy as np

from skswsgp import _cuda
from skswsgp import _engine_cuda as kernels
from skswsgp._adam import continued, make_optimizer
from skswsgp._covariance import Kernel
from skswsgp._cuda import cuda
from skswsgp._device_arrays import THREADS, fetch, parts, send, send_array
from skswsgp._device_data import Ferry, load_rows
from skswsgp._device_rows import hold
from skswsgp._device_search import make_scan
from skswsgp._device_work import Places, make_gradients, make_rows, require_room
from skswsgp._state import Batch

ROWS_AT_ONCE = 8192  # points that are evaluated at once, at most
ROWS_MEMORY = 0.25  # of the free memory, which these and their results may take


class CudaEngine:
    """Steps, predictions and bounds of a `Model` on a GPU.

    Parameters
    ----------
    model : Model
        Its arrays follow those of the device whenever it is asked for.
    n_active : int
        H; where it equals M, each point factorises the K that all share.
    n_threads : int
        Threads of what is left to the CPU.
    """

    shared = False

    def __init__(self, model, n_active, n_threads):
        _cuda.require()
        self.n_active, self.n_threads = n_active, n_threads
        self._host, self._device = model, None
        self._ahead = False  # whether the device's is newer
        self._lent = True  # whether somebody may have changed the host's
        self._optimizer = self._events = None
        self._places = Places(model, n_active)
        self._extra = np.zeros(2, np.int64)
        self._known = {}  # kernels for the types of their arguments
        self._holders = WeakSet()  # searches and rows of data, which hold memory
        self._stream = cuda.stream()  # of steps; that of all else waits for it
        self._ferry = Ferry(self._stream)

    # --- the model on either side -------------------------------------------------

    @property
    def model(self):
        """The model on the host as it is now; ask for it anew before changing it."""
        self._lent = True
        if self._ahead:
            for here, there in zip(self._host, self._device, strict=True):
                copy_back(there, here)
            self._ahead = False
        return self._host

    @model.setter
    def model(self, model):
        self._host, self._device = model, None
        self._ahead, self._lent = False, True

    def glance(self):
        """Return the model with kernel and Z as they are now, to look at only.

        Unlike `model` it moves little, and nothing back to the device later.
        """
        if self._ahead:
            names = Kernel._fields + ("Z",) * self._host.train_inducing
            for name in names:
                copy_back(getattr(self._device, name), getattr(self._host, name))
        return self._host

    @property
    def optimizer(self):
        """Adam's moments, on the host."""
        return fetch(self._optimizer)

    @property
    def events(self):
        """Points with extra jitter and points that failed so far, (1, 2)."""
        if self._events is not None:
            self._extra += self._events.copy_to_host().sum(axis=0)
            self._events.copy_to_device(np.zeros(self._events.shape, np.int64))
        return self._extra[None]

    def _current(self):
        """Return the model on the device, as the host has it unless that is ahead."""
        if self._device is None:
            self._device = send(self._host, "the model")
        elif self._lent and not self._ahead:
            for here, there in zip(self._host, self._device, strict=True):
                if isinstance(here, np.ndarray) and here.size:
                    there.copy_to_device(here)
        self._lent = False
        return self._device

    def _make_room(self, n):
        """Have work arrays, and counts by place, for n points at once."""
        if self._places.make_room(n):
            self.events  # noqa: B018  which are of other places
            counts = np.zeros((len(self._places), 2), np.int64)
            self._events = send_array(counts, "counts")

    def close(self):
        """Give all memory of the device back; the model stays on the host."""
        try:
            self.model, self.events  # noqa: B018  fetched
        finally:
            self._device = self._optimizer = self._sums = None
            self._places.work = self._events = self._grads = self._rows = None
            for holder in (*self._holders, self._ferry):
                holder.close()
            _cuda.collect()

    # --- neighbours ---------------------------------------------------------------

    def make_scan(self, points, n_neighbors, n_threads, kernel=None):
        """Return the exact search among inducing points, as that of `_neighbors`."""
        scan = make_scan(points, n_neighbors, n_threads, kernel)
        self._holders.add(scan)
        return scan

    # --- training -----------------------------------------------------------------

    def prepare_training(self, n, free, log_bounds, feature_scale, optimizer=None):
        """Allocate for minibatches of n points; `optimizer` goes on from before."""
        model = self._current()
        fresh = make_optimizer(self._host, free, log_bounds, feature_scale)
        self._optimizer = send(continued(optimizer, fresh), "Adam's moments")
        require_room(self._host, n, self.n_active)
        self._rows = make_rows(self._host, n, self.n_active)
        self._grads = make_gradients(self._host, n, self.n_active, None)
        self._make_room(n)
        self._sums = send_array(np.zeros(2), "sums")
        self._device, self._ahead = model, True

    def load(self, data, neighbors):
        """Return rows of training data whose `batch` is what `steps` takes."""
        rows = load_rows(data, neighbors, self.n_active, self._stream)
        self._holders.add(rows)
        return rows

    def steps(self, batch, n, rates):
        """Queue steps of Adam, each on the next n rows of the batch, one for each rate.

        They have not been done when this returns; nothing here waits for the device.
        """
        model, H = self._current(), self.n_active
        self._ahead = True
        batch = send(batch, "rows of data")
        steps, touched = len(rates), len(self._rows.touched)
        rates, count = self._ferry.send(rates, np.zeros(steps, np.int64))
        model, optimizer, batch, rates, work, grads, rows, sums = _cuda.ready(
            model,
            self._optimizer,
            batch,
            rates,
            self._places.work,
            self._grads._replace(events=self._events),
            self._rows._replace(count=count),
            self._sums,
        )
        blocks, threads, _, shared = self._places.launch(n)
        for k in range(steps):
            start = k * n
            use = batch.active, start, n, k
            self._launch(kernels.claim_rows, -(-n * H // THREADS), THREADS, *use, rows)
            points = model, batch, start, n, work, grads, rows
            self._launch(kernels.gradients, blocks, threads, *points, shared=shared)
            added = model, optimizer, *use, rates, grads, rows, sums
            self._launch(kernels.add_up, touched + 1, _cuda.WARP, *added)
            moved = model, optimizer, k, rates, rows
            self._launch(kernels.update_rows, -(-touched // THREADS), THREADS, *moved)

    def finish_epoch(self):
        """Return the sums of weighted E log p(y | f) and KL since the last call.

        NaN where a covariance matrix could not be factorised.
        """
        sums = self._sums.copy_to_host()
        self._sums.copy_to_device(np.zeros(2))
        return sums

    def _launch(self, kernel, blocks, threads, *arguments, shared=0):
        """Launch a kernel whose arguments are of the same types in every step.

        Finding out the types takes a millisecond, which a step must not.
        """
        if kernel not in self._known:
            self._known[kernel] = kernel.specialize(*arguments)
        self._known[kernel][blocks, threads, self._stream, shared](*arguments)

    # --- evaluation ---------------------------------------------------------------

    def hold(self, rows):
        """Return `ListedRows` where their products are made, here if there is room."""
        return hold(rows, self._holders)

    def predict(self, X, active, with_variance):
        """Return mu (n, Q) and v (n, Q), or None, of eq. 13 for the rows of X."""
        shape = (len(X), self._host.m.shape[1])
        mu = np.full(shape, np.nan, X.dtype)
        v = np.full(shape if with_variance else (0, shape[1]), np.nan, X.dtype)
        self._evaluate(kernels.predict, (X, active), (mu, v), with_variance)
        return mu, v if with_variance else None

    def regress(self, X, active):
        """Return a = K_w^-1 k (n, H) and F = k(x, x) - k' a (n,) of the rows of X."""
        weights = np.full(active.shape, np.nan, X.dtype)
        residual = np.full(len(X), np.nan, X.dtype)
        self._evaluate(kernels.weigh_neighbors, (X, active), (weights, residual))
        return weights, residual

    def invert(self, X, active):
        """Return K_w^-1 (n, H, H) and log |K_w| (n,) of the rows of X."""
        n, H = active.shape
        inverse = np.full((n, H, H), np.nan, X.dtype)
        log_det = np.full(n, np.nan, X.dtype)
        self._evaluate(kernels.invert_covariances, (X, active), (inverse, log_det))
        return inverse, log_det

    def expect(self, y, mu, v):
        """Return E log p(y | f) (n,), f ~ N(mu, v), and derivatives by mu and v."""
        y, mu, v = (np.ascontiguousarray(a, self._host.Z.dtype) for a in (y, mu, v))
        ell = np.empty(len(mu), mu.dtype)
        d_mu, d_v = np.empty((2, *mu.shape), mu.dtype)
        model = self._current()
        for part in some_rows(y, mu, v, ell, d_mu, d_v):
            n = part.stop - part.start
            blocks = self._blocks(n)
            there = [send_array(a[part], "rows") for a in (mu, v, ell, d_mu, d_v)]
            rows = send_array(y[part], "rows"), n, self._places.work
            kernels.expectations[blocks[:2]](model, *rows, *there)
            for here, array in zip((ell, d_mu, d_v), there[2:], strict=True):
                here[part] = array.copy_to_host()
        return ell, d_mu, d_v

    def bound(self, batch):
        """Return E log p(y | f) and KL_w, each (n,), of the rows of the batch."""
        ell = np.full(len(batch.X), np.nan)
        kl = np.full(len(batch.X), np.nan)
        model = self._current()
        for part in some_rows(*batch, ell, kl):
            n = part.stop - part.start
            blocks = self._blocks(n)
            rows = send(Batch(*(array[part] for array in batch)), "rows")
            there = [send_array(array[part], "rows") for array in (ell, kl)]
            kernels.bounds[blocks](
                model, rows, n, self._places.work, *there, self._events
            )
            ell[part], kl[part] = (array.copy_to_host() for array in there)
        return ell, kl

    def _blocks(self, n):
        """Return the shape, stream and shared memory of a launch for n points."""
        self._make_room(n)
        return self._places.launch(n)

    def _evaluate(self, launch, rows, results, *options):
        """Fill the results, part by part; those without rows are left alone."""
        model = self._current()
        for part in some_rows(*rows, *results):
            n = part.stop - part.start
            blocks = self._blocks(n)
            arguments = [send_array(array[part], "rows") for array in rows]
            there = [send_array(array[part], "results") for array in results]
            launch[blocks](
                model, *arguments, n, self._places.work, *options, *there, self._events
            )
            for here, array in zip(results, there, strict=True):
                if here.size:
                    here[part] = array.copy_to_host()


def some_rows(*arrays):
    """Yield slices of the rows of arrays that leave the device room."""
    n = len(arrays[0])
    row = sum(array.nbytes for array in arrays) / max(n, 1)
    size = int(ROWS_MEMORY * _cuda.free_memory() / max(row, 1))
    yield from parts(n, max(1, min(size, ROWS_AT_ONCE)))


def copy_back(there, here):
    """Copy a field of a struct to the host where it is an array with entries."""
    if isinstance(here, np.ndarray) and here.size:
        there.copy_to_host(here)
