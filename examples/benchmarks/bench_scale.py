"""How far does it go: many rows, many inducing points, and what a search costs?

    python bench_scale.py airline [--rows 200000] [--regression]
    python bench_scale.py adam --neighbors 100 [--inducing 100000] [--rows 0]
    python bench_scale.py memmap [--rows 10000000]
    python bench_scale.py inducing [--inducing 1000000] [--rows 2000000]
    python bench_scale.py search [--graph] [--inducing 100000] [--features 26]
    python bench_scale.py predict
    python bench_scale.py start

Each prints its figures: seconds of the processor (all threads together) and of the
clock, and the most memory that was resident beyond what the data take (Linux only).
`--threads` sets the number of threads.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from datasets import load, split
from sklearn.gaussian_process.kernels import RBF

import skswsgp
from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._covariance.compile import compile_kernel
from skswsgp._neighbors.search import NeighborSearch
from skswsgp.solvers import Adam

MEBIBYTE = 2**20
STATM = Path("/proc/self/statm")


def resident():
    """Return the resident memory in MiB, zero where the system does not say."""
    if not STATM.exists():
        return 0.0
    return int(STATM.read_text().split()[1]) * 4096 / MEBIBYTE


class Meter:
    """Seconds and peak memory of what runs in its context."""

    def __enter__(self):
        self.before = self.peak = resident()
        self.running = True
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        self.started = time.process_time(), time.perf_counter()
        return self

    def _watch(self):
        while self.running:
            self.peak = max(self.peak, resident())
            time.sleep(0.02)

    def __exit__(self, *error):
        self.cpu = time.process_time() - self.started[0]
        self.wall = time.perf_counter() - self.started[1]
        self.running = False
        self.thread.join()

    def report(self, what):
        """Print one line."""
        print(
            f"{what}: {self.cpu:.1f} s of processor, {self.wall:.1f} s, "
            f"{self.peak - self.before:.0f} MiB beyond the {self.before:.0f} before",
            flush=True,
        )


def warm_up(model):
    """Compile what a model needs, or read it from the cache."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 8)), rng.integers(2, size=300)
    model.fit(X, y).predict(X)


def airline(options):
    """Fit the default estimator to flights, 80 % of them."""
    X, y = load("airline")
    train, test = split(len(X))
    if options.rows:
        train = train[: options.rows]
    kind = SWSGPRegressor if options.regression else SWSGPClassifier
    model = kind(n_jobs=options.threads, random_state=0)
    warm_up(model)
    X_train, y_train, X_test, y_test = X[train], y[train], X[test], y[test]
    del X, y
    with Meter() as meter:
        model.fit(X_train, y_train)
    M, H = len(model.inducing_points_), model.n_neighbors_
    meter.report(f"airline, N = {len(train)}, M = {M}, H = {H}, fit")
    with Meter() as meter:
        p = predicted_share(model, X_test)
    meter.report(f"airline, {len(test)} predictions")
    error = np.mean((p > 0.5) != y_test)
    mnll = -np.mean(np.log(np.where(y_test == 1, p, 1 - p)))
    print(f"error {error:.4f}, MNLL {mnll:.4f}")


def predicted_share(model, X):
    """Return P(y = 1); of a regression, the mean within (0.001, 0.999)."""
    if hasattr(model, "predict_proba"):
        return model.predict_proba(X)[:, 1]
    return np.clip(model.predict(X), 1e-3, 1 - 1e-3)


def adam(options):
    """Steps of Adam with many inducing points on flights: their time, and epochs."""
    X, y = load("airline")
    train, test = split(len(X))
    test = test[:50_000]
    X_test, y_test, X, y = X[test], y[test], X[train], y[train]
    H, n = options.neighbors, 64 * 1600
    model = SWSGPClassifier(
        solver=Adam(batch_size=64, early_stopping=False),
        learn_kernel=options.learn_kernel, n_inducing=options.inducing or 100_000,
        n_neighbors=H, covariance="diag", inducing_points="random",
        n_jobs=options.threads, random_state=0,
    )  # fmt: skip
    warm_up(model.set_params(solver__max_iter=2))
    times = []
    for epochs in (1, 3):
        with Meter() as meter:
            model.set_params(solver__max_iter=epochs).fit(X[:n], y[:n])
        meter.report(
            f"N = {n}, M = {len(model.inducing_points_)}, H = {H}, {epochs} epochs"
        )
        times.append(meter.cpu)
    step = (times[1] - times[0]) / (2 * n / 64)
    print(f"{1e3 * step:.2f} ms a step of 64 rows whose neighbours are known")
    if options.rows == 0:
        return
    n = options.rows or len(X)
    with Meter() as meter:
        model.set_params(solver__max_iter=options.epochs).fit(X[:n], y[:n])
    meter.report(
        f"N = {n}, M = {len(model.inducing_points_)}, H = {H}, {options.epochs} epochs"
    )
    p = predicted_share(model, X_test)
    mnll = -np.mean(np.log(np.where(y_test == 1, p, 1 - p)))
    print(f"error {np.mean((p > 0.5) != y_test):.4f}, MNLL {mnll:.4f}")


