"""Arrays on the GPU: allocate them, send them there, fetch them back."""

import numpy as np

from skswsgp.cuda import runtime
from skswsgp.cuda.compiler import compile_kernels, kernel
from skswsgp.cuda.runtime import cuda

THREADS = 128  # threads of a block in which each thread has a task of its own
NO_CALLS = (False, False)  # `calls` of a tile: a GPU calls nothing by its address


def send(struct, what):
    """Return a struct whose arrays are on the GPU; arrays already there are reused.

    `what` names the contents in an error message, in all functions of this module.
    """
    return struct._make(
        send_array(field, what) if isinstance(field, np.ndarray) else field
        for field in struct
    )


def send_array(array, what, order="C"):
    """Return a copy of an array on the GPU, in C or Fortran order."""
    array = np.asarray(array, order=order)
    return runtime.allocate(lambda: cuda.to_device(array), what, array.nbytes)


def empty(shape, dtype, what, order="C"):
    """Return an uninitialised array on the GPU, in C or Fortran order."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return runtime.allocate(
        lambda: cuda.device_array(shape, dtype, order=order), what, size
    )


def repeat(array, n, what):
    """Return n copies (n, ...) of an array (1, ...), made on the GPU from one."""
    copies = empty((n, *array.shape[1:]), array.dtype, what)
    if array.size:
        blocks, row = min(1024, -(-copies.size // THREADS)), array.ravel()
        repeat_row[blocks, THREADS](send_array(row, what), copies.reshape(n, row.size))
    return copies


@kernel
def repeat_row(row, out):
    """Set out[i] = row for each i."""
    n = row.shape[0]
    for i in range(cuda.grid(1), out.shape[0] * n, cuda.gridsize(1)):
        out[i // n, i % n] = row[i % n]


def fetch(struct):
    """Return a struct whose arrays are copied to the host; None stays None."""
    return struct and struct._make(
        field.copy_to_host() if hasattr(field, "copy_to_host") else field
        for field in struct
    )


def ready(*arguments):
    """Return the arguments of a launch that is repeated, with its arrays prepared.

    numba-cuda takes 4 us to prepare an array for a launch, which is 0.7 ms for the 154
    arrays of a training step. The simulator needs no preparation.
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
        """An array on the GPU, and the argument that its first launch made of it."""

        argument = None

        def to_device(self, retr, stream=0):
            """Return the argument that a launch takes for the array."""
            if self.argument is None:
                self.argument = super().to_device(retr, stream)
            return self.argument


compile_kernels(__name__)
