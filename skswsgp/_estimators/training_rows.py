"""Rows that train and rows that are held out, from what the user gives."""

import math

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import check_is_fitted

from skswsgp._estimators import sklearn_compat as compat
from skswsgp._initialization.kernel_learning import count_learning_rows
from skswsgp._initialization.statistics import bounded_noise, relative_weights
from skswsgp._solvers.data import TrainingRows, with_known_noise


class TrainingRowsMixin:
    """From X, y and weights to `TrainingRows`."""

    def _validate_training(self, X, y, sample_weight, reset):
        """Return validated X, y and weights, and the numbers of their rows of X.

        Rows of weight zero are left out; None stands for all rows of X.
        """
        X, y = compat.validate(self, X, y, reset=reset, **self._target_checks)
        weight = compat.check_weights(sample_weight, X, self.dtype)
        if weight.all():
            return X, y, weight, None
        rows = np.flatnonzero(weight)
        return X, y[rows], weight[rows], rows

    def _training_rows(
        self, X, y, sample_weight, *, exposure=None, noise_variance=None
    ):
        """Return validated `TrainingRows` for a fitted model, not mapped yet.

        Their `ratio` holds noise variances (n,), known or relative, or None.
        """
        check_is_fitted(self, "inducing_points_")
        self._validate_params()
        X, y, weight, rows = self._validate_training(X, y, sample_weight, reset=False)
        exposure = compat.check_row_values("exposure", exposure, len(X), rows)
        noise = compat.check_row_values("noise_variance", noise_variance, len(X), rows)
        targets = self._encode_targets(y, vars(self), exposure)
        targets = targets.astype(self.dtype, copy=False)
        if noise is not None:
            noise = bounded_noise(noise, y, weight)
        elif hasattr(self, "noise_model_"):
            rows_in_X = slice(None) if rows is None else rows
            noise = self.noise_model_.training_ratio(X[rows_in_X])
        weight = weight.astype(self.dtype)
        return TrainingRows(X, targets, weight, rows, ratio=noise)

    def _validation_data(self, X_val, y_val, attributes, settings):
        """Return the user's validation data, or None."""
        if X_val is None and y_val is None:
            return None
        if X_val is None or y_val is None:
            missing = "X_val" if X_val is None else "y_val"
            raise ValueError(f"{missing} is missing: X_val and y_val go together.")
        if not settings.early_stopping:
            raise ValueError(
                "X_val and y_val came with early_stopping=False: expected 'auto' or "
                "True, for they only serve to decide when to stop."
            )
        checks = {"reset": False} | self._target_checks
        X_val, y_val = compat.validate(self, X_val, y_val, **checks)
        targets = self._encode_targets(y_val, attributes)
        weight = np.ones(len(X_val), dtype=self.dtype)
        return TrainingRows(X_val, targets.astype(self.dtype, copy=False), weight)

    def _stops_early(self, data, settings):
        """Return whether held-out rows decide when a fit stops."""
        if settings.early_stopping == "auto":
            many = data.n_rows > self._tuning.holdout_above
            return settings.solver.takes_steps and many
        return settings.early_stopping

    def _hold_out(self, data, y, settings, rng):
        """Return the data to train on, and those held out."""
        fraction = settings.validation_fraction
        n_held_out = math.ceil(fraction * len(y))
        if n_held_out == len(y):
            raise ValueError(
                f"early_stopping={settings.early_stopping!r} with validation_fraction="
                f"{fraction} holds out all of {len(y)} rows: expected some to train "
                "on; lower validation_fraction, or use early_stopping=False."
            )
        stratify = self._stratify(y, fraction)
        options = {"random_state": rng, "stratify": stratify}
        parts = train_test_split(np.arange(len(y)), test_size=n_held_out, **options)
        return [data.take(np.sort(part)) for part in parts]

    def _stratify(self, y, fraction):
        return None

    def _relative_rows(self, data, solver, known):
        """Return rows with the weights that divide the noise variance, and its unit.

        Where rows have a `ratio`, weights are precisions, and the unit is the harmonic
        mean of the noise, which is `known` or learned; otherwise it is None.
        """
        data = data if known else self._relative_to_mean(data, solver)
        return (data, None) if data.ratio is None else with_known_noise(data)

    def _relative_to_mean(self, data, solver):
        """Return the rows with the weights that divide the noise variance."""
        # Adam alone reads X by parts, which may be a memory map.
        whole = self.learn_kernel or solver.finds_optimum
        most = count_learning_rows(data.X.shape[1], self._tuning) if whole else 0
        return relative_weights(data, most)
