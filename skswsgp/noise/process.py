"""The process of the noise variance, for likelihood="heteroscedastic".

y = f(x) + N(0, c h(x)), where c is `noise_variance_` and h = 1 / p for a process log p,
the logarithm of a precision. The bound of a factorised q(f) q(p) is raised by each of
the two in turn (Lazaro-Gredilla and Titsias, Variational heteroscedastic Gaussian
process regression, ICML 2011). Given q(p), f has Gaussian noise of the precision E p.
Given q(f), log p sees squared errors, E (y - f)^2, whose likelihood is `SquaredErrors`.
"""

import warnings
from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from skswsgp._estimators.base import BaseSWSGP, GivenRows
from skswsgp._estimators.given import kernel_for, trial_of
from skswsgp._estimators.sklearn_compat import with_callbacks
from skswsgp._fit.targets import latent_log_density
from skswsgp._solvers.progress import warn_caller
from skswsgp.noise.squared_errors import LIKELIHOODS

MOST_ROUNDS = 4  # times that the noise is learned
CHANGE = 0.2  # of the log variance, root mean square, below which rounds end
# Parameters of a regressor that the process of the noise has as well; others are the
# defaults, among them solver="natural": squared errors are so noisy that Adam would
# take too many steps to a good kernel.
SHARED = (
    "x_transform", "n_inducing", "inducing_points", "neighbor_search", "device",
    "n_jobs", "dtype",
)  # fmt: skip


class SquaredErrorTargets(NamedTuple):
    """Expected squares of errors, see `_fit.targets` for the contract."""

    likelihood: str = "squared_errors"
    n_latent: int = 1
    is_single: bool = True

    @property
    def record(self):
        """The record of the likelihood."""
        return LIKELIHOODS[self.likelihood]

    def attributes(self):
        """Return the fitted attributes that targets have from the start."""
        return {"unit_": 1.0}

    def encode(self, y, exposure=None):
        """Return squares (n, Q) as the record of the likelihood reads them."""
        return self.record.targets(y)

    def units(self, attributes):
        """Return (offset, factor) to the units of log p."""
        return attributes["prior_mean_"], 1.0

    def log_density(self, mu, v, targets, attributes):
        """Return the log density of squares, see `RegressionTargets`."""
        return latent_log_density(self, mu, v, targets, attributes)

    def stratify(self, y, fraction):
        """Return None: a random part of the rows has to keep no proportions."""


class NoiseModel(BaseSWSGP):
    """A Gaussian process of the log precision of noise, learned from squared errors.

    Targets (n, Q) of `fit` are expected squares of the errors of Q outputs, relative to
    the noise variance of each output. Outputs share the process.

    Parameters
    ----------
    parameters : dict
        Parameters of `BaseSWSGP` by name.

    Attributes
    ----------
    unit_ : float
        The harmonic mean of the noise of training rows, by which `relative_variance`
        divides.
    """

    _target_checks = {"multi_output": True}  # noqa: RUF012

    def __init__(self, parameters):
        self.parameters = parameters
        vars(self).update(parameters)

    def relative_variance(self, X):
        """Return h = E 1 / p (n,) at rows of X, over its unit."""
        return self.variance(X) / self.unit_

    def variance(self, X):
        """Return E 1 / p (n,), the noise of observations, at rows of X."""
        mean, variance = self._log_precision(X)
        return np.exp(0.5 * variance - mean)

    def training_ratio(self, X):
        """Return 1 / E p (n,), the noise that f has in the bound, at rows of X."""
        mean, variance = self._log_precision(X)
        return np.exp(-0.5 * variance - mean)

    @with_callbacks
    def fit(self, X, y):
        """Learn from squared errors y (n,) at rows of X."""
        return self._fit(GivenRows(X, y), is_trial=True)

    def _log_precision(self, X):
        """Return mean and variance (n,) of log p at rows of X."""
        moments = self._in_units(*self._latent(X))
        return (moment[:, 0].astype(np.float64) for moment in moments)

    def _warn_of_unknown_rows(self, *arguments):
        pass  # what is known of f matters

    def _learn_targets(self, rows, settings, *, free, classes=None):
        return SquaredErrorTargets()

    def _targets(self, attributes):
        return SquaredErrorTargets()


def learn_noise_model(estimator, X, y, weight, transform):
    """Return the `NoiseModel` of a regressor that is to be fitted to these rows.

    `transform` is the name of the transformation of y, or None. Copies of the regressor
    are fitted, the first with constant noise. What they warn of, the fit that follows
    repeats.
    """
    changes, own = search_parameters(estimator, X.shape[1], transform)
    found, before = None, 0.0
    for _ in range(MOST_ROUNDS):
        one_noise = {} if found else {"likelihood": "gaussian"}
        trial = trial_of(estimator, **changes | one_noise)
        with warnings.catch_warnings(action="ignore"):
            trial._fit(GivenRows(X, y, weight), noise=found, is_trial=True)
            squares = relative_squares(trial, X, y, weight)
        with warnings.catch_warnings(record=True, action="always") as caught:
            found = NoiseModel(own).fit(X, squares)
        after = np.log(found.training_ratio(X))
        after -= after.mean()
        change, before = np.sqrt(np.mean((after - before) ** 2)), after
        if change < CHANGE:
            break
    for one in caught:
        text = f"in the process of the noise, {one.message}"
        warn_caller(text, one.category)
    return found


def search_parameters(estimator, n_features, transform):
    """Return two dicts of parameters, of the `NoiseModel` the second.

    The first holds those in which trial regressors differ from the estimator.
    """
    params, seed = estimator.get_params(deep=False), estimator.random_state
    if not isinstance(seed, Integral):
        seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
    defaults = type(estimator)(learn_map=False, random_state=seed)
    defaults = defaults.get_params(deep=False)
    own = {name: defaults[name] for name in BaseSWSGP._parameter_constraints}
    own |= {name: params[name] for name in SHARED}
    kernel = kernel_for(estimator, n_features)
    changes = {"kernel": kernel, "predictive": "gaussian", "y_transform": transform}
    return changes, own


def relative_squares(model, X, y, weight):
    """Return w E (y - f)^2 / noise (n, Q) under q(f) of a fitted regressor."""
    data = model._training_rows(X, y, weight)
    mean, variance = model._latent(X)
    noise = np.reshape(model.noise_variance_, (1, -1))
    square = (data.y.astype(np.float64) - mean) ** 2 + variance
    return data.weight[:, None] / data.weight.mean() * square / noise
