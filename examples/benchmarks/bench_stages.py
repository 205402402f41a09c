"""What does each stage of a default fit contribute?

Each fit is repeated without one stage at a time: the function in which the stage stands
is replaced by one that does nothing. Stages that a fit does not reach are not repeated.
The tables are the small kinds of `bench_small_tables`, the public splits, the tables
of `bench_accuracy` (parts of 10,000 rows where they are longer), and labels.

A row of the result is one stage on one table: the mean over splits of the default's
figures, and what they lose without the stage, with standard errors. These are over
splits where there are four or more, else over test rows. RMSE is in logarithms, and for
labels it is the share of errors, as it is. MNLL, log loss and CRPS are as they are, of
standardised y. Seconds are those without the stage over those with it.

``python examples/benchmarks/bench_stages.py --out results`` takes hours of one core.
``--kinds small public long labels`` takes some of the tables, and ``--stages`` some of
the stages. ``--summary results/stages.csv`` prints the table of files.
"""

import contextlib
import csv
import os
import warnings
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
from bench_accuracy import CLASSIFICATION, REGRESSION
from bench_small_tables import KINDS
from datasets import load, split, table_of
from report import arguments, clock, write_rows
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from threadpoolctl import threadpool_limits

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._fit import solve, targets
from skswsgp._kernel_search import (
    climb,
    evidence,
    holdout,
    kernel_choice,
    point_choice,
    site_refinement,
    start,
)
from skswsgp._law import fit_law, learn
from skswsgp._law.shape import GAUSSIAN, make_shape
from skswsgp._law.widths import Nearness, ResidualSizes
from skswsgp._posterior import near_sites
from skswsgp._rows import column_scale
from skswsgp._solvers.exact_mean import ExactFit
from skswsgp.metrics import get_scorer

MOST_ROWS = 10_000  # of a table, from which it is a random part
MOST_LABELS = 5_000
MOST_TEST = 2_000
COLUMNS = (
    "stage", "table", "splits", "reached", "rmse", "mnll", "crps", "coverage",
    "seconds", "rmse_lost", "rmse_error", "mnll_lost", "mnll_error", "crps_lost",
    "crps_error", "coverage_without", "seconds_ratio",
)  # fmt: skip


class Stage(NamedTuple):
    """A function of the package, and what takes its place."""

    owner: object  # a module or a class
    name: str
    without: object  # called with the function and its arguments


def unchanged(function, first, *rest, **named):
    """Return the first argument of a stage, which then finds nothing better."""
    return first


def always(value):
    """Return a stage whose result is `value`, whatever its arguments are."""
    return lambda function, *given, **named: value


def plain_law(function, *given):
    """Return the law of Gaussian errors around the process."""
    with (
        mock.patch.object(fit_law, "is_likelier", return_value=False),
        mock.patch.object(fit_law, "fit_shape", return_value=GAUSSIAN),
    ):
        return function(*given)


def same_widths(function, *given):
    """Return logarithms of sizes that say nothing of widths."""
    return np.zeros_like(function(*given))


def students_shape(function, freedom, errors):
    """Return the shape of Student's t."""
    return make_shape(freedom, np.zeros_like(GAUSSIAN.tilt))


def no_growth(function, *given):
    """Return squares of rows left out of the predictions only."""
    found = function(*given)
    return None if found is None else found[[0, 0]]


def wide_priors(function, climb, posterior, widths):
    """Return variances of priors that do not narrow for few rows."""
    share, climb.share = climb.share, 1.0
    found = function(climb, posterior, widths)
    climb.share = share
    return found


def unit_factors(function, variances, noise, *rest):
    """Return factors of one for each output."""
    return np.ones((2, noise.shape[1]))


def unit_scale(function, *given):
    """Return the factor of near sites, and no scale beyond."""
    factor, scale = function(*given)
    return factor, np.ones_like(scale)


def near_without_map(function, search, fit, turned, learn_map):
    """Return the best fit without a map, of the evidence and of near rows."""
    return function(search, fit, turned, False)


def not_found(function, *given):
    """Find no candidate."""
    raise FloatingPointError


def with_common_length_scales(function, search, shared, turn=False):
    """Let a map move, and no length-scales on their own."""
    return function(search, search.shared, turn) if turn else None


def without_map(function, search, shared, turn=False):
    """Let length-scales move on their own, and no map."""
    return None if turn else function(search, shared)


def no_levels(function, *given):
    """Return columns of levels that have no place."""
    return function(*given)._replace(places=())