def memmap(options):
    """Fit to rows of a memory map."""
    N, D, chunk = options.rows or 10_000_000, 8, 500_000
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "X"
        X = np.memmap(path, dtype=np.float32, mode="w+", shape=(N, D))
        y = np.empty(N)
        for first in range(0, N, chunk):
            X[first : first + chunk] = rng.normal(size=(len(X[first:][:chunk]), D))
            y[first : first + chunk] = np.sin(X[first : first + chunk, 0])
        X.flush()
        X = np.memmap(path, dtype=np.float32, mode="r", shape=(N, D))
        settings = {"solver": Adam(max_iter=1, batch_size=1024)}
        settings |= {"n_jobs": options.threads, "random_state": 0, "n_neighbors": 16}
        for learn_kernel in (False, True):
            how = settings | {"learn_kernel": learn_kernel}
            model = SWSGPRegressor(n_inducing=1024, **how)
            warm_up(model)
            with Meter() as meter:
                model.fit(X, y)
            meter.report(f"memory map, N = {N}, {learn_kernel=}, one epoch")
            print(f"resident at most {meter.peak:.0f} MiB")


def inducing(options):
    """Fit and predict with very many inducing points."""
    N, M = options.rows or 2_000_000, options.inducing or 1_000_000
    rng = np.random.default_rng(0)
    X = clustered(N, 8, rng).astype(np.float32)
    y = np.sin(X[:, 0]) + X[:, 1]
    model = SWSGPRegressor(
        solver=Adam(batch_size=1024, max_iter=1), learn_kernel=False, n_inducing=M,
        inducing_points="random", n_neighbors=16, n_jobs=options.threads,
        random_state=0, neighbor_search=options.search,
    )  # fmt: skip
    warm_up(model)
    with Meter() as meter:
        model.fit(X, y)
    meter.report(f"N = {N}, M = {len(model.inducing_points_)}, H = 16, one epoch")
    with Meter() as meter:
        model.predict(X[:20_000], return_std=True)
    meter.report("20,000 predictions")


def clustered(n, D, rng):
    """Return rows around 50 centres."""
    return 3 * rng.normal(size=(50, D))[rng.integers(50, size=n)] + rng.normal(
        size=(n, D)
    )


def search(options):
    """Microseconds a row of each kind of search, and its recall."""
    kinds = ["scan"] + ["approximate"] * options.graph
    for M in [options.inducing] if options.inducing else [1_000, 10_000, 100_000]:
        for D in [options.features] if options.features else [2, 4, 8, 26, 57]:
            rng = np.random.default_rng(0)
            points = clustered(M + 4096, D, rng)
            Z, X = points[:M], points[M:]
            struct = compile_kernel(RBF(np.ones(D)), D, "float64").struct
            for kind in kinds:
                with Meter() as meter:
                    found = NeighborSearch(
                        Z, struct, n_neighbors=options.neighbors, search=kind,
                        n_threads=options.threads,
                    )  # fmt: skip
                    found.query(X[:64])
                made, times = meter.cpu, []
                for n in (64, 2048):
                    with Meter() as meter:
                        for first in range(0, 2048, n):
                            found.query(X[first : first + n])
                    times.append(f"{1e6 * meter.cpu / 2048:.1f}")
                lists = found.query(X[2048:2304])
                if kind == "scan":
                    exact = lists
                hits = sum(map(len, map(np.intersect1d, exact, lists)))
                print(
                    f"M = {M}, D = {D}, {kind}: made in {made:.1f} s, {times} us a row "
                    f"(64, 2048 at once), recall {hits / lists.size:.4f}",
                    flush=True,
                )


