"""Training rows, which stay where the user has them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import sklearn

from skswsgp._rows.columns import is_identity, mapped


def memory_budget():
    """Return scikit-learn's setting `working_memory` in bytes."""
    return int(sklearn.get_config()["working_memory"] * 2**20)


class TrainingRows(NamedTuple):
    """Some or all rows of X, which is not copied; `block` copies a few of them."""

    X: np.ndarray  # (N, D), any float dtype, may be a memory map
    y: np.ndarray  # (n, Q), or (n, 1) for classes, in the dtype of the fit
    weight: np.ndarray  # (n,) in the dtype of the fit
    rows: np.ndarray | None = None  # (n,) numbers of these rows of X, None for all
    center: np.ndarray | None = None  # (D,) subtracted from X
    # (n,) noise variances of rows; after `with_known_noise` relative to its unit, which
    # is how often rows count over their weights
    ratio: np.ndarray | None = None
    stand_for: int | None = None  # rows of a fit of which these are a sample
    watch: Callable | None = None  # is told of how many rows a block has that was read
    # (n,) numbers of the inducing points at which rows lie, None where they are unknown
    at: np.ndarray | None = None
    unmapped: np.ndarray | None = None  # X before it was mapped, None if it was not

    @property
    def n_rows(self):
        """The number of rows, n."""
        return len(self.weight)

    @property
    def n_all(self):
        """The number of rows of the fit."""
        return self.n_rows if self.stand_for is None else self.stand_for

    @property
    def inputs(self):
        """These rows of X (n, D)."""
        return self.X if self.rows is None else self.X[self.rows]

    @property
    def columns(self):
        """These rows of X (n, D) before they were mapped."""
        X = self.X if self.unmapped is None else self.unmapped
        return X if self.rows is None else X[self.rows]

    def block(self, index):
        """Return X, y and weights of a few of the n rows, with X centred."""
        if self.watch is not None:
            self.watch(len(index))
        X = center_rows(self.X[self._rows_of(index)], self.center, self.y.dtype)
        return X, self.y[index], self.weight[index]

    def take(self, index):
        """Return the rows with these indices."""
        y, weight = self.y[index], self.weight[index]
        ratio = None if self.ratio is None else self.ratio[index]
        at = None if self.at is None else self.at[index]
        taken = {"rows": self._rows_of(index), "stand_for": None}
        return self._replace(y=y, weight=weight, ratio=ratio, at=at, **taken)

    def scaled(self, columns):
        """Return these rows with columns on another scale, a copy, in place of X."""
        return self if columns is None else self._replace(X=columns.forward(self.X))

    def mapped(self, linear_map):
        """Return these rows with X @ linear_map, a copy, in place of X."""
        if linear_map is None or is_identity(linear_map):
            return self
        X = self.inputs
        return self._replace(X=mapped(X, linear_map), rows=None, unmapped=X)

    def _rows_of(self, index):
        return index if self.rows is None else self.rows[index]


# Parameters of an estimator that a stream is scaled and learned by
OF_STREAM = "kernel x_transform learn_map normalize_y dtype inducing_points".split()


class KeptRows(NamedTuple):
    """Rows that a model keeps so that `partial_fit` may go on from its fit."""

    X: np.ndarray  # (n, D), validated, as are all arrays
    y: np.ndarray  # (n,) or (n, Q) in the units of the user
    weight: np.ndarray  # (n,) of the user, positive
    exposure: np.ndarray | None  # (n,)
    seed: int  # of what a stream of these rows draws
    factor: float  # by which the fit has multiplied weights
    begun_with: dict | None = None  # the parameters OF_STREAM


def with_known_noise(data):
    """Return rows whose weights are precisions, and the noise of a row of weight 1.

    The `ratio` of the rows holds the noise variances (n,) of one observation, and then
    how often each row counts over its weight.
    """
    precision = data.weight.astype(np.float64) / data.ratio
    unit = 1.0 / precision.mean()
    weight = (precision * unit).astype(data.weight.dtype)
    return data._replace(weight=weight, ratio=data.ratio / unit), unit


def center_rows(X, center, dtype):
    """Return X - center, subtracted in float64, as contiguous rows of `dtype`."""
    rows = np.subtract(X, center, dtype=np.float64)
    if np.dtype(dtype) != rows.dtype:  # rows far from all others stay finite
        limits = np.finfo(dtype)
        rows = rows.clip(limits.min, limits.max)
    return np.ascontiguousarray(rows, dtype=dtype)
