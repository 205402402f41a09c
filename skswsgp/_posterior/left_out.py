"""Residuals of training rows from predictions that do not know them.

Without row i, whose noise is n_i, f there has a variance v_i. The mean given all rows
leaves a residual r_i of y_i, and the mean without row i

    e_i = r_i (v_i + n_i) / n_i,

so no system has to be solved anew. Where sites tell variances, v_i is that of kriging
from the other points (`near_sites`). Where few rows are all inducing points, their
exact process tells mean and variance, and where S does,

    mu' = mu - s (y - mu) / (noise - s)

for the variance F_i + s_i of q(f_i), with F_i the same for all q. Residuals are
standardised by the deviation that a prediction has, noise included.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.linalg import given_others, numpy_cholesky, require_finite
from skswsgp._compiled.threads import one_blas_thread, row_blocks
from skswsgp._posterior.near_sites import known_sites
from skswsgp._posterior.prediction import Posterior
from skswsgp._rows.data import TrainingRows
from skswsgp._rows.statistics import copies_of_rows
from skswsgp._solvers.exact_mean import LEAST_WEIGHT, merge_sites
from skswsgp._solvers.model import build_model

LEAST_ERROR = 1e-3  # standardised, below which errors may be those of rounding
MOST_LEVERAGE = 0.5  # share of a row in its own mean that is taken out of it


class Residuals(NamedTuple):
    """Predictions of observations (n, Q), noise included, from other rows."""

    mean: np.ndarray
    variance: np.ndarray
    standardised: np.ndarray  # (y - mean) / deviation

    def at(self, rows):
        """Return the residuals of some of the rows."""
        return Residuals(*(array[rows] for array in self))


class RowsLeftOut(NamedTuple):
    """The n rows of `merge_rows`, a sample of which is taken out of predictions."""

    data: TrainingRows
    noise: np.ndarray  # (n, Q) variances
    beta: float  # by which noise is multiplied in the means
    sample: np.ndarray  # (k,) numbers of rows
    lists: np.ndarray | None = None  # (k, H) the nearest points of these, if known

    def of_all(self, found):
        """Return values (n, Q) found for the sample (k, Q), and medians elsewhere.

        Where all rows count together, as in averages of residuals, a row more or less
        certain than the median matters little, and a search for each would take as long
        as predictions of all rows.
        """
        shape = len(self.noise), found.shape[1]
        values = np.broadcast_to(np.median(found, axis=0), shape).copy()
        values[self.sample] = found
        return values


class Points(NamedTuple):
    """The distinct inputs of rows, and the rows merged there."""

    Z: np.ndarray  # (M, D)
    targets: np.ndarray  # (M, Q) means of y, by precision
    noise: np.ndarray  # (M, Q) 1 / the sum of the precisions
    group: np.ndarray  # (n,) the point of each row


def residuals_from_neighbors(points, y, noise, mean, variance, beta=1.0):
    """Return the `Residuals` of rows y (n, Q), whose noise variances are (n, Q).

    `mean` and `variance` (M, Q) are those of f at each of the `Points` from others, for
    which noise counts `beta` times.
    """
    group, precision = points.group, 1.0 / (beta * noise)
    rest = 1.0 / points.noise[group] - precision  # of other rows at the same point
    alone = rest <= LEAST_WEIGHT * precision  # where it may be rounding
    rest[alone] = 0.0
    sums = (points.targets / points.noise)[group] - precision * y
    sums[alone] = 0.0
    elsewhere = 1.0 / np.maximum(variance[group], np.finfo(float).tiny)
    mean = (elsewhere * mean[group] + sums) / (elsewhere + rest)
    variance = 1.0 / (elsewhere + rest) + noise
    return Residuals(mean, variance, (y - mean) / np.sqrt(variance))


def residuals_near_sites(rows, posterior, mean, points=None):
    """Return the `Residuals` of `RowsLeftOut` whose variances come from near sites.

    `mean` (n, Q) are those of f, which means from all rows do not need. They leave
    residuals N alpha at the `Points`. Where there is hardly any noise, K alpha differs
    from these by what conjugate gradients have left of the system, and so do
    predictions elsewhere: that is added to the residuals, and does not grow when a row
    is taken out.
    """
    data, noise, beta, sample, _ = rows
    left = 0.0
    if posterior.alpha is not None:
        mean = points.targets - points.noise * posterior.alpha
        left = (mean - posterior.moments(points.Z, False)[0])[points.group]
        mean = mean[points.group]
    found, precision = np.empty((len(sample), noise.shape[1])), 1.0 / (beta * noise)
    with posterior.engine(1) as engine, posterior.near_sites(engine) as near:
        for part in row_blocks(len(sample)):
            few = sample[part]
            X = posterior.rows(data.take(few).inputs)
            summed = None if points is None else precision[few]
            lists = None if rows.lists is None else rows.lists[part]
            variances = near.without_rows(X, summed, lists)
            found[part] = variances(posterior.sites.factor, posterior.sites.scale)
    v = rows.of_all(found)
    variance = v + noise
    mean = data.y - (data.y - mean) * (1.0 + precision * v) - left
    return Residuals(mean, variance, (data.y - mean) / np.sqrt(variance))


def predictions_from_all_others(points, kernel):
    """Return mean and variance (M, Q) of f at each point given all others.

    The target of a point has that mean, and that variance plus the one of its noise.
    """
    Z, targets, noise, _ = points
    if len(Z) == 1:
        return 0.0 * targets, np.broadcast_to(kernel.diag(Z)[:, None], noise.shape)
    K, mean, total = kernel(Z), np.empty_like(targets), np.empty_like(targets)
    with one_blas_thread():
        for q, t in enumerate(targets.T):
            factor = numpy_cholesky(K + np.diag(noise[:, q]), 0.0)
            mean[:, q], total[:, q] = given_others(factor, t)
    return mean, np.maximum(total - noise, 0.0)


def residuals_of_posterior(y, noise, mean, variance, prior_part, beta):
    """Return the `Residuals` of rows (n, Q) that are taken out of q(f).

    `mean` and `variance` are those of q(f), `prior_part` (n, Q) is F, and `beta` the
    weight of the divergence, which multiplies S. Where s is
    more than half the noise, S is not that of the optimum for such a row, or hardly
    known; the residual is doubled there.
    """
    leverage = (variance - prior_part) / (beta * noise)
    leverage = np.clip(leverage, 0.0, MOST_LEVERAGE)
    variance = variance + noise
    mean = y - (y - mean) / (1.0 - leverage)
    return Residuals(mean, variance, (y - mean) / np.sqrt(variance))


def merge_rows(data, group=None):
    """Return `TrainingRows` without copies, their numbers, and the place of each row.

    The weight of a row that stands for its copies is the sum of theirs. `group` (n,)
    are the points of rows, or None.
    """
    keys = data.inputs if group is None else group[:, None]
    rows, place = copies_of_rows(keys, data.y)
    weight = np.bincount(place, data.weight).astype(data.weight.dtype)
    merged = data.take(rows)._replace(weight=weight)
    return merged._replace(y=merged.y.astype(np.float64)), rows, place


def merge_points(rows, group, Z):
    """Return the `Points` Z (M, D) of `RowsLeftOut`, each at the point group (n,)."""
    precision = 1.0 / (rows.beta * rows.noise)
    sums = precision, rows.data.y * precision
    return Points(Z, *merge_sites(*sums, group, len(Z)), group)


def noise_of_rows(data, trained):
    """Return the noise variances (n, Q) of rows for the fitted attributes."""
    noise = np.reshape(trained["noise_variance_"], (1, -1))
    return (noise / data.weight[:, None]).astype(np.float64)


def leave_one_out(rows, points, trained, settings, mean=None):
    """Return the `Residuals` of `RowsLeftOut`, whose `Points` may be None.

    `trained` are the fitted attributes. Means of f (n, Q) are predicted unless they are
    given.
    """
    data, noise, beta = rows[:3]
    Z, posterior = trained["inducing_points_"], posterior_of(trained, settings)
    if "site_precision_" in trained:
        if mean is None and posterior.alpha is None:
            mean, _ = posterior.moments(data.inputs, False)
        residuals = residuals_near_sites(rows, posterior, mean, points)
    elif points is not None and trained["n_neighbors_"] == len(Z):
        found = predictions_from_all_others(points, trained["kernel_"])
        residuals = residuals_from_neighbors(points, data.y, noise, *found, beta)
    else:
        residuals = residuals_of_model(rows, posterior, mean)
    require_finite(residuals.standardised)
    return residuals


def residuals_of_model(rows, posterior, mean):
    """Return the `Residuals` of `RowsLeftOut`, each taken out of q(f).

    `mean` (n, Q) are those of f, or None.
    """
    data, noise, beta, sample, _ = rows
    X = data.take(sample).inputs
    means, variance = posterior.moments(X)
    if mean is None and len(sample) < len(noise):
        mean, _ = posterior.moments(data.inputs, False)
    prior_part = np.broadcast_to(posterior.prior_part(X)[:, None], variance.shape)
    mean = means if mean is None else mean
    arrays = mean, rows.of_all(variance), rows.of_all(prior_part)
    arrays = (array.astype(np.float64) for array in arrays)
    return residuals_of_posterior(data.y, noise, *arrays, beta)


def posterior_of(trained, settings):
    """Return the `Posterior` of trained attributes for rows that are mapped."""
    likelihood = settings.likelihood, settings.n_latent
    model, center = build_model(trained, likelihood, settings.dtype)
    alpha = trained.get("alpha_")
    alpha = None if alpha is None else alpha.reshape(model.m.shape)
    sites = known_sites(trained, settings.tuning.variance_neighbors)
    return Posterior(
        model, trained["kernel_"], None, center, trained["n_neighbors_"],
        settings.device, settings.n_jobs, settings.search_options, alpha, sites=sites,
    )  # fmt: skip
