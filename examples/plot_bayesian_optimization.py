"""
Bayesian optimisation with thousands of evaluations
===================================================

Where is a function of four columns largest, if each value costs an experiment? Each
round fits the values so far and chooses a batch of new ones: those of the largest
expected improvement, the maxima of as many draws of functions (Thompson sampling), or
random ones. In the end the mean is climbed along its gradient. All use public methods
only.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize
from scipy.stats import norm

from skswsgp import SWSGPRegressor

# %%
# The function of Hartmann in four columns, in noise.
MAXIMUM = 3.13449414
A = np.array(
    [[10, 3, 17, 3.5], [0.05, 10, 17, 0.1], [3, 3.5, 1.7, 10], [17, 8, 0.05, 10]]
)
P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124],
        [2329, 4135, 8307, 3736],
        [2348, 1451, 3522, 2883],
        [4047, 8828, 8732, 5743],
    ]
)
NOISE = 0.3
SIZES = [200, 400, 800, 1600, 3000]


def function(X):
    """Return the values of the function at rows of X (n, 4) in the unit cube."""
    square = np.einsum("id,nid->ni", A, (X[:, None] - P) ** 2)
    return (np.exp(-square) @ [1.0, 1.2, 3.0, 3.2] - 1.1) / 0.839


def candidates(X, y, rng):
    """Return 4,000 random rows, half of them near the best observed ones."""
    best = X[np.argsort(-y)[:50]]
    near = best[rng.integers(50, size=2000)] + 0.05 * rng.normal(size=(2000, 4))
    return np.concatenate([rng.uniform(size=(2000, 4)), near.clip(0.0, 1.0)])


def by_expected_improvement(model, rows, n_rows, rng):
    """Return the numbers of the rows of largest expected improvement on the best."""
    mean, variance = model.latent_mean_and_variance(rows)
    std = np.sqrt(variance)
    gain = mean - mean.max()
    improvement = gain * norm.cdf(gain / std) + std * norm.pdf(gain / std)
    return np.argsort(-improvement)[:n_rows]


def by_draws(model, rows, n_rows, rng):
    """Return the numbers of the rows where draws of functions are largest."""
    seed = int(rng.integers(2**31))
    return model.sample_f(rows, n_rows, random_state=seed).argmax(axis=0)


def at_random(model, rows, n_rows, rng):
    """Return the numbers of random rows."""
    return rng.integers(len(rows) // 2, size=n_rows)


def climbed(model, row):
    """Return the row in the unit cube where climbing the mean from a row ends."""

    def loss(x):
        mean, _ = model.latent_mean_and_variance([x])
        return -mean[0], -model.predict_gradient([x])[0]

    return minimize(loss, row, jac=True, bounds=[(0.0, 1.0)] * 4).x


def run(choose):
    """Return how far the best row so far is below the maximum, after each round.

    The last number is that of the row where climbing the mean of the last round ends.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(SIZES[0], 4))
    y = function(X) + NOISE * rng.normal(size=len(X))
    regrets = [MAXIMUM - function(X).max()]
    for size in SIZES[1:]:
        model = SWSGPRegressor(random_state=0).fit(X, y)
        rows = candidates(X, y, rng)
        new = rows[choose(model, rows, size - len(X), rng)]
        X = np.concatenate([X, new])
        y = np.append(y, function(new) + NOISE * rng.normal(size=len(new)))
        regrets.append(MAXIMUM - function(X).max())
    best = X[model.predict(X).argmax()]
    return [*regrets, MAXIMUM - function(climbed(model, best)[None])[0]]


figure, ax = plt.subplots(figsize=(5.5, 3.6), layout="constrained")
choices = {
    "expected improvement": by_expected_improvement,
    "draws of functions": by_draws,
    "random rows": at_random,
}
for name, choose in choices.items():
    regrets = run(choose)
    print(f"{name:>21}: regret " + ", ".join(f"{regret:.4f}" for regret in regrets))
    ax.loglog(SIZES, np.maximum(regrets[:-1], 1e-6), "o-", label=name)
ax.set_xticks(SIZES, SIZES, minor=False)
ax.set_xticks([], minor=True)
ax.set(xlabel="evaluations", ylabel="maximum minus the best row so far")
ax.legend()

# %%
# What was seen: after 1,600 evaluations the best row of both choices by the model is
# within 0.005 of the maximum. The best of as many random rows is 0.28 below it.
# Climbing the mean of its last round from the best row of expected improvement ends
# 0.0004 below the maximum.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "bayesian_optimization.png", dpi=120)
else:
    plt.show()
