"""The calls of a fit for dask collections, whose rows stay where they are."""

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import check_random_state

from skswsgp._adam.solver import AdamSolver
from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.base import GivenRows
from skswsgp._estimators.given import solver_for
from skswsgp._fit.learn import learn
from skswsgp._fit.solve import learn_law, solve
from skswsgp._fit.targets import distinct_labels, require_labels
from skswsgp._kernel_search.kernel_learning import count_learning_rows
from skswsgp._rows.target_scale import TRANSFORMS
from skswsgp._solvers.natural import NaturalSolver
from skswsgp.dask.block_adam import BlockAdam
from skswsgp.dask.blocks import Blocks
from skswsgp.dask.rows import BlockSolver, Recipe, RowsInBlocks, counted_in
from skswsgp.dask.workers import find_workers

# Solvers, and what they are where rows are in blocks
BLOCK_SOLVERS = {NaturalSolver: BlockSolver, AdamSolver: BlockAdam}


def fit_blocks(model, given, refused):
    """Fit an estimator to `GivenRows` that are dask collections, and return it.

    `refused` says by name what else the fit was given, none of which it can take.
    """
    model._validate_params()
    refuse_with_blocks(model, refused)
    workers = find_workers()
    # a failure keeps what this function holds: no results of tasks that failed
    with compat.unchanged_on_failure(model), workers.failures():
        return load_and_fit(model, given, workers)


def load_and_fit(model, given, workers):
    """Fit an estimator to collections, whose blocks the `workers` load and keep."""
    blocks = Blocks(workers, *given[:3])
    classes = classes_of(model, blocks) if is_classifier(model) else None
    most = count_learning_rows(blocks.n_features, model._tuning)
    sample = blocks.sample(most, check_random_state(model.random_state))
    return fit_sample(model, GivenRows(*sample), blocks, classes)


def fit_sample(model, given, blocks, classes):
    """Fit an estimator to `Blocks`, of which rows that are `given` are a sample."""
    model._refuse_combinations()
    task = compat.FitTask(model, given)
    with task.stage("scales of columns and targets"):
        with counted_in(f"a sample of {len(given.X):,} of {blocks.n_rows:,} rows"):
            rows = model._check_rows(given, reset=True, all_classes=classes is None)
        # rows that are not in the sample may hold what a logarithm does not take
        free = TRANSFORMS if blocks.n_rows <= len(rows.X) else ()
        rows = rows.by_content()._replace(stand_for=blocks.n_rows)
        settings = model._settings()
        solver = BLOCK_SOLVERS[settings.solver]
        # blocks would train on rows of the sample that are held out
        settings = settings._replace(solver=solver, early_stopping=False)
        how = {"free": free, "classes": classes}
        targets = model._targets_of_fit(rows, settings, {}, **how)
        problem = model._problem(rows, targets, settings, {})
    with task.stage("kernel"):
        start = learn(problem)
        recipe = Recipe(
            type(model).__name__,
            model._target_checks,
            getattr(model, "class_weight", None),
            targets,
            start.attributes["x_transform_"],
            start.attributes["linear_map_"],
            start.factor,
            start.settings,
        )
        in_blocks = RowsInBlocks(start.rows.sample, blocks, recipe)
    with solve(start._replace(rows=in_blocks), task) as solution:
        law = learn_law(solution, task)
    model._set_fitted(solution.attributes | law)
    model._kept_rows = "blocks of dask"
    task.end()
    return model


def classes_of(model, blocks):
    """Return the labels of all blocks, without those of weight zero, which leave."""
    classes = distinct_labels(blocks.labels(distinct_labels))
    require_labels(model.class_weight, classes)
    weights = model.class_weight or {}
    dropped = [one for one in classes.tolist() if weights.get(one) == 0.0]
    if dropped:  # as rows of no weight are in memory
        blocks.drop(dropped)
        classes = classes[~np.isin(classes, dropped)]
    return classes


def refuse_with_blocks(model, refused):
    """Raise ValueError for what rows in blocks cannot have."""
    method, parameters = solver_for(model)
    balanced = getattr(model, "class_weight", None) == "balanced"
    refused |= {
        "Natural(optimize_inducing=True)": method not in BLOCK_SOLVERS,
        "early_stopping=True": parameters.get("early_stopping") is True,
        "warm_start": model.warm_start,
        "n_neighbors='all'": model.n_neighbors == "all",
        "class_weight='balanced'": balanced,
        "likelihood='heteroscedastic'": model.likelihood == "heteroscedastic",
        "device='cuda'": model.device == "cuda",
    }
    named = next((name for name, given in refused.items() if given), None)
    if named is not None:
        raise ValueError(
            f"X or y is a dask collection, and the fit has {named}: expected none "
            "of that, for rows stay with their workers; give rows in memory, or "
            "leave it out."
        )
