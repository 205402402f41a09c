"""
Learn from a stream of chunks
=============================

What if the data do not fit in memory, or arrive over time? `partial_fit` takes one step
of Adam for each minibatch of a chunk, so that predictions are possible at any time. A
fit of many rows at once shows what the stream can reach.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import root_mean_squared_error

from skswsgp import SWSGPRegressor
from skswsgp.solvers import Adam

# %%
# Each chunk has 1,000 rows of a function of three features.
rng = np.random.default_rng(0)


def draw(n):
    """Return X (n, 3), y (n,) with noise of standard deviation 0.2."""
    X = rng.uniform(-2, 2, size=(n, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=n)
    return X, y


X_test, y_test = draw(2000)

# %%
# The first chunk decides on the inducing points and on the scale of y.
stream = SWSGPRegressor(
    n_inducing=200, n_neighbors=8, solver=Adam(learning_rate=0.03), random_state=0
)
chunks, errors = [], []
for _ in range(30):
    chunks.append(draw(1000))
    stream.partial_fit(*chunks[-1])
    errors.append(root_mean_squared_error(y_test, stream.predict(X_test)))

# %%
# A fit of the first five chunks at once, with default settings.
X, y = (np.concatenate(arrays) for arrays in zip(*chunks[:5], strict=True))
once = SWSGPRegressor(random_state=0).fit(X, y)
reached = root_mean_squared_error(y_test, once.predict(X_test))
print(f"RMSE after one chunk {errors[0]:.3f}, after 30 chunks {errors[-1]:.3f}")
print(f"RMSE of one fit of 5,000 rows {reached:.3f} (noise: 0.2)")

figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.plot(1000 * np.arange(1, 31), errors, "o-", ms=3, label="partial_fit")
ax.axhline(reached, color="C1", label="fit of 5,000 rows")
ax.axhline(0.2, color="k", ls="--", lw=1, label="noise")
ax.set(xlabel="rows seen", ylabel="RMSE on new rows", ylim=(0, None))
ax.legend()

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "stream.png", dpi=120)
else:
    plt.show()
