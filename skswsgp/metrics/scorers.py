"""Scorers for searches and cross-validation, of all that an estimator predicts."""

import numpy as np
from scipy.special import ndtri
from sklearn.utils.metadata_routing import UNUSED, _MetadataRequester

from skswsgp.metrics.answers import asked, innermost, intervals_of
from skswsgp.metrics.score_input import check_gaussian, mean_over_samples
from skswsgp.metrics.scores import (
    crps,
    crps_of_quantiles,
    interval_score,
    mean_negative_log_density,
)


def get_scorer(name: str) -> "_Scorer":
    """Return a scorer of probabilistic regression, for `GridSearchCV(scoring=...)`.

    A search calls `predict` without `return_std`, so metrics of whole predictions
    cannot go through `make_scorer`. These scorers ask an estimator how uncertain it is.

    Parameters
    ----------
    name : {"neg_log_density", "neg_crps", "neg_interval_score"}
        Negative of `mean_negative_log_density`, of `crps`, or of `interval_score` of
        95 % intervals, so that greater is better.

    Returns
    -------
    scorer : callable
        `scorer(estimator, X, y, sample_weight=None)`, whose `set_score_request` is that
        of scikit-learn's scorers.

    Raises
    ------
    TypeError
        If a scorer is given an estimator that does not tell what the score needs.

    See Also
    --------
    sklearn.metrics.make_scorer : Scorers of means, labels and probabilities.

    Notes
    -----
    An estimator is asked for the first of these that it has:

    1. the law of observations of an `SWSGPRegressor`;
    2. `predict(X, return_std=True)`, as in `BayesianRidge` and
       `GaussianProcessRegressor`, which stands for a Gaussian;
    3. `predict(X, quantiles=[...])`. The score of intervals is exact. The ranked
       probability score is `crps_of_quantiles` for the hundred levels 0.005, 0.015,
       ..., 0.995. Quantiles have no density;
    4. `predict_interval(X, coverage=0.95)` with two ends, or `predict_interval(X)` with
       points and intervals of shape (n_samples, 2, 1), as MAPIE returns them. These
       must be intervals of 95 %: MAPIE does not tell, so give it
       `confidence_level=0.95`. They have the score of intervals only.

    The first three have one definition of ``"neg_crps"``: minus the integral in the
    notes of `crps`, for the distribution that the estimator predicts. `crps` of the
    means and deviations of an `SWSGPRegressor` differs where its law is not Gaussian.

    Pipelines and fitted searches are asked for the estimator in them. Others pass on
    what they can: `TransformedTargetRegressor` gives quantiles of an `SWSGPRegressor`.

    scikit-learn turns what a scorer raises into NaN and a warning with a traceback,
    whose last line is the message. ``error_score="raise"`` of `cross_validate` and of
    searches raises it.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from skswsgp import SWSGPRegressor
    >>> from skswsgp.metrics import get_scorer
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> y, model = np.sin(X[:, 0]), SWSGPRegressor(random_state=0)
    >>> scores = cross_val_score(model, X, y, scoring=get_scorer("neg_crps"), cv=3)
    >>> scores.shape
    (3,)
    """
    if name not in _OF_GAUSSIANS:
        raise ValueError(
            f"name={name!r}: expected one of {', '.join(map(repr, _OF_GAUSSIANS))}; "
            "give scikit-learn's scores by name instead, as in scoring='r2'."
        )
    return _Scorer(name)


