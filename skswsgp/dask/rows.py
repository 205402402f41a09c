"""Rows in blocks, each of which stays where it is: what a solver sees of them.

What a fit learns from some rows, it learns from a sample: scales, the kernel and the
map, inducing points and the law of observations. q(u) has all rows.
"""

from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_X_y

from skswsgp._compiled.threads import max_threads
from skswsgp._engine.select import make_cpu_engine
from skswsgp._estimators.sklearn_compat import check_weights, checked_table
from skswsgp._fit.encode import CheckedRows
from skswsgp._fit.targets import weigh_classes
from skswsgp._linear.site_rows import SiteRows
from skswsgp._neighbors.lists import TrackedSearch
from skswsgp._point.state import Model
from skswsgp._rows.data import TrainingRows, memory_budget
from skswsgp._solvers.natural import NaturalSolver
from skswsgp._solvers.rows import site_rows
from skswsgp._solvers.settings import Settings
from skswsgp.dask.blocks import Blocks
from skswsgp.dask.many_sites import ManySites


class BlockSolver(NaturalSolver):
    """Rounds of the natural solver for rows in blocks.

    A product with all rows is a task for each block, and a sum of vectors of length M.
    """

    exact_means = False  # they would take the rows of every place to every other


class Recipe(NamedTuple):
    """How a block of the user becomes training rows."""

    reader: str  # the name of the estimator, for messages
    checks: dict  # arguments of `validate_data` that concern y
    class_weight: dict | None
    targets: object  # see `_fit.targets`
    columns: object  # the scale of the columns, or None
    linear_map: np.ndarray
    factor: float  # of weights
    settings: Settings
    center: np.ndarray | None = None  # (D,) subtracted from X

    def rows(self, block):
        """Return the `TrainingRows` of a `Block`."""
        dtype = self.settings.dtype
        X, y = validate_block(block.X, block.y, self.reader, **self.checks)
        weight = check_weights(block.weight, X, dtype)
        weight = weigh_classes(self.class_weight, y, weight, dtype)
        rows = CheckedRows.of(X, y, weight)
        targets = self.targets.encode(rows.y).astype(dtype, copy=False)
        weight = (self.factor * rows.weight).astype(dtype)
        data = TrainingRows(X, targets, weight, rows.numbers, center=self.center)
        mapped = data.scaled(self.columns).mapped(self.linear_map)
        return mapped._replace(unmapped=None)  # which only the law asks for


def validate_block(X, y, reader, **options):
    """Return X and y of a block of rows as `validate` does for an estimator.

    `reader` is the name of the estimator that reads X, whose columns are known.
    """
    check = partial(check_X_y, estimator=reader)
    return checked_table(check, reader, X, y, **options)


@contextmanager
def counted_in(what):
    """Say in errors of input in which rows other rows are counted."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"in {what}, {error}") from error


class BlockModel(NamedTuple):
    """The model for whose inducing values the sites of a block are."""

    model: Model
    kernel: object  # its kernel object
    n_neighbors: int
    memory: int  # bytes that A of a block may take
    n_all: int  # rows of all blocks


class RowsInBlocks(NamedTuple):
    """All rows of a fit, in blocks: see `RowsInMemory`."""

    sample: TrainingRows  # of all rows, in this process
    blocks: Blocks
    recipe: Recipe

    @property
    def n_all(self):
        """The number of all rows."""
        return self.blocks.n_rows

    def centered(self, center):
        """Return the rows with a center (D,), which is subtracted from X."""
        sample = self.sample._replace(center=center)
        return self._replace(sample=sample, recipe=self.recipe._replace(center=center))

    def sites(self, engine, kernel, settings, search):
        """Return the `ManySites` of these rows for the model of an engine."""
        workers, parts = self.blocks.workers, self.blocks.parts
        each = -(-len(parts) // max(1, workers.n_workers))  # of a worker
        memory = memory_budget() // each
        how = engine.n_neighbors, memory, self.n_all
        model = BlockModel(engine.model, kernel, *how)
        begins = self.blocks.begins.tolist()
        sites = workers.map(_sites, parts, self.recipe, model, each=begins)
        return ManySites(workers, sites, self.n_all, engine)

    def made(self, make, *arguments):
        """Return make(rows, n_threads, *arguments) for each block, where it is."""
        workers, parts = self.blocks.workers, self.blocks.parts
        each = self.blocks.begins.tolist()
        return workers.map(_made, parts, self.recipe, make, *arguments, each=each)


def _made(block, begin, recipe, make, *arguments):
    """Return make(`TrainingRows` of a `Block`, number of threads, *arguments).

    `begin` is the number of its first row among all rows of positive weight.
    """
    with counted_in(f"the block of X, y that begins with row {begin}"):
        data = recipe.rows(block)
    n_threads = max_threads(recipe.settings.n_jobs, data.n_rows)
    return make(data, n_threads, *arguments)


def located(data, engine):
    """Return `TrainingRows` with the inducing points at which they lie, if all do.

    They do so where most rows of a fit are points.
    """
    Z, n_all = engine.model.Z, data.n_all
    if 2 * len(Z) < n_all or not data.n_rows:
        return data
    X, _, _ = data.block(np.arange(data.n_rows))
    search = engine.make_search({"n_neighbors": 1, "search": "exact"})
    nearest = search.query(X)[:, 0]
    return data._replace(at=nearest) if np.array_equal(X, Z[nearest]) else data


def _sites(block, begin, recipe, model):
    """Return the `SiteRows` of a `Block`, before their first sites; see `_made`."""
    sites = _made(block, begin, recipe, _sites_of, recipe.settings, model)
    return sites._replace(begin=begin) if isinstance(sites, SiteRows) else sites


def _sites_of(data, n_threads, settings, model):
    engine = make_cpu_engine(model.model, model.n_neighbors, n_threads)
    search = TrackedSearch(engine, data.n_rows, settings.search_options)
    data = located(data._replace(stand_for=model.n_all), engine)
    return site_rows(data, engine, model.kernel, settings, search, model.memory)
