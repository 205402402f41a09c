"""Training rows as they are predicted by a model without each of them."""

from typing import NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing

from skswsgp._estimators.sklearn_compat import as_numbers


class LeaveOneOut(NamedTuple):
    """Rows as predicted without them, each (n_samples,) or (n_samples, n_outputs)."""

    mean: np.ndarray  # of the prediction, in the units of y
    std: np.ndarray  # of an observation of the weight of the row, noise included
    residual: np.ndarray  # y - mean
    z_score: np.ndarray  # y as a standard normal value, under its law without the row


def left_out_rows(model, X, y, trained, found):
    """Return the `LeaveOneOut` of the rows of a fit, in their order.

    `trained` are the numbers of the rows that trained, or None for all, and `found` the
    `LeftOutRows` of these. The other rows are predicted as new ones.
    """
    y, scale = as_numbers(y), model._target_scale(vars(model))
    mean, variance, score = found
    if trained is not None:
        rest = np.delete(np.arange(len(y)), trained)
        of_trained, shape = (mean, variance, score), (len(y), mean.shape[1])
        mean, variance, score = np.empty((3, *shape))
        mean[trained], variance[trained], score[trained] = of_trained
        law = model._observations(_safe_indexing(X, rest))
        mean[rest], variance[rest] = law.mean, law.process**2
        score[rest] = law.normal_scores(scale.standardise(y.reshape(shape)[rest]))
    mean, std = scale.moments(mean, np.sqrt(variance))
    mean, std, score = map(model._without_axis, (mean, std, score))
    return LeaveOneOut(mean, std, y - mean, score)
