"""
Checks and timings of the CUDA engine on the GPU at hand
========================================================

``python examples/benchmarks/bench_cuda.py [--parts ...] [--cpu-threads N]`` needs
numba-cuda, scikit-learn, numpy and scipy, and runs from a checkout of the repository.
``checks`` compares every kernel, the neighbour search and whole fits with the CPU, and
the free memory of the GPU before and after fits. ``search`` times the exact search,
``products`` those with the covariance of all rows, and ``means`` fits with means from
all rows. ``float32`` and ``float64`` time a training step, for several numbers of
threads that work on a row, with rows that stay on the GPU and with rows that are
streamed. ``protein`` fits protein on both devices, or random rows if the folder
SKSWSGP_DATA has no ``protein.npz``. All parts are run unless some are named. The exit
status says whether all checks passed.
"""

import argparse
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from skswsgp._adam.solver import run_epoch
from skswsgp._adam.steps import make_steps
from skswsgp._covariance.compile import compile_kernel
from skswsgp._covariance.program import kernel_of
from skswsgp._engine.cpu import CpuEngine
from skswsgp._engine.select import make_engine
from skswsgp._neighbors.lists import NeighborTracker, TrackedSearch
from skswsgp._neighbors.search import NeighborSearch
from skswsgp._point.likelihood_records import make_likelihood
from skswsgp._point.state import Batch, Model
from skswsgp._rows.data import TrainingRows, memory_budget
from skswsgp._solvers.progress import Schedule
from skswsgp.cuda import runtime, workspace

sys.path.insert(0, str(Path(__file__).parents[2]))  # where nothing is installed

from datasets import load, split
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skswsgp import SWSGPRegressor
from skswsgp.kernels import ArcCosine
from skswsgp.solvers import Adam

