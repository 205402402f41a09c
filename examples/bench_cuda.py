"""
Figures of the CUDA engine on the GPU at hand
=============================================

``python examples/bench_cuda.py [--quick] [--cpu-threads N]``; it needs numba-cuda,
scikit-learn, numpy, pynndescent and scipy. First every kernel is compared with the CPU,
then a step of training is timed on either, for random data and each number of threads
that may work on a point, then protein is fitted on both, from the file in the folder
SKSWSGP_DATA or from OpenML.
"""

import argparse
import time

import numpy as np
from datasets import load, split
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from skswsgp import SWSGPRegressor, _cuda, _device
from skswsgp._engine import CpuEngine, make_engine
from skswsgp._likelihoods import make_likelihood
from skswsgp._neighbors import NeighborSearch
from skswsgp._program import compile_kernel
from skswsgp._state import Batch, Model
from skswsgp._training import kernel_of


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
    search = NeighborSearch(Z, kernel_of(model), n_neighbors=H, search="brute")
    weight = np.ones(n * steps, dtype)
    return model, Batch(X, y, weight, search.query(X).astype(np.int32))


def prepared(device, model, H, n, n_threads):
    """Return an engine that is ready to train."""
    copy = Model(*(np.copy(a) if isinstance(a, np.ndarray) else a for a in model))
    engine = make_engine(device, copy, H, n_threads)
    P, D = len(model.params), model.Z.shape[1]
    engine.prepare_training(
        n, np.ones(P, bool), np.tile([-9.0, 9.0], (P, 1)), np.ones(D)
    )
    return engine


def relative(actual, expected):
    """Return the norm of the difference over that of what is expected."""
    actual, expected = (np.asarray(a, np.float64) for a in (actual, expected))
    return np.linalg.norm(actual - expected) / max(np.linalg.norm(expected), 1e-300)


def check(lanes, n_threads, M=200, H=37, n=50):
    """Print how far each kernel is from the CPU."""
    _device.lanes_for = lambda H: lanes
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
                    "regress": (gpu.regress(X, active), cpu.regress(X, active)),
                    "invert": (gpu.invert(X, active), cpu.invert(X, active)),
                    "expect": (gpu.expect(batch.y, *q), cpu.expect(batch.y, *q)),
                    "bound": (gpu.bound(batch), cpu.bound(batch)),
                }
                runs = [prepared(d, model, H, n, n_threads) for d in ("cuda", "cpu")]
                sums = [run.steps(batch, n, np.array([0.05, 0.04])) for run in runs]
                gpu_model, cpu_model = (run.model for run in runs)
                names = "m", "s", "L", "params", "noise"
                states = [
                    [getattr(m, k) for k in names] for m in (gpu_model, cpu_model)
                ]
                pairs |= {"sums": [[s] for s in sums], "steps": states}
                errors = {
                    name: max(relative(a, b) for a, b in zip(*pair, strict=True))
                    for name, pair in pairs.items()
                }
                text = "  ".join(f"{k} {v:.0e}" for k, v in errors.items())
                worst = max(errors.values())
                good = worst < (1e-7 if dtype == "float64" else 2e-2)
                name = f"{lanes:4d} {dtype} {likelihood} {'full' if full else 'diag'}"
                print("ok  " if good else "BAD ", name, text, flush=True)
                gpu.close(), runs[0].close()


def seconds_of_step(device, model, batch, H, n, repeats, n_threads):
    """Return the least time of a step in some repeats, and the sums."""
    engine = prepared(device, model, H, n, n_threads)
    rates = np.full(len(batch.X) // n, 1e-3)
    engine.steps(batch, n, rates)  # compiles
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        sums = engine.steps(batch, n, rates)
        times.append((time.perf_counter() - start) / len(rates))
    engine.close()
    return min(times), sums


def time_steps(M, H, n, steps, dtype, all_lanes, n_threads):
    """Print milliseconds a step on the GPU, for each number of lanes, and the CPU."""
    model, batch = make_problem(M, H, n, steps, dtype)
    print(f"\nn={n} H={H} M={M} {dtype}, ms a step (with the way of data to the GPU)")
    for lanes in all_lanes:
        _device.lanes_for = lambda H, lanes=lanes: lanes
        best, _ = seconds_of_step("cuda", model, batch, H, n, 5, n_threads)
        print(f"  cuda, {lanes:4d} threads a point: {1e3 * best:8.3f}", flush=True)
    best, _ = seconds_of_step("cpu", model, batch, H, n, 2, n_threads)
    print(f"  cpu, {n_threads} threads:            {1e3 * best:8.3f}", flush=True)


def fit_protein():
    """Print RMSE and seconds of the same fit on either device."""
    X, y = load("protein")
    train, test = split(len(X))
    print("\nprotein, Adam, M=1024, H=32, 20 epochs")
    for device in ("cuda", "cpu"):
        model = SWSGPRegressor(
            solver="adam",
            init="default",
            n_inducing=1024,
            n_neighbors=32,
            batch_size=256,
            max_iter=20,
            early_stopping=False,
            device=device,
            random_state=0,
        )
        start = time.perf_counter()
        model.fit(X[train], y[train])
        seconds = time.perf_counter() - start
        rest = model.predict(X[test]) - y[test]
        error = np.sqrt(np.mean(rest**2)) / np.std(y[train])
        print(f"  {device:4s} RMSE {error:.4f}, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="checks only")
    parser.add_argument("--cpu-threads", type=int, default=2)
    options = parser.parse_args()
    if reason := _cuda.missing():
        raise SystemExit(reason)
    chosen = _device.lanes_for
    for lanes in (32, 128) if options.quick else (1, 32, 128):
        check(lanes, options.cpu_threads)
    if not options.quick:
        for dtype in ("float32", "float64"):
            lanes = 64, 128, 256, 512
            time_steps(100_000, 100, 64, 32, dtype, lanes, options.cpu_threads)
            lanes = 1, 32, 64, 128
            time_steps(10_000, 32, 4096, 8, dtype, lanes, options.cpu_threads)
        _device.lanes_for = chosen
        fit_protein()
