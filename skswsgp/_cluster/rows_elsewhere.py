"""From dask collections to blocks of training rows, and a sample of them.

What a fit learns from some rows, it learns from the sample: scales, the kernel and the
map, inducing points and the law of observations. q(u) has all rows, by `BlockSolver`.
"""

import copy
from math import isnan
from typing import NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.random import sample_without_replacement

from skswsgp._cluster.many_sites import ManySites
from skswsgp._cluster.predictions import is_collection
from skswsgp._compiled.threads import max_threads
from skswsgp._engine.select import make_cpu_engine
from skswsgp._linear.site_rows import SiteRows
from skswsgp._neighbors.lists import NeighborTracker, TrackedSearch
from skswsgp._rows.data import TrainingRows, memory_budget
from skswsgp._rows.table import require_numeric_types


class Block(NamedTuple):
    """Rows of one place as the user gave them."""

    X: object
    y: object
    weight: object | None


class Recipe(NamedTuple):
    """How blocks become rows of a model."""

    estimator: object  # with the parameters of the user, which validates and encodes
    attributes: dict  # fitted attributes
    factor: float  # of weights
    settings: object  # the `Settings` of the fit
    center: np.ndarray | None = None  # (D,) subtracted from X
    model: object = None  # the `Model`
    kernel: object = None  # its kernel object
    n_neighbors: int = 0
    memory: int = 0  # bytes that A of a block may take


