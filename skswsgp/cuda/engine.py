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
from skswsgp._engine.cpu import CpuEngine
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
        self._device_model = self._batch = self._work = None
        super().__init__(model, n_neighbors, n_threads)
        self.jitter_counts = np.zeros((1, 2), np.int64)
        self.holders = WeakSet()  # searches, loaders, matrices and products

    @property
    def model(self):
        """The model on the host, after all steps so far; the caller may change it."""
        self._fetch_model()
        self._newest = "host"
        return self.host_model

    @model.setter
    def model(self, model):
        self.host_model, self._device_model, self._work = model, None, None
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

    def note_jitter(self, jitter):
        """Count factorisations that needed more than the usual jitter, or failed."""
        usual = self.host_model.jitter
        self.jitter_counts[0] += (jitter > 1.5 * usual).sum(), np.isnan(jitter).sum()

    def close(self):
        try:
            with self.device.room_for("the model"):
                self._fetch_model()
        finally:
            self._device_model = self._batch = self._work = None
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
        names = "mean variance" if with_variance else "mean"
        return (*self._by_parts(rows.Rows, names, X=X, active=active), None)[:2]

    def conditional_weights(self, X, active):
        a, F = self._by_parts(rows.Rows, "a F", X=X, active=active)
        return a[:, :, 0], F

    def variational_expectations(self, y, mu, v):
        names, given = "ell d_mean d_variance", {"y": y, "mean": mu, "variance": v}
        ell, *slopes = self._by_parts(rows.Expectations, names, **given)
        return ell.astype(mu.dtype), *slopes

    def bound(self, batch):
        X, y, _, active = batch
        return self._by_parts(rows.Bound, "ell kl", X=X, y=y, active=active)

    def _run(self, kind, names, **arrays):
        """Return attributes of a kind of `Launches` for rows on the device."""
        n = len(next(iter(arrays.values())))
        work, model = self._work, self.send_model()
        if type(work) is not kind or work.n != n or work.model is not model:
            self._work = None  # before another one takes memory
            columns = arrays["y"].shape[1] if "y" in arrays else 0
            self._work = work = kind(self, n, columns)
        for name, array in arrays.items():
            getattr(work, name)[...] = array
        work.run()
        return [self.device.fetch(getattr(work, name)) for name in names.split()]

    def _by_parts(self, kind, names, **arrays):
        """Return results of `_run` for rows of the host, sent in parts that fit."""
        self.send_model()
        size = rows.most_rows(self.device, self.host_model, self.n_neighbors)
        n, results = len(next(iter(arrays.values()))), []
        for part in list(row_blocks(n, min(size, ROWS_AT_ONCE))) or [slice(0, 0)]:
            with self.device.room_for("rows of data"):
                sent = {name: self.device.send(a[part]) for name, a in arrays.items()}
                results.append(self._run(kind, names, **sent))
        self._work = None
        return tuple(map(np.concatenate, zip(*results, strict=True)))

    def load_kriging(self, batch, n):
        with self.device.room_for("rows of data"):
            self._batch, self._n = self.device.send_struct(batch), n

    def kriging_gradients(self, start):
        self._send_parameters()
        grads = allocate_gradients(self.host_model, 1, self.n_neighbors)
        most = rows.most_rows(self.device, self.host_model, self.n_neighbors)
        for part in row_blocks(self._n, most):
            part = slice(start + part.start, start + part.stop)
            batch = {name: a[part] for name, a in self._batch._asdict().items()}
            with self.device.room_for("derivatives"):
                found = self._run(kriging.KrigingSlopes, "d_params totals", **batch)
            (d_params,), ((density, _, *d_noise),) = found
            grads.d_log[0] += d_params
            grads.d_noise[0] += d_noise
            grads.sums[0, 0] += density
        return grads

    def kriging_predictions(self, X, active, with_mean=True):
        self._send_parameters()
        names = "mean variance" if with_mean else "variance"
        found = self._by_parts(kriging.Kriging, names, X=X, active=active)
        return (None, *found)[-2:]

    def kriging_slopes(self, X, active):  # of few rows, once in a fit
        given = self.model_snapshot(), self.n_neighbors, self.n_threads
        return CpuEngine(*given).kriging_slopes(X, active)

    def _send_parameters(self):
        """Send the model to the device, or kernel and noise of the host."""
        self.send_model()
        self._copy_fields(PARAMETERS, to_device=True)


make_steps.register(CudaEngine, CudaSteps)
