"""Intervals, quantiles and densities of new observations."""

import numpy as np
from scipy.special import ndtri

from skswsgp._compiled.special import gaussian_log_density
from skswsgp._estimators.sklearn_compat import as_numbers


class ObservationsMixin:
    """The distribution of an observation, a Gaussian of the mean and std of `predict`.

    `predict` is the estimator's own.
    """

    def predict_interval(self, X, coverage=0.95, *, n_neighbors=None):
        """Predict the central interval that holds a new observation with a probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        coverage : float, default=0.95
            Probability that an observation, noise included, lies in the interval.
        n_neighbors : int or "all", default=None
            Number of inducing points that a row uses, if not as in `fit`.

        Returns
        -------
        lower, upper : ndarrays of shape (n_samples,) or (n_samples, n_outputs)
            Ends of the intervals, in the units of y.
        """
        _require_probabilities(coverage, "coverage", "0.95 for an interval of 95 %")
        coverage = float(coverage)
        tails = [0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)]
        quantiles = self.predict_quantiles(X, tails, n_neighbors=n_neighbors)
        return quantiles[..., 0], quantiles[..., 1]

    def predict_quantiles(self, X, q, *, n_neighbors=None):
        """Predict quantiles of new observations.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        q : float or array-like of shape (n_quantiles,)
            Probabilities that an observation, noise included, is smaller.
        n_neighbors : int or "all", default=None
            Number of inducing points that a row uses, if not as in `fit`.

        Returns
        -------
        quantiles : ndarray of shape (n_samples[, n_outputs][, n_quantiles])
            Quantiles in the units of y. The last axis is left out for a number q, and
            the axis of outputs where y had one column only.
        """
        q = _require_probabilities(q, "q", "[0.1, 0.5, 0.9] for three quantiles")
        mean, std = self.predict(X, return_std=True, n_neighbors=n_neighbors)
        return mean[(..., *[None] * q.ndim)] + np.multiply.outer(std, ndtri(q))

    def log_predictive_density(self, X, y, *, n_neighbors=None):
        """Return the log density of observations under their predictions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Observations.
        n_neighbors : int or "all", default=None
            Number of inducing points that a row uses, if not as in `fit`.

        Returns
        -------
        density : ndarray of the shape of y
            Log density of each value by itself, in nats, in the units of y.
        """
        mean, std = self.predict(X, return_std=True, n_neighbors=n_neighbors)
        y = np.asarray(as_numbers(y), dtype=np.float64)
        if y.shape != mean.shape:
            raise ValueError(
                f"y has shape {y.shape}: expected {mean.shape}, a value for each row "
                "of X and each output of the fit; reshape y."
            )
        return gaussian_log_density(((y - mean) / std) ** 2, 2.0 * np.log(std))


def _require_probabilities(values, name, advice):
    """Return numbers strictly between 0 and 1 as an array of at most one axis."""
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    most = 0 if name == "coverage" else 1
    if found.ndim > most or not np.all((found > 0.0) & (found < 1.0)):
        some = "a number" if most == 0 else "a number or a list of numbers"
        raise ValueError(
            f"{name}={values!r}: expected {some} between 0 and 1; use {advice}."
        )
    return found