FLOAT64_ERROR, FLOAT32_ERROR = 1e-7, 2e-2  # relative, after two steps of Adam
STEP_GOAL = 0.5  # milliseconds, n = 64, H = 100, M = 100,000 in float32
GAIN_GOAL = 30.0  # times as fast as the CPU, n = 4096, H = 32
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
    model = Model(
        *compile_kernel(kernel, D, np.dtype(dtype)).struct,
        *make_likelihood(likelihood, Q, np.dtype(dtype)),
        Z=Z,
        m=rng.normal(size=(M, Q)).astype(dtype),
        s=np.full((0 if full else M, Q), 0.3, dtype),
        L=np.repeat(0.5 * np.eye(M)[None], Q, axis=0).astype(dtype)
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


def set_training_fraction(fraction):
    """Let training rows take this fraction of the GPU's memory; 0 streams them."""
    runtime.MEMORY_FRACTIONS["training rows"] = fraction


def check(team, n_threads, M=200, H=37, n=50):
    """Print the relative errors of each kernel with teams of so many threads."""
    workspace.team_size = lambda H: team
    for dtype in ("float64", "float32"):
        for likelihood in ("gaussian", "bernoulli", "softmax"):
            for full in (False, True):
                model, batch = make_problem(M, H, n, 2, dtype, likelihood, full)
                cpu = CpuEngine(model, H, n_threads)
                gpu = make_engine("cuda", model, H, n_threads)
                X, active = batch.X, batch.active
                q = cpu.predict(X, active, True)
                pairs = {
                    "predict": (gpu.predict(X, active, True), q),
                    "conditional_weights": (
                        gpu.conditional_weights(X, active),
                        cpu.conditional_weights(X, active),
                    ),
                    "variational_expectations": (
                        gpu.variational_expectations(batch.y, *q),
                        cpu.variational_expectations(batch.y, *q),
                    ),
                    "bound": (gpu.bound(batch), cpu.bound(batch)),
                }
                pairs |= steps_of_both(model, batch, H, n, n_threads)
                errors = {
                    name: max(relative_error(a, b) for a, b in zip(*pair, strict=True))
                    for name, pair in pairs.items()
                }
                text = "  ".join(f"{k} {v:.0e}" for k, v in errors.items())
                limit = FLOAT64_ERROR if dtype == "float64" else FLOAT32_ERROR
                name = f"{team:4d} {dtype} {likelihood}{' full' * full}"
                report(max(errors.values()) < limit, name, text)
                gpu.close()


def steps_of_both(model, batch, H, n, n_threads):
    """Return sums and models after two steps, those of the GPU and of the CPU."""
    sums, states = [], []
    for device in ("cuda", "cpu"):
        run, adam = prepared(device, model, H, n, n_threads)
        adam.take(batch, n, np.array([0.05, 0.04]))
        sums.append([adam.finish_epoch()])
        after = run.model
        states.append([after.m, after.s, after.L, after.params, after.noise])
        run.close()
    return {"sums": sums, "steps": states}


def searches(M, D, n, H, dtype, kind, n_threads):
    """Yield a search on the CPU and one on the GPU, and rows to find lists for.

    Points are normal, or those of a grid, whose ties must be broken alike; "kernel" is
    a search by kernel value among normal ones.
    """
    rng = np.random.default_rng(0)
    if kind == "grid":
        Z, X = (rng.integers(-3, 4, size=(k, D)).astype(dtype) for k in (M, n))
    else:
        Z, X = (rng.normal(size=(k, D)).astype(dtype) for k in (M, n))
    kernel = ArcCosine(1) if kind == "kernel" else RBF(2.0)
    kernel = compile_kernel(kernel, D, np.dtype(dtype)).struct
    model = make_problem(10, 2, 2, 1, dtype)[0]
    for device in ("cpu", "cuda"):
        engine = make_engine(device, model, 2, n_threads)
        search = NeighborSearch(
            Z,
            kernel,
            n_neighbors=H,
            search="scan",
            n_threads=n_threads,
            make_scan=engine.make_scan,
        )
        yield search, X
        engine.close()


def check_search(n_threads, M=5000, D=6, n=3000, H=37):
    """Print which fraction of the lists of neighbours and predecessors agree."""
    for dtype in ("float64", "float32"):
        for kind in ("normal", "grid", "kernel"):
            found = []
            for search, X in searches(M, D, n, H, dtype, kind, n_threads):
                found.append((search.query(X), search.predecessors()[H:]))
            same = [np.mean(a == b) for a, b in zip(*found, strict=True)]
            words = f"search {dtype} {kind}: {same[0]:.6f} and {same[1]:.6f} the same"
            report(min(same) == 1.0 if kind == "grid" else min(same) > 0.9999, words)


def products(M, D, n_threads):
    """Yield the products with the covariance of M points on the CPU and on the GPU."""
    Z = np.random.default_rng(0).normal(size=(M, D))
    kernel = ConstantKernel(1.2) * Matern(np.full(D, 1.5), nu=2.5)
    struct = compile_kernel(kernel, D, np.dtype(np.float64)).struct
    model = make_problem(10, 2, 2, 1, "float64")[0]
    for device in ("cpu", "cuda"):
        engine = make_engine(device, model, 2, n_threads)
        yield engine.make_products(struct, Z, n_threads)
        engine.close()


def check_products(n_threads, M=3001, D=6, n=700):
    """Print the relative errors of products with covariances, and if they repeat."""
    rng = np.random.default_rng(1)
    X, u = rng.normal(size=(n, D)), rng.normal(size=(M, 3))
    found = []
    for each in products(M, D, n_threads):
        results = each.multiply(X, u), each.multiply_off_diagonal(u)
        found.append(results)
        same = np.array_equal(each.multiply_off_diagonal(u), results[1])
    errors = [relative_error(b, a) for a, b in zip(*found, strict=True)]
    report(max(errors) < 1e-12, f"products: {errors[0]:.0e} and {errors[1]:.0e}")
    report(same, "products: repeat to the bit")


def check_fits(n_threads, n=3000):
    """Print the relative errors of fits, and how much memory they leave occupied."""
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
        "means from all rows": (0.5, {"n_inducing": "auto", "n_neighbors": "all"}),
    }
    settings = {"n_inducing": 300, "n_neighbors": 16, "random_state": 0}
    settings |= {"learn_kernel": False, "n_jobs": n_threads}
    left = []
    for name, (fraction, more) in cases.items():
        set_training_fraction(fraction)
        results = []
        for device in ("cpu", "cuda", "cuda"):
            model = SWSGPRegressor(device=device, **settings | more).fit(X, y)
            results.append((*model.predict(X, return_std=True), model.lower_bound_))
            left.append(runtime.free_memory())
        first, *others = results
        error = max(
            relative_error(a, b) for r in others for a, b in zip(r, first, strict=True)
        )
        same = all(np.array_equal(a, b) for a, b in zip(*others, strict=True))
        report(error < 1e-4, f"fit, {name}: {error:.0e} from the CPU")
        report(same, f"fit, {name}: repeats to the bit")
    lost = (left[2] - left[-1]) / 1e6  # once all kernels of Adam are there
    report(lost < 50.0, f"memory left behind by {len(left) - 3} fits: {lost:.1f} MB")


