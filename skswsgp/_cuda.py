"""The one door to numba-cuda: whether a GPU can be used, and what lanes are there.

A block of threads works on one datum; its first axis are the lanes of `_lanes`, of
which there are 1, or 32 times a power of two. Under the simulator (NUMBA_ENABLE_CUDASIM
and NUMBA_DISABLE_JIT) all functions run as they stand in Python.
"""

import functools
import importlib.util
import threading

from llvmlite import ir
from numba.core.dispatcher import Dispatcher

from skswsgp import _lanes, _tiles

EXTRA = "install skswsgp[cuda12] or skswsgp[cuda13], whichever the driver serves"

if importlib.util.find_spec("numba_cuda") is None:
    cuda = None
else:
    from numba import cuda
    from numba.cuda.cudadrv.error import CudaSupportError

WARP = 32
ALL_LANES = 0xFFFFFFFF  # of a warp


def missing():
    """Return what is missing to use a GPU, and what to do, or None."""
    if cuda is None:
        return f"the package numba-cuda is not installed: {EXTRA}"
    try:
        cuda.current_context()
    except CudaSupportError as error:
        return f"no NVIDIA GPU with a driver was found ({first_line(error)})"
    return None


def first_line(error):
    """Return the first line of a message that says something."""
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


def kernel(function):
    """Compile a kernel, a function that all threads of a launch run."""
    return function if cuda is None else cuda.jit(function)


def for_kernels(*modules):
    """Let kernels call the compiled functions of modules.

    numba-cuda compiles them anew, with their options, but takes any fastmath flag for
    all of them, those that hide NaN included.
    """
    for module in modules:
        for function in vars(module).values():
            if isinstance(function, Dispatcher):
                options = function.targetoptions | {"fastmath": False}
                function.targetoptions = options


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


def on_gpu(stub):
    """Compile a function in the place of a stub for GPUs; inline as that of the CPU."""
    return overload(stub, inline="always")


def as_it_stands(stub):
    """Compile a stub itself for GPUs."""

    @functools.wraps(stub)
    def typed(*args):
        return stub

    on_gpu(stub)(typed)


def compile_lanes():
    """Tell numba-cuda what the functions of `_lanes` and `_tiles` are."""

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

    @on_gpu(_lanes.position)
    def position():
        return lambda: (cuda.threadIdx.x, cuda.blockDim.x)

    @on_gpu(_lanes.sync)
    def sync():
        def wait():
            if cuda.blockDim.x > 1:
                cuda.syncthreads()

        return wait

    @on_gpu(_lanes.total)
    def total(value):
        def total_of(value):
            value = float(value)
            lanes = cuda.blockDim.x
            if lanes > 1:
                for step in (16, 8, 4, 2, 1):
                    value += cuda.shfl_xor_sync(ALL_LANES, value, step)
            if lanes > WARP:  # sums of warps meet in shared memory
                cuda.syncthreads()
                if cuda.threadIdx.x % WARP == 0:
                    set_part(cuda.threadIdx.x // WARP, value)
                cuda.syncthreads()
                value = get_part(0)
                for warp in range(1, lanes // WARP):
                    value += get_part(warp)
            return value

        return total_of

    for stub in (_lanes.span, _lanes.solo, _lanes.columns, _lanes.once):
        as_it_stands(stub)
    for stub in (_lanes.tiles, _lanes.outer_tiles, _lanes.inner_tiles):
        as_it_stands(stub)
    for stub in (_tiles.set_products, _tiles.set_negative_products):
        as_it_stands(stub)
    for stub in (_tiles.subtract_products, _tiles.factorise_tile):
        as_it_stands(stub)


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
        from numba.cuda.extending import intrinsic, overload

        compile_lanes()
