"""A density of observations from the targets of the nearest training rows.

Where targets repeat, jump, or lie at several levels, the targets of near rows say more
than a law around the mean. With y_j those of the K nearest points, or the mean plus
the residuals of these, at the distances d_j in length-scales, the density of y at a
row is

    p(y) = (1 - a) p_0(y) + a sum_j w_j N(y; y_j, h^2),    w_j ~ exp(-(d_j / r d)^2 / 2)

where p_0 is the law around the mean and d the distance of the tenth of these points.
The share fades far from training rows (`widths`).
Share a, bandwidth h and reach r maximise the likelihood of training rows, each of which
sees the other points only.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, logsumexp, ndtr, ndtri

from skswsgp._compiled.special import gaussian_log_density
from skswsgp._rows.statistics import MEAN_ROWS

LEAST_BANDWIDTH = 0.02  # in units of the usual error, which quantiles hardly notice
# Of logit a, log h in units of the usual error, and log r
STARTS = ((0.0, -1.0, 0.0), (0.0, -2.5, -1.0))
BOUNDS = ((-6.0, 4.0), (np.log(LEAST_BANDWIDTH), 0.0), (np.log(0.05), np.log(5.0)))


class LocalDensity(NamedTuple):
    """Targets of the inducing points, and how they enter the law of Q outputs."""

    targets: np.ndarray  # (M, Q), residuals where they are added to the mean
    is_residual: np.ndarray  # (Q,) bool
    share: np.ndarray  # (Q,) a, zero for outputs that do without
    bandwidth: np.ndarray  # (Q,) h
    reach: np.ndarray  # (Q,) r


class NearTargets(NamedTuple):
    """Targets of near points at n rows, and the density that they make."""

    targets: np.ndarray  # (n, K, Q)
    distances: np.ndarray  # (n, K) in units of that of the tenth
    fade: np.ndarray  # (n, Q) factors of the share
    share: np.ndarray  # (Q,)
    bandwidth: np.ndarray  # (Q,)
    reach: np.ndarray  # (Q,)

    def weights(self, q):
        """Return the weights (n, K) of the targets for an output."""
        return np.exp(log_weights(self.distances, self.reach[q]))

    def log_density(self, q, y):
        """Return the log density (n,) of values y of an output."""
        weights = log_weights(self.distances, self.reach[q])
        targets = self.targets[:, :, q]
        return logsumexp(target_logs(y, targets, weights, self.bandwidth[q])[0], axis=1)

    def cdf(self, q, y, weights):
        """Return the probabilities (n,) of values below y of an output.

        `weights` are those of this output.
        """
        z = (y[:, None] - self.targets[:, :, q]) / self.bandwidth[q]
        return np.sum(weights * ndtr(z), axis=1)

    def square(self, q, mean):
        """Return the expected square (n,) of y - mean."""
        squares = (self.targets[:, :, q] - mean[:, None]) ** 2
        return np.sum(self.weights(q) * squares, axis=1) + self.bandwidth[q] ** 2

    def moments(self, q, scale):
        """Return means and variances (n,) of targets in the units of `scale`."""
        t, h = self.targets[:, :, q], self.bandwidth[q]
        values = [scale.restore(t + step) for step in (-h, h)]
        mean = np.sum(self.weights(q) * sum(values), axis=1) / 2.0
        square = sum((value - mean[:, None]) ** 2 for value in values)
        return mean, np.sum(self.weights(q) * square, axis=1) / 2.0

    def kept_where_wide(self, shares, scale):
        """Return the targets with fades times `shares` (n, Q) where they are narrow.

        They are narrow where their variance is less than that of a law of this scale
        (n, Q): a share is raised to the power by which the ratio of both is below 1.
        """
        fade = self.fade.copy()
        for q in np.flatnonzero(self.share > 0.0):
            middle = np.sum(self.weights(q) * self.targets[:, :, q], axis=1)
            ratio = self.square(q, middle) / scale[:, q] ** 2
            fade[:, q] *= shares[:, q] ** (1.0 - np.minimum(ratio, 1.0))
        return self._replace(fade=fade)

    def range(self, q, probability):
        """Return bounds (n,) of the quantile of each single kernel."""
        shift = self.bandwidth[q] * ndtri(probability)
        t = self.targets[:, :, q]
        return t.min(axis=1) + shift, t.max(axis=1) + shift

    def nodes(self, q):
        """Return arrays (n, K) of ends of intervals over which scores are summed."""
        t, h = self.targets[:, :, q], self.bandwidth[q]
        return [t + step * h for step in (-3.5, -1.5, 0.0, 1.5, 3.5)]

    def at(self, rows):
        """Return the targets near some of the rows."""
        names = "targets", "distances", "fade"
        return self._replace(**{name: getattr(self, name)[rows] for name in names})


def near_targets(density, near, fade, mean):
    """Return the `NearTargets` of rows with means (n, Q) and `NearPoints`.

    `fade` (n, Q) are the factors of their shares.
    """
    around = np.where(density.is_residual, mean, 0.0)[:, None]
    targets = density.targets[near.lists] + around
    distances = near.distances / near.unit[:, None]
    return NearTargets(targets, distances, fade, *density[2:])


def log_weights(distances, reach):
    """Return the logarithms (n, K) of the weights, of sum 1, of points at distances."""
    return log_softmax(-0.5 * (distances / reach) ** 2, axis=1)


def target_logs(y, targets, log_weights, bandwidth):
    """Return log p(y, j), weights included, and (y - y_j)^2 / h^2, each (n, K).

    y is (n,); targets and log weights are (n, K).
    """
    square = ((y[:, None] - targets) / bandwidth) ** 2
    return gaussian_log_density(square, 2.0 * np.log(bandwidth)) + log_weights, square


def learn_shape(y, around_mean, kinds, distances, usual_error):
    """Return (a, h, r) for one output, and whether residuals do better than targets.

    `kinds` are the near targets, then the means plus near residuals. A few rows choose
    one of them, and the share a is zero where these rows gain no more than by chance.
    Other arguments are those of `rows_loss`.
    """
    few = slice(0, MEAN_ROWS)
    density = around_mean[few]
    fits = [
        fit_local_density(y[few], density, kind[few], distances[few], usual_error)
        for kind in kinds
    ]
    is_residual = fits[1][1] < fits[0][1]
    start, loss = fits[int(is_residual)]
    if -loss <= density.mean() + len(start) / len(density):
        return (0.0, usual_error, 1.0), is_residual
    if len(density) == len(y):
        return shaped(start, usual_error), is_residual
    rows = y, around_mean, kinds[int(is_residual)], distances, usual_error
    found, _ = fit_local_density(*rows, starts=[start])
    return shaped(found, usual_error), is_residual


def fit_local_density(*rows, starts=STARTS):
    """Return the best parameters for one output, and their loss, as in `rows_loss`.

    The search begins at the start of least loss.
    """
    start = min(starts, key=lambda start: rows_loss(start, *rows)[0])
    options = {"bounds": BOUNDS, "method": "L-BFGS-B", "jac": True, "args": rows}
    best = minimize(rows_loss, start, **options)
    return best.x, best.fun


def rows_loss(parameters, y, around_mean, targets, distances, usual_error):
    """Return the mean negative log density of rows, and its gradient.

    `around_mean` (n,) is the log density of y (n,) under the law around the mean.
    `targets` and `distances` (n, K) are those of the nearest other points.
    """
    share, bandwidth, reach = shaped(parameters, usual_error)
    weights = log_weights(distances, reach)
    logs, square = target_logs(y, targets, weights, bandwidth)
    local = logsumexp(logs, axis=1)
    total = np.logaddexp(np.log1p(-share) + around_mean, np.log(share) + local)
    # probabilities that y comes from a near target, and from each of these
    is_local = np.exp(np.log(share) + local - total)
    whose = np.exp(logs - local[:, None])
    closeness = (distances / reach) ** 2
    by_log_h = np.sum(whose * (square - 1.0), axis=1)
    by_log_r = np.sum((whose - np.exp(weights)) * closeness, axis=1)
    slopes = is_local - share, is_local * by_log_h, is_local * by_log_r
    return -total.mean(), -np.mean(slopes, axis=1)


def shaped(parameters, usual_error):
    """Return (a, h, r) for logit a, log h in units of the usual error, and log r."""
    a, h, r = parameters
    return expit(a), usual_error * np.exp(h), np.exp(r)
