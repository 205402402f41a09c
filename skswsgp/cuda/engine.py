"""The engine of a GPU: kernels together with the arrays on the device they work on.

The model is sent to the device when it is first needed. Training changes the copy on
the device, and the copy on the host follows when a caller reads `CudaEngine.model`.
"""

from weakref import WeakSet

import numpy as np

from skswsgp._compiled.threads import ROWS_AT_ONCE, row_blocks
from skswsgp._covariance.program import Kernel
from skswsgp._engine.base import Engine
from skswsgp._point.adam_step import make_optimizer
from skswsgp._point.state import allocate_gradients
from skswsgp.cuda import kernels, runtime, workspace
from skswsgp.cuda.arrays import THREADS, fetch, ready, send, send_array
from skswsgp.cuda.batches import DoubleBuffer, make_batches
from skswsgp.cuda.compiler import specialized
from skswsgp.cuda.products import DeviceProducts
from skswsgp.cuda.row_matrix import place_matrix
from skswsgp.cuda.runtime import cuda
from skswsgp.cuda.scan import make_scan

PARAMETERS = "params", "inv_scale", "noise"  # fields that learning by kriging changes


class CudaEngine(Engine):
    """An engine on a GPU; each row factorises its own K_w, also where H = M."""

    def __init__(self, model, n_neighbors, n_threads):
        runtime.require()
        self._forget_arrays()
        super().__init__(model, n_neighbors, n_threads)
        self._pool = workspace.WorkspacePool(model, n_neighbors)
        self._host_counts = np.zeros(2, np.int64)
        self._compiled = {}  # kernels, compiled for the types of their arguments
        self._holders = WeakSet()  # searches, loaders, matrices and products
        self._stream = cuda.stream()  # for steps; the default stream waits for it
        self._buffer = DoubleBuffer(self._stream)

    @property
    def model(self):
        """The model on the host, after all steps so far; the caller may change it."""
        self._fetch_model()
        self._newest = "host"
        return self._host_model

    @model.setter
    def model(self, model):
        self._host_model, self._device_model = model, None
        self._newest = "host"

    def kernel_snapshot(self):  # moves little, and the device keeps the newest copy
        if self._newest == "device":
            moving = ("Z",) * self._host_model.train_inducing
            self._copy_fields(Kernel._fields + moving)
        return self._host_model

    def _fetch_model(self):
        """Copy the model to the host if steps have changed it on the device."""
        if self._newest == "device":
            self._copy_fields(self._host_model._fields)
            self._newest = "both"

    def _copy_fields(self, names, *, to_device=False):
        """Copy fields of the model that have entries to the host, or to the device."""
        for name in names:
            on_host = getattr(self._host_model, name)
            if isinstance(on_host, np.ndarray) and on_host.size:
                on_device = getattr(self._device_model, name)
                copy = on_device.copy_to_device if to_device else on_device.copy_to_host
                copy(on_host)

    def _send_model(self):
        """Return the model on the device, with the changes made on the host."""
        if self._device_model is None:
            self._device_model = send(self._host_model, "the model")
        elif self._newest == "host":
            self._copy_fields(self._host_model._fields, to_device=True)
        self._newest = "device" if self._newest == "device" else "both"
        return self._device_model

    @property
    def optimizer(self):
        return fetch(self._optimizer)

    @property
    def jitter_counts(self):
        counts = self._host_counts
        if self._device_counts is not None:
            counts = counts + self._device_counts.copy_to_host().sum(axis=0)
        return counts[None]

    def _make_room(self, n):
        """Allocate work arrays, and counts for each slot, for n rows at once."""
        if self._pool.make_room(n):
            self._host_counts = self.jitter_counts[0]
            counts = np.zeros((len(self._pool), 2), np.int64)
            self._device_counts = send_array(counts, "counts")

    def close(self):
        try:
            self._fetch_model()
            self._host_counts = self.jitter_counts[0]
        finally:
            self._pool.work = None
            self._forget_arrays()
            for holder in (*self._holders, self._buffer):
                holder.close()
            runtime.collect()

    def make_scan(self, points, n_neighbors, n_threads, kernel=None):
        scan = make_scan(points, n_neighbors, n_threads, kernel)
        self._holders.add(scan)
        return scan

    def place_matrix(self, matrix):
        return place_matrix(matrix, self._holders)

    def make_products(self, kernel, Z, n_threads):
        products = DeviceProducts(kernel, Z)
        self._holders.add(products)
        return products

    def prepare_training(self, n, free, log_bounds, feature_scale, n_active=None):
        if n_active is not None:
            raise ValueError(
                "n_active: expected None, since rows share points on the CPU only"
            )
        self._send_model()
        model, H = self._host_model, self.n_neighbors
        moments = make_optimizer(model, free, log_bounds, feature_scale)
        self._optimizer = send(moments, "Adam's moments")
        workspace.require_room(model, n, H)
        self._grads, self._rows = workspace.allocate_steps(model, n, H)
        self._make_room(n)
        self._sums = send_array(np.zeros(2), "sums")

    def make_loader(self, data, neighbors):
        """Return `ResidentBatches`, or `StreamedBatches` where memory is short."""
        rows = make_batches(data, neighbors, self.n_neighbors, self._stream)
        self._holders.add(rows)
        return rows

    def steps(self, batch, n, rates):
        """Queue the steps and return before they are done."""
        model = self._send_model()
        self._newest = "device"
        steps, touched = len(rates), len(self._rows.touched)
        rates, count = self._buffer.send(rates, np.zeros(steps, np.int64))
        grads = self._grads._replace(jitter_counts=self._device_counts)
        data, rows = send(batch, "rows of data"), self._rows._replace(count=count)
        arrays = model, self._optimizer, data, rates, grads, rows, self._sums
        arrays = ready(*arrays)
        model, optimizer, batch, rates, grads, rows, sums = arrays
        (work,), H = ready(self._pool.work), self.n_neighbors
        blocks, threads = self._pool.launch(n)
        for k in range(steps):
            uses = batch.active, k * n, n, k
            self._launch(kernels.claim_rows, -(-n * H // THREADS), THREADS, *uses, rows)
            self._launch(
                kernels.gradients,
                blocks,
                threads,
                model,
                batch,
                k * n,
                n,
                work,
                grads,
                rows,
            )
            self._launch(
                kernels.add_up,
                touched + 1,
                runtime.WARP,
                model,
                optimizer,
                *uses,
                rates,
                grads,
                rows,
                sums,
            )
            self._launch(
                kernels.update_rows,
                -(-touched // THREADS),
                THREADS,
                model,
                optimizer,
                k,
                rates,
                rows,
            )

    def finish_epoch(self):
        sums = self._sums.copy_to_host()
        self._sums.copy_to_device(np.zeros(2))
        return sums

    def _launch(self, kernel, blocks, threads, *arguments):
        """Launch a kernel; the types of its arguments take 1 ms to infer, once."""
        if kernel not in self._compiled:
            self._compiled[kernel] = specialized(kernel, arguments)
        self._compiled[kernel][blocks, threads, self._stream](*arguments)

    def _fill(self, name, rows, results):
        kernel, model = getattr(kernels, name), self._send_model()
        row = sum(array.nbytes for array in (*rows, *results)) / max(len(rows[0]), 1)
        fitting = int(runtime.budget("evaluated rows") / max(row, 1))
        for part in row_blocks(len(rows[0]), max(1, min(fitting, ROWS_AT_ONCE))):
            n = part.stop - part.start
            self._make_room(n)
            inputs = [send_array(array[part], "rows") for array in rows]
            outputs = [send_array(array[part], "results") for array in results]
            kernel[self._pool.launch(n)](
                model, self._pool.work, n, *inputs, *outputs, self._device_counts
            )
            for result, array in zip(results, outputs, strict=True):
                if result.size:
                    result[part] = array.copy_to_host()

    def load_kriging(self, batch, n):
        model, self._n = self._host_model, n
        self._kriging_batch = self._ready = None
        self._kriging_batch = send(batch, "rows of data")
        self._host_grads = allocate_gradients(model, 1, batch.active.shape[1])
        self._make_room(n)
        columns = len(model.params) + len(model.noise) + 1
        if self._results is None or len(self._results) < n:
            self._results = None
            self._results = send_array(np.zeros((n, columns)), "derivatives")

    def kriging_gradients(self, start):
        model, n, results = self._send_parameters(), self._n, self._results
        if self._ready is None:
            arrays = model, self._kriging_batch, self._pool.work, results
            self._ready = ready(*arrays)
        model, batch, work, prepared = self._ready
        blocks, threads = self._pool.launch(n)
        self._launch(
            kernels.kriging_gradients,
            blocks,
            threads,
            model,
            batch,
            start,
            n,
            work,
            prepared,
        )
        columns, P = results.shape[1], len(self._host_model.params)
        kernels.add_results[min(columns, 1024), runtime.WARP](results, n)
        total, grads = results[0].copy_to_host(), self._host_grads
        grads.d_log[0], grads.d_noise[0] = total[:P], total[P:-1]
        grads.sums[0, 0] = total[-1]
        return grads

    def kriging_predictions(self, X, active):
        self._send_parameters()
        self._ready = None  # the work arrays may be replaced
        return super().kriging_predictions(X, active)

    def kriging_slopes(self, X, active):
        self._send_parameters()
        self._ready = None
        return super().kriging_slopes(X, active)

    def _send_parameters(self):
        """Return the model on the device, with kernel and noise of the host."""
        model = self._send_model()
        self._copy_fields(PARAMETERS, to_device=True)
        return model

    def _forget_arrays(self):
        """Release arrays on the device."""
        self._device_model = self._optimizer = self._sums = None
        self._grads = self._rows = self._device_counts = None
        self._kriging_batch = self._results = None
        self._ready = None  # arguments of `kriging_gradients`, prepared for launching
