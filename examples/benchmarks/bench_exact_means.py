"""What do means from all rows gain over those from neighbours, and what do they cost?

A draw of a smooth function of eight columns at N rows, with noise of a hundredth of its
variance (or --noise), and 2,000 test rows of the function alone. RMSE is in its
standard deviations, coverage that of its 95 % intervals, "steps" are products with the
covariance of all rows, and "rows/s" predictions of the mean.
"""

import os
import time

import numpy as np
from report import Table, arguments, lines
from sklearn.gaussian_process.kernels import RBF
from threadpoolctl import threadpool_limits

from skswsgp import SWSGPRegressor
from skswsgp._covariance.compile import compile_kernel
from skswsgp._solvers.exact_mean import ExactMean
from skswsgp.joint.random_features import random_features

COLUMNS = {
    "means from": "",
    "N": ",d",
    "H": ",d",
    "RMSE": ".4f",
    "coverage": ".3f",
    "milliseconds": ",.0f",
    "steps": ",d",
    "rows/s": ",.0f",
}
TEST = 2000


def make_rows(n, noise):
    """Return X, the function and y of n training and TEST further rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n + TEST, 8))
    kernel = compile_kernel(RBF(3.0), 8, np.float64).struct
    waves = random_features(kernel, X, 4000, np.random.RandomState(0))
    f = waves @ rng.standard_normal(4000)
    return X, f, f + np.sqrt(noise) * f.std() * rng.standard_normal(len(f))


def run(table, n, noise, n_threads):
    """Add the rows of a size."""
    X, f, y = make_rows(n, noise)
    counts, solve = [], ExactMean.solve

    def counting(self, *arguments, **options):
        alpha = solve(self, *arguments, **options)
        counts.append(self.steps)
        return alpha

    ExactMean.solve = counting
    H = "all"
    for means in ("all rows", "neighbours"):
        started = time.perf_counter()
        model = SWSGPRegressor(n_neighbors=H, n_jobs=n_threads, random_state=0)
        model.fit(X[:n], y[:n])
        milliseconds = 1e3 * (time.perf_counter() - started)
        H, steps = model.n_neighbors_, counts.pop() if H == "all" else 0
        started = time.perf_counter()
        model.predict(X[n:])
        rate = TEST / (time.perf_counter() - started)
        mean, variance = model.latent_mean_and_variance(X[n:])
        error = f[n:] - mean
        held = np.mean(np.abs(error) < 1.96 * np.sqrt(variance))
        rmse = np.sqrt(np.mean(error**2)) / f.std()
        table.add(means, n, H, rmse, held, milliseconds, steps, rate)
    ExactMean.solve = solve


if __name__ == "__main__":
    parser = arguments(__doc__, os.cpu_count())
    sizes = [10_000, 20_000, 40_000, 80_000]
    parser.add_argument("--sizes", type=int, nargs="+", default=sizes)
    parser.add_argument("--noise", type=float, default=0.01)
    options = parser.parse_args()
    results = Table("exact_means", COLUMNS)
    with threadpool_limits(options.threads):
        tiny = np.arange(300.0)[:, None]  # reads compiled code
        SWSGPRegressor(n_neighbors="all").fit(tiny, np.sin(tiny[:, 0])).predict(tiny)
        for size in options.sizes:
            run(results, size, options.noise, options.threads)
    axes = {"panel": "means from", "x": "N", "ys": ["milliseconds"]}
    results.save(options.out, lines, **axes)
