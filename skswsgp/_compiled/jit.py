"""The decorators of compiled functions, their options, and the cache on disk."""

import os

import numba

# Each flag lets the compiler vectorise sums or simplify arithmetic. `nnan` and `ninf`
# are left out: with them a NaN or an infinity could go unnoticed.
FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}
# `_nrt=False` switches off Numba's counts of references to arrays, which cost more than
# the arithmetic when a row has few neighbours. A compiled function that would allocate
# an array is then refused at compile time, so outputs and scratch are arguments.
# Numba does not document the option; versions 0.61 to 0.68 have it.
OPTIONS = {"fastmath": FASTMATH, "error_model": "numpy", "_nrt": False}


def _can_cache():
    """Return whether Numba finds a folder to write compiled code to."""
    switch = os.environ.get("SKSWSGP_CACHE", "1")
    if switch == "0":
        return False
    try:
        numba.njit(cache=True)(_can_cache)
    except RuntimeError:  # numba: "cannot cache function ...: no locator available"
        return False
    return True


_CACHE = _can_cache()


def njit(function):
    """Compile a function; this is the default choice."""
    return numba.njit(cache=_CACHE, **OPTIONS)(function)


def njit_small(function):
    """Compile a short function that LLVM inlines into its callers."""
    return numba.njit(cache=_CACHE, forceinline=True, **OPTIONS)(function)


def njit_inline(function):
    """Compile a function that Numba merges into its callers before it infers types.

    It is for functions that take a struct of arrays: to pass one costs a third of a
    microsecond, and to compile every level of such calls costs minutes.
    """
    return numba.njit(inline="always", **OPTIONS)(function)


def njit_view(struct, whole=()):
    """Return a function (arrays, t) that takes item t of each field not in `whole`.

    It is inlined into its callers, and made from text, because compiled code has no
    loop over a tuple of unlike arrays.
    """
    fields = (name if name in whole else f"{name}[t]" for name in struct._fields)
    text = ", ".join(f"arrays.{field}" for field in fields)
    names = {struct.__name__: struct, "__name__": struct.__module__}
    exec(f"def view(arrays, t): return {struct.__name__}({text})", names)
    return njit_inline(names["view"])


def njit_range(function):
    """Compile a function of a range of rows, which `run_in_threads` calls."""
    return numba.njit(cache=_CACHE, nogil=True, **OPTIONS)(function)


def njit_parallel(function):
    """Compile a short loop over `prange`; call it inside `parallel_region` only."""
    return numba.njit(
        cache=_CACHE, fastmath=FASTMATH, error_model="numpy", parallel=True
    )(function)
