"""Training rows with their matrix A and their Gaussian sites N(f_i; t_i, 1 / w_i).

The natural solver asks rows for sums only: A' W A u, A' W t, the diagonal of A' W A and
the expected log-likelihood. So rows may lie anywhere, and `SiteRows` holds those of one
place. A change returns other sites; arrays that stay are shared.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.threads import ROWS_AT_ONCE, index_blocks
from skswsgp._compiled.tiles import BLOCK
from skswsgp._linear.projection import Projection
from skswsgp._point.likelihood_records import LikelihoodRecord


class Expectations(NamedTuple):
    """What q(f_i) says of the targets of n rows, E = E log p(y_i | f_i) in nats."""

    log_likelihood: np.ndarray  # (n,) E
    d_mean: np.ndarray  # (n, Q) derivatives of E by the mean of q(f_i)
    d_variance: np.ndarray  # (n, Q), by its variance
    mean: np.ndarray  # (n, Q) of q(f_i)


class SiteRows(NamedTuple):
    """n rows of one place. Sums over rows are over these."""

    rows: Projection
    engine: object  # whose model has the likelihood and the noise
    record: LikelihoodRecord
    y: np.ndarray  # (n, Q), or (n, 1) for classes
    weight: np.ndarray  # (n,)
    precision: np.ndarray  # (n, Q) w_i, weights included
    precision_mean: np.ndarray  # (n, Q) w_i t_i
    expected: Expectations | None = None  # at the q(u) that `expecting` took last
    begin: int = 0  # the number of the first row in the table that it is from

    @property
    def n_rows(self):
        """The number of rows, n."""
        return len(self.weight)

    @property
    def unit(self):
        """The noise (Q,) by which precisions are divided, 1 where there is none."""
        if self.record.conjugate:
            return self.engine.model.noise.astype(np.float64)
        return np.ones(self.precision.shape[1])

    @classmethod
    def of(cls, engine, kernel, data, record, lookup, memory):
        """Return the rows of `TrainingRows` before their first sites.

        Other arguments are those of `Projection`.
        """
        rows = Projection(engine, kernel, data, lookup, memory)
        nothing = np.zeros((data.n_rows, engine.model.m.shape[1]))
        return cls(rows, engine, record, data.y, data.weight, nothing, nothing)

    def first(self, m, S):
        """Return the first sites: those of Gaussian data, or ones near q(u)."""
        if self.record.conjugate:
            return self.stepped(1.0)
        sites = self.record.first_sites(self.y, self.engine.model)
        if sites is None:
            return self.expecting(m, S).stepped(1.0)
        precision = sites[0] * self.weight[:, None]
        both = {"precision": precision, "precision_mean": precision * sites[1]}
        return self._replace(**both)

    def stepped(self, step):
        """Return sites a step of so much, at most 1, towards those of q(f)."""
        weight = self.weight[:, None]
        if self.record.conjugate:  # the sites are the data
            precision = weight / self.engine.model.noise
            precision_mean = precision * self.y
        else:
            _, d_mean, d_variance, mean = self.expected
            precision = np.maximum(-2.0 * d_variance, 0.0) * weight
            precision_mean = d_mean * weight + precision * mean
        return self._replace(
            precision=self.precision + step * (precision - self.precision),
            precision_mean=self.precision_mean
            + step * (precision_mean - self.precision_mean),
        )

    def scaled(self, factor):
        """Return the rows, before their first sites, for `factor` times the kernel."""
        nothing = np.zeros_like(self.precision)
        return self._replace(
            rows=self.rows.scaled(factor), precision=nothing, precision_mean=nothing,
            expected=None,
        )  # fmt: skip

    def expecting(self, m, S):
        """Return the sites with what q(u) = N(m, S) expects of the targets."""
        mean, variance = self.marginals(m, S)
        ell, d_mean, d_variance = np.empty(len(mean)), *np.empty((2, *mean.shape))
        expectations = self.engine.variational_expectations
        for index in index_blocks(len(mean)):
            ell[index], d_mean[index], d_variance[index] = expectations(
                self.y[index], mean[index], variance[index]
            )
        expected = Expectations(ell, d_mean, d_variance, mean)
        return self._replace(expected=expected)

    def marginals(self, m, S):
        """Return mean and variance of q(f_i), eq. 13, each (n, Q).

        S holds variances (M, Q) or lower factors (Q, M, M).
        """
        if S.ndim == 3:
            parts = [self.rows.quadratic_forms(L) for L in S.astype(np.float64)]
            variance = np.stack(parts, axis=1)
        else:
            variance = self.rows.matvec(S.astype(np.float64), squares=True)
        return self.rows.matvec(m.astype(np.float64)), self.rows.F[:, None] + variance

    def log_likelihood(self):
        """Return the sum of the expected log-likelihoods of rows, in nats."""
        return float(self.weight @ self.expected.log_likelihood)

    def total_weight(self):
        """Return the sum of the weights of rows."""
        return self.weight.sum(dtype=np.float64)

    def diagonal(self):
        """Return the diagonals of A' W A (M, Q)."""
        return self.rows.rmatvec(self.precision, squares=True)

    def right(self):
        """Return A' W t (M, Q)."""
        return self.rows.rmatvec(self.precision_mean)

    def multiply(self, u, which):
        """Return A' W A u (M, k), column j of u with the sites of which[j]."""
        return self.rows.normal_matvec(self.precision[:, which], u)

    def gram(self, q):
        """Return A' W A (M, M) for latent function q."""
        return self.rows.weighted_gram(self.precision[:, q])

    # --- noise of rows, for draws from q(u) and for traces

    def noise(self, key, n_draws):
        """Return `row_noise` (n, n_draws) for these rows."""
        return row_noise(key, self.begin, self.n_rows, n_draws)

    def noise_squares(self, e):
        """Return the sums of squares (k,) of a `noise`."""
        return np.sum(e**2, axis=0)

    def noise_sums(self, q, e):
        """Return A' W^1/2 e (M, k) for latent function q and e (n, k)."""
        return self.rows.rmatvec(np.sqrt(self.precision[:, [q]]) * e)


def row_noise(key, begin, n, n_draws):
    """Return standard normal numbers (n, n_draws) for rows begin .. begin + n - 1.

    The number of a row and a draw depends on them and on `key`, non-negative integers
    of which the last is the number of the first draw, a multiple of BLOCK. So neither
    parts of the rows nor parts of the draws matter.
    """
    *key, first = key
    groups = range(begin // ROWS_AT_ONCE, -(-(begin + n) // ROWS_AT_ONCE))
    batches = range(first, first + n_draws, BLOCK)
    skipped = begin // ROWS_AT_ONCE * ROWS_AT_ONCE
    out = np.empty((begin + n - skipped, BLOCK * len(batches)))
    for i, batch in enumerate(batches):
        for j, group in enumerate(groups):
            part = out[j * ROWS_AT_ONCE :, BLOCK * i : BLOCK * (i + 1)][:ROWS_AT_ONCE]
            generator = np.random.default_rng([*key, batch, group])
            part[:] = generator.standard_normal(part.shape)
    return out[begin - skipped :, :n_draws]
