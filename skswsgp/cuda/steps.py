"""Steps of Adam on a GPU, which are queued and return before they are done."""

import numpy as np

from skswsgp._adam.steps import Steps
from skswsgp._point.adam_step import make_optimizer
from skswsgp.cuda import kernels, runtime, workspace
from skswsgp.cuda.arrays import THREADS, fetch, ready, send, send_array
from skswsgp.cuda.batches import make_batches


class CudaSteps(Steps):
    """Steps of a `CudaEngine`; each row factorises its own K_w, also where H = M."""

    def __init__(self, engine, n, free, log_bounds, feature_scale, n_active=None):
        super().__init__(engine)
        self.close()
        engine.holders.add(self)  # which closes it, also if what follows fails
        if n_active is not None:
            raise ValueError(
                "n_active: expected None, since rows share points on the CPU only"
            )
        engine.send_model()
        model, H = engine.host_model, engine.n_neighbors
        moments = make_optimizer(model, free, log_bounds, feature_scale)
        self._optimizer = send(moments, "Adam's moments")
        workspace.require_room(model, n, H)
        self._grads, self._rows = workspace.allocate_steps(model, n, H)
        engine.make_room(n)
        self._sums = send_array(np.zeros(2), "sums")

    @property
    def optimizer(self):
        return fetch(self._optimizer)

    def make_loader(self, data, neighbors):
        """Return `ResidentBatches`, or `StreamedBatches` where memory is short."""
        engine = self.engine
        rows = make_batches(data, neighbors, engine.n_neighbors, engine.stream)
        engine.holders.add(rows)
        return rows

    def take(self, batch, n, rates):
        engine, H = self.engine, self.engine.n_neighbors
        model = engine.send_model(changes=True)
        steps, touched = len(rates), len(self._rows.touched)
        rates, count = engine.buffer.send(rates, np.zeros(steps, np.int64))
        grads = self._grads._replace(jitter_counts=engine.device_counts)
        data, rows = send(batch, "rows of data"), self._rows._replace(count=count)
        arrays = ready(model, self._optimizer, data, rates, grads, rows, self._sums)
        model, optimizer, batch, rates, grads, rows, sums = arrays
        (work,), launch = ready(engine.pool.work), engine.launch
        shape = engine.pool.launch(n)
        for k in range(steps):
            start, uses = k * n, (batch.active, k * n, n, k)
            launch(kernels.claim_rows, (-(-n * H // THREADS), THREADS), *uses, rows)
            given = model, batch, start, n, work, grads, rows
            launch(kernels.gradients, shape, *given)
            given = model, optimizer, *uses, rates, grads, rows, sums
            launch(kernels.add_up, (touched + 1, runtime.WARP), *given)
            given = model, optimizer, k, rates, rows
            launch(kernels.update_rows, (-(-touched // THREADS), THREADS), *given)

    def finish_epoch(self):
        sums = self._sums.copy_to_host()
        self._sums.copy_to_device(np.zeros(2))
        return sums

    def close(self):
        """Release the memory of the device."""
        self._optimizer = self._grads = self._rows = self._sums = None