def no_ends(function, *given):
    """Return targets that were seen, whose intervals end nowhere."""
    seen = function(*given)
    return seen._replace(least=np.full_like(seen.least, -np.inf))


REGRESSION_STAGES = {
    "scale of y": Stage(
        targets, "choose_targets", lambda function, data, settings, scales: scales[0]
    ),
    "intervals end at zero": Stage(targets, "see_targets", no_ends),
    "scales of columns": Stage(column_scale, "changes_columns", always(False)),
    "columns of levels": Stage(column_scale, "level_columns", no_levels),
    "smoothness": Stage(
        climb,
        "Climb",
        lambda function, learner, start, smoothness, *rest, **named: function(
            learner, start, [min(2.5, smoothness[-1])], *rest, **named
        ),
    ),
    "own length-scales": Stage(
        climb.Climb, "frees_length_scales", property(lambda climb: False)
    ),
    "shorter start of smoother": Stage(climb.Climb, "shorten", always(None)),
    "waves": Stage(climb.Climb, "with_waves", always([])),
    "narrow priors": Stage(climb.Climb, "prior_variances", wide_priors),
    "noise alone": Stage(climb.Climb, "noise_alone", always(None)),
    "map by evidence": Stage(
        climb.Climb, "turned", lambda function, climb, plain, always: plain
    ),
    "near rows": Stage(
        kernel_choice.NearRows, "near", lambda function, search, fit: fit
    ),
    "map by near rows": Stage(kernel_choice.NearRows, "run", near_without_map),
    "rough kernel of near rows": Stage(
        kernel_choice.NearRows, "too_smooth", always(False)
    ),
    "few points": Stage(
        point_choice, "find_few_points", lambda function, fit, *rest: (None, fit)
    ),
    "kernel at few points": Stage(point_choice, "likelier", unchanged),
    "exact means": Stage(solve, "exact_mean_attributes", always(ExactFit())),
    "factor of near sites": Stage(near_sites, "fit_factor", unit_factors),
    "scale beyond that factor": Stage(near_sites, "fit_factor", unit_scale),
    "learned law": Stage(fit_law, "fit_law", plain_law),
    "widths around points": Stage(ResidualSizes, "logarithms", same_widths),
    "shape of errors": Stage(fit_law, "fit_shape", students_shape),
    "fade of near points": Stage(
        Nearness, "fade", lambda function, nearness, near: np.ones(len(near.lists))
    ),
    "near targets": Stage(fit_law, "add_near_targets", unchanged),
    "rows left out of the kernel": Stage(learn, "left_out_squares", no_growth),
    "levels left out": Stage(learn, "find_levels", always(None)),
}
LABEL_STAGES = {
    name: REGRESSION_STAGES[name]
    for name in ("scales of columns", "columns of levels", "smoothness", "waves")
}
LABEL_STAGES |= {
    "smoothness by the bound": Stage(
        start, "smoothnesses", lambda function, fit: ([fit], 0)
    ),
    "own length-scales by the bound": Stage(
        evidence.BoundSearch, "enrich", with_common_length_scales
    ),
    "map by the bound": Stage(evidence.BoundSearch, "enrich", without_map),
    "average variance": Stage(evidence.BoundSearch, "average_variance", always(None)),
    "scaled variance": Stage(site_refinement.SiteRefinement, "scale", always(None)),
    "kernel from sites": Stage(site_refinement.SiteRefinement, "relearned", not_found),
    "separate length-scales of labels": Stage(
        site_refinement.SiteRefinement, "try_separate", always(None)
    ),
    "map of labels": Stage(site_refinement.SiteRefinement, "choose_map", always(None)),
    "variance scale": Stage(holdout.Holdout, "variance_scale", always(1.0)),
}


@contextlib.contextmanager
def without(stage):
    """Replace the function of a stage."""
    function = getattr(stage.owner, stage.name)
    replaced = stage.without
    if not isinstance(replaced, property):

        def replaced(*given, **named):
            return stage.without(function, *given, **named)

    with mock.patch.object(stage.owner, stage.name, replaced):
        yield


@contextlib.contextmanager
def counted(stages):
    """Count the calls of the functions of stages in a dict, which is yielded."""
    calls = dict.fromkeys(stages, 0)
    with contextlib.ExitStack() as stack:
        for name, stage in stages.items():
            function = getattr(stage.owner, stage.name)
            if isinstance(function, property):
                calls[name] = 1
                continue

            def count(*given, _name=name, _function=function, **named):
                calls[_name] += 1
                return _function(*given, **named)

            stack.enter_context(mock.patch.object(stage.owner, stage.name, count))
        yield calls


