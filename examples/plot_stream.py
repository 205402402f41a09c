"""
Learn from a stream of chunks
=============================

What if rows arrive over time? `partial_fit` learns from each chunk once. Two streams
show what one pass reaches, and how a function that drifts is followed.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import root_mean_squared_error

from skswsgp import SWSGPRegressor
from skswsgp.metrics import interval_coverage
from skswsgp.solvers import Natural

rng = np.random.default_rng(0)


def draw(n):
    """Return X (n, 3), y (n,) with noise of standard deviation 0.2."""
    X = rng.uniform(-2, 2, size=(n, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=n)
    return X, y


# %%
# One pass over 1,000 rows in chunks of 100, and a fit of all of them at once.
X_test, y_test = draw(1000)
stream = SWSGPRegressor(random_state=0)
chunks, errors, held = [draw(100) for _ in range(10)], [], []
for chunk in chunks:
    stream.partial_fit(*chunk)
    errors.append(root_mean_squared_error(y_test, stream.predict(X_test)))
    held.append(interval_coverage(y_test, *stream.predict_interval(X_test)))
X, y = (np.concatenate(arrays) for arrays in zip(*chunks, strict=True))
once = SWSGPRegressor(random_state=0).fit(X, y)
reached = root_mean_squared_error(y_test, once.predict(X_test))
print(f"RMSE after one pass {errors[-1]:.3f}, of one fit {reached:.3f} (noise: 0.2)")
print(f"95 % intervals hold {held[-1]:.1%}")

# %%
# A wave that moves: a stream that remembers some 50 rows, and one that remembers all.
grid = np.linspace(0, 6, 200)[:, None]
models = {
    factor: SWSGPRegressor(solver=Natural(forgetting_factor=factor), random_state=0)
    for factor in (0.98, 1.0)
}
for t in np.arange(0.0, 2.0, 0.25):
    X = rng.uniform(0, 6, size=(100, 1))
    y = np.sin(X[:, 0] + t) + 0.1 * rng.normal(size=100)
    for model in models.values():
        model.partial_fit(X, y)
truth = np.sin(grid[:, 0] + t)
for factor, model in models.items():
    error = root_mean_squared_error(truth, model.predict(grid))
    print(f"forgetting factor {factor}: RMSE of the function {error:.3f}")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
seen = 100 * np.arange(1, 11)
left.plot(seen, errors, "o-", ms=3, label="partial_fit, one pass")
left.axhline(reached, color="C1", label="fit of all 1,000 rows")
left.axhline(0.2, color="k", ls="--", lw=1, label="noise")
left.set(xlabel="rows seen", ylabel="RMSE on new rows", ylim=(0, None))
left.legend()
right.plot(X[:, 0], y, ".", color="0.6", label="last chunk")
right.plot(grid, truth, "k--", lw=1, label="function now")
for factor, model in models.items():
    label = "all rows alike" if factor == 1.0 else "about 50 rows remembered"
    right.plot(grid, model.predict(grid), label=label)
right.set(xlabel="x", ylabel="y", title="a function that drifts")
right.legend()

# %%
# What was seen: one pass reaches the error of a fit to all rows. A stream that forgets
# follows the wave, and one that remembers all rows does not.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "stream.png", dpi=120)
else:
    plt.show()
