"""How do a training step and a fit grow with N, M, H, D and threads?

A step of Adam as in bench_step.py (n = 64, float64, diagonal S, fixed Z, Matern 5/2)
from M = 10,000, H = 32, D = 8 and one thread, one of them changed at a time. N: `fit`
with default arguments on so many rows of a smooth function of eight features.
"""

import os

import numpy as np
from bench_step import Step, make_case
from report import Table, arguments, clock, least_times, lines
from threadpoolctl import threadpool_limits

from skswsgp import SWSGPRegressor
from skswsgp._point.adam_step import STEPS_PER_BLOCK

COLUMNS = {"what": "", "size": ",d", "milliseconds": ",.3f"}


def step_time(n_threads=1, H=32, **sizes):
    """Return milliseconds a step."""
    step = Step(make_case(H, **sizes), n_threads)
    return least_times([step.block], n_threads)[0] / STEPS_PER_BLOCK


def fit_time(N, n_threads=1):
    """Return milliseconds of one fit with default arguments."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 8))
    y = np.sin(X[:, :4] @ [2.0, 1.0, 0.5, 0.25]) + 0.1 * rng.standard_normal(N)
    now = clock(n_threads)
    started = now()
    SWSGPRegressor(n_jobs=n_threads, random_state=0).fit(X, y)
    return 1e3 * (now() - started)


def run(table, limit, n_threads):
    """Add all rows; M goes up to `limit`, N to a tenth of it."""
    for M in (1000, 10_000, 100_000, 1_000_000):
        if M <= limit:
            table.add("step, M", M, step_time(M=M))
    for H in (4, 8, 16, 32, 64, 128):
        table.add("step, H", H, step_time(H=H))
    for D in (2, 4, 8, 16, 32, 64):
        table.add("step, D", D, step_time(D=D))
    for threads in range(1, n_threads + 1):
        table.add("step, threads", threads, step_time(threads))
    fit_time(500)  # reads compiled code
    for N in (2000, 5000, 10_000, 20_000, 50_000, 100_000):
        if N <= limit / 10:
            table.add("fit, N", N, fit_time(N))


if __name__ == "__main__":
    parser = arguments(__doc__, os.cpu_count())
    parser.add_argument("--limit", type=int, default=500_000, help="of M, tenth: of N")
    options = parser.parse_args()
    table = Table("growth", COLUMNS)
    with threadpool_limits(1):
        run(table, options.limit, options.threads)
    ys = ["milliseconds"]
    table.save(options.out, lines, panel="what", x="size", ys=ys, sharey=False)
