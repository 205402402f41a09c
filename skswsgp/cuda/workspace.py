"""Work arrays and gradients on the device: their sizes and their allocation."""

import numpy as np

from skswsgp._point.adam_step import STEPS_PER_BLOCK
from skswsgp._point.state import Gradients, allocate_workspace, gradient_arrays
from skswsgp.cuda import kernels, runtime
from skswsgp.cuda.arrays import repeat, send_array

MAX_SLOTS = 2048  # most blocks of a launch, each of which has work arrays
NO_ROOM = (
    "minibatches of {n} rows with {H} neighbours: the GPU has no room for them "
    "({need:.3g} MB, {free:.3g} MB are free); expected batch_size={fits} or less, or "
    "device='cpu'."
)
NO_ROOM_AT_ALL = (
    "n_inducing={M} and n_neighbors={H}: the GPU has no room for a minibatch of one "
    "row ({need:.3g} MB, {free:.3g} MB are free); expected fewer, or device='cpu'."
)


def team_size(H):
    """Return how many threads work on a row: 32 times a power of two."""
    return 32 if H <= 32 else 128 if H <= 64 else 256


class WorkspacePool:
    """Work arrays of the slots: one for each row that a launch works on at once."""

    def __init__(self, model, n_neighbors):
        self.model, self.n_neighbors = model, n_neighbors  # the model gives sizes only
        self.work = None  # `Workspace` on the device

    def __len__(self):
        """Return the number of slots."""
        return 0 if self.work is None else len(self.work.K)

    def make_room(self, n):
        """Allocate up to n slots, at least one; return whether they are new."""
        size = bytes_of_slot(self.model, self.n_neighbors)
        slots = max(1, min(n, MAX_SLOTS, runtime.budget("work arrays") // size))
        if len(self) >= slots:
            return False
        self.work = None
        single = allocate_workspace(self.model, self.n_neighbors, 1)
        self.work = single._make(repeat(a, slots, "work arrays") for a in single)
        return True

    def launch(self, n):
        """Return the blocks, and the threads of each, of a launch for n rows."""
        return min(len(self), n), team_size(self.n_neighbors)


def require_room(model, n, H):
    """Raise a MemoryError that names a smaller batch size if n rows do not fit."""
    free, fits = runtime.free_memory(), n
    while fits > 0 and bytes_of_steps(model, fits, H) > free:
        fits //= 2
    if fits < n:
        need = bytes_of_steps(model, n if fits else 1, H)
        message = NO_ROOM if fits else NO_ROOM_AT_ALL
        sizes = {"n": n, "H": H, "M": len(model.Z), "fits": fits}
        raise MemoryError(message.format(need=need / 1e6, free=free / 1e6, **sizes))


def bytes_of_steps(model, n, H):
    """Return the bytes of derivatives, one slot, and two blocks of n streamed rows."""
    D, Q = model.Z.shape[1], model.m.shape[1]
    row = (D + Q + 1) * model.Z.itemsize + H * np.dtype(np.int32).itemsize
    total = bytes_of_slot(model, H) + 2 * STEPS_PER_BLOCK * n * row
    for arrays in step_arrays(model, n, H):
        for shape, dtype in arrays.values():
            total += int(np.prod(shape)) * np.dtype(dtype).itemsize
    return total


def step_arrays(model, n, H):
    """Return shapes and dtypes of derivatives by row, and of `DeviceTouchedRows`."""
    return gradient_arrays(model, n, H, H, n), touched_arrays(model, n, H)


def bytes_of_slot(model, H):
    """Return the memory of the work arrays of one slot."""
    return sum(array.nbytes for array in allocate_workspace(model, H, 1))


def touched_arrays(model, n, H):
    """Return shapes and dtypes of `DeviceTouchedRows` for minibatches of n rows."""
    (M, Q), D, dtype = model.m.shape, model.Z.shape[1], model.Z.dtype
    T = min(M, n * H)  # the largest number of touched points
    words = -(-n // kernels.BITS_PER_WORD)
    return {
        "slot": ((M,), np.int64),  # slot of a point, -1 between steps
        "touched": ((T,), np.int64),  # inducing point of a slot
        "count": ((1,), np.int64),  # slots that a step uses, zero before it
        "uses": ((T, words), np.uint64),  # bit set of the rows that use a point
        "d_m": ((T, Q), dtype),
        "d_s": ((0 if model.full else T, Q), dtype),
        "d_Z": ((T if model.train_inducing else 0, D), dtype),
        "d_L": ((Q, T if model.full else 0, M), dtype),
    }


def allocate_steps(model, n, H):
    """Allocate the derivatives of n rows, without counts, and `DeviceTouchedRows`."""
    derivatives, touched = step_arrays(model, n, H)
    grads = send_zeros(derivatives, "derivatives of rows")
    rows = send_zeros(touched, "derivatives by touched rows")
    rows["slot"].copy_to_device(np.full(len(model.m), -1))
    return Gradients(**grads, jitter_counts=None), kernels.DeviceTouchedRows(**rows)


def send_zeros(shapes, what):
    """Return arrays of zeros on the device, by name."""
    return {
        name: send_array(np.zeros(shape, dtype), what)
        for name, (shape, dtype) in shapes.items()
    }
