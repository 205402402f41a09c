"""How good are the defaults, and what does each part of them contribute?

Standardised targets, random 80/20 splits, mean over seeds 0, 1 and 2. Run ``python
examples/benchmarks/bench_accuracy.py`` for all data, or name some: ``... protein eeg``.
``--ablation`` adds rows without one part each, ``--seeds 1`` takes fewer splits.
``--peers`` adds GPyTorch's SVGP and VNNGP on regression data (`peers.py`); each may
train for ``--seconds``, or else for as long as our own fit took. Seconds are processor
time with one thread, else time on the wall.
"""

import os
from functools import partial

import numpy as np
from datasets import load, split
from report import Table, arguments, clock, dots
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import log_loss, root_mean_squared_error
from threadpoolctl import threadpool_limits

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.baselines import NearestNeighborGPRegressor
from skswsgp.metrics import (
    expected_calibration_error,
    get_scorer,
    interval_coverage,
)
from skswsgp.solvers import Adam

try:
    import faiss  # noqa: F401 (GPyTorch takes hours for neighbours without it)
    from peers import SVGP, VNNGP

    PEERS = {"SVGP, M = 512": SVGP, "VNNGP, k = 32": VNNGP}
except ImportError:
    PEERS = {}

COLUMNS = {
    "data": "",
    "model": "",
    "RMSE/error": ".4f",
    "MNLL": ".4f",
    "coverage/ECE": ".4f",
    "seconds": ".1f",
}
REGRESSION = ("powerplant", "kin8nm", "protein", "kin40k", "naval")
CLASSIFICATION = ("eeg", "banana", "spam", "credit", "mnist", "airline")
OFFICIAL_TRAINING = {"mnist": 60_000}  # rows that come first in the file

REGRESSORS = {
    "SWSGP": SWSGPRegressor,
    "local GP": NearestNeighborGPRegressor,
    "HistGradientBoosting": HistGradientBoostingRegressor,
}
CLASSIFIERS = {
    "SWSGP": SWSGPClassifier,
    "HistGradientBoosting": HistGradientBoostingClassifier,
}
ABLATION = {
    "start as given": {"learn_kernel": False},
    "Adam": {"solver": Adam(max_iter=50), "n_inducing": 1024, "n_neighbors": 32},
    "M = 1024": {"n_inducing": 1024},
    "M = 1024, full S": {"n_inducing": 1024, "covariance": "full"},
    "H = 16": {"n_neighbors": 16},
    "H = 32": {"n_neighbors": 32},
    "float32": {"dtype": "float32"},
}


def table_of(name):
    """Return X and y of a dataset; of eeg without four rows of sensor spikes."""
    X, y = load(name)
    if name == "eeg":
        calm = (np.abs(X - np.median(X, axis=0)) < 2000).all(axis=1)
        X, y = X[calm], y[calm]
    return X, y


def parts(name, n_rows, seed):
    """Return the indices of training and test rows."""
    if name in OFFICIAL_TRAINING:
        rows = np.arange(n_rows)
        return np.split(rows, [OFFICIAL_TRAINING[name]])
    return split(n_rows, seed)


def regression(make, X, y, train, test, now):
    """Return RMSE, MNLL (NaN without a density), coverage and seconds of `fit`."""
    y = (y - y[train].mean()) / y[train].std()
    started = now()
    model = make().fit(X[train], y[train])
    seconds = now() - started
    if not hasattr(model, "noise_variance_"):
        rmse = root_mean_squared_error(y[test], model.predict(X[test]))
        return rmse, np.nan, np.nan, seconds
    mean, std = model.predict(X[test], return_std=True)
    density = get_scorer("neg_log_density")(model, X[test], y[test])
    ends = mean - 1.96 * std, mean + 1.96 * std  # peers are Gaussian
    if hasattr(model, "predict_interval"):
        ends = model.predict_interval(X[test])
    coverage = interval_coverage(y[test], *ends)
    return root_mean_squared_error(y[test], mean), -density, coverage, seconds


def classification(make, X, y, train, test, now):
    """Return error, MNLL, expected calibration error and seconds of `fit`."""
    started = now()
    model = make().fit(X[train], y[train])
    seconds = now() - started
    proba = model.predict_proba(X[test])
    error = np.mean(model.classes_[proba.argmax(axis=1)] != y[test])
    calibration = expected_calibration_error(y[test], proba)
    return error, log_loss(y[test], proba), calibration, seconds


def estimators(name, options):
    """Return constructors by the name of their row."""
    rows = dict(REGRESSORS if name in REGRESSION else CLASSIFIERS)
    for label in ("SWSGP", "local GP"):
        if label in rows:
            rows[label] = partial(rows[label], n_jobs=options.threads)
    if options.ablation:
        for label, part in ABLATION.items():
            rows[label] = partial(rows["SWSGP"], **part)
    if options.peers and name in REGRESSION:
        for label, peer in PEERS.items():
            rows[label] = partial(peer, n_threads=options.threads)
    return {k: v for k, v in rows.items() if k in (options.only or rows)}


def run(table, name, options):
    """Add the rows of one dataset."""
    X, y = table_of(name)
    score = regression if name in REGRESSION else classification
    seeds = range(1 if name in OFFICIAL_TRAINING else options.seeds)
    budgets = [options.seconds] * len(seeds)
    for label, make in estimators(name, options).items():
        figures = []
        for seed in seeds:
            settings = {"random_state": seed}
            if label in PEERS:
                settings["seconds"] = budgets[seed]
            data = X, y, *parts(name, len(X), seed)
            figures.append(
                score(partial(make, **settings), *data, clock(options.threads))
            )
        if label == "SWSGP" and options.seconds is None:
            budgets = [seconds for *_, seconds in figures]
        table.add(name, label, *np.mean(figures, axis=0).tolist())


if __name__ == "__main__":
    parser = arguments(__doc__, os.cpu_count())
    parser.add_argument("names", nargs="*", default=REGRESSION + CLASSIFICATION)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--seconds", type=float, help="of a peer's fit")
    parser.add_argument("--only", nargs="+", help="models; peers need --seconds then")
    options = parser.parse_args()
    if options.peers and not PEERS:
        print("Without SVGP and VNNGP: GPyTorch or faiss is missing (extra `bench`).")
    results = Table("accuracy", COLUMNS)
    with threadpool_limits(options.threads):
        tiny = np.arange(200.0)[:, None]
        SWSGPRegressor().fit(tiny, np.sin(tiny[:, 0]))  # reads compiled code
        for name in options.names:
            run(results, name, options)
    results.save(
        options.out, dots, row="data", series="model", panels=list(COLUMNS)[2:]
    )
