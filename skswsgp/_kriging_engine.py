"""Who does the kriging: the threads of the CPU, or a GPU.

`make_kriging` chooses one; `LocalProcess` above it knows these few methods.
"""

import numpy as np

from skswsgp import _kriging_cpu as loops
from skswsgp._engine import microseconds_of_point, require_device
from skswsgp._engine_cpu import make_gradients
from skswsgp._jit import SHARE_A_THREAD, threads_for
from skswsgp._neighbors import make_scan
from skswsgp._state import Batch, Work, make_work


def make_kriging(device, model, n_active, n_threads):
    """Return what does the kriging on a device, "cpu" or "cuda"."""
    if device == "cpu":
        return CpuKriging(model, n_active, n_threads)
    require_device(device)
    from skswsgp._device_kriging import CudaKriging  # it takes a second to import

    return CudaKriging(model, n_active, n_threads)


class CpuKriging:
    """Densities of rows, their derivatives, and predictions on `n_threads` threads.

    Parameters
    ----------
    model : Model
        The data; kernel parameters and noise may change between calls.
    n_active : int
        H, from how many data a row is predicted.
    n_threads : int
        Threads of every launch.
    """

    make_scan = staticmethod(make_scan)  # the exact search for neighbours

    def __init__(self, model, n_active, n_threads):
        self.model, self.n_threads = model, n_threads
        self.work = make_work(model, n_active, n_threads)
        self.grads = make_gradients(model, 1, n_active)

    def close(self):
        """Give back what a device holds: nothing."""

    def load(self, batch, n):
        """Take the rows of the next steps, n each; y holds ratios as in `_kriging`."""
        self.batch, self.n = batch, n
        work = n * microseconds_of_point(batch.active.shape[1])
        threads = threads_for(work, self.n_threads, SHARE_A_THREAD)
        self.step_work = Work(*(array[:threads] for array in self.work))

    def differentiate(self, start):
        """Return derivatives of sum_i weight_i log p(y_i | neighbours), rows of a step.

        Those from `start` on. They and the sum stand first in the `Gradients`, which
        the next call overwrites; the sum is NaN where C could not be factorised.
        """
        rows = self.model, self.batch, start, self.n
        loops.kriging_gradients(*rows, self.step_work, self.grads)
        return self.grads

    def predict(self, X, active):
        """Return mean and variance of the latent functions at rows of X, (n, Q)."""
        shape = len(X), self.model.m.shape[1]
        mu, v = np.empty((2, *shape), dtype=X.dtype)
        batch = Batch(X, mu[:0], mu[:0, 0], active)
        loops.kriging_predictions(self.model, batch, self.work, mu, v)
        return mu, v
