"""Training rows as they are predicted by a model without each of them."""

from typing import NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from skswsgp._estimators.sklearn_compat import as_numbers
from skswsgp._initialization.inducing import distinct_rows, point_of_shuffled_row
from skswsgp._initialization.statistics import (
    copies_of_rows,
    cross_moments,
    mean_and_scale,
)
from skswsgp._predictive.fit_law import find_neighborhoods, normal_scores
from skswsgp._predictive.leave_one_out import leave_one_out, merge_rows
from skswsgp._predictive.prediction import nearest_points
from skswsgp._solvers.registry import choose_solver

# Standardised targets of the rows of `fit` have mean 0 and deviation 1 but for
# rounding, which is 1e-5 where y is 1e11 times its deviation. The mean of other targets
# seldom comes as near to 0 as this.
ROUNDING = 1e-3
PAIRING = 1e-4  # change of mean products of X and y, relative to their sizes


class LeaveOneOut(NamedTuple):
    """Rows as predicted without them, each (n_samples,) or (n_samples, n_outputs)."""

    mean: np.ndarray  # of the prediction, in the units of y
    std: np.ndarray  # of an observation of the weight of the row, noise included
    residual: np.ndarray  # y - mean
    z_score: np.ndarray  # y as a standard normal value, under its law without the row


