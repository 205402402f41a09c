"""The nearest-neighbour prior of inducing values.

The prior of Vecchia (1988) writes p(u) as a chain in which each u_j depends on its H
nearest predecessors w only, u_j ~ N(b_j' u_w, D_j), b_j = K_w^-1 k_j. With the sparse
lower factor R = D^-1/2 (I - B) its precision is R' R. VNNGP (Wu, Pleiss, Cunningham,
ICML 2022) uses it as the prior of a variational Gaussian process.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_matrix, vstack

from skswsgp._model import cholesky, require_finite
from skswsgp._neighbors import NeighborSearch
from skswsgp._training import kernel_of


class Chain(NamedTuple):
    """p(u) = N(0, (R' R)^-1)."""

    factor: csr_matrix  # R (M, M); rows in the order of the chain
    precision: np.ndarray  # (M,) diagonal of R' R
    share: np.ndarray  # (M,) by which log s_j counts in the divergence: 1
    log_det: float  # log determinant of the prior covariance

    def multiply(self, u):
        """Return R' R u."""
        return self.factor.T @ (self.factor @ u)

    def scaled(self, variance):
        """Return the chain of the same kernel times `variance`."""
        M = len(self.precision)
        return Chain(
            self.factor / np.sqrt(variance),
            self.precision / variance,
            self.share,
            self.log_det + M * np.log(variance),
        )

    def divergence(self, m, S):
        """Return KL(q(u) || p(u)), q(u) = N(m, S), summed over the columns of m.

        S holds variances (M, Q) or lower factors (Q, M, M);
        1/2 [|R m|^2 + tr(R' R S) - M + log|P| - log|S|], P the covariance.
        """
        if S.ndim == 2:
            trace = np.sum(self.precision[:, None] * S)
            log_det = np.sum(np.log(S))
        else:
            trace = sum(np.sum((self.factor @ L) ** 2) for L in S)
            log_det = 2.0 * np.sum(np.log(np.einsum("qjj->qj", S)))
        square = np.sum(np.asarray(self.factor @ m) ** 2)
        log_dets = m.shape[1] * self.log_det - log_det
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
            make_scan=engine.make_scan,
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
    return Chain(factor, precision, np.ones(M), log_det)


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
