"""Figure 5 of the SWSGP paper: rows together, by SWSGP-U, SVGP and the full process.

powerplant, 2,000 training rows, 512 inducing points, of which a minibatch shares 128
(SWSGP-U, 400 epochs) or takes all (SVGP, 120 epochs, which take six times as long).
Random groups of test rows are predicted from the union of their h nearest inducing
points, or each row from its own 16. RMSE and NLL are those of standardised y, NLL in
nats a row. "error" is that of covariances, the root mean square difference from the
full process with the same kernel, relative to its covariances.
"""

from _runs import options_of, save_figure
from bench_union import GROUPS, SIZES, one_seed
from report import Table, unique
from threadpoolctl import threadpool_limits

CASES = {"union": ("SWSGP-U-512M-128m", 400), "all": ("SVGP-512M", 120)}


def draw(plt, rows):
    """Draw a panel a score: a line for each model and number of neighbours."""
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.6), layout="constrained")
    names = unique(rows, "trained by")
    for ax, score in zip(axes, ("RMSE", "NLL", "error"), strict=True):
        for name, style in zip(names, ("g-", "k--"), strict=True):
            mine = [row for row in rows if row["trained by"] == name]
            ways = zip(unique(mine, "predicted from"), "ov^sd", strict=False)
            for way, mark in ways:
                part = [row for row in mine if row["predicted from"] == way]
                values = [row[score] for row in part]
                ax.plot(SIZES, values, style + mark, label=f"{name}, {way}")
        ax.set_xscale("log", base=4)
        ax.set_xticks(SIZES, SIZES)
        ax.set(title=score, xlabel="rows of a group")
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, fontsize=8)
    return figure


if __name__ == "__main__":
    options = options_of(__doc__)
    options.data, options.kl_weight = "powerplant", 1.0
    options.neighbors, options.rows = 16, 600 if options.quick else 2000
    options.inducing, options.active = (64, 32) if options.quick else (512, 128)
    table = Table("swsgp_figure_5", GROUPS)
    with threadpool_limits(options.threads):
        for case, (name, epochs) in CASES.items():
            options.epochs = 2 if options.quick else epochs
            (seconds, rmse, nll), scores = one_seed(case, 0, options)
            print(f"{name}: {seconds:.0f} s, row by row {rmse:.4f} / {nll:.4f}")
            for (way, groups, size), values in scores.items():
                if groups == "random":
                    table.add(name, way, groups, size, *values)
    if options.out:
        save_figure(options.out / "figures" / "swsgp_figure_5.png", draw, table.rows)
