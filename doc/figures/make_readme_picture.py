"""Draw `quickstart.png`, the picture of the README.

A noisy function of one variable, observed with a gap: the predictive mean and the 95 %
interval of new observations. Run ``python doc/figures/make_readme_picture.py``; it
needs matplotlib and prints the coverage of the interval on fresh observations.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skswsgp import SWSGPRegressor
from skswsgp.metrics import interval_coverage

NOISE = 0.3  # standard deviation of an observation
LOW, HIGH = 5.2, 6.8  # no training row lies between them


def function(x):
    """Return the function without noise."""
    return np.sin(1.7 * x) + 0.3 * np.cos(4.0 * x) + 0.1 * x


def draw(n_rows, rng):
    """Return x and noisy observations of so many rows outside of the gap."""
    x = np.sort(rng.uniform(0.0, 10.0, n_rows))
    x = x[(x < LOW) | (x > HIGH)]
    return x, function(x) + NOISE * rng.standard_normal(len(x))


def main():
    """Fit the default model and save the picture beside this file."""
    rng = np.random.default_rng(0)
    x, y = draw(400, rng)
    model = SWSGPRegressor(random_state=0).fit(x[:, None], y)
    x_new, y_new = draw(4000, rng)
    fresh = model.predict_interval(x_new[:, None])
    print(f"coverage on {len(y_new)} rows: {interval_coverage(y_new, *fresh):.3f}")

    grid = np.linspace(-0.5, 10.5, 500)
    mean, std = model.predict(grid[:, None], return_std=True)
    figure, axes = plt.subplots(figsize=(7.0, 2.8), layout="constrained")
    axes.fill_between(
        grid, mean - 1.96 * std, mean + 1.96 * std, color="#cfe0f3", linewidth=0,
        label="95 % interval of an observation",
    )  # fmt: skip
    axes.plot(x, y, ".", color="#555555", markersize=3, label="training rows")
    axes.plot(grid, function(grid), "--", color="#c44e20", linewidth=1.2, label="truth")
    axes.plot(grid, mean, color="#1f5fa8", linewidth=1.6, label="predictive mean")
    axes.set(xlim=(-0.5, 10.5), xlabel="x", ylabel="y")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", ncols=2, fontsize=8, frameon=False)
    axes.set_ylim(top=axes.get_ylim()[1] + 0.9)
    figure.savefig(Path(__file__).with_name("quickstart.png"), dpi=130)


if __name__ == "__main__":
    main()
