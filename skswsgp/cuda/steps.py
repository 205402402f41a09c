"""Steps of Adam on a GPU, which are queued and return before they are done."""

from collections import namedtuple

import numpy as np

from skswsgp._adam.moves import step_positive, update_row
from skswsgp._adam.schedule import STEPS_PER_BLOCK
from skswsgp._adam.steps import Steps
from skswsgp._compiled.jit import njit_inner
from skswsgp._compiled.threads import row_blocks
from skswsgp._point import adam_step
from skswsgp._point.state import Batch
from skswsgp.cuda.compiler import body
from skswsgp.cuda.rows import Slopes, bytes_of_row

NO_ROOM = (
    "minibatches of {n} rows with {H} neighbours and {M} inducing points: the GPU has "
    "no room for them ({need:.3g} MB, {free:.3g} MB are free); expected {less}, or "
    "device='cpu'."
)

# Sums of derivatives over the uses of points, in the row of the first use
Sums = namedtuple("Sums", "d_m d_s d_Z")
Totals = namedtuple("Totals", "d_log d_noise")  # by logarithms, as in `Gradients`


@njit_inner
def first_use(uses, k, M):
    """Return the point of use k, or -1 if an earlier use has the same one."""
    number = uses[k] // uses.shape[0]
    return -1 if k > 0 and uses[k - 1] // uses.shape[0] == number else number % M


