"""The one door to numba-cuda: whether a GPU can be used, and what lanes are there.

A block of threads works on one datum; its first axis are the lanes of `_lanes`, of
which there are 1, or 32 times a power of two. Under the simulator (NUMBA_ENABLE_CUDASIM
and NUMBA_DISABLE_JIT) all functions run as they stand in Python.
"""

import functools
import importlib.util
import threading
from types import FunctionType, ModuleType

from llvmlite import ir
from numba.core.dispatcher import Dispatcher

from skswsgp import _lanes, _tiles

EXTRA = "install skswsgp[cuda12] or skswsgp[cuda13], whichever the driver serves"

if importlib.util.find_spec("numba_cuda") is None:
    cuda = None
else:
    from numba import cuda
    from numba.cuda.cudadrv.error import CudaSupportError

    # Else it warns of each launch of few blocks, which few rows are.
    cuda.config.CUDA_LOW_OCCUPANCY_WARNINGS = 0

WARP = 32
IDLE = 0.8  # of the memory of a device is free if nobody else works there
ALL_LANES = 0xFFFFFFFF  # of a warp
PARTS = 8 * WARP  # bytes of the parts of a sum, see part_of
SHARED = 48 * 1024 - PARTS  # bytes that any GPU lets a block have beside these


def missing():
    """Return what is missing to use a GPU, and what to do, or None."""
    if cuda is None:
        return f"the package numba-cuda is not installed: {EXTRA}"
    try:
        cuda.current_context()
    except CudaSupportError as error:
        return f"no NVIDIA GPU with a driver was found ({last_line(error)})"
    except Exception as error:  # of classes that differ between versions
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
    except Exception as error:  # of classes that differ between versions
        return last_line(error)
    return None


def _nothing(value):
    pass


def last_line(error):
    """Return the last line of a message that says something."""
    lines = [line.strip(" :.") for line in str(error).splitlines()]
    return next((line for line in reversed(lines) if line), type(error).__name__)


def require():
    """Raise one sentence if there is no GPU to use."""
    reason = missing()
    if reason:
        raise ValueError(
            f"device='cuda': {reason}; use device='cpu' or 'auto' without a GPU."
        )


def free_memory():
    """Return the free memory of the device in bytes; the simulator has much."""
    return min(cuda.current_context().get_memory_info().free, 2.0**40)


def is_busy():
    """Whether others use the memory of the device."""
    memory = cuda.current_context().get_memory_info()
    return memory.free < IDLE * memory.total


def allocate(make, message, what, size):
    """Return make(); raise MemoryError with the message if there is no room for it."""
    try:
        return make()
    except Exception as error:  # of classes that differ between versions
        if "OUT_OF_MEMORY" not in str(error):
            raise
    need, free = size / 1e6, free_memory() / 1e6
    raise MemoryError(message.format(what=what, need=need, free=free))


def collect():
    """Give memory that nobody uses any more back to the device."""
    clear = getattr(cuda.current_context(), "deallocations", None)
    if clear is not None:  # the simulator has none
        clear.clear()


