"""The CUDA engine: kernels together with the arrays on the device they work on.

It has the methods of `CpuEngine`. The model is on the device from the first step of
training on, and comes back when it is asked for; evaluation brings along the model of
the host, which a solver may have changed.


----

Kriging on a GPU: kernels together with the arrays on the device they work on.
"""

from weakref import WeakSet

import numpy as np

from skswsgp._compiled import cuda_arrays, cuda_runtime
from skswsgp._compiled.cuda_arrays import THREADS, fetch, send, send_array
from skswsgp._compiled.cuda_runtime import cuda
from skswsgp._compiled.threads import row_blocks
from skswsgp._covariance.program import Kernel
from skswsgp._engine import cuda_kernels as kernels
from skswsgp._engine.cuda_batches import DoubleBuffer, make_batches
from skswsgp._engine.cuda_workspace import (
    WorkspacePool,
    allocate_device_gradients,
    allocate_device_rows,
    require_room,
)
from skswsgp._linear.cuda_row_matrix import place_matrix
from skswsgp._neighbors.cuda_scan import make_scan
from skswsgp._point.adam_step import make_optimizer, reuse_moments
from skswsgp._point.state import Batch, allocate_gradients

ROWS_AT_ONCE = 8192  # points that are evaluated at once, at most
ROWS_MEMORY = 0.25  # of the free memory, which these and their results may take
CHANGING_FIELDS = (
    "params",
    "inv_scale",
    "noise",
)  # fields of a model that are sent each time


