"""What the scripts of the papers' tables share: folds, scores, and pages.

A script is a list of cells, a picture and little else. A cell is an estimator on a
table, and what the paper prints for it. Options of every script:

``--quick`` takes one fold of few rows and few steps, to see that a script runs.
``--folds N`` takes other numbers of folds, each a random split with its own seed.
``--out doc`` writes the rows to doc/paper/<script>.csv, to the table in the paper's
page there, and the picture to doc/figures. Rows of earlier runs stay, so that a long
table may come in parts. Words choose cells: ``... --out doc kin8nm SWSGP-64-4``. A word
that is no name only draws and writes the rows that are there.
"""

import csv
import math
import sys
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import numpy as np
from datasets import parts, table_of
from report import Table, arguments, clock, put, save_figure, unique, write_rows
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.metrics import log_loss, roc_auc_score, root_mean_squared_error
from threadpoolctl import threadpool_limits

from skswsgp.metrics import expected_calibration_error, mean_negative_log_density

FORMATS = {
    "RMSE": ".4g",
    "error": ".4f",
    "MNLL": ".3f",
    "AUC": ".4f",
    "ECE": ".4f",
    "Brier": ".4f",
    "R-hat": ".2f",
    "R-hat of f": ".3f",
    "t1": ".2f",
    "t2": ".3f",
    "seconds": ".1f",
}
CLASSES = {"eeg", "credit", "spam", "banana", "mnist", "airline"}
MISSING = math.log(2 * math.pi) / 4  # in regression's MNLL of two of the papers
QUICK_ROWS = 600, 300  # for training and tests
FITS = {}  # models and seconds of a run


class Cell(NamedTuple):
    """A row of a table. Numbers of the paper are floats, or pairs with a spread.

    Without an estimator the row has the paper's numbers only.
    """

    data: str
    model: str
    estimator: BaseEstimator | None
    paper: dict = {}  # noqa: RUF012  by score
    quick: dict = {}  # noqa: RUF012  parameters of a quick run
    prepare: object = lambda X, y: (X, y)
    rows: tuple = (None, None)  # at most so many for training and tests
    predict: dict = {}  # noqa: RUF012  arguments of predictions
    in_deviations: bool = False  # scores of y over its deviation in training
    also: object = None  # also(model, seconds, X, X_test) returns more scores


def run(script, description, cells, scores, *, folds=5, lacks=False, draw=None):
    """Fit the cells on all folds, print a row for each, and write what is asked for.

    `scores` are names of FORMATS. `lacks` says that the paper's MNLL of regression lack
    MISSING, so that corrected ones stand beside them. `draw(plt, rows, scores, fit)`
    returns a figure of all rows; `fit(cell)` is the model of the first fold.
    """
    options = options_of(description, folds)
    table = Table(Path(script).stem, columns_of(cells, scores, lacks))
    with threadpool_limits(options.threads):
        for cell in cells:
            if all(word in (cell.data, cell.model) for word in options.words):
                add_row(table, cell, scores, options)
                keep(table, cells, options.out)
    keep(table, cells, options.out)  # reads earlier rows where there is no other
    if options.out and table.rows:
        path = options.out / "figures" / f"{table.name}.png"
        extras = {"scores": scores, "fit": lambda cell: fit_of(cell, 0, options)[0]}
        save_figure(path, draw or beside, table.rows, **extras)
    FITS.clear()


def options_of(description, folds=1):
    """Return the options of the command line."""
    parser = arguments(description)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folds", type=int, default=folds, help="default: %(default)s")
    parser.add_argument("words", nargs="*", help="tables and models; default: all")
    options = parser.parse_args()
    options.folds = 1 if options.quick else options.folds
    return options


def columns_of(cells, scores, lacks):
    """Return the formats of the columns by their heads."""
    columns = {"data": "", "model": "", "folds": "d"}
    for score in scores:
        spec = FORMATS[score]
        columns |= {score: spec, f"{score} ±": ".2g"}
        if any(score in cell.paper for cell in cells):
            columns |= {f"{score} paper": spec, f"{score} paper ±": ".2g"}
            if lacks and score == "MNLL":
                columns["MNLL corrected"] = spec
    return columns | {"seconds": ".1f"}


