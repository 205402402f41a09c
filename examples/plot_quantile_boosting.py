"""
Calibrated intervals beside quantile boosting
=============================================

Boosting gives intervals as well: one model for each end, with ``loss="quantile"``. Do
these intervals hold what they promise on a table of 600 rows, and how wide are they
beside those of the Gaussian process?
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor

from skswsgp import SWSGPRegressor
from skswsgp.displays import PredictionIntervalDisplay
from skswsgp.metrics import interval_coverage, interval_score

# %%
# 600 rows of Friedman's function to learn from, and 4,000 to measure with. The noise
# has the deviation 1, so that no honest interval of 90 % is narrower than 3.3.
X, y = make_friedman1(4600, noise=1.0, random_state=0)
X, X_new, y, y_new = X[:600], X[600:], y[:600], y[600:]

# %%
# Quantiles of 5 % and 95 %, and the median for the points, with default settings.
ours = SWSGPRegressor(random_state=0).fit(X, y)
quantiles = {"SWSGPRegressor": ours.predict(X_new, quantiles=[0.05, 0.5, 0.95]).T}
quantiles["HistGradientBoosting"] = [
    HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=0)
    .fit(X, y)
    .predict(X_new)
    for level in (0.05, 0.5, 0.95)
]
figure, axes = plt.subplots(
    1, 2, figsize=(9, 4.4), sharex=True, sharey=True, layout="constrained"
)
for ax, (name, (lower, median, upper)) in zip(axes, quantiles.items(), strict=True):
    lower, upper = lower.clip(max=upper), upper.clip(min=lower)  # ends may cross
    coverage = interval_coverage(y_new, lower, upper)
    score = interval_score(y_new, lower, upper, coverage=0.9)
    width = (upper - lower).mean()
    print(f"{name}: holds {coverage:.1%}, width {width:.2f}, score {score:.2f}")
    PredictionIntervalDisplay.from_predictions(
        y_new, median, lower, upper, coverage=0.9, ax=ax, subsample=300
    )
    ax.set(title=f"{name}: interval score {score:.2f}")

# %%
# What was seen: the intervals of boosting are wider on average, and yet hold less than
# 90 %. Their ends bend towards the middle of the table for small and large values.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "quantile_boosting.png", dpi=120)
else:
    plt.show()
