"""Likelihoods on data that each is made for, against the default and a peer.

Prints for each kind of data the log density of new rows in nats, the error of the mean,
and the coverage of 90 % intervals, as means over seeds. The peers are scikit-learn's
Poisson regression, and its gradient boosting, of which only the errors are known.

    python examples/benchmarks/bench_likelihoods.py
"""

import argparse

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import PoissonRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from skswsgp import SWSGPRegressor

ROWS, NEW = 600, 1000  # rows that train, and rows that are predicted


def smooth(rng):
    """Return X (n, 2) and a function of it that varies by 1 or so."""
    X = rng.uniform(-2.0, 2.0, size=(ROWS + NEW, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * np.cos(X.sum(axis=1))


def counts(rng, size):
    """Return X, counts of a size, the rates, and arguments of `fit` and `predict`."""
    X, f = smooth(rng)
    exposure = rng.uniform(0.2, 5.0, len(X))
    noise = 1.0 if np.isinf(size) else rng.gamma(size, 1.0 / size, len(X))
    y = rng.poisson(exposure * np.exp(f) * noise).astype(float)
    return X, y, np.exp(f), {"exposure": exposure}


def outliers(rng):
    """Return X, targets of which one in twenty is far off, and the function."""
    X, f = smooth(rng)
    y = f + 0.3 * rng.standard_normal(len(X))
    far = rng.random(len(X)) < 0.05
    return X, y + far * 10.0 * rng.standard_normal(len(X)), f, {}


def heavy_tails(rng):
    """Return X, targets with noise of three degrees of freedom, and the function."""
    X, f = smooth(rng)
    return X, f + 0.3 * rng.standard_t(3.0, len(X)), f, {}


def varying_noise(rng):
    """Return X, targets with deviations of 0.07 to 0.74, and the function."""
    X, f = smooth(rng)
    std = np.exp(-1.5 + 1.2 * np.sin(2.0 * X[:, 1]))
    return X, f + std * rng.standard_normal(len(X)), f, {}


def one_noise(rng):
    """Return X, targets with deviations of 0.3, and the function."""
    X, f = smooth(rng)
    return X, f + 0.3 * rng.standard_normal(len(X)), f, {}


def known_noise(rng):
    """Return X, targets with noise of known variances, and the function."""
    X, f = smooth(rng)
    variance = rng.uniform(0.02, 2.0, len(X)) ** 2
    y = f + np.sqrt(variance) * rng.standard_normal(len(X))
    return X, y, f, {"noise_variance": variance}


KINDS = {  # data, and the estimators that are compared
    "Poisson counts": (
        lambda rng: counts(rng, np.inf),
        ["poisson", "negative_binomial"],
    ),
    "counts, r = 2": (lambda rng: counts(rng, 2.0), ["poisson", "negative_binomial"]),
    "outliers": (outliers, ["gaussian", "student_t"]),
    "noise t3": (heavy_tails, ["gaussian", "student_t"]),
    "varying noise": (varying_noise, ["gaussian", "heteroscedastic"]),
    "one noise": (one_noise, ["gaussian", "heteroscedastic"]),
    "known noise": (known_noise, ["gaussian", "weights", "known noise"]),
}


def peer_error(X, y, truth, rows):
    """Return the root mean square error of a peer's mean on new rows."""
    train, new = slice(0, ROWS), slice(ROWS, None)
    if "exposure" in rows:
        exposure = rows["exposure"][train]
        splines = SplineTransformer(10).fit(X)
        peer = make_pipeline(splines, PoissonRegressor(alpha=1e-3))
        weight = {"poissonregressor__sample_weight": exposure}
        peer.fit(X[train], y[train] / exposure, **weight)
    else:
        peer = HistGradientBoostingRegressor(random_state=0).fit(X[train], y[train])
    return np.sqrt(np.mean((peer.predict(X[new]) - truth[new]) ** 2))


def scores(name, X, y, truth, rows):
    """Return log density, error of the mean and coverage of an estimator."""
    train, new = slice(0, ROWS), slice(ROWS, None)
    likelihood = "gaussian" if name in ("known noise", "weights") else name
    model = SWSGPRegressor(likelihood=likelihood, random_state=0)
    given = {}
    if name == "known noise":
        given = {"noise_variance": rows["noise_variance"][train]}
    elif name == "weights":
        given = {"sample_weight": 1.0 / rows["noise_variance"][train]}
    elif "exposure" in rows:
        given = {"exposure": rows["exposure"][train]}
    model.fit(X[train], y[train], **given)
    error = np.sqrt(np.mean((model.predict(X[new]) - truth[new]) ** 2))
    if "noise_variance" in rows:  # that of new rows differs from row to row
        mean, variance = model.latent_mean_and_variance(X[new])
        held = np.abs(mean - truth[new]) < 1.645 * np.sqrt(variance)
        return np.nan, error, held.mean()
    there = {key: value[new] for key, value in rows.items()}
    density = model.log_predictive_density(X[new], y[new], **there).mean()
    lower, upper = model.predict_interval(X[new], 0.9, **there)
    return density, error, np.mean((lower <= y[new]) & (y[new] <= upper))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5, help="number of data sets")
    seeds = parser.parse_args().seeds
    print("| data | estimator | log density | error of the mean | 90 % hold |")
    print("| --- | --- | --- | --- | --- |")
    for kind, (make, names) in KINDS.items():
        data = [make(np.random.default_rng(seed)) for seed in range(seeds)]
        for name in names:
            density, error, held = np.mean(
                [scores(name, *each) for each in data], axis=0
            )
            row = f"{density:.3f} | {error:.3f} | {held:.3f}"
            print(f"| {kind} | {name} | {row} |")
        error = np.mean([peer_error(*each) for each in data])
        print(f"| {kind} | peer | | {error:.3f} | |", flush=True)


if __name__ == "__main__":
    main()
