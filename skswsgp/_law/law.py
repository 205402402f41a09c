"""The law of observations around their predicted means.

An observation is mean + deviation s(x) t, where the deviation is that of the Gaussian
process, noise included, and t is from a distribution of a learned `Shape`. s(x) follows
the sizes of residuals around x, and waves along columns. Where it makes held-out rows
likelier, the targets of near rows take a share of the density (`local_density`). The
means stay those of the process.
"""

from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicHermiteSpline
from scipy.optimize.elementwise import find_root
from scipy.special import ndtr, ndtri

from skswsgp._compiled.threads import index_blocks
from skswsgp._law.levels import Levels
from skswsgp._law.local_density import LocalDensity, NearTargets, near_targets
from skswsgp._law.shape import GAUSSIAN
from skswsgp._law.widths import NEAR, Nearness, ResidualSizes
from skswsgp._rows.target_scale import STANDARD

CRPS_SCORES = np.linspace(-5.0, 5.0, 81)  # normal values where intervals end


class PredictiveLaw(NamedTuple):
    """What residuals of training rows say of the law of observations.

    Arrays have an entry for each of Q outputs.
    """

    shapes: tuple  # Q `Shape`s
    coefficients: np.ndarray  # (2, Q) of 1, and of the log of near sizes' average
    nearness: Nearness | None  # None where points are too few to look at near ones
    far_scale: np.ndarray  # (Q,) s far from all rows, where errors are as over all
    scale_range: np.ndarray  # (2, Q) 5 and 95 % quantiles of s over training rows
    # (2, Q) such quantiles of deviations of the process at rows left out
    process_range: np.ndarray
    sizes: ResidualSizes | None  # None where no scale varies
    density: LocalDensity | None  # None where near targets have no share
    levels: Levels | None = None  # of a grid, None without one
    waves: tuple = ()  # Q `Waves` along columns

    def __repr__(self):
        shaped = (" reshaped" if one.tilt.any() else "" for one in self.shapes)
        freedom = zip(self.degrees_of_freedom, shaped, strict=True)
        freedom = ", ".join(f"{value:.3g}{word}" for value, word in freedom)
        scales = ", ".join(f"{a:.2g} to {b:.2g}" for a, b in self.scale_range.T)
        share = np.zeros(1) if self.density is None else self.density.share
        shares = ", ".join(f"{value:.2g}" for value in share)
        moved = sorted({int(d) for waves in self.waves for d in waves.places})
        along = f" along columns {moved}" if moved else ""
        return (
            f"PredictiveLaw(degrees of freedom {freedom}; scales {scales}{along}; "
            f"share of near targets {shares})"
        )

    @property
    def degrees_of_freedom(self):
        """Those (Q,) of the Student-t distributions, infinite for a Gaussian."""
        return np.array([shape.freedom for shape in self.shapes])

    @property
    def n_near(self):
        """How many of the nearest points of a row the law looks at."""
        if self.density is None and not self.coefficients[1].any():
            return 0
        return min(NEAR + 1, len(self.nearness.spacing) - 1)

    @property
    def is_learned(self):
        """Whether each output (Q,) has other widths or tails than the process."""
        return np.isfinite(self.degrees_of_freedom) | self.coefficients.any(axis=0)

    def with_points(self, points):
        """Return the law that looks at points (M, D) of its own, if at any."""
        if self.nearness is None or self.n_near == 0:
            return self._replace(nearness=None)
        return self._replace(nearness=self.nearness._replace(points=points))

    def widened(self, factor):
        """Return the law with scales larger by a factor (Q,)."""
        coefficients = self.coefficients.copy()
        coefficients[0] += np.log(factor)
        wide, far = self.scale_range * factor, self.far_scale * factor
        return self._replace(coefficients=coefficients, scale_range=wide, far_scale=far)

    def factor(self, logarithms, columns, fade):
        """Return s (n, Q), which goes with `fade` (n,) from that near to that far away.

        `logarithms` (n, Q) are those of `ResidualSizes`, and `columns` (n, D) those of
        the rows before they are mapped.
        """
        near = self.coefficients[0] + self.coefficients[1] * logarithms
        for q, waves in enumerate(self.waves):
            near[:, q] += waves.logarithms(columns)
        near = np.exp(near)
        return near ** fade[:, None] * self.far_scale ** (1.0 - fade[:, None])

    def at(self, mean, process, columns, near):
        """Return the `Observations` of rows with means and deviations (n, Q).

        `columns` (n, D) are those of the rows before they are mapped, and `near` the
        `n_near` points nearest to them: `NearPoints`, or None for none.
        """
        fade, logs = np.ones(len(mean)), np.zeros_like(mean)
        if near is not None:
            fade = self.nearness.fade(near)
        if self.coefficients[1].any():
            logs = self.sizes.logarithms(near.nearest(NEAR + 1))
        less, more = shares_within(process, self.process_range)
        between = None if self.levels is None else self.levels.scale
        factor = beyond(self.factor(logs, columns, fade), more, between)
        fade, known = np.repeat(fade[:, None], mean.shape[1], axis=1), more
        if self.levels is not None:
            total = np.maximum(factor**2, self.levels.between(columns) / process**2)
            share, factor = factor**2 / total, np.sqrt(total)
            fade, known = fade * share, more * share
        law = Observations(mean, process, factor, known, self.shapes)
        if near is None or self.density is None:
            return law
        near = near_targets(self.density, near.nearest(NEAR), fade, mean)
        return law._replace(near=near.kept_where_wide(less * more, law.scale))


