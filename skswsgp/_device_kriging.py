"""Kriging on a GPU: kernels together with the arrays on the device they work on."""

from weakref import WeakSet

import numpy as np

from skswsgp import _cuda, _device
from skswsgp import _kriging_cuda as kernels
from skswsgp._device_arrays import send, send_array
from skswsgp._device_search import make_scan
from skswsgp._device_work import Places
from skswsgp._engine_cpu import make_gradients

MOVING = "params", "inv_scale", "noise"  # fields of a model that are sent each time


class CudaKriging:
    """Densities of rows, their derivatives, and predictions on a GPU.

    It has the methods of `CpuKriging`. The data are sent once, kernel parameters and
    noise with each call; Adam, which moves them on the host, gets one row back.

    Parameters
    ----------
    model : Model
        The data; kernel parameters and noise may change between calls.
    n_active : int
        H, from how many data a row is predicted.
    n_threads : int
        Threads of what is left to the CPU.
    """

    def __init__(self, model, n_active, n_threads):
        _cuda.require()
        self.model, self.n_active, self.n_threads = model, n_active, n_threads
        self.grads = make_gradients(model, 1, n_active)
        self._places = Places(model, n_active)
        self._launch = None  # the kernel for the types of its arguments
        self._scans = WeakSet()
        self._forget()

    def close(self):
        """Give all memory of the device back."""
        self._forget()
        for scan in self._scans:
            scan.close()
        _cuda.collect()

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
            self._ready = _cuda.ready(
                model, self._batch, self._places.work, self._results
            )
        model, batch, work, results = self._ready
        points = model, batch, start, n, work, results
        if self._launch is None:  # to find out the types takes a millisecond
            self._launch = kernels.kriging_gradients.specialize(*points)
        self._launch[self._places.launch(n)](*points)
        columns, P = self._results.shape[1], len(self.model.params)
        kernels.add_up_points[min(columns, 1024), _cuda.WARP](self._results, n)
        total = self._results[0].copy_to_host()
        self.grads.d_log[0], self.grads.d_noise[0] = total[:P], total[P:-1]
        self.grads.sums[0, 0] = total[-1]
        return self.grads

    def predict(self, X, active):
        """Return mean and variance of the latent functions at rows of X, (n, Q)."""
        mu, v = np.empty((2, len(X), self.model.m.shape[1]), dtype=X.dtype)
        model, self._ready = self._current(), None
        for part in _device.some_rows(X, active, mu, v):
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
            for name in MOVING:
                getattr(self._model, name).copy_to_device(getattr(self.model, name))
        return self._model
