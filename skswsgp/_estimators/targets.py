"""Targets of regression: which are refused, and how the process sees the others."""

import warnings

import numpy as np
from sklearn.utils import check_random_state

from skswsgp._estimators.given import (
    kernel_for,
    require_word_of_fit,
    solver_for,
    trial_of,
)
from skswsgp._estimators.noise_model import learn_noise_model
from skswsgp._estimators.sklearn_compat import (
    as_numbers,
    check_outputs,
    log_exposure,
)
from skswsgp._law.counts import require_counts
from skswsgp._law.fit_law import LEAST_ROWS
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._rows.inducing import distinct_rows
from skswsgp._rows.statistics import (
    ERRORS,
    exceeds_standard_error,
    mean_and_scale,
    robust_mean_and_scale,
)
from skswsgp._rows.target_scale import TargetScale, fit_transform

TRIAL_ROWS = 2000  # rows of a trial fit, which takes seconds, and rows held out
HELD_OUT = 1 / 3  # of few rows


class TargetsMixin:
    """From targets of the user to those of the likelihood, and to its units."""

    @property
    def _record(self):
        """The record of the likelihood."""
        return LIKELIHOODS[self.likelihood]

    def _require_no_exposure(self, exposure):
        """Raise ValueError if there is an exposure, but targets are no counts."""
        if exposure is not None and not self._record.counts:
            raise ValueError(
                f"exposure came with likelihood={self.likelihood!r}: expected none, "
                "for only counts have rates; use 'poisson' or 'negative_binomial', or "
                "leave it out."
            )

    def _require_no_noise(self, noise_variance):
        """Raise ValueError if rows have noise variances that suit no prediction."""
        if noise_variance is None:
            return
        transform = getattr(self, "y_transform_", None)
        wrong = {
            f"likelihood={self.likelihood!r}": not self._record.conjugate,
            f"y_transform={self.y_transform!r}": transform is not None,
        }
        for name in (name for name, is_wrong in wrong.items() if is_wrong):
            raise ValueError(
                f"noise_variance came with {name}: expected none; it is for Gaussian "
                "noise on the scale of y."
            )

    def _require_usable_noise(self, X_val):
        """Raise ValueError if noise variances of training rows cannot be used."""
        method, _ = solver_for(self)
        wrong = {
            f"likelihood={self.likelihood!r}": self.likelihood != "gaussian",
            f"y_transform={self.y_transform!r}": self.y_transform is not None,
            f"solver={self.solver!r}": not method.exact_means,
            "X_val": X_val is not None,
        }
        for name in (name for name, is_wrong in wrong.items() if is_wrong):
            raise ValueError(
                f"noise_variance came with {name}: expected likelihood='gaussian', "
                "solver='natural', y_transform=None and no X_val; sample_weight tells "
                "how precise a row is relative to others."
            )

    def _require_usable_shape(self, attributes):
        """Raise ValueError if the shape is not of the likelihood or of the fit."""
        shape, (least, most) = self.likelihood_shape, self._record.shape_bounds
        if shape == "auto":
            return
        if not least <= shape <= most:
            expected = f"{least:g} to {most:g}, or 'auto'" if most else "'auto'"
            raise ValueError(
                f"likelihood_shape={shape} with likelihood={self.likelihood!r}: "
                f"expected {expected}."
            )
        if np.any(attributes.get("likelihood_shape_", shape) != shape):
            raise ValueError(
                f"likelihood_shape={shape} for a model that was fitted with "
                f"{attributes['likelihood_shape_']}: expected the shape of the fit; "
                "set it back, or fit again without warm_start."
            )

    def _learn_targets(self, X, rows, y, weight):
        y = as_numbers(y)
        columns = y.reshape(len(y), -1)
        chosen, transform = self.y_transform, None
        if chosen is not None and self._record.counts:
            raise ValueError(
                f"y_transform={chosen!r} with likelihood={self.likelihood!r}: expected "
                "None, for counts keep their scale; use likelihood='gaussian' for "
                "transformed targets."
            )
        if chosen == "auto":
            chosen = choose_transform(self, X, rows, y, weight)
        if chosen is not None:
            transform = fit_transform(chosen, columns, weight)
            transform.require_domain(columns)
            y = transform.forward(columns).reshape(y.shape)
        if not self.normalize_y or self._record.counts:
            mean, scale = np.zeros(y.shape[1:])[()], np.ones(y.shape[1:])[()]
        elif self._record.conjugate:
            mean, scale = mean_and_scale(y, weight)
        else:
            mean, scale = robust_mean_and_scale(y, weight)
        return {"y_mean_": mean, "y_scale_": scale, "y_transform_": transform}

    def _learn_noise_model(self, X, rows, y, weight, attributes):
        if not self._record.varying_noise:
            return None
        transform = attributes["y_transform_"]
        name = None if transform is None else transform.name
        X = X if rows is None else X[rows]
        return learn_noise_model(self, X, y, weight, name)

    def _encode_targets(self, y, attributes, exposure=None):
        y, scale = as_numbers(y), self._target_scale(attributes)
        self._require_likelihood_of_fit(self.likelihood, attributes)
        self._require_no_exposure(exposure)
        if self.y_transform != "auto":
            before = scale.transform and scale.transform.name
            word, title = self.y_transform, "transformation"
            require_word_of_fit("y_transform", word, before, title)
        self._require_usable_shape(attributes)
        check_outputs(y, scale.offset)
        columns = y.reshape(len(y), -1)
        if self._record.counts:
            require_counts(columns, self.likelihood)
            return np.column_stack([columns, log_exposure(exposure, len(y))])
        if scale.transform is not None:
            scale.transform.require_domain(columns)
        return scale.standardise(columns)

    def _target_scale(self, attributes):
        """Return the `TargetScale` of fitted attributes."""
        return TargetScale(
            attributes["y_mean_"],
            attributes["y_scale_"],
            attributes.get("y_transform_"),
        )

    def _latent_units(self, attributes):
        if self._record.counts:
            return attributes.get("prior_mean_", 0.0), 1.0
        return attributes["y_mean_"], attributes["y_scale_"]

    def _has_one_function(self):
        return np.ndim(self.y_mean_) == 0

    def _likelihood_of(self, attributes):
        self._require_likelihood_of_fit(self.likelihood, attributes)
        return self.likelihood, int(np.size(attributes["y_mean_"]))

    def _log_density(self, mu, v, targets, attributes):
        if self._record.counts:
            return super()._log_density(mu, v, targets, attributes)
        scale = self._target_scale(attributes)
        numbers = map(attributes.get, ("noise_variance_", "likelihood_shape_"))
        density = self._record.log_density(mu, v, targets, *numbers)
        slopes = scale.log_slope(scale.restore(targets))
        return density + np.sum(np.broadcast_to(slopes, targets.shape), axis=1)


