"""The engine of a GPU on arrays of NumPy: the same lines, on any machine."""

import functools
from types import FunctionType

import numpy as np
from scipy.linalg import lapack

from skswsgp._compiled.jit import njit
from skswsgp.cuda.device import Gpu


def all_indices(n, arguments):
    """Call the body for the indices below n; the loops have this code."""
    for i in range(n):
        body(i, *arguments)  # noqa: F821, a name that `loop_of` gives to the loop


@functools.cache
def loop_of(body):
    """Return a compiled loop over the indices of a body."""
    inner = njit(body)
    names = {"body": inner, "__name__": body.__module__}
    loop = FunctionType(all_indices.__code__, names, body.__name__)
    loop.__module__ = body.__module__
    loop.__qualname__ = f"{body.__qualname__}_in_a_loop"
    return njit(loop)


class NumpyDevice(Gpu):
    """A device whose arrays are those of NumPy, in the memory of the host."""

    xp = np

    def __init__(self, memory=2**34):
        self.memory = memory

    def send(self, array):
        return np.array(array)

    def fetch(self, array):
        return np.array(array)

    def prepare(self, body, n, *arguments):
        if not n:
            return lambda: None
        call = functools.partial(loop_of(body), n, arguments)
        call.name, call.arrays = body.__name__, arguments
        return call

    def cholesky(self, A, info):
        (factorise,) = lapack.get_lapack_funcs(["potrf"], [A])
        for i, matrix in enumerate(A):
            A[i], info[i] = factorise(matrix, lower=True)

    def invert(self, L, lower):
        (solve,) = lapack.get_lapack_funcs(["trtrs"], [L])
        for factor, matrix in zip(L, lower, strict=True):
            matrix[...] = solve(factor, matrix, lower=True)[0]

    def free_memory(self):
        return self.memory

    def release(self):
        """Keep the memory."""