class _Scorer(_MetadataRequester):
    """A scorer that can be pickled and cloned, by its name."""

    # scikit-learn reads from `score` that a weight may be routed to it
    __metadata_request__score = {"estimator": UNUSED}  # noqa: RUF012

    def __init__(self, name: str):
        self.name = name

    def score(self, estimator, X, y, sample_weight=None):
        """Return the score of predictions for rows of X; greater is better."""
        estimator, X = innermost(estimator, X)
        if hasattr(estimator, "classes_"):
            raise TypeError(
                f"{type(estimator).__name__} is a classifier: expected a regressor for "
                f"{self!r}; use scoring='neg_log_loss' for probabilities of classes."
            )
        if hasattr(estimator, "_crps"):
            return -_OF_LAWS[self.name](estimator, X, y, sample_weight)
        moments = asked(estimator, X, return_std=True)
        if isinstance(moments, tuple):
            return -_OF_GAUSSIANS[self.name](y, *moments, sample_weight=sample_weight)
        levels, score_of = _OF_QUANTILES[self.name]
        quantiles = asked(estimator, X, quantiles=levels)
        shape = np.shape(y)
        if np.shape(quantiles) == (shape[0], len(levels), *shape[1:]):
            if np.any(np.diff(quantiles, axis=1) < 0.0):
                raise self._refusal(estimator, "has quantiles that fall with the level")
            if score_of is None:
                raise self._refusal(estimator, "has quantiles, which have no density")
            return -score_of(y, quantiles, levels, sample_weight)
        if not hasattr(estimator, "predict_interval"):
            why = f" ({quantiles})" if isinstance(quantiles, Exception) else ""
            raise self._refusal(estimator, f"does not say how uncertain it is{why}")
        if self.name != "neg_interval_score":
            raise self._refusal(estimator, "has intervals, which are no whole law")
        ends = intervals_of(estimator, X)
        return -interval_score(y, *ends, 0.95, sample_weight)

    __call__ = score

    def _accept_sample_weight(self):  # asked by searches for several scores
        return True

    def _refusal(self, estimator, what):
        """Return the TypeError for an estimator that has not what the score needs."""
        needed = "predict(X, return_std=True)"
        if self.name != "neg_log_density":
            needed += " or predict(X, quantiles=[...])"
        if self.name == "neg_interval_score":
            needed += " or predict_interval(X)"
        return TypeError(
            f"{type(estimator).__name__} {what}: expected {needed} for {self!r}; for "
            "means use scoring='r2'."
        )

    def __repr__(self):
        return f"get_scorer({self.name!r})"

    _routing_repr = __repr__  # in scikit-learn's messages on routing


def _gaussian_interval_score(y_true, y_mean, y_std, sample_weight=None):
    """Return the interval score of the central intervals of 95 %."""
    y_true, y_mean, y_std = check_gaussian(y_true, y_mean, y_std)
    half = ndtri(0.975) * y_std
    return interval_score(
        y_true, y_mean - half, y_mean + half, sample_weight=sample_weight
    )


def _quantile_interval_score(y_true, y_quantiles, quantiles, sample_weight):
    """Return the interval score of intervals of 95 % whose ends are two quantiles."""
    ends = np.moveaxis(np.asarray(y_quantiles), 1, 0)
    return interval_score(y_true, *ends, sample_weight=sample_weight)


def _law_log_density(estimator, X, y, sample_weight):
    """Return the mean negative log density under the law of an estimator."""
    density = np.asarray(estimator.log_predictive_density(X, y))  # dask's are lazy
    return -mean_over_samples(density, sample_weight)


def _law_crps(estimator, X, y, sample_weight):
    """Return the mean ranked probability score of the law of an estimator."""
    scores = np.asarray(estimator._crps(X, y))  # dask's are lazy
    return mean_over_samples(scores, sample_weight)


def _law_interval_score(estimator, X, y, sample_weight):
    """Return the interval score of the intervals of 95 % of an estimator."""
    return interval_score(y, *estimator.predict_interval(X), 0.95, sample_weight)


_OF_LAWS = {
    "neg_log_density": _law_log_density,
    "neg_crps": _law_crps,
    "neg_interval_score": _law_interval_score,
}


_OF_GAUSSIANS = {
    "neg_log_density": mean_negative_log_density,
    "neg_crps": crps,
    "neg_interval_score": _gaussian_interval_score,
}


# Levels of quantiles, and their score. A single level would come back without its axis
# from some meta-estimators.
_OF_QUANTILES = {
    "neg_log_density": ([0.025, 0.975], None),
    "neg_crps": ((np.arange(100) + 0.5) / 100, crps_of_quantiles),
    "neg_interval_score": ([0.025, 0.975], _quantile_interval_score),
}
