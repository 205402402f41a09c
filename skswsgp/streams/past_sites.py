"""The sites of rows that a stream no longer keeps: sums over them, and nothing else.

A row adds w a a' to A' W A and w t a to A' W t, whatever the other rows are. So these
sums know all that rows say of the inducing values. They are kept without the noise,
which may be learned again. Where inducing points change, u_old = T u_new, with the
weights T of old points on new ones, and T' A' W A T stands for the sum.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from skswsgp._linear.row_matrix import DenseMatrix, SelectionMatrix
from skswsgp._solvers.rows import RowsInMemory


def sparse_rows(projection, index):
    """Return some rows of the A of a `Projection` as a sparse matrix of SciPy."""
    rows, _ = projection.compute_rows(index)
    if isinstance(rows, DenseMatrix):
        return sparse.csr_array(rows.A)
    if isinstance(rows, SelectionMatrix):
        n = len(rows.columns)
        places = rows.columns, np.arange(n + 1)
        return sparse.csr_array((np.ones(n), *places), (n, rows.n_columns))
    lists, M = rows.lists, projection.shape[1]
    starts = np.arange(0, lists.size + 1, lists.shape[1])
    weights = rows.weights.ravel().astype(np.float64)
    return sparse.csr_array((weights, lists.ravel(), starts), (len(lists), M))


class PastSites(NamedTuple):
    """Sums over rows that left, for Q latent functions."""

    n_rows: int
    weight: float  # sum of their weights
    # Q matrices (M, M), of SciPy or, where few entries are zero, of NumPy. Times the
    # `scale` they are A' W A; outputs of like weights share one.
    grams: tuple
    scale: np.ndarray  # (Q,)
    right: np.ndarray  # (M, Q) A' W t
    noise: np.ndarray  # (M, n_draws, Q) A' W^1/2 e with standard normal e

    @classmethod
    def of(cls, sites, rows, n_draws, rng):
        """Return the sums of some rows of `SiteRows`, with fresh noise."""
        A, (M, Q) = sparse_rows(sites.rows, rows), sites.engine.model.m.shape
        precision = sites.precision[rows] * sites.unit
        precision_mean = sites.precision_mean[rows] * sites.unit
        noise = np.empty((M, n_draws, Q))
        for q, w in enumerate(precision.T):
            e = rng.standard_normal((len(w), n_draws))
            noise[:, :, q] = A.T @ (np.sqrt(w)[:, None] * e)
        like = np.all(precision == precision[:, :1])
        grams = [A.T @ A.multiply(w[:, None]) for w in precision.T[: 1 if like else Q]]
        weight = sites.weight[rows].sum(dtype=np.float64)
        grams = tuple(grams * (Q // len(grams)))
        right = A.T @ precision_mean
        return cls(len(rows), weight, grams, np.ones(Q), right, noise)

    def joined(self, other):
        """Return the sums over these rows and others, or over these for None."""
        if other is None:
            return self
        done, grams = {}, []
        for parts in zip(self.scale, self.grams, other.scale, other.grams, strict=True):
            s, G, t, F = parts
            key = s, id(G), t, id(F)
            done[key] = done[key] if key in done else _stored(s * G + t * F)
            grams.append(done[key])
        sums = (a + b for a, b in zip(self, other, strict=True))
        ones = np.ones(len(grams))
        return PastSites(*sums)._replace(grams=tuple(grams), scale=ones)

    def scaled(self, factor):
        """Return the sums with weights times `factor`, a number or (Q,)."""
        factor = np.broadcast_to(factor, len(self.grams))
        weight, noise = self.weight * factor.mean(), self.noise * np.sqrt(factor)
        scaled = {"scale": self.scale * factor, "right": self.right * factor}
        return self._replace(weight=weight, noise=noise, **scaled)

    def projected(self, T):
        """Return the sums for other inducing values v, where u = T v for T (M, M')."""
        done = {id(G): _stored(T.T @ G @ T) for G in self.grams}
        grams = tuple(done[id(G)] for G in self.grams)
        noise = [T.T @ self.noise[:, :, q] for q in range(len(grams))]
        both = {"right": T.T @ self.right, "noise": np.stack(noise, axis=2)}
        return self._replace(grams=grams, **both)

    def log_likelihood(self, m, S):
        """Return the expected log-likelihood under q(u) = N(m, S), up to a constant.

        S holds variances (M, Q) or lower factors (Q, M, M).
        """
        total = np.vdot(self.right, m)
        if S.ndim == 2:
            total -= 0.5 * np.vdot(self.diagonal(), S)
        for q in range(len(self.grams)):
            total -= 0.5 * np.vdot(m[:, q], self.product(q, m[:, q]))
            if S.ndim == 3:
                total -= 0.5 * np.vdot(S[q], self.product(q, S[q]))
        return float(total)

    def product(self, q, u):
        """Return A' W A u (M, ...) for latent function q."""
        return self.scale[q] * (self.grams[q] @ u)

    def diagonal(self):
        """Return the diagonals of A' W A (M, Q)."""
        return self.scale * np.stack([G.diagonal() for G in self.grams], axis=1)

    def gram(self, q):
        """Return A' W A (M, M)."""
        G = self.grams[q]
        return self.scale[q] * (G.toarray() if sparse.issparse(G) else G)


def _stored(G):
    """Return a matrix of SciPy or NumPy as that of both which takes less."""
    if sparse.issparse(G) and G.nnz < G.shape[0] ** 2 // 4:
        return G.tocsr()
    return G.toarray() if sparse.issparse(G) else G


class RowsAndPast(NamedTuple):
    """Rows of a stream behind a past, for a solver: see `RowsInMemory`."""

    here: RowsInMemory  # the rows that the stream keeps
    past: PastSites  # without the noise of the model

    @property
    def sample(self):
        """The `TrainingRows` that are kept."""
        return self.here.sample

    @property
    def n_all(self):
        """The number of rows that are kept: others are no inducing points."""
        return self.here.n_all

    def centered(self, center):
        """Return the rows with a center (D,), which is subtracted from X."""
        return self._replace(here=self.here.centered(center))

    def sites(self, engine, kernel, settings, search):
        """Return the sites of the rows that are kept and of those that left."""
        sites = self.here.sites(engine, kernel, settings, search)
        return SitesAndPast(sites, self.past.scaled(1.0 / sites.unit), self.past.weight)


class SitesAndPast:
    """`SiteRows` of a stream together with the `PastSites` of its earlier rows."""

    # attributes that are those of the sites of rows that the stream keeps
    OF_ROWS = (
        "rows", "engine", "weight", "precision", "precision_mean", "unit", "n_rows",
    )  # fmt: skip

    def __init__(self, here, past, past_weight, expected=0.0):
        """`past` has the noise of the model, and `expected` is its log-likelihood."""
        self.here, self.past, self.expected = here, past, expected
        self.past_weight = past_weight

    def __getattr__(self, name):
        """Return an attribute of the sites of the rows that the stream keeps."""
        if name not in self.OF_ROWS:
            raise AttributeError(name)
        return getattr(self.here, name)

    def _changed(self, here, past=None, expected=0.0):
        past = self.past if past is None else past
        return SitesAndPast(here, past, self.past_weight, expected)

    def first(self, m, S):
        """See `SiteRows`, as for all methods."""
        return self._changed(self.here.first(m, S))

    def stepped(self, step):
        return self._changed(self.here.stepped(step))

    def expecting(self, m, S):
        expected = self.past.log_likelihood(m.astype(np.float64), S.astype(np.float64))
        return self._changed(self.here.expecting(m, S), expected=expected)

    def total_weight(self):
        return self.here.total_weight() + self.past_weight

    def log_likelihood(self):
        return self.here.log_likelihood() + self.expected

    def diagonal(self):
        return self.here.diagonal() + self.past.diagonal()

    def right(self):
        return self.here.right() + self.past.right

    def multiply(self, u, which):
        out = self.here.multiply(u, which)
        for q in np.unique(which):
            of_q = np.asarray(which) == q
            out[:, of_q] += self.past.product(q, u[:, of_q])
        return out

    def gram(self, q):
        return self.here.gram(q) + self.past.gram(q)

    def noise(self, key, n_draws):
        """Return the noise of rows that are here, and the draws that it belongs to."""
        return self.here.noise(key, n_draws), slice(key[-1], key[-1] + n_draws)

    def noise_squares(self, noise):
        """Return the sums of squares, those that are expected for rows that left."""
        return self.here.noise_squares(noise[0]) + self.past.n_rows

    def noise_sums(self, q, noise):
        e, draws = noise
        return self.here.noise_sums(q, e) + self.past.noise[:, draws, q]
