"""What a model says: q(f) at new rows, the bound, the density of held-out rows."""

from contextlib import closing, contextmanager, nullcontext
from typing import NamedTuple

import numpy as np

from skswsgp._compiled.linalg import require_finite
from skswsgp._compiled.threads import index_blocks, max_threads, row_blocks
from skswsgp._covariance.program import in_float64, kernel_of
from skswsgp._engine.select import make_engine
from skswsgp._linear.projection import Projection
from skswsgp._neighbors.search import NeighborSearch
from skswsgp._point.state import Batch, Model
from skswsgp._posterior.near_sites import KnownSites, NearSites
from skswsgp._rows.columns import mapped
from skswsgp._rows.data import TrainingRows, center_rows
from skswsgp._rows.support import at_known_levels
from skswsgp._solvers.exact_mean import exact_variance


class Posterior(NamedTuple):
    """A trained model, as predictions of its latent functions read it."""

    model: Model
    kernel: object  # of the mapped columns
    linear_map: np.ndarray | None  # of the columns of X, None for the identity
    center: np.ndarray  # that of `build_model`, subtracted from mapped rows
    n_neighbors: int  # H
    device: str  # "auto", "cpu" or "cuda"
    n_jobs: int | None
    search_options: dict  # kind of the neighbour search
    alpha: np.ndarray | None = None  # (M, Q) of exact means, see `ExactMean`
    scale: float | None = None  # of variances, see `exact_variance`
    sites: KnownSites | None = None  # that tell variances in place of S
    categories: tuple = ()  # whose new levels are told from known ones

    def rows(self, X, dtype=None):
        """Return rows of a table, mapped and centred, in the dtype of the model."""
        dtype = self.model.Z.dtype if dtype is None else dtype
        return center_rows(mapped(X, self.linear_map), self.center, dtype)

    def engine(self, n_rows, H=None):
        """Return an engine for so many rows with H neighbours; close it."""
        H = self.n_neighbors if H is None else H
        n_threads = max_threads(self.n_jobs, n_rows)
        return closing(make_engine(self.device, self.model, H, n_threads, n_rows))

    def search(self, engine):
        """Return a function from rows of centred X to their lists of neighbours."""
        if engine.all_inducing is not None:
            return lambda X: np.empty((len(X), 0), dtype=np.int32)
        return engine.make_search(self.search_options).query

    def moments(self, X, with_variance=True, seen=None):
        """Return mean and variance (or None), each (n, Q), of q(f) at rows of a table.

        Means come from all rows where `alpha` is known, and else from the H neighbours
        of each row. So do variances, from S or from the sites. The lists of neighbours
        are shown to `seen`, a `NearestSeen`, if given. Where a row is of a new level of
        a category, both come from those at known levels.
        """
        mean, variance = self._moments(X, with_variance, seen)
        new = at_known_levels(X, self.categories)
        if new is not None:
            found = [self._moments(Z, with_variance) for Z in new.versions]
            new.put(mean, variance, found)
        return mean, variance

    def _moments(self, X, with_variance=True, seen=None):
        """Return the `moments` of rows of known levels."""
        exact = self.alpha is not None
        if exact and not with_variance:
            return self.exact_mean(X), None
        parts = []
        with self.engine(len(X)) as engine, self.near_sites(engine) as near:
            search = self.search(engine)
            for rows in row_blocks(len(X)):
                block = self.rows(X[rows])
                lists = search(block)
                if seen is not None:
                    seen.add(lists)
                from_sites, mean, variance = with_variance and near, None, None
                if not (from_sites and exact):
                    from_S = with_variance and not from_sites
                    mean, variance = engine.predict(block, lists, from_S)
                if from_sites:
                    variance = near.variances(block, lists)
                parts.append((mean, variance))
        means, variances = zip(*parts, strict=True)
        mean = self.exact_mean(X) if exact else finite(means)
        if not with_variance:
            return mean, None
        variance = finite(variances)
        if self.scale is not None:
            prior = self.kernel.diag(mapped(X, self.linear_map))[:, None]
            variance = exact_variance(variance, prior, self.scale)
        return mean, variance

    def prior_part(self, X):
        """Return F (n,) of eq. 13 at rows of a table, given all inducing values."""
        with self.engine(len(X)) as engine:
            search = self.search(engine)
            blocks = [self.rows(X[rows]) for rows in row_blocks(len(X))]
            return finite([engine.prior_part(X, search(X)) for X in blocks])

    def near_sites(self, engine):
        """Return a context with `NearSites`, or with None where S tells variances."""
        if self.sites is None:
            return nullcontext()
        sites = self.sites._replace(n_near=min(self.sites.n_near, self.n_neighbors))
        how = engine.n_threads, self.search_options["search"], self.device
        return closing(NearSites(self.model, self.kernel, sites, *how))

    def exact_mean(self, X):
        """Return the exact means k(X @ linear_map, Z) alpha (n, Q)."""
        means = []
        with self.engine(len(X), 1) as engine:  # without work for neighbours
            model = engine.kernel_snapshot()
            kernel = in_float64(kernel_of(model))
            products = engine.make_products(kernel, model.Z, engine.n_threads)
            for rows in row_blocks(len(X)):
                block = self.rows(X[rows], np.float64)
                means.append(products.multiply(block, self.alpha))
        return finite(means)

    def variance_factor(self, X, variance=None):
        """Return by what variances (n, Q) from S alone are multiplied, or 1.0.

        They are those at rows of X of known levels, and are computed unless they are
        given.
        """
        if self.scale is None and self.sites is None:
            return 1.0
        if variance is None:
            from_S = self._replace(alpha=None, sites=None, scale=None)
            _, variance = from_S._moments(X)
        _, found = self._moments(X)
        return found / np.maximum(variance, np.finfo(float).tiny)

    @contextmanager
    def projector(self, memory):
        """Yield a function that returns the `Projection` of rows of a table."""
        model = self.model
        with self.engine(len(model.Z)) as engine:
            search = self.search(engine)

            def lookup(_, block):
                return search(block)

            def project(X):
                zeros = np.zeros((len(X), 1), model.Z.dtype)
                X = mapped(X, self.linear_map)
                data = TrainingRows(X, zeros, zeros[:, 0], center=self.center)
                return Projection(engine, self.kernel, data, lookup, memory)

            yield project

    def bound(self, data):
        """Return eq. 11, a sum over rows that are not mapped yet, in nats."""
        data = data.mapped(self.linear_map)._replace(center=self.center)
        total, mass = 0.0, data.weight.sum(dtype=np.float64)
        with self.engine(data.n_rows) as engine:
            search = self.search(engine)
            for index in index_blocks(data.n_rows):
                X, y, weight = data.block(index)
                ell, kl = engine.bound(Batch(X, y, weight, search(X)))
                total += float(np.sum(weight * (ell - kl / mass), dtype=np.float64))
        require_finite(total)
        return total


def finite(parts):
    """Return arrays as one; raise FloatingPointError unless all numbers are finite."""
    whole = np.concatenate(parts)
    require_finite(whole)
    return whole


class NearestSeen:
    """The k points nearest to rows, where a search for neighbours has found them.

    They are inducing points, or others (n, D') in the units of mapped rows.
    """

    def __init__(self, k, points=None):
        self.k, self.points, self._parts = k, points, []
        self.suits = points is None

    def add(self, lists):
        """Keep the nearest k of the lists (n, H) of some rows."""
        self.suits = self.suits and lists.shape[1] >= self.k
        self._parts.append(lists[:, : self.k].copy())

    def lists(self, posterior, X):
        """Return the nearest points (n, k) of all rows, which are mapped."""
        if self.suits:
            return np.concatenate(self._parts)
        model, center, n_jobs = posterior.model, posterior.center, posterior.n_jobs
        if self.points is not None:
            model = with_points(model, self.points, center)
        return nearest_points(model, X, center, self.k, n_jobs)


def with_points(model, points, center):
    """Return the model of a search among other points (n, D'), which are mapped."""
    return model._replace(Z=center_rows(points, center, model.Z.dtype))


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
