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
from skswsgp.streams.past_sites import sparse_rows

NOVELTY = 0.1  # w F below which a row needs no point: its site knows f as well
GAIN = 2.0  # least w F of a row over what the point has learned that it replaces


def exchange_points(posterior, past, worth, X, precision, most):
    """Return inducing points (M', D') for a stream, and its `PastSites` for them.

    Rows X (n, D), whose targets have a `precision` (n,), may become points. The points
    of the posterior have the `worth` (M,), and there are at most so many. `past` may be
    None. One row is taken first, then two, four and so on, because each of them may say
    all that the others would.
    """
    rows, first = np.unique(mapped(X, posterior.linear_map), axis=0, return_index=True)
    precision = precision[first]
    Z, T, step = posterior.model.Z + posterior.center, sparse.eye_array(len(worth)), 1
    while len(rows):
        gain = precision * _project(posterior, Z, rows).F
        best = np.argsort(-gain, kind="stable")[:step]
        places, least = _places(worth, most)
        n = min(len(best), len(places))
        refused = gain[best[:n]] <= np.maximum(least[:n], NOVELTY)
        n = int(np.argmax([*refused, True]))  # rows before the first that is refused
        if n == 0:
            break
        gone = np.sort(places[:n][places[:n] >= 0])
        old, kept = Z, np.delete(np.arange(len(Z)), gone)
        Z = np.concatenate([Z[kept], rows[best[:n]]])
        move = _weights_of_old(posterior, old, kept, gone, Z)
        T = T @ move
        told = move[gone].power(2).T @ worth[gone]
        worth = np.concatenate([worth[kept], np.full(n, np.inf)]) + told
        rows = np.delete(rows, best[:n], axis=0)
        precision = np.delete(precision, best[:n])
        step *= 2
    return Z, past and past.projected(T.tocsr())


def _places(worth, most):
    """Return places, -1 for free ones, and the least w F of a row that takes each."""
    free = max(most - len(worth), 0)
    order = np.argsort(worth, kind="stable")
    places = np.concatenate([np.full(free, -1), order])
    return places, np.concatenate([np.zeros(free), GAIN * worth[order]])


def _project(posterior, Z, rows):
    """Return the `Projection` of mapped rows onto inducing points Z (M, D')."""
    (M, _), Q = Z.shape, posterior.model.m.shape[1]
    dtype = posterior.model.Z.dtype
    model = posterior.model._replace(
        Z=np.ascontiguousarray(Z - posterior.center, dtype),
        m=np.zeros((M, Q), dtype),
        s=np.ones((M, Q), dtype),
        L=np.zeros((0, M, M), dtype),
        full=False,
    )
    H = min(posterior.n_neighbors, M)
    posterior = posterior._replace(model=model, linear_map=None, n_neighbors=H)
    with posterior.projector(memory_budget()) as project:
        return project(rows)


def _weights_of_old(posterior, Z, kept, gone, new):
    """Return T (M, M') with u = T v for values v at new points, which begin with kept.

    `gone` are the indices of the other points of Z (M, D').
    """
    kept = (np.ones(len(kept)), (kept, np.arange(len(kept))))
    T = sparse.csr_array(kept, (len(Z), len(new)))
    if len(gone) == 0:
        return T
    weights = sparse_rows(_project(posterior, new, Z[gone]), np.arange(len(gone)))
    gone = (np.ones(len(gone)), (gone, np.arange(len(gone))))
    return T + sparse.csr_array(gone, (len(Z), weights.shape[0])) @ weights
