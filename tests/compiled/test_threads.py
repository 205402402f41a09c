"""The division of rows among threads of Python."""

import os
import subprocess
import sys
import time
from threading import Barrier, Thread
from types import SimpleNamespace

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from skswsgp._compiled import threads as module
from skswsgp._compiled.threads import (
    max_threads,
    one_blas_thread,
    one_thread,
    run_in_threads,
)


@pytest.mark.parametrize(("n", "n_threads"), [(0, 3), (1, 4), (7, 1), (7, 3), (8, 8)])
def test_each_row_is_in_one_part(n, n_threads):
    parts = []
    run_in_threads(lambda *part: parts.append(part), n_threads, n, "argument")
    parts.sort(key=lambda part: part[2])
    assert [part[2] for part in parts] == list(range(max(1, min(n, n_threads))))
    rows = [row for first, last, *_ in parts for row in range(first, last)]
    assert rows == list(range(n))
    assert {part[3] for part in parts} == {"argument"}


def test_a_thread_beside_others_counts_one_unless_it_is_given_more():
    available = max_threads(None)
    with one_thread():
        assert [max_threads(n_jobs) for n_jobs in (None, -1, -2)] == [1, 1, 1]
        assert max_threads(available) == available
    assert max_threads(None) == available


def test_a_task_of_a_worker_of_dask_counts_one_thread(monkeypatch):
    def get_worker():
        if not workers:
            raise ValueError("No worker found")
        return workers[0]

    workers, available = [], max_threads(None)
    dask = SimpleNamespace(get_worker=get_worker)
    monkeypatch.setitem(sys.modules, "distributed", dask)
    assert max_threads(None) == available
    workers.append("a worker")
    assert max_threads(None) == 1
    assert max_threads(available) == available


def blas_threads():
    """Return the numbers of threads of the libraries of BLAS."""
    found = threadpool_info()
    return [lib["num_threads"] for lib in found if lib["user_api"] == "blas"]


def test_all_libraries_of_blas_are_limited():
    with threadpool_limits(2, user_api="blas"):
        with one_blas_thread():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {2}


class Library:
    """A library of BLAS for all threads of Python, as that of NumPy may not be."""

    def __init__(self):
        self.num_threads = 2

    def limit(self, limits, user_api):
        self.before, self.num_threads = self.num_threads, limits
        return self

    def restore_original_limits(self):
        self.num_threads = self.before


def test_threads_that_limit_blas_at_once_restore_it(monkeypatch):
    """The second one begins before the first one ends, and ends after it."""
    library, inside = Library(), []
    monkeypatch.setattr(module, "_blas_libraries", lambda: library)
    meet = [Barrier(2, timeout=10) for _ in range(3)]

    def first():
        with one_blas_thread():
            meet[0].wait()
            meet[1].wait()
        meet[2].wait()

    def second():
        meet[0].wait()
        with one_blas_thread():
            meet[1].wait()
            meet[2].wait()
            inside.append(library.num_threads)

    threads = [Thread(target=first), Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert library.num_threads == 2
    assert inside == [1]


@pytest.mark.parametrize("failing", [0, 2])
def test_an_error_is_raised_after_all_threads_ended(failing):
    done, begun = [], Barrier(3)

    def work(first, last, t):
        begun.wait()
        if t == failing:
            raise ZeroDivisionError
        time.sleep(0.1)
        done.append(t)

    with pytest.raises(ZeroDivisionError):
        run_in_threads(work, 3, 3)
    assert sorted(done) == [t for t in range(3) if t != failing]


def test_an_interrupt_is_raised_after_all_threads_ended(monkeypatch):
    done, signals, join = [], [KeyboardInterrupt, KeyboardInterrupt], Thread.join

    def work(first, last, t):
        time.sleep(0.2 * t)
        done.append(t)

    def interrupted(thread):
        if signals:
            raise signals.pop()
        join(thread)

    monkeypatch.setattr(Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_in_threads(work, 3, 3)
    assert sorted(done) == [0, 1, 2]


def test_a_costly_loop_is_cut_so_that_others_can_end_it():
    parts = []

    def work(first, last, t):
        parts.append((first, last))
        if first == 4:
            raise ZeroDivisionError
        time.sleep(0.05)

    run_in_threads(lambda *part: parts.append(part[:2]), 1, 7, cost=1.7e5)
    assert parts == [(0, 2), (2, 4), (4, 6), (6, 7)]  # of at most half a second
    parts.clear()
    with pytest.raises(ZeroDivisionError):
        run_in_threads(work, 2, 200, cost=1e6)
    assert len(parts) < 20  # neither thread goes on


def test_an_interrupt_ends_a_costly_loop_of_all_threads():
    done = []

    def work(first, last, t):
        done.append(t)
        time.sleep(0.02)
        if len(done) > 10 and t == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_threads(work, 2, 1000, cost=1e6)
    assert len(done) < 30


def test_threads_start_after_the_main_thread_ended():
    script = """
import time
from threading import Thread
from skswsgp._compiled.threads import run_in_threads
def work():
    time.sleep(0.5)
    started = []
    run_in_threads(lambda first, last, t: started.append(t), 2, 2)
    print(sorted(started))
Thread(target=work).start()
"""
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stdout == "[0, 1]\n", result.stderr


# Fits, forks, and prints whether the child's fit is the same, and what it refuses.
FORK = """
import faulthandler, os
import numpy as np
from skswsgp import SWSGPRegressor
from skswsgp.solvers import Adam, Natural
from skswsgp._compiled.threads import parallel_region
X = np.random.default_rng(0).normal(size=(N_ROWS, 2))
def mean():
    params = {"n_inducing": 20, "n_neighbors": 4, "random_state": 0}
    params |= {"learn_kernel": False, "solver": SOLVER, "n_jobs": N_JOBS}
    model = SWSGPRegressor(**params)
    return model.fit(X, X[:, 0]).predict(X)
expected = mean()
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    faulthandler.dump_traceback_later(120, exit=True)
    print((mean() == expected).all(), flush=True)
    try:
        with parallel_region(2, exact=False):
            pass
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize(
    ("solver", "n_jobs", "n_rows"),  # as many as start threads, where there are any
    [("Natural()", 2, 2100), ("Adam(max_iter=1)", 1, 300)],
)
def test_a_forked_process_fits_without_openmp(solver, n_jobs, n_rows):
    code = FORK.replace("SOLVER", solver).replace("N_JOBS", str(n_jobs))
    code = code.replace("N_ROWS", str(n_rows))
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True)
    same, refusal = result.stdout.splitlines()
    assert same == "True"
    assert refusal.startswith("this process was forked after its parent had run par")
