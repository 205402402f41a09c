"""The paper's prior term: divergences of the rows' own inducing points, added up.

    KL = sum_i (weight_i / W) KL(q(u_w) || p(u_w)),  W the sum of weights,

of eq. 11 is quadratic in m as that of `_chain` is, with the precision

    P = sum_i (weight_i / W) S_i' K_w^-1 S_i,   S_i the selection of the active points,

but no density of all of u has it, and each log s_j counts by the share of rows that see
u_j.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from skswsgp._model import index_blocks, require_finite

ASSEMBLY_BYTES = 2**26  # of inverses that are added to P at once


class LocalDivergences(NamedTuple):
    """The weighted mean of KL(q(u_w) || p(u_w)) for a diagonal covariance."""

    matrix: csr_matrix  # P (M, M)
    precision: np.ndarray  # (M,) diagonal of P
    share: np.ndarray  # (M,) of the rows that see a point
    log_det: float  # mean of log |K_w|

    def multiply(self, u):
        """Return P u."""
        return self.matrix @ u

    def scaled(self, variance):
        """Return the divergences of the same kernels times `variance`."""
        return LocalDivergences(
            self.matrix / variance,
            self.precision / variance,
            self.share,
            self.log_det + self.share.sum() * np.log(variance),
        )

    def divergence(self, m, s):
        """Return the divergence, summed over the columns of m and s, each (M, Q).

        1/2 [m' P m + tr(P diag s) - H + mean log|K_w| - sum_j share_j log s_j].
        """
        square = np.sum(m * (self.matrix @ m))
        trace = np.sum(self.precision[:, None] * s)
        H = self.share.sum()
        log_dets = m.shape[1] * (self.log_det - H) - np.sum(self.share @ np.log(s))
        return 0.5 * float(square + trace + log_dets)


def make_divergences(engine, data, lookup):
    """Return the `LocalDivergences` of rows of data; `lookup` finds their lists."""
    M, H = len(engine.model.Z), engine.n_active
    weight = data.weight.astype(np.float64) / data.weight.sum(dtype=np.float64)
    if engine.shared:
        inverse, log_det = engine.invert(engine.model.Z[:1], engine.everyone)
        require_finite(log_det)
        P = csr_matrix(inverse[0].astype(np.float64))
        return LocalDivergences(P, P.diagonal(), np.ones(M), float(log_det[0]))
    P, share, log_det = csr_matrix((M, M)), np.zeros(M), 0.0
    size = max(1, ASSEMBLY_BYTES // (16 * H**2))
    for index in index_blocks(data.n_rows, size):
        X = data.block(index)[0]
        lists = lookup(index, X)
        inverse, log_dets = engine.invert(X, lists)
        require_finite(log_dets)
        values = inverse * weight[index, None, None]
        rows = np.repeat(lists, H, axis=1)
        columns = np.tile(lists, H)
        entries = values.ravel(), (rows.ravel(), columns.ravel())
        P = P + csr_matrix(entries, shape=(M, M))
        share += np.bincount(lists.ravel(), np.repeat(weight[index], H), M)
        log_det += float(weight[index] @ log_dets)
    return LocalDivergences(P, P.diagonal(), share, log_det)


def divergence_weight(kl_weight, kl, M, H):
    """Return beta: a number; "auto" is max(1, M / H), with the whole chain 1."""
    if kl_weight != "auto":
        return float(kl_weight)
    return 1.0 if kl == "chain" else max(1.0, M / H)
