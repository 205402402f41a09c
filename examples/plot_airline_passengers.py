"""
Continue a monthly series with a trend and a season
===================================================

How do I forecast a series that grows and repeats every year? A sum of kernels says so:
a smooth trend, a season that may change slowly, and what is left. Ten years of monthly
airline passengers train the model, and the last two are predicted.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared

from skswsgp import SWSGPRegressor

# %%
# Thousands of passengers of each month, 1949 to 1960 (Box and Jenkins, Time Series
# Analysis, 1970, series G). The swings grow with the level, so the model is one of the
# logarithm.
PASSENGERS = np.array(
    [
        [112, 118, 132, 129, 121, 135, 148, 148, 136, 119, 104, 118],
        [115, 126, 141, 135, 125, 149, 170, 170, 158, 133, 114, 140],
        [145, 150, 178, 163, 172, 178, 199, 199, 184, 162, 146, 166],
        [171, 180, 193, 181, 183, 218, 230, 242, 209, 191, 172, 194],
        [196, 196, 236, 235, 229, 243, 264, 272, 237, 211, 180, 201],
        [204, 188, 235, 227, 234, 264, 302, 293, 259, 229, 203, 229],
        [242, 233, 267, 269, 270, 315, 364, 347, 312, 274, 237, 278],
        [284, 277, 317, 313, 318, 374, 413, 405, 355, 306, 271, 306],
        [315, 301, 356, 348, 355, 422, 465, 467, 404, 347, 305, 336],
        [340, 318, 362, 348, 363, 435, 491, 505, 404, 359, 310, 337],
        [360, 342, 406, 396, 420, 472, 548, 559, 463, 407, 362, 405],
        [417, 391, 419, 461, 472, 535, 622, 606, 508, 461, 390, 432],
    ]
)
years = np.arange(PASSENGERS.size) / 12.0
X, y = years[:, None], np.log(PASSENGERS.ravel())
known, last = slice(0, 120), slice(120, 144)

# %%
# The trend changes over more years than the series has. A season with the fixed period
# of a year may change over decades. A third kernel describes deviations from trend and
# season, which last for months.
trend = ConstantKernel() * RBF(30.0, (20.0, 100.0))
year = ExpSineSquared(length_scale=1.0, periodicity=1.0, periodicity_bounds="fixed")
season = ConstantKernel() * RBF(30.0) * year
rest = ConstantKernel(0.1) * RBF(1.0)

model = SWSGPRegressor(trend + season + rest, random_state=0).fit(X[known], y[known])
lower, upper = model.predict_interval(X, coverage=0.95)
mean = model.predict(X)
inside = (lower <= y) & (y <= upper)
error = np.sqrt(np.mean((mean[last] - y[last]) ** 2))
naive = np.sqrt(np.mean((np.tile(y[108:120], 2) - y[last]) ** 2))
print(f"kernel: {model.kernel_}")
print(f"95 % intervals hold {inside[last].sum()} of the last 24 months")
print(f"error of the logarithm {error:.3f}, of the same month of 1958 {naive:.3f}")

# %%
# The season goes on, and the intervals widen as the trend becomes uncertain.
figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
dates = 1949.0 + years
ax.plot(dates[known], np.exp(y[known]), "k.-", lw=0.8, ms=3, label="known")
ax.plot(dates[last], np.exp(y[last]), "C3.", label="not known to the model")
ax.plot(dates[last], np.exp(mean[last]), "C0", label="median")
band = np.exp(lower[last]), np.exp(upper[last])
ax.fill_between(dates[last], *band, color="C0", alpha=0.25, label="95 % interval")
ax.set(xlabel="year", ylabel="thousands of passengers", ylim=(0, None))
ax.legend(loc="upper left", frameon=False)
ax.spines[["top", "right"]].set_visible(False)

# %%
# What was seen: all of the last 24 months lie in their intervals of 95 %, and the
# error is less than a fifth of that of the same months of 1958.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "airline_passengers.png", dpi=120)
else:
    plt.show()
