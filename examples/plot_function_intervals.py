"""
Intervals of the function itself
================================

Where does the function lie, noise aside? Such intervals need more than the diagonal of
the covariance S of the inducing variables. The default takes all of S for tables of up
to 1,000 rows, and asks the nearest points on longer ones.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skswsgp import SWSGPRegressor

# %%
# 4,000 noisy values of a sine.
rng = np.random.default_rng(1)
X = rng.uniform(-3, 3, size=(4000, 1))
y = np.sin(3 * X[:, 0]) + 0.5 * rng.normal(size=4000)
grid = np.linspace(-3, 3, 300)
truth = np.sin(3 * grid)


# %%
# Every row is an inducing point. All of S would have 4,000 x 4,000 entries, while 64
# draws have 4,000 x 64.
def intervals(covariance):
    """Return mean and standard deviation of the function on the grid."""
    model = SWSGPRegressor(covariance=covariance, random_state=0).fit(X, y)
    mean, variance = model.latent_mean_and_variance(grid[:, None])
    return mean, np.sqrt(variance)


figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for ax, covariance in zip(axes, ("diag", "draws"), strict=True):
    mean, std = intervals(covariance)
    covered = np.mean(np.abs(mean - truth) < 1.96 * std)
    print(f"covariance={covariance!r}: 95 % intervals cover {covered:.0%}")
    ax.plot(grid, truth, "k--", lw=1, label="function")
    ax.plot(grid, mean, "C0", lw=1, label="mean")
    ax.fill_between(
        grid, mean - 1.96 * std, mean + 1.96 * std, alpha=0.3, label="95 % interval"
    )
    ax.set(title=f"covariance={covariance!r}: covers {covered:.0%}", xlabel="x")
axes[0].set(ylabel="f(x)", ylim=(-1.2, 2))
axes[0].legend(loc="upper left", fontsize="small")

# %%
# What was seen: with the diagonal of S intervals of the function are far too narrow,
# and with 64 draws they cover nearly what they promise.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "function_intervals.png", dpi=120)
else:
    plt.show()
