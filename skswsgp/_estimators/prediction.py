"""TODO docstring."""

from contextlib import closing

import numpy as np

from skswsgp._compiled.linalg import require_finite
from skswsgp._compiled.threads import index_blocks, max_threads, row_blocks
from skswsgp._covariance.program import kernel_of
from skswsgp._engine.select import make_engine
from skswsgp._neighbors.search import NeighborSearch
from skswsgp._point.state import Batch
from skswsgp._solvers.data import center_rows


def make_search(engine, options):
    """Return a function from rows of centred X to their lists of neighbours."""
    if engine.all_inducing is not None:
        return lambda X: np.empty((len(X), 0), dtype=np.int32)
    return NeighborSearch(
        engine.model.Z,
        kernel_of(engine.model),
        n_neighbors=engine.n_neighbors,
        n_threads=engine.n_threads,
        make_scan=engine.make_scan,
        **options,
    ).query


def latent_posterior(model, center, X, H, with_variance, n_jobs, options, device="cpu"):
    """Return mean and variance (or None), each (n, Q), of q(f) at rows of X."""
    means, variances = [], []
    n_threads = max_threads(n_jobs, len(X))
    with closing(make_engine(device, model, H, n_threads, len(X))) as engine:
        search = make_search(engine, options)
        for rows in row_blocks(len(X)):
            block = center_rows(X[rows], center, model.Z.dtype)
            mu, v = engine.predict(block, search(block), with_variance)
            means.append(mu)
            variances.append(v)
    mu = np.concatenate(means)
    require_finite(mu)
    if not with_variance:
        return mu, None
    v = np.concatenate(variances)
    require_finite(v)
    return mu, v


def bound_of(model, data, H, n_jobs, options, device="cpu"):
    """Return eq. 11, a sum over the rows of the data in nats."""
    total, mass = 0.0, data.weight.sum(dtype=np.float64)
    n_threads = max_threads(n_jobs, data.n_rows)
    with closing(make_engine(device, model, H, n_threads, data.n_rows)) as engine:
        search = make_search(engine, options)
        for index in index_blocks(data.n_rows):
            X, y, weight = data.block(index)
            ell, kl = engine.bound(Batch(X, y, weight, search(X)))
            total += float(np.sum(weight * (ell - kl / mass), dtype=np.float64))
    require_finite(total)
    return total


def mean_log_density(engine, data, neighbors, log_density):
    """Return the weighted mean of log_density(mu, v, y) over the rows of the data.

    `neighbors` keeps the lists of these rows for the engine's model, which is training.
    """
    total = 0.0
    for index in index_blocks(data.n_rows):
        X, y, weight = data.block(index)
        mu, v = engine.predict(X, neighbors.lookup(index, X), with_variance=True)
        require_finite(mu)
        require_finite(v)
        total += np.sum(weight * log_density(mu, v, y), dtype=np.float64)
    return float(total / data.weight.sum(dtype=np.float64))
