"""Random tables of kinds that were hard: what intervals and means promise of them.

Each test draws several tables of a kind, of random sizes and units, and looks at the
mean over them. The limits are far from what is usual: see the guide for figures.
"""

import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from skswsgp import SWSGPRegressor

pytestmark = pytest.mark.slow


def held(model, X, y, coverage=0.9):
    """Return the share of targets that intervals hold, and the widths of these."""
    lower, upper = model.predict_interval(X, coverage=coverage)
    return np.mean((lower <= y) & (y <= upper)), upper - lower


def test_places_with_many_rows_show_their_noise():
    shares = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        side, repeats = int(rng.integers(6, 11)), int(rng.integers(15, 40))
        mean = rng.random((side, side))
        noise = rng.choice([0.05, 0.1, 0.2, 0.4], (side, side))
        a, b = np.repeat(np.indices((side, side)).reshape(2, -1), repeats, axis=1)
        unit = 10.0 ** rng.integers(-3, 4)

        def observe(a=a, b=b, mean=mean, noise=noise, rng=rng):
            return mean[a, b] + noise[a, b] * rng.normal(size=len(a))

        X = unit * np.column_stack([a, b])
        model = SWSGPRegressor(random_state=0).fit(X, observe())
        new = observe()
        for level in (0.05, 0.4):
            here = noise[a, b] == level
            shares.append(held(model, X[here], new[here])[0])
    quiet, loud = np.reshape(shares, (-1, 2)).mean(axis=0)
    assert 0.85 < quiet < 0.99
    assert 0.75 < loud < 0.95


@pytest.mark.parametrize("transform", [None, "log"])
def test_intervals_of_a_few_rows_know_how_few_they_are(transform):
    shares = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, D = int(rng.integers(3, 13)), int(rng.integers(1, 4))
        X, y = rng.normal(size=(n, D)), rng.normal(size=n)
        X_new, new = rng.normal(size=(200, D)), rng.normal(size=200)
        if transform == "log":
            y, new = np.exp(y), np.exp(new)
        model = SWSGPRegressor(y_transform=transform, random_state=0).fit(X, y)
        shares.append(held(model, X_new, new)[0])
    assert np.mean(shares) > 0.78  # 0.7 without a law of few rows


def test_noise_beside_many_columns_is_told_as_noise():
    worse = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(25, 70))
        D = int(rng.integers(n // 5, n))
        X, new = rng.normal(size=(2, n, D)) * 10.0 ** rng.uniform(-3, 3, D)
        y, truth = rng.normal(size=(2, n))
        model = SWSGPRegressor(random_state=0).fit(X, y)
        error = np.mean((model.predict(new) - truth) ** 2)
        worse.append(np.sqrt(error / np.mean((truth - y.mean()) ** 2)))
    assert np.mean(worse) < 1.03


def test_copies_on_a_grid_are_no_near_targets_of_rows_between_levels():
    X = np.stack(np.meshgrid(*3 * [np.linspace(0.0, 1.0, 6)]), -1).reshape(-1, 3)
    y = np.sin(7.0 * X[:, 0]) * X[:, 1]  # the last column does nothing
    model = SWSGPRegressor(random_state=0).fit(X, y)
    assert model.predictive_law_.levels is not None
    assert model.predictive_law_.density is None
    new = np.random.default_rng(1).random((300, 3))
    truth = np.sin(7.0 * new[:, 0]) * new[:, 1]
    lower, upper = model.predict_interval(new)
    assert np.mean((lower <= truth) & (truth <= upper)) > 0.9
    assert np.median(upper - lower) < y.std()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_few_rows_of_a_smooth_function_without_noise():
    ratios = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n, a, b = int(rng.integers(5, 15)), rng.uniform(0.5, 3.0), rng.uniform(0.0, 3.0)
        x = np.sort(rng.random(n))[:, None]
        new = np.linspace(x[0], x[-1], 100)
        y, truth = (np.sin(a * at[:, 0] + b) for at in (x, new))
        kernel = ConstantKernel() * Matern(0.3, (1e-2, 1e3), nu=2.5)
        exact = GaussianProcessRegressor(
            kernel + WhiteKernel(0.1, (1e-8, 10.0)), normalize_y=True
        )
        ours, theirs = (
            np.sqrt(np.mean((model.fit(x, y).predict(new) - truth) ** 2))
            for model in (SWSGPRegressor(random_state=0), exact)
        )
        ratios.append(ours / max(theirs, 1e-3 * y.std()))
    assert np.median(ratios) < 2.0
    assert max(ratios) < 10.0


def test_deviations_between_the_levels_of_a_grid():
    shares, deviations = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        sizes = rng.integers(4, 7, size=int(rng.integers(2, 4)))
        X = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, k) for k in sizes]), -1)
        X, new = X.reshape(-1, len(sizes)), rng.random((300, len(sizes)))
        rate, unit = rng.uniform(5.0, 8.0), 10.0 ** rng.uniform(-3.0, 3.0)
        y, truth = (unit * np.sin(rate * at[:, 0]) * at[:, 1] for at in (X, new))
        model = SWSGPRegressor(random_state=0).fit(X, y)
        shares.append(held(model, new, truth, 0.95)[0])
        deviations.append(np.median(model.predict(new, return_std=True)[1]) / y.std())
    assert np.mean(shares) > 0.9
    assert max(deviations) < 2.0


def test_grids_of_smooth_functions_with_and_without_an_idle_column():
    shares, errors = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        sizes = [(16, 16), (10, 10, 2), (7, 7, 7), (8, 8, 8)][seed % 4]
        X = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, k) for k in sizes]), -1)
        X, new = X.reshape(-1, len(sizes)), rng.random((300, len(sizes)))
        a, b = rng.uniform(3.0, 6.0), rng.uniform(1.0, 3.0)
        y, truth = (np.sin(a * at[:, 0]) * np.cos(b * at[:, 1]) for at in (X, new))
        model = SWSGPRegressor(random_state=0).fit(X, y)
        shares.append(held(model, new, truth, 0.95)[0])
        errors.append(np.sqrt(np.mean((model.predict(new) - truth) ** 2)) / y.std())
    assert np.mean(shares) > 0.9
    assert max(errors) < 2e-3


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
def test_counts_of_any_size_have_the_width_of_their_law(likelihood):
    ratios = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        size, D = 10.0 ** rng.uniform(0.0, 7.5), int(rng.integers(1, 4))
        X, new = rng.normal(size=(150, D)), rng.normal(size=(300, D))
        rates = [size * np.exp(0.5 + 0.7 * rows[:, 0]) for rows in (X, new)]
        model = SWSGPRegressor(likelihood=likelihood, random_state=0)
        model.fit(X, rng.poisson(rates[0]))
        lower, upper = stats.poisson.interval(0.9, rates[1])
        width = held(model, new, rates[1])[1]
        ratios.append(np.median(width / np.maximum(upper - lower, 1.0)))
    assert 0.9 < np.mean(ratios) < 1.25
    assert max(ratios) < 1.4
