"""
Active learning: measure where the function is unknown
======================================================

A pool of rows has no labels yet, and each label costs a measurement. Which rows should
be measured? Here they are those of largest latent variance, or random ones, in a pool
that is dense in one part of the space and thin in another.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skswsgp import SWSGPRegressor

# %%
# Most rows of the pool lie in one corner; the test asks for all of the square.
SIZES = [30, 60, 90, 120, 180, 240, 360]
rng = np.random.default_rng(0)
pool = rng.beta(0.7, 4.0, size=(6000, 2))
test = rng.uniform(0.0, 0.7, size=(2000, 2))


def function(X):
    """Return the function without noise."""
    return np.sin(6.0 * X[:, 0]) * np.cos(5.0 * X[:, 1]) + X[:, 1]


def run(active, seed):
    """Return the root mean squared error of the test rows after each round."""
    rng = np.random.default_rng(seed)
    chosen = list(rng.choice(len(pool), SIZES[0], replace=False))
    y = function(pool) + 0.05 * rng.normal(size=len(pool))
    errors = []
    for size in [*SIZES[1:], None]:
        model = SWSGPRegressor(random_state=0).fit(pool[chosen], y[chosen])
        errors.append(np.sqrt(np.mean((model.predict(test) - function(test)) ** 2)))
        if size is None:
            return errors, pool[chosen]
        rest = np.setdiff1d(np.arange(len(pool)), chosen)
        for _ in range(size - len(chosen)) if not active else ():
            chosen.append(rng.choice(rest))
        while active and len(chosen) < size:
            # The row of largest variance, then those whose variance it leaves.
            few = rng.choice(rest, 300, replace=False)
            _, cov = model.predict(pool[few], return_cov=True)
            for _ in range(min(10, size - len(chosen))):
                best = np.diag(cov).argmax()
                chosen.append(few[best])
                cov = cov - np.outer(cov[best], cov[best]) / cov[best, best]


figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for name, active in (("random rows", False), ("largest variance", True)):
    runs = [run(active, seed) for seed in range(3)]
    errors = np.mean([errors for errors, _ in runs], axis=0)
    print(f"{name:>16}: error " + ", ".join(f"{error:.3f}" for error in errors))
    left.loglog(SIZES, errors, "o-", label=name)
    right.plot(*runs[0][1].T, ".", ms=4, label=name)
left.set_xticks(SIZES, SIZES)
left.set_xticks([], minor=True)
left.set(xlabel="labels", ylabel="error of the test rows")
left.legend()
right.set(xlabel="first column", ylabel="second column", title="rows that were chosen")

# %%
# What was seen: with the same number of labels, the error of the rows of largest
# variance is some three to six times smaller than that of random rows.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "active_learning.png", dpi=120)
else:
    plt.show()