def shares_within(process, process_range):
    """Return what rows left out tell of deviations (n, Q) of the process, twice (n, Q).

    The first share is below 1 where the process knows a row better than it knew those,
    by the ratio of the variances, and the second where it knows the row less.
    """
    low, high = process_range
    return np.minimum(1.0, (process / low) ** 2), np.minimum(1.0, (high / process) ** 2)


def beyond(scales, share, between):
    """Return s (n, Q) where rows left out tell only a share (n, Q) of a row.

    It goes to that `between` levels (Q,), or to 1 from below where there are none.
    """
    if between is not None:
        return scales**share * between ** (1.0 - share)
    return np.maximum(scales, 1.0) * np.minimum(scales, 1.0) ** share


def quantiles_between(cdf, probability, low, high):
    """Return the values (n,) between two ends at which cdf reaches a probability.

    cdf(y, rows) are the probabilities of values below y (k,) at some of the n rows. An
    end is returned where rounding of cdf, or an infinite end, leaves no root between.
    """

    def excess(y, rows):
        return cdf(y, rows) - probability

    found = find_root(excess, (low, high), args=(np.arange(len(low)),))
    return np.where(found.success, found.x, low if probability < 0.5 else high)


def gaussian_law(mean, deviation):
    """Return the `Observations` of Gaussian ones, of means and deviations (n, Q)."""
    shapes = (GAUSSIAN,) * mean.shape[1]
    return Observations(mean, deviation, *np.ones((2, *mean.shape)), shapes)


def error_score(shape, t):
    """Return the ranked probability scores (n,) of errors t (n,) whose shape is known.

    The scores of 81 quantiles of Student's t are integrated. Between them scores follow
    cubics, whose slopes at the quantiles are the exact ones, 2 F(t) - 1.
    """
    ends, ones = shape.from_normal(CRPS_SCORES, 0.0), np.ones((len(CRPS_SCORES), 1))
    law = gaussian_law(0.0 * ones, ones)._replace(shapes=(shape,))
    scores = law._integrated_crps(0, ends, ends, STANDARD)
    inside = t.clip(ends[0], ends[-1])
    slopes = 2.0 * ndtr(shape.normal_score(ends, 1.0)) - 1.0
    cubics = CubicHermiteSpline(ends, scores, slopes)
    return cubics(inside) + np.abs(t - inside)


