"""The one door to numba-cuda: whether a GPU can be used, and its free memory."""

import functools
import importlib.util

EXTRA = "install skswsgp[cuda12] or skswsgp[cuda13], whichever the driver supports"

if importlib.util.find_spec("numba_cuda") is None:
    cuda = None
else:
    from numba import cuda
    from numba.cuda.cudadrv.error import CudaSupportError

    # Small data means launches of few blocks, and numba-cuda would warn of each one.
    cuda.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0

WARP = 32  # threads that run in lockstep
# Fractions of the free memory that each use may take when it allocates
MEMORY_FRACTIONS = {
    "training rows": 0.5,
    "evaluated rows": 0.25,
    "work arrays": 0.25,
    "sparse matrices": 0.25,
    "neighbor search": 0.125,
}
IDLE_FRACTION = 0.8  # of a device's memory that is free when nobody else uses it
# Shared memory in bytes: of the partial sums of `team_sum`, one float64 a warp, and
# the rest of the 48 KiB that every GPU grants a block.
PARTIAL_SUMS_BYTES = 8 * WARP
SHARED_BYTES = 48 * 1024 - PARTIAL_SUMS_BYTES


def missing():
    """Return what is missing to use a GPU, and what to do about it, or None."""
    if cuda is None:
        return f"the package numba-cuda is not installed: {EXTRA}"
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
        return f"there is no compiler for the GPU ({problem}): {EXTRA}"
    return None


@functools.cache
def compiler_problem():
    """Return why not even an empty kernel compiles, or None."""
    try:
        cuda.compile_ptx_for_current_device(_nothing, (cuda.types.int64,))
    except Exception as error:  # its class differs between versions of numba-cuda
        return last_line(error)
    return None


def _nothing(value):
    pass


def last_line(error):
    """Return the last line of an error message that is not empty."""
    lines = [line.strip(" :.") for line in str(error).splitlines()]
    return next((line for line in reversed(lines) if line), type(error).__name__)


def require():
    """Raise a ValueError of one sentence if there is no GPU to use."""
    reason = missing()
    if reason:
        raise ValueError(
            f"device='cuda': {reason}; use device='cpu' or 'auto' without a GPU."
        )


def free_memory():
    """Return the free memory of the device in bytes; the simulator reports 1 TiB."""
    return min(cuda.current_context().get_memory_info().free, 2.0**40)


def budget(use):
    """Return how many bytes of the device a use of MEMORY_FRACTIONS may take."""
    return int(MEMORY_FRACTIONS[use] * free_memory())


def is_busy():
    """Return whether other processes use the memory of the device."""
    memory = cuda.current_context().get_memory_info()
    return memory.free < IDLE_FRACTION * memory.total


def allocate(make, message, what, size):
    """Return make(); raise MemoryError with the message if the device has no room."""
    try:
        return make()
    except Exception as error:  # its class differs between versions of numba-cuda
        if "OUT_OF_MEMORY" not in str(error):
            raise
    need, free = size / 1e6, free_memory() / 1e6
    raise MemoryError(message.format(what=what, need=need, free=free))


def collect():
    """Return memory that is no longer referenced to the device."""
    clear = getattr(cuda.current_context(), "deallocations", None)
    if clear is not None:  # the simulator has none
        clear.clear()
