"""Targets of regression: which are refused, and how the process sees the others."""

import numpy as np

from skswsgp._estimators.given import require_word_of_fit, solver_for
from skswsgp._estimators.noise_model import learn_noise_model
from skswsgp._estimators.sklearn_compat import (
    as_numbers,
    check_outputs,
    log_exposure,
)
from skswsgp._kernel_search.kernel_choice import choose_targets
from skswsgp._law.counts import require_counts
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._rows.data import TrainingRows
from skswsgp._rows.statistics import mean_and_scale, robust_mean_and_scale
from skswsgp._rows.target_scale import TargetScale, fit_transform
from skswsgp._solvers.settings import Settings


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
            f"y_transform_={transform and transform.name!r}": transform is not None,
        }
        for name in (name for name, is_wrong in wrong.items() if is_wrong):
            raise ValueError(
                f"noise_variance came with {name}: expected none; it is for Gaussian "
                "noise on the scale of y, which likelihood='gaussian' and "
                "y_transform=None have in a new fit."
            )

    def _require_usable_noise(self, X_val):
        """Raise ValueError if noise variances of training rows cannot be used."""
        method, _ = solver_for(self)
        transform = getattr(self, "y_transform_", None) if self.warm_start else None
        before = transform and transform.name
        wrong = {
            f"a warm start of y_transform_={before!r}": before is not None,
            f"likelihood={self.likelihood!r}": self.likelihood != "gaussian",
            f"y_transform={self.y_transform!r}": self.y_transform not in ("auto", None),
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

    def _learn_targets(self, X, rows, y, weight, free):
        y, name = as_numbers(y), self.y_transform
        if self._record.counts:
            if name not in ("auto", None):
                raise ValueError(
                    f"y_transform={name!r} with likelihood={self.likelihood!r}: "
                    "expected None or 'auto', for counts keep their scale; use "
                    "likelihood='gaussian' for transformed targets."
                )
            none, one = np.zeros(y.shape[1:])[()], np.ones(y.shape[1:])[()]
            return {"y_mean_": none, "y_scale_": one, "y_transform_": None}
        scales = [self._scale_for(None if name == "auto" else name, y, weight)]
        free &= self._record.conjugate and self.normalize_y
        free &= self.kernel is None and self.learn_kernel and not self.warm_start
        if name == "auto" and free:
            names = ["yeo-johnson", "log"] if (y > 0.0).all() else ["yeo-johnson"]
            scales += [self._scale_for(one, y, weight) for one in names]
            columns = y.reshape(len(y), -1).astype(np.float64)
            settings = Settings(
                self.likelihood, columns.shape[1], solver=None,
                initial_noise=self.initial_noise, tuning=self._tuning,
            )  # fmt: skip
            data = TrainingRows(X, columns, weight, rows)
            scales = [choose_targets(data, settings, scales)]
        scale = scales[0]
        return {
            "y_mean_": scale.offset,
            "y_scale_": scale.factor,
            "y_transform_": scale.transform,
        }

    def _scale_for(self, name, y, weight):
        """Return the `TargetScale` of training targets for a transformation."""
        columns, transform = y.reshape(len(y), -1), None
        if name is not None:
            transform = fit_transform(name, columns, weight)
            transform.require_domain(columns)
            y = transform.forward(columns).reshape(y.shape)
        if not self.normalize_y:
            mean, scale = np.zeros(y.shape[1:])[()], np.ones(y.shape[1:])[()]
        elif self._record.conjugate:
            mean, scale = mean_and_scale(y, weight)
        else:
            mean, scale = robust_mean_and_scale(y, weight)
        return TargetScale(mean, scale, transform)

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
            1.0 if self.normalize_y else np.inf,
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
