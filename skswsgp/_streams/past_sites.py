"""The sites of rows that a stream no longer keeps: sums over them, and nothing else.

A row adds w a a' to A' W A and w t a to A' W t, whatever the other rows are. So these
sums know all that rows say of the inducing values. They are kept without the noise,
which may be learned again. Where inducing points change, u_old = T u_new, with the
weights T of old points on new ones, and T' A' W A T stands for the sum.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from skswsgp._linear.block_diagonal import SIDE


class PastSites(NamedTuple):
    """Sums over rows that left, for Q latent functions."""

    n_rows: int
    weight: float  # sum of their weights
    grams: tuple  # Q matrices A' W A (M, M) of SciPy, sparse
    right: np.ndarray  # (M, Q) A' W t
    noise: np.ndarray  # (M, n_draws, Q) A' W^1/2 e with standard normal e

    @classmethod
    def of(cls, sites, rows, n_draws, rng):
        """Return the sums of some rows of `SiteRows`, with fresh noise."""
        A, (M, Q) = sites.rows.sparse_rows(rows), sites.engine.model.m.shape
        precision = sites.precision[rows] * sites.unit
        precision_mean = sites.precision_mean[rows] * sites.unit
        noise = np.empty((M, n_draws, Q))
        for q, w in enumerate(precision.T):
            e = rng.standard_normal((len(w), n_draws))
            noise[:, :, q] = A.T @ (np.sqrt(w)[:, None] * e)
        grams = tuple((A.T @ A.multiply(w[:, None])).tocsr() for w in precision.T)
        weight = sites.weight[rows].sum(dtype=np.float64)
        return cls(len(rows), weight, grams, A.T @ precision_mean, noise)

    def joined(self, other):
        """Return the sums over these rows and others, or over these for None."""
        if other is None:
            return self
        grams = tuple(a + b for a, b in zip(self.grams, other.grams, strict=True))
        sums = (a + b for a, b in zip(self, other, strict=True))
        return PastSites(*sums)._replace(grams=grams)

    def scaled(self, factor):
        """Return the sums with weights times `factor`, a number or (Q,)."""
        factor = np.broadcast_to(factor, len(self.grams))
        grams = tuple(f * G for f, G in zip(factor, self.grams, strict=True))
        weight, noise = self.weight * factor.mean(), self.noise * np.sqrt(factor)
        return PastSites(self.n_rows, weight, grams, self.right * factor, noise)

    def projected(self, T):
        """Return the sums for other inducing values v, where u = T v for T (M, M')."""
        grams = tuple((T.T @ G @ T).tocsr() for G in self.grams)
        noise = [T.T @ self.noise[:, :, q] for q in range(len(grams))]
        both = {"right": T.T @ self.right, "noise": np.stack(noise, axis=2)}
        return self._replace(grams=grams, **both)

    def with_rows(self, sites):
        """Return these sums and `SiteRows` as sites of a solver."""
        return SitesAndPast(sites, self.scaled(1.0 / sites.unit))

    def log_likelihood(self, m, S):
        """Return what q(u) = N(m, S) expects of the rows, in nats, up to a constant.

        S holds variances (M, Q) or lower factors (Q, M, M).
        """
        total = np.vdot(self.right, m)
        for q, G in enumerate(self.grams):
            if S.ndim == 3:
                trace = np.sum(S[q] * (G @ S[q]))
            else:
                trace = G.diagonal() @ S[:, q]
            total -= 0.5 * (m[:, q] @ (G @ m[:, q]) + trace)
        return float(total)

    def blocks(self, q):
        """Return the blocks on the diagonal of A' W A, see `diagonal_blocks`."""
        G = self.grams[q].tocoo()
        out = np.zeros((-(-G.shape[0] // SIDE), SIDE, SIDE))
        near = G.row // SIDE == G.col // SIDE
        row, column = G.row[near], G.col[near]
        out[row // SIDE, row % SIDE, column % SIDE] = G.data[near]
        return out


class SitesAndPast:
    """`SiteRows` of a stream together with the `PastSites` of its earlier rows."""

    is_here = False  # whether arrays of all rows are in this process

    def __init__(self, here, past, expected=0.0):
        """`past` has the noise of the model, and `expected` is its log-likelihood."""
        self.here, self.past, self.expected = here, past, expected

    def __getattr__(self, name):
        return getattr(self.here, name)  # all that concerns the rows that are here

    def first(self, m, S):
        """See `SiteRows`, as for all methods."""
        return SitesAndPast(self.here.first(m, S), self.past)

    def stepped(self, step):
        return SitesAndPast(self.here.stepped(step), self.past)

    def expecting(self, m, S):
        expected = self.past.log_likelihood(m.astype(np.float64), S.astype(np.float64))
        return SitesAndPast(self.here.expecting(m, S), self.past, expected)

    def divided(self, beta):
        return SitesAndPast(self.here.divided(beta), self.past.scaled(1.0 / beta))

    def reordered(self, places):
        M = len(places)
        order = sparse.csr_array((np.ones(M), (np.arange(M), places)), (M, M))
        return SitesAndPast(self.here.reordered(places), self.past.projected(order))

    def log_likelihood(self):
        return self.here.log_likelihood() + self.expected

    def diagonal(self):
        past = np.stack([G.diagonal() for G in self.past.grams], axis=1)
        return self.here.diagonal() + past

    def right(self):
        return self.here.right() + self.past.right

    def multiply(self, u, which):
        out = self.here.multiply(u, which)
        for q, G in enumerate(self.past.grams):
            of_q = np.asarray(which) == q
            out[:, of_q] += G @ u[:, of_q]
        return out

    def gram(self, q):
        return self.here.gram(q) + self.past.grams[q].toarray()

    def noise(self, key, n_draws):
        """Return the noise of rows that are here, and the draws that it belongs to."""
        return self.here.noise(key, n_draws), slice(key[-1], key[-1] + n_draws)

    def noise_sums(self, q, noise):
        e, draws = noise
        return self.here.noise_sums(q, e) + self.past.noise[:, draws, q]

    def blocks(self, q):
        return self.here.blocks(q) + self.past.blocks(q)
