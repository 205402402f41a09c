"""
A table larger than memory
==========================

Can I learn from a file that I cannot load? With ``solver="adam"`` and a given kernel,
`fit` reads a memory map piece by piece. The table is small here, so that the example is
quick; how much memory the fit takes is measured. Does it grow with the file?
"""

import sys
import tempfile
import tracemalloc
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process.kernels import Matern
from sklearn.metrics import r2_score

from skswsgp import SWSGPRegressor
from skswsgp.solvers import Adam

D, MIB = 100, 2.0**20
rng = np.random.default_rng(0)


def write(path, n):
    """Write a table of n rows to a file in parts, and return its map and targets."""
    X = np.memmap(path, dtype=np.float32, mode="w+", shape=(n, D))
    y = np.empty(n, dtype=np.float32)
    for part in np.array_split(np.arange(n), 1 + n // 10_000):
        X[part] = rng.standard_normal((len(part), D), dtype=np.float32)
        y[part] = np.sin(X[part, 0] + X[part, 1]) + 0.1 * rng.normal(size=len(part))
    X.flush()
    return np.memmap(path, dtype=np.float32, mode="r", shape=(n, D)), y


# %%
# The kernel is given, and says that two of the 100 columns matter. So is the law of
# the noise. Inducing points are rows of the file. Adam takes one epoch.
kernel = Matern(np.r_[1.5, 1.5, np.full(D - 2, 100.0)], nu=2.5)
sizes, files, peaks = [20_000, 80_000, 200_000], [], []
with tempfile.TemporaryDirectory() as folder:
    for n in sizes:
        X, y = write(Path(folder) / f"{n}.dat", n)
        model = SWSGPRegressor(
            kernel,
            solver=Adam(max_iter=1, batch_size=500, learning_rate=0.05),
            learn_kernel=False,
            inducing_points=X[:100],
            n_neighbors=8,
            predictive="gaussian",
            dtype="float32",
            random_state=0,
        )
        if n == sizes[0]:
            model.fit(X, y)  # loads compiled code, which is not measured
        tracemalloc.start()
        model.fit(X, y)
        peaks.append(tracemalloc.get_traced_memory()[1] / MIB)
        tracemalloc.stop()
        files.append(X.nbytes / MIB)
        print(f"{n} rows: file {files[-1]:.0f} MiB, fit {peaks[-1]:.0f} MiB")
        mean = model.predict(X[-1000:])  # of rows at the end of the file
        print(f"R2 of the last 1,000 rows: {r2_score(y[-1000:], mean):.2f}")
        del X, model

figure, ax = plt.subplots(figsize=(6, 3.8), layout="constrained")
ax.plot(sizes, files, "s--", color="#D55E00", label="file")
ax.plot(sizes, peaks, "o-", color="#0072B2", label="memory that the fit allocated")
ax.set(xlabel="rows", ylabel="MiB", ylim=(0, None))
ax.legend()

# %%
# What was seen: it hardly grows. For each row the fit holds its target, its weight and
# the numbers of its neighbours, and the columns of a sample of rows only.

if "--out" in sys.argv:
    out = Path(sys.argv[sys.argv.index("--out") + 1])
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "memory_map.png", dpi=120)
else:
    plt.show()
