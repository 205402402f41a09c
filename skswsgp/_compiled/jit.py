"""Compilation policy, threads and the lock around parallel launches."""

import os

import numba

# Every set flag lets the compiler vectorise a sum; nnan and ninf are left out, so that
# a NaN or an infinity still shows.
FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}
# Compiled functions get the arrays that they work on, and may not make any. Without
# Numba's counts of references to arrays, which cost more than the arithmetic on few
# active points, a function that does make one is refused when it is compiled. (`_nrt`
# is an option without documentation; numba 0.61 and 0.68 have it.)
OPTIONS = {"fastmath": FASTMATH, "error_model": "numpy", "_nrt": False}


def _can_cache():
    """Whether numba finds a folder to write compiled code to."""
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
    """Compile a function; CUDA kernels may call those of floors 0 and 1 as well."""
    return numba.njit(cache=_CACHE, **OPTIONS)(function)


def njit_small(function):
    """Compile a short function of floor 0 or 1 that the compiler must not call."""
    return numba.njit(cache=_CACHE, forceinline=True, **OPTIONS)(function)


def njit_inline(function):
    """Compile a function as part of its callers.

    For functions that take a struct of arrays: handing one over costs a third of a
    microsecond, and compiling every level of such calls costs minutes.
    """
    return numba.njit(inline="always", **OPTIONS)(function)


def njit_view(struct, whole=()):
    """Return a function of (arrays, t) that takes item t of each field of a struct.

    Fields named in `whole` are handed on as they are. The function is part of its
    callers. It is made from text, because compiled code has no loop over a tuple of
    unlike arrays.
    """
    fields = (name if name in whole else f"{name}[t]" for name in struct._fields)
    text = ", ".join(f"arrays.{field}" for field in fields)
    names = {struct.__name__: struct, "__name__": struct.__module__}
    exec(f"def view(arrays, t): return {struct.__name__}({text})", names)
    return njit_inline(names["view"])


def njit_range(function):
    """Compile a function of a part of some rows, for `share` to call."""
    return numba.njit(cache=_CACHE, nogil=True, **OPTIONS)(function)


def njit_parallel(function):
    """Compile a loop over `prange`, for short ones; call it inside `launch` only."""
    return numba.njit(
        cache=_CACHE, fastmath=FASTMATH, error_model="numpy", parallel=True
    )(function)
