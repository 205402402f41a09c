"""What the benchmarks share: arguments, a clock, tables, files, pages and plots."""

import argparse
import csv
import re
import time
from pathlib import Path


def arguments(description, n_threads=1):
    """Return a parser with the arguments that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--out", type=Path, help="folder for CSV files and plots (default: none)"
    )
    parser.add_argument(
        "--threads", type=int, default=n_threads, help="default: %(default)s"
    )
    return parser


def clock(n_threads):
    """Return the clock for so many threads.

    For one it is that of the processor, which other jobs on the machine do not move.
    """
    return time.process_time if n_threads == 1 else time.perf_counter


def least_times(functions, n_threads=1, repeats=7, least=0.02):
    """Return milliseconds a call of each function, the least of several means.

    The functions take turns, so that a change of the machine's speed hits all of them.
    A mean is that of as many calls as take `least` seconds.
    """
    now = clock(n_threads)

    def seconds(function, calls):
        started = now()
        for _ in range(calls):
            function()
        return (now() - started) / calls

    calls = []
    for function in functions:
        function()  # compile, fill caches
        calls.append(1 + int(least / max(seconds(function, 1), 1e-6)))
    turns = [list(map(seconds, functions, calls)) for _ in range(repeats)]
    return [1e3 * min(times) for times in zip(*turns, strict=True)]


class Table:
    """Rows that are printed as they come, and kept for a file and a plot.

    `columns` maps heads to formats; a cell that is None stays empty.
    """

    def __init__(self, name, columns):
        self.name = name
        self.columns = columns
        self.rows = []
        self._print(columns)

    def add(self, *cells):
        """Append a row and print it."""
        self.rows.append(dict(zip(self.columns, cells, strict=True)))
        formats = self.columns.values()
        self._print(
            "" if cell is None else format(cell, spec)
            for cell, spec in zip(cells, formats, strict=True)
        )

    def _print(self, texts):
        cells = zip(texts, self.columns.items(), strict=True)
        row = (
            text.rjust(max(len(head), 8) + 2) if spec else text.ljust(22)
            for text, (head, spec) in cells
        )
        print("".join(row).rstrip(), flush=True)

    def save(self, folder, draw, **options):
        """Write <name>.csv and the plot <name>.png; nothing without a folder."""
        if folder is None:
            return
        write_rows(folder / f"{self.name}.csv", self.columns, self.rows)
        save_figure(folder / f"{self.name}.png", draw, self.rows, **options)


def write_rows(path, columns, rows):
    """Write a CSV file; None is an empty entry."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def put(text, name, block):
    """Return the text of a page with a block between its marks."""
    pattern = rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)"
    return re.sub(pattern, lambda m: f"{m[1]}\n{block}\n{m[2]}", text, flags=re.DOTALL)


def save_figure(path, draw, rows, **options):
    """Save what `draw(pyplot, rows, **options)` returns; nothing without matplotlib."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("No plot: matplotlib is not installed (extra `bench`).")
        return
    figure = draw(plt, rows, **options)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def unique(rows, column):
    """Return the different entries of a column in order."""
    return list(dict.fromkeys(row[column] for row in rows))


def label_decades(plt, axis):
    """Show at least a decade of a logarithmic axis, and plain numbers."""
    low, high = axis.get_view_interval()
    axis.axes.update({f"{axis.axis_name}lim": (min(low, high / 10), 1.1 * high)})
    steps = (1, 2, 5) if high / low < 200 else (1,)
    axis.set_major_locator(plt.LogLocator(subs=steps))
    axis.set_major_formatter("{x:g}")
    axis.minorticks_off()


def lines(plt, rows, *, panel, x, ys, sharey=True):
    """Draw columns `ys` against `x`, both logarithmic, a panel an entry of `panel`.

    There is no panel where x has one value.
    """
    parts = {
        name: [r for r in rows if r[panel] == name] for name in unique(rows, panel)
    }
    parts = {name: part for name, part in parts.items() if len(unique(part, x)) > 1}
    figure, axes = plt.subplots(
        1, len(parts), figsize=(3.6 * len(parts), 3.4), squeeze=False, sharey=sharey
    )
    for ax, (name, part) in zip(axes[0], parts.items(), strict=True):
        for y in ys:
            points = [(row[x], row[y]) for row in part if row[y] is not None]
            if points:
                ax.loglog(*zip(*points, strict=True), "o-", label=y)
        ticks = unique(part, x)
        ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks], rotation=45)
        ax.minorticks_off()
        label_decades(plt, ax.yaxis)
        ax.set_title(name)
        ax.set_xlabel(x)
        ax.grid(alpha=0.3)
    axes[0, 0].set_ylabel("milliseconds")
    if len(ys) > 1:
        axes[0, 0].legend()
    figure.tight_layout()
    return figure


def dots(plt, rows, *, row, panels, series=None):
    """Draw a panel a column of `panels`: a line for each `row`, a dot a `series`."""
    names = unique(rows, row)
    labels = [None] if series is None else unique(rows, series)
    n_lines = -(-len(labels) // 4) if series else 0  # of the legend
    height = 1.2 + 0.4 * len(names) + 0.3 * n_lines
    figure, axes = plt.subplots(
        1, len(panels), figsize=(3 * len(panels), height), sharey=True, squeeze=False
    )
    for ax, column in zip(axes[0], panels, strict=True):
        for label, marker in zip(labels, "os^Dv<>pP*Xhd", strict=False):
            part = [r for r in rows if series is None or r[series] == label]
            values = [r[column] for r in part]
            at = [names.index(r[row]) for r in part]
            ax.plot(values, at, marker, label=label, alpha=0.8)
        ax.set_title(column)
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.grid(alpha=0.3)
        if column in ("RMSE/error", "seconds"):
            ax.set_xscale("log")
            label_decades(plt, ax.xaxis)
    if series:
        handles = axes[0, 0].get_legend_handles_labels()
        figure.legend(*handles, loc="lower center", ncols=4)
    figure.tight_layout(rect=(0, 0.3 * n_lines / height, 1, 1))
    return figure
