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

from skswsgp.cuda.compiler import cuda, prepare

INSTALL = "install skswsgp[cuda12] or skswsgp[cuda13], whichever the driver supports"
IDLE_FRACTION = 0.8  # least fraction of free memory of a GPU that nobody else uses
# Fractions of the free memory that each use may take when it allocates
MEMORY_FRACTIONS = {"data": 0.5, "rows": 0.25, "matrices": 0.25, "search": 0.125}
NO_MEMORY = re.compile("ALLOC_FAILED|OUT_OF_MEMORY")  # in errors of libraries of CUDA
OUT_OF_MEMORY = (
    "the GPU has no room for {what} ({free:.0f} MB are free; {error}): expected a "
    "smaller batch_size, n_neighbors or n_inducing; use device='cpu' otherwise."
)
FAILED = "the GPU has failed ({error}): use device='cpu' until it works again."
LIBRARIES = "cupy", "cuda.", "numba.cuda"  # starts of the modules of their errors


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
        return "copies do not wait: unset NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM"
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

    def prepare(self, body, n, *arguments):
        """Return a launch, a function that calls body(i, *arguments) for each i < n.

        The order of the calls is any.
        """
        stream = self.xp.cuda.get_current_stream().ptr  # 0 is the default of both
        return prepare(body, n, stream, arguments) if n else lambda: None

    def cholesky(self, A, info):
        """Replace the lower triangles of A (n, H, H) by those of their factors.

        The other halves are undefined, and info (n,) is 0 where there is a factor.
        """
        from cupy.cuda import cublas, cusolver, device

        (n, H, _), letter = A.shape, A.dtype.char.replace("f", "s")
        factorise = getattr(cusolver, letter + "potrfBatched")
        # The upper triangle of a matrix stored by columns is the lower one by rows
        given = cublas.CUBLAS_FILL_MODE_UPPER, H, self._addresses(A), H
        factorise(device.get_cusolver_handle(), *given, info.data.ptr, n)

    def invert(self, L, lower):
        """Replace unit matrices `lower` (n, H, H) by L^-1, reading lower triangles."""
        from cupy.cuda import cublas, device

        (n, H, _), letter = L.shape, L.dtype.char.replace("f", "s")
        one, solve = np.ones(1, L.dtype), getattr(cublas, letter + "trsmBatched")
        # By columns L is upper triangular, and the result its inverse
        how = cublas.CUBLAS_SIDE_LEFT, cublas.CUBLAS_FILL_MODE_UPPER, cublas.CUBLAS_OP_N
        how = *how, cublas.CUBLAS_DIAG_NON_UNIT, H, H, one.ctypes.data
        ends = self._addresses(L), H, self._addresses(lower), H, n
        if n:
            solve(device.get_cublas_handle(), *how, *ends)

    def _addresses(self, A):
        """Return the address of the addresses of matrices A (n, H, H)."""
        return self._addresses_of(A.data.ptr, len(A), A.strides[0]).data.ptr

    @functools.lru_cache(maxsize=32)  # noqa: B019, there is one GPU
    def _addresses_of(self, start, n, step):
        """Return n addresses from `start` on."""
        return self.xp.arange(start, start + n * step, step, dtype=self.xp.uintp)

    def free_memory(self):
        """Return how many bytes are free."""
        pool = self.xp.get_default_memory_pool()  # CuPy keeps some for new arrays
        return self.xp.cuda.Device().mem_info[0] + pool.free_bytes()

    def release(self):
        """Give back the memory of arrays that are no longer referenced."""
        self._addresses_of.cache_clear()
        self.xp.get_default_memory_pool().free_all_blocks()
        self.xp.get_default_pinned_memory_pool().free_all_blocks()

    def send_struct(self, struct):
        """Return a struct whose arrays are copies on the device."""
        fields = (self.send(a) if isinstance(a, np.ndarray) else a for a in struct)
        return struct._make(fields)

    def budget(self, use, need=0):
        """Return how many bytes a use of MEMORY_FRACTIONS may take, beside a need."""
        return int(MEMORY_FRACTIONS[use] * max(self.free_memory() - need, 0))

    @contextmanager
    def room_for(self, what):
        """Let an allocation that fails within say that there is no room for `what`.

        Other errors of the libraries of a GPU become a RuntimeError.
        """
        try:
            yield
        except Exception as error:  # those of libraries are no MemoryError
            if "the GPU" in str(error):  # a block within this one has said it
                raise
            full = isinstance(error, MemoryError) or NO_MEMORY.search(str(error))
            if not (full or type(error).__module__.startswith(LIBRARIES)):
                raise
            given = {"what": what, "error": last_line(error)}
            if not full:
                raise RuntimeError(FAILED.format(**given)) from error
            message = OUT_OF_MEMORY.format(free=self.free_memory() / 1e6, **given)
            raise MemoryError(message) from error


@functools.cache
def get_device():
    """Return the GPU of this process."""
    return Gpu()
