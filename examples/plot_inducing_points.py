"""
Choose the numbers of inducing points and neighbours
====================================================

How many inducing points (M) does a table want, and how many of them should each row use
(H)? Both are ordinary parameters, so that `GridSearchCV` can compare them. More of both
lowers the error until the function is resolved. The time of a fit grows with both.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV

from skswsgp import SWSGPRegressor

# %%
# 1,500 rows of a function with details of size 0.3 in two features.
rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(1500, 2))
y = np.sin(4 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.2 * rng.normal(size=1500)

# %%
# Kernel and noise are learned once, so that each fit only solves for q(u).
learned = SWSGPRegressor(learn_map=False, random_state=0).fit(X, y)
model = SWSGPRegressor(
    learned.kernel_,
    initial_noise=learned.noise_variance_,
    learn_kernel=False,
    covariance="diag",
    random_state=0,
)

# %%
# Threefold cross-validation over M and H.
grid = {"n_inducing": [25, 50, 100, 200, 400, 800], "n_neighbors": [2, 4, 8, 16]}
search = GridSearchCV(model, grid, scoring="neg_root_mean_squared_error", cv=3)
search.fit(X, y)
print(f"best: {search.best_params_}, RMSE {-search.best_score_:.3f} (noise: 0.2)")

# %%
# One curve for each H.
results = search.cv_results_
M = np.array([params["n_inducing"] for params in results["params"]])
H = np.array([params["n_neighbors"] for params in results["params"]])
rmse = -results["mean_test_score"]
figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for n_neighbors in grid["n_neighbors"]:
    rows = n_neighbors == H
    ax.loglog(M[rows], rmse[rows], "o-", label=f"H = {n_neighbors}")
ax.axhline(0.2, color="k", ls="--", lw=1, label="noise")
ax.set(xlabel="M", ylabel="RMSE")
ax.set_xticks(grid["n_inducing"], grid["n_inducing"])
ax.set_yticks([0.2, 0.3, 0.4, 0.5], ["0.2", "0.3", "0.4", "0.5"])
ax.minorticks_off()
ax.legend()

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "inducing_points.png", dpi=120)
else:
    plt.show()
