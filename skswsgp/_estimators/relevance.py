"""Which columns of X the latent functions depend on."""

import numpy as np

from skswsgp._compiled.threads import max_threads
from skswsgp._engine.cpu import CpuEngine

MOST_ROWS = 2000  # inducing points with slopes, which take some tenths of a second


def squared_slopes(model, metric, scale, n_neighbors, evaluation):
    """Return the squared slopes (n, D) of the latent means by the columns of X.

    They are those at n of the inducing points, in units of the columns' `scale` (D,),
    and summed over latent functions.
    """
    M, Q = model.m.shape
    places = np.unique(np.linspace(0, M - 1, min(M, MOST_ROWS)).astype(int))
    # kriging from points without noise is the mean of q(f), mu = k' K_w^-1 m_w
    zeros = np.zeros_like(model.m)
    model = model._replace(noise=np.zeros(Q, zeros.dtype), s=zeros, full=False)
    engine = CpuEngine(model, n_neighbors, max_threads(evaluation.n_jobs, len(places)))
    Z = model.Z[places]
    find = engine.make_search(evaluation.search_options).query
    slopes = engine.kriging_slopes(Z, find(Z)) @ metric.T  # (n, Q, D)
    return np.sum((slopes * scale) ** 2, axis=1)
