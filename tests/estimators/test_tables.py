"""Default settings on raw tables: units, offsets, duplicates, width, few rows."""

import numpy as np
import pytest

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.metrics import expected_calibration_error, interval_coverage

N = 600  # number of training rows, and of test rows


def mixed(rng, X):
    """Return nearly equal columns, with correlations above 0.9."""
    return X @ (np.ones((4, 4)) + 0.3 * rng.normal(size=(4, 4)))


# For each name, a change of X (2 N, 4) and the training rows, from its first half.
ALL = np.arange(N)
TABLES = {
    "as drawn": (lambda rng, X: X, ALL),
    "raw": (lambda rng, X: X * [1e-3, 1.0, 40.0, 1e5], ALL),
    "offset": (lambda rng, X: X + np.array([1e4, -300.0, 0.0, 1e6]), ALL),
    "skewed": (lambda rng, X: np.exp(2.0 * X), ALL),
    "correlated": (mixed, ALL),
    "each row three times": (lambda rng, X: X, ALL // 3),
    "200 columns": (lambda rng, X: np.c_[X, rng.normal(size=(len(X), 196))], ALL[:400]),
    "60 rows": (lambda rng, X: X, ALL[:60]),
}
# Least explained variance and coverage of 95 % intervals, as fractions.
LEAST = {
    "skewed": (0.7, 0.88),
    "each row three times": (0.85, 0.88),
    "200 columns": (0.5, 0.8),
    "60 rows": (0.4, 0.8),
}
USUAL = 0.85, 0.9  # the same two fractions for all other tables


def table(name):
    """Return X, a smooth function of two columns, noise, and training rows."""
    rng = np.random.default_rng(0)
    change, rows = TABLES[name]
    X = rng.uniform(-1.5, 1.5, size=(2 * N, 4))
    noise = 0.3 * rng.normal(size=2 * N)
    return change(rng, X), 2.0 * np.sin(1.5 * X[:, 0]) + X[:, 1], noise, rows


each_table = pytest.mark.parametrize(
    "name",
    [
        name if name == "60 rows" else pytest.param(name, marks=pytest.mark.full)
        for name in TABLES
    ],
)


@each_table
def test_regression(name):
    X, f, noise, rows = table(name)
    y = f + noise
    model = SWSGPRegressor(random_state=0).fit(X[rows], y[rows])
    mean, ends = model.predict(X[N:]), model.predict_interval(X[N:])
    explained, coverage = LEAST.get(name, USUAL)
    assert 1.0 - np.var(f[N:] - mean) / np.var(f) > explained
    assert coverage < interval_coverage(y[N:], *ends) < 0.99


@each_table
def test_classification(name):
    X, f, noise, rows = table(name)
    y = f + noise > 0.0
    model = SWSGPClassifier(random_state=0).fit(X[rows], y[rows])
    p = model.predict_proba(X[N:])
    wrong = np.mean((p[:, 1] > 0.5) != y[N:])
    limits = {"200 columns": (0.25, 0.15), "60 rows": (0.2, 0.2), "skewed": (0.15, 0.1)}
    error, calibration = limits.get(name, (0.12, 0.08))
    assert wrong < error
    assert expected_calibration_error(y[N:], p) < calibration
