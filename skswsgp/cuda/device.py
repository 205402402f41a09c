"""The GPU as the engine sees it: whether there is one, its arrays, memory, launches.

The engine is written against the members of `Gpu`, an array namespace and a few
functions. Tests give it one of NumPy, so the same lines run on any machine. Linear
algebra of many small matrices at once belongs to cuSOLVER and cuBLAS, through CuPy.
What is left are bodies, see `compiler`: functions of one index that numba-cuda
compiles. No sum depends on the order in which threads arrive.
"""

import functools
import importlib.util
import re
from contextlib import contextmanager

import numpy as np

from skswsgp.cuda.compiler import cuda, kernel_of

INSTALL = "install skswsgp[cuda12] or skswsgp[cuda13], whichever the driver supports"
THREADS = 128  # threads of a block, of which there are at most MAX_BLOCKS in a launch
MAX_BLOCKS = 65_535
IDLE_FRACTION = 0.8  # least fraction of free memory of a GPU that nobody else uses
# Fractions of the free memory that each use may take when it allocates
MEMORY_FRACTIONS = {
    "training rows": 0.5,
    "rows": 0.25,
    "sparse matrices": 0.25,
    "neighbor search": 0.125,
}
NO_MEMORY = re.compile("ALLOC_FAILED|OUT_OF_MEMORY")  # in errors of libraries of CUDA
OUT_OF_MEMORY = (
    "the GPU has no room for {what} ({free:.0f} MB are free; {error}): expected a "
    "smaller batch_size, n_neighbors or n_inducing; use device='cpu' otherwise."
)


def missing():
    """Return why no GPU can be used, with what to do about it, or None."""
    if cuda is None:
        return f"the package numba-cuda is not installed: {INSTALL}"
    if importlib.util.find_spec("cupy") is None:
        return f"the package cupy is not installed: {INSTALL}"
    try:
        cuda.current_context()
        use_libraries()
    except cuda.cudadrv.error.CudaSupportError as error:
        return f"no NVIDIA GPU with a driver was found ({last_line(error)})"
    except Exception as error:  # its class differs between versions of both packages
        return f"the GPU cannot be used ({last_line(error)})"
    if getattr(cuda.config, "CUDA_PER_THREAD_DEFAULT_STREAM", 0):
        return (
            "NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM is set, under which copies would not "
            "wait for kernels: unset it"
        )
    if problem := compiler_problem():
        return f"there is no compiler for the GPU ({problem}): {INSTALL}"
    return None


def use_libraries():
    """Raise an error if CuPy or its libraries cannot be used."""
    import cupy
    from cupy.cuda import cublas, cusolver  # noqa: F401  CuPy looks for them now

    cupy.cuda.runtime.getDeviceCount()


@functools.cache
def compiler_problem():
    """Return why an empty kernel does not compile, or None."""
    try:
        cuda.compile_ptx_for_current_device(lambda value: None, (cuda.types.int64,))
    except Exception as error:  # its class differs between versions of numba-cuda
        return last_line(error)
    return None


def last_line(error):
    """Return the last line of an error message that is not empty."""
    lines = [line.strip(" :.") for line in str(error).splitlines()]
    return next((line for line in reversed(lines) if line), type(error).__name__)


def require():
    """Raise ValueError, with the reason, if no GPU can be used."""
    if reason := missing():
        raise ValueError(
            f"device='cuda': {reason}; use device='cpu' or 'auto' without a GPU."
        )


def is_busy():
    """Return whether other processes use the memory of the GPU."""
    memory = cuda.current_context().get_memory_info()
    return memory.free < IDLE_FRACTION * memory.total


class Gpu:
    """An NVIDIA GPU: its arrays, its memory, and what it does with them.

    Attributes
    ----------
    xp : module
        The namespace of arrays, CuPy.
    """

    def __init__(self):
        import cupy

        self.xp = cupy

    def send(self, array):
        """Return a copy of an array of the host on the device."""
        return self.xp.array(array)

    def fetch(self, array):
        """Return a copy of an array of the device on the host."""
        return self.xp.asnumpy(array)

    def launch(self, body, n, *arguments):
        """Call body(i, *arguments) for each index i < n, in any order."""
        blocks = min(-(-n // THREADS), MAX_BLOCKS)
        stream = self.xp.cuda.get_current_stream().ptr  # 0 is the default of both
        stream = stream and cuda.external_stream(stream)
        if blocks:
            kernel_of(body)[blocks, THREADS, stream](n, self._views(arguments))

    def cholesky(self, A):
        """Return lower factors of A (n, H, H), and whether each has none, (n,).

        What a factor that does not exist holds is undefined.
        """
        from cupy.cuda import cublas, cusolver, device

        (n, H, _), L = A.shape, self.xp.array(A, order="C")
        if not A.size:
            return L, self.xp.zeros(n, bool)
        start, step = L.data.ptr, L.strides[0]
        addresses = self.xp.arange(start, start + n * step, step, dtype=self.xp.uintp)
        single = L.dtype.itemsize == 4
        factorise = cusolver.spotrfBatched if single else cusolver.dpotrfBatched
        info = self.xp.empty(n, "i4")
        # The upper triangle of a matrix stored by columns is the lower one by rows
        upper, given = cublas.CUBLAS_FILL_MODE_UPPER, (addresses.data.ptr, H)
        handle = device.get_cusolver_handle()
        factorise(handle, upper, H, *given, info.data.ptr, n)
        return self.xp.tril(L), info != 0

    def solve_triangular(self, L, b):
        """Return L^-1 b for lower triangular L (n, H, H) and b (n, H, k)."""
        from cupyx.scipy.linalg import solve_triangular

        # CuPy takes a batch of none for a single matrix
        return solve_triangular(L, b, lower=True, trans="N") if L.size else L.copy()

    def free_memory(self):
        """Return how many bytes are free."""
        pool = self.xp.get_default_memory_pool()  # CuPy keeps some for new arrays
        return self.xp.cuda.Device().mem_info[0] + pool.free_bytes()

    def release(self):
        """Give back the memory of arrays that are no longer referenced."""
        self.xp.get_default_memory_pool().free_all_blocks()
        self.xp.get_default_pinned_memory_pool().free_all_blocks()

    def _views(self, arguments):
        """Return arguments whose arrays are those that numba-cuda takes."""
        if isinstance(arguments, tuple):
            views = map(self._views, arguments)
            named = hasattr(arguments, "_make")
            return arguments._make(views) if named else tuple(views)
        if isinstance(arguments, self.xp.ndarray):
            return cuda.as_cuda_array(arguments, sync=False)
        return arguments

    def send_struct(self, struct):
        """Return a struct whose arrays are copies on the device."""
        return struct._make(
            self.send(field) if isinstance(field, np.ndarray) else field
            for field in struct
        )

    def budget(self, use, need=0):
        """Return how many bytes a use of MEMORY_FRACTIONS may take, beside a need."""
        return int(MEMORY_FRACTIONS[use] * max(self.free_memory() - need, 0))

    @contextmanager
    def room_for(self, what):
        """Let an allocation that fails within say that there is no room for `what`."""
        try:
            yield
        except Exception as error:  # those of libraries are no MemoryError
            if not (isinstance(error, MemoryError) or NO_MEMORY.search(str(error))):
                raise
            free, reason = self.free_memory() / 1e6, last_line(error)
            message = OUT_OF_MEMORY.format(what=what, free=free, error=reason)
            raise MemoryError(message) from error


@functools.cache
def get_device():
    """Return the GPU of this process."""
    return Gpu()
