"""Steps of Adam on a GPU, which are queued and return before they are done."""

from typing import NamedTuple

import numpy as np

from skswsgp._adam.steps import Steps
from skswsgp._compiled.jit import njit_inner
from skswsgp._point.adam_step import (
    STEPS_PER_BLOCK,
    bias_corrections,
    make_optimizer,
    step_linear,
    step_positive,
    update_parameters,
    update_row,
)
from skswsgp.cuda import rows
from skswsgp.cuda.compiler import body
from skswsgp.cuda.loaders import make_loader

NO_ROOM = (
    "minibatches of {n} rows with {H} neighbours: the GPU has no room for them "
    "({need:.3g} MB, {free:.3g} MB are free); expected batch_size={fits} or less, or "
    "device='cpu'."
)
NO_ROOM_AT_ALL = (
    "n_inducing={M} and n_neighbors={H}: the GPU has no room for a minibatch of one "
    "row ({need:.3g} MB, {free:.3g} MB are free); expected fewer, or device='cpu'."
)


class Uses(NamedTuple):
    """The uses of inducing points by a minibatch, in the order of the points.

    Use k is entry `place[k]` of the lists of the rows, in row-major order, and of the
    point `point[k]`. Uses of a point are in the order of the rows.
    """

    point: object  # (n H,)
    place: object  # (n H,)
    first: object  # (n H,) bool, whether this is the first use of its point


class Sums(NamedTuple):
    """Derivatives by uses of points, in the order of the lists, or sums of them."""

    d_m: object  # (n H, Q)
    d_s: object  # (n H, Q), or without columns
    d_Z: object  # (n H, D), or without columns


class Totals(NamedTuple):
    """Derivatives by log parameters and log noise variances, as `Gradients` are."""

    d_log: object  # (1, P)
    d_noise: object  # (1, number of noise variances)


def uses_of(xp, active):
    """Return the `Uses` of points by rows with the lists `active` (n, H)."""
    flat = active.ravel()
    # Numbers of their own, since the sort of CuPy need not keep the order of equal ones
    place = xp.argsort(flat * np.int64(flat.size) + xp.arange(flat.size))
    point = flat[place]
    first = xp.ones(flat.size, bool)
    first[1:] = point[1:] != point[:-1]
    return Uses(point, place, first)


@body
def move_point(k, model, optimizer, uses, by_use, sums, rate):
    """Take a step for m, Z and a diagonal S of the point whose first use is k."""
    if uses.first[k]:
        for values, out in (
            (by_use.d_m, sums.d_m),
            (by_use.d_s, sums.d_s),
            (by_use.d_Z, sums.d_Z),
        ):
            for j in range(out.shape[1]):
                out[k, j] = sum_of_uses(values, uses, k, j)
        update_row(model, optimizer, sums, k, uses.point[k], rate)


@njit_inner
def sum_of_uses(values, uses, k, j):
    """Return the sum of values[:, j] over the uses of the point of use k."""
    end, total = k + 1, values[uses.place[k], j]
    while end < uses.point.shape[0] and not uses.first[end]:
        total += values[uses.place[end], j]
        end += 1
    return total


@body
def move_factor_entry(i, model, optimizer, uses, d_L, q, rate):
    """Take a step for an entry of L_q: column i % M of the point of use i // M."""
    M = model.L.shape[2]
    k, j = i // M, i % M
    if uses.first[k] and j <= uses.point[k]:
        row, L, moments = uses.point[k], model.L[q], optimizer.L[q]
        fast, slow = bias_corrections(optimizer.row_steps[row], rate)
        slope = sum_of_uses(d_L, uses, k, j)
        if j < row:
            step_linear(L, row, j, slope, 1.0, moments, fast, slow)
        else:
            step_positive(L, row, j, slope, moments, fast, slow)


@body
def move_parameters(i, model, optimizer, totals, rate):
    """Take a step for kernel parameters and noise variances; there is one i."""
    update_parameters(model, optimizer, totals, rate)


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
        self._need = require_room(engine.device, model, n, H)
        moments = make_optimizer(model, free, log_bounds, feature_scale)
        with engine.device.room_for("Adam's moments"):
            self._optimizer = engine.device.send_struct(moments)
            self._sums = engine.device.send(np.zeros(2))

    @property
    def optimizer(self):
        if self._optimizer is None:
            return None
        fetch = self.engine.device.fetch
        return self._optimizer._make(map(fetch, self._optimizer))

    def make_loader(self, data, neighbors):
        """Return a loader of rows on the device, or of rows sent in minibatches."""
        H, device = self.engine.n_neighbors, self.engine.device
        loader = make_loader(device, data, neighbors, H, self._need)
        self.engine.holders.add(loader)
        return loader

    def take(self, batch, n, rates):
        engine = self.engine
        model = engine.send_model(changes=True)
        if isinstance(batch.X, np.ndarray):
            batch = engine.device.send_struct(batch)
        with engine.device.room_for("a minibatch"):
            for k, rate in enumerate(rates):
                part = slice(k * n, (k + 1) * n)
                self._step(model, *(array[part] for array in batch), float(rate))

    def _step(self, model, X, y, weight, active, rate):
        engine, optimizer = self.engine, self._optimizer
        device, xp, uses = engine.device, engine.device.xp, active.size
        terms = rows.bound(device, model, X, y, active)
        engine.note_jitter(terms[0].factors.jitter)
        found = rows.bound_vjp(device, model, weight, terms)
        self._sums += found.sums
        none = xp.empty((uses, 0), X.dtype)
        slopes = found.d_m, found.d_s, found.d_Z
        by_use = Sums(*(none if d is None else d.reshape(uses, -1) for d in slopes))
        order, sums = uses_of(xp, active), Sums(*map(xp.empty_like, by_use))
        factors = () if found.d_S is None else factor_slopes(xp, model, active, found)
        given = model, optimizer, order
        device.launch(move_point, uses, *given, by_use, sums, rate)
        for q, d_L in enumerate(factors):
            size = uses * d_L.shape[1]
            device.launch(move_factor_entry, size, *given, d_L, q, rate)
        totals = Totals(found.d_log[None], found.d_noise[None])
        device.launch(move_parameters, 1, model, optimizer, totals, rate)

    def finish_epoch(self):
        sums = self.engine.device.fetch(self._sums)
        self._sums[:] = 0.0
        return sums

    def close(self):
        """Release the memory of the device."""
        self._optimizer = self._sums = None


def factor_slopes(xp, model, active, found):
    """Return derivatives (n H, M) by the rows of each L_q that uses have: 2 d_S L_w."""
    slopes = []
    for q, L in enumerate(model.L):
        d_L = 2.0 * (found.d_S[:, q] @ L[active])
        slopes.append(d_L.reshape(-1, L.shape[1]))
    return slopes


def require_room(device, model, n, H):
    """Return the bytes of steps of n rows, with the rows of a block of steps.

    Raises a MemoryError that names a smaller batch size if they do not fit.
    """
    free, fits = device.free_memory(), n
    columns = model.Z.shape[1] + model.m.shape[1] + 1
    row = columns * model.Z.itemsize + H * np.dtype(np.int32).itemsize
    row = rows.bytes_of_row(model, H) + STEPS_PER_BLOCK * row
    while fits > 0 and fits * row > free:
        fits //= 2
    if fits < n:
        need = row * (n if fits else 1)
        message = NO_ROOM if fits else NO_ROOM_AT_ALL
        sizes = {"n": n, "H": H, "M": len(model.Z), "fits": fits}
        raise MemoryError(message.format(need=need / 1e6, free=free / 1e6, **sizes))
    return n * row
