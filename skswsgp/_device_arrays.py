"""Arrays on the device: made, sent and fetched."""

import numpy as np

from skswsgp import _cuda
from skswsgp import _engine_cuda as kernels
from skswsgp._cuda import cuda

THREADS = 128  # of a block in which each thread has its own task
OUT_OF_MEMORY = (
    "the GPU has no room for {what} ({need:.0f} MB, {free:.0f} MB are free): expected "
    "a smaller batch_size, n_neighbors or n_inducing; use device='cpu' otherwise."
)


def allocate(make, what, size):
    """Return make(), an array of so many bytes; raise a sentence without room."""
    return _cuda.allocate(make, OUT_OF_MEMORY, what, size)


def send(struct, what):
    """Return a struct with its arrays on the device; those that are there stay."""
    return type(struct)(
        *(
            send_array(field, what) if isinstance(field, np.ndarray) else field
            for field in struct
        )
    )


def send_array(array, what, order="C"):
    """Return a copy of an array on the device, by rows, or by columns with "F"."""
    array = np.asarray(array, order=order)
    return allocate(lambda: cuda.to_device(array), what, array.nbytes)


def empty(shape, dtype, what, order="C"):
    """Return an array on the device that holds anything, by rows or by columns."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return allocate(lambda: cuda.device_array(shape, dtype, order=order), what, size)


def repeat(array, n, what):
    """Return n copies of an array (1, ...) on the device, made there."""
    size = array.size
    there = empty((n, *array.shape[1:]), array.dtype, what)
    if size:
        one = send_array(array.ravel(), what)
        blocks = min(1024, -(-n * size // THREADS))
        kernels.repeat_row[blocks, THREADS](one, there.reshape(n, size))
    return there


def fetch(struct):
    """Return a struct with copies of its arrays on the host."""
    if struct is None:
        return None
    return type(struct)(
        *(
            field.copy_to_host() if hasattr(field, "copy_to_host") else field
            for field in struct
        )
    )


def parts(n, size):
    """Yield slices of at most `size` of n rows."""
    for first in range(0, n, size):
        yield slice(first, min(first + size, n))
