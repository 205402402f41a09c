"""The engine of a GPU: batched linear algebra on arrays that stay on the device.

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
from skswsgp.cuda import device, kriging, rows
from skswsgp.cuda.products import DeviceProducts
from skswsgp.cuda.row_matrix import place_matrix
from skswsgp.cuda.scan import DeviceScan
from skswsgp.cuda.steps import CudaSteps

PARAMETERS = "params", "inv_scale", "noise"  # fields that learning by kriging changes


class CudaEngine(Engine):
    """An engine on a GPU; each row factorises its own K_w, also where H = M."""

    def __init__(self, model, n_neighbors, n_threads):
        device.require()
        self.device = device.get_device()
        self._device_model = self._batch = None
        super().__init__(model, n_neighbors, n_threads)
        self._counts = np.zeros(2, np.int64)
        with self.device.room_for("counts"):
            self.device_counts = self.device.send(self._counts)
        self.holders = WeakSet()  # searches, loaders, matrices and products

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
                if to_device:
                    on_device[...] = self.device.send(on_host)
                else:
                    on_host[...] = self.device.fetch(on_device)

    def send_model(self, changes=False):
        """Return the model on the device, with the changes made on the host.

        If the caller `changes` it there, the copy on the host follows when it is read.
        """
        if self._device_model is None:
            with self.device.room_for("the model"):
                self._device_model = self.device.send_struct(self.host_model)
        elif self._newest == "host":
            self._copy_fields(self.host_model._fields, to_device=True)
        newer = changes or self._newest == "device"
        self._newest = "device" if newer else "both"
        return self._device_model

    @property
    def jitter_counts(self):
        if self.device_counts is not None:
            self._counts = self.device.fetch(self.device_counts)
        return self._counts[None]

    def note_jitter(self, jitter):
        """Count factorisations that needed more than the usual jitter, or failed."""
        xp, usual = self.device.xp, self.host_model.jitter
        self.device_counts[0] += (jitter > 1.5 * usual).sum()
        self.device_counts[1] += xp.isnan(jitter).sum()

    def close(self):
        try:
            self._fetch_model()
            self._counts = self.jitter_counts[0]
        finally:
            self._device_model = self._batch = self.device_counts = None
            for holder in list(self.holders):
                holder.close()
            self.device.release()

    def make_scan(self, points, n_neighbors, n_threads, kernel=None):
        return self._held(DeviceScan(self.device, points, n_neighbors, kernel))

    def place_matrix(self, matrix):
        return place_matrix(self.device, matrix, self.holders)

    def make_products(self, kernel, Z, n_threads):
        return self._held(DeviceProducts(self.device, kernel, Z))

    def _held(self, holder):
        """Return an object that holds memory of the device until `close`."""
        self.holders.add(holder)
        return holder

    def predict(self, X, active, with_variance):
        def marginals(X, active):
            found = self._conditional(X, active)
            if with_variance:
                return rows.posterior(self.device, self._device_model, found)
            m = self._device_model.m[found.active]
            return (rows.weighted_sum(found.a, m),)

        mu, *v = self._by_parts(marginals, X, active)
        return mu, v[0] if with_variance else None

    def conditional_weights(self, X, active):
        def weights(X, active):
            found = self._conditional(X, active)
            return found.a, found.F

        return self._by_parts(weights, X, active)

    def variational_expectations(self, y, mu, v):
        def expectations(*given):
            found = rows.expectations(self.device, self._device_model, *given)
            return found.ell.astype(mu.dtype), found.d_mean, found.d_variance

        return self._by_parts(expectations, y, mu, v)

    def bound(self, batch):
        def terms(X, y, active):
            found = rows.bound(self.device, self._device_model, X, y, active)
            self.note_jitter(found[0].factors.jitter)
            return found[1].ell, found[2].kl.astype(np.float64)

        return self._by_parts(terms, batch.X, batch.y, batch.active)

    def _conditional(self, X, active):
        """Return the `Rows` of inputs, F at least its floor; count their jitter."""
        xp, model = self.device.xp, self._device_model
        found = rows.conditional(self.device, model, X, active)
        self.note_jitter(found.factors.jitter)
        floor = rows.variance_floor(xp, model, found)
        return found._replace(F=xp.maximum(found.F, floor))

    def _by_parts(self, function, *arrays):
        """Return results of a function of rows, which are sent in parts that fit."""
        self.send_model()
        size = rows.most_rows(self.device, self.host_model, self.n_neighbors)
        parts = list(row_blocks(len(arrays[0]), min(size, ROWS_AT_ONCE)))
        results = []
        for part in parts or [slice(0, 0)]:
            with self.device.room_for("rows of data"):
                found = function(*(self._send_rows(array[part]) for array in arrays))
            results.append([self.device.fetch(array) for array in found])
        return tuple(map(np.concatenate, zip(*results, strict=True)))

    def _send_rows(self, array):
        """Return rows on the device, numbers in the precision of the model."""
        lists = array.dtype.kind == "i"
        return self.device.send(array if lists else array.astype(self._dtype))

    def load_kriging(self, batch, n):
        with self.device.room_for("rows of data"):
            self._batch, self._n = self.device.send_struct(batch), n

    def kriging_gradients(self, start):
        model, batch = self._send_parameters(), self._batch
        grads = allocate_gradients(self.host_model, 1, self.n_neighbors)
        most = rows.most_rows(self.device, self.host_model, self.n_neighbors)
        for part in row_blocks(self._n, most):
            first, last = start + part.start, start + part.stop
            X, y, weight, active = (array[first:last] for array in batch)
            given = self.device, model, X, y, active, weight
            with self.device.room_for("derivatives"):
                found = kriging.log_density_vjp(*given)
            d_log, d_noise, total = map(self.device.fetch, found)
            grads.d_log[0] += d_log
            grads.d_noise[0] += d_noise
            grads.sums[0, 0] += total
        return grads

    def kriging_predictions(self, X, active, with_mean=True):
        self._send_parameters()

        def krige(X, active):
            found = kriging.predictions(self.device, self._device_model, X, active)
            for jitter in found[2]:
                self.note_jitter(jitter)
            return found[:2]

        mean, F = self._by_parts(krige, X, active)
        return mean if with_mean else None, F

    def kriging_slopes(self, X, active):
        self._send_parameters()

        def slopes(*given):
            return (kriging.mean_slopes(self.device, self._device_model, *given),)

        return self._by_parts(slopes, X, active)[0].astype(np.float64)

    def _send_parameters(self):
        """Return the model on the device, with kernel and noise of the host."""
        model = self.send_model()
        self._copy_fields(PARAMETERS, to_device=True)
        return model


make_steps.register(CudaEngine, CudaSteps)
