"""Draw `first_screen.png`, the picture of the README and of the front page of the site.

On the left are prices of new diamonds and the 90 % intervals of the default, which is
fitted to 2,000 others: numbers and three categories, encoded as in the user guide. On
the right are mean ranks over the mixed tables of `doc/benchmarks/peers.csv`. Run
``python examples/benchmarks/first_screen.py``; it needs the extra ``bench`` and prints
what the picture shows.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from peer_page import OURS, Results, read
from peer_tables import MIXED, rows_of

from skswsgp import SWSGPRegressor
from skswsgp.metrics import interval_coverage

DOC = Path(__file__).parents[2] / "doc"
BLUE, RED, GREY = "#1f5fa8", "#c44e20", "#b0b0b0"
SHOWN = 120  # new diamonds in the picture


def main():
    """Save the picture."""
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(10.4, 3.5), layout="constrained", width_ratios=[1.7, 1, 1]
    )
    draw_prices(left)
    rows = read(DOC / "benchmarks" / "peers.csv")
    results = Results(rows, "mixed")
    draw_ranks(middle, results.ranks("RMSE"), "Error (RMSE)")
    draw_ranks(right, results.ranks("interval score"), "90 % intervals")
    figure.get_layout_engine().set(wspace=0.05)
    figure.savefig(DOC / "figures" / "first_screen.png", dpi=130)


def draw_prices(axes):
    """Draw prices of new diamonds, in the order of their medians, with intervals."""
    X, y, X_new, y_new = rows_of("diamonds", 0, 2000)
    model = SWSGPRegressor(random_state=0).fit(X, y)
    lower, median, upper = model.predict(X_new, quantiles=[0.05, 0.5, 0.95]).T
    held = interval_coverage(y_new, lower, upper)
    print(f"{len(y)} rows, {X.shape[1]} columns; 90 % intervals hold {held:.3f}")
    order = np.argsort(median[:SHOWN])
    lower, median, upper, price = (
        v[:SHOWN][order] for v in (lower, median, upper, y_new)
    )
    place, inside = np.arange(SHOWN), (lower <= price) & (price <= upper)
    axes.vlines(place, lower, upper, color="#a9c8ea", linewidth=2.6)
    axes.plot(place, median, color=BLUE, linewidth=1.4)
    axes.plot(place[inside], price[inside], ".", color="#333333", markersize=4)
    axes.plot(place[~inside], price[~inside], ".", color=RED, markersize=6)
    title = f"Prices of diamonds: {100 * held:.0f} % of new ones are within"
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("new diamonds, by predicted median", fontsize=9)
    axes.set_ylabel("dollars", fontsize=9)
    axes.set(xticks=[], xlim=(-2, SHOWN + 1), ylim=(0, None))
    axes.tick_params(axis="y", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def draw_ranks(axes, ranks, title):
    """Draw mean ranks by model, the best first."""
    names = ["skswsgp" if name == OURS else name for name in ranks]
    colors = [BLUE if name == OURS else GREY for name in ranks]
    axes.barh(names, list(ranks.values()), color=colors)
    for place, rank in enumerate(ranks.values()):
        axes.text(rank, place, f" {rank:.1f}", va="center", fontsize=8)
    axes.invert_yaxis()
    axes.set_title(title, fontsize=10, loc="left")
    words = f"mean rank over {len(MIXED)} mixed tables"
    axes.set(xticks=[], xlim=(0, 1.1 * max(ranks.values())))
    axes.set_xlabel(words, fontsize=9)
    axes.tick_params(axis="y", labelsize=8, length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


if __name__ == "__main__":
    main()
