"""Threads of the CPU: how many a task gets, who starts them, which rows each takes.

It also knows the memory of the machine.
"""

import os
import sys
import threading
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path

import numba
import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_limits

from skswsgp._compiled.jit import njit_inner, sequential

# Numba's workqueue layer aborts the process when two Python threads launch at once.
_LOCK = threading.RLock()
_LOCK_OF_BLAS = threading.Lock()
_limited = []  # what restores the threads of BLAS, once for each context of one
_is_child = False  # whether this process was forked
_forked = False  # whether a parent of this process has started threads of OpenMP
_shared = ContextVar("shared", default=False)  # whether others share the cores
ROWS_PER_THREAD = 1000  # rows below which another thread costs more than it saves
MICROSECONDS_PER_THREAD = 150.0  # least work of a thread of Numba, which may wake late
MICROSECONDS_PER_NEW_THREAD = 1500.0  # least work of a thread that Python has to start
PARTS = 8  # sums of a product that are computed apart, for any number of threads
CHUNKS = 16  # parts of a minibatch with sums of their own, for any number of threads
ROWS_AT_ONCE = 8192  # rows of X that are copied, and that a GPU evaluates, at a time
KERNEL_VALUE = 18  # cost of a kernel value in columns, of which it has a distance
MICROSECONDS_AT_ONCE = 5e5  # work of a compiled call, which Ctrl-C cannot end


def max_threads(n_jobs, n_rows=None):
    """Return the number of threads for `n_jobs`, at most as many as Numba may use.

    With `n_rows` it is also at most one plus one for each ROWS_PER_THREAD of these
    rows. joblib gives its workers few threads by NUMBA_NUM_THREADS. A task of dask has
    one thread unless `n_jobs` is positive, because a worker runs as many tasks at once
    as it has threads. Negative numbers count from all threads down, as in joblib.
    """
    if n_jobs == 0:
        raise ValueError(
            "n_jobs=0: expected a number of threads, a negative number to count from "
            "all of them (-1), or None; use n_jobs=1 for one thread."
        )
    available = numba.config.NUMBA_NUM_THREADS
    if n_jobs is None or n_jobs < 0:
        own = 1 if _shared.get() or is_task_of_dask() else available
        n_jobs = own + 1 + (-1 if n_jobs is None else n_jobs)
    if n_rows is not None:
        n_jobs = min(n_jobs, 1 + n_rows // ROWS_PER_THREAD)
    return max(1, min(n_jobs, available))


@contextmanager
def one_thread():
    """Let `n_jobs` below zero or None be one thread, for others share the cores."""
    token = _shared.set(True)
    try:
        yield
    finally:
        _shared.reset(token)


def is_task_of_dask():
    """Return whether a worker of dask runs this as a task."""
    with suppress(KeyError, ValueError):  # dask is not loaded, or no worker runs this
        return bool(sys.modules["distributed"].get_worker())
    return False


def threads_for(work, n_threads, least=MICROSECONDS_PER_THREAD):
    """Return how many of `n_threads` get at least `least` microseconds of `work`."""
    return max(1, min(n_threads, int(work / least)))


def run_in_threads(function, n_threads, n, *arguments, cost=0.0):
    """Call function(first, last, t, *arguments) for parts of n rows in each thread t.

    A row takes some `cost` microseconds, and a part half a second at most. Between
    parts a thread ends if another one has failed, and Ctrl-C is such a failure. A
    thread costs up to 0.2 ms. A loop over `prange` starts sooner, but Numba compiles
    the functions in it three times, which took half of a first fit.
    """
    k, most = max(1, min(n, n_threads)), rows_of(MICROSECONDS_AT_ONCE, cost)
    failures = []

    def work(t):
        begin, end = t * n // k, (t + 1) * n // k
        try:
            for first in range(begin, max(end, begin + 1), most):
                if failures:
                    return
                function(first, min(first + most, end), t, *arguments)
        except BaseException as error:
            failures.append(error)

    # A thread has the name of its caller, by which a fit knows what it compiles
    how = {"target": work, "name": threading.current_thread().name}
    threads = [threading.Thread(args=[t], **how) for t in range(1, k)]
    try:
        for thread in threads:
            thread.start()
        work(0)
        for thread in threads:
            thread.join()
    except BaseException as error:
        failures.append(error)
    join_all(threads)
    if failures:
        raise failures[0]


def rows_of(microseconds, cost):
    """Return how many rows take so many microseconds, if one takes `cost` of them."""
    return max(1, int(min(microseconds / max(cost, 1e-9), sys.maxsize)))


def join_all(threads):
    """Wait for all threads, even if interrupted: they write to arrays of the caller."""
    try:
        for thread in threads:
            if thread.ident is not None:  # it has started
                thread.join()
    except KeyboardInterrupt:
        join_all(threads)
        raise


def _note_fork():
    """Note in a forked process whether its parent has started threads of OpenMP."""
    global _LOCK, _LOCK_OF_BLAS, _is_child, _forked
    _is_child = True
    _LOCK = threading.RLock()  # a thread that is gone may have held it
    _LOCK_OF_BLAS = threading.Lock()
    with suppress(ValueError):  # no parallel loop has run
        _forked = _forked or numba.threading_layer() == "omp"


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_note_fork)


