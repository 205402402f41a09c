"""
Draws of functions, and the deviation of a mean
===============================================

A standard deviation belongs to one row. How sure is the model of a mean over many rows,
or of where the maximum lies? Such questions need rows together: `sample_f` draws
functions, and `predict(X, return_cov=True)` returns the covariance of the rows.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skswsgp import SWSGPRegressor

# %%
# Noisy values of a function, with a gap.
rng = np.random.default_rng(0)
X = rng.uniform(0.0, 10.0, size=(500, 1))
X = X[(X[:, 0] < 4.5) | (X[:, 0] > 6.0)]
y = np.sin(1.7 * X[:, 0]) + 0.1 * X[:, 0] + 0.3 * rng.normal(size=len(X))
model = SWSGPRegressor(random_state=0).fit(X, y)

# %%
# Draws agree where there are rows, and differ in the gap and beyond the data. The
# numbers of `random_state` name functions: the same ones are evaluated on any rows.
grid = np.linspace(-1.0, 11.0, 400)[:, None]
mean, variance = model.latent_mean_and_variance(grid)
functions = model.sample_f(grid, n_samples=8, random_state=0)

# %%
# The deviation of the mean of f over windows of growing width, around the gap. Rows of
# a window err together, which independent rows would not.
widths = np.linspace(0.1, 6.0, 25)
joint, independent = [], []
for width in widths:
    rows = np.linspace(5.25 - width / 2, 5.25 + width / 2, 60)[:, None]
    _, cov = model.predict(rows, return_cov=True)
    cov -= model.noise_variance_ * model.y_scale_**2 * np.eye(len(rows))
    joint.append(np.sqrt(cov.mean()))
    independent.append(np.sqrt(np.trace(cov)) / len(rows))

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.plot(X, y, ".", color="0.8", ms=3, label="rows")
left.plot(grid, functions, "C1", lw=0.7)
left.plot([], [], "C1", lw=0.7, label="draws of functions")
left.plot(grid, mean, "C0", lw=1.5, label="mean")
left.set(xlabel="x", ylabel="y")
left.legend(fontsize="small")
right.plot(widths, joint, "C0", label="rows together")
right.plot(widths, independent, "C3--", label="as if rows were independent")
right.set(xlabel="width of the window", ylabel="deviation of the mean of f", ylim=0)
right.legend(fontsize="small")
print(f"widest window: {joint[-1]:.3f} together, {independent[-1]:.3f} independent")

# %%
# What was seen: the deviation of the mean of the widest window is nearly four times
# as large as that of independent rows would be.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "function_draws.png", dpi=120)
else:
    plt.show()
