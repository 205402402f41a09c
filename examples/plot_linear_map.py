"""
Learn which combinations of columns matter
==========================================

What if y changes along a combination of columns? A kernel with one length-scale for
each column sees a table along its columns, and needs many rows to see that. How many
fewer does a linear map need that is learned together with the kernel?
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skswsgp import SWSGPRegressor

# %%
# Six columns, of which y knows only the sum of the first two.
DIRECTION = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0]) / np.sqrt(2.0)
NOISE = 0.05


def draw(n_rows, rng):
    """Return X, noisy y and the function without noise."""
    X = rng.uniform(-1.0, 1.0, size=(n_rows, 6))
    f = np.sin(3.0 * np.sqrt(2.0) * X @ DIRECTION)
    return X, f + NOISE * rng.normal(size=n_rows), f


# %%
# The error of the function by the number of rows, without and with a map.
rng = np.random.default_rng(0)
X, y, _ = draw(3000, rng)
X_test, _, f_test = draw(2000, rng)
sizes = [50, 100, 200, 400, 800, 1500, 3000]
errors = {False: [], "auto": []}
for n_rows in sizes:
    for learn_map, values in errors.items():
        model = SWSGPRegressor(learn_map=learn_map, random_state=0)
        model.fit(X[:n_rows], y[:n_rows])
        values.append(np.sqrt(np.mean((model.predict(X_test) - f_test) ** 2)))
    if n_rows == 800:  # with 3,000 rows the columns alone do as well
        mixed = model
    print(
        f"{n_rows} rows: columns {errors[False][-1]:.3f}, map {errors['auto'][-1]:.3f}"
    )

# %%
# Slopes of the kernel's argument: rows of `linear_map_` over the length-scales. Their
# longest direction is the one in which the function changes.
scaled = mixed.linear_map_ / mixed.kernel_.k2.length_scale
direction = np.linalg.svd(scaled)[0][:, 0]
direction *= np.sign(direction.sum())

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.loglog(sizes, errors[False], "o-", color="#999999", label="learn_map=False")
left.loglog(sizes, errors["auto"], "o-", color="#1f5fa8", label='learn_map="auto"')
left.set(xlabel="rows", ylabel="RMSE of the function")
left.set_xticks(sizes[::2], sizes[::2])
left.minorticks_off()
left.legend(frameon=False)
places = np.arange(6)
right.bar(places - 0.2, DIRECTION, 0.4, color="#999999", label="truth")
right.bar(places + 0.2, direction, 0.4, color="#1f5fa8", label="found")
right.axhline(0.0, color="black", linewidth=0.8)
right.set(xlabel="column of X", ylabel="leading direction", xticks=places)
right.legend(frameon=False)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)

# %%
# What was seen: up to some 400 rows, the map has about the error that the columns have
# with four times as many rows. With 3,000 rows both are alike.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "linear_map.png", dpi=120)
else:
    plt.show()
