"""The law of observations with Student-t noise around a Gaussian function."""

from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from skswsgp._compiled.special import (
    gaussian_log_density,
    noisy_student_log_density,
    student_precisions,
)
from skswsgp._compiled.threads import ROWS_AT_ONCE, row_blocks
from skswsgp._law import student
from skswsgp._law.law import gaussian_law
from skswsgp._rows.target_scale import STANDARD


class StudentNoise(NamedTuple):
    """The law at n rows, for Q outputs."""

    mean: np.ndarray  # (n, Q) of f
    variance: np.ndarray  # (n, Q) of f
    noise: np.ndarray  # (Q,) squares of the scales
    degrees_of_freedom: np.ndarray  # (Q,)

    def deviation(self):
        """Return the standard deviations (n, Q) of observations."""
        wider = student.deviation(self.degrees_of_freedom)
        return np.sqrt(self.variance + self.noise * wider**2)

    def moments(self, scale):
        """Return mean and deviation (n, Q) of observations in the units of `scale`."""
        if scale.transform is None:
            return scale.restore(self.mean), self.deviation() * scale.factor
        return scale.moments(self.from_normal)

    def from_normal(self, z):
        """Return values (n, Q) that are about as probable as a normal z.

        f and noise lie at their own quantiles of that probability, whose distances from
        the mean add up as those of independent Gaussian numbers do.
        """
        t = np.array([student.from_normal(z, nu) for nu in self.degrees_of_freedom])
        square = self.variance * z**2 + self.noise * t**2
        return self.mean + np.copysign(np.sqrt(square), z)

    def log_density(self, y):
        """Return the log density (n, Q) of y (n, Q)."""
        rows = self.mean.T, self.variance.T, y.T
        columns = zip(*rows, self.noise, self.degrees_of_freedom, strict=True)
        densities = [noisy_student_log_density(*column) for column in columns]
        return np.stack(densities, axis=1)

    def cdf(self, q, y, rows=slice(None)):
        """Return the probabilities of values below y (k,) of an output, at k rows."""
        total = np.zeros(y.shape)
        for weight, variance in self._parts(q):
            total += weight * ndtr((y - self.mean[rows, q]) / np.sqrt(variance[rows]))
        return total

    def quantiles(self, probabilities):
        """Return the quantiles (n, Q, P) of an array of P probabilities."""
        p = np.asarray(probabilities)
        out = np.empty((*self.mean.shape, len(p)))
        for q, freedom in enumerate(self.degrees_of_freedom):
            g, log_weights = student_precisions(freedom)
            most = 1 + ROWS_AT_ONCE // (1 + len(g) * len(p))
            for rows in row_blocks(len(out), most):
                variance = self.variance[rows, q] + self.noise[q] / g[:, None]  # (K, n)
                usual = np.sqrt(self.variance[rows, q] + self.noise[q])
                tail = np.minimum(p, 1.0 - p), log_weights, np.sqrt(variance)
                distance = np.copysign(distances(*tail, usual), p - 0.5)
                out[rows, q] = self.mean[rows, q, None] + distance
        return out

    def crps(self, y, scale=STANDARD):
        """Return the ranked probability score (n, Q) of y, as `Observations.crps` does.

        It is E|Y - y| - E|Y - Y'| / 2, for a mixture of Gaussians a sum over its parts.
        Behind a transformation it is that of a Gaussian law which holds as much within
        one deviation of the mean.
        """
        if scale.transform is not None:
            deviation = self.from_normal(1.0) - self.mean
            return gaussian_law(self.mean, deviation).crps(y, scale)
        distance, score = scale.standardise(y) - self.mean, np.zeros(y.shape)
        for q in range(y.shape[1]):
            parts = list(self._parts(q))
            for weight, variance in parts:
                score[:, q] += weight * mean_distance(distance[:, q], variance)
                for other, more in parts:
                    both = np.sqrt(2.0 * (variance + more) / np.pi)
                    score[:, q] -= 0.5 * weight * other * both
        return score * scale.factor

    def _parts(self, q):
        """Yield weights and variances (n,) of the Gaussian parts of an output."""
        nodes = student_precisions(self.degrees_of_freedom[q])
        for g, log_weight in zip(*nodes, strict=True):
            yield np.exp(log_weight), self.variance[:, q] + self.noise[q] / g


@np.errstate(invalid="ignore")  # of steps that are not taken
def distances(tail, log_weights, stds, usual):
    """Return how far from the mean (n, P) tails of given probabilities begin.

    The law is a mixture with weights (K,) of normal ones of deviations (K, n). Newton
    steps solve for the normal score of the tail, which is nearly linear, from that of
    a normal law of `usual` deviations (n,) on.
    """
    aim, log_weights = -ndtri(tail), log_weights[:, None, None]
    distance = usual[:, None] * aim
    moving = np.isfinite(distance)
    for _ in range(60):  # they converge in a few
        z = distance / stds[:, :, None]  # (K, n, P)
        score = -ndtri_exp(log_sum(log_weights + log_ndtr(-z)))
        density = gaussian_log_density(z**2, 2.0 * np.log(stds[:, :, None]))
        slope = log_sum(log_weights + density) - gaussian_log_density(score**2, 0.0)
        step = np.where(moving, (aim - score) * np.exp(-slope), 0.0)
        distance = distance + step
        moving &= np.abs(step) > 1e-13 * (distance + usual[:, None])
        if not moving.any():
            break
    return distance


def log_sum(logs):
    """Return the log of the sum over the first axis, in the same order for any rows."""
    most = logs.max(axis=0)
    return most + np.log(np.cumsum(np.exp(logs - most), axis=0)[-1])


def mean_distance(distance, variance):
    """Return E|Y - y| for a Gaussian Y whose mean is so far from y."""
    z = distance / np.sqrt(variance)
    density = np.exp(gaussian_log_density(z**2, np.log(variance)))
    return distance * (2.0 * ndtr(z) - 1.0) + 2.0 * variance * density