class RowsElsewhere:
    """The rows of X, y and weights, dask collections with the same blocks.

    `workers` are what `find_workers` returns.
    """

    def __init__(self, workers, X, y, weight):
        self.workers = workers
        if getattr(X, "ndim", 0) != 2 or not X.shape[1] >= 1:
            raise ValueError(
                f"X is a {type(X).__name__} of {getattr(X, 'ndim', 0)} axes: expected "
                "a dask array of shape (n_samples, n_features) with a known number of "
                "columns, or a data frame."
            )
        columns = {"X": X, "y": y, "sample_weight": weight}
        columns = {name: one for name, one in columns.items() if one is not None}
        lazy = [_delayed(name, one) for name, one in columns.items()]
        _require_equal_numbers(
            "blocks", dict(zip(columns, map(len, lazy), strict=True))
        )
        lengths = {
            k: one.chunks[0] for k, one in columns.items() if hasattr(one, "chunks")
        }
        for k, numbers in enumerate(zip(*lengths.values(), strict=True)):
            what = f"rows of block {k}"
            _require_equal_numbers(what, dict(zip(lengths, numbers, strict=True)))
        self.n_features = X.shape[1]
        blocks = [_block(*parts) for parts in zip(*lazy, strict=True)]
        self._set_blocks(self.workers.load(blocks))
        self.recipe = None

    def _set_blocks(self, blocks):
        """Set the blocks, without those that are empty, and their sizes."""
        shapes = self.workers.gather(self.workers.map(_shape, blocks))
        sizes, columns = zip(*shapes, strict=True)
        other = next((one for one in columns if one != columns[0]), None)
        if other is not None:
            raise ValueError(
                f"a block of X has the columns {columns[0]}, and another {other}: "
                "expected the same columns in the same order in all blocks; look at "
                "the function or the files that make them."
            )
        if not any(sizes):
            raise ValueError(
                "X has no rows in any block: expected some to train on; look at the "
                "filters in front of fit, and at weights of zero."
            )
        self.blocks = [b for b, n in zip(blocks, sizes, strict=True) if n]
        self.sizes = np.array([n for n in sizes if n])

    @property
    def n_rows(self):
        """The number of rows of all blocks."""
        return int(self.sizes.sum())

    def labels(self, distinct):
        """Return the labels of y that `distinct` finds in each block, joined.

        Labels of different types keep them.
        """
        found = self._gather(_labels, distinct)
        are_text = {one.dtype.kind in "OSU" for one in found}
        if len(are_text) > 1:
            found = [one.astype(object) for one in found]
        return np.concatenate(found)

    def drop(self, labels):
        """Leave out the rows with these labels, also to be counted."""
        self._set_blocks(self.workers.map(_without, self.blocks, labels))

    def sample(self, most, rng):
        """Return X, y and weights of at most so many random rows, in their order."""
        n = self.n_rows
        drawn = np.arange(n)
        if n > most:
            drawn = np.sort(sample_without_replacement(n, most, random_state=rng))
        ends = np.cumsum(self.sizes)
        cuts = np.split(drawn, np.searchsorted(drawn, ends[:-1]))
        rows = [cut - begin for cut, begin in zip(cuts, self.begins, strict=True)]
        parts = self.workers.map(_take, self.blocks, each=rows)
        columns = zip(*self.workers.gather(parts), strict=True)
        return [_joined(column) for column in columns]

    @property
    def begins(self):
        """The number of the first row of each block."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    def with_recipe(self, recipe):
        """Return the rows with the `Recipe` by which they become rows of a model."""
        other = copy.copy(self)
        other.recipe = recipe
        return other

    def sites(self, engine, kernel, center):
        """Return the `ManySites` of these rows for the model of an engine."""
        each = -(-len(self.blocks) // max(1, self.workers.n_workers))  # of a worker
        recipe = self.recipe._replace(
            center=center,
            model=engine.model,
            kernel=kernel,
            n_neighbors=engine.n_neighbors,
            memory=memory_budget() // each,
        )
        begins = self.begins.tolist()
        parts = self.workers.map(_sites, self.blocks, recipe, each=begins)
        are_sparse = self.workers.gather(self.workers.map(_is_sparse, parts))
        return ManySites(self.workers, parts, self.n_rows, engine, all(are_sparse))

    def training_rows(self, center, make, *arguments):
        """Return make(rows, n_threads, *arguments) for each block, where it is."""
        recipe = self.recipe._replace(center=center)
        return self.workers.map(_made, self.blocks, recipe, make, *arguments)

    def _gather(self, function, *arguments):
        return self.workers.gather(self.workers.map(function, self.blocks, *arguments))


def _delayed(name, collection):
    """Return the blocks of rows of a dask array or data frame."""
    if not (is_collection(collection) and hasattr(collection, "to_delayed")):
        raise ValueError(
            f"{name} is a {type(collection).__name__}: expected a dask array or data "
            "frame, as the other arguments are; dask.array.from_array makes one."
        )
    if hasattr(collection, "chunks") and collection.ndim > 1:
        collection = collection.rechunk({1: -1})
    return np.ravel(collection.to_delayed()).tolist()


def _require_equal_numbers(what, numbers):
    """Raise ValueError if numbers by name differ; those that are unknown are nan."""
    if len({n for n in numbers.values() if not isnan(n)}) > 1:
        named = ", ".join(f"{n} of {name}" for name, n in numbers.items())
        raise ValueError(
            f"the numbers of {what} are {named}: expected equal blocks of rows; take "
            "all from one data frame, or rechunk them alike."
        )


def _block(*parts):
    from dask import delayed

    return delayed(_as_block)(*parts)


def _as_block(X, y, weight=None):
    require_numeric_types(X, "the estimator")
    columns = {"X": X, "y": y, "sample_weight": weight}
    lengths = {name: len(one) for name, one in columns.items() if one is not None}
    _require_equal_numbers("rows of a block", lengths)
    if weight is not None:  # rows of no weight are left out, also to be counted
        kept = np.flatnonzero(np.asarray(weight) != 0.0)
        X, y, weight = (_safe_indexing(one, kept) for one in (X, y, weight))
    return Block(X, y, weight)


def _shape(block):
    """Return the number of rows, and the names of the columns or their number."""
    names = getattr(block.X, "columns", None)
    return len(block.X), block.X.shape[1] if names is None else list(names)


def _labels(block, distinct):
    return np.asarray(distinct(block.y))


def _without(block, labels):
    return Block(*_take(block, np.flatnonzero(~np.isin(block.y, labels))))


def _take(block, index):
    return tuple(None if one is None else _safe_indexing(one, index) for one in block)


def _joined(parts):
    """Return parts of a column, arrays or frames, as one."""
    if parts[0] is None:
        return None
    if hasattr(parts[0], "iloc"):
        import pandas as pd

        return pd.concat(parts)
    return np.concatenate(parts)


def _made(block, recipe, make, *arguments):
    """Return make(`TrainingRows` of a `Block`, number of threads, *arguments)."""
    estimator, attributes = recipe.estimator, recipe.attributes
    X, y, weight, rows = estimator._validate_training(*block, reset=False)
    dtype = recipe.settings.dtype
    targets = estimator._encode_targets(y, attributes).astype(dtype, copy=False)
    weight = (recipe.factor * weight).astype(dtype)
    data = TrainingRows(X, targets, weight, rows, center=recipe.center)
    data = data.scaled(attributes["x_transform_"]).mapped(attributes["linear_map_"])
    return make(data, max_threads(estimator.n_jobs, data.n_rows), *arguments)


def _sites(block, begin, recipe):
    """Return the `SiteRows` of a `Block`, before their first sites.

    `begin` is the number of its first row among all rows.
    """
    sites = _made(block, recipe, _sites_of, recipe)
    return sites._replace(begin=begin)


def _sites_of(data, n_threads, recipe):
    engine = make_cpu_engine(recipe.model, recipe.n_neighbors, n_threads)
    search = TrackedSearch(engine, data.n_rows, recipe.settings.search_options)
    lookup = NeighborTracker(search, data.n_rows, recipe.memory).lookup
    record = recipe.settings.likelihood_record
    return SiteRows.of(engine, recipe.kernel, data, record, lookup, recipe.memory)


def _is_sparse(sites):
    return sites.is_sparse
