"""How honest are 95 % intervals of regressions on 40 to 2,000 rows?

Kinds of tables, each drawn anew for each seed: 1,000 test rows of a synthetic kind, a
held-out third of the diabetes table of scikit-learn. Coverage is the share of test rows
within `predict_interval(X, 0.95)`: its mean over seeds and that of the seed furthest
from 95 %. "Gaussian" is the same fit without its learned law, as predictive="gaussian"
leaves it. The interval score and the negative log density (MNLL) are those of
standardised y; RMSE is relative to that of ridge regression. All are means over seeds.

python examples/benchmarks/bench_small_tables.py --seeds 20
"""

import copy
import time
from functools import partial
from typing import NamedTuple

import numpy as np
from datasets import split
from report import Table, arguments, dots
from sklearn.datasets import (
    load_diabetes,
    make_friedman1,
    make_friedman2,
    make_friedman3,
)
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skswsgp import SWSGPRegressor
from skswsgp.metrics import get_scorer, interval_score

COLUMNS = {
    "data": "",
    "rows": "d",
    "columns": "d",
    "95 %": ".3f",
    "worst": ".3f",
    "Gaussian": ".3f",
    "its worst": ".3f",
    "intervals": ".4f",
    "its inter.": ".4f",
    "MNLL": ".3f",
    "its MNLL": ".3f",
    "RMSE/ridge": ".3f",
    "seconds": ".2f",
}
N_TEST = 1000
PENALTIES = np.logspace(-3, 4, 15)


# Functions of X (n, D), uniform on the unit cube, of deviation about 1.


def waves(X, rng, frequency=4.0, rough=False):
    """Return a random function, nearly a draw from a Gaussian process."""
    draw = rng.standard_cauchy if rough else rng.standard_normal
    w, phase = frequency * draw((X.shape[1], 300)), rng.uniform(0.0, 2.0 * np.pi, 300)
    return np.cos(X @ w + phase) @ rng.standard_normal(300) / np.sqrt(150)


def linear(X, rng):
    """Return a linear function of all columns."""
    w = rng.standard_normal(X.shape[1])
    return X @ w * np.sqrt(12.0) / np.linalg.norm(w)


def additive(X, rng):
    """Return a mean of random functions of single columns."""
    parts = [waves(column[:, None], rng) for column in X.T]
    return np.sum(parts, axis=0) / np.sqrt(len(parts))


def step(X, rng):
    """Return two levels on both sides of a random plane, and a slope."""
    return 2.0 * (linear(X - 0.5, rng) > 0.0) + 0.5 * linear(X, rng)


def nothing(X, rng):
    """Return zeros, which leave noise only."""
    return np.zeros(len(X))


def first(function, k):
    """Return a function of the first k columns; others are useless."""
    return lambda X, rng: function(X[:, :k], rng)


# Noise at X (n, D).


def gaussian(X, rng, size=0.3):
    """Return noise of one size."""
    return size * rng.standard_normal(len(X))


def none(X, rng):
    """Return no noise."""
    return np.zeros(len(X))


def varying(X, rng):
    """Return noise that grows tenfold along the first column."""
    return (0.1 + 0.9 * X[:, 0]) * rng.standard_normal(len(X))


def heavy(X, rng):
    """Return noise from Student's t with three degrees of freedom."""
    return 0.3 * rng.standard_t(3.0, len(X))


def skewed(X, rng):
    """Return exponential noise."""
    return 0.5 * (rng.exponential(size=len(X)) - 1.0)


class Kind(NamedTuple):
    """How a synthetic table is drawn."""

    n: int  # training rows
    D: int  # columns
    function: object = waves
    noise: object = gaussian
    rounded: bool = False  # whether y has a few values only

    def draw(self, seed):
        """Return X and y of training rows, then of test rows."""
        rng = np.random.RandomState(seed)
        X = rng.uniform(size=(self.n + N_TEST, self.D))
        y = self.function(X, rng) + self.noise(X, rng)
        y = np.round(2.0 * y) / 2.0 if self.rounded else y
        return X[: self.n], y[: self.n], X[self.n :], y[self.n :]


class Friedman(NamedTuple):
    """A table of scikit-learn's generators."""

    n: int
    generator: object
    noise: float

    def draw(self, seed):
        """Return X and y of training rows, then of test rows."""
        X, y = self.generator(self.n + N_TEST, noise=self.noise, random_state=seed)
        return X[: self.n], y[: self.n], X[self.n :], y[self.n :]


