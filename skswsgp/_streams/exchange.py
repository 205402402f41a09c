"""Inducing points that follow a stream, where their number is limited.

A row i at which other points leave the variance F_i to f, and whose target has the
precision w_i, says w_i F_i of f there that no point can hold. Point j has learned
(B_jj - P_jj) / P_jj from data beyond what the other points say, P being the precision
of the prior and B that of q(u). Rows take the places of points that have learned less.
What removed points knew is told to the others: u_old = T u_new.
"""

import numpy as np
from scipy import sparse

from skswsgp._rows.columns import mapped
from skswsgp._rows.data import memory_budget
from skswsgp._rows.inducing import distinct_rows

NOVELTY = 0.1  # w F below which a row needs no point: its site knows f as well
GAIN = 2.0  # least w F of a row over what the point has learned that it replaces


def exchange_points(posterior, past, worth, X, precision, most):
    """Return inducing points (M', D') for a stream, and its `PastSites` for them.

    Rows X (n, D), whose targets have a `precision` (n,), may become points. The points
    of the posterior have the `worth` (M,), and there are at most so many.
    """
    Z = posterior.model.Z + posterior.center
    with posterior.projector(memory_budget()) as project:
        gain = project(X).F * precision
    first = np.sort(np.unique(X, axis=0, return_index=True)[1])
    first = first[np.argsort(-gain[first], kind="stable")]
    free = max(most - len(Z), 0)
    places = np.concatenate([np.full(free, -1), np.argsort(worth, kind="stable")])
    least = np.concatenate([np.zeros(free), GAIN * np.sort(worth)])
    n = min(len(first), len(places))
    n = np.count_nonzero(gain[first[:n]] > np.maximum(least[:n], NOVELTY))
    if n == 0:
        return Z, past
    gone = np.sort(places[:n][places[:n] >= 0])
    kept = np.delete(np.arange(len(Z)), gone)
    new = np.concatenate([Z[kept], mapped(X[first[:n]], posterior.linear_map)])
    new = distinct_rows(new)[0]
    return new, past.projected(_weights_of_old(posterior, Z, kept, gone, new))


def _weights_of_old(posterior, Z, kept, gone, new):
    """Return T (M, M') with u = T v for values v at new points, which begin with kept.

    `gone` are the indices of the other points of Z (M, D').
    """
    M, Q = len(new), posterior.model.m.shape[1]
    kept = (np.ones(len(kept)), (kept, np.arange(len(kept))))
    T = sparse.csr_array(kept, (len(Z), M))
    if len(gone) == 0:
        return T
    dtype = posterior.model.Z.dtype
    model = posterior.model._replace(
        Z=np.ascontiguousarray(new - posterior.center, dtype),
        m=np.zeros((M, Q), dtype),
        s=np.ones((M, Q), dtype),
        L=np.zeros((0, M, M), dtype),
        full=False,
    )
    of_new = posterior._replace(
        model=model, linear_map=None, n_neighbors=min(posterior.n_neighbors, M)
    )
    with of_new.projector(memory_budget()) as project:
        weights = project(Z[gone]).sparse_rows(np.arange(len(gone)))
    gone = (np.ones(len(gone)), (gone, np.arange(len(gone))))
    return T + sparse.csr_array(gone, (len(Z), weights.shape[0])) @ weights
