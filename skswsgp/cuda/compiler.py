"""Kernels and device functions for GPUs, made from the Python code of CPU functions.

The threads along the first axis of a block are a team, see `team`: one thread, or 32
times a power of two. Under the simulator (NUMBA_ENABLE_CUDASIM and NUMBA_DISABLE_JIT)
all functions run uncompiled.
"""

import functools
import sys
import threading
from contextlib import suppress
from types import FunctionType, ModuleType

from llvmlite import ir
from numba.core.dispatcher import Dispatcher

from skswsgp._compiled import team, tiles
from skswsgp._compiled.jit import CACHE, LenientCache
from skswsgp.cuda.runtime import WARP, cuda

PACKAGE = __name__.partition(".")[0]
ALL_THREADS = 0xFFFFFFFF  # mask that selects all threads of a warp


def kernel(function):
    """Mark a function as a kernel, which `compile_kernels` compiles."""
    function.is_kernel = True
    return function


def compile_kernels(name):
    """Compile the kernels of a module, given by its name, and the functions they call.

    Compiled functions of the CPU have options and LLVM code that GPUs lack, so device
    functions are made from their Python code, in all modules that each module imports.
    """
    if cuda is None:
        return
    module, simulated = sys.modules[name], cuda.config.ENABLE_CUDASIM
    compiled = {} if simulated else DeviceFunctions(module).of
    for name, value in list(vars(module).items()):
        if getattr(value, "is_kernel", False):
            setattr(module, name, cuda.jit(value) if simulated else compiled[value])


def modules_used(module):
    """Return the modules whose compiled functions a module uses, directly or not."""
    found, waiting = [team, tiles], [module]
    while waiting:
        current = waiting.pop()
        if current in found:
            continue
        found.append(current)
        for value in vars(current).values():
            if isinstance(value, Dispatcher):
                value = sys.modules[value.py_func.__module__]
            if isinstance(value, ModuleType) and value.__name__.startswith(PACKAGE):
                waiting.append(value)
    return found


class DeviceFunctions:
    """Device functions and kernels, made from the Python code of CPU functions."""

    def __init__(self, module):
        self.of = {}  # device function or kernel of a function of the CPU
        # For each module, the values that its names have in device functions
        self.names = {used: dict(vars(used)) for used in modules_used(module)}
        for used in self.names:
            self._make_all(used)
        self._connect()

    def _make_all(self, module):
        """Make device functions of all compiled functions and kernels of a module."""
        names, own = self.names[module], module.__name__
        replacements = gpu_team() if module is team else {}
        for name, value in vars(module).items():
            python = team.PYTHON_VERSIONS.get(name)
            if name in replacements:
                self.of[value] = replacements[name]
            elif python is not None and python.__module__ == own:
                self._make(value, python, names)
            elif isinstance(value, Dispatcher) and value.py_func.__module__ == own:
                self._make(value, value.py_func, names)
            elif getattr(value, "is_kernel", False):
                self._make(value, value, names, device=False)

    def _make(self, value, function, names, device=True):
        copy = FunctionType(function.__code__, names, function.__name__)
        copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
        self.of[value] = cuda.jit(device=True)(copy) if device else cached_kernel(copy)

    def _connect(self):
        """Replace CPU functions by device functions among the names of all modules."""
        for names in self.names.values():
            for name, value in names.items():
                if value.__hash__ is not None and value in self.of:
                    names[name] = self.of[value]
        for names in self.names.values():  # copies of modules that are complete by now
            for name, value in names.items():
                if isinstance(value, ModuleType) and value in self.names:
                    names[name] = ModuleType(value.__name__)
                    vars(names[name]).update(self.names[value])


def cached_kernel(function):
    """Compile a kernel that is cached on disk where that is possible."""
    dispatcher = cuda.jit(function)
    if CACHE:
        with suppress(RuntimeError):  # numba-cuda finds no folder to write to
            dispatcher._cache = KernelCache(function)
    return dispatcher


