"""How large errors are where a row is taken out of the kernel's parameters as well.

Predictions of a row from the others use a kernel and a noise that were fitted to that
row, too. They maximise log p(y) plus a log prior. Without row i the maximum moves by
about -H^-1 g_i, where g_i is the gradient of log p(y_i | the others) and H minus the
second derivative of the whole. So the row's own density falls by g_i' H^-1 g_i, as in
Takeuchi's information criterion. Half a unit of the mean square of standardised errors
costs as much, so that mean square grows by

    2 mean_i g_i' H^-1 g_i,

which is about p / n for p parameters that n rows determine.
"""

import numpy as np

from skswsgp._compiled.special import gaussian_log_density
from skswsgp._kernel_search.marginal_likelihood import (
    DIFFERENCE,
    LogPosterior,
    inverted,
)


def left_out_squares(kernel, noise, X, y, ratios, noise_is_known=False):
    """Return mean squares (2, Q) of standardised errors of rows left out, or None.

    First rows are left out of the predictions only, then of the parameters as well.
    `kernel` and `noise` (Q,) maximise the marginal likelihood of rows X (N, D) and y
    (N, Q), whose noise variances are noise_q ratios (N, Q). Noise that is known is no
    parameter. The curvature is at least that of the prior. None is for a covariance
    matrix that cannot be factorised.
    """
    posterior = LogPosterior(kernel, noise, X, y, ratios)
    learned = posterior.moves(noise=not noise_is_known).any(axis=1)
    point, unit = posterior.start, np.sqrt(posterior.variances[learned])
    steps = DIFFERENCE * np.diag(np.sqrt(posterior.variances))[learned]
    try:
        slope = posterior.loss(point)[1]
        density, squares = left_out(posterior, point)
        slopes, gradients = np.empty((len(unit),) * 2), []
        for row, step in zip(slopes, steps, strict=True):
            row[:] = (posterior.loss(point + step)[1] - slope)[learned] / DIFFERENCE
            moved, _ = left_out(posterior, point + step)
            gradients.append((moved - density) / DIFFERENCE)
    except np.linalg.LinAlgError:
        return None
    before = squares.mean(axis=0)
    if len(unit) == 0:
        return np.stack([before, before])
    slopes *= unit  # all in prior standard deviations
    curvature, axes = np.linalg.eigh(0.5 * (slopes + slopes.T))
    along = np.einsum("pa,pnq->anq", axes, np.stack(gradients))
    moved = along.sum(axis=2, keepdims=True)  # a row leaves with all its outputs
    losses = along * moved / np.maximum(curvature, 1.0)[:, None, None]
    losses = np.maximum(losses.sum(axis=0).mean(axis=0), 0.0)
    return np.stack([before, before + 2.0 * losses])


def left_out(posterior, point):
    """Return log p(y_i | all others) and squares of standardised errors, each (N, Q).

    The parameters are those at a point of a `LogPosterior`.
    """
    params, noise = posterior.split(point)
    K = posterior.matrix.evaluate(params, posterior.X)
    squares, precisions = np.empty((2, *posterior.y.shape))
    for q, variance in enumerate(noise):
        inverse, _ = inverted(K + np.diag(variance * posterior.ratios[:, q]))
        precisions[:, q] = np.diag(inverse)
        squares[:, q] = (inverse @ posterior.y[:, q]) ** 2 / precisions[:, q]
    return gaussian_log_density(squares, -np.log(precisions)), squares
