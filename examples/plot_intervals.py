"""
Intervals that follow the errors
================================

How wide is an interval where noise is not Gaussian, or not of one size? The law of
observations is learned from the errors of training rows, each predicted from the
others: its width follows the errors around, its tails may be heavier than a Gaussian's,
and it may have several modes.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skswsgp import SWSGPRegressor
from skswsgp.metrics import interval_score

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 10, 1200))
new = np.sort(rng.uniform(0, 10, 4000))
grid = np.linspace(0, 10, 500)


# %%
# Noise that grows, and noise of two levels.
def growing(x):
    """Return a sine whose noise grows from left to right."""
    return np.sin(x) + 0.06 * x * rng.standard_normal(len(x))


def two_levels(x):
    """Return a sine, a tenth of whose values are too large by two."""
    jump = 2.0 * (rng.random(len(x)) < 0.1)
    return np.sin(x) + jump + 0.1 * rng.standard_normal(len(x))


figure, axes = plt.subplots(
    2, 2, figsize=(9, 5.4), sharex=True, sharey="row", layout="constrained"
)
for row, observe in zip(axes, (growing, two_levels), strict=True):
    y, y_new = observe(x), observe(new)
    for ax, law in zip(row, ("gaussian", "auto"), strict=True):
        model = SWSGPRegressor(predictive=law, random_state=0).fit(x[:, None], y)
        score = interval_score(y_new, *model.predict_interval(new[:, None]))
        lower, upper = model.predict_interval(grid[:, None])
        half = model.predict_interval(grid[:, None], coverage=0.5)
        ax.plot(x, y, ".", color="0.5", ms=2)
        ax.fill_between(grid, lower, upper, color="C0", alpha=0.25, lw=0, label="95 %")
        ax.fill_between(grid, *half, color="C0", alpha=0.45, lw=0, label="50 %")
        ax.plot(grid, model.predict(grid[:, None]), "C0", lw=1.2, label="mean")
        ax.set(title=f"predictive={law!r}: interval score {score:.2f}")
        print(f"{observe.__name__}, predictive={law!r}: interval score {score:.2f}")
axes[0, 0].legend(loc="lower left", ncols=3, fontsize="small")
for ax in axes[1]:
    ax.set(xlabel="x")

# %%
# What was seen: the learned intervals have the better score on both tables. They are
# narrow where the noise is small, and reach up to the second level where there is one.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "intervals.png", dpi=120)
else:
    plt.show()
