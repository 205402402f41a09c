"""The nearest-neighbour prior of inducing values.

The prior of Vecchia (1988) writes p(u) as a chain in which each u_j depends on its H
nearest predecessors w only, u_j ~ N(b_j' u_w, D_j), b_j = K_w^-1 k_j. With the sparse
lower factor R = D^-1/2 (I - B) its precision is R' R. VNNGP (Wu, Pleiss, Cunningham,
ICML 2022) uses it as the prior of a variational Gaussian process.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from skswsgp._model import cholesky, mean_variance, require_finite
from skswsgp._neighbors import NeighborSearch
from skswsgp._rows import ListedRows
from skswsgp._training import kernel_of


class Chain(NamedTuple):
    """p(u) = N(0, (R' R)^-1)."""

    rows: ListedRows  # or held: of R (M, M), in its order; each ends on the diagonal
    precision: np.ndarray  # (M,) diagonal of R' R
    share: np.ndarray  # (M,) by which log s_j counts in the divergence: 1
    log_det: float  # log determinant of the prior covariance

    def multiply(self, u):
        """Return R' R u for u (M, k)."""
        return self.rows.pull_product(np.ones_like(u), u)

    def gram(self):
        """Return R' R (M, M)."""
        return self.rows.gram(np.ones(len(self.precision)))

    def solve(self, u):
        """Return (R' R)^-1 u for u (M, k)."""
        return self.rows.solve(u)

    def scaled(self, variance):
        """Return the chain of the same kernel times `variance`."""
        return Chain(
            self.rows.scaled(1.0 / np.sqrt(variance)),
            self.precision / variance,
            self.share,
            self.log_det + len(self.precision) * np.log(variance),
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
            trace = sum(np.sum(self.rows.quadratic(L)) for L in S)
            log_det = 2.0 * np.sum(np.log(np.einsum("qjj->qj", S)))
        square = np.sum(self.rows.multiply(m) ** 2)
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
    columns = np.empty((M, H + 1), np.int32)
    weights = np.empty((M, H + 1))
    columns[:, H], columns[:H, :H] = order, order[:H]
    weights[:H, :H], weights[:H, H] = np.tril(root, -1), np.diag(root)
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
        columns[H:, :H] = lists = order[search.predecessors()[H:]]
        before, variance = engine.regress(Z[H:], lists)
        require_finite(before)
        deviation = np.sqrt(variance + shift)
        weights[H:, :H], weights[H:, H] = -before / deviation[:, None], 1.0 / deviation
    rows = engine.hold(ListedRows(columns, weights, M, engine.n_threads))
    precision = rows.pull(np.ones((M, 1)), squares=True)[:, 0]
    log_det = -2.0 * float(np.sum(np.log(weights[:, H])))
    return Chain(rows, precision, np.ones(M), log_det)
