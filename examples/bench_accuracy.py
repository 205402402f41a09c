"""How good are the defaults, and what does each part of them contribute?

Standardised targets, random 80/20 splits, mean over seeds 0, 1 and 2. Run ``python
examples/bench_accuracy.py`` for all data, or name some: ``... protein eeg``.
``--ablation`` adds rows without one part each, ``--seeds 1`` takes fewer splits.
"""

import argparse
import time
from functools import partial

import numpy as np
from datasets import load, split
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import log_loss, root_mean_squared_error

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.baselines import NearestNeighborGPRegressor
from skswsgp.metrics import (
    expected_calibration_error,
    interval_coverage,
    mean_negative_log_density,
)

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
    "start as given": {"init": "default"},
    "Adam": {"solver": "adam", "n_inducing": 1024, "n_neighbors": 32, "max_iter": 50},
    "local divergences": {"kl": "local"},
    "M = 1024": {"n_inducing": 1024},
    "M = 1024, full S": {"n_inducing": 1024, "covariance": "full"},
    "H = 16": {"n_neighbors": 16},
    "H = 32": {"n_neighbors": 32},
    "float32": {"dtype": "float32"},
}


def table(name):
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


def regression(make, X, y, train, test):
    """Return RMSE, MNLL (NaN without a density), coverage and seconds of `fit`."""
    y = (y - y[train].mean()) / y[train].std()
    started = time.perf_counter()
    model = make().fit(X[train], y[train])
    seconds = time.perf_counter() - started
    if not hasattr(model, "noise_variance_"):
        rmse = root_mean_squared_error(y[test], model.predict(X[test]))
        return rmse, np.nan, np.nan, seconds
    mean, std = model.predict(X[test], return_std=True)
    return (
        root_mean_squared_error(y[test], mean),
        mean_negative_log_density(y[test], mean, std),
        interval_coverage(y[test], mean, std),
        seconds,
    )


def classification(make, X, y, train, test):
    """Return error, MNLL, expected calibration error and seconds of `fit`."""
    started = time.perf_counter()
    model = make().fit(X[train], y[train])
    seconds = time.perf_counter() - started
    proba = model.predict_proba(X[test])
    error = np.mean(model.classes_[proba.argmax(axis=1)] != y[test])
    calibration = expected_calibration_error(y[test], proba)
    return error, log_loss(y[test], proba), calibration, seconds


def estimators(name, ablation):
    """Return constructors by the name of their row."""
    rows = REGRESSORS if name in REGRESSION else CLASSIFIERS
    if ablation:
        own = {key: partial(rows["SWSGP"], **part) for key, part in ABLATION.items()}
        rows = {**rows, **own}
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=REGRESSION + CLASSIFICATION)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ablation", action="store_true")
    parser.add_argument("--only", help="the row of one model")
    options = parser.parse_args()
    heads = "RMSE/error", "MNLL", "coverage/ECE", "seconds"
    print(f"{'':34s}" + "".join(f"{head:>14s}" for head in heads))
    for name in options.names:
        X, y = table(name)
        score = regression if name in REGRESSION else classification
        for label, make in estimators(name, options.ablation).items():
            if options.only not in (None, label):
                continue
            seeds = 1 if name in OFFICIAL_TRAINING else options.seeds
            figures = [
                score(partial(make, random_state=s), X, y, *parts(name, len(X), s))
                for s in range(seeds)
            ]
            means = "".join(f"{figure:14.4f}" for figure in np.mean(figures, axis=0))
            print(f"{name:12s}{label:22s}{means}", flush=True)