def predict(options):
    """Predictions a second with their standard deviation, search included."""
    rng = np.random.default_rng(0)
    M, H, N = options.inducing or 10_000, 16, options.rows or 400_000
    X = rng.normal(size=(N, 8))
    y = np.sin(X[:M, 0]) + 0.1 * rng.normal(size=M)
    model = SWSGPRegressor(
        n_inducing=M, n_neighbors=H, inducing_points="random", n_jobs=options.threads
    )
    model.fit(X[:M], y)
    for with_std in (True, False):
        model.predict(X[:64], return_std=with_std)
        with Meter() as meter:
            model.predict(X, return_std=with_std)
        print(
            f"M = {M}, H = {H}, D = 8, return_std={with_std}: {N / meter.wall:.0f} "
            f"rows a second, {N / meter.cpu:.0f} a second of processor"
        )


def start(options):
    """Seconds of the processor until new processes have imported, and fitted."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(skswsgp.__file__).parent
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, Path(folder, "skswsgp"), ignore=ignored)
        both = process_seconds(folder, "import sklearn.gaussian_process, numba")
        ours = process_seconds(folder, "from skswsgp import SWSGPRegressor")
        print(f"import: {ours:.2f} s, {ours / both:.2f} times scikit-learn and numba")
        for _ in range(4):  # the first compiles
            process_seconds(folder, TWO_FITS)
        print("case                     cold     warm  compiling")
        for case, (n, fit) in FIRST_FITS.items():
            for path in Path(folder).rglob("*.nb[ic]"):
                path.unlink()
            code = FIRST_ROWS.format(n) + fit
            cold, warm = (process_seconds(folder, code) for _ in range(2))
            print(f"{case:22} {cold:6.1f} s {warm:6.1f} s {cold - warm:8.1f} s")


FIRST_ROWS = """
import numpy as np
from skswsgp import SWSGPClassifier, SWSGPRegressor
X = np.random.default_rng(0).uniform(-2.0, 2.0, size=({}, 6))
f = np.sin(X[:, 0] + X[:, 1]) + 0.3 * X[:, 2]
y = f + 0.1 * np.random.default_rng(1).normal(size=len(X))
"""
OF_VALUES = "SWSGPRegressor(random_state=0, n_jobs=1).fit(X, y)"
OF_LABELS = "SWSGPClassifier(random_state=0, n_jobs=1).fit(X, y > 0.0)"
OF_ADAM = OF_VALUES.replace("n_jobs", "solver='adam', learn_kernel=False, n_jobs")
TWO_FITS = f"""{FIRST_ROWS.format(1000)}
from time import process_time as now
start = now()
{OF_VALUES}
between = now()
{OF_VALUES}
more = between - start - (now() - between)
print(f"1,000 rows: a first fit takes {{more:.2f}} s more than a second one")
"""
FIRST_FITS = {  # rows, and code
    "442 rows": (442, OF_VALUES),
    "2,000 rows": (2000, OF_VALUES),
    "7,500 rows": (7500, OF_VALUES),
    "569 labels": (569, OF_LABELS),
    "5,000 labels": (5000, OF_LABELS),
    "2,000 rows, Adam": (2000, OF_ADAM),
}


def process_seconds(folder, code, repeats=3):
    """Return the least seconds of processes that run code, those of fits only once."""
    times = []
    for _ in range(1 if "fit" in code else repeats):
        before = os.times()
        env = os.environ | {"PYTHONPATH": str(folder)}
        subprocess.run([sys.executable, "-c", code], env=env, cwd=folder, check=True)
        after = os.times()
        times.append(
            after.children_user + after.children_system
            - before.children_user - before.children_system
        )  # fmt: skip
    return min(times)


PARTS = {
    f.__name__: f for f in (airline, adam, memmap, inducing, search, predict, start)
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--inducing", type=int)
    parser.add_argument("--features", type=int, help="D, for 'search'")
    parser.add_argument("--neighbors", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=1, help="over all, for 'adam'")
    parser.add_argument("--learn-kernel", action="store_true", help="for 'adam'")
    parser.add_argument(
        "--search", default="exact", help="neighbor_search of 'inducing'"
    )
    parser.add_argument("--regression", action="store_true")
    parser.add_argument("--graph", action="store_true", help="time PyNNDescent as well")
    arguments = parser.parse_args()
    PARTS[arguments.part](arguments)
