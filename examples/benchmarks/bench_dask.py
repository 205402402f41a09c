"""How long does a fit of dask collections take, and how many bytes does it move?

    python bench_dask.py [--workers 0 1 2] [--rows N] [--blocks 8] [--inducing 2000]
    python bench_dask.py --generated --rows 1000000

Rows of airline are classified, late or not: in memory by as many threads as there are
cores (0), or in blocks on so many workers of one thread. Sums are those over all rows,
and bytes what passes the loopback interface meanwhile, other programs' included. With
--generated they are those of bench_growth.py, for the default of a regression, whose
error is that of the function in its deviations.
"""

import argparse
import time

import dask.array as da
import numpy as np
import psutil
from bench_growth import make_table
from datasets import load, split
from distributed import Client, LocalCluster
from sklearn.metrics import log_loss

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.dask import DaskSWSGPClassifier, DaskSWSGPRegressor
from skswsgp.dask.workers import ClusterWorkers


class Sums:
    """Counts sums over blocks, their seconds and the bytes that move meanwhile."""

    def __init__(self):
        self.count, self.seconds, self.bytes = 0, 0.0, 0

    def watch(self, total):
        """Return `total`, counted."""

        def counted(*arguments, **options):
            start, before = time.perf_counter(), bytes_sent()
            out = total(*arguments, **options)
            self.seconds += time.perf_counter() - start
            self.bytes += bytes_sent() - before
            self.count += 1
            return out

        return counted


def bytes_sent():
    """Return the bytes that have passed the loopback interface."""
    return psutil.net_io_counters(pernic=True)["lo"].bytes_sent


def report(title, options, train, test):
    """Fit, and print times, bytes and the log loss or the error of other rows."""
    in_blocks = isinstance(train[0], da.Array)
    if options.generated:
        model = (DaskSWSGPRegressor if in_blocks else SWSGPRegressor)(random_state=0)
    else:
        model = (DaskSWSGPClassifier if in_blocks else SWSGPClassifier)(
            n_inducing=options.inducing,
            inducing_points="random",
            covariance="diag",
            random_state=0,
        )
    sums, total = Sums(), ClusterWorkers.total
    ClusterWorkers.total = sums.watch(total)
    start = time.perf_counter()
    model.fit(*train)
    seconds = time.perf_counter() - start
    ClusterWorkers.total = total
    X, y = test
    if options.generated:
        score = "error", np.std(model.predict(X) - y) / np.std(y)
    else:
        score = "log loss", log_loss(y, model.predict_proba(X))
    print(
        f"{title}: {seconds:.1f} s, {sums.count} sums of {sums.seconds:.1f} s and "
        f"{sums.bytes / 1e6:.1f} MB, {model.n_iter_} rounds, {score[0]} {score[1]:.5f}",
        flush=True,
    )


def main():
    """Print a line for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, default=1_760_000)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--inducing", type=int, default=2000)
    parser.add_argument("--generated", action="store_true")
    options = parser.parse_args()
    if options.generated:
        X, y, *test = make_table(options.rows)
        train = X, y
    else:
        X, y = load("airline")
        train, rest = split(len(X))
        train, rest = np.sort(train[: options.rows]), rest[:50_000]
        train, test = (X[train], y[train]), (X[rest], y[rest])
    size = -(-len(train[0]) // options.blocks)
    for n in options.workers:
        if n == 0:
            report("in memory", options, train, test)
            continue
        how = {"threads_per_worker": 1, "dashboard_address": ":0"}
        with LocalCluster(n_workers=n, **how) as cluster, Client(cluster):
            blocks = [
                da.from_array(each, chunks=(size, *each.shape[1:])) for each in train
            ]
            report(f"{n} workers", options, blocks, test)


if __name__ == "__main__":  # workers import this file
    main()
