"""Figure 3 of the SWSGP paper: numbers of inducing points and of neighbours.

SVGP-M uses all its points, SVGP-M-16 is trained so and predicts from the nearest 16,
and SWSGP-M-H uses H in both. All take 5,000 steps of Adam; the paper takes 300,000.
"""

import math

from _models import QUICK, QUICK_SVGP, svgp, swsgp
from _runs import CLASSES, Cell, run
from report import unique

STEPS = 5000
N_TRAIN = {
    "powerplant": 7654,
    "kin8nm": 6553,
    "protein": 36584,
    "eeg": 11980,
    "credit": 24000,
    "spam": 3680,
}
POINTS, NEIGHBORS = (32, 64, 128), (4, 8, 16)
MARKS = {"SVGP": "k^-", "SVGP-16": "cv-", "SVGP, 16 in predictions": "ro-"}
MARKS |= {
    f"SWSGP, H = {H}": f"g{mark}-" for H, mark in zip(NEIGHBORS, "s*+", strict=True)
}


def cells(data):
    """Return the cells of a table."""
    epochs = math.ceil(STEPS * 64 / N_TRAIN[data])
    found = [Cell(data, "SVGP-16", svgp(data, 16, epochs), {}, QUICK_SVGP)]
    for M in POINTS:
        model, nearest = svgp(data, M, epochs), {"n_neighbors": 16}
        found += [
            Cell(data, f"SVGP-{M}", model, {}, QUICK_SVGP),
            Cell(data, f"SVGP-{M}-16", model, {}, QUICK_SVGP, predict=nearest),
        ]
        found += [
            Cell(data, f"SWSGP-{M}-{H}", swsgp(data, M, H, epochs), {}, QUICK)
            for H in NEIGHBORS
        ]
    return found


CELLS = [cell for data in N_TRAIN for cell in cells(data)]


def names(label, M):
    """Return the name of a model with M points."""
    if label == "SVGP":
        return f"SVGP-{M}"
    if label == "SVGP-16":
        return label
    if label.startswith("SVGP"):
        return f"SVGP-{M}-16"
    return f"SWSGP-{M}-{label.split()[-1]}"


def draw(plt, rows, scores, fit):
    """Draw errors above densities, a column a table, against M."""
    data = unique(rows, "data")
    size = 2.2 * len(data), 4.4
    figure, axes = plt.subplots(
        2, len(data), figsize=size, squeeze=False, layout="constrained"
    )
    for name, line in zip(data, axes.T, strict=True):
        known = {row["model"]: row for row in rows if row["data"] == name}
        error = "error" if name in CLASSES else "RMSE"
        for ax, score in zip(line, (error, "MNLL"), strict=True):
            for label, mark in MARKS.items():
                part = [(M, known.get(names(label, M))) for M in POINTS]
                part = [(M, row) for M, row in part if row]
                ax.errorbar(
                    [M for M, _ in part], [row[score] for _, row in part],
                    yerr=[row[f"{score} ±"] or 0.0 for _, row in part], fmt=mark,
                    label=label, lw=1,
                )  # fmt: skip
            ax.set_xscale("log", base=2)
            ax.set_xticks(POINTS, POINTS)
            ax.set_title(f"{name}, {score}", fontsize=9)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6
    )
    return figure


if __name__ == "__main__":
    run(__file__, __doc__, CELLS, ("RMSE", "error", "MNLL"), folds=1, draw=draw)
