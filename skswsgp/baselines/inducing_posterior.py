"""The posterior of inducing values and points, kernel and noise, and its gradient.

With L L' the covariance of the points Z, whitened values v = L^-1 u have a standard
normal prior. Given them, f at a row is N(p' v, F), for p = L^-1 k(Z, x) and F = k(x, x)
- p' p. All unknowns make one vector x: v, Z with columns standardised, the logarithms
of the kernel's free parameters and those of noise variances. They have normal priors of
deviation one, around zero or, for logarithms, around their start.
"""

import numpy as np
from scipy.linalg import solve_triangular

from skswsgp._compiled.linalg import RELATIVE_FLOOR, numpy_cholesky
from skswsgp._covariance.matrix import CovarianceMatrix
from skswsgp._solvers.model import JITTER
from skswsgp.baselines.row_covariances import RowCovariances

BLOCKS = "inducing_values", "inducing_points", "kernel", "noise"  # of x, in order


class InducingPosterior:
    """log p(x, y) over the total weight of rows, and its gradient by x.

    `rows` are X centred, targets and weights; `units` (2, D) are zero and scale of the
    columns of Z on the scale of these X. A minibatch has `size` rows.
    """

    def __init__(self, compiled, rows, units, Z, noise, density, prior, size):
        (M, D), Q = Z.shape, density.n_latent
        self.compiled, self.rows, self.units = compiled, rows, units
        self.density, self.prior, self.shape = density, prior, (M, D, Q)
        self.total, self.size = rows[2].sum(), min(size, len(rows[0]))
        self.params = compiled.struct.params.copy()
        logs = np.log(self.params[compiled.free]), np.log(noise)
        blocks = np.zeros(M * Q), ((Z - units[0]) / units[1]).ravel(), *logs
        sizes = [len(block) for block in blocks]
        self.start, self.ends = np.concatenate(blocks), np.cumsum(sizes)[:-1]
        self.block = np.repeat(np.arange(4), sizes)  # the number of that of each entry
        # Z has its normal prior around zero, not around its start
        self.around = np.where(self.block < 2, 0.0, self.start)
        self.pull = np.where((self.block == 1) & (prior != "normal"), 0.0, 1.0)
        self.matrix = CovarianceMatrix(compiled.struct, Z)
        self.cross = RowCovariances(compiled.struct, self.size, M)
        self.energies = []  # of all calls of `slope`, over the total weight

    def unpack(self, x):
        """Return v (M, Q), Z (M, D) as in `rows`, kernel parameters and noise."""
        v, Z, logs, log_noise = np.split(x, self.ends)
        M, D, Q = self.shape
        params = self.params.copy()
        params[self.compiled.free] = np.exp(logs)
        Z = self.units[0] + self.units[1] * Z.reshape(M, D)
        return v.reshape(M, Q), Z, params, np.exp(log_noise)

    def minibatch(self, rng):
        """Return X, targets and shares of weight of random rows, or of all in order."""
        chosen = slice(None)
        if self.size < len(self.rows[0]):
            chosen = rng.choice(len(self.rows[0]), self.size, replace=False)
        X, y, weight = (array[chosen] for array in self.rows)
        return X, y, weight / weight.sum()

    def gradient(self, x, batch):
        """Return the log density and its gradient, estimated from a minibatch."""
        (v, Z, params, noise), (X, y, share) = self.unpack(x), batch
        K = self.matrix.evaluate(params, Z)
        jitter = JITTER * np.trace(K) / len(K)
        L = numpy_cholesky(K, jitter)
        rows = self.cross.evaluate(params, X, Z)
        P = solve_triangular(L, rows[:, :-1].T, lower=True)  # (M, n)
        F = np.maximum(rows[:, -1] - np.sum(P**2, axis=0), RELATIVE_FLOOR * jitter)
        value, d_f, d_F, d_noise = self.density(y, P.T @ v, F, noise)
        d_f, d_F = share[:, None] * d_f, share * d_F
        d_P = v @ d_f.T - 2.0 * P * d_F
        d_rows = solve_triangular(L, d_P, lower=True, trans="T")
        d_L = -np.tril(d_rows @ P.T)
        value = share @ value - 0.5 * self.pull @ (x - self.around) ** 2 / self.total
        if self.prior == "dpp":
            value += 2.0 * np.log(np.diag(L)).sum() / self.total
            d_L[np.diag_indices(len(L))] += 2.0 / (self.total * np.diag(L))
        d_log, d_Z = self.matrix.vjp(_through_factor(L, d_L), True)
        more_log, more_Z = self.cross.vjp(np.c_[d_rows.T, d_F])
        d_log, d_Z = (d_log + more_log)[self.compiled.free], d_Z + more_Z
        d_v, d_Z = P @ d_f, self.units[1] * d_Z
        blocks = d_v.ravel(), d_Z.ravel(), d_log, share @ d_noise
        slope = np.concatenate(blocks) - self.pull * (x - self.around) / self.total
        return value, slope

    def slope(self, x, rng):
        """Return the gradient from a random minibatch; append to `energies`."""
        value, slope = self.gradient(x, self.minibatch(rng))
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            raise FloatingPointError("the posterior density is not finite")
        self.energies.append(-value)
        return slope


def _through_factor(L, d_L):
    """Return symmetric derivatives by K from those by L, L L' = K + jitter.

    The jitter is a fraction of the mean of the diagonal of K.
    """
    inner = np.tril(L.T @ d_L)
    inner[np.diag_indices(len(L))] *= 0.5
    half = solve_triangular(L, inner, lower=True, trans="T")
    d_K = solve_triangular(L, half.T, lower=True, trans="T")
    d_K = 0.5 * (d_K + d_K.T)
    d_K[np.diag_indices(len(L))] += JITTER * np.trace(d_K) / len(L)
    return d_K
