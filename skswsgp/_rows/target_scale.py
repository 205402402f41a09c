"""From targets in the caller's units to standardised targets, and back.

A target y is transformed by an increasing function T, and then standardised:

    t = (T(y) - offset) / factor.

The process and the law of observations live on t. Quantiles of y are those of t, mapped
back, and densities of y get the slope of t by y.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import boxcox1p, inv_boxcox1p

from skswsgp._point.likelihood_records import gauss_hermite
from skswsgp._point.log_rates import NODES
from skswsgp._rows.statistics import standing_rows

LEAST_POWER, MOST_POWER = 0.0, 2.0  # between them Yeo-Johnson's T maps onto all numbers


class Logarithm(NamedTuple):
    """T(y) = log y, for positive targets."""

    name: str = "log"

    def require_domain(self, y):
        """Raise ValueError if some of the targets have no logarithm."""
        if not (y > 0.0).all():
            raise ValueError(
                f"y has {np.count_nonzero(y <= 0.0)} values that are not positive, "
                f"such as {y.min():g}, for a model of log y: expected positive "
                "targets; use y_transform='yeo-johnson' or None in a new fit."
            )

    def forward(self, y):
        """Return T(y), of the shape of y; minus infinity where y is not positive."""
        return np.log(y, out=np.full(np.shape(y), -np.inf), where=np.asarray(y) > 0.0)

    def inverse(self, t):
        """Return the y for which T(y) = t."""
        return np.exp(t)

    def log_slope(self, y):
        """Return the logarithm of dT / dy; minus infinity where y is not positive."""
        return -np.log(np.where(y > 0.0, y, np.inf))

    def of_output(self, q):
        """Return the transformation of an output."""
        return self


class YeoJohnson(NamedTuple):
    """Powers of 1 + |y / unit|, for targets of any sign [1]_.

    With x = y / unit, T(y) = ((1 + x)^power - 1) / power for x >= 0, and otherwise
    -((1 - x)^(2 - power) - 1) / (2 - power). Arrays have an entry for each output.

    .. [1] Yeo, I.-K. and Johnson, R. A. (2000). A new family of power transformations
       to improve normality or symmetry. Biometrika 87, 954-959.
    """

    unit: np.ndarray  # (Q,) root mean square of training targets
    power: np.ndarray  # (Q,) from 0, a logarithm of large y, through 1, which is linear
    name: str = "yeo-johnson"

    def require_domain(self, y):
        """Accept all numbers."""

    def forward(self, y):
        """Return T(y) for y (n, Q)."""
        x = y / self.unit
        return np.copysign(boxcox1p(np.abs(x), self._powers(x)), x)

    def inverse(self, t):
        """Return the y (n, Q) for which T(y) = t."""
        x = np.copysign(inv_boxcox1p(np.abs(t), self._powers(t)), t)
        return x * self.unit

    def log_slope(self, y):
        """Return the logarithm (n, Q) of dT / dy."""
        x = y / self.unit
        return (self._powers(x) - 1.0) * np.log1p(np.abs(x)) - np.log(self.unit)

    def of_output(self, q):
        """Return the transformation of an output, for any number of columns."""
        return YeoJohnson(self.unit[[q]], self.power[[q]])

    def _powers(self, x):
        """Return the power of 1 + |x| for each value."""
        return np.where(x < 0.0, 2.0 - self.power, self.power)


def fit_transform(name, y, weight):
    """Return the transformation of a name for targets y (n, Q) with weights (n,)."""
    if name == "log":
        return Logarithm()
    largest = np.abs(y).max(axis=0)
    largest = np.where(largest > 0.0, largest, 1.0)  # whose square may overflow
    unit = largest * np.sqrt(np.average((y / largest) ** 2, axis=0, weights=weight))
    unit = np.where(unit > 0.0, unit, 1.0)
    bounds = LEAST_POWER, MOST_POWER
    few = np.sort(standing_rows(len(y)))
    powers = [best_power(x, weight[few], bounds) for x in (y[few] / unit).T]
    return YeoJohnson(unit, np.array(powers))


def best_power(x, weight, bounds):
    """Return the power that makes x (n,), once transformed, likeliest as a Gaussian."""
    if np.ptp(x) == 0.0:
        return 1.0

    def loss(power):
        transform = YeoJohnson(np.ones(1), np.array([power]))
        t = transform.forward(x[:, None])[:, 0]
        center = np.average(t, weights=weight)
        spread = np.average((t - center) ** 2, weights=weight)
        slopes = transform.log_slope(x[:, None])[:, 0]
        return 0.5 * np.log(spread) - np.average(slopes, weights=weight)

    return minimize_scalar(loss, bounds=bounds, method="bounded").x


class TargetScale(NamedTuple):
    """How targets in the caller's units and standardised targets are related."""

    offset: np.ndarray  # (Q,) or a number
    factor: np.ndarray  # (Q,) or a number
    transform: Logarithm | YeoJohnson | None
    most_deviation: float = np.inf  # of t, for moments: that of training targets, if 1

    def standardise(self, y):
        """Return t (n, Q) for y (n, Q)."""
        t = y if self.transform is None else self.transform.forward(y)
        return (t - self.offset) / self.factor

    def restore(self, t):
        """Return y for t (n, Q) or (n, Q, k), of its shape."""
        t = self.offset + self.factor * np.moveaxis(t, 1, -1)
        y = t if self.transform is None else self.transform.inverse(t)
        return np.moveaxis(y, -1, 1)

    def log_slope(self, y):
        """Return the logarithm (n, Q) of dt / dy."""
        slope = -np.log(self.factor)
        return slope if self.transform is None else slope + self.transform.log_slope(y)

    def of_output(self, q):
        """Return the scale of an output, for arrays of any number of columns."""
        transform = self.transform
        if transform is not None:
            transform = transform.of_output(q)
        both = self.offset, self.factor
        numbers = (value if np.ndim(value) == 0 else value[q] for value in both)
        return TargetScale(*numbers, transform, self.most_deviation)

    def moments(self, mean, deviation):
        """Return mean and deviation (n, Q) of y for those of t.

        Behind a transformation they are those of a Gaussian t, by Gauss-Hermite
        quadrature but for a logarithm: heavier tails may have no moments there.
        """
        if self.transform is None:
            return self.restore(mean), deviation * self.factor
        if isinstance(self.transform, Logarithm):
            y_mean, square = self._log_normal_mean(mean, deviation**2)
            with np.errstate(over="ignore"):
                return y_mean, y_mean * np.sqrt(np.expm1(square))
        y_mean, y_square = np.zeros(mean.shape), np.zeros(mean.shape)
        center = self.restore(mean)  # squares of large y would lose digits without it
        nodes, weights = gauss_hermite(NODES)
        ends = (
            self.restore(mean + deviation * node) - center for node in nodes[[0, -1]]
        )
        unit = np.maximum(*map(np.abs, ends))  # whose square may overflow
        unit = np.maximum(unit, np.finfo(float).tiny)
        for node, weight in zip(nodes, weights, strict=True):
            excess = (self.restore(mean + deviation * node) - center) / unit
            y_mean += weight * excess
            y_square += weight * excess**2
        variance = np.maximum(y_square - y_mean**2, 0.0)
        return center + y_mean * unit, np.sqrt(variance) * unit

    def covariance(self, mean, covariance):
        """Return the covariance (n, n, Q) of y for that of a Gaussian t.

        With H_k the Hermite polynomials of unit norm, r_ij the correlation of t_i and
        t_j, and a_k(i) = E[y_i H_k(z_i)] for the standardised t_i, it is
        sum_{k > 0} a_k(i) a_k(j) r_ij^k (Mehler's formula). Expectations are those of
        `moments`, so the diagonal holds its squared deviations.
        """
        if self.transform is None:
            return np.square(self.factor) * covariance
        variance = np.einsum("iiq->iq", covariance)
        if isinstance(self.transform, Logarithm):
            y_mean, _ = self._log_normal_mean(mean, variance)
            with np.errstate(over="ignore"):
                relative = np.expm1(np.square(self.factor) * covariance)
                return y_mean[:, None] * y_mean * relative
        deviation = np.sqrt(variance)
        root = np.maximum(deviation, np.finfo(float).tiny)
        correlation = covariance / (root[:, None] * root)
        center, (nodes, weights) = self.restore(mean), gauss_hermite(NODES)
        points = mean + deviation * nodes[:, None, None]
        excess = np.stack([self.restore(t) - center for t in points])  # (K, n, Q)
        out = np.zeros_like(covariance)
        for polynomial in hermite_polynomials(nodes)[:0:-1]:
            a = np.tensordot(weights * polynomial, excess, axes=1)
            out = correlation * (out + a[:, None] * a)
        return out

    def _log_normal_mean(self, mean, variance):
        """Return the mean (n, Q) of y behind a logarithm, and the variance of log y."""
        square = np.square(self.factor) * variance
        with np.errstate(over="ignore"):  # infinity is the better answer
            return np.exp(self.offset + self.factor * mean + 0.5 * square), square


def hermite_polynomials(x):
    """Return H_0 to H_{K-1} at x (K,), one a row: E[H_j(z) H_k(z)] = [j = k]."""
    rows = [np.ones_like(x), x]
    for k in range(1, len(x) - 1):
        rows.append((x * rows[k] - np.sqrt(k) * rows[k - 1]) / np.sqrt(k + 1.0))
    return np.stack(rows)


STANDARD = TargetScale(0.0, 1.0, None)  # of targets that are standardised already
