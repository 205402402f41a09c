"""Does Adam on the paper's objective reach the paper's figures?

The settings of the ICML 2021 experiments, on a random 80/20 split with seed 0. Run
``python examples/benchmarks/bench_paper.py`` for all rows or name some:
``... powerplant-4 eeg``.
"""

import os

import numpy as np
from datasets import load, split
from report import Table, arguments, clock, dots
from sklearn.gaussian_process.kernels import ConstantKernel, Matern
from sklearn.metrics import log_loss, root_mean_squared_error

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.metrics import interval_coverage, mean_negative_log_density
from skswsgp.solvers import Adam

PAPER = {
    "learn_kernel": False,
    "covariance": "full",
    "n_jobs": os.cpu_count(),
    "random_state": 0,
}
PAPERS_STEPS = {
    "kl_weight": 1.0,
    "optimize_inducing": True,
    "early_stopping": False,
    "n_iter_no_change": 1000,
}


def steps(epochs):
    """Return the solver of the paper for some epochs."""
    return Adam(max_iter=epochs, **PAPERS_STEPS)


def powerplant_4():
    """M = 64, H = 4; RMSE in MW."""
    return regression("powerplant", n_inducing=64, n_neighbors=4, solver=steps(150))


def powerplant_8():
    """M = 64, H = 8; RMSE in MW."""
    return regression("powerplant", n_inducing=64, n_neighbors=8, solver=steps(150))


def kin8nm():
    """M = 64, H = 8; RMSE in the units of the data."""
    return regression("kin8nm", n_inducing=64, n_neighbors=8, solver=steps(200))


def protein():
    """M = 64, H = 4; RMSE in units of the training targets' standard deviation."""
    return regression("protein", True, n_inducing=64, n_neighbors=4, solver=steps(40))


def eeg():
    """M = 256, H = 4, without the four rows of sensor spikes."""
    X, y = load("eeg")
    calm = (np.abs(X - np.median(X, axis=0)) < 2000).all(axis=1)
    X, y = X[calm], y[calm]
    train, test = split(len(X))
    settings = PAPER | {"n_inducing": 256, "n_neighbors": 4, "solver": steps(100)}
    return classification(X[train], y[train], X[test], y[test], **settings)


def banana():
    """M = 64, H = 4."""
    X, y = load("banana")
    train, test = split(len(X))
    settings = PAPER | {"n_inducing": 64, "n_neighbors": 4, "solver": steps(400)}
    return classification(X[train], y[train], X[test], y[test], **settings)


def mnist_odd_even():
    """M = 1024, H = 4, the official 60,000 and 10,000 images."""
    X, y = load("mnist")
    X, y = X / 255.0, y % 2
    settings = PAPER | {
        "kernel": image_kernel(),
        "n_inducing": 1024,
        "n_neighbors": 4,
        "covariance": "diag",
        "solver": steps(15),
    }
    return classification(X[:60000], y[:60000], X[60000:], y[60000:], **settings)


def mnist_ten():
    """Ten classes with a softmax; M = 1024, H = 8."""
    X, y = load("mnist")
    X = X / 255.0
    settings = PAPER | {
        "kernel": image_kernel(),
        "n_inducing": 1024,
        "n_neighbors": 8,
        "covariance": "diag",
        "solver": steps(8),
    }
    return classification(X[:60000], y[:60000], X[60000:], y[60000:], **settings)


def image_kernel():
    """Return a Matern 5/2 with one length-scale for all pixels."""
    return ConstantKernel(1.0) * Matern(10.0, nu=2.5)


def regression(name, standardise=False, **settings):
    """Fit and return (RMSE, MNLL, coverage, seconds) on the held-out rows."""
    X, y = load(name)
    train, test = split(len(X))
    if standardise:
        y = (y - y[train].mean()) / y[train].std()
    now = clock(PAPER["n_jobs"])
    started = now()
    model = SWSGPRegressor(**(PAPER | settings)).fit(X[train], y[train])
    seconds = now() - started
    mean, std = model.predict(X[test], return_std=True)
    return (
        root_mean_squared_error(y[test], mean),
        mean_negative_log_density(y[test], mean, std),
        interval_coverage(y[test], *model.predict_interval(X[test])),
        seconds,
    )


def classification(X, y, X_test, y_test, **settings):
    """Fit and return (error, MNLL, nothing, seconds) on the test rows."""
    now = clock(PAPER["n_jobs"])
    started = now()
    model = SWSGPClassifier(**settings).fit(X, y)
    seconds = now() - started
    proba = model.predict_proba(X_test)
    error = np.mean(model.classes_[proba.argmax(axis=1)] != y_test)
    return error, log_loss(y_test, proba), np.nan, seconds


ROWS = {
    "powerplant-4": powerplant_4,
    "powerplant-8": powerplant_8,
    "kin8nm": kin8nm,
    "protein": protein,
    "eeg": eeg,
    "banana": banana,
    "mnist-odd-even": mnist_odd_even,
    "mnist-ten": mnist_ten,
}


COLUMNS = {
    "setting": "",
    "RMSE/error": ".4f",
    "MNLL": ".4f",
    "coverage": ".3f",
    "seconds": ".1f",
}


if __name__ == "__main__":
    parser = arguments(__doc__, os.cpu_count())
    parser.add_argument("names", nargs="*", default=list(ROWS), help="rows")
    options = parser.parse_args()
    PAPER["n_jobs"] = options.threads
    SWSGPRegressor(**PAPER, solver=steps(1)).fit(np.eye(20), np.arange(20.0))  # compile
    table = Table("paper", COLUMNS)
    for name in options.names:
        table.add(name, *ROWS[name]())
    table.save(options.out, dots, row="setting", panels=list(COLUMNS)[1:])
