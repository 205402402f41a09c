"""Arrays on the device: allocated, sent and fetched."""

import numpy as np

from skswsgp._compiled import cuda_runtime
from skswsgp._compiled.cuda_compiler import compile_kernels, kernel
from skswsgp._compiled.cuda_runtime import cuda

THREADS = 128  # of a block in which each thread has its own task
OUT_OF_MEMORY = (
    "the GPU has no room for {what} ({need:.0f} MB, {free:.0f} MB are free): expected "
    "a smaller batch_size, n_neighbors or n_inducing; use device='cpu' otherwise."
)


def allocate(make, what, size):
    """Return make(), an array of `size` bytes; raise one sentence if it has no room."""
    return cuda_runtime.allocate(make, OUT_OF_MEMORY, what, size)


def send(struct, what):
    """Return a struct with its arrays on the device; those already there stay."""
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
    """Return an uninitialised array on the device, by rows or by columns."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return allocate(lambda: cuda.device_array(shape, dtype, order=order), what, size)


def repeat(array, n, what):
    """Return n copies of an array (1, ...) on the device, made there."""
    size = array.size
    there = empty((n, *array.shape[1:]), array.dtype, what)
    if size:
        one = send_array(array.ravel(), what)
        blocks = min(1024, -(-n * size // THREADS))
        repeat_row[blocks, THREADS](one, there.reshape(n, size))
    return there


@kernel
def repeat_row(one, out):
    """Set out[i] = one for each row i."""
    n = one.shape[0]
    for i in range(cuda.grid(1), out.shape[0] * n, cuda.gridsize(1)):
        out[i // n, i % n] = one[i % n]


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


def ready(*arguments):
    """Return the arguments of many launches with arrays prepared for launching.

    numba-cuda takes 4 us a launch to prepare an array, so 0.7 ms for the 154 arrays of
    a step. The simulator takes arrays as they are.
    """
    if cuda.config.ENABLE_CUDASIM:
        return arguments
    return tuple(
        each._make(ready(*each))
        if isinstance(each, tuple)
        else Ready(each)
        if hasattr(each, "copy_to_host")
        else each
        for each in arguments
    )


if cuda is not None and not cuda.config.ENABLE_CUDASIM:

    class Ready(cuda.InOut):
        """An array on the device, with what its first launch prepared."""

        there = None

        def to_device(self, retr, stream=0):
            """Return what a launch takes for the array."""
            if self.there is None:
                self.there = super().to_device(retr, stream)
            return self.there


compile_kernels(__name__)
