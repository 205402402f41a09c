"""The engine of a GPU: kernels together with the arrays on the device they work on.

The model is sent to the device when it is first needed. Training changes the copy on
the device, and the copy on the host follows when a caller reads `CudaEngine.model`.
"""

from weakref import WeakSet

import numpy as np

from skswsgp._adam.steps import make_steps
from skswsgp._compiled.threads import ROWS_AT_ONCE, row_blocks
from skswsgp._covariance.program import Kernel
from skswsgp._engine.base import Engine
from skswsgp._point.state import allocate_gradients
from skswsgp.cuda import kernels, runtime, workspace
from skswsgp.cuda.arrays import ready, send, send_array
from skswsgp.cuda.batches import DoubleBuffer
from skswsgp.cuda.compiler import specialized
from skswsgp.cuda.products import DeviceProducts
from skswsgp.cuda.row_matrix import place_matrix
from skswsgp.cuda.runtime import cuda
from skswsgp.cuda.scan import make_scan
from skswsgp.cuda.steps import CudaSteps

PARAMETERS = "params", "inv_scale", "noise"  # fields that learning by kriging changes


class CudaEngine(Engine):
    """An engine on a GPU; each row factorises its own K_w, also where H = M."""

    def __init__(self, model, n_neighbors, n_threads):
        runtime.require()
        self._forget_arrays()
        super().__init__(model, n_neighbors, n_threads)
        self.pool = workspace.WorkspacePool(model, n_neighbors)
        self._host_counts = np.zeros(2, np.int64)
        self._compiled = {}  # kernels, compiled for the types of their arguments
        self.holders = WeakSet()  # searches, loaders, matrices and products
        self.stream = cuda.stream()  # for steps; the default stream waits for it
        self.buffer = DoubleBuffer(self.stream)

    @property
    def model(self):
        """The model on the host, after all steps so far; the caller may change it."""
        self._fetch_model()
        self._newest = "host"
        return self.host_model

    @model.setter
    def model(self, model):
        self.host_model, self._device_model = model, None
        self._newest = "host"

    def model_snapshot(self):  # and the device keeps the newest copy
        self._fetch_model()
        return self.host_model

    def kernel_snapshot(self):  # moves little, and the device keeps the newest copy
        if self._newest == "device":
            moving = ("Z",) * self.host_model.train_inducing
            self._copy_fields(Kernel._fields + moving)
        return self.host_model

    def _fetch_model(self):
        """Copy the model to the host if steps have changed it on the device."""
        if self._newest == "device":
            self._copy_fields(self.host_model._fields)
            self._newest = "both"

    def _copy_fields(self, names, *, to_device=False):
        """Copy fields of the model that have entries to the host, or to the device."""
        for name in names:
            on_host = getattr(self.host_model, name)
            if isinstance(on_host, np.ndarray) and on_host.size:
                on_device = getattr(self._device_model, name)
                copy = on_device.copy_to_device if to_device else on_device.copy_to_host
                copy(on_host)

    def send_model(self, changes=False):
        """Return the model on the device, with the changes made on the host.

        If the caller `changes` it there, the copy on the host follows when it is read.
        """
        if self._device_model is None:
            self._device_model = send(self.host_model, "the model")
        elif self._newest == "host":
            self._copy_fields(self.host_model._fields, to_device=True)
        newer = changes or self._newest == "device"
        self._newest = "device" if newer else "both"
        return self._device_model

    @property
    def jitter_counts(self):
        counts = self._host_counts
        if self.device_counts is not None:
            counts = counts + self.device_counts.copy_to_host().sum(axis=0)
        return counts[None]

    def make_room(self, n):
        """Allocate work arrays, and counts for each slot, for n rows at once."""
        if self.pool.make_room(n):
            self._host_counts = self.jitter_counts[0]
            counts = np.zeros((len(self.pool), 2), np.int64)
            self.device_counts = send_array(counts, "counts")

    def close(self):
        try:
            self._fetch_model()
            self._host_counts = self.jitter_counts[0]
        finally:
            self.pool.work = None
            self._forget_arrays()
            for holder in (*self.holders, self.buffer):
                holder.close()
            runtime.collect()

    def make_scan(self, points, n_neighbors, n_threads, kernel=None):
        scan = make_scan(points, n_neighbors, n_threads, kernel)
        self.holders.add(scan)
        return scan

    def place_matrix(self, matrix):
        return place_matrix(matrix, self.holders)

    def make_products(self, kernel, Z, n_threads):
        products = DeviceProducts(kernel, Z)
        self.holders.add(products)
        return products

    def launch(self, kernel, shape, *arguments):
        """Launch a kernel with a `shape` of blocks, and threads of each.

        The types of its arguments take 1 ms to infer, once.
        """
        if kernel not in self._compiled:
            self._compiled[kernel] = specialized(kernel, arguments)
        self._compiled[kernel][(*shape, self.stream)](*arguments)

    def _fill(self, name, rows, options, results):
        kernel, model = getattr(kernels, name), self.send_model()
        row = sum(array.nbytes for array in (*rows, *results)) / max(len(rows[0]), 1)
        fitting = int(runtime.budget("evaluated rows") / max(row, 1))
        for part in row_blocks(len(rows[0]), max(1, min(fitting, ROWS_AT_ONCE))):
            n = part.stop - part.start
            self.make_room(n)
            inputs = [send_array(array[part], "rows") for array in rows]
            outputs = [send_array(array[part], "results") for array in results]
            given = model, self.pool.work, n, *inputs, *options, *outputs
            kernel[self.pool.launch(n)](*given, self.device_counts)
            for result, array in zip(results, outputs, strict=True):
                if result.size:
                    result[part] = array.copy_to_host()

    def load_kriging(self, batch, n):
        model, self._n = self.host_model, n
        self._kriging_batch = self._ready = None
        self._kriging_batch = send(batch, "rows of data")
        self._host_grads = allocate_gradients(model, 1, batch.active.shape[1])
        self.make_room(n)
        columns = len(model.params) + len(model.noise) + 1
        if self._results is None or len(self._results) < n:
            self._results = None
            self._results = send_array(np.zeros((n, columns)), "derivatives")

    def kriging_gradients(self, start):
        model, n, results = self._send_parameters(), self._n, self._results
        if self._ready is None:
            arrays = model, self._kriging_batch, self.pool.work, results
            self._ready = ready(*arrays)
        model, batch, work, prepared = self._ready
        given = model, batch, start, n, work, prepared
        self.launch(kernels.kriging_gradients, self.pool.launch(n), *given)
        columns, P = results.shape[1], len(self.host_model.params)
        kernels.add_results[min(columns, 1024), runtime.WARP](results, n)
        total, grads = results[0].copy_to_host(), self._host_grads
        grads.d_log[0], grads.d_noise[0] = total[:P], total[P:-1]
        grads.sums[0, 0] = total[-1]
        return grads

    def kriging_predictions(self, X, active, with_mean=True):
        self._send_parameters()
        self._ready = None  # the work arrays may be replaced
        return super().kriging_predictions(X, active, with_mean)

    def kriging_slopes(self, X, active):
        self._send_parameters()
        self._ready = None
        return super().kriging_slopes(X, active)

    def _send_parameters(self):
        """Return the model on the device, with kernel and noise of the host."""
        model = self.send_model()
        self._copy_fields(PARAMETERS, to_device=True)
        return model

    def _forget_arrays(self):
        """Release arrays on the device."""
        self._device_model = self.device_counts = None
        self._kriging_batch = self._results = None
        self._ready = None  # arguments of `kriging_gradients`, prepared for launching


make_steps.register(CudaEngine, CudaSteps)