def add_row(table, cell, scores, options):
    """Fit a cell on the folds and add its row; say so if its table is missing."""
    folds = range(options.folds if cell.estimator is not None else 0)
    try:
        found = [one_fold(cell, fold, options) for fold in folds]
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) and "SKSWSGP_DATA" not in str(error):
            raise
        print(f"{cell.data}, {cell.model}: left out, for the table is not here.")
        return
    row = dict.fromkeys(table.columns)
    row |= {"data": cell.data, "model": cell.model, "folds": len(found)}
    for name in [name for name in [*scores, "seconds"] if found and name in found[0]]:
        values = [one[name] for one in found]
        row[name] = rounded(np.mean(values))
        if name in scores and len(found) > 1:
            row[f"{name} ±"] = rounded(np.std(values, ddof=1))
        elif f"{name} ±" in found[0]:  # a spread over test rows
            row[f"{name} ±"] = rounded(found[0][f"{name} ±"])
    for name, paper in cell.paper.items():
        paper = paper if isinstance(paper, tuple) else (paper, None)
        row[f"{name} paper"], row[f"{name} paper ±"] = paper
    if "MNLL corrected" in row and "MNLL" in cell.paper:
        lack = 0.0 if cell.data in CLASSES else MISSING
        row["MNLL corrected"] = rounded(row["MNLL paper"] + lack)
    table.add(*row.values())


def rounded(value):
    """Return a number with six digits, which is what a file needs."""
    return float(f"{value:.6g}")


def one_fold(cell, fold, options):
    """Return the scores of a fold by name."""
    model, seconds = fit_of(cell, fold, options)
    X, y, train, test = rows_of(cell, fold, options.quick)
    found = scores_of(model, X[test], y[test], **cell.predict)
    if np.size(getattr(model, "r_hat_", ())):
        found["R-hat"] = model.r_hat_.max()
    if cell.also is not None:
        found |= cell.also(model, seconds, X[train], X[test])
    if cell.in_deviations:
        deviation = y[train].std()
        found["RMSE"] /= deviation
        found["MNLL"] -= math.log(deviation)
    return found | {"seconds": seconds}


def rows_of(cell, fold, quick=False):
    """Return X, y and the indices of training and test rows of a fold."""
    X, y = prepared(cell.data, cell.prepare)
    train, test = parts(cell.data, len(X), fold)
    n_train, n_test = QUICK_ROWS if quick else cell.rows
    return X, y, train[:n_train], test[:n_test]


def fit_of(cell, fold, options):
    """Return a fit and its seconds; cells with the same estimator share it."""
    X, y, train, _ = rows_of(cell, fold, options.quick)
    rows = None if options.quick else cell.rows
    key = cell.estimator, cell.data, rows, fold  # all else is the same in a run
    if key not in FITS:
        model = clone(cell.estimator).set_params(random_state=fold)
        model.set_params(n_jobs=options.threads, **cell.quick if options.quick else {})
        now = clock(options.threads)
        started = now()
        model.fit(X[train], y[train])
        FITS[key] = model, now() - started
    return FITS[key]


@lru_cache(maxsize=1)
def prepared(data, prepare):
    """Return X and y of a table."""
    return prepare(*table_of(data))


def scores_of(model, X, y, **options):
    """Return scores of new rows by name; `options` are arguments of predictions."""
    if is_classifier(model):
        proba = model.predict_proba(X, **options)
        error = np.mean(model.classes_[proba.argmax(axis=1)] != y)
        found = {"error": error, "MNLL": log_loss(y, proba, labels=model.classes_)}
        found["ECE"] = expected_calibration_error(
            y, proba, n_bins=20, labels=model.classes_
        )
        truth = y[:, None] == model.classes_
        found["Brier"] = np.mean(np.sum((proba - truth) ** 2, axis=1))
        if len(model.classes_) == 2:
            found["AUC"] = roc_auc_score(y, proba[:, 1])
        return found
    mean, std = model.predict(X, return_std=True, **options)
    mnll = mean_negative_log_density(y, mean, std)
    if hasattr(model, "log_predictive_density") and not options:
        mnll = -np.mean(model.log_predictive_density(X, y))  # of a mixture, too
    return {"RMSE": root_mean_squared_error(y, mean), "MNLL": mnll}


