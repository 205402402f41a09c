"""
Outliers
========

A tenth of the measurements is wrong, by any amount. What do they do to the mean and to
its intervals, and is it worth saying that there are some?
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skswsgp import SWSGPRegressor

# %%
# A sine with noise of the deviation 0.1, and 40 of 400 values anywhere.
rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 10, 400))
y = np.sin(x) + 0.1 * rng.standard_normal(400)
wrong = rng.choice(400, 40, replace=False)
y[wrong] = rng.uniform(-4, 8, 40)
grid = np.linspace(0, 10, 400)
truth = np.sin(grid)

# %%
# The Gaussian likelihood learns a wide noise, the Student-t one that of the others and
# how heavy the tails are. Intervals reach two deviations of the function to each side.
figure, axes = plt.subplots(
    1, 2, figsize=(9, 3.6), sharex=True, sharey=True, layout="constrained"
)
for ax, likelihood in zip(axes, ("gaussian", "student_t"), strict=True):
    model = SWSGPRegressor(likelihood=likelihood, random_state=0).fit(x[:, None], y)
    mean, variance = model.latent_mean_and_variance(grid[:, None])
    half = 2.0 * np.sqrt(variance)
    error = np.sqrt(np.mean((mean - truth) ** 2))
    width = 2.0 * half.mean()
    print(f"{likelihood}: RMSE {error:.3f} of the function, intervals {width:.2f} wide")
    ax.plot(x, y, ".", color="0.4", ms=3, label="measured")
    ax.plot(grid, truth, "k:", lw=1.2, label="function")
    band = mean - half, mean + half
    ax.fill_between(grid, *band, color="#0072B2", alpha=0.3, lw=0)
    ax.plot(grid, mean, color="#0072B2", lw=1.4, label="mean and two deviations")
    ax.set(title=f"likelihood={likelihood!r}: RMSE {error:.3f}", xlabel="x")
axes[0].set(ylabel="y", ylim=(-3, 4))
axes[0].legend(loc="upper right", fontsize="small")
print(f"degrees of freedom: {model.likelihood_shape_.item():.2f}")

# %%
# What was seen: with Student-t noise the mean is nearer to the function, and the
# intervals around it are narrower.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "outliers.png", dpi=120)
else:
    plt.show()
