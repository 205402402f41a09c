"""Compilation policy, threads and the lock around parallel launches."""

import os
import threading
from contextlib import contextmanager

import numba
from numba import get_thread_id, prange

__all__ = [
    "get_thread_id",
    "launch",
    "max_threads",
    "njit",
    "njit_inline",
    "njit_parallel",
    "njit_part",
    "njit_small",
    "prange",
    "share",
    "threads_for",
]

# Every set flag lets the compiler vectorise a sum; nnan and ninf are left out, so that
# a NaN or an infinity still shows.
FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}


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


# Compiled functions get the arrays that they work on, and may not make any. Without
# Numba's counts of references to arrays, which cost more than the arithmetic on few
# active points, a function that does make one is refused when it is compiled. (`_nrt`
# is an option without documentation; numba 0.61 and 0.68 have it.)
OPTIONS = {"fastmath": FASTMATH, "error_model": "numpy", "_nrt": False}


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


def njit_part(function):
    """Compile a function of a part of some rows, for `share` to call."""
    return numba.njit(cache=_CACHE, nogil=True, **OPTIONS)(function)


def njit_parallel(function):
    """Compile a loop over `prange`, for short ones; call it inside `launch` only."""
    return numba.njit(
        cache=_CACHE, fastmath=FASTMATH, error_model="numpy", parallel=True
    )(function)


# Numba's workqueue layer aborts the process when two Python threads launch at once.
_LOCK = threading.RLock()


ROWS_A_THREAD = 1000  # fewer are not worth waking another thread for
SHARE_A_THREAD = 1500.0  # microseconds that are worth making a thread for
WORK_A_THREAD = 150.0  # microseconds, likewise; on a busy machine it may wake late


def max_threads(n_jobs, n_rows=None):
    """Return the number of threads for `n_jobs`, at most what numba may use.

    Given the number of rows to work on, at most one for each ROWS_A_THREAD of them.
    None means all that numba may use (joblib's workers are given fewer through the
    environment variable NUMBA_NUM_THREADS); negative numbers count from the top as in
    joblib, which knows no 0 either.
    """
    if n_jobs == 0:
        raise ValueError(
            "n_jobs=0: expected a number of threads, a negative number to count from "
            "all of them (-1), or None; use n_jobs=1 for one thread."
        )
    available = numba.config.NUMBA_NUM_THREADS
    if n_jobs is None:
        n_jobs = available
    if n_jobs < 0:
        n_jobs = available + 1 + n_jobs
    if n_rows is not None:
        n_jobs = min(n_jobs, 1 + n_rows // ROWS_A_THREAD)
    return max(1, min(n_jobs, available))


def threads_for(work, n_threads, each=WORK_A_THREAD):
    """Return how many of n_threads so many microseconds of work take, `each` or more.

    SHARE_A_THREAD where `share` makes the threads.
    """
    return max(1, min(n_threads, int(work / each)))


def share(function, n_threads, n, *arguments):
    """Call function(first, last, t, *arguments) for a part of n rows in each thread t.

    It costs up to 0.2 ms a thread. A loop over `prange` starts sooner, but compiles
    what it calls three times, which took half of a first fit.
    """
    n_threads = max(1, min(n, n_threads))
    parts = [
        (t * n // n_threads, (t + 1) * n // n_threads, t) for t in range(n_threads)
    ]
    if n_threads == 1:
        function(*parts[0], *arguments)
        return
    failures = []

    def work(part):
        try:
            function(*part, *arguments)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[part]) for part in parts[1:]]
    try:
        for thread in threads:
            thread.start()
        function(*parts[0], *arguments)
    finally:
        join(threads)
    if failures:
        raise failures[0]


def join(threads):
    """Wait until all have ended, whoever interrupts: they write what others own."""
    try:
        for thread in threads:
            if thread.ident is not None:  # it has started
                thread.join()
    except KeyboardInterrupt:
        join(threads)
        raise


@contextmanager
def launch(n_threads):
    """Hold the process-wide lock and run parallel loops on `n_threads` threads."""
    with _LOCK:
        before = numba.get_num_threads()
        numba.set_num_threads(n_threads)
        try:
            yield
        finally:
            numba.set_num_threads(before)
