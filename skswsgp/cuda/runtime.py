"""The import of numba-cuda, whether a GPU can be used, and its free memory."""

import functools
import importlib.util

INSTALL = "install skswsgp[cuda12] or skswsgp[cuda13], whichever the driver supports"

if importlib.util.find_spec("numba_cuda") is None:
    cuda = None
else:
    from numba import cuda
    from numba.cuda.cudadrv.error import CudaSupportError

    # Small data need few blocks, and numba-cuda would warn at each such launch.
    cuda.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0

WARP = 32  # threads that run in lockstep
MAX_BLOCKS = 4096  # most blocks of a launch of warps, each with its work arrays
IDLE_FRACTION = 0.8  # least fraction of free memory of a GPU that nobody else uses
# Fractions of the free memory that each use may take when it allocates
MEMORY_FRACTIONS = {
    "training rows": 0.5,
    "evaluated rows": 0.25,
    "work arrays": 0.25,
    "sparse matrices": 0.25,
    "neighbor search": 0.125,
}
OUT_OF_MEMORY = (
    "the GPU has no room for {what} ({need:.0f} MB, {free:.0f} MB are free): expected "
    "a smaller batch_size, n_neighbors or n_inducing; use device='cpu' otherwise."
)


def missing():
    """Return why no GPU can be used, with what to do about it, or None."""
    if cuda is None:
        return f"the package numba-cuda is not installed: {INSTALL}"
    try:
        cuda.current_context()
    except CudaSupportError as error:
        return f"no NVIDIA GPU with a driver was found ({last_line(error)})"
    except Exception as error:  # its class differs between versions of numba-cuda
        return f"the GPU cannot be used ({last_line(error)})"
    if getattr(cuda.config, "CUDA_PER_THREAD_DEFAULT_STREAM", 0):
        return (
            "NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM is set, under which copies would not "
            "wait for kernels: unset it"
        )
    if not cuda.config.ENABLE_CUDASIM and (problem := compiler_problem()):
        return f"there is no compiler for the GPU ({problem}): {INSTALL}"
    return None


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


def free_memory():
    """Return the free memory of the GPU in bytes; in the simulator it is 1 TiB."""
    return min(cuda.current_context().get_memory_info().free, 2.0**40)


def budget(use):
    """Return how many bytes of the device a use of MEMORY_FRACTIONS may take."""
    return int(MEMORY_FRACTIONS[use] * free_memory())


def is_busy():
    """Return whether other processes use the memory of the GPU."""
    memory = cuda.current_context().get_memory_info()
    return memory.free < IDLE_FRACTION * memory.total


def allocate(make, what, size):
    """Return make(), `size` bytes for `what`; raise MemoryError if they do not fit."""
    try:
        return make()
    except Exception as error:  # its class differs between versions of numba-cuda
        if "OUT_OF_MEMORY" not in str(error):
            raise
    need, free = size / 1e6, free_memory() / 1e6
    raise MemoryError(OUT_OF_MEMORY.format(what=what, need=need, free=free))


def collect():
    """Free the memory of device arrays that are no longer referenced."""
    clear = getattr(cuda.current_context(), "deallocations", None)
    if clear is not None:  # the simulator has none
        clear.clear()
