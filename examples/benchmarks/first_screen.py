"""Draw `prices.svg` and `ranks.svg`, the first pictures of the README and of the site.

`prices.svg` shows new diamonds and the 90 % intervals of the default, which is fitted
to 2,000 others: numbers and three categories, encoded as in the user guide. `ranks.svg`
shows mean ranks over the mixed tables of `doc/benchmarks/peers.csv`. Each is half as
wide as a page, so that they stand side by side, and on a phone one below the other. Run
``python examples/benchmarks/first_screen.py``; it needs the extra ``bench`` and prints
what `prices.svg` shows.
"""

from io import StringIO
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
SIZE = 4.1, 3.3  # in inches, of which 96 CSS pixels make one


def main():
    """Save both pictures."""
    plt.rcParams["svg.hashsalt"] = "skswsgp"  # names in the files repeat
    figure, axes = plt.subplots(figsize=SIZE, layout="constrained")
    draw_prices(axes)
    save(figure, "prices")
    figure, panels = plt.subplots(1, 2, sharey=True, figsize=SIZE, layout="constrained")
    results = Results(read(DOC / "benchmarks" / "peers.csv"), "mixed")
    errors = results.ranks("RMSE")
    draw_ranks(panels[0], errors, list(errors), "Error (RMSE)")
    draw_ranks(
        panels[1], results.ranks("interval score"), list(errors), "90 % intervals"
    )
    figure.supxlabel(f"mean rank over {len(MIXED)} mixed tables", fontsize=9)
    save(figure, "ranks")


def save(figure, name):
    """Write a picture without its date and without blanks at the ends of lines."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    lines = map(str.rstrip, text.getvalue().splitlines())
    (DOC / "figures" / f"{name}.svg").write_text("\n".join(lines) + "\n")


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
    axes.vlines(place, lower, upper, color="#a9c8ea", linewidth=2.0)
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


def draw_ranks(axes, ranks, names, title):
    """Draw mean ranks by model; a model that has no such score has no bar."""
    known = [ranks.get(name, 0.0) for name in names]
    colors = [BLUE if name == OURS else GREY for name in names]
    axes.barh(names, known, color=colors)
    for place, rank in enumerate(known):
        text = f" {rank:.1f}" if rank else " none"
        axes.text(rank, place, text, va="center", fontsize=8)
    axes.set_title(title, fontsize=10, loc="left")
    labels = ["skswsgp" if name == OURS else name for name in names]
    axes.set(xticks=[], xlim=(0, 1.25 * max(known)), ylim=(len(names) - 0.5, -0.5))
    axes.set_yticks(names, labels)
    axes.tick_params(axis="y", labelsize=8, length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


if __name__ == "__main__":
    main()
