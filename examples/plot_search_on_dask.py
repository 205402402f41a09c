"""
A search on the workers of dask
===============================

How does a search use several processes, or machines? joblib hands the fits of a search
to the workers of dask: two processes here, or as many as a cluster has. Successive
halving tries all candidates on few rows, and the better half of them on twice as many,
so that few fits see the whole table.
"""

import logging
import sys
import time
from pathlib import Path

import joblib
import matplotlib.pyplot as plt
import numpy as np
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import HalvingRandomSearchCV

from skswsgp import SWSGPRegressor
from skswsgp.metrics import get_scorer

try:
    from distributed import Client, LocalCluster
except ImportError:
    sys.exit("this example needs dask: pip install -e '.[dask]'")

CANDIDATES = {
    "likelihood": ["gaussian", "student_t"],
    "n_neighbors": [8, 32, "auto"],
    "learn_map": [False, True],
}


def observe(n):
    """Return columns and a function of them with a few outliers."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (n, 3))
    y = np.sin(X[:, 0] + X[:, 1]) + 0.1 * rng.standard_normal(n)
    return X, y + (rng.random(n) < 0.1) * rng.standard_normal(n)


def search(X, y):
    """Return a search that is fitted on the workers of the current client."""
    found = HalvingRandomSearchCV(
        SWSGPRegressor(random_state=0),
        CANDIDATES,
        n_candidates=8,
        factor=2,
        min_resources=100,
        cv=2,
        scoring=get_scorer("neg_crps"),
        random_state=0,
    )
    with joblib.parallel_config("dask"):
        return found.fit(X, y)


# Each worker imports this file, so what follows is for the first process only.
if __name__ == "__main__":
    X, y = observe(800)
    workers = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    workers["silence_logs"] = logging.ERROR  # not of workers that are slow to leave
    with LocalCluster(**workers) as cluster, Client(cluster):
        start = time.perf_counter()
        found = search(X, y)
        seconds = time.perf_counter() - start
    results = found.cv_results_
    counts = ", ".join(map(str, found.n_candidates_))
    print(f"{counts} candidates in {seconds:.0f} s, the best of them:")
    print(found.best_params_)

    figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for params in {str(each): each for each in results["params"]}.values():
        own = [each == params for each in results["params"]]
        color = "C1" if params["likelihood"] == "student_t" else "C0"
        rows, score = results["n_resources"][own], -results["mean_test_score"][own]
        best = params == found.best_params_
        ax.plot(rows, score, f"{color}o-", lw=3 if best else 1, ms=4)
    for color, name in (("C0", "gaussian"), ("C1", "student_t")):
        ax.plot([], [], f"{color}o-", label=name)
    ax.set(xscale="log", xlabel="rows that a candidate is given", ylabel="CRPS")
    ax.set_xticks(np.unique(results["n_resources"]), np.unique(results["n_resources"]))
    ax.minorticks_off()
    ax.legend(title="likelihood")
    # What was seen: the best candidate has Student-t noise, for some rows are outliers.

    if "--out" in sys.argv:
        folder = Path(sys.argv[sys.argv.index("--out") + 1])
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / "search_on_dask.png", dpi=120)
    else:
        plt.show()
