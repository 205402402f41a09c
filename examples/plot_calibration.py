"""
Calibration of class probabilities
==================================

Can I trust the probabilities of a classifier? Of all rows with a predicted probability
near 0.8, 80 % should belong to the class. The plot compares the Gaussian process with
histogram gradient boosting on two overlapping classes; its bars are intervals of 95 %.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss

from skswsgp import SWSGPClassifier
from skswsgp.displays import ReliabilityDisplay
from skswsgp.metrics import expected_calibration_error

# %%
# 600 rows to learn from, 6,000 to measure with.
X, y = make_moons(6600, noise=0.4, random_state=0)
X, X_test, y, y_test = X[:600], X[600:], y[:600], y[600:]

# %%
# Both models with their default settings.
models = {
    "SWSGPClassifier": SWSGPClassifier(random_state=0),
    "HistGradientBoosting": HistGradientBoostingClassifier(random_state=0),
}
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for name, model in models.items():
    proba = model.fit(X, y).predict_proba(X_test)
    error = expected_calibration_error(y_test, proba)
    print(
        f"{name}: calibration error {error:.3f}, log loss {log_loss(y_test, proba):.3f}"
    )
    title = f"{name}, error {error:.3f}"
    how = {"n_bins": 20, "name": title, "ax": left, "histogram": False}
    ReliabilityDisplay.from_predictions(y_test, proba, **how)
    right.hist(proba[:, 1], bins=20, histtype="step", lw=1.5, label=name)
left.set_xlim(0.45, 1.02)
left.legend(fontsize="small")
right.set(xlabel="predicted probability", ylabel="rows")

# %%
# What was seen: points of the Gaussian process lie near the diagonal, and those of
# boosting below it, because most of its probabilities are near zero or one.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "calibration.png", dpi=120)
else:
    plt.show()