# --- tables: name -> list of (X, y, X_test, y_test)


def draws(name, seeds):
    """Return draws of a small kind."""
    return [KINDS[name].draw(seed) for seed in range(seeds)]


def public(name, seeds):
    """Return the first public splits of a table."""
    X, y = load(f"gal_{name}")
    with np.load(Path(data_folder(), "gal_splits.npz")) as file:
        tests = file[name][:seeds]
    both = [(np.setdiff1d(np.arange(len(X)), test), test) for test in tests]
    return [(X[train], y[train], X[test], y[test]) for train, test in both]


def data_folder():
    """Return the folder of the public splits."""
    return os.environ["SKSWSGP_DATA"]


def parts(load, most, seeds):
    """Return random splits of a table, or of parts of it."""
    X, y = load()
    found = []
    for seed in range(seeds):
        train, test = split(len(X), seed)
        train, test = train[:most], test[:MOST_TEST]
        found.append((X[train], y[train], X[test], y[test]))
    return found


def bundled(load):
    """Return X and y of scikit-learn."""
    return load(return_X_y=True)


TABLES = {
    "small": {name: partial(draws, name, 4) for name in KINDS},
    "public": {
        name: partial(public, name, 4)
        for name in ("concrete", "energy", "wine", "yacht")
    },
    "long": {
        name: partial(parts, partial(table_of, name), MOST_ROWS, 1)
        for name in REGRESSION
    },
    "labels": {
        "iris": partial(parts, partial(bundled, load_iris), MOST_LABELS, 4),
        "wine cultivars": partial(parts, partial(bundled, load_wine), MOST_LABELS, 4),
        "breast cancer": partial(
            parts, partial(bundled, load_breast_cancer), MOST_LABELS, 4
        ),
        "digits": partial(parts, partial(bundled, load_digits), MOST_LABELS, 2),
    }
    | {
        name: partial(parts, partial(table_of, name), MOST_LABELS, 2)
        for name in CLASSIFICATION
        if name != "mnist"
    },
}


# --- figures


class Figures(NamedTuple):
    """What a fit says of test rows, and how long it took."""

    squares: np.ndarray  # (n,) of errors, or wrong labels
    density: np.ndarray  # (n,) negative, or log loss
    crps: np.ndarray  # (n,), or squared errors of probabilities
    coverage: float  # of 90 % intervals, NaN for labels
    seconds: float


def measure_regression(X, y, X_test, y_test, now):
    """Return the `Figures` of a default fit of standardised targets."""
    mean, unit = y.mean(), y.std()
    y, y_test = (y - mean) / unit, (y_test - mean) / unit
    started = now()
    model = SWSGPRegressor(n_jobs=1, random_state=0).fit(X, y)
    seconds = now() - started
    error = model.predict(X_test) - y_test
    density, crps = (
        np.array([
            -get_scorer(name)(model, X_test[rows], y_test[rows])
            for rows in np.array_split(np.arange(len(y_test)), 20)
        ])
        for name in ("neg_log_density", "neg_crps")
    )  # fmt: skip
    lower, upper = model.predict_interval(X_test, 0.9)
    coverage = np.mean((lower <= y_test) & (y_test <= upper))
    return Figures(error**2, density, crps, coverage, seconds)


def measure_labels(X, y, X_test, y_test, now):
    """Return the `Figures` of a default fit of labels."""
    started = now()
    model = SWSGPClassifier(n_jobs=1, random_state=0).fit(X, y)
    seconds = now() - started
    proba = model.predict_proba(X_test)
    true = y_test[:, None] == model.classes_
    loss = -np.log(np.maximum(proba[true], np.finfo(float).tiny))
    wrong = (proba.argmax(axis=1) != true.argmax(axis=1)).astype(float)
    brier = np.sum((proba - true) ** 2, axis=1)
    return Figures(wrong, loss, brier, np.nan, seconds)


