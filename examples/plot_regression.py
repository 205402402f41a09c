"""
Fit a function and plot its predictions
=======================================

How do I get a curve with error bars from noisy data? Two lines fit the model and
predict means and standard deviations. The standard deviation is that of a new
observation, so 95 % of new values should lie in the band.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skswsgp import SWSGPRegressor

# %%
# 400 noisy values of a function whose frequency grows to the right.
rng = np.random.default_rng(0)


def function(x):
    """Return the values that are to be learned."""
    return np.sin(x**2 / 2)


X = rng.uniform(0, 5, size=(400, 1))
y = function(X[:, 0]) + 0.2 * rng.normal(size=400)

# %%
# The kernel and the noise variance are learned from the data.
model = SWSGPRegressor(random_state=0).fit(X, y)
grid = np.linspace(-0.5, 5.5, 300)
mean, std = model.predict(grid[:, None], return_std=True)

X_new = rng.uniform(0, 5, size=(2000, 1))
y_new = function(X_new[:, 0]) + 0.2 * rng.normal(size=2000)
new_mean, new_std = model.predict(X_new, return_std=True)
coverage = np.mean(np.abs(y_new - new_mean) < 1.96 * new_std)
noise = np.sqrt(model.noise_variance_) * model.y_scale_
print(f"kernel: {model.kernel_}")
print(f"standard deviation of the noise: {noise:.3f} (true: 0.2)")
print(f"new values in the band: {coverage:.1%}")

# %%
# Beyond the data the band widens. Farther out the mean returns to that of y.
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
ax.plot(X, y, ".", color="0.6", label="data")
ax.plot(grid, function(grid), "k--", lw=1, label="function")
ax.plot(grid, mean, "C0", label="mean")
ax.fill_between(
    grid, mean - 1.96 * std, mean + 1.96 * std, alpha=0.25, label="95 % interval"
)
ax.set(xlabel="x", ylabel="y")
ax.legend(ncols=2, loc="lower left")

# %%
# What was seen: the noise is found, and as many new values as promised lie in the band.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "regression.png", dpi=120)
else:
    plt.show()
