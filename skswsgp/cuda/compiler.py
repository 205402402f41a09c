"""Kernels of numba-cuda, made from functions of one index.

A *body* is a function (i, arrays...) in plain Python that does the work of index i and
of no other. It calls the compiled functions of the CPU, so a formula stands once:
`device_function` makes what a GPU calls from their Python code, because compiled
functions of the CPU have options, among them flags that hide NaN, which a GPU must not
take over.
"""

import functools
import importlib.util
from contextlib import suppress
from types import FunctionType, ModuleType

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

from skswsgp._compiled.jit import CACHE, LenientCache

if importlib.util.find_spec("numba_cuda") is None:
    cuda = None
else:
    from numba import cuda

THREADS = 128  # threads of a block
PACKAGE = __name__.partition(".")[0]


def body(function):
    """Mark a function as a body, which `Gpu.prepare` takes."""
    return function


@functools.cache
def device_function(function):
    """Return the version for GPUs of a body or of a compiled function of the CPU."""
    return cuda.jit(device=True)(for_device(function))


def for_device(function):
    """Return the Python code of a function whose names are those of a GPU."""
    python = getattr(function, "py_func", function)
    code, names = python.__code__, dict(python.__globals__)
    for name in code.co_names:
        value = names.get(name)
        if isinstance(value, Dispatcher):
            names[name] = device_function(value)
        elif isinstance(value, ModuleType) and value.__name__.startswith(PACKAGE):
            names[name] = device_module(value, code.co_names)
    copy = FunctionType(code, names, python.__name__)
    copy.__module__, copy.__qualname__ = python.__module__, python.__qualname__
    return copy


def device_module(module, used):
    """Return a copy of a module with the functions of a GPU in place of those used."""
    copy = ModuleType(module.__name__)
    for name, value in vars(module).items():
        compiled = isinstance(value, Dispatcher) and name in used
        setattr(copy, name, device_function(value) if compiled else value)
    return copy


def all_indices(n, arguments):
    """Call the body for the indices below n; the kernels have this code."""
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        function(i, *arguments)  # noqa: F821, a name that `kernel_of` gives to it


@functools.cache
def kernel_of(body):
    """Return the kernel that calls a body, cached on disk where that is possible."""
    names = {"cuda": cuda, "function": device_function(body)}
    function = FunctionType(all_indices.__code__, names, body.__name__)
    function.__module__ = body.__module__
    function.__qualname__ = f"{body.__qualname__}_of_all_indices"
    kernel = cuda.jit(function)
    if CACHE:
        with suppress(RuntimeError):  # numba-cuda finds no folder to write to
            kernel._cache = kernel_cache(function)
    return kernel


def flat(argument):
    """Return the type of an argument of a kernel, and the numbers that stand for it.

    numba-cuda passes an array by two empty owners, size, bytes of an entry, address,
    shape and strides, and a struct by its fields.
    """
    if isinstance(argument, tuple):
        kinds, numbers = zip(*map(flat, argument), strict=True)
        kind = numba.types.BaseTuple.from_types(kinds, type(argument))
        return kind, sum(numbers, ())
    if isinstance(argument, bool | int | float | np.generic):
        number = argument.item() if isinstance(argument, np.generic) else argument
        return numba.typeof(number), (number,)
    flags = argument.flags
    layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
    kind = numba.types.Array(numba.from_dtype(argument.dtype), argument.ndim, layout)
    given = argument.size, argument.itemsize, argument.data.ptr
    return kind, (0, 0, *given, *argument.shape, *argument.strides)


def prepare(body, n, stream, arguments):
    """Return a function that launches the kernel of a body for the indices below n.

    A launch by numba-cuda looks at each array again, which takes longer than the work.
    """
    from cuda.core import LaunchConfig, Stream, launch

    kind, numbers = flat(arguments)
    kernel = kernel_of(body).compile((numba.int64, kind))
    config = LaunchConfig(grid=-(-n // THREADS), block=THREADS)
    kernel = kernel._codelibrary.get_cufunc().kernel
    call = functools.partial(launch, Stream.from_handle(stream), config, kernel, n)
    call = functools.partial(call, *numbers)
    call.name, call.arrays = body.__name__, arguments  # whose memory must last
    return call


def kernel_cache(function):
    """Return the cache of a kernel, whose files name its body."""
    from numba.cuda.dispatcher import CUDACache

    kind = type("KernelCache", (LenientCache, CUDACache), {})
    return kind(function)