def specialized(kernel, arguments):
    """Return a kernel for arguments of these types, which takes no others.

    numba-cuda then does not find out the types anew at each launch.
    """
    if cuda.config.ENABLE_CUDASIM:
        return kernel
    return kernel_for_types(kernel, tuple(map(kernel.typeof_pyval, arguments)))


@functools.cache
def kernel_for_types(kernel, types):
    """Return a kernel for these types alone, compiled or read from the disk.

    The method `specialize` of numba-cuda would compile it in each process.
    """
    dispatcher = cached_kernel(kernel.py_func)
    dispatcher.compile(types)
    dispatcher.disable_compile()
    dispatcher._specialized = True
    return dispatcher


def partial_sum_address(builder, index):
    """Return the address of a partial sum in the array in shared memory.

    The linker refuses a shared array of numba-cuda that several functions use.
    """
    kind = ir.ArrayType(ir.DoubleType(), WARP)
    parts = builder.module.globals.get("skswsgp_parts")
    if parts is None:
        parts = ir.GlobalVariable(builder.module, kind, "skswsgp_parts", addrspace=3)
        parts.linkage, parts.align = "linkonce_odr", 8
        parts.initializer = ir.Constant(kind, ir.Undefined)
    return builder.gep(parts, [ir.Constant(index.type, 0), index])


def gpu_team():
    """Return the GPU versions of functions of `team`, by name."""

    @intrinsic
    def set_part(typingctx, index, value):
        def generate(context, builder, signature, args):
            builder.store(args[1], partial_sum_address(builder, args[0]))
            return context.get_dummy_value()

        return cuda.types.void(cuda.types.int64, cuda.types.float64), generate

    @intrinsic
    def get_part(typingctx, index):
        def generate(context, builder, signature, args):
            return builder.load(partial_sum_address(builder, args[0]))

        return cuda.types.float64(cuda.types.int64), generate

    @cuda.jit(device=True)
    def team_rank():
        return cuda.threadIdx.x, cuda.blockDim.x

    @cuda.jit(device=True)
    def barrier():
        if cuda.blockDim.x > 1:
            cuda.syncthreads()

    @cuda.jit(device=True)
    def team_sum(value):
        value = float(value)
        size = cuda.blockDim.x
        if size > 1:
            for step in (16, 8, 4, 2, 1):
                value += cuda.shfl_xor_sync(ALL_THREADS, value, step)
            cuda.syncthreads()
        if size > WARP:  # add the sums of all warps, in shared memory
            if cuda.threadIdx.x % WARP == 0:
                set_part(cuda.threadIdx.x // WARP, value)
            cuda.syncthreads()
            value = get_part(0)
            for warp in range(1, size // WARP):
                value += get_part(warp)
            cuda.syncthreads()
        return value

    return {"team_rank": team_rank, "barrier": barrier, "team_sum": team_sum}


class SimulatedTeam:
    """The team of the current thread of the simulator; elsewhere a team of one."""

    def rank(self):
        thread = threading.current_thread()
        if not hasattr(thread, "threadIdx"):
            return 0, 1
        return thread.threadIdx.x, thread._manager._block_dim[0]

    def sum(self, value):
        rank, size = self.rank()
        if size == 1:
            return value
        block = threading.current_thread()._manager
        parts = vars(block).setdefault("parts", [0.0] * size)
        self.barrier()
        parts[rank] = value
        self.barrier()
        return sum(parts[1:], parts[0])

    def barrier(self):
        if self.rank()[1] > 1:
            threading.current_thread().syncthreads()


if cuda is not None and cuda.config.ENABLE_CUDASIM:
    team.backend = SimulatedTeam()
elif cuda is not None:
    from numba.cuda.dispatcher import CUDACache
    from numba.cuda.extending import intrinsic

    class KernelCache(LenientCache, CUDACache):
        """The cache of kernels."""
