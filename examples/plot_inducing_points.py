"""
Choose the numbers of inducing points and neighbours
====================================================

How many inducing points (M) does a table want, and how many of them should each row use
(H)? Both are ordinary parameters, so that `GridSearchCV` can compare them, here by the
density of held-out rows, which counts means and intervals alike.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV

from skswsgp import SWSGPRegressor
from skswsgp.metrics import get_scorer

# %%
# 750 rows of a function with details of size 0.3 in two features.
rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(750, 2))
y = np.sin(4 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.2 * rng.normal(size=750)

# %%
# Kernel and noise are learned once, so that each fit only solves for q(u).
learned = SWSGPRegressor(learn_map=False, random_state=0).fit(X, y)
model = SWSGPRegressor(
    learned.kernel_,
    initial_noise=learned.noise_variance_,
    learn_kernel=False,
    random_state=0,
)

# %%
# Threefold cross-validation over M and H.
grid = {"n_inducing": [50, 100, 200, 400], "n_neighbors": [2, 4, 8, 16, 32]}
scorer = get_scorer("neg_log_density")
search = GridSearchCV(model, grid, scoring=scorer, cv=3).fit(X, y)
shape = len(grid["n_inducing"]), len(grid["n_neighbors"])
scores = search.cv_results_["mean_test_score"].reshape(shape).T  # (H, M)
print(f"best: {search.best_params_}, {search.best_score_:.3f} nats per row")

# %%
# Models within a hundredth of a nat of the best score are as good. The picture frames
# the cheapest of these models, which has the smallest product of M and H.
order = np.multiply.outer(grid["n_neighbors"], grid["n_inducing"])
row, column = np.unravel_index(
    np.argmin(np.where(scores > scores.max() - 0.01, order, np.inf)), order.shape
)
H, M = grid["n_neighbors"][row], grid["n_inducing"][column]
print(f"smallest as good: M = {M}, H = {H}, {scores[row, column]:.3f}")

figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
image = ax.imshow(scores, cmap="cividis", origin="lower", aspect="auto")
for (h, m), score in np.ndenumerate(scores):
    dark = score < scores.mean()
    ax.text(m, h, f"{score:.2f}", ha="center", va="center", color="w" if dark else "k")
frame = plt.Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, lw=2.5, ec="#D55E00")
ax.add_patch(frame)
ax.set_xticks(range(shape[0]), grid["n_inducing"])
ax.set_yticks(range(shape[1]), grid["n_neighbors"])
ax.set(xlabel="M, inducing points", ylabel="H, neighbours of a row")
figure.colorbar(image, label="log density of held-out rows (nats)")

# %%
# What was seen: with 50 points no number of neighbours helps, for they lie too far
# apart. From 200 points on, more neighbours gain more than more points, up to 16 or so.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "inducing_points.png", dpi=120)
else:
    plt.show()
