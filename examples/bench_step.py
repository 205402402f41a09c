"""What does one training step cost, in units of a matrix product?

Milliseconds a step of Adam: n = 64 rows, D = 8, M = 10,000, diagonal S, fixed Z, Matern
5/2 with a length-scale a feature; the best of several runs, next to 64 products of two
100 x 100 matrices in numpy. Run ``python examples/bench_step.py``.
"""

import time

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, Matern
from threadpoolctl import threadpool_limits

from skswsgp._engine import CpuEngine
from skswsgp._jit import max_threads
from skswsgp._model import build_model, make_search
from skswsgp._program import compile_kernel
from skswsgp._state import Batch
from skswsgp._training import STEPS_PER_BLOCK

M, D, N_ROWS = 10_000, 8, 64
SEARCH = {"metric": "kernel", "search": "brute"}


def best_time(function, repeats):
    """Return the least of seven mean times of a call, in milliseconds."""
    function()
    times = []
    for _ in range(7):
        started = time.perf_counter()
        for _ in range(repeats):
            function()
        times.append((time.perf_counter() - started) / repeats)
    return 1e3 * min(times)


def step_time(H, dtype, n_threads):
    """Return milliseconds a step."""
    rng = np.random.default_rng(0)
    kernel = ConstantKernel(1.0) * Matern(np.full(D, np.sqrt(D)), nu=2.5)
    attributes = {
        "kernel_": kernel,
        "inducing_points_": rng.standard_normal((M, D)),
        "inducing_mean_": rng.standard_normal((M, 1)),
        "inducing_covariance_": np.full((M, 1), 0.1),
        "noise_variance_": np.array([0.1]),
    }
    model, _ = build_model(attributes, ("gaussian", 1), dtype, total_weight=1e5)
    engine = CpuEngine(model, H, n_threads)
    compiled = compile_kernel(kernel, D, dtype)
    engine.prepare_training(
        N_ROWS, compiled.free, compiled.log_bounds, np.ones(D, dtype)
    )
    rates = np.full(STEPS_PER_BLOCK, 1e-9)
    n = N_ROWS * len(rates)
    X = rng.standard_normal((n, D)).astype(dtype)
    y = rng.standard_normal((n, 1)).astype(dtype)
    batch = Batch(X, y, np.ones(n, dtype), make_search(engine, SEARCH)(X))
    times = best_time(lambda: engine.steps(batch, N_ROWS, rates), 1 + 60 // H)
    return times / len(rates)


def product_time(dtype):
    """Return milliseconds for 64 products of two 100 x 100 matrices on one thread."""
    A = np.random.default_rng(0).random((64, 100, 100)).astype(dtype)
    with threadpool_limits(1):
        return best_time(lambda: [a @ a for a in A], 20)


if __name__ == "__main__":
    sizes = 4, 16, 32, 100
    print(f"{'':24s}{'products':>10s}" + "".join(f"{f'H = {H}':>10s}" for H in sizes))
    for dtype in ("float64", "float32"):
        for n_threads in sorted({1, max_threads(None)}):
            times = [step_time(H, dtype, n_threads) for H in sizes]
            row = "".join(f"{t:10.3f}" for t in times)
            label = f"{dtype}, {n_threads} thread" + "s" * (n_threads > 1)
            print(f"{label:24s}{product_time(dtype):10.3f}{row}", flush=True)
