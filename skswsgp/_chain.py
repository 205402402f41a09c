"""The nearest-neighbour prior of inducing values, and what data say of them.

The prior of Vecchia (1988) writes p(u) as a chain in which each u_j depends on its H
nearest predecessors w only, u_j ~ N(b_j' u_w, D_j), b_j = K_w^-1 k_j. With the sparse
lower factor R = D^-1/2 (I - B) its precision is R' R. VNNGP (Wu, Pleiss, Cunningham,
ICML 2022) uses it as the prior of a variational Gaussian process.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_matrix, vstack

from skswsgp._model import cholesky, index_blocks, require_finite
from skswsgp._neighbors import NeighborSearch
from skswsgp._point import TINY
from skswsgp._training import kernel_of


class Chain(NamedTuple):
    """p(u) = N(0, (R' R)^-1)."""

    factor: csr_matrix  # R (M, M); rows in the order of the chain
    precision: np.ndarray  # (M,) diagonal of R' R
    log_det: float  # log determinant of the prior covariance

    def scaled(self, variance):
        """Return the chain of the same kernel times `variance`."""
        M = len(self.precision)
        return Chain(
            self.factor / np.sqrt(variance),
            self.precision / variance,
            self.log_det + M * np.log(variance),
        )

    def divergence(self, m, s):
        """Return KL(q(u) || p(u)), q(u) = N(m, diag s), summed over the columns.

        1/2 [|R m|^2 + tr(R' R diag s) - M + log|P| - log|diag s|], P the covariance.
        """
        square = np.sum(np.asarray(self.factor @ m) ** 2)
        trace = np.sum(self.precision[:, None] * s)
        log_dets = m.shape[1] * self.log_det - np.sum(np.log(s))
        return 0.5 * float(square + trace - m.size + log_dets)


def make_chain(engine, kernel, metric, order):
    """Return the `Chain` of the engine's inducing points, visited in `order` (M,).

    `kernel` is the kernel object with the parameters of the engine's model.
    """
    order = order.astype(np.int32)  # the dtype of other lists: loops compile for it
    Z, H = engine.model.Z[order], engine.n_active
    M = len(Z)
    shift = engine.model.jitter * mean_variance(kernel, Z)
    L = cholesky(kernel(Z[:H].astype(np.float64)), shift)
    root = solve_triangular(L, np.eye(H), lower=True)
    rows = [csr_matrix(root, shape=(H, M))]
    if H < M:
        search = NeighborSearch(
            Z,
            kernel_of(engine.model),
            n_neighbors=H,
            n_threads=engine.n_threads,
            metric=metric,
            search="brute",
        )
        lists = search.predecessors()[H:]
        weights, variance = engine.regress(Z[H:], order[lists])
        require_finite(weights)
        deviation = np.sqrt(variance + shift)
        columns = np.column_stack([lists, np.arange(H, M)])
        values = np.column_stack([-weights, np.ones(M - H)]) / deviation[:, None]
        rows.append(sparse_rows(values, columns, M))
    factor = vstack(rows, format="csr")
    log_det = -2.0 * float(np.sum(np.log(factor.diagonal())))
    factor = csr_matrix(
        (factor.data, order[factor.indices], factor.indptr), shape=(M, M)
    )
    precision = np.asarray(factor.multiply(factor).sum(axis=0)).ravel()
    return Chain(factor, precision, log_det)


def regress_on_inducing(engine, kernel, data, search):
    """Return A (n, M), sparse rows a_i = K_w^-1 k of eq. 13, and F (n,).

    f_i = a_i' u + noise of variance F_i > 0, for each row of the data.
    """
    model, H = engine.model, engine.n_active
    Z, M = model.Z.astype(np.float64), len(model.Z)
    shift = model.jitter * mean_variance(kernel, Z)
    residual = np.empty(data.n_rows)
    blocks = []
    if H == M:
        L = cholesky(kernel(Z), shift)
    for index in index_blocks(data.n_rows):
        X = data.block(index)[0]
        if H < M:
            lists = search.query(X)
            weights, residual[index] = engine.regress(X, lists)
            blocks.append(sparse_rows(weights, lists, M))
        else:
            half = solve_triangular(L, kernel(Z, X), lower=True)  # (M, n)
            residual[index] = kernel.diag(X) - np.sum(half**2, axis=0)
            weights = solve_triangular(L, half, lower=True, trans="T").T
            blocks.append(csr_matrix(weights))
    A = vstack(blocks, format="csr")
    require_finite(A.data)
    return A, np.maximum(residual, TINY * shift)


def mean_variance(kernel, Z):
    """Return the mean prior variance of rows of Z, the unit of jitter; 1 for zero."""
    mean = float(np.mean(kernel.diag(Z), dtype=np.float64))
    require_finite(mean)
    return mean if mean > 0.0 else 1.0


def sparse_rows(values, columns, M):
    """Return the sparse matrix (n, M) whose row i holds values[i] at columns[i]."""
    n, width = values.shape
    indptr = np.arange(0, n * width + 1, width)
    return csr_matrix((values.ravel(), columns.ravel(), indptr), shape=(n, M))