def compare(stage, table, calls, before, after):
    """Return a row of the result; `before` and `after` are `Figures` of each split."""
    row = {"stage": stage, "table": table, "splits": len(before), "reached": calls}
    row["rmse"] = np.mean([np.sqrt(one.squares.mean()) for one in before])
    for name, values in (("mnll", "density"), ("crps", "crps")):
        row[name] = np.mean([getattr(one, values).mean() for one in before])
    row["coverage"] = np.mean([one.coverage for one in before])
    row["seconds"] = np.mean([one.seconds for one in before])
    if not after:
        return row
    for name, of in (("rmse", rmse_lost), ("mnll", "density"), ("crps", "crps")):
        lost = [lost_by(of, *pair) for pair in zip(before, after, strict=True)]
        values, errors = np.transpose(lost)
        row[f"{name}_lost"] = values.mean()
        over_rows = np.sqrt(np.sum(errors**2)) / len(errors)
        over_splits = values.std(ddof=1) / np.sqrt(len(values)) if len(lost) > 3 else 0
        row[f"{name}_error"] = max(over_splits, over_rows if len(lost) < 4 else 0)
    row["coverage_without"] = np.mean([one.coverage for one in after])
    seconds = [sum(one.seconds for one in some) for some in (before, after)]
    row["seconds_ratio"] = seconds[1] / seconds[0]
    return row


def rmse_lost(before, after):
    """Return the change of log RMSE, and its standard error over test rows.

    Of labels it is that of the share of errors.
    """
    if np.isnan(before.coverage):
        return lost_by("squares", before, after)
    pair = before.squares, after.squares
    means = [max(one.mean(), np.finfo(float).tiny) for one in pair]
    parts = 0.5 * (pair[1] / means[1] - pair[0] / means[0])
    return 0.5 * np.log(means[1] / means[0]), parts.std() / np.sqrt(len(parts))


def lost_by(of, before, after):
    """Return the change of a figure, and its standard error over test rows."""
    if callable(of):
        return of(before, after)
    lost = getattr(after, of) - getattr(before, of)
    return lost.mean(), lost.std() / np.sqrt(len(lost))


def run(kind, table, options, now):
    """Yield the rows of a table."""
    labels = kind == "labels"
    measure = measure_labels if labels else measure_regression
    stages = LABEL_STAGES if labels else REGRESSION_STAGES
    stages = {n: s for n, s in stages.items() if n in (options.stages or stages)}
    data = TABLES[kind][table]()
    with counted(stages) as calls:
        for one in data:
            measure(*one, now)  # compiles as well
    before = [measure(*one, now) for one in data]
    for name, stage in stages.items():
        after = []
        if calls[name]:
            with without(stage):
                after = [measure(*one, now) for one in data]
        yield compare(name, table, calls[name], before, after)


def summary(rows):
    """Return the lines of a Markdown table: a stage, and means over its tables."""
    lines = [
        "| without | tables | log RMSE | density, nats | seconds | loses | gains |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in dict.fromkeys(row["stage"] for row in rows):
        some = [r for r in rows if r["stage"] == name and float(r["reached"]) > 0]
        cells = [name, str(len(some))]
        for figure in ("rmse_lost", "mnll_lost"):
            lost = np.array([float(r[figure]) for r in some])
            error = lost.std(ddof=1) / np.sqrt(len(lost)) if len(lost) > 1 else np.nan
            cells.append(f"{lost.mean():+.4f} ± {error:.4f}" if len(lost) else "")
        logs = [np.log(float(r["seconds_ratio"])) for r in some]
        cells.append(f"{np.exp(np.mean(logs)):.2f}" if some else "")
        cells += [far(some, 1.0), far(some, -1.0)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def far(rows, sign, least=0.005):
    """Return tables whose density changes by more than two standard errors, in words.

    Changes of less than `least` nats are left out.
    """
    said = []
    for row in rows:
        change, error = float(row["mnll_lost"]), float(row["mnll_error"])
        if sign * change > max(2.0 * error, least):
            said.append((-abs(change), f"{row['table']} {abs(change):.3f}"))
    return "; ".join(words for _, words in sorted(said))


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--kinds", nargs="+", default=list(TABLES))
    parser.add_argument("--tables", nargs="+", help="of these kinds; default: all")
    parser.add_argument("--stages", nargs="+", help="default: all")
    parser.add_argument("--summary", type=Path, nargs="+", help="files of this script")
    options = parser.parse_args()
    if options.summary:
        rows = [r for path in options.summary for r in csv.DictReader(path.open())]
        raise SystemExit("\n".join(summary(rows)))
    found = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in options.kinds:
            for table in TABLES[kind]:
                if table not in (options.tables or TABLES[kind]):
                    continue
                for row in run(kind, table, options, clock(1)):
                    found.append(row)
                    print(table, row["stage"], row.get("mnll_lost"), flush=True)
                if options.out:
                    write_rows(options.out / "stages.csv", COLUMNS, found)
    print("\n".join(summary(found)))
