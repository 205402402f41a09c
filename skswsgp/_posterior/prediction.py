"""What a model says: q(f) at new rows, the bound, the density of held-out rows."""

from contextlib import closing
from typing import NamedTuple

import numpy as np

from skswsgp._compiled.linalg import require_finite
from skswsgp._compiled.threads import index_blocks, max_threads, row_blocks
from skswsgp._covariance.program import in_float64, kernel_of
from skswsgp._engine.select import make_engine
from skswsgp._neighbors.search import NeighborSearch
from skswsgp._point.state import Batch
from skswsgp._rows.columns import mapped
from skswsgp._rows.data import center_rows


class Evaluation(NamedTuple):
    """How a fitted model is evaluated."""

    device: str  # "auto", "cpu" or "cuda"
    n_jobs: int | None
    search_options: dict  # kind of the neighbour search

    def engine(self, model, H, n_rows):
        """Return an engine for so many rows; close it."""
        n_threads = max_threads(self.n_jobs, n_rows)
        return closing(make_engine(self.device, model, H, n_threads, n_rows))

    def search(self, engine):
        """Return a function from rows of centred X to their lists of neighbours."""
        if engine.all_inducing is not None:
            return lambda X: np.empty((len(X), 0), dtype=np.int32)
        return engine.make_search(self.search_options).query


def latent_posterior(
    model, X, linear_map, center, H, with_variance, evaluation, seen=None
):  # fmt: skip
    """Return mean and variance (or None), each (n, Q), of q(f) at rows X of a table.

    `linear_map` maps their columns. `center` is that of `build_model`, which is
    subtracted from X @ linear_map. The lists of neighbours are shown to `seen`, a
    `NearestSeen`, if given.
    """
    means, variances = [], []
    with evaluation.engine(model, H, len(X)) as engine:
        search = evaluation.search(engine)
        for rows in row_blocks(len(X)):
            block = center_rows(mapped(X[rows], linear_map), center, model.Z.dtype)
            lists = search(block)
            if seen is not None:
                seen.add(lists)
            mean, variance = engine.predict(block, lists, with_variance)
            means.append(mean)
            variances.append(variance)
    mean = np.concatenate(means)
    require_finite(mean)
    if not with_variance:
        return mean, None
    variance = np.concatenate(variances)
    require_finite(variance)
    return mean, variance


class NearestSeen:
    """The k points nearest to rows, where a search for neighbours has found them."""

    def __init__(self, k):
        self.k, self.suits, self._parts = k, True, []

    def add(self, lists):
        """Keep the nearest k of the lists (n, H) of some rows."""
        self.suits = self.suits and lists.shape[1] >= self.k
        self._parts.append(lists[:, : self.k].copy())

    def lists(self, model, X, center, n_jobs):
        """Return the nearest points (n, k) of all rows; see `nearest_points`."""
        if self.suits:
            return np.concatenate(self._parts)
        return nearest_points(model, X, center, self.k, n_jobs)


def nearest_points(model, X, center, k, n_jobs):
    """Return the k inducing points (n, k) of largest covariance with rows of X (n, D').

    `center` is that of `build_model`, which is subtracted from X. The nearest is first.
    """
    if k == 0:
        return np.empty((len(X), 0), dtype=np.int32)
    options = {"n_neighbors": k, "n_threads": max_threads(n_jobs, len(X))}
    search = NeighborSearch(model.Z, kernel_of(model), **options)
    parts = []
    for rows in row_blocks(len(X)):
        parts.append(search.query(center_rows(X[rows], center, model.Z.dtype)))
    return np.concatenate(parts)


def exact_mean(model, X, linear_map, center, alpha, evaluation):
    """Return k(X @ linear_map, Z) alpha (n, Q) for alpha (M, Q), of `ExactMean`."""
    means = []
    with evaluation.engine(model, 1, len(X)) as engine:  # without work for neighbours
        products = exact_products(engine)
        for rows in row_blocks(len(X)):
            block = center_rows(mapped(X[rows], linear_map), center, np.float64)
            means.append(products.multiply(block, alpha))
    mean = np.concatenate(means)
    require_finite(mean)
    return mean


def exact_products(engine):
    """Return an engine's products with covariances of its inducing points."""
    model = engine.kernel_snapshot()
    kernel = in_float64(kernel_of(model))
    return engine.make_products(kernel, model.Z, engine.n_threads)


def bound_of(model, data, H, evaluation):
    """Return eq. 11, a sum over the rows of the data in nats."""
    total, mass = 0.0, data.weight.sum(dtype=np.float64)
    with evaluation.engine(model, H, data.n_rows) as engine:
        search = evaluation.search(engine)
        for index in index_blocks(data.n_rows):
            X, y, weight = data.block(index)
            ell, kl = engine.bound(Batch(X, y, weight, search(X)))
            total += float(np.sum(weight * (ell - kl / mass), dtype=np.float64))
    require_finite(total)
    return total


def mean_log_density(engine, data, lists, log_density, attributes):
    """Return the weighted mean of log_density(mean, variance, y, attributes).

    `lists` tracks the neighbours of the rows of data under the engine's model, which is
    in training; its noise variances replace those of the attributes. Where rows
    have a `ratio`, it multiplies the noise of Gaussian observations.
    """
    attributes = attributes | {"noise_variance_": engine.model.noise}
    total = 0.0
    for index in index_blocks(data.n_rows):
        X, y, weight = data.block(index)
        neighbors = lists.lookup(index, X)
        mean, variance = engine.predict(X, neighbors, with_variance=True)
        require_finite(mean)
        require_finite(variance)
        if data.ratio is not None:
            variance += engine.model.noise * (data.ratio[index, None] - 1.0)
        density = log_density(mean, variance, y, attributes)
        total += np.sum(weight * density, dtype=np.float64)
    return float(total / data.weight.sum(dtype=np.float64))
