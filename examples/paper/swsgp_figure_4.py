"""Figure 4 of the SWSGP paper: thousands of inducing points, over time.

SWSGP with fixed inducing inputs, 32 neighbours and a diagonal covariance of q(u), and
SVGP with fewer points. Each fit of more epochs is another one, with a step length that
falls to its end. The paper's tables WAVE and QUERY are not here, and its flights are
others; its number of neighbours is not printed but for those (100).
"""

from _models import QUICK_SVGP, svgp, swsgp
from _runs import CLASSES, Cell, run
from report import unique

EPOCHS = {3000: (1, 3, 10, 30), 10_000: (1, 3, 10, 30), 128: (1, 3, 10), 512: (1, 3)}
QUICK = {"solver__max_iter": 1, "n_inducing": 100, "n_neighbors": 8}
FIXED = {
    "optimize_inducing": False,
    "covariance": "diag",
    "inducing_points": "random",
}


def cells(data):
    """Return the cells of a table."""
    many = [
        (f"SWSGP-{M:,}, {e} epochs", swsgp(data, M, 32, e, **FIXED), QUICK)
        for M in (3000, 10_000)
        for e in EPOCHS[M]
    ]
    few = [
        (f"SVGP-{M}, {e} epochs", svgp(data, M, e), QUICK_SVGP)
        for M in (128, 512)
        for e in EPOCHS[M]
    ]
    return [Cell(data, name, model, {}, quick) for name, model, quick in many + few]


CELLS = [cell for data in ("protein", "eeg") for cell in cells(data)]


def draw(plt, rows, scores, fit):
    """Draw errors and densities against seconds of a fit."""
    names = unique(rows, "data")
    size = 7.5, 3.0 * len(names)
    figure, axes = plt.subplots(
        len(names), 2, figsize=size, squeeze=False, layout="constrained"
    )
    for name, line in zip(names, axes, strict=True):
        part = [row for row in rows if row["data"] == name]
        models = list(dict.fromkeys(row["model"].rsplit(", ", 1)[0] for row in part))
        for ax, score in zip(
            line, ("error" if name in CLASSES else "RMSE", "MNLL"), strict=True
        ):
            for model in models:
                mine = [row for row in part if row["model"].startswith(model + ",")]
                seconds = [row["seconds"] for row in mine]
                ax.plot(seconds, [row[score] for row in mine], "o-", label=model)
            ax.set(xscale="log", title=f"{name}, {score}", xlabel="seconds of a fit")
    axes[0, 0].legend(fontsize=8)
    return figure


if __name__ == "__main__":
    run(__file__, __doc__, CELLS, ("RMSE", "error", "MNLL"), folds=1, draw=draw)