class CudaEngine:
    """Steps, predictions and bounds of a `Model` on a GPU.

    Parameters
    ----------
    model : Model
        Its arrays follow those of the device whenever it is asked for.
    n_neighbors : int
        H; where it equals M, each point factorises the K that all share.
    n_threads : int
        Threads of what is left to the CPU.
    """

    dense = False

    def __init__(self, model, n_neighbors, n_threads):
        cuda_runtime.require()
        self.n_neighbors, self.n_threads = n_neighbors, n_threads
        self._host, self._device = model, None
        self._ahead = False  # whether the device's is newer
        self._lent = True  # whether somebody may have changed the host's
        self._optimizer = self._jitter_counts = None
        self._places = WorkspacePool(model, n_neighbors)
        self._extra = np.zeros(2, np.int64)
        self._known = {}  # kernels for the types of their arguments
        self._holders = WeakSet()  # searches and rows of data, which hold memory
        self._stream = cuda.stream()  # of steps; that of all else waits for it
        self._ferry = DoubleBuffer(self._stream)

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

    def kernel_snapshot(self):
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
    def jitter_counts(self):
        """Points with extra jitter and points that failed so far, (1, 2)."""
        if self._jitter_counts is not None:
            self._extra += self._jitter_counts.copy_to_host().sum(axis=0)
            self._jitter_counts.copy_to_device(
                np.zeros(self._jitter_counts.shape, np.int64)
            )
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
            self.jitter_counts  # noqa: B018  which are of other places
            counts = np.zeros((len(self._places), 2), np.int64)
            self._jitter_counts = send_array(counts, "counts")

    def close(self):
        """Give all memory of the device back; the model stays on the host."""
        try:
            self.model, self.jitter_counts  # noqa: B018  fetched
        finally:
            self._device = self._optimizer = self._sums = None
            self._places.work = self._jitter_counts = self._grads = self._rows = None
            for holder in (*self._holders, self._ferry):
                holder.close()
            cuda_runtime.collect()

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
        self._optimizer = send(reuse_moments(optimizer, fresh), "Adam's moments")
        require_room(self._host, n, self.n_neighbors)
        self._rows = allocate_device_rows(self._host, n, self.n_neighbors)
        self._grads = allocate_device_gradients(self._host, n, self.n_neighbors, None)
        self._make_room(n)
        self._sums = send_array(np.zeros(2), "sums")
        self._device, self._ahead = model, True

    def make_loader(self, data, neighbors):
        """Return rows of training data whose `batch` is what `steps` takes."""
        rows = make_batches(data, neighbors, self.n_neighbors, self._stream)
        self._holders.add(rows)
        return rows

    def steps(self, batch, n, rates):
        """Queue steps of Adam, each on the next n rows of the batch, one for each rate.

        They have not been done when this returns; nothing here waits for the device.
        """
        model, H = self._current(), self.n_neighbors
        self._ahead = True
        batch = send(batch, "rows of data")
        steps, touched = len(rates), len(self._rows.touched)
        rates, count = self._ferry.send(rates, np.zeros(steps, np.int64))
        model, optimizer, batch, rates, work, grads, rows, sums = cuda_arrays.ready(
            model,
            self._optimizer,
            batch,
            rates,
            self._places.work,
            self._grads._replace(jitter_counts=self._jitter_counts),
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
            self._launch(kernels.add_up, touched + 1, cuda_runtime.WARP, *added)
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

    def place_matrix(self, rows):
        """Return `ListedRows` where their products are made, here if there is room."""
        return place_matrix(rows, self._holders)

    def predict(self, X, active, with_variance):
        """Return mu (n, Q) and v (n, Q), or None, of eq. 13 for the rows of X."""
        shape = (len(X), self._host.m.shape[1])
        mu = np.full(shape, np.nan, X.dtype)
        v = np.full(shape if with_variance else (0, shape[1]), np.nan, X.dtype)
        self._evaluate(kernels.evaluate_posterior, (X, active), (mu, v), with_variance)
        return mu, v if with_variance else None

    def conditional_weights(self, X, active):
        """Return a = K_w^-1 k (n, H) and F = k(x, x) - k' a (n,) of the rows of X."""
        weights = np.full(active.shape, np.nan, X.dtype)
        residual = np.full(len(X), np.nan, X.dtype)
        self._evaluate(kernels.evaluate_weights, (X, active), (weights, residual))
        return weights, residual

    def inverse_covariances(self, X, active):
        """Return K_w^-1 (n, H, H) and log |K_w| (n,) of the rows of X."""
        n, H = active.shape
        inverse = np.full((n, H, H), np.nan, X.dtype)
        log_det = np.full(n, np.nan, X.dtype)
        self._evaluate(kernels.evaluate_inverses, (X, active), (inverse, log_det))
        return inverse, log_det

    def variational_expectations(self, y, mu, v):
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
            kernels.evaluate_expectations[blocks[:2]](model, *rows, *there)
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
            kernels.evaluate_bounds[blocks](
                model, rows, n, self._places.work, *there, self._jitter_counts
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
                model,
                *arguments,
                n,
                self._places.work,
                *options,
                *there,
                self._jitter_counts,
            )
            for here, array in zip(results, there, strict=True):
                if here.size:
                    here[part] = array.copy_to_host()


def some_rows(*arrays):
    """Yield slices of the rows of arrays that leave the device room."""
    n = len(arrays[0])
    row = sum(array.nbytes for array in arrays) / max(n, 1)
    size = int(ROWS_MEMORY * cuda_runtime.free_memory() / max(row, 1))
    yield from row_blocks(n, max(1, min(size, ROWS_AT_ONCE)))


def copy_back(there, here):
    """Copy a field of a struct to the host where it is an array with entries."""
    if isinstance(here, np.ndarray) and here.size:
        there.copy_to_host(here)


class CudaKrigingEngine:
    """Densities of rows, their derivatives, and predictions on a GPU.

    It has the methods of `CpuKriging`. The data are sent once, kernel parameters and
    noise with each call; Adam, which moves them on the host, gets one row back.

    Parameters
    ----------
    model : Model
        The data; kernel parameters and noise may change between calls.
    n_neighbors : int
        H, from how many data a row is predicted.
    n_threads : int
        Threads of what is left to the CPU.
    """

    def __init__(self, model, n_neighbors, n_threads):
        cuda_runtime.require()
        self.model, self.n_neighbors, self.n_threads = model, n_neighbors, n_threads
        self.grads = allocate_gradients(model, 1, n_neighbors)
        self._places = WorkspacePool(model, n_neighbors)
        self._launch = None  # the kernel for the types of its arguments
        self._scans = WeakSet()
        self._forget()

    def close(self):
        """Give all memory of the device back."""
        self._forget()
        for scan in self._scans:
            scan.close()
        cuda_runtime.collect()

    def make_scan(self, points, n_neighbors, n_threads, kernel=None):
        """Return the exact search among the data, as that of `_neighbors`."""
        scan = make_scan(points, n_neighbors, n_threads, kernel)
        self._scans.add(scan)
        return scan

    def load(self, batch, n):
        """Take the rows of the next steps, n each; y holds ratios as in `_kriging`."""
        self._batch = self._ready = None
        self._batch, self.n = send(batch, "rows of data"), n
        self._places.make_room(n)
        columns = len(self.model.params) + len(self.model.noise) + 1
        if self._results is None or len(self._results) < n:
            self._results = None
            self._results = send_array(np.zeros((n, columns)), "derivatives")

    def differentiate(self, start):
        """Return derivatives of sum_i weight_i log p(y_i | neighbours), rows of a step.

        As `CpuKriging` does.
        """
        model, n = self._current(), self.n
        if self._ready is None:
            self._ready = cuda_arrays.ready(
                model, self._batch, self._places.work, self._results
            )
        model, batch, work, results = self._ready
        points = model, batch, start, n, work, results
        if self._launch is None:  # to find out the types takes a millisecond
            self._launch = kernels.kriging_gradients.specialize(*points)
        self._launch[self._places.launch(n)](*points)
        columns, P = self._results.shape[1], len(self.model.params)
        kernels.add_up_points[min(columns, 1024), cuda_runtime.WARP](self._results, n)
        total = self._results[0].copy_to_host()
        self.grads.d_log[0], self.grads.d_noise[0] = total[:P], total[P:-1]
        self.grads.sums[0, 0] = total[-1]
        return self.grads

    def predict(self, X, active):
        """Return mean and variance of the latent functions at rows of X, (n, Q)."""
        mu, v = np.empty((2, len(X), self.model.m.shape[1]), dtype=X.dtype)
        model, self._ready = self._current(), None
        for part in some_rows(X, active, mu, v):
            n = part.stop - part.start
            self._places.make_room(n)
            rows = [send_array(array[part], "rows") for array in (X, active)]
            there = [send_array(array[part], "results") for array in (mu, v)]
            launch = kernels.kriging_predictions[self._places.launch(n)]
            launch(model, *rows, n, self._places.work, *there)
            for here, array in zip((mu, v), there, strict=True):
                here[part] = array.copy_to_host()
        return mu, v

    def _forget(self):
        """Hold nothing on the device."""
        self._model = self._places.work = self._batch = self._results = None
        self._ready = None  # what a step takes

    def _current(self):
        """Return the model on the device with parameters as the host has them."""
        if self._model is None:
            self._model = send(self.model, "the data")
        else:
            for name in CHANGING_FIELDS:
                getattr(self._model, name).copy_to_device(getattr(self.model, name))
        return self._model
