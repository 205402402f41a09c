"""
Rows and seconds, beside scikit-learn's Gaussian process
========================================================

From how many rows on is the sparse process faster than the exact one, if both are given
the kernel? An exact process solves one system of all rows, whose cost grows with the
third power of their number.
"""

import sys
from pathlib import Path
from time import process_time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern, WhiteKernel

from skswsgp import SWSGPRegressor

# %%
# A function of two features with noise of the deviation 0.1.
rng = np.random.default_rng(0)
X = rng.uniform(-4, 4, size=(7000, 2))
truth = np.sin(2 * X[:, 0]) * np.cos(2 * X[:, 1])
y = truth + 0.1 * rng.standard_normal(len(X))
X_new, truth_new = X[-1000:], truth[-1000:]
kernel = Matern(1.0, nu=2.5)

# %%
# Each time is that of `fit` and of `predict` with deviations at 1,000 rows, summed over
# the cores. The first fit is not timed, for it may compile.
exact = GaussianProcessRegressor(
    kernel + WhiteKernel(0.04), normalize_y=True, optimizer=None
)
sparse = SWSGPRegressor(
    kernel,
    initial_noise=0.04,
    learn_kernel=False,
    n_neighbors=32,
    random_state=0,
)
models = {"GaussianProcessRegressor": exact, "SWSGPRegressor": sparse}
sizes = [500, 1000, 2000, 3000, 6000]
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for (name, model), color, marker in zip(
    models.items(), ("#D55E00", "#0072B2"), "so", strict=True
):
    model.fit(X[:500], y[:500])
    seconds, errors = [], []
    for n in sizes if model is sparse else sizes[:-1]:
        start = process_time()
        mean, _ = model.fit(X[:n], y[:n]).predict(X_new, return_std=True)
        seconds.append(process_time() - start)
        errors.append(np.sqrt(np.mean((mean - truth_new) ** 2)))
        print(f"{name}, {n} rows: {seconds[-1]:.2f} s, RMSE {errors[-1]:.3f}")
    for ax, values in zip(axes, (seconds, errors), strict=True):
        ax.loglog(sizes[: len(values)], values, marker=marker, color=color, label=name)
axes[0].set(ylabel="seconds of a core")
axes[1].set(ylabel="RMSE of the function")
axes[1].set_yticks([0.03, 0.04, 0.05, 0.06], ["0.03", "0.04", "0.05", "0.06"])
for ax in axes:
    ax.set(xlabel="rows")
    ax.set_xticks(sizes, sizes)
    ax.minorticks_off()
axes[0].legend(loc="lower right")

# %%
# What was seen: both have the same errors, and between 2,000 and 3,000 rows the sparse
# process becomes the faster one. Up to some 2,900 rows it computes all of S, the
# covariance of the function, which takes the third power of their number too.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "growth.png", dpi=120)
else:
    plt.show()
