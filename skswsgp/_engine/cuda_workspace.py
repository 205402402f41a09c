"""What launches need on the device beside the model: how much, and the arrays."""

import numpy as np

from skswsgp._compiled import cuda_runtime
from skswsgp._compiled.cuda_arrays import repeat, send_array
from skswsgp._compiled.linalg import padded
from skswsgp._engine import cuda_kernels as kernels
from skswsgp._engine.cuda_triangle import SharedWorkspace, start_of
from skswsgp._point.adam_step import STEPS_PER_BLOCK
from skswsgp._point.state import Gradients, allocate_workspace

MAX_SLOTS = 2048  # blocks of a launch, at most; each has work arrays
WORK_MEMORY = 0.25  # of the free memory, which work arrays may take
NO_ROOM = (
    "minibatches of {n} rows with {H} neighbours: the GPU has no room for them "
    "({need:.3g} MB, {free:.3g} MB are free); expected batch_size={fits} or less, or "
    "device='cpu'."
)
NO_ROOM_AT_ALL = (
    "n_inducing={M} and n_neighbors={H}: the GPU has no room for a minibatch of one "
    "row ({need:.3g} MB, {free:.3g} MB are free); expected fewer, or device='cpu'."
)


def lanes_for(H):
    """Return how many threads work on a point: 32 times a power of two."""
    return 32 if H <= 32 else 128 if H <= 64 else 256


def block_for(model, H):
    """Return the threads of a block, lanes and points, and its shared memory."""
    threads = lanes_for(H), 1
    return threads, bytes_in_shared(H, model.Z.itemsize, threads[1])


class WorkspacePool:
    """Work arrays for the points that the blocks of a launch work on at once.

    Parameters
    ----------
    model : Model
        It tells sizes only.
    n_neighbors : int
        H.

    Attributes
    ----------
    work : Work or SharedWork or None
        The latter where R has room in shared memory.
    """

    def __init__(self, model, n_neighbors):
        self.model, self.n_neighbors = model, n_neighbors
        self.work = None

    def __len__(self):
        return 0 if self.work is None else len(self.work.K)

    def make_room(self, n):
        """Have work arrays for n points, or what memory allows; whether they are new.

        At least for one.
        """
        size = bytes_of_slot(self.model, self.n_neighbors)
        most = int(WORK_MEMORY * cuda_runtime.free_memory() / size)
        places = max(1, min(n, MAX_SLOTS, most))
        if len(self) >= places:
            return False
        self.work = None
        single = allocate_slot(self.model, self.n_neighbors)
        self.work = type(single)(*(repeat(a, places, "work arrays") for a in single))
        return True

    def launch(self, n):
        """Return the shape, stream and shared memory of a launch for n points."""
        threads, shared = block_for(self.model, self.n_neighbors)
        return min(len(self), n), threads, 0, shared


def require_room(model, n, H):
    """Raise a sentence that says which batch size fits if n rows do not.

    What else a fit has on the device, the model and Adam's moments, is there already.
    """
    free, fits = cuda_runtime.free_memory(), n
    while fits > 0 and bytes_of_steps(model, fits, H) > free:
        fits //= 2
    if fits < n:
        need = bytes_of_steps(model, n if fits else 1, H)
        message = NO_ROOM if fits else NO_ROOM_AT_ALL
        sizes = {"n": n, "H": H, "M": len(model.Z), "fits": fits}
        raise MemoryError(message.format(need=need / 1e6, free=free / 1e6, **sizes))


def bytes_of_steps(model, n, H):
    """Return the least memory for minibatches of n rows.

    Derivatives, work arrays for one point, and two blocks of rows on their way.
    """
    D, Q = model.Z.shape[1], model.m.shape[1]
    row = (D + Q + 1) * model.Z.itemsize + H * np.dtype(np.int32).itemsize
    total = bytes_of_slot(model, H) + 2 * STEPS_PER_BLOCK * n * row
    for kinds in (kinds_of_gradients(model, n, H), kinds_of_rows(model, n, H)):
        for shape, dtype in kinds.values():
            total += int(np.prod(shape)) * np.dtype(dtype).itemsize
    return total


def allocate_slot(model, H):
    """Return work arrays for one point, without R where shared memory has room."""
    work, (_, shared) = allocate_workspace(model, H, 1), block_for(model, H)
    return SharedWorkspace(*work._replace(chol=work.chol[:, :, :0])) if shared else work


def bytes_of_slot(model, H):
    """Return the memory of work arrays for one point."""
    return sum(array.nbytes for array in allocate_slot(model, H))


def bytes_in_shared(H, itemsize, places):
    """Return the shared memory for the factors of a block's places, 0 without room."""
    size = places * itemsize * start_of(padded(H))
    return size if size <= cuda_runtime.SHARED_BYTES else 0


def kinds_of_gradients(model, n, H):
    """Return shapes and dtypes of `Gradients`: a point is a block and a chunk."""
    Q, D, dtype = model.m.shape[1], model.Z.shape[1], model.Z.dtype
    kinds = {
        "d_m": (n, Q, H),
        "d_s": (1, Q, 1) if model.full else (n, Q, H),
        "d_S": (n, Q, H, H) if model.full else (1, Q, 1, 1),
        "d_Z": (n if model.train_inducing else 1, D, H),
    }
    totals = {
        "d_log": (n, len(model.params)),
        "d_noise": (n, len(model.noise)),
        "sums": (n, 2),
    }
    kinds = {name: (shape, dtype) for name, shape in kinds.items()}
    return kinds | {name: (shape, np.float64) for name, shape in totals.items()}


def kinds_of_rows(model, n, H):
    """Return shapes and dtypes of `DeviceRows`: slots for the rows n points touch."""
    (M, Q), D, dtype = model.m.shape, model.Z.shape[1], model.Z.dtype
    T = min(M, n * H)
    return {
        "slot": ((M,), np.int64),
        "touched": ((T,), np.int64),
        "count": ((1,), np.int64),
        "uses": ((T, -(-n // kernels.BITS_PER_WORD)), np.uint64),
        "d_m": ((T, Q), dtype),
        "d_s": ((0 if model.full else T, Q), dtype),
        "d_Z": ((T if model.train_inducing else 0, D), dtype),
        "d_L": ((T if model.full else 0, Q, M), dtype),
    }


def allocate_device_gradients(model, n, H, jitter_counts):
    """Allocate derivatives for n points."""
    kinds = kinds_of_gradients(model, n, H)
    return Gradients(
        **make_zeros(kinds, "derivatives of a minibatch"), jitter_counts=jitter_counts
    )


def allocate_device_rows(model, n, H):
    """Allocate slots for the rows that n points touch, all of them free."""
    rows = make_zeros(kinds_of_rows(model, n, H), "derivatives by touched rows")
    rows["slot"].copy_to_device(np.full(len(model.m), -1))
    return kernels.DeviceTouchedRows(**rows)


def make_zeros(kinds, what):
    """Return arrays of zeros on the device, by name."""
    return {
        name: send_array(np.zeros(shape, dtype), what)
        for name, (shape, dtype) in kinds.items()
    }