class Observations(NamedTuple):
    """The law at n rows, for Q outputs."""

    mean: np.ndarray  # (n, Q) of the process
    process: np.ndarray  # (n, Q) deviation of the process, noise included
    factor: np.ndarray  # (n, Q) s, by which that deviation is multiplied
    known: np.ndarray  # (n, Q) share of the shape that rows left out tell of a row
    shapes: tuple  # Q `Shape`s
    near: NearTargets | None = None

    @property
    def scale(self):
        """The scale (n, Q) of the standardised errors."""
        return self.process * self.factor

    @property
    def _deviations(self):
        """The roots (n, Q) of mean squares of the standardised errors."""
        parts = zip(self.shapes, self.known.T, strict=True)
        return np.sqrt(np.stack([one.square(known) for one, known in parts], axis=1))

    def log_density(self, y):
        """Return the log density (n, Q) of y (n, Q)."""
        out = np.empty(y.shape)
        for q, shape in enumerate(self.shapes):
            scale = self.scale[:, q]
            t = (y[:, q] - self.mean[:, q]) / scale
            out[:, q] = shape.log_density(t, self.known[:, q]) - np.log(scale)
            if self.mixes(q):
                share = self.share(q)
                local = np.log(share) + self.near.log_density(q, y[:, q])
                out[:, q] = np.logaddexp(np.log1p(-share) + out[:, q], local)
        return out

    def quantiles(self, probabilities):
        """Return the quantiles (n, Q, P) of an array of P probabilities."""
        out = np.empty((*self.mean.shape, len(probabilities)))
        for q, shape in enumerate(self.shapes):
            weights = self.near.weights(q) if self.mixes(q) else None

            def cdf(y, rows, q=q, weights=weights):
                return self.at(rows).cdf(q, y, weights[rows])

            for p, probability in enumerate(probabilities):
                t = shape.from_normal(ndtri(probability), self.known[:, q])
                y = self.mean[:, q] + self.scale[:, q] * t
                if self.mixes(q):  # it lies between those of the parts of the density
                    low, high = self.near.range(q, probability)
                    low = np.minimum(low, y) - self.scale[:, q]
                    high = np.maximum(high, y) + self.scale[:, q]
                    y = quantiles_between(cdf, probability, low, high)
                out[:, q, p] = y
        return out

    def cdf(self, q, y, weights=None):
        """Return the probabilities (n,) of values below y (n,) of an output.

        `weights` are those of near targets, if they have been computed.
        """
        t = (y - self.mean[:, q]) / self.scale[:, q]
        below = ndtr(self.shapes[q].normal_score(t, self.known[:, q]))
        if not self.mixes(q):
            return below
        share = self.share(q)
        weights = self.near.weights(q) if weights is None else weights
        return (1.0 - share) * below + share * self.near.cdf(q, y, weights)

    def normal_scores(self, y):
        """Return y (n, Q) as standard normal values, without near targets."""
        columns = ((y - self.mean) / self.scale).T, self.known.T
        parts = zip(self.shapes, *columns, strict=True)
        return np.stack([one.normal_score(t, known) for one, t, known in parts], axis=1)

    def deviation(self):
        """Return the roots (n, Q) of the expected squares of y - mean."""
        squares = (self.scale * self._deviations) ** 2
        for q in filter(self.mixes, range(squares.shape[1])):
            local = self.near.square(q, self.mean[:, q])
            squares[:, q] += self.share(q) * (local - squares[:, q])
        return np.sqrt(squares)

    def crps(self, y, scale=STANDARD):
        """Return the continuous ranked probability score (n, Q) of y (n, Q).

        y and the score are in the units of `scale`.
        """
        out, t = np.empty(y.shape), scale.standardise(y)
        for q, shape in enumerate(self.shapes):
            output, rest = scale.of_output(q), np.arange(len(y))
            if output.is_line and not self.mixes(q):
                width = self.scale[:, q]
                score = error_score(shape, (t[:, q] - self.mean[:, q]) / width)
                out[:, q] = output.factor * width * score
                rest = np.flatnonzero((self.known[:, q] < 1.0) & shape.tilt.any())
            for part in index_blocks(len(rest)):
                rows = rest[part]
                given = q, t[rows, q], y[rows, q], output
                out[rows, q] = self.at(rows)._integrated_crps(*given)
        return out

    def at_most(self, deviation):
        """Return the law with deviations of at most `deviation`, (n, 1) or (n, Q).

        Behind a transformation, a row of which nothing is known is one of the training
        targets. A kernel of large variance would say more there than any row supports.
        """
        whole = self.process * self._deviations
        return self._replace(factor=np.minimum(self.factor, deviation / whole))

    def moments(self, scale):
        """Return mean and deviation (n, Q) of observations in the units of `scale`."""
        if scale.transform is None:
            return scale.restore(self.mean), self.deviation() * scale.factor
        mean, deviation = scale.moments(self.from_normal)
        for q in filter(self.mixes, range(mean.shape[1])):
            near, square = self.near.moments(q, scale.of_output(q))
            share, square = self.share(q), square + (near - mean[:, q]) ** 2
            shift = share * (near - mean[:, q])
            square = (1.0 - share) * deviation[:, q] ** 2 + share * square - shift**2
            mean[:, q] += shift
            deviation[:, q] = np.sqrt(square)
        return mean, deviation

    def from_normal(self, z):
        """Return values (n, Q) around the mean that are as probable as a normal z."""
        parts = zip(self.shapes, self.known.T, strict=True)
        errors = [shape.from_normal(z + 0.0 * known, known) for shape, known in parts]
        return self.mean + self.scale * np.stack(errors, axis=1)

    def _integrated_crps(self, q, t, y, scale):
        """Return the integral (n,) of (F(x) - [x >= t])^2, by two nodes an interval.

        t is y standardised, and the integral is over the units of `scale`. Intervals
        (Gauss-Legendre) end at quantiles around the mean, which have no gap where the
        shape has one, at near targets, points beside them, and t, where the integrand
        jumps. It is 1 from there to a y that is beyond all of these.
        """
        nodes = self.shapes[q].from_normal(CRPS_SCORES, 0.0)  # of Student's t
        x = self.mean[:, q, None] + self.scale[:, q, None] * nodes
        x = np.hstack([x, *(self.near.nodes(q) if self.mixes(q) else [])])
        t = t.clip(x.min(axis=1), x.max(axis=1))
        x = np.sort(np.column_stack([x, t]), axis=1)
        weights = self.near.weights(q) if self.mixes(q) else None
        middle, step = 0.5 * (x[:, 1:] + x[:, :-1]), np.diff(x, axis=1) / np.sqrt(12.0)
        widths = np.diff(scale.restore(x), axis=1).T
        total = np.abs(y - scale.restore(t[:, None])[:, 0])
        for nodes in (middle - step, middle + step):
            for node, width in zip(nodes.T, widths, strict=True):
                total += 0.5 * width * (self.cdf(q, node, weights) - (node >= t)) ** 2
        return total

    def at(self, rows):
        """Return the law at some of the rows."""
        arrays = (array[rows] for array in self[:4])
        near = None if self.near is None else self.near.at(rows)
        return Observations(*arrays, self.shapes, near)

    def mixes(self, q):
        """Return whether near targets have a share of the density of an output."""
        return self.near is not None and self.near.share[q] > 0.0

    def share(self, q):
        """Return the share (n,) of near targets in the density of an output, or 0."""
        return self.near.share[q] * self.near.fade[:, q] if self.mixes(q) else 0.0
