"""How honest are 95 % intervals of the function itself, noise aside?

Functions of one, two and five columns, whose rows and noise are drawn anew for each
seed. Coverage is the share of 2,000 new rows whose noise-free value lies within 1.96
deviations of `latent_mean_and_variance`: its mean over seeds, the least and the most.
Intervals of one fit hold or miss together, since the error of the function is smooth.

python examples/benchmarks/bench_function_intervals.py --seeds 5
"""

import os
import time

import numpy as np
from report import Table, arguments, dots

from skswsgp import SWSGPRegressor

COLUMNS = {
    "data": "",
    "rows": "d",
    "95 %": ".3f",
    "least": ".3f",
    "most": ".3f",
    "RMSE": ".4f",
    "seconds": ".1f",
}
# Function of X (n, D), D, range of X, deviation of the noise
FUNCTIONS = {
    "sine": (lambda X: np.sin(3 * X[:, 0]), 1, 3.0, 0.5),
    "2 columns": (lambda X: np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]), 2, 1.0, 0.3),
    "5 columns": (
        lambda X: np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.cos(X[:, 3]),
        5,
        1.0,
        0.3,
    ),
}
SIZES = [1_500, 2_200, 20_000, 60_000]
N_TEST = 2_000


def fit_and_measure(name, n, seed, n_threads):
    """Return the coverage of intervals of the function, the error and the seconds."""
    function, n_features, half, noise = FUNCTIONS[name]
    rng = np.random.default_rng(seed)
    X = rng.uniform(-half, half, (n + N_TEST, n_features))
    f = function(X)
    y = f[:n] + noise * rng.standard_normal(n)
    started = time.perf_counter()
    model = SWSGPRegressor(n_jobs=n_threads, random_state=seed).fit(X[:n], y)
    seconds = time.perf_counter() - started
    mean, variance = model.latent_mean_and_variance(X[n:])
    error = np.abs(mean - f[n:])
    held = np.mean(error < 1.96 * np.sqrt(variance))
    return held, np.sqrt(np.mean(error**2)), seconds


if __name__ == "__main__":
    parser = arguments(__doc__, os.cpu_count())
    parser.add_argument("names", nargs="*", default=list(FUNCTIONS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most-rows", type=int, default=60_000)
    options = parser.parse_args()
    results = Table("function_intervals", COLUMNS)
    for name in options.names:
        for n in [n for n in SIZES if n <= options.most_rows]:
            runs = [
                fit_and_measure(name, n, seed, options.threads)
                for seed in range(options.seeds)
            ]
            held, *rest = zip(*runs, strict=True)
            cells = np.mean(held), min(held), max(held), *map(np.mean, rest)
            results.add(name, n, *cells)
    results.save(options.out, dots, row="data", panels=["95 %"], series="rows")
