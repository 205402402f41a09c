"""Sums over rows of Gaussian observations that depend on all M inducing values.

Where each row uses all points and S is full, the optimal q(u) = N(m, S) and its bound
depend on rows by a few sums only. With A and F of `AllPoints` and weights w they are
G = A' W A, A' W y, y' W y and sum_i w_i F_i, so that one pass over the rows is enough
and A is not stored:

    sum_i w_i E (y_i - f_i)^2 = y' W y - 2 m' A' W y + m' G m + sum_i w_i F_i + tr(G S).

The pass takes whitened values v = L^-1 u of the factor L of K, for which a row of A is
(L^-1 k)'.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from skswsgp._compiled.linalg import require_finite
from skswsgp._compiled.threads import PARTS, in_threads, row_blocks
from skswsgp._linear.all_points import ROWS_IN_CACHE, AllPoints


class DenseSites(NamedTuple):
    """The sums of n rows, which answer what `SiteRows` do for a full S."""

    engine: object  # whose model has the noise
    weight: float  # sum_i w_i
    products: np.ndarray  # (M, M) G
    cross: np.ndarray  # (M, Q) A' W y
    squares: np.ndarray  # (Q,) y' W y
    rest: float  # sum_i w_i F_i
    expected: float = 0.0  # log-likelihood under the q(u) that `expecting` took last

    @classmethod
    def of(cls, engine, data):
        """Return the sums of `TrainingRows`."""
        points = AllPoints(engine.model, engine.n_threads, whitened=True)
        M, Q = len(points.factor), data.y.shape[1]
        gram, cross = np.zeros((PARTS, M, M)), np.zeros((PARTS, M, Q))
        squares, rest = np.zeros((PARTS, Q)), np.zeros(PARTS)

        def work(part):
            first, last = (p * data.n_rows // PARTS for p in (part, part + 1))
            for rows in row_blocks(last - first, ROWS_IN_CACHE):
                X, y, w = data.block(np.arange(first + rows.start, first + rows.stop))
                half, F = points.half(X)  # (M, n), (n,)
                root = np.sqrt(w.astype(np.float64))
                half *= root
                y = y * root[:, None]
                gram[part] += half @ half.T
                cross[part] += half @ y
                squares[part] += np.sum(y**2, axis=0)
                rest[part] += w @ F

        in_threads(work, range(PARTS), engine.n_threads)
        gram, cross = gram.sum(axis=0), cross.sum(axis=0)
        require_finite(gram)
        how = {"lower": True, "trans": "T"}  # from whitened values to values
        gram = solve_triangular(points.factor, gram, **how)
        gram = solve_triangular(points.factor, gram.T, **how)
        cross = solve_triangular(points.factor, cross, **how)
        weight = float(data.weight.sum(dtype=np.float64))
        sums = squares.sum(axis=0), float(rest.sum())
        return cls(engine, weight, 0.5 * (gram + gram.T), cross, *sums)

    @property
    def unit(self):
        """The noise (Q,) by which sums are divided."""
        return self.engine.model.noise.astype(np.float64)

    def first(self, m, S):
        """See `SiteRows`, as for all methods: the sites are the data."""
        return self

    def total_weight(self):
        return self.weight

    def right(self):
        return self.cross / self.unit

    def gram(self, q):
        return self.products / self.unit[q]

    def expecting(self, m, S):
        total = 0.0
        for q, noise in enumerate(self.unit):
            mean, L = m[:, q].astype(np.float64), S[q].astype(np.float64)
            square = self.squares[q] - 2.0 * mean @ self.cross[:, q] + self.rest
            square += mean @ self.products @ mean + np.vdot(L, self.products @ L)
            total -= 0.5 * (self.weight * np.log(2.0 * np.pi * noise) + square / noise)
        return self._replace(expected=float(total))

    def log_likelihood(self):
        return self.expected
