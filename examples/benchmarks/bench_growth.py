"""How do seconds, memory and error of a fit grow with the number of rows?

Default fits of SWSGP and of boosting, each in a process of its own, on friedman1 and a
wave of ten columns in noise of variance 1. Seconds are those of `fit`, after one of few
rows that loads compiled code. Memory is the largest of the process, with the table. The
error is that of the function at 20,000 new rows, in its deviations. More than 1,000,000
rows lie in a memory map of float32: ``--limit 10000000`` takes an hour of two cores.

With --steps: milliseconds a step of Adam as in bench_step.py (n = 64, float64, diagonal
S, fixed Z, Matern 5/2) from M = 10,000, H = 32, D = 8 and one thread, one of them
changed at a time.
"""

import os
import resource
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from report import Table, arguments, clock, label_decades, least_times, lines

COLUMNS = {"system": "", "rows": ",d", "seconds": ",.1f", "GB": ".2f", "error": ".4f"}
STEPS = {"what": "", "size": ",d", "milliseconds": ",.3f"}
N_NEW, D = 20_000, 10
IN_MEMORY = 1_000_000  # rows beyond which the table is a file


def function(X):
    """Return friedman1 and a wave at rows of X (n, 10)."""
    f = 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20.0 * (X[:, 2] - 0.5) ** 2
    wave = 3.0 * np.sin(12.0 * X[:, 5] + 4.0 * X[:, 6])
    return f + 10.0 * X[:, 3] + 5.0 * X[:, 4] + wave


def make_table(n, folder=None):
    """Return X (n, 10), y, new rows, and the function there.

    A long X is in a file of the folder, if there is one.
    """
    rng = np.random.RandomState(0)
    new, y = rng.uniform(size=(N_NEW, D)), rng.normal(size=n)
    X = np.empty((n, D))
    if n > IN_MEMORY and folder is not None:
        how = {"mode": "w+", "dtype": np.float32, "shape": (n, D)}
        X = np.lib.format.open_memmap(Path(folder, "X.npy"), **how)
    for first in range(0, n, IN_MEMORY):
        rows = slice(first, first + IN_MEMORY)
        X[rows] = rng.uniform(size=(min(IN_MEMORY, n - first), D))
        y[rows] += function(X[rows].astype(np.float64))
    return X, y, new, function(new)


def swsgp(n_threads):
    """Return the default of this package."""
    from skswsgp import SWSGPRegressor

    return SWSGPRegressor(n_jobs=n_threads, random_state=0)


def catboost(n_threads):
    """Return CatBoost's default."""
    from catboost import CatBoostRegressor

    quiet = {"verbose": 0, "allow_writing_files": False}
    return CatBoostRegressor(thread_count=n_threads, random_seed=0, **quiet)


def lightgbm(n_threads):
    """Return LightGBM's default."""
    from lightgbm import LGBMRegressor

    return LGBMRegressor(n_jobs=n_threads, random_state=0, verbose=-1)


def scikit_learn(n_threads):
    """Return scikit-learn's boosting, whose threads the environment sets."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(random_state=0)


SYSTEMS = {
    "SWSGP": swsgp,
    "CatBoost": catboost,
    "LightGBM": lightgbm,
    "scikit-learn": scikit_learn,
}


def measure(system, n, n_threads):
    """Return seconds, gigabytes and the error of a fit of n rows."""
    with tempfile.TemporaryDirectory() as folder:
        X, y, new, f = make_table(n, folder)
        SYSTEMS[system](n_threads).fit(np.array(X[:1000]), y[:1000])
        now = clock(n_threads)
        started = now()
        model = SYSTEMS[system](n_threads).fit(X, y)
        seconds = now() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    error = np.sqrt(np.mean((model.predict(new) - f) ** 2)) / np.std(f)
    return seconds, memory, error


def run(table, names, limit, n_threads):
    """Add a row for each system and each size up to `limit`."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[variable] = str(n_threads)  # of processes that start from now on
    spawn, n = get_context("spawn"), 1000
    while n <= limit:
        for name in names:
            with ProcessPoolExecutor(1, mp_context=spawn) as alone:
                table.add(name, n, *alone.submit(measure, name, n, n_threads).result())
        n *= 10


def draw(plt, rows):
    """Draw seconds, memory and error against the rows, a line a system."""
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.4), layout="constrained")
    labels = {"seconds": "seconds", "GB": "memory in GB", "error": "error of f"}
    for ax, (column, label) in zip(axes, labels.items(), strict=True):
        for name in dict.fromkeys(row["system"] for row in rows):
            part = [row for row in rows if row["system"] == name]
            ax.loglog(
                [row["rows"] for row in part], [row[column] for row in part], "o-",
                label=name, linewidth=2.0 if name == "SWSGP" else 1.0,
            )  # fmt: skip
        ax.set(xlabel="rows", ylabel=label)
        label_decades(plt, ax.yaxis)
        ax.grid(alpha=0.3)
    axes[-1].legend(loc="lower left")
    return figure


def step_time(n_threads=1, H=32, **sizes):
    """Return milliseconds a step of Adam."""
    from bench_step import Step, make_case

    from skswsgp._adam.schedule import STEPS_PER_BLOCK

    step = Step(make_case(H, **sizes), n_threads)
    return least_times([step.block], n_threads)[0] / STEPS_PER_BLOCK


def run_steps(table, limit, n_threads):
    """Add a row for each number of points up to `limit`, of neighbours and columns."""
    for M in (1000, 10_000, 100_000, 1_000_000):
        if M <= limit:
            table.add("step, M", M, step_time(M=M))
    for H in (4, 8, 16, 32, 64, 128):
        table.add("step, H", H, step_time(H=H))
    for D in (2, 4, 8, 16, 32, 64):
        table.add("step, D", D, step_time(D=D))
    for threads in range(1, n_threads + 1):
        table.add("step, threads", threads, step_time(threads))


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--limit", type=int, default=1_000_000, help="most rows or M")
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, choices=SYSTEMS)
    parser.add_argument("--steps", action="store_true", help="time steps of Adam")
    options = parser.parse_args()
    if options.steps:
        table = Table("growth_of_steps", STEPS)
        run_steps(table, options.limit, options.threads)
        how = {"panel": "what", "x": "size", "ys": ["milliseconds"], "sharey": False}
        table.save(options.out, lines, **how)
    else:
        table = Table("growth", COLUMNS)
        run(table, options.systems, options.limit, options.threads)
        table.save(options.out, draw)
