"""From dask collections to blocks of rows as the user has them, and a sample."""

from math import isnan
from typing import NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.random import sample_without_replacement

from skswsgp._rows.table import require_numeric_types
from skswsgp.dask.predictions import is_collection


class Block(NamedTuple):
    """Rows of one place as the user gave them."""

    X: object
    y: object
    weight: object | None


class Blocks:
    """The rows of X, y and weights, dask collections with the same blocks.

    `workers` are what `find_workers` returns.
    """

    def __init__(self, workers, X, y, weight):
        self.workers = workers
        if y is None:
            raise ValueError("y is None: expected a target for each row of X.")
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
        self.parts = [b for b, n in zip(blocks, sizes, strict=True) if n]
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
        self._set_blocks(self.workers.map(_without, self.parts, labels))

    def sample(self, most, rng):
        """Return X, y and weights of at most so many random rows, in their order."""
        n = self.n_rows
        drawn = np.arange(n)
        if n > most:
            drawn = np.sort(sample_without_replacement(n, most, random_state=rng))
        ends = np.cumsum(self.sizes)
        cuts = np.split(drawn, np.searchsorted(drawn, ends[:-1]))
        rows = [cut - begin for cut, begin in zip(cuts, self.begins, strict=True)]
        parts = self.workers.map(_take, self.parts, each=rows)
        columns = zip(*self.workers.gather(parts), strict=True)
        return [_joined(column) for column in columns]

    @property
    def begins(self):
        """The number of the first row of each block."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]])

    def _gather(self, function, *arguments):
        return self.workers.gather(self.workers.map(function, self.parts, *arguments))


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
