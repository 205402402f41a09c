"""The prior of inducing values for the natural solver.

Vecchia (1988) writes p(u) as a product of conditionals, where u_j depends on its H
nearest predecessors w only: u_j ~ N(b_j' u_w, D_j), b_j = K_w^-1 k_j. The precision is
R' R with the sparse lower factor R = D^-1/2 (I - B). VNNGP (Wu, Pleiss and Cunningham,
ICML 2022) uses it as the prior of a variational Gaussian process.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from skswsgp._compiled.linalg import numpy_cholesky, require_finite
from skswsgp._compiled.threads import index_blocks, rows_in_seconds
from skswsgp._covariance.program import kernel_of
from skswsgp._linear.projection import absolute_jitter
from skswsgp._linear.row_matrix import DenseMatrix, SparseRowMatrix
from skswsgp._neighbors.search import NeighborSearch


class VecchiaPrior(NamedTuple):
    """The density p(u) = N(0, (R' R)^-1)."""

    # R (M, M), on the CPU or a device; the last entry that is stored of a row of a
    # sparse one is the diagonal
    rows: SparseRowMatrix | DenseMatrix
    precision: np.ndarray  # (M,) diagonal of R' R
    log_det: float  # log determinant of the prior covariance
    product: np.ndarray | None = None  # R' R (M, M), where R is dense

    def matvec(self, u):
        """Return R' R u for u (M, k)."""
        return self.rows.normal_matvec(np.ones_like(u), u)

    def dense_precision(self):
        """Return R' R (M, M)."""
        if self.product is not None:
            return self.product
        return self.rows.weighted_gram(np.ones(len(self.precision)))

    def scaled(self, variance):
        """Return the prior of the kernel multiplied by `variance`."""
        rows = self.rows.scaled(1.0 / np.sqrt(variance))
        log_det = self.log_det + len(self.precision) * np.log(variance)
        product = None if self.product is None else self.product / variance
        return VecchiaPrior(rows, self.precision / variance, log_det, product)

    def _trace(self, L):
        """Return the trace of R' R L L' for a lower triangular L (M, M)."""
        if self.product is not None:
            return np.vdot(self.product, L @ L.T)
        return np.sum(self.rows.quadratic_forms(L))

    def divergence(self, m, S):
        """Return KL(q(u) || p(u)) for q(u) = N(m, S), summed over the columns of m.

        S holds variances (M, Q) or lower factors (Q, M, M). With the prior covariance C
        it is 1/2 [|R m|^2 + tr(R' R S) - M + log|C| - log|S|].
        """
        if S.ndim == 2:
            trace = np.sum(self.precision[:, None] * S)
            log_det = np.sum(np.log(S))
        else:
            trace = sum(self._trace(L) for L in S)
            log_det = 2.0 * np.sum(np.log(np.einsum("qjj->qj", S)))
        square = np.sum(self.rows.matvec(m) ** 2)
        log_dets = m.shape[1] * self.log_det - log_det
        return 0.5 * float(square + trace - m.size + log_dets)


def make_vecchia_prior(engine, kernel, order, watch=None):
    """Return the `VecchiaPrior` of the engine's inducing points in an order (M,).

    `kernel` is the kernel object with the parameters of the engine's model. Where
    there is a `watch`, it is called with the number of points that come next.
    """
    order = order.astype(np.int32)  # loops are compiled for lists of this dtype
    if engine.all_inducing is not None:  # p(u) is the same in any order
        order = np.arange(len(order))
    Z, H = engine.model.Z[order], engine.n_neighbors
    M = len(Z)
    shift = absolute_jitter(engine.model, kernel)
    L = numpy_cholesky(kernel(Z[:H].astype(np.float64)), shift)
    root = solve_triangular(L, np.eye(H), lower=True)
    if engine.all_inducing is not None:
        log_det = 2.0 * float(np.sum(np.log(np.diag(L))))
        product = root.T @ root
        return VecchiaPrior(DenseMatrix(root), np.diag(product), log_det, product)
    columns = np.empty((M, H + 1), np.int32)
    weights = np.empty((M, H + 1))
    columns[:, H], columns[:H, :H] = order, order[:H]
    weights[:H, :H], weights[:H, H] = np.tril(root, -1), np.diag(root)
    if H < M:
        options = {"n_neighbors": H, "n_threads": engine.n_threads}
        options |= {"make_scan": engine.make_scan}
        search = NeighborSearch(Z, kernel_of(engine.model), **options)
        columns[H:, :H] = lists = order[search.predecessors()[H:]]
        for index in index_blocks(M - H, rows_in_seconds(H, engine.n_threads)):
            if watch is not None:
                watch(len(index))
            points = H + index
            before, variance = engine.conditional_weights(Z[points], lists[index])
            require_finite(before)
            deviation = np.sqrt(variance + shift)
            weights[points, :H] = -before / deviation[:, None]
            weights[points, H] = 1.0 / deviation
    rows = engine.place_matrix(SparseRowMatrix(columns, weights, M, engine.n_threads))
    precision = rows.rmatvec(np.ones((M, 1)), squares=True)[:, 0]
    log_det = -2.0 * float(np.sum(np.log(weights[:, H])))
    return VecchiaPrior(rows, precision, log_det)