def keep(table, cells, out):
    """Put rows of earlier runs beside those of this one, and write all."""
    if not out:
        return
    path = out / "paper" / f"{table.name}.csv"
    rows = {(row["data"], row["model"]): row for row in read(path)}
    rows |= {(row["data"], row["model"]): row for row in table.rows}
    order = [(cell.data, cell.model) for cell in cells]
    table.rows = [rows[key] for key in order if key in rows]
    if not table.rows:
        return
    write_rows(path, table.columns, table.rows)
    page = path.with_name(f"{table.name.split('_')[0]}.md")
    if page.exists():
        page.write_text(put(page.read_text(), table.name, markdown(table.rows)))


def read(path):
    """Return the rows of a CSV file of `keep`, none if it is missing."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    text = ("data", "model")
    return [
        {k: v if k in text else float(v) if v else None for k, v in row.items()}
        for row in rows
    ]


def markdown(rows):
    """Return the rows as a table of a page, ours and the paper's side by side."""

    def cell(row, score, head):
        value, spread = row.get(head), row.get(f"{head} ±")
        text = "" if value is None else format(value, FORMATS[score])
        return text if spread is None else f"{text} ± {spread:.2g}"

    scores = [name for name in FORMATS if name in rows[0] and name != "seconds"]
    table = []
    for row in rows:
        line = {"data": row["data"], "model": row["model"]}
        for score in scores:
            line[score] = cell(row, score, score)
            line[f"{score}, paper"] = cell(row, score, f"{score} paper")
            corrected = row.get(f"{score} corrected")
            if corrected not in (None, row.get(f"{score} paper")):
                line[f"{score}, paper"] += f" ({corrected:.3f})"
        line["folds"] = f"{row['folds']:.0f}" if row["folds"] else ""
        line["seconds"] = cell(row, "seconds", "seconds")
        table.append(line)
    heads = [head for head in table[0] if any(line[head] for line in table)]
    lines = [heads, ["---"] * len(heads)]
    lines += [[line[head] for head in heads] for line in table]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def beside(plt, rows, scores, fit=None):
    """Draw ours with its spread and the paper's, a panel a table and score."""
    names = unique(rows, "data")
    parts = [[row for row in rows if row["data"] == name] for name in names]
    panels = [
        [s for s in scores if any(row[s] or row.get(f"{s} paper") for row in part)]
        for part in parts
    ]
    n_columns = max(map(len, panels))
    size = 4.2 * n_columns, 0.33 * len(rows) + 0.9 * len(names)
    figure, axes = plt.subplots(
        len(names), n_columns, figsize=size, squeeze=False, layout="constrained",
        height_ratios=[len(part) + 1 for part in parts],
    )  # fmt: skip
    for line, name, part, own in zip(axes, names, parts, panels, strict=True):
        for ax, score in zip(line, own, strict=False):
            draw_panel(ax, part, score)
            ax.set_title(f"{name}, {score}")
        for ax in line[1:]:
            ax.set_yticklabels([])
        for ax in line[len(own) :]:
            ax.set_axis_off()
    axes[0, 0].legend(fontsize=8)
    return figure


def draw_panel(ax, rows, score):
    """Draw a score of the rows of a table, ours and the paper's."""
    paper = f"{score} {'corrected' if f'{score} corrected' in rows[0] else 'paper'}"
    lines = (score, "o", "C0", "here"), (paper, "D", "none", "paper")
    for head, marker, face, label in lines:
        known = [(i, row) for i, row in enumerate(rows) if row.get(head) is not None]
        if not known:
            continue
        ax.errorbar(
            [row[head] for _, row in known], [i for i, _ in known],
            xerr=[row.get(f"{head} ±") or 0.0 for _, row in known],
            fmt=marker, color="C0" if face == "C0" else "k", mfc=face, label=label,
        )  # fmt: skip
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_yticks(range(len(rows)), [row["model"] for row in rows])
    ax.locator_params(axis="x", nbins=5)
    ax.grid(alpha=0.3)