def choose_transform(estimator, X, rows, y, weight):
    """Return "log", "yeo-johnson" or None for an estimator with `y_transform="auto"`.

    `rows` are the rows of X that y and weight belong to, or None for all of them.
    Copies of the estimator are fitted to some rows, one without and one with each
    transformation. A transformation is taken if its mean gain in log density on other
    rows, in the units of y, exceeds `ERRORS` standard errors. Rows that share X are
    held out together, and each has the noise of its weight. With an integer
    `random_state` the fit that follows draws as it would without the choice.
    """
    rng = check_random_state(estimator.random_state)
    places = np.arange(len(y)) if rows is None else rows
    chosen = np.sort(rng.permutation(len(y))[: 2 * TRIAL_ROWS])
    points, point_of = distinct_rows(np.asarray(X[places[chosen]]))
    held_out = min(int(HELD_OUT * len(points)), TRIAL_ROWS)
    if held_out < LEAST_ROWS:  # which do not tell a gain from chance
        return None
    is_test = (rng.permutation(len(points)) < held_out)[point_of]
    test, train = chosen[is_test], chosen[~is_test][:TRIAL_ROWS]
    names = ["yeo-johnson", "log"] if (y > 0.0).all() else ["yeo-johnson"]
    densities, relative = {}, weight / weight[train].mean()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to all rows repeats them
        kernel = kernel_for(estimator, X.shape[1])  # X has lost the names of columns
        for name in [None, *names]:
            changes = {"kernel": kernel, "y_transform": name}
            if estimator._record.varying_noise:
                changes["likelihood"] = "gaussian"  # whose law follows errors, too
            trial = trial_of(estimator, **changes)
            trial.fit(X[places[train]], y[train], weight[train])
            density = trial._weighted_log_density(
                X[places[test]], y[test], relative[test]
            )
            densities[name] = density.sum(axis=1)
    gains = {name: densities[name] - densities[None] for name in names}
    best = max(names, key=lambda name: np.average(gains[name], weights=weight[test]))
    better = exceeds_standard_error(gains[best], weight[test], errors=ERRORS)
    return best if better else None
