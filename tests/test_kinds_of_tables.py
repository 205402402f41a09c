"""Random tables of kinds that were hard: what intervals and means promise of them.

Each test draws several tables of a kind, of random sizes and units, and looks at the
mean over them. The limits are far from what is usual: see the guide for figures.
"""

import numpy as np
import pytest
from scipy import stats

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


@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
def test_counts_of_any_size_have_the_width_of_their_law(likelihood):
    ratios = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        size, D = 10.0 ** rng.uniform(0.0, 7.0), int(rng.integers(1, 4))
        X, new = rng.normal(size=(150, D)), rng.normal(size=(300, D))
        rates = [size * np.exp(0.5 + 0.7 * rows[:, 0]) for rows in (X, new)]
        model = SWSGPRegressor(likelihood=likelihood, random_state=0)
        model.fit(X, rng.poisson(rates[0]))
        lower, upper = stats.poisson.interval(0.9, rates[1])
        width = held(model, new, rates[1])[1]
        ratios.append(np.median(width / np.maximum(upper - lower, 1.0)))
    assert 0.9 < np.mean(ratios) < 1.25
    assert max(ratios) < 1.4
