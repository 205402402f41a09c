"""The decorators of compiled functions, their options, and the cache on disk."""

import functools
import gc
import os
import types
import warnings
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import numba
from numba.core import caching, codegen, compiler, config

# Each flag lets the compiler vectorise sums or simplify arithmetic. `nnan` and `ninf`
# are left out: with them a NaN or an infinity could go unnoticed.
FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}
# `_nrt=False` switches off Numba's counts of references to arrays, which cost more than
# the arithmetic when a row has few neighbours. A compiled function that would allocate
# an array is then refused at compile time, so outputs and scratch are arguments.
# Numba does not document the option; versions 0.61 to 0.68 have it.
# `no_cfunc_wrapper` leaves out the entry for C, which nothing calls and which takes as
# long to compile as that for Python.
COMMON = {"fastmath": FASTMATH, "error_model": "numpy", "no_cfunc_wrapper": True}
OPTIONS = COMMON | {"_nrt": False, "nogil": True}
INNER = OPTIONS | {"no_cpython_wrapper": True}
# Whether compiled code is kept, where Numba finds a folder to write it to or to read.
CACHE = os.environ.get("SKSWSGP_CACHE") != "0"


@functools.cache
def sources():
    """Return a number of the text of all files of this package.

    Numba looks at the file of a function alone, not at those of the functions it calls.
    """
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    return functools.reduce(lambda crc, path: crc32(path.read_bytes(), crc), files, 0)


class LenientCache:
    """A cache of Numba of which a file that cannot be used stops no function.

    What other files of this package hold is part of its keys.
    """

    warned = False

    def _index_key(self, sig, codegen):
        return *super()._index_key(sig, codegen), sources()

    def load_overload(self, *args):
        return self._attempt(super().load_overload, *args)

    def save_overload(self, *args):
        self._attempt(super().save_overload, *args)

    def _attempt(self, method, *args):
        try:
            return method(*args)
        except Exception as error:  # a damaged pickle may raise any error
            message = (
                f"the cache of compiled functions in {self.cache_path} cannot be used "
                f"({error!r}): functions are compiled anew in each process, for up to "
                "a minute; delete the folder, make room there, or allow to write there."
            )
        if not LenientCache.warned:
            LenientCache.warned = True
            warnings.warn(message, stacklevel=2)


class _Filled:
    """A locator of Numba for a folder of compiled code, which may be read-only."""

    def ensure_cache_path(self):
        if not any(name.endswith(".nbi") for name in os.listdir(self.get_cache_path())):
            raise FileNotFoundError


class _Files(caching.CompileResultCacheImpl):
    """Files in a filled NUMBA_CACHE_DIR, where Numba writes, or in a filled folder."""

    _writable = caching.CompileResultCacheImpl._locator_classes
    _filled = tuple(type(one.__name__, (_Filled, one), {}) for one in _writable)
    _locator_classes = (_filled[0], *_writable, *_filled)


class _Cache(LenientCache, caching.FunctionCache):
    """The cache of the functions of the CPU."""

    _impl_class = _Files


class _Code(codegen.JITCodeLibrary):
    """The code of a function, which is optimised in full with what it calls.

    Numba would do so before as well, with the code alone and with its entry for Python.
    """

    def _optimize_functions(self, module):
        if module.name.startswith("wrapper"):
            module.data_layout = self._codegen._data_layout
            return
        level, config.OPT = config.OPT, min(config.OPT, 1)
        try:
            super()._optimize_functions(module)
        finally:
            config.OPT = level


class _Linked(_Code):
    """The code of a function without entries, which is linked into that of its callers.

    It gets no machine code, which nothing would run.
    """

    serialize_using_object_code = codegen.JITCodeLibrary.serialize_using_bitcode
    codegen = types.SimpleNamespace(set_env=lambda name, environment: None)

    def _finalize_final_module(self):
        self._finalized = True


class _Compiler(compiler.Compiler):
    """Numba's compiler, which makes much garbage, and waits to have it collected."""

    def compile_extra(self, function):
        state = self.state
        kind = _Linked if state.flags.no_cpython_wrapper else _Code
        state.library = kind(state.targetctx.codegen(), function.__name__)
        state.library.enable_object_caching()
        enabled = gc.isenabled()
        gc.disable()
        try:
            return super().compile_extra(function)
        finally:
            if enabled:
                gc.enable()


def _njit(function, **options):
    """Compile a function that is cached on disk where that is possible."""
    dispatcher = numba.njit(pipeline_class=_Compiler, **options)(function)
    if CACHE and hasattr(dispatcher, "py_func"):  # not where Numba is switched off
        with suppress(RuntimeError):  # Numba finds no folder
            dispatcher._cache = _Cache(function)
    return dispatcher


def njit(function):
    """Compile a function; this is the default choice."""
    return _njit(function, **OPTIONS)


def njit_inner(function):
    """Compile a function that compiled functions alone may call.

    It has no entry for Python, which would take as long to compile as its own code.
    """
    return _njit(function, **INNER)


def njit_small(function):
    """Compile a short function for compiled ones, into which LLVM inlines it."""
    return _njit(function, forceinline=True, **INNER)


def njit_inline(function):
    """Compile a function that Numba merges into its callers before it infers types.

    It is for functions that take a struct of arrays: to pass one costs a third of a
    microsecond, and to compile every level of such calls costs minutes.
    """
    return numba.njit(inline="always", **OPTIONS)(function)


def njit_row(struct, whole=()):
    """Return a function (arrays, t) that takes row t of each field not in `whole`.

    It is inlined into its callers, and made from text, because compiled code has no
    loop over a tuple of unlike arrays.
    """
    fields = (name if name in whole else f"{name}[t]" for name in struct._fields)
    text = ", ".join(f"arrays.{field}" for field in fields)
    names = {struct.__name__: struct, "__name__": struct.__module__}
    exec(f"def view(arrays, t): return {struct.__name__}({text})", names)
    return njit_inline(names["view"])


def variant(function, name, **values):
    """Return a compiled function under another name, with other values of globals."""
    if config.DISABLE_JIT:
        return function
    names = function.py_func.__globals__ | values
    copy = types.FunctionType(function.py_func.__code__, names, name)
    copy.__qualname__, copy.__module__ = name, function.py_func.__module__
    return njit(copy)


def njit_parallel(function):
    """Compile a short loop over `prange`; call it inside `parallel_region` only."""
    return _njit(function, parallel=True, **COMMON)


@functools.cache
def sequential(function):
    """Return a compiled function whose loops over `prange` take no other thread.

    The same holds for the functions of `njit_parallel` that it calls. It is compiled on
    demand, in each process: Numba's cache would mistake it for the parallel one.
    """
    code, names = function.py_func.__code__, dict(function.py_func.__globals__)
    for name in code.co_names:
        if getattr(names.get(name), "targetoptions", {}).get("parallel"):
            names[name] = sequential(names[name])
    return numba.njit(**COMMON)(types.FunctionType(code, names, code.co_name))
