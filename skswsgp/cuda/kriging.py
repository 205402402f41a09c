"""Simple kriging of many rows at once from noisy neighbours; see `_point.kriging`.

Output q of row b of n has the factor q n + b, and a and alpha are as in `rows`.
"""

import math

from skswsgp._compiled.linalg import RELATIVE_FLOOR
from skswsgp._compiled.special import compiled_log_density
from skswsgp.cuda.compiler import body
from skswsgp.cuda.factors import Factors
from skswsgp.cuda.rows import Work, likelihood_slope, residual


@body
def noise_entry(i, m, s, noise, active, K, added, right):
    """Set the noise of a neighbour, and the right sides k and m_w of an output."""
    n, H = active.shape
    c, h = i // H, i % H
    b, q = c % n, c // n
    added[c, h] = noise[q] * s[active[b, h], q]
    right[c, h, 0], right[c, h, 1] = K[b, h, H], m[active[b, h], q]


@body
def krige_row(b, y, noise, K, added, half, right, a, alpha, f, ell):
    """Set the means and variances F = k(x, x) - k' a, at least 0, of a row.

    Targets y, where there are some, have log p(y | m_w) and its derivatives.
    """
    n, Q = f.mean.shape
    ell[b] = 0.0
    for q in range(Q):
        mu, c = 0.0, q * n + b
        for h in range(added.shape[1]):
            mu += a[c, h, 0] * right[c, h, 1]
        f.mean[b, q], f.variance[b, q] = mu, residual(K, half, b, c)
        if y.shape[1]:
            own = noise[q] * y[b, Q + q]
            variance, error = f.variance[b, q] + own, y[b, q] - mu
            square = error * error / variance
            ell[b] += compiled_log_density(square, math.log(variance))
            f.d_mean[b, q], slope = error / variance, 0.5 * (square - 1.0) / variance
            f.d_variance[b, q], f.d_noise[b, q] = slope, slope * own
            for h in range(added.shape[1]):
                by_C = likelihood_slope(b, c, h, h, q, f, a, alpha)
                f.d_noise[b, q] += added[c, h] * by_C


@body
def krige_pair(i, weight, f, a, alpha, adjoint):
    """Set the derivative by the covariance of pair i of the points of all sets."""
    (n, Q), P, value = f.mean.shape, a.shape[1] + 1, 0.0
    b, g, h = i // (P * P), i // P % P, i % P
    for q in range(Q):
        value += likelihood_slope(b, q * n + b, g, h, q, f, a, alpha)
    adjoint[adjoint.shape[0] - 1, i] = weight[b] * value


class Kriging(Work):
    """`mean` and `variance` F of f (n, Q) at rows, by kriging of each output."""

    def __init__(self, engine, n, columns=0):
        super().__init__(engine, n, columns)
        K, H, Q = self.K, self.H, self.m.shape[1]
        self.allocate(right=(n * Q, H, 2))
        given = RELATIVE_FLOOR * self.jitter, self.right, Q, engine.note_jitter
        found = Factors(self.device, K[:, :H, :H], *given)
        self.added, self.half = found.added, found.half
        self.a, self.alpha = found.solution[:, :, :1], found.solution[:, :, 1:]
        self.add(noise_entry, n * Q * H)
        self.launches.append(found.find)
        self.add(krige_row, n)


class KrigingSlopes(Kriging):
    """Derivatives of sum_i weight_i log p(y_i | m_w), and this sum.

    They are `d_params` (1, P), by log kernel parameters, and `totals`, see `add_vjp`.
    """

    def __init__(self, engine, n, columns):
        super().__init__(engine, n, columns)
        self.allocate(adjoint=self.values.shape)
        self.add(krige_pair, self.K.size)
        self.add_vjp(False)
