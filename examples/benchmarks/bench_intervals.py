"""How good are the intervals and densities of regressions?

Tables of the folder SKSWSGP_DATA (or OpenML), 80 % of the rows for training, with
the learned law of observations and without it, as predictive="gaussian" leaves the same
fit. The negative log density (MNLL), the continuous ranked probability score and the
interval score at 95 % are those of standardised y; "worst" is the coverage, furthest
from 95 %, of the tenths of the test rows with the smallest to the largest predicted
deviations.
"""

import copy
import os
import time

import numpy as np
from datasets import load, split
from report import Table, arguments, dots

from skswsgp import SWSGPRegressor
from skswsgp.metrics import get_scorer

COLUMNS = {
    "data": "",
    "law": "",
    "seed": "d",
    "RMSE": ".4f",
    "MNLL": ".3f",
    "CRPS": ".4f",
    "intervals": ".4f",
    "90 %": ".3f",
    "95 %": ".3f",
    "worst": ".3f",
    "seconds": ".1f",
}
NAMES = ["powerplant", "protein", "kin40k", "kin8nm", "naval"]
SCORES = "neg_log_density", "neg_crps", "neg_interval_score"


def coverages(model, X, y):
    """Return the coverage of 90 and 95 % intervals, and the worst of ten groups."""
    held = []
    for coverage in (0.9, 0.95):
        lower, upper = model.predict_interval(X, coverage)
        held.append((lower <= y) & (y <= upper))
    order = np.argsort(model.predict(X, return_std=True)[1])
    groups = [held[1][rows].mean() for rows in np.array_split(order, 10)]
    return *(each.mean() for each in held), max(groups, key=lambda c: abs(c - 0.95))


def run(table, name, seed, n_threads):
    """Add both rows of a data set and a split."""
    X, y = load(name)
    train, test = split(len(y), seed)
    model = SWSGPRegressor(n_jobs=n_threads, random_state=seed)
    unit = np.std(y[train])
    y = (y - y[train].mean()) / unit
    started = time.perf_counter()
    model.fit(X[train], y[train])
    seconds = time.perf_counter() - started
    plain = copy.copy(model)
    vars(plain).pop("predictive_law_", None)
    for law, fitted in (("auto", model), ("gaussian", plain)):
        scores = [-get_scorer(score)(fitted, X[test], y[test]) for score in SCORES]
        held = coverages(fitted, X[test], y[test])
        rmse = np.sqrt(np.mean((fitted.predict(X[test]) - y[test]) ** 2))
        table.add(name, law, seed, rmse, *scores, *held, seconds)


if __name__ == "__main__":
    parser = arguments(__doc__, os.cpu_count())
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    results = Table("intervals", COLUMNS)
    for data in options.names:
        for split_seed in range(options.seeds):
            run(results, data, split_seed, options.threads)
    panels = ["MNLL", "intervals", "95 %"]
    results.save(options.out, dots, row="data", panels=panels, series="law")
