"""From targets in the caller's units to standardised targets, and back.

A target y is transformed by an increasing function T, and then standardised:

    t = (T(y) - offset) / factor.

The process and the law of observations live on t. Quantiles of y are those of t, mapped
back, and densities of y get the slope of t by y.

Far beyond training targets the inverse of T would grow as no row supports, and heavy
tails of t would have no mean there. So T goes over to a line on the side where it gets
flatter, from an end that lies where t is larger by 1, usually a deviation, than at the
last training target: rows like those of training reach hardly any further. At the
distance d from that end, with w that to the training target furthest away,

    T = T(end) +- d (m + (s - m) / (1 + d / w)),

with s the slope at the end and m the mean slope over w, that of the line.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import boxcox1p, inv_boxcox1p

from skswsgp._point.likelihood_records import gauss_hermite
from skswsgp._point.log_rates import NODES
from skswsgp._rows.statistics import standing_rows

TRANSFORMS = "yeo-johnson", "log"


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
    few = np.sort(standing_rows(len(y)))
    powers = [best_power(x, weight[few]) for x in (y[few] / unit).T]
    return YeoJohnson(unit, np.array(powers))


def best_power(x, weight):
    """Return the power that makes x (n,), once transformed, likeliest as a Gaussian.

    It is from 0 to 2. Beyond, T would not map onto all numbers.
    """
    if np.ptp(x) == 0.0:
        return 1.0
    return minimize_scalar(gaussian_loss, bounds=(0.0, 2.0), args=(x, weight)).x


@np.errstate(all="ignore")
def gaussian_loss(power, x, weight):
    """Return minus the mean log density of x (n,) where T(x) is Gaussian.

    It is up to a constant, and infinite where all T(x) are equal, or too large.
    """
    transform = YeoJohnson(1.0, power)
    t, slopes = transform.forward(x), transform.log_slope(x)
    size = np.abs(t).max()  # whose square may overflow
    spread = size * np.sqrt(np.cov(t / size, ddof=0, aweights=weight))
    loss = np.log(spread) - np.average(slopes, weights=weight)
    return loss if np.isfinite(loss) else np.inf


class SeenTargets(NamedTuple):
    """What training targets have shown, each (Q,)."""

    low: np.ndarray
    high: np.ndarray
    least: np.ndarray  # 0 where no target can be negative, and else minus infinity
    widest: np.ndarray = 1.0  # deviation of one more target, over that of these

    def beside(self, y):
        """Return the targets seen so far, with new ones y (n,) or (n, Q).

        Their range stays, far beyond which the transformation is a line already, but
        negative ones say that targets can be negative.
        """
        negative = y.reshape(len(y), -1).min(axis=0) < 0.0
        return self._replace(least=np.where(negative, -np.inf, self.least))


class End(NamedTuple):
    """Where a transformation goes over to a straight line."""

    side: np.ndarray  # 1 for a line above the place, -1 for one below
    place: np.ndarray
    slope: np.ndarray  # there
    mean: np.ndarray  # slope of the line
    width: np.ndarray  # distance over which the slope becomes that of the line

    def mapped(self, transform):
        """Return the end on the scale of the transformation."""
        return self._replace(place=transform.forward(self.place))

    def split(self, y):
        """Return y up to the place, and distances from it beyond."""
        beyond = np.maximum(self.side * (y - self.place), 0.0)
        return np.where(beyond > 0.0, self.place, y), beyond

    def forward(self, d):
        """Return by what T grows over the distance d."""
        steep = (self.slope - self.mean) / (1.0 + d / self.width)
        return self.side * d * (self.mean + steep)

    def inverse(self, rise):
        """Return by what y grows where T rises so much."""
        b = rise - self.slope * self.width
        root = np.sqrt(b**2 + 4.0 * self.mean * rise * self.width)
        small = 2.0 * rise * self.width / np.where(b < 0.0, root - b, 1.0)
        return self.side * np.where(b < 0.0, small, 0.5 * (b + root) / self.mean)

    def log_growth(self, d):
        """Return the logarithm of the slope at a distance over that at the place."""
        more = (self.mean / self.slope - 1.0) * (1.0 - (1.0 + d / self.width) ** -2)
        return np.log1p(more)


class TargetScale(NamedTuple):
    """How targets in the caller's units and standardised targets are related."""

    offset: np.ndarray  # (Q,) or a number
    factor: np.ndarray  # (Q,) or a number
    transform: Logarithm | YeoJohnson | None
    seen: SeenTargets | None = None  # None where T goes on for ever

    def standardise(self, y):
        """Return t (n, Q) for y (n, Q)."""
        if self.transform is not None:
            end = self._end
            inside, beyond = end.split(y)
            y = self.transform.forward(inside) + end.forward(beyond)
        return (y - self.offset) / self.factor

    def restore(self, t):
        """Return y for t (n, Q) or (n, Q, k), of its shape."""
        t = self.offset + self.factor * np.moveaxis(t, 1, -1)
        if self.transform is not None:
            end = self._end
            inside, beyond = end.mapped(self.transform).split(t)
            t = self.transform.inverse(inside) + end.inverse(beyond)
        if self.seen is not None:
            t = np.maximum(t, self.seen.least)
        return np.moveaxis(t, -1, 1)

    def log_slope(self, y):
        """Return the logarithm (n, Q) of dt / dy."""
        slope = -np.log(self.factor)
        if self.transform is None:
            return slope
        end = self._end
        inside, beyond = end.split(y)
        return slope + self.transform.log_slope(inside) + end.log_growth(beyond)

    @property
    def is_line(self):
        """Whether y is a line of t: not transformed, and without a least value."""
        least = -np.inf if self.seen is None else np.max(self.seen.least)
        return self.transform is None and least == -np.inf

    def of_output(self, q):
        """Return the scale of an output, for arrays of any number of columns."""
        transform, seen = self.transform, self.seen
        if transform is not None:
            transform = transform.of_output(q)
        if seen is not None:
            seen = SeenTargets(*np.broadcast_arrays(*seen))
            seen = SeenTargets(*(values[q] for values in seen))
        numbers = (value if np.ndim(value) == 0 else value[q] for value in self[:2])
        return TargetScale(*numbers, transform, seen)

    @property
    def _end(self):
        """The `End` of the transformation."""
        if self.seen is None:
            return End(1.0, np.inf, 1.0, 1.0, 1.0)
        T, (low, high) = self.transform, self.seen[:2]
        side = np.where(T.log_slope(high) <= T.log_slope(low), 1.0, -1.0)
        first, last = np.where(side > 0.0, (low, high), (high, low))
        with np.errstate(over="ignore"):
            place = T.inverse(T.forward(last) + side * self.factor)
        place = np.where(np.isfinite(place), place, last)
        width = np.abs(place - first)
        mean = np.abs(T.forward(place) - T.forward(first)) / width
        return End(side, place, np.exp(T.log_slope(place)), mean, width)

    def moments(self, at):
        """Return mean and deviation (n, Q) of y, by Gauss-Hermite quadrature.

        `at` returns the t (n, Q) that are as probable as a standard normal value.
        """
        nodes, weights = gauss_hermite(NODES)
        center = self.restore(at(0.0))  # squares of large y would lose digits else
        unit = np.maximum(
            *(np.abs(self.restore(at(z)) - center) for z in nodes[[0, -1]])
        )
        unit = np.maximum(unit, np.finfo(float).tiny)  # whose square may overflow
        first, second = np.zeros((2, *center.shape))
        for node, weight in zip(nodes, weights, strict=True):
            excess = (self.restore(at(node)) - center) / unit
            first += weight * excess
            second += weight * excess**2
        deviation = np.sqrt(np.maximum(second - first**2, 0.0))
        return center + first * unit, deviation * unit


STANDARD = TargetScale(0.0, 1.0, None)  # of targets that are standardised already