class LeaveOneOutMixin:
    """Diagnostics of training rows."""

    def leave_one_out(self, X, y, sample_weight=None, *, noise_variance=None):
        """Predict each training row by the model without that row.

        Nothing is fitted again: kernel and noise stay as all rows have taught them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs of the rows that `fit` was given, in any order, or of any rows that a
            stream was given.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets of these rows.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of these rows, as in `fit`.
        noise_variance : array-like of shape (n_samples,), default=None
            Noise variances of these rows, if `fit` was given them.

        Returns
        -------
        rows : LeaveOneOut
            Named tuple of `mean`, `std`, `residual` and `z_score`, each of the shape of
            y and in the order of the rows, the first three in its units. `z_score` is
            the value of a standard normal variable that is as probable as y: by the
            tails of the law of `predictive` and its factor around other rows, and
            on the scale of `y_transform`. `std` is that of the process, noise of a
            row of this weight included, and leaves out the law of `predictive`. With a
            `y_transform` both are those of y for a Gaussian T(y) of that deviation.
            `residual` is y - mean. Rows of weight zero did not train and are
            predicted from all others, with the noise of a row of mean weight, or their
            own where `noise_variance` holds it. Exact copies of a row count as one row
            of more weight, and are left out together.

        Raises
        ------
        ValueError
            If the rows cannot be those that `fit` was given, if the likelihood is
            neither "gaussian" nor "heteroscedastic", or if `early_stopping=True` held
            rows out where means come from all rows.

        Notes
        -----
        Where the distinct rows are the inducing points, a row is predicted from its H
        nearest others, at most 192, or from all of them where there is `alpha_` [1]_.
        Its std comes from the nearest in both cases, and with `alpha_` one factor for
        all residuals comes from `held_out_errors_`. With fewer inducing points a row
        is taken out of q(f), whose variance stays; there the residual of q(f) at most
        doubles. Rows that were held out to decide when to stop count as if they had
        trained.

        References
        ----------
        .. [1] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine
           Learning", 2006, eq. 5.12.
        """
        check_is_fitted(self, "inducing_points_")
        self._validate_params()
        if not self._record.conjugate:
            raise ValueError(
                f"leave_one_out with likelihood={self.likelihood!r}: expected "
                "'gaussian' or 'heteroscedastic', for others have no closed form; use "
                "cross_val_predict of scikit-learn."
            )
        known = noise_variance is not None
        if known != getattr(self, "_noise_known", False):
            came, expected = ("some", "none") if known else ("none", "those of fit")
            raise ValueError(
                f"noise_variance: {came} came, expected {expected}; pass the "
                "noise_variance of fit again, or none if it had none."
            )
        data = self._training_rows(X, y, sample_weight, noise_variance=noise_variance)
        self._require_targets_of_fit(data)
        mean, variance, score = self._left_out(data)
        y, scale = as_numbers(y), self._target_scale(vars(self))
        if data.rows is not None:
            trained = mean, variance, score
            mean, variance, score = np.empty((3, len(data.X), mean.shape[1]))
            mean[data.rows], variance[data.rows], score[data.rows] = trained
            rest = np.delete(np.arange(len(data.X)), data.rows)
            noise = None
            if known:  # rows of weight zero may have none
                noise = np.asarray(noise_variance, dtype=np.float64)[rest]
                usual = np.mean(self.mean_noise_variance_ * self.y_scale_**2)
                noise = np.where(np.isfinite(noise) & (noise > 0.0), noise, usual)
            law = self._observations(_safe_indexing(X, rest), noise_variance=noise)
            mean[rest], variance[rest] = law.mean, law.process**2
            targets = scale.standardise(y.reshape(score.shape)[rest])
            score[rest] = law.normal_scores(targets)
        moments = scale.moments(mean, np.sqrt(variance))
        mean, std, score = map(self._without_axis, (*moments, score))
        return LeaveOneOut(mean, std, y - mean, score)

    def _left_out(self, data):
        """Return mean, variance and score (n, Q) of standardised y, noise included."""
        streamed = not hasattr(self, "n_samples_fit_")
        known = getattr(self, "_noise_known", False)
        solver = choose_solver(self.solver, self.optimize_inducing, streamed)
        settings = self._settings(vars(self), data, solver, streamed)
        trained = vars(self)
        if not streamed:
            data, unit = self._relative_rows(data, solver, known)
            if known:
                self._require_noise_of_fit(unit)
            elif unit is not None:  # of all rows, while `unit_` is of those that train
                noise = self.noise_variance_ * unit / self.noise_model_.unit_
                trained = trained | {"noise_variance_": noise}
        given, single = data, data.weight
        data = data.mapped(self.metric_)
        _, place = copies_of_rows(data.inputs, data.y)
        data, group = merge_rows(data), None
        if solver.exact_means:
            group = self._points_of_rows(data.X)
        self._require_pairs_of_fit(given)
        found = leave_one_out(data, group, trained, settings).residuals
        scores = self._normal_scores(found.standardised, data.X, group)
        noise = np.reshape(trained["noise_variance_"], (1, -1))
        more = noise * (1.0 / single - 1.0 / data.weight[place])[:, None]  # of copies
        return found.mean[place], found.variance[place] + more, scores[place]

    def _normal_scores(self, z, X, group):
        """Return `normal_scores` of rows X (n, D') of the inducing points `group`."""
        law, Z = getattr(self, "predictive_law_", None), self.inducing_points_
        model, center = self._fitted_model()

        def nearest(rows, k):
            return nearest_points(model, rows, center, k, self.n_jobs)

        around = None
        if law is not None and law.coefficients[1:].any():
            scales = law.nearness.length_scales
            around = find_neighborhoods(X, Z, nearest, scales, group)
        return normal_scores(law, z, around)

    def _points_of_rows(self, X):
        """Return the inducing points of rows X (n, D') that trained, or None.

        Raises ValueError where the rows of `fit` were the inducing points, and X has
        others.
        """
        Z = self.inducing_points_
        group = point_of_shuffled_row(Z, X)
        if group is not None:
            return group
        every = isinstance(self.inducing_points, str) and not self.warm_start
        every &= len(Z) in (self.n_samples_fit_, len(distinct_rows(X)[0]))
        if self.early_stopping is True and hasattr(self, "alpha_"):
            raise ValueError(
                "leave_one_out after early_stopping=True, which held rows out: "
                "expected all rows to train where means come from all of them; fit "
                "with early_stopping='auto', or n_neighbors as a number."
            )
        if every or hasattr(self, "alpha_"):
            raise ValueError(
                "X has rows that are not among the inducing points: expected the rows "
                "of fit, all of which are inducing points; pass the X of fit again."
            )
        return None

    def _require_targets_of_fit(self, data):
        """Raise ValueError where rows cannot be those of `fit`; a stream has none."""
        count = getattr(self, "n_samples_fit_", data.n_rows)
        if data.n_rows != count:
            raise ValueError(
                f"X has {data.n_rows} rows of positive weight: expected the {count} of "
                "fit; pass the X, y and sample_weight of fit again."
            )
        streamed = not hasattr(self, "n_samples_fit_")
        if streamed or self.warm_start or not self.normalize_y:
            return
        mean, scale = mean_and_scale(data.y.astype(np.float64), data.weight)
        if max(np.abs(mean).max(), np.abs(scale - 1.0).max()) > ROUNDING:
            raise ValueError(
                "y has another mean or deviation than in fit: expected the same rows; "
                "pass the y and sample_weight of fit again."
            )

    def _require_noise_of_fit(self, unit):
        """Raise ValueError unless the harmonic mean of the noise is that of the fit."""
        fitted = np.ravel(self.noise_variance_ * self.y_scale_**2)
        if (np.abs(fitted - unit) > ROUNDING * unit).any():
            raise ValueError(
                f"noise_variance has a harmonic mean of {unit:.3g}: expected the "
                f"{fitted[0]:.3g} of fit; pass the noise_variance of fit again."
            )

    def _require_pairs_of_fit(self, data):
        """Raise ValueError where rows of X and y do not go together as in `fit`."""
        before = getattr(self, "_pairing", None)
        if before is None:
            return  # a stream, or rows in a file
        moments, unit = cross_moments(data)
        if (np.abs(moments - before) > PAIRING * unit).any():
            raise ValueError(
                "X and y do not go together as in fit: expected each y at its row of "
                "X; pass the X, y and sample_weight of fit again, in one order."
            )
