"""
Checks and timings of the engine of a GPU
=========================================

``python examples/benchmarks/bench_cuda.py`` needs the extra ``cuda12`` or ``cuda13``,
and runs from a checkout of the repository. Its parts answer, in this order: does the
engine run and is it equal to that of the CPU (``checks``), how long does a step of Adam
take and which of its launches (``steps``), a product and a search (``products``,
``search``), the first fit of a process (``first``), whole fits and predictions
(``fits``, on tables of the folder SKSWSGP_DATA or random ones in their place, after a
fit that compiles). All parts are run unless some are named by ``--parts``. After
``--limit`` seconds nothing new begins, which counts as a failure. Steps and fits are
timed with each number of ``--cpu-threads``, all others with the last one, over which
gains are counted. The exit status says whether all
checks passed and all goals were reached.

With ``--numpy`` arrays of NumPy take the place of a GPU, as in the tests, and problems
are small: that tries the script, and its times say nothing.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from skswsgp._adam.steps import make_steps
from skswsgp._covariance.compile import compile_kernel
from skswsgp._covariance.program import kernel_of
from skswsgp._engine.select import make_engine
from skswsgp._neighbors.search import NeighborSearch
from skswsgp._point.likelihood_records import make_likelihood
from skswsgp._point.state import Batch, Model
from skswsgp.cuda import device as gpu
from skswsgp.cuda.factors import Factors

sys.path.insert(0, str(Path(__file__).parents[2]))  # where nothing is installed

from datasets import load, split
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.kernels import ArcCosine
from skswsgp.solvers import Adam

FLOAT64_ERROR, FLOAT32_ERROR = 1e-7, 2e-2  # relative, after two steps of Adam
STEP_GOAL = 0.3  # milliseconds, n = 64, H = 100, M = 100,000 in float32
GAIN_GOAL = 10.0  # times as fast as 16 threads, n = 4096, H = 32, and regressions
CLASSES_GOAL, PREDICT_GOAL = 4.0, 20.0  # such gains of classes, of 50,000 predictions
FIRST_GOAL = 15.0  # seconds from the start of a process to the end of its first fit
DEVICES = "cpu", "cuda"
TABLES = {  # rows and columns, and whether y are classes
    "kin40k": (40_000, 8, False),
    "eeg": (14_980, 14, True),
    "protein": (45_730, 9, False),
    "flights": (277_346, 13, False),
    "generated": (1_000_000, 10, False),
    "airline": (200_000, 8, True),
}
FIRST_FIT = """
import os
import numpy as np
from skswsgp import SWSGPRegressor
from skswsgp.solvers import Adam
X = np.random.default_rng(0).normal(size=(int(os.environ["ROWS"]), 8))
model = SWSGPRegressor(solver=Adam(max_iter=1), device=os.environ["DEVICE"])
model.fit(X, np.sin(X[:, 0]))
"""
failures = []


def report(good, *words):
    """Print a line, and store its words if the check failed."""
    print("ok  " if good else "BAD ", *words, flush=True)
    if not good:
        failures.append(words)


def make_problem(M, H, n, steps, dtype, likelihood="gaussian", full=False, D=8):
    """Return a random model and rows for some steps of training."""
    rng = np.random.default_rng(0)
    Q = {"gaussian": 2, "bernoulli": 1, "softmax": 3}[likelihood] if M < 1000 else 1
    kernel = ConstantKernel(1.2) * Matern(np.full(D, 1.5), nu=2.5)
    Z = rng.normal(size=(M, D)).astype(dtype)
    root = 0.5 * np.eye(M if full else 0)[None]
    model = Model(
        *compile_kernel(kernel, D, np.dtype(dtype)).struct,
        *make_likelihood(likelihood, Q, np.dtype(dtype)),
        Z=Z,
        m=rng.normal(size=(M, Q)).astype(dtype),
        s=np.full((0 if full else M, Q), 0.3, dtype),
        L=np.repeat(root, Q, axis=0).astype(dtype)
        if full
        else np.zeros((0, M, M), dtype),
        noise=np.full(Q if likelihood == "gaussian" else 0, 0.3, dtype),
        jitter=1e-4,
        total_weight=1e5,
        kl_weight=1.0,
        full=full,
        train_inducing=False,
    )
    X = rng.normal(size=(n * steps, D)).astype(dtype)
    y = rng.normal(size=(n * steps, Q)).astype(dtype)
    if likelihood == "bernoulli":
        y = np.sign(y)
    elif likelihood == "softmax":
        y = rng.integers(3, size=(n * steps, 1)).astype(dtype)
    search = NeighborSearch(Z, kernel_of(model), n_neighbors=H, search="scan")
    weight = np.ones(n * steps, dtype)
    return model, Batch(X, y, weight, search.query(X).astype(np.int32))


def prepared(device, model, H, n, n_threads):
    """Return an engine and its steps of Adam."""
    copy = Model(*(np.copy(a) if isinstance(a, np.ndarray) else a for a in model))
    engine = make_engine(device, copy, H, n_threads)
    P, D = len(model.params), model.Z.shape[1]
    free, bounds = np.ones(P, bool), np.tile([-9.0, 9.0], (P, 1))
    return engine, make_steps(engine, n, free, bounds, np.ones(D))


def relative_error(actual, expected):
    """Return the norm of the difference, divided by the norm of `expected`."""
    actual, expected = (np.asarray(a, np.float64) for a in (actual, expected))
    return np.linalg.norm(actual - expected) / max(np.linalg.norm(expected), 1e-300)


def evaluations(device, model, batch, H, n, n_threads):
    """Return results of an engine for rows by name, and its model after two steps."""
    run, adam = prepared(device, model, H, n, n_threads)
    X, active = batch.X, batch.active
    q = run.predict(X, active, True)
    found = {
        "predict": q,
        "weights": run.conditional_weights(X, active),
        "expectations": run.variational_expectations(batch.y, *q),
        "bound": run.bound(batch),
    }
    adam.take(batch, n, np.array([0.05, 0.04]))
    after = run.model
    arrays = adam.finish_epoch(), after.m, after.s, after.L, after.params, after.noise
    run.close()
    return found | {"steps": arrays}


def check_rows(n_threads, M=200, H=37, n=50):
    """Print the relative errors of each operation, and whether it repeats."""
    for dtype in ("float64", "float32"):
        for likelihood in ("gaussian", "bernoulli", "softmax"):
            for full in (False, True):
                model, batch = make_problem(M, H, n, 2, dtype, likelihood, full)
                given = model, batch, H, n, n_threads
                cpu, first, again = (
                    evaluations(device, *given) for device in ("cpu", "cuda", "cuda")
                )
                errors = {
                    name: max(map(relative_error, first[name], cpu[name]))
                    for name in cpu
                }
                text = "  ".join(f"{k} {v:.0e}" for k, v in errors.items())
                limit = FLOAT64_ERROR if dtype == "float64" else FLOAT32_ERROR
                name = f"{dtype} {likelihood}{' full' * full}"
                report(max(errors.values()) < limit, name, text)
                same = all(
                    np.array_equal(a, b)
                    for name in first
                    for a, b in zip(first[name], again[name], strict=True)
                )
                report(same, name, "repeats to the bit")


def engines(n_threads):
    """Yield an engine of each device for a small model, and close it."""
    model = make_problem(10, 2, 2, 1, "float64")[0]
    for device in DEVICES:
        engine = make_engine(device, model, 2, n_threads)
        yield engine
        engine.close()


def search_of(engine, M, D, H, dtype, kind, n_threads):
    """Return an exact search among M points, and a function that makes rows.

    Points are normal, or those of a grid, whose ties must be broken alike; "kernel" is
    a search by kernel value among normal ones.
    """
    rng = np.random.default_rng(0)

    def points(n):
        if kind == "grid":
            return rng.integers(-3, 4, size=(n, D)).astype(dtype)
        return rng.normal(size=(n, D)).astype(dtype)

    kernel = ArcCosine(1) if kind == "kernel" else RBF(2.0)
    kernel = compile_kernel(kernel, D, np.dtype(dtype)).struct
    how = {"n_neighbors": H, "n_threads": n_threads, "make_scan": engine.make_scan}
    return NeighborSearch(points(M), kernel, search="scan", **how), points


def check_search(n_threads, M=5000, D=6, n=3000, H=37):
    """Print which fraction of the lists of neighbours and predecessors agree."""
    for dtype in ("float64", "float32"):
        for kind in ("normal", "grid", "kernel"):
            found = []
            for engine in engines(n_threads):
                search, points = search_of(engine, M, D, H, dtype, kind, n_threads)
                found.append((search.query(points(n)), search.predecessors()[H:]))
            same = [np.mean(a == b) for a, b in zip(*found, strict=True)]
            words = f"search {dtype} {kind}: {same[0]:.6f} and {same[1]:.6f} the same"
            report(min(same) == 1.0 if kind == "grid" else min(same) > 0.9999, words)


def products_of(engine, M, D, n_threads):
    """Return the products of an engine with the covariance of M points."""
    Z = np.random.default_rng(0).normal(size=(M, D))
    kernel = ConstantKernel(1.2) * Matern(np.full(D, 1.5), nu=2.5)
    struct = compile_kernel(kernel, D, np.dtype(np.float64)).struct
    return engine.make_products(struct, Z, n_threads)


def check_products(n_threads, M=3001, D=6, n=700):
    """Print the relative errors of products with covariances."""
    rng, found = np.random.default_rng(1), []
    X, u = rng.normal(size=(n, D)), rng.normal(size=(M, 3))
    for engine in engines(n_threads):
        each = products_of(engine, M, D, n_threads)
        found.append((each.multiply(X, u), each.multiply_off_diagonal(u)))
    errors = [relative_error(b, a) for a, b in zip(*found, strict=True)]
    report(max(errors) < 1e-12, f"products: {errors[0]:.0e} and {errors[1]:.0e}")


def check_fits(n_threads):
    """Print the relative errors of fits, and how much memory they leave occupied."""
    n = sized(3000, 400)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)
    steps = {"batch_size": 64, "max_iter": 3}
    adam = {"solver": Adam(**steps)}
    cases = {
        "adam": (0.5, adam),
        "adam, streamed": (0.0, adam),
        "adam, Z trained": (0.5, {"solver": Adam(**steps, optimize_inducing=True)}),
        "natural": (0.5, {"solver": "natural"}),
        "natural, with its start": (0.5, {"solver": "natural", "learn_kernel": True}),
    }
    if not options.numpy:  # the CPU takes few points in place of so few rows
        more = {"n_inducing": "auto", "n_neighbors": "all"}
        cases["means from all rows"] = 0.5, more
    settings = {"n_inducing": sized(300, 50), "n_neighbors": 16, "random_state": 0}
    settings |= {"learn_kernel": False, "n_jobs": n_threads}
    left = []
    for name, (fraction, more) in cases.items():
        gpu.MEMORY_FRACTIONS["data"] = fraction
        results = []
        for device in ("cpu", "cuda", "cuda"):
            model = SWSGPRegressor(device=device, **settings | more).fit(X, y)
            results.append((*model.predict(X, return_std=True), model.lower_bound_))
            if device == "cuda":
                left.append(gpu.get_device().free_memory())
        left[-2:] = [left[-2] - left[-1]]  # between two fits of the same kind
        first, *others = results
        error = max(
            relative_error(a, b) for r in others for a, b in zip(r, first, strict=True)
        )
        same = all(np.array_equal(a, b) for a, b in zip(*others, strict=True))
        report(error < 1e-4, f"fit, {name}: {error:.0e} from the CPU")
        report(same, f"fit, {name}: repeats to the bit")
    lost = max(left) / 1e6
    report(lost < 50.0, f"memory that a second fit leaves behind: {lost:.1f} MB")


def check_all(n_threads):
    """Compare everything with the CPU."""
    for check in (check_rows, check_search, check_products, check_fits):
        check(n_threads)


def sized(large, few):
    """Return a size, or a small one on arrays of NumPy."""
    return few if options.numpy else large


def parts_of(work):
    """Yield the functions that a step calls one after the other."""
    for part in work.launches:
        factors = getattr(part, "__self__", None)
        if not isinstance(factors, Factors):
            yield part
            continue
        device = factors.device
        yield from (factors.shift, partial(device.cholesky, factors.L, factors.info))
        yield from (factors.check, partial(device.fetch, factors.jitter))
        yield from factors.launches


def arrays_in(arguments):
    """Return how many arrays there are among the arguments of a launch."""
    if isinstance(arguments, tuple):
        return sum(map(arrays_in, arguments))
    return int(hasattr(arguments, "strides"))


def time_parts(work, steps):
    """Print what a step calls, and the milliseconds of each, waited for."""
    device, times = work.device, {}
    wait = sized(None, lambda: None) or device.xp.cuda.runtime.deviceSynchronize
    parts = list(parts_of(work))
    launches = [part for part in parts if hasattr(part, "arrays")]
    arrays = sum(arrays_in(part.arrays) for part in launches)
    words = f"{len(launches)} launches of {arrays} arrays, prepared"
    print(f"  a step: {words}; {len(parts) - len(launches)} calls of libraries")
    for _ in range(steps):
        for part in parts:
            wait()
            start = time.perf_counter()
            part()
            wait()
            name = getattr(part, "name", getattr(part, "func", part).__name__)
            times[name] = times.get(name, 0.0) + time.perf_counter() - start
    slowest = sorted(times.items(), key=lambda part: -part[1])
    text = ", ".join(f"{name} {1e3 * t / steps:.3f}" for name, t in slowest)
    print(f"  of which, each waited for: {text}", flush=True)


def time_steps(M, H, n, dtype, steps=64):
    """Print milliseconds of a step on each device; return the seconds.

    Those of the CPU are for the last number of threads.
    """
    model, batch = make_problem(M, H, n, steps, dtype)
    rates, seconds = np.full(steps, 1e-3), {}
    print(f"\nn={n} H={H} M={M} {dtype}, ms a step")
    for device, n_threads in runs():
        engine, adam = prepared(device, model, H, n, n_threads)
        times = []
        for _ in range(3 if device == "cuda" else 2):  # the first one compiles
            start = time.perf_counter()
            adam.take(batch, n, rates)
            adam.finish_epoch()  # waits
            times.append((time.perf_counter() - start) / steps)
        seconds[device] = min(times[1:])
        first = f"first {steps * times[0]:.1f} s for {steps} steps"
        name = f"{device} {n_threads}" if device == "cpu" else device
        print(f"  {name:7s} {1e3 * seconds[device]:8.3f}, {first}", flush=True)
        if device == "cuda":
            time_parts(adam._work, steps)
        engine.close()
    return seconds


def time_all_steps(n_threads):
    """Print times of training steps, and whether the goals are reached."""
    for dtype in ("float32", "float64"):
        few, many = sized((100_000, 100, 64), (200, 20, 8)), sized(4096, 32)
        small = time_steps(*few, dtype, steps=sized(64, 4))
        large = time_steps(sized(10_000, 200), 32, many, dtype, steps=sized(16, 2))
        if dtype == "float32" and not options.numpy:
            best, gain = 1e3 * small["cuda"], large["cpu"] / large["cuda"]
            report(best <= STEP_GOAL, f"{best:.3f} ms, at most {STEP_GOAL} wanted")
            report(gain >= GAIN_GOAL, f"{gain:.1f} times as fast as the CPU")


def time_products(n_threads, D=8):
    """Print milliseconds of a product with the covariance of M points, and its rate."""
    print("\nproducts with the covariance of all rows, milliseconds")
    for M in sized((10_000, 40_000), (300,)):
        u = np.random.default_rng(1).normal(size=(M, 1))
        for device, engine in zip(DEVICES, engines(n_threads), strict=True):
            each = products_of(engine, M, D, n_threads)
            each.multiply_off_diagonal(u)  # compiles
            start = time.perf_counter()
            each.multiply_off_diagonal(u)
            seconds = time.perf_counter() - start
            rate = f"{M**2 / seconds:.1e} pairs/s"
            print(f"  M={M} {device:4s} {1e3 * seconds:9.2f}, {rate}", flush=True)


def time_searches(n_threads, n=50_000):
    """Print microseconds for each row of a search on both devices."""
    print("\nexact search, microseconds a row")
    cases = (100_000, 8, 16), (100_000, 8, 100), (1_000_000, 8, 16)
    for M, D, H in sized(cases, [(500, 8, 16)]):
        for device, engine in zip(DEVICES, engines(n_threads), strict=True):
            how = M, D, H, "float32", "normal", n_threads
            search, points = search_of(engine, *how)
            search.query(points(1000))  # compiles
            start = time.perf_counter()
            search.query(points(sized(n, 500)))
            micro = 1e6 * (time.perf_counter() - start) / sized(n, 500)
            print(f"  M={M} D={D} H={H} {device:4s} {micro:8.2f}", flush=True)


def table(name):
    """Return (X, y) of a table and where it is from; generated if it is not here."""
    n, D, classes = TABLES[name]
    try:
        X, y = load(name)
    except (OSError, ValueError):
        rng = np.random.default_rng(0)
        X = rng.uniform(size=(n, D))
        f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
        f += 10 * X[:, 3] + 5 * X[:, 4] + 3 * np.sin(12 * X[:, 5] + 4 * X[:, 6])
        y = f + rng.normal(size=n)
        return X, (y > np.median(y)).astype(int) if classes else y, "generated"
    rows = np.random.default_rng(0).permutation(len(X))[:n]
    return X[rows], y[rows], "loaded"


def time_first_fit(n_threads):
    """Print seconds of a process that fits, without compiled code and with it."""
    with tempfile.TemporaryDirectory() as folder:
        names = "NUMBA_CACHE_DIR", "CUPY_CACHE_DIR", "CUDA_CACHE_PATH"
        caches = {name: f"{folder}/{name}" for name in names}
        caches |= {"DEVICE": sized("cuda", "cpu"), "ROWS": str(sized(20_000, 500))}
        for state in ("nothing compiled", "everything compiled"):
            start = time.perf_counter()
            command = [sys.executable, "-c", FIRST_FIT]
            done = subprocess.run(command, env=os.environ | caches)
            seconds = time.perf_counter() - start
            good = done.returncode == 0 and (options.numpy or seconds <= FIRST_GOAL)
            report(good, f"first fit, {state}: {seconds:.1f} s")


def time_fits(n_threads):
    """Print seconds and errors of default fits and predictions on both devices."""
    print("\ndefault fits, seconds; 50,000 predictions, seconds")
    warmed = set()
    for name, (*_, classes) in TABLES.items():
        if late():
            report(False, f"{name}: no time is left")
            continue
        *rows, source = table(name)
        X, y = (array[: sized(len(array), 300)] for array in rows)
        kind = SWSGPClassifier if classes else SWSGPRegressor
        if kind not in warmed:
            few = sized(12_000, 300)
            for device in DEVICES:
                time_fit(kind, device, n_threads, X[:few], y[:few])
            warmed.add(kind)
        found = {}
        for device, threads in reversed(runs()):
            found[device, threads] = time_fit(kind, device, threads, X, y)
            words = "{:.1f}, {:.2f}, score {:.5f}".format(*found[device, threads])
            place = f"  {name} ({source}, {len(X)} rows) {device} {threads}:"
            print(place, words, flush=True)
        cuda, cpu = (found[device, n_threads] for device in reversed(DEVICES))
        report(abs(cuda[2] - cpu[2]) < 1e-3, f"{name}: the scores agree")
        if not options.numpy:
            goals = CLASSES_GOAL if classes else GAIN_GOAL, PREDICT_GOAL
            for what, k, goal in zip(("fit", "predict"), (0, 1), goals, strict=True):
                gain = cpu[k] / cuda[k]
                words = f"{name}, {what}: {gain:.1f} times as fast, {goal} wanted"
                report(gain >= goal, words)


def time_fit(kind, device, n_threads, X, y):
    """Return seconds of a fit and of 50,000 predictions, and the score."""
    train, test = split(len(X))
    model = kind(device=device, n_jobs=n_threads, random_state=0)
    start = time.perf_counter()
    model.fit(X[train], y[train])
    fitted = time.perf_counter()
    score = model.score(X[test], y[test])
    rows, scored = np.resize(X[test], (50_000, X.shape[1])), time.perf_counter()
    model.predict(rows[: sized(len(rows), 100)])
    return fitted - start, time.perf_counter() - scored, score


def runs():
    """Return pairs of a device and a number of threads, the GPU last."""
    return [
        *(("cpu", n) for n in options.cpu_threads),
        ("cuda", options.cpu_threads[-1]),
    ]


def late():
    """Return whether nothing new may begin."""
    return time.perf_counter() - begun > options.limit


PARTS = {
    "checks": check_all,
    "steps": time_all_steps,
    "products": time_products,
    "search": time_searches,
    "first": time_first_fit,
    "fits": time_fits,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--cpu-threads", type=int, nargs="+", default=[2, 16])
    parser.add_argument("--limit", type=float, default=540.0, help="seconds")
    parser.add_argument("--numpy", action="store_true")
    options = parser.parse_args()
    if options.numpy:
        sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "cuda"))
        from numpy_device import NumpyDevice

        host = NumpyDevice()
        gpu.missing, gpu.get_device = lambda: None, lambda: host
        gpu.is_busy = lambda: False
    if reason := gpu.missing():
        raise SystemExit(reason)
    begun = time.perf_counter()
    for part in options.parts:
        if late():
            report(False, f"{part}: no time is left")
            continue
        PARTS[part](options.cpu_threads[-1])
        print(f"{part}: done after {time.perf_counter() - begun:.0f} s", flush=True)
    raise SystemExit(f"{len(failures)} lines are BAD" if failures else 0)