def scikit_learn_threads():
    """Return a context with one OpenMP thread in a forked process, where more hang."""
    return threadpool_limits(1 if _is_child else None, user_api="openmp")


@contextmanager
def one_blas_thread():
    """Take one thread of BLAS, for matrices of some hundred rows.

    With more threads, those of NumPy's BLAS and of SciPy's BLAS wait for each other:
    learning a kernel from 300 rows took ten times as long on two cores. The number of
    threads belongs to the process, so the last of several threads in such a context
    restores it. OpenBLAS 0.3.30 ignores some calls of threads other than the main one:
    the number may then stay as it was, inside the context or after it.
    """
    with _LOCK_OF_BLAS:
        first = _limited or [_blas_libraries().limit(limits=1, user_api="blas")]
        _limited.append(first[0])
    try:
        yield
    finally:
        with _LOCK_OF_BLAS:
            limits = _limited.pop()
            if not _limited:
                limits.restore_original_limits()


@cache
def _blas_libraries():
    """Return a controller of loaded libraries, whose search takes 0.5 ms."""
    return ThreadpoolController()


@contextmanager
def parallel_region(n_threads, exact=True):
    """Hold the process-wide lock and run parallel loops on `n_threads` threads.

    Yields a function that maps a compiled function with such loops to the one to call,
    sequential where OpenMP would end the process. Pass `exact=False` for others' loops.
    """
    if _forked and exact:  # results do not depend on the number of threads
        yield sequential
        return
    if _forked:
        raise RuntimeError(
            "this process was forked after its parent had run parallel loops, so "
            "OpenMP would end it: expected an exact neighbor_search; or start "
            "processes by 'spawn', 'forkserver' or joblib's loky."
        )
    with _LOCK:
        before = numba.get_num_threads()
        numba.set_num_threads(n_threads)
        try:
            yield lambda function: function
        finally:
            numba.set_num_threads(before)


def microseconds_per_point(H):
    """Return roughly how long a training step takes for one row with H neighbours."""
    return 1.0 + 0.15 * H + 0.012 * H**2  # 1.6, 5, 15, 130 at H = 4, 16, 32, 100


def microseconds_per_pair(D):
    """Return roughly how long a covariance of two rows with D columns takes."""
    return 0.0003 * (KERNEL_VALUE + D)


def rows_in_seconds(H, n_threads):
    """Return how many rows with H neighbours so many threads do in some two seconds."""
    return n_threads * rows_of(4.0 * MICROSECONDS_AT_ONCE, microseconds_per_point(H))


@njit_inner
def chunk_bounds(chunk, n):
    """Return the first of a chunk's share of n items, and one past its last."""
    return chunk * n // CHUNKS, (chunk + 1) * n // CHUNKS


def machine_memory():
    """Return the bytes of memory of this machine or container, infinite if unknown."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = Path("/sys/fs/cgroup/memory.max").read_text()
    except (AttributeError, ValueError):
        return np.inf
    except OSError:
        return size
    return min(size, int(limit)) if limit.strip().isdigit() else size


def require_memory(size, H):
    """Raise ValueError if `size` bytes, which H neighbours need, exceed the memory."""
    room = machine_memory()
    if size > room:
        raise ValueError(
            f"n_neighbors={H} takes {size / 2**30:.1f} GiB: expected at most "
            f"{room / 2**30:.1f} GiB; use a smaller one, or n_jobs=1."
        )


def row_blocks(n_rows, size=None):
    """Yield slices of at most `size` rows that cover n_rows; None: ROWS_AT_ONCE."""
    size = ROWS_AT_ONCE if size is None else size
    for first in range(0, n_rows, size):
        yield slice(first, min(first + size, n_rows))


def index_blocks(n_rows, size=None):
    """Yield arrays of at most `size` and ROWS_AT_ONCE indices that cover n_rows."""
    for rows in row_blocks(n_rows, min(size or ROWS_AT_ONCE, ROWS_AT_ONCE)):
        yield np.arange(rows.start, rows.stop)


def in_threads(work, items, n_threads):
    """Call work(item) for each item, on one thread of BLAS each."""

    def take(first, last, t):
        for item in items[first:last]:
            work(item)

    with one_blas_thread():
        run_in_threads(take, n_threads, len(items), cost=MICROSECONDS_AT_ONCE)
