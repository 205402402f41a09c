"""How good is the default in TabArena, the public benchmark for models of tables?

TabArena's own runner fits our model of `tabarena_model.py`, and models of AutoGluon
beside it, by the protocol of its version 0.1: three folds, in each of which a model
with its defaults is a bag of eight fits. Errors are TabArena's: RMSE in the units of y,
one minus the area under the ROC curve for two classes, log loss for more. They are
means over folds, like the seconds of all fits of a bag and of its predictions. Our fits
have been compiled before.

In a virtual environment of its own, with the network:

python -m pip install -e . tabarena==0.1.0 lightgbm "scikit-learn>=1.9"
python examples/benchmarks/bench_tabarena.py concrete banana
python examples/benchmarks/bench_tabarena.py --arena lite --out FOLDER --threads 8

Words are tables of bench_peers.py, or "sales", that of the user guide's page on tables,
which has categories, dates and gaps. ``--arena`` takes the 51 tables of TabArena from
OpenML in their place, "lite" the first fold of each, and prints our row among those of
the published models. TabArena puts its random forest where our model fails or takes
longer than the hour of a bag. What the folder ``--out`` has of earlier runs is not
fitted again. ``--quick`` takes one fold of small tables.
"""

import contextlib
import sys
import tempfile
from pathlib import Path

import numpy as np
from peer_tables import CLASSES, REGRESSION, whole
from report import Table, arguments, unique, write_rows

try:
    import pandas as pd
    import tabarena_model
    from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold
    from tabarena.benchmark.experiment import TabArenaV0pt1ExperimentBundle
    from tabarena.benchmark.task import user_task
    from tabarena.benchmark.task.metadata import TaskMetadataCollection
    from tabarena.contexts import AbstractArenaContext, TabArenaContext
except ModuleNotFoundError as error:
    missing = error.name.partition(".")[0]
    sys.exit(
        f"{missing} is missing: expected TabArena in an environment of its own; use "
        'python -m pip install -e . tabarena==0.1.0 lightgbm "scikit-learn>=1.9".'
    )

OTHERS = "LightGBM", "Linear"  # AutoGluon's, by TabArena's names
MIXED = "sales"
QUICK = "iris", MIXED
FOLDS = 3
FIGURES = "metric_error", "time_train_s", "time_infer_s"  # of TabArena's results
RANKING = "method", "elo", "rank", "winrate", "improvability", "time_train_s"
COLUMNS = {
    "data": "",
    "model": "",
    "metric": "",
    "rows": "d",
    "folds": "d",
    "error": ".4f",
    "fit s": ".1f",
    "predict s": ".2f",
}


def frame_of(name):
    """Return a table as a frame whose last column is the target."""
    if name == MIXED:
        return sales()
    X, y = whole(name)
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
    return frame.assign(target=y if name in REGRESSION else pd.Categorical(y))


def sales(n=900):
    """Return a table of a category of sixty levels, one of three, a date and gaps."""
    rng = np.random.default_rng(0)
    shop, level = rng.integers(0, 60, n), rng.normal(50, 10, 60)
    kind = rng.choice(["bread", "cake", "pie"], n)
    day = pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 730, n), "D")
    warmth = rng.normal(10, 8, n)
    y = level[shop] + 10 * (kind == "pie") - 0.5 * warmth
    y += 10 * np.cos(2 * np.pi * day.day_of_year.to_numpy() / 365)
    warmth[rng.random(n) < 0.1] = np.nan
    shops = pd.Categorical([f"shop {number}" for number in shop])
    frame = pd.DataFrame({"shop": shops, "kind": pd.Categorical(kind), "day": day})
    return frame.assign(warmth=warmth, target=y + 5 * rng.standard_normal(n))


def task_of(name, n_repeats, folder):
    """Write a table with its splits to a folder, and return it as a task."""
    frame = frame_of(name)
    is_regression = name in (*REGRESSION, MIXED)
    kind = RepeatedKFold if is_regression else RepeatedStratifiedKFold
    splitter = kind(n_splits=FOLDS, n_repeats=n_repeats, random_state=0)
    task = user_task.UserTask(task_name=name, task_cache_path=Path(folder))
    made = task.create_task(
        target_feature="target",
        problem_type="regression" if is_regression else "classification",
        dataset=frame,
        splits=user_task.from_sklearn_splits_to_user_task_splits(
            splitter.split(frame, frame["target"]), FOLDS
        ),
    )
    task.save_task(made)
    return task


def experiments(others, n_threads):
    """Return the experiments of TabArena for our model and others, by defaults."""
    models = [(tabarena_model.configurations(), 0), *((name, 0) for name in others)]
    bundle = TabArenaV0pt1ExperimentBundle(
        models=models,
        sequential_local_fold_fitting=True,
        verbosity=0,
        model_verbosity=0,
    )
    return bundle.build_experiments(num_cpus=n_threads, num_gpus=0)


def run(context, others, options, is_lite, **more):
    """Return TabArena's results, one for each model and split, and print its words.

    They go to the standard error, so that the output holds our table only.
    """
    with contextlib.redirect_stdout(sys.stderr):
        return context.build_and_run_jobs(
            experiments(others, options.threads),
            expname=options.out / "tabarena" if options.out else None,
            subset="lite" if is_lite else None,
            **more,
        )


def run_tables(names, options):
    """Fit all models to tables from here, and print a row for each pair."""
    table = Table("tabarena", COLUMNS)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            task = task_of(name, options.repeats, folder)
            tasks = TaskMetadataCollection.from_user_tasks([task])
            context = AbstractArenaContext(methods=[], task_metadata=tasks)
            found = run(context, OTHERS, options, options.quick, register=False)
        n_rows = len(frame_of(name))
        for model in unique(found, "framework"):
            mine = [one for one in found if one["framework"] == model]
            short = model.partition("_")[0]
            means = (np.mean([one[key] for one in mine]) for key in FIGURES)
            table.add(name, short, mine[0]["metric"], n_rows, len(mine), *means)
    if options.out:
        write_rows(options.out / "tabarena.csv", table.columns, table.rows)


def run_arena(options):
    """Fit our model to TabArena's tables, and print its row among published ones."""
    context = TabArenaContext()
    run(context, (), options, options.arena == "lite", raise_on_failure=False)
    with contextlib.redirect_stdout(sys.stderr):
        board = context.leaderboard()
    print(board[list(RANKING)].to_string(index=False))


def main():
    parser = arguments(__doc__)
    parser.add_argument("names", nargs="*", help="tables; default: concrete, banana")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--arena", choices=["lite", "full"])
    parser.add_argument("--repeats", type=int, default=1, help="default: %(default)s")
    options = parser.parse_args()
    unknown = set(options.names) - {*REGRESSION, *CLASSES, MIXED}
    if unknown:
        parser.error(f"{sorted(unknown)}: expected tables of bench_peers.py or {MIXED}")
    if options.arena:
        run_arena(options)
    else:
        names = QUICK if options.quick else ("concrete", "banana")
        run_tables(options.names or names, options)


if __name__ == "__main__":
    main()
