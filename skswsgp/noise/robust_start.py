"""The kernel, the noise and the tails of a regression with outliers.

Noise that follows a Student-t distribution is Gaussian noise whose precision differs
from row to row (Lange, Little and Taylor, JASA 1989). So the kernel is learned as for
Gaussian noise, with a noise variance for each row. These variances follow from how far
rows lie from what their nearest other rows predict.
"""

from contextlib import closing

import numpy as np
from scipy.optimize import minimize

from skswsgp._compiled.special import student_log_density
from skswsgp._kernel_search.kernel_learning import KernelLearner, draw_learning_rows
from skswsgp._law.student import FREEDOM_PRIOR
from skswsgp._point.adam_step import LOG_NOISE_BOUNDS
from skswsgp._rows.statistics import distinct_observations, robust_mean_and_scale

REFITS = 2  # times that the kernel is learned anew; a third changed no error by 1 %
MOST_DEVIATIONS = 5.0  # of y from its median, where the kernel is learned first


def learn_robust_kernel(learn, data, settings, options, rng):
    """Return the `KernelFit` of `learn(data)`, with the Student-t law of errors.

    `data` are `TrainingRows`. The fit has the scale of that law as `noise` and its
    degrees of freedom as `shape`.
    """
    data = draw_learning_rows(data, options.tuning, rng)
    X, y, weight, count = distinct_observations(data)
    data = data._replace(X=X, y=y, weight=weight, rows=None, ratio=None)
    middle, scale = robust_mean_and_scale(y, weight)
    rows = data._replace(
        y=np.clip(y, middle - MOST_DEVIATIONS * scale, middle + MOST_DEVIATIONS * scale)
    )
    fit = learn(rows)
    if data.n_rows == 1:
        return fit._replace(shape=settings.first_shape)
    tails = tails_of_errors(rows, y, count, fit, settings, options)
    for _ in range(REFITS):
        precision = tails[2]
        rows = data._replace(weight=count * precision, ratio=1.0 / precision)
        fit = learn(rows)
        tails = tails_of_errors(rows, y, count, fit, settings, options)
    noise, shape, _ = tails
    return fit._replace(noise=noise, shape=shape)


def tails_of_errors(data, y, count, fit, settings, options):
    """Return noise (Q,), degrees of freedom (Q,) and relative precisions (n,) of rows.

    A row counts so often, (n,), and its y (n, Q) is predicted from its nearest others
    in `data`. For each output its precision is the posterior mean given its error. The
    outputs share the least, so that an outlier in one of them weighs little in all.
    """
    weight = data.weight[:, None]
    learner = KernelLearner(data.inputs, data.y, 1.0 / weight, count, options)
    with closing(learner.process(fit)) as process:
        Z = process.model.Z
        lists = process.others(np.arange(len(Z)))
        mean, variance = process.engine.kriging_predictions(Z, lists)
    square = (y - mean.astype(np.float64)) ** 2
    noise, shape, precisions = [], [], []
    for q in range(square.shape[1]):
        known = settings.first_shape[q]
        bounds = settings.likelihood_record.shape_bounds
        if not settings.learns_shape:
            bounds = known, known
        rows = square[:, q], variance[:, q].astype(np.float64), count
        start = fit.noise[q], known
        found = fit_tails(*rows, start, bounds)
        noise.append(found[0])
        shape.append(found[1])
        z = rows[0] / (rows[1] + found[0])
        precisions.append((found[1] + 1.0) / (found[1] + z))
    return np.array(noise), np.array(shape), np.min(precisions, axis=0)


def fit_tails(square, variance, count, start, bounds):
    """Return the likeliest noise and degrees of freedom of errors with these squares.

    A row counts so often, (n,). An error has a Student-t law whose squared scale is the
    noise plus the `variance` of f there. `start` holds both numbers, and `bounds` those
    of the degrees of freedom, which have a prior.
    """

    def loss(logs):
        noise, freedom = np.exp(logs)
        scale = variance + noise
        log_ratio = np.log1p(square / (freedom * scale))
        density = student_log_density(log_ratio, np.log(scale), freedom)
        return 1.0 / (FREEDOM_PRIOR * freedom * count.sum()) - np.average(
            density, weights=count
        )

    limits = [LOG_NOISE_BOUNDS, np.log(bounds)]
    first = np.clip(np.log(start), *np.transpose(limits))
    return np.exp(minimize(loss, first, bounds=limits, method="L-BFGS-B").x)
