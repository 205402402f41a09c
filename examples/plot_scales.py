"""
Columns and targets that span orders of magnitude
=================================================

What if columns or targets span orders of magnitude? A stationary kernel takes a step of
a column for equally large wherever it is, and noise for equally large whatever y is.
Doses, incomes and prices are not like that. By default the model looks for another
scale of the columns and of y, and takes it where a few hundred rows are much likelier
there. Predictions are in the units of y all the same.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skswsgp import SWSGPRegressor
from skswsgp.metrics import interval_score

rng = np.random.default_rng(0)


def response(n):
    """Return doses from 0.02 to 55, and a response to their logarithm."""
    dose = np.exp(rng.uniform(-4.0, 4.0, n))
    return dose, np.sin(np.log(dose)) + 0.15 * rng.standard_normal(n)


def price(n):
    """Return sizes, and prices with noise of 30 %."""
    size = rng.uniform(20.0, 200.0, n)
    level = 1.5 + 0.012 * size + 0.4 * np.sin(size / 15.0)
    return size, np.exp(level + 0.3 * rng.standard_normal(n))


figure, axes = plt.subplots(2, 2, figsize=(9, 5.4), layout="constrained")
for row, observe, axis in zip(axes, (response, price), ("x", "y"), strict=True):
    (x, y), (new, y_new) = observe(300), observe(4000)
    grid = np.linspace(x.min(), x.max(), 800)
    if axis == "x":
        grid = np.geomspace(x.min(), x.max(), 800)
    for ax, chosen in zip(row, (None, "auto"), strict=True):
        name = f"{axis}_transform"
        model = SWSGPRegressor(random_state=0, **{name: chosen})
        model.fit(x[:, None], y)
        score = interval_score(y_new, *model.predict_interval(new[:, None]))
        lower, upper = model.predict_interval(grid[:, None])
        ax.plot(x, y, ".", color="0.5", ms=3)
        ax.fill_between(grid, lower, upper, color="C0", alpha=0.3, lw=0, label="95 %")
        ax.plot(grid, model.predict(grid[:, None]), "C0", lw=1.2, label="mean")
        found = getattr(model, f"{name}_")
        took = "" if found is None else f", takes {found.name!r}"
        title = f"{name}={chosen!r}{took}: interval score {score:.2f}"
        ax.set_title(title, fontsize="medium")
        print(
            f"{observe.__name__}, {name}={chosen!r}{took}: interval score {score:.2f}"
        )
    row[0].sharey(row[1])
for ax in axes[0]:
    ax.set(xscale="log", xlabel="dose", ylabel="response")
for ax in axes[1]:
    ax.set(xlabel="size", ylabel="price")
axes[0, 0].legend(loc="lower left", fontsize="small")

# %%
# What was seen: on another scale the intervals of both tables have a better score.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "scales.png", dpi=120)
else:
    plt.show()