def time_search(M, D, H, n, dtype, n_threads):
    """Print microseconds for each row of a search on both devices."""
    times, lists = [], []
    for search, X in searches(M, D, n, H, dtype, "normal", n_threads):
        search.query(X[:1000])  # compiles
        start = time.perf_counter()
        lists.append(search.query(X))
        times.append(1e6 * (time.perf_counter() - start) / n)
    same = np.mean(lists[0] == lists[1])
    print(
        f"  M={M} D={D} H={H} {dtype}: cuda {times[1]:8.2f}, "
        f"cpu, {n_threads} threads {times[0]:8.2f}, {same:.6f} the same",
        flush=True,
    )


def time_products(M, n_threads, D=8):
    """Print milliseconds of a product with the covariance of M points, and its rate."""
    u, times, results = np.random.default_rng(1).normal(size=(M, 1)), [], []
    for each in products(M, D, n_threads):
        each.multiply_off_diagonal(u)  # compiles
        start = time.perf_counter()
        results.append(each.multiply_off_diagonal(u))
        times.append(time.perf_counter() - start)
    print(
        f"  M={M} D={D}: cuda {1e3 * times[1]:9.2f} ({M**2 / times[1]:.1e} pairs/s), "
        f"cpu, {n_threads} threads {1e3 * times[0]:9.2f}, "
        f"error {relative_error(*results[::-1]):.0e}",
        flush=True,
    )


