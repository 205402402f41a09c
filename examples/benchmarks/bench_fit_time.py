"""How long does a fit take, beside CatBoost, and how long the first one?

Seconds of the processor for a default `fit` on one thread, and those of CatBoost's
default with one thread on the same rows. "fits" repeats both on generated rows
(friedman1, noise 1) and on the data of `datasets.py`, 80 % of the rows of seed 0 for
regression and all rows of classes. "first" fits in processes of their own: with nothing
compiled, and with all compiled before. "search" is a grid search over M and H.

python examples/benchmarks/bench_fit_time.py fits first search
"""

import os
import subprocess
import sys
import tempfile
import time

ONE_THREAD = {
    name: "1"
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
}
if __name__ == "__main__":
    os.environ |= ONE_THREAD  # before NumPy is imported

import numpy as np
from bench_accuracy import table_of
from datasets import split
from report import Table, arguments
from sklearn.datasets import make_friedman1
from sklearn.model_selection import GridSearchCV

from skswsgp import SWSGPClassifier, SWSGPRegressor

try:
    from catboost import CatBoostClassifier, CatBoostRegressor
except ImportError:
    CatBoostClassifier = CatBoostRegressor = None

GROUPS = {  # most times that a fit may take as long as CatBoost's, geometric mean
    "friedman1": 1.2,
    "regression": 5.0,
    "classes": 5.0,
}
REGRESSION = "powerplant", "kin8nm", "naval"
CLASSES = "eeg", "spam", "banana", "credit"
FIRST = """
import time
started = time.process_time()
from skswsgp import {estimator}
from sklearn.datasets import {load}
imported = time.process_time()
X, y = {load}({arguments})
{estimator}(random_state=0, n_jobs=1).fit(X, y)
now = time.process_time()
print(imported - started, now - imported)
"""
PROGRAMS = {
    "diabetes": ("SWSGPRegressor", "load_diabetes", "return_X_y=True"),
    "breast cancer": ("SWSGPClassifier", "load_breast_cancer", "return_X_y=True"),
    "friedman1, 1,000 rows": ("SWSGPRegressor", "make_friedman1", "1000, noise=1.0"),
}


def seconds(fit):
    """Return the seconds of the processor that a call takes."""
    started = time.process_time()
    fit()
    return time.process_time() - started


def fits():
    """Compare fits of each group, and print the geometric mean of their ratios."""
    table = Table(
        "fits",
        {"group": "", "data": "", "rows": "d", "columns": "d", "seconds": ".2f"}
        | {"CatBoost": ".2f", "ratio": ".2f"},
    )
    SWSGPRegressor(n_jobs=1, random_state=0).fit(*make_friedman1(1200, n_features=5))
    for group, most in GROUPS.items():
        ratios = []
        for name, X, y in tables(group):
            kinds = SWSGPRegressor, CatBoostRegressor
            if group == "classes":
                kinds = SWSGPClassifier, CatBoostClassifier
            ours = kinds[0](n_jobs=1, random_state=0)
            spent = seconds(lambda ours=ours, X=X, y=y: ours.fit(X, y))
            peer = None
            if kinds[1] is not None:
                model = kinds[1](thread_count=1, verbose=0, allow_writing_files=False)
                peer = seconds(lambda model=model, X=X, y=y: model.fit(X, y))
                ratios.append(spent / peer)
            ratio = spent / peer if peer else None
            table.add(group, name, *X.shape, spent, peer, ratio)
        if ratios:
            mean = np.exp(np.mean(np.log(ratios)))
            print(f"{group}: {mean:.2f} times CatBoost's seconds, at most {most}")


def tables(group):
    """Yield the name, X and y of each table of a group."""
    if group == "friedman1":
        for D in (5, 20):
            for N in (100, 300, 1000, 2000):
                X, y = make_friedman1(N, n_features=D, noise=1.0, random_state=0)
                yield f"{N} rows, {D} columns", X, y
        return
    for name in REGRESSION if group == "regression" else CLASSES:
        X, y = table_of(name)
        if group == "regression":
            train, _ = split(len(y), 0)
            X, y = X[train], y[train]
        yield name, X, y


def first():
    """Time fits in new processes, with nothing and with all compiled before."""
    table = Table("first", {"data": "", "compiled": "", "import": ".2f", "fit": ".2f"})
    for name, (estimator, load, given) in PROGRAMS.items():
        program = FIRST.format(estimator=estimator, load=load, arguments=given)
        with tempfile.TemporaryDirectory() as cache:
            for compiled in ("no", "yes"):
                env = os.environ | ONE_THREAD | {"NUMBA_CACHE_DIR": cache}
                command = [sys.executable, "-c", program]
                said = subprocess.run(command, env=env, capture_output=True, text=True)
                table.add(name, compiled, *map(float, said.stdout.split()))


def search():
    """Time a grid search over M and H, and fits with few points or few neighbours."""
    X, y = make_friedman1(1000, n_features=5, noise=1.0, random_state=0)
    table = Table("search", {"fit": "", "seconds": ".2f"})
    sizes = {}, {"n_inducing": 50}, {"n_neighbors": 16}
    SWSGPRegressor(n_jobs=1, random_state=0, n_inducing=60).fit(X, y)
    for size in sizes:
        model = SWSGPRegressor(n_jobs=1, random_state=0, **size)
        table.add(str(size), seconds(lambda model=model: model.fit(X, y)))
    grid = {"n_inducing": [50, 200, "auto"], "n_neighbors": [16, 64, "auto"]}
    found = GridSearchCV(SWSGPRegressor(n_jobs=1, random_state=0), grid, cv=3)
    table.add("9 settings, 3 folds", seconds(lambda: found.fit(X, y)))


def main():
    parser = arguments(__doc__)
    parser.add_argument("parts", nargs="*", default=["fits", "first", "search"])
    for part in parser.parse_args().parts:
        {"fits": fits, "first": first, "search": search}[part]()


if __name__ == "__main__":
    main()