def ready(*arguments):
    """Return arguments of many launches, arrays on the device as launches take them.

    To make such of an array takes numba-cuda 4 us a launch, so 0.7 ms for the 154 of a
    step. The simulator takes arrays themselves.
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


# --- functions and kernels ------------------------------------------------------------


def kernel(function):
    """Mark a function that all threads of a launch run; see `for_kernels`."""
    function.is_kernel = True
    return function


def for_kernels(module, *others):
    """Compile the kernels of a module, and what they call of others, for GPUs.

    The compiled functions of the CPU have options and parts that GPUs lack, so theirs
    are made from the same code with names that stand for what a GPU has.
    """
    if cuda is None:
        return
    if cuda.config.ENABLE_CUDASIM:
        for name, value in list(vars(module).items()):
            if getattr(value, "is_kernel", False):
                setattr(module, name, cuda.jit(value))
        return
    twins = Twins()
    for each in (_lanes, _tiles, *others, module):
        twins.add(each)
    twins.connect()
    for name, value in list(vars(module).items()):
        if getattr(value, "is_kernel", False):
            setattr(module, name, twins.functions[value])


class Twins:
    """Functions for GPUs, each made from the code of one of the CPU."""

    def __init__(self):
        self.modules = {}  # by name, their names and what these stand for
        self.functions = {}  # by function of the CPU

    def add(self, module):
        """Make twins of the compiled functions and kernels of a module."""
        names = dict(vars(module))
        self.modules[module] = names
        lanes = gpu_lanes() if module is _lanes else {}
        for name, value in vars(module).items():
            stands = _lanes.STANDS.get(name)
            if name in lanes:
                self.functions[value] = lanes[name]
            elif stands is not None and stands.__module__ == module.__name__:
                self._make(value, stands, names)
            elif isinstance(value, Dispatcher) and own(value.py_func, module):
                self._make(value, value.py_func, names)
            elif getattr(value, "is_kernel", False):
                self._make(value, value, names, device=False)

    def _make(self, value, function, names, device=True):
        copy = FunctionType(function.__code__, names, function.__name__)
        copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
        self.functions[value] = cuda.jit(device=device)(copy)

    def connect(self):
        """Let all twins call each other."""
        for names in self.modules.values():
            for name, value in names.items():
                if isinstance(value, ModuleType) and value in self.modules:
                    names[name] = ModuleType(value.__name__)
                    vars(names[name]).update(self.modules[value])
                elif value.__hash__ is not None and value in self.functions:
                    names[name] = self.functions[value]


def own(function, module):
    """Whether a function was written in a module, not imported by it."""
    return function.__module__ == module.__name__


# --- lanes on a GPU -------------------------------------------------------------------


def part_of(builder, index):
    """Return the address of a number in shared memory.

    There is one array whatever the number of functions that use it, which the arrays of
    numba-cuda in functions that are not kernels do not manage.
    """
    kind = ir.ArrayType(ir.DoubleType(), WARP)
    module = builder.module
    parts = module.globals.get("skswsgp_parts")
    if parts is None:
        parts = ir.GlobalVariable(module, kind, "skswsgp_parts", addrspace=3)
        parts.linkage, parts.align = "linkonce_odr", 8
        parts.initializer = ir.Constant(kind, ir.Undefined)
    zero = ir.Constant(index.type, 0)
    return builder.gep(parts, [zero, index])


def gpu_lanes():
    """Return what takes the place of functions of `_lanes` on a GPU, by name."""

    @intrinsic
    def set_part(typingctx, index, value):
        def generate(context, builder, signature, args):
            builder.store(args[1], part_of(builder, args[0]))
            return context.get_dummy_value()

        return cuda.types.void(cuda.types.int64, cuda.types.float64), generate

    @intrinsic
    def get_part(typingctx, index):
        def generate(context, builder, signature, args):
            return builder.load(part_of(builder, args[0]))

        return cuda.types.float64(cuda.types.int64), generate

    @cuda.jit(device=True)
    def position():
        return cuda.threadIdx.x, cuda.blockDim.x

    @cuda.jit(device=True)
    def sync():
        if cuda.blockDim.x > 1:
            cuda.syncthreads()

    @cuda.jit(device=True)
    def total(value):
        value = float(value)
        lanes = cuda.blockDim.x
        if lanes > 1:
            for step in (16, 8, 4, 2, 1):
                value += cuda.shfl_xor_sync(ALL_LANES, value, step)
            cuda.syncthreads()
        if lanes > WARP:  # sums of warps meet in shared memory
            if cuda.threadIdx.x % WARP == 0:
                set_part(cuda.threadIdx.x // WARP, value)
            cuda.syncthreads()
            value = get_part(0)
            for warp in range(1, lanes // WARP):
                value += get_part(warp)
            cuda.syncthreads()
        return value

    return {"position": position, "sync": sync, "total": total}


# --- lanes in the simulator -----------------------------------------------------------


class SimulatedLanes:
    """The lanes of the thread of the simulator that asks; one lane elsewhere."""

    def position(self):
        """Return the number of this lane and that of all."""
        thread = threading.current_thread()
        if not hasattr(thread, "threadIdx"):
            return 0, 1
        return thread.threadIdx.x, thread._manager._block_dim[0]

    def total(self, value):
        """Return the sum over lanes, in their order."""
        lane, lanes = self.position()
        if lanes == 1:
            return value
        block = vars(threading.current_thread()._manager)
        parts = block.setdefault("parts", [0.0] * lanes)
        self.sync()
        parts[lane] = value
        self.sync()
        return sum(parts[1:], parts[0])

    def sync(self):
        """Wait for the other lanes."""
        if self.position()[1] > 1:
            threading.current_thread().syncthreads()


if cuda is not None:
    if cuda.config.ENABLE_CUDASIM:
        _lanes.team = SimulatedLanes()
    else:
        from numba.cuda.extending import intrinsic

        class Ready(cuda.InOut):
            """An array on the device, and what the first launch made of it."""

            there = None

            def to_device(self, retr, stream=0):
                """Return what a launch takes for it."""
                if self.there is None:
                    self.there = super().to_device(retr, stream)
                return self.there