def fit_all_rows(n, n_threads, D=8):
    """Print seconds of a fit and a prediction with means from all of n rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)
    means = []
    for device in ("cuda", "cpu"):
        model = SWSGPRegressor(
            ConstantKernel(4.0) * RBF(3.0),
            learn_kernel=False,
            n_neighbors="all",
            initial_noise=0.01,
            device=device,
            n_jobs=n_threads,
            random_state=0,
        )
        start = time.perf_counter()
        model.fit(X, y)
        fitted = time.perf_counter()
        means.append(model.predict(X))
        end = time.perf_counter()
        words = f"  n={n}, {device:4s}: fit {fitted - start:7.1f} s,"
        print(words, f"means of all rows {end - fitted:7.2f} s", flush=True)
    report(relative_error(*means) < 1e-4, "the means agree")


def seconds_of_step(device, model, data, H, n, epochs, n_threads):
    """Return the least mean time of a step in an epoch, after one that compiles."""
    engine, adam = prepared(device, model, H, n, n_threads)
    steps = data.n_rows // n
    schedule = Schedule(1e-3, epochs + 1, steps)
    search = TrackedSearch(engine, 10**9, {"search": "scan"})  # lists stay
    lists = NeighborTracker(search, data.n_rows, memory_budget())
    loader, rng = adam.make_loader(data, lists), np.random.RandomState(0)
    times = []
    for epoch in range(epochs + 1):
        start = time.perf_counter()
        run_epoch(adam, data.weight, loader, rng, schedule, epoch)
        times.append((time.perf_counter() - start) / steps)
    engine.close()
    return min(times[1:])


def time_steps(M, H, n, steps, dtype, teams, n_threads):
    """Print milliseconds of a step; return the least seconds on GPU and CPU."""
    model, _ = make_problem(M, H, n, 1, dtype)
    D, Q = model.Z.shape[1], model.m.shape[1]
    rng = np.random.default_rng(1)
    X, y = (rng.normal(size=(n * steps, k)).astype(dtype) for k in (D, Q))
    data = TrainingRows(X, y, np.ones(n * steps, dtype), center=np.zeros(D))
    print(f"\nn={n} H={H} M={M} {dtype}, {steps} steps an epoch, ms a step")
    best = np.inf
    for team in teams:
        workspace.team_size = lambda H, team=team: team
        for way, fraction in ("streamed", 0.0), ("resident", 0.5):
            set_training_fraction(fraction)
            seconds = seconds_of_step("cuda", model, data, H, n, 3, n_threads)
            words = f"  cuda, {team:4d} threads a point, {way}:"
            print(words, f"{1e3 * seconds:8.3f}", flush=True)
            best = min(best, seconds)
    workspace.team_size = chosen
    cpu = seconds_of_step("cpu", model, data, H, n, 1, n_threads)
    print(f"  cpu, {n_threads} threads: {1e3 * cpu:8.3f}", flush=True)
    return best, cpu


def protein():
    """Return (name, X, y) of protein, or of random rows if it cannot be loaded."""
    try:
        return "protein", *load("protein")
    except ValueError:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(45_730, 9))
        noise = rng.normal(size=len(X))
        return "random", X, np.sin(X @ rng.normal(size=9)) + 0.3 * noise


def fit_protein():
    """Print RMSE and seconds of a fit on each device."""
    name, X, y = protein()
    train, test = split(len(X))
    print(f"\n{name}, Adam, M=1024, H=32, 20 epochs")
    errors = []
    for device in ("cuda", "cpu"):
        model = SWSGPRegressor(
            solver=Adam(batch_size=256, max_iter=20, early_stopping=False),
            learn_kernel=False,
            n_inducing=1024,
            n_neighbors=32,
            device=device,
            random_state=0,
        )
        start = time.perf_counter()
        model.fit(X[train], y[train])
        seconds = time.perf_counter() - start
        rest = model.predict(X[test]) - y[test]
        errors.append(np.sqrt(np.mean(rest**2)) / np.std(y[train]))
        print(f"  {device:4s} RMSE {errors[-1]:.4f}, {seconds:.1f} s", flush=True)
    report(abs(errors[0] / errors[1] - 1.0) < 0.01, "the RMSE agree to 1 %")


def check_all(n_threads):
    """Compare everything with the CPU."""
    for team in 1, 32, 128:
        check(team, n_threads)
    workspace.team_size = chosen
    check_search(n_threads)
    check_products(n_threads)
    check_fits(n_threads)


def time_searches(n_threads):
    """Print times of searches."""
    print("\nexact search, microseconds a row")
    for M, D, H in (100_000, 8, 16), (100_000, 8, 100), (100_000, 26, 16):
        for dtype in ("float32", "float64"):
            time_search(M, D, H, 100_000, dtype, n_threads)
    time_search(1_000_000, 8, 16, 100_000, "float32", n_threads)


def time_all_products(n_threads):
    """Print times of products."""
    print("\nproducts with the covariance of all rows, milliseconds")
    for M in (10_000, 40_000):
        time_products(M, n_threads)


def fit_means(n_threads):
    """Print times of fits with means from all rows."""
    print("\nfits with n_neighbors='all'")
    for n in (10_000, 40_000):
        fit_all_rows(n, n_threads)


def time_training(dtype, n_threads):
    """Print times of training steps, and whether the goals are reached."""
    teams = 64, 128, 256  # 512 threads of 255 registers do not fit
    best, _ = time_steps(100_000, 100, 64, 256, dtype, teams, n_threads)
    if dtype == "float32":
        report(1e3 * best <= STEP_GOAL, f"at most {STEP_GOAL} ms a step")
    teams = 1, 32, 64, 128
    best, cpu = time_steps(10_000, 32, 4096, 64, dtype, teams, n_threads)
    report(cpu >= GAIN_GOAL * best, f"{cpu / best:.0f} times as fast as the CPU")


PARTS = {
    "checks": check_all,
    "search": time_searches,
    "products": time_all_products,
    "means": fit_means,
    "float32": partial(time_training, "float32"),
    "float64": partial(time_training, "float64"),
    "protein": lambda n_threads: fit_protein(),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--cpu-threads", type=int, default=2)
    options = parser.parse_args()
    if reason := runtime.missing():
        raise SystemExit(reason)
    chosen = workspace.team_size
    for part in options.parts:
        PARTS[part](options.cpu_threads)
    raise SystemExit(f"{len(failures)} lines are BAD" if failures else 0)
