"""Which errors, densities and intervals come from two lines of scikit-learn?

Regression on the diabetes data and classification on the breast cancer data, both
bundled with scikit-learn, next to HistGradientBoosting. A boosted regression has no
density: it is given a normal one with the standard deviation of its cross-validated
residuals.
"""

import sys
import time

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import log_loss, root_mean_squared_error
from sklearn.model_selection import cross_val_predict, train_test_split

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.metrics import interval_coverage, mean_negative_log_density


def regression():
    """Print RMSE, MNLL and coverage of 95 % intervals on held-out rows."""
    X, y = load_diabetes(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0)

    started = time.perf_counter()
    model = SWSGPRegressor(random_state=0).fit(X, y)
    mean, std = model.predict(X_test, return_std=True)
    ends = model.predict_interval(X_test, coverage=0.95)
    report_density("SWSGPRegressor", y_test, mean, std, ends, started)

    started = time.perf_counter()
    boosting = HistGradientBoostingRegressor(random_state=0)
    residuals = y - cross_val_predict(boosting, X, y)
    mean = boosting.fit(X, y).predict(X_test)
    std = np.full(len(mean), residuals.std())
    ends = mean - 1.96 * std, mean + 1.96 * std
    report_density("HistGradientBoosting", y_test, mean, std, ends, started)


def report_density(name, y, mean, std, ends, started):
    """Print one row of the regression table."""
    print(
        f"{name:24s}{root_mean_squared_error(y, mean):10.2f}"
        f"{mean_negative_log_density(y, mean, std):10.3f}"
        f"{interval_coverage(y, *ends):10.3f}{time.perf_counter() - started:10.1f}"
    )


def classification():
    """Print error and MNLL on held-out rows."""
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
    for model in (
        SWSGPClassifier(random_state=0),
        HistGradientBoostingClassifier(random_state=0),
    ):
        started = time.perf_counter()
        proba = model.fit(X, y).predict_proba(X_test)
        error = np.mean(proba.argmax(axis=1) != y_test)
        name = type(model).__name__.removesuffix("Classifier")
        print(
            f"{name:24s}{error:10.3f}{log_loss(y_test, proba):10.3f}"
            f"{'':10s}{time.perf_counter() - started:10.1f}"
        )


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # each line comes at once, in pipes too
    print("Fitting 331 rows of diabetes data, then 426 of breast cancer data.")
    print("The first run on a machine compiles the engine, once: some ten seconds.\n")
    columns = f"{'MNLL':>10s}{'coverage':>10s}{'seconds':>10s}"
    print(f"{'diabetes':24s}{'RMSE':>10s}{columns}")
    regression()
    print(f"\n{'breast cancer':24s}{'error':>10s}{columns}")
    classification()