@njit_inner
def sum_of_uses(values, uses, k, j):
    """Return the sum of values[b, h, j] over the uses of the point of use k."""
    places, H, total = uses.shape[0], uses.shape[0] // values.shape[0], 0.0
    point = uses[k] // places
    while k < places and uses[k] // places == point:
        place = uses[k] % places
        total += values[place // H, place % H, j]
        k += 1
    return total


@body
def move_point(k, model, optimizer, uses, d_m, d_s, d_points, sums, rate):
    """Take a step for m, Z and a diagonal S of the point whose first use is k."""
    point = first_use(uses, k, model.m.shape[0])
    if point >= 0:
        for values, out in ((d_m, sums.d_m), (d_s, sums.d_s), (d_points, sums.d_Z)):
            for j in range(out.shape[1]):
                out[k, j] = sum_of_uses(values, uses, k, j)
        update_row(model, optimizer, sums, k, point, rate[0])


@body
def move_factor_entry(i, L, optimizer, uses, d_L, rate):
    """Take a step for an entry of L_q, of a point and in column j.

    The first use of the point is k.
    """
    count, M = uses.shape[0], L.shape[2]
    q, k, j = i // (count * M), i // M % count, i % M
    row = first_use(uses, k, M)
    if j <= row:
        fast, slow = adam_step.bias_corrections(optimizer.row_steps[row], rate[0])
        slope, own = sum_of_uses(d_L[q], uses, k, j), optimizer.L[q]
        if j < row:
            adam_step.step_linear(L[q], row, j, slope, 1.0, own, fast, slow)
        else:
            step_positive(L[q], row, j, slope, own, fast, slow)


@body
def move_parameters(i, model, optimizer, d_params, totals, epoch, rate):
    """Take a step for kernel parameters and noise variances; there is one i."""
    epoch[0], epoch[1] = epoch[0] + totals[0, 0], epoch[1] + totals[0, 1]
    adam_step.update_parameters(
        model, optimizer, Totals(d_params, totals[:, 2:]), rate[0]
    )


class Minibatch(Slopes):
    """A step of Adam on n rows, prepared once; its launches change the model."""

    def __init__(self, engine, n, columns, optimizer, epoch):
        super().__init__(engine, n, columns)
        self.optimizer, self.epoch, uses = optimizer, epoch, n * self.H
        self.allocate(np.float64, rate=1)
        self.allocate(np.int64, uses=uses)
        zeros, by_use = self.device.xp.zeros, (self.d_m, self.d_s, self.d_points)
        self.sums = Sums(*(zeros((uses, a.shape[2]), self.dtype) for a in by_use))
        self.add(move_point, uses)
        self.add(move_factor_entry, self.d_L.size)
        self.add(move_parameters, 1)

    def take(self, batch, rates):
        """Take a step for each rate, each on the next n rows of a batch."""
        n, size = self.n, len(self.uses)
        keys = sorted_uses(self.device.xp, batch.active, n, len(self.Z))
        for k, rate in enumerate(rates):
            for name, rows in batch._asdict().items():
                getattr(self, name)[...] = rows[k * n : (k + 1) * n]
            self.uses[...] = keys[k * size : (k + 1) * size]
            self.rate.fill(rate)
            self.run()


def sorted_uses(xp, active, n, M):
    """Return numbers of uses of M points: a step of n rows, a point and a place.

    Sorted, they put the uses of a step in the order of points, and those of a point in
    the order of rows. A use has place b H + h for neighbour h of row b of the step.
    """
    places, index = n * active.shape[1], xp.arange(active.size)
    keys = (index // places * M + active.ravel()) * places + index % places
    keys.sort()
    return keys


class CudaSteps(Steps):
    """Steps of a `CudaEngine`; each row factorises its own K_w, also where H = M."""

    def __init__(self, engine, n, free, log_bounds, feature_scale, n_active=None):
        super().__init__(engine)
        self.close()
        engine.holders.add(self)  # which closes it, also if what follows fails
        if n_active is not None:
            raise ValueError("n_active: rows share points on the CPU only")
        engine.send_model()
        model, H = engine.host_model, engine.n_neighbors
        self._need = require_room(engine.device, model, n, H)
        moments = adam_step.make_optimizer(model, free, log_bounds, feature_scale)
        with engine.device.room_for("Adam's moments"):
            self._optimizer = engine.device.send_struct(moments)
            self._sums = engine.device.send(np.zeros(2))

    @property
    def optimizer(self):
        moments, fetch = self._optimizer, self.engine.device.fetch
        return moments and moments._make(map(fetch, moments))

    def make_loader(self, data, neighbors):
        """Return a loader of rows on the device, or of rows sent in minibatches."""
        H, device = self.engine.n_neighbors, self.engine.device
        loader = Loader(device, data, neighbors, H, self._need)
        self.engine.holders.add(loader)
        return loader

    def take(self, batch, n, rates):
        engine, work = self.engine, self._work
        model = engine.send_model(changes=True)
        with engine.device.room_for("a minibatch"):
            if isinstance(batch.X, np.ndarray):
                batch = engine.device.send_struct(batch)
            if work is None or work.n != n or work.model is not model:
                self._work = None  # before another one takes memory
                given = batch.y.shape[1], self._optimizer, self._sums
                self._work = work = Minibatch(engine, n, *given)
            work.take(batch, rates)

    def finish_epoch(self):
        with self.engine.device.room_for("sums"):  # errors of queued steps show here
            sums = self.engine.device.fetch(self._sums)
            self._sums[:] = 0.0
        return sums

    def close(self):
        """Release the memory of the device."""
        self._optimizer = self._sums = self._work = None


class Loader:
    """Rows of a fit: on the device if they fit there, beside the bytes of a `need`.

    A batch then sends the numbers of its rows, and the rows themselves otherwise, which
    may be in a memory map.
    """

    def __init__(self, device, data, neighbors, H, need):
        self.device, self.data, self.neighbors = device, data, neighbors
        self.all, n, xp = None, data.n_rows, device.xp
        arrays = *data.block(np.arange(0)), np.empty((0, H), np.int32)
        row = sum(a.itemsize * int(np.prod(a.shape[1:])) for a in arrays)
        if n * row <= device.budget("data", need):
            with device.room_for("rows of data"):
                empty = (xp.empty((n, *a.shape[1:]), a.dtype) for a in arrays)
                self.all = Batch(*empty)
                for part in row_blocks(n):
                    block = data.block(np.arange(part.start, part.stop))
                    for array, on_device in zip(block, self.all, strict=False):
                        on_device[part] = device.send(array)

    def batch(self, rows):
        """Return the rows with these indices."""
        with self.device.room_for("rows of data"):
            if self.all is None:
                X, y, weight = self.data.block(rows)
                arrays = X, y, weight, self.neighbors.lookup(rows, X)
                return Batch(*map(self.device.send, arrays))
            self._find_lists(rows)
            index = self.device.send(rows)
            return Batch(*(array[index] for array in self.all))

    def _find_lists(self, rows):
        """Find the lists of those rows whose lists are out of date."""
        rows = rows[self.neighbors.stale(rows)]
        if len(rows):
            lists = self.neighbors.search.query(self.data.block(rows)[0])
            self.all.active[self.device.send(rows)] = self.device.send(lists)
            self.neighbors.mark_current(rows)

    def close(self):
        """Release the memory of the device."""
        self.all = None


def require_room(device, model, n, H):
    """Return the bytes of steps of n rows, with the rows of a block of steps.

    Raises a MemoryError that names a smaller batch size if they do not fit.
    """
    free, fits = device.free_memory(), n
    columns = model.Z.shape[1] + model.m.shape[1] + 1
    use = np.dtype(np.int32).itemsize + 2 * np.dtype(np.int64).itemsize  # and sorting
    row = columns * model.Z.itemsize + H * use
    row = bytes_of_row(model, H) + STEPS_PER_BLOCK * row
    while fits > 0 and fits * row > free:
        fits //= 2
    if fits < n:
        less = f"batch_size={fits} or less" if fits else "fewer points or neighbours"
        sizes = {"n": n, "H": H, "M": len(model.Z), "less": less}
        need = row * (n if fits else 1)
        raise MemoryError(NO_ROOM.format(need=need / 1e6, free=free / 1e6, **sizes))
    return n * row
