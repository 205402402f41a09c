"""
Noise that varies
=================

How is a function learned where noise varies, so that quiet rows should say more about
it than loud ones? With likelihood="heteroscedastic" the logarithm of the noise variance
has a Gaussian process of its own, and the function is learned with the noise of each
row. The default learns intervals from the errors, but weighs all rows alike.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skswsgp import SWSGPRegressor

rng = np.random.default_rng(1)
x = np.sort(rng.uniform(0, 10, 300))
grid = np.linspace(0, 10, 500)


# %%
# A wiggly function whose noise comes and goes, from 0.04 to 0.9.
def function(x):
    """Return the function without noise."""
    return np.sin(3.0 * x) + 0.3 * x


def noise_std(x):
    """Return the standard deviation of the noise."""
    return np.exp(-1.65 + 1.55 * np.sin(0.9 * x))


y = function(x) + noise_std(x) * rng.standard_normal(len(x))
names = "gaussian", "heteroscedastic"
models = [
    SWSGPRegressor(likelihood=name, random_state=0).fit(x[:, None], y) for name in names
]

# %%
# The function, and the noise that the second model has found.
figure, axes = plt.subplots(
    3, 1, figsize=(8, 6.4), sharex=True, height_ratios=[2, 2, 1], layout="constrained"
)
for ax, name, model in zip(axes, names, models, strict=False):
    mean = model.predict(grid[:, None])
    error = np.sqrt(np.mean((mean - function(grid)) ** 2))
    lower, upper = model.predict_interval(grid[:, None])
    ax.plot(x, y, ".", color="0.5", ms=3)
    ax.fill_between(grid, lower, upper, color="C0", alpha=0.25, lw=0, label="95 %")
    ax.plot(grid, function(grid), "k--", lw=1, label="function")
    ax.plot(grid, mean, "C0", lw=1.5, label="mean")
    ax.set(title=f"likelihood={name!r}: error of the mean {error:.3f}", ylabel="y")
    print(f"likelihood={name!r}: error of the mean {error:.3f}")
axes[1].sharey(axes[0])
axes[0].legend(loc="upper left", ncols=3, fontsize="small")
axes[2].plot(grid, noise_std(grid), "k--", lw=1, label="noise")
for color, name, model in zip(("C1", "C0"), names, models, strict=True):
    axes[2].plot(grid, model.noise_std(grid[:, None]), color, label=name)
axes[2].set(yscale="log", xlabel="x", ylabel="noise std")
axes[2].legend(loc="lower right", fontsize="small")

# %%
# What was seen: the mean of the model that knows the noise is nearer to the function.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "varying_noise.png", dpi=120)
else:
    plt.show()
