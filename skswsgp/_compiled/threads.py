"""TODO docstring."""

import threading
from contextlib import contextmanager

import numba
import numpy as np

from skswsgp._compiled.jit import njit

# Numba's workqueue layer aborts the process when two Python threads launch at once.
_LOCK = threading.RLock()
ROWS_PER_THREAD = 1000  # fewer are not worth waking another thread for
MICROSECONDS_PER_NEW_THREAD = 1500.0  # microseconds that are worth making a thread for
MICROSECONDS_PER_THREAD = (
    150.0  # microseconds, likewise; on a busy machine it may wake late
)
CHUNKS = 16
ROWS_AT_ONCE = 8192  # rows of a prediction that are copied together


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
        n_jobs = min(n_jobs, 1 + n_rows // ROWS_PER_THREAD)
    return max(1, min(n_jobs, available))


def threads_for(work, n_threads, each=MICROSECONDS_PER_THREAD):
    """Return how many of n_threads so many microseconds of work take, `each` or more.

    SHARE_A_THREAD where `share` makes the threads.
    """
    return max(1, min(n_threads, int(work / each)))


def run_in_threads(function, n_threads, n, *arguments):
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
        join_all(threads)
    if failures:
        raise failures[0]


def join_all(threads):
    """Wait until all have ended, whoever interrupts: they write what others own."""
    try:
        for thread in threads:
            if thread.ident is not None:  # it has started
                thread.join()
    except KeyboardInterrupt:
        join_all(threads)
        raise


@contextmanager
def parallel_region(n_threads):
    """Hold the process-wide lock and run parallel loops on `n_threads` threads."""
    with _LOCK:
        before = numba.get_num_threads()
        numba.set_num_threads(n_threads)
        try:
            yield
        finally:
            numba.set_num_threads(before)


def microseconds_per_point(H):
    """Return about how long a point with H neighbours takes in training."""
    return 1.0 + 0.15 * H + 0.012 * H**2  # 1.6, 5, 15, 130 at H = 4, 16, 32, 100


@njit
def chunk_bounds(chunk, n):
    """First and one past the last of the n items of a chunk."""
    return chunk * n // CHUNKS, (chunk + 1) * n // CHUNKS


def row_blocks(n_rows, size=None):
    """Yield slices of at most `size` of n_rows rows, or of ROWS_AT_ONCE."""
    size = ROWS_AT_ONCE if size is None else size
    for first in range(0, n_rows, size):
        yield slice(first, min(first + size, n_rows))


def index_blocks(n_rows, size=None):
    """Yield the indices of blocks of n_rows rows, at most `size` and ROWS_AT_ONCE."""
    size = ROWS_AT_ONCE if size is None else min(size, ROWS_AT_ONCE)
    for rows in row_blocks(n_rows, size):
        yield np.arange(rows.start, rows.stop)
