"""What does one pass over a stream reach, at what cost, in how much memory?

    python bench_stream.py [--chunk 250] [powerplant kin8nm ...]
    python bench_stream.py --rows 1000000 [--chunk 10000] [--inducing 2000]

The first takes 80 % of the rows of each table in one pass, prints errors on the others
whenever rows have doubled, and fits all rows at once for comparison. The second draws
rows of friedman1 with eight columns and noise 1. Seconds are those of the processor.
"""

import argparse
import pickle
import resource
import time

import numpy as np
from datasets import load, split
from sklearn.datasets import make_friedman1

from skswsgp import SWSGPRegressor
from skswsgp.metrics import interval_coverage


def report(seen, seconds, model, X, y, f, unit):
    """Print the error of f, the coverage of intervals of y, and what it has taken.

    `seconds` are those of each chunk.
    """
    error = np.sqrt(np.mean((model.predict(X) - f) ** 2)) / unit
    held = interval_coverage(y, *model.predict_interval(X))
    megabytes = len(pickle.dumps(model)) / 1e6
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    last = " and ".join(f"{one:.1f}" for one in seconds[-2:])
    print(
        f"{seen:>10} rows: RMSE {error:.4f}, 95 % intervals hold {held:.3f}, "
        f"{len(model.inducing_points_)} points, {sum(seconds):.1f} s, the last chunks "
        f"{last} s, model {megabytes:.0f} MB, process {resident:.0f} MB",
        flush=True,
    )


def one_pass(model, chunks, test):
    """Learn from chunks (X, y); report whenever their number has doubled."""
    seen, seconds = 0, []
    for X, y in chunks:
        start = time.process_time()
        model.partial_fit(X, y)
        seconds.append(time.process_time() - start)
        seen, number = seen + len(X), len(seconds)
        if number & (number - 1) == 0:
            report(seen, seconds, model, *test)
    report(seen, seconds, model, *test)


def table(name, options):
    """Report a pass over the rows of a table, and a fit of all of them."""
    X, y = load(name)
    train, rest = split(len(X))
    test = X[rest], y[rest], y[rest], y[train].std()
    chunk = options.chunk or 250
    parts = [train[first : first + chunk] for first in range(0, len(train), chunk)]
    print(f"{name}, chunks of {chunk}")
    model = SWSGPRegressor(random_state=0, n_jobs=1)
    one_pass(model, ((X[part], y[part]) for part in parts), test)
    start = time.process_time()
    model = SWSGPRegressor(random_state=0, n_jobs=1).fit(X[train], y[train])
    print("fit of all rows")
    report(len(train), [time.process_time() - start], model, *test)


def drawn(options):
    """Report a pass over rows that are drawn as they are needed."""
    chunk = options.chunk or 10_000

    def chunks():
        for seed in range(options.rows // chunk):
            yield make_friedman1(chunk, 8, noise=1.0, random_state=seed + 1)

    X, f = make_friedman1(5000, 8, random_state=0)
    y = f + np.random.default_rng(0).normal(size=len(f))
    print(f"friedman1, chunks of {chunk}")
    sizes = {"n_inducing": options.inducing or "auto", "n_jobs": 1}
    model = SWSGPRegressor(random_state=0, **sizes)
    one_pass(model, chunks(), (X, y, f, 1.0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=["powerplant", "kin8nm"])
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--chunk", type=int, default=0)
    parser.add_argument("--inducing", type=int, default=0)
    options = parser.parse_args()
    if options.rows:
        drawn(options)
    else:
        for name in options.names:
            table(name, options)