class Diabetes:
    """The diabetes table."""

    def draw(self, seed):
        """Return X and y of training rows, then of test rows."""
        X, y = load_diabetes(return_X_y=True)
        train, test = split(len(y), seed, test_size=1 / 3)
        return X[train], y[train], X[test], y[test]


KINDS = {
    "one column": Kind(40, 1, partial(waves, frequency=8.0)),
    "one, rough": Kind(200, 1, partial(waves, rough=True)),
    "two, no noise": Kind(60, 2, noise=none),
    "two, rough, no noise": Kind(300, 2, partial(waves, rough=True), none),
    "three": Kind(150, 3),
    "four, many rows": Kind(2000, 4),
    "five, few rows": Kind(40, 5, partial(waves, frequency=2.0)),
    "six, no noise": Kind(1000, 6, partial(waves, frequency=1.5), none),
    "20, three matter": Kind(100, 20, first(waves, 3)),
    "25, one matters": Kind(300, 25, first(waves, 1)),
    "only noise": Kind(100, 5, nothing),
    "linear, few rows": Kind(40, 5, linear),
    "linear, 20": Kind(200, 20, linear),
    "additive": Kind(100, 8, additive),
    "additive, more rows": Kind(500, 8, additive),
    "step": Kind(200, 2, step, partial(gaussian, size=0.1)),
    "varying noise": Kind(400, 2, noise=varying),
    "Student-t noise": Kind(300, 3, noise=heavy),
    "skewed noise": Kind(300, 3, noise=skewed),
    "y repeats": Kind(400, 3, rounded=True),
    "friedman1": Friedman(100, make_friedman1, 1.0),
    "friedman2": Friedman(200, make_friedman2, 100.0),
    "friedman3": Friedman(200, make_friedman3, 0.1),
    "diabetes": Diabetes(),
}


def held(model, X, y):
    """Return coverage and score of 95 % intervals, and the negative log density."""
    lower, upper = model.predict_interval(X, 0.95)
    coverage = np.mean((lower <= y) & (y <= upper))
    density = -get_scorer("neg_log_density")(model, X, y)
    return coverage, interval_score(y, lower, upper), density


def fit_and_measure(kind, seed, n_threads):
    """Return figures with the learned law, with the Gaussian one, and both others."""
    X, y, X_test, y_test = kind.draw(seed)
    mean, unit = y.mean(), y.std()
    y, y_test = (y - mean) / unit, (y_test - mean) / unit
    started = time.perf_counter()
    model = SWSGPRegressor(n_jobs=n_threads, random_state=seed).fit(X, y)
    seconds = time.perf_counter() - started
    plain = copy.copy(model)
    vars(plain).pop("predictive_law_", None)
    ridge = make_pipeline(StandardScaler(), RidgeCV(PENALTIES)).fit(X, y)
    errors = [np.mean((m.predict(X_test) - y_test) ** 2) for m in (model, ridge)]
    ratio = np.sqrt(errors[0] / errors[1])
    laws = [held(each, X_test, y_test) for each in (model, plain)]
    return *laws[0], *laws[1], ratio, seconds


def run(table, name, n_seeds, n_threads):
    """Add the row of a kind."""
    X = KINDS[name].draw(0)[0]
    figures = [fit_and_measure(KINDS[name], s, n_threads) for s in range(n_seeds)]
    learned, score, mnll, plain, its_score, its_mnll, *rest = np.transpose(figures)
    worst = [max(each, key=lambda c: abs(c - 0.95)) for each in (learned, plain)]
    coverages = learned.mean(), worst[0], plain.mean(), worst[1]
    scores = (each.mean() for each in (score, its_score, mnll, its_mnll, *rest))
    table.add(name, *X.shape, *coverages, *scores)


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("names", nargs="*", default=list(KINDS))
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    results = Table("small_tables", COLUMNS)
    for kind_name in options.names:
        run(results, kind_name, options.seeds, options.threads)
    for column in ("95 %", "Gaussian"):
        off = [abs(row[column] - 0.95) for row in results.rows]
        print(f"{column}: {np.mean(off):.4f} from 0.95 on average over kinds")
    results.save(options.out, dots, row="data", panels=["95 %", "Gaussian"])
