"""Intervals, quantiles and densities of new observations, and the law behind them."""

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from skswsgp._estimators.hints import Floats, Neighbors, PerRow
from skswsgp._estimators.shared_docs import with_shared_text
from skswsgp._fit.targets import require_counts, require_no_exposure
from skswsgp._law.law import gaussian_law
from skswsgp._law.widths import measure_distances
from skswsgp._posterior import prediction
from skswsgp._posterior.extrapolation import ExtrapolationWarning
from skswsgp._rows import checks
from skswsgp._rows.columns import mapped
from skswsgp._rows.support import spread_of_levels


class QuantilesMixin:
    """From quantiles of standardised observations to those in the units of y.

    A class has `_standard_quantiles(X, levels, *how)`, which returns (n, Q, P) at rows
    of X, the `TargetScale` as `_scale`, and `_without_axis(values)`.
    """

    def _interval(self, X, coverage, *how):
        """Return the ends of central intervals at rows of X, in the units of y."""
        advice = "0.95 for an interval of 95 %, or predict(X, quantiles=...) for others"
        coverage = float(checks.require_probabilities("coverage", coverage, advice))
        tails = [0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)]
        ends = self._quantiles(X, tails, *how)
        return ends[:, 0], ends[:, 1]

    def _quantiles_alone(self, X, levels, others, *how):
        """Return quantiles; raise ValueError if `others` are true, by name."""
        for name in (name for name, asked in others.items() if asked):
            raise ValueError(
                f"quantiles came with {name}=True: expected one of the two, for "
                "quantiles are returned alone; call predict twice."
            )
        return self._quantiles(X, levels, *how)

    def _quantiles(self, X, levels, *how):
        """Return quantiles (n[, P][, Q]) at rows of X, in the units of y."""
        advice = "[0.1, 0.5, 0.9] for three quantiles"
        levels = checks.require_probabilities("quantiles", levels, advice)
        quantiles = self._standard_quantiles(X, levels.ravel(), *how)
        quantiles = self._scale.restore(quantiles)
        quantiles = np.moveaxis(self._without_axis(quantiles), -1, 1)
        return quantiles if levels.ndim else quantiles[:, 0]


@with_shared_text
class ObservationsMixin(QuantilesMixin):
    """The law of observations around the means of `predict`."""

    def predict_interval(
        self, X: ArrayLike, coverage: float = 0.95, *, n_neighbors: Neighbors = None,
        exposure: PerRow = None, noise_variance: PerRow = None, **others: object,
    ) -> tuple[Floats, Floats]:  # fmt: skip
        """Predict the central interval that holds a new observation with a probability.

        A pipeline lacks this method. Its last step has it, for rows that the steps
        before have transformed:
        ``pipeline[-1].predict_interval(pipeline[:-1].transform(X))``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        coverage : float, default=0.95
            Probability that an observation, noise included, lies in the interval.
        $prediction_parameters
        **others
            No argument has another name: a TypeError says so, and how to give the
            coverage where `alpha` or `confidence_level` came.

        Returns
        -------
        lower, upper : ndarrays of shape (n_samples,) or (n_samples, n_outputs)
            Ends of the intervals, in the units of y.
        """
        require_coverage(others)
        return self._interval(X, coverage, n_neighbors, exposure, noise_variance)

    def log_predictive_density(
        self, X: ArrayLike, y: ArrayLike, *, n_neighbors: Neighbors = None,
        exposure: PerRow = None, noise_variance: PerRow = None,
    ) -> Floats:  # fmt: skip
        """Return the log density of observations under their predictions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Observations.
        $prediction_parameters

        Returns
        -------
        density : ndarray of the shape of y
            Log density of each value by itself, in nats, in the units of y.
        """
        how = n_neighbors, exposure, noise_variance
        observations, y, scale = self._observations_of(X, y, *how)
        density = observations.log_density(scale.standardise(y)) + scale.log_slope(y)
        return self._without_axis(density)

    def noise_std(self, X: ArrayLike) -> Floats:
        """Predict the standard deviation of Gaussian noise.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        std : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Deviation of the noise of a row of mean weight, in the units of y, or of its
            transformation with a `y_transform`. It varies with X for
            `likelihood="heteroscedastic"` only. The law of `predictive` has no say.

        Raises
        ------
        ValueError
            If the likelihood is not Gaussian.
        """
        X = self._checked(X)
        if not self._record.conjugate:
            raise ValueError(
                f"noise_std with likelihood={self.likelihood!r}: expected 'gaussian' "
                "or 'heteroscedastic', for others have no Gaussian noise; use "
                "predict(X, return_std=True)."
            )
        noise = self._noise_of_rows(None, X)
        return self._without_axis(np.sqrt(noise) * np.reshape(self.y_scale_, (1, -1)))

    def _standard_quantiles(self, X, levels, *how):
        return self._observations(X, *how).quantiles(levels)

    def _crps(self, X, y):
        """Return the ranked probability score of y, of its shape and in its units."""
        observations, y, scale = self._observations_of(X, y)
        return self._without_axis(observations.crps(y, scale))

    def _observations_of(self, X, y, *how):
        """Return the `Observations` at rows of X, y (n, Q), and the `TargetScale`."""
        observations = self._observations(X, *how)
        y, mean = np.asarray(checks.as_numbers(y), dtype=np.float64), observations.mean
        expected = self._without_axis(mean).shape
        if y.shape != expected:
            raise ValueError(
                f"y has shape {y.shape}: expected {expected}, a value for each row "
                "of X and each output of the fit; reshape y."
            )
        y = y.reshape(mean.shape)
        if self._record.counts:
            require_counts(y, self.likelihood)
        return observations, y, self._scale

    def _observations(self, X, n_neighbors=None, exposure=None, noise_variance=None):
        """Return the law at rows of X: `Counts`, or that of standardised y."""
        X = self._checked(X)
        require_no_exposure(self.likelihood, exposure)
        self._require_no_noise(noise_variance)
        return self._observations_at(X, n_neighbors, exposure, noise_variance)

    def _observations_at(self, X, n_neighbors, exposure, noise_variance):
        """Return the law at validated rows, see `_observations`."""
        record, Q = self._record, np.size(self.y_mean_)
        posterior, rows = self._posterior(n_neighbors), self._on_scale(X)
        if record.counts:
            from skswsgp.noise import Counts

            mean, variance = self._in_units(*self._moments(posterior, rows))
            mean = mean + checks.log_exposure(exposure, len(mean))[:, None]
            shape = self.likelihood_shape_ if record.usual_shape else np.zeros(Q)
            return Counts(mean, variance, record.sizes(shape))
        law = getattr(self, "predictive_law_", None)
        k = 0 if law is None else law.n_near
        seen = prediction.NearestSeen(k, law.nearness.points if k > 0 else None)
        mean, variance = self._moments(posterior, rows, seen=seen)
        most = self._largest_deviations(rows, posterior.categories)
        if not record.conjugate:
            from skswsgp.noise import StudentNoise

            noise = np.broadcast_to(self.noise_variance_, Q)
            return StudentNoise(mean, variance, noise, self.likelihood_shape_)
        process = np.sqrt(variance + self._noise_of_rows(noise_variance, X))
        near = None
        if k > 0:
            inputs, Z = mapped(rows, self.linear_map_), law.nearness.points
            Z = self.inducing_points_ if Z is None else Z
            lists, scales = seen.lists(posterior, inputs), law.nearness.length_scales
            near = measure_distances(inputs, Z, lists, scales)
        plain = gaussian_law(mean, process)
        law = plain if law is None else law.at(mean, process, rows, near)
        return law if most is None else law.at_most(most)

    def _largest_deviations(self, rows, categories):
        """Return the largest deviations that observations may have, None for no bound.

        They are (n, Q) and only bound observations behind a transformation of y. A
        bound is the deviation of a new target on the scale of the model. At a new level
        of a category it is larger: the levels of training may differ by as much, and
        `spread_of_levels` is added.
        """
        scale = self._scale
        if scale.transform is None or not self.normalize_y:
            return None
        widest = 1.0 if scale.seen is None else scale.seen.widest
        levels = spread_of_levels(rows, categories)
        return widest * np.sqrt(1.0 + levels)[:, None]

    def _noise_of_rows(self, noise_variance, X):
        """Return variances (n, Q) of the noise of standardised y, given or learned.

        X holds validated rows.
        """
        given = checks.check_row_values("noise_variance", noise_variance, len(X))
        if given is not None:
            return given[:, None] / np.reshape(self.y_scale_, (1, -1)) ** 2
        usual = getattr(self, "_mean_noise_variance", self.noise_variance_)
        usual = np.reshape(usual, (1, -1))
        if self._record.varying_noise:
            return usual * self.noise_model_.relative_variance(X)[:, None]
        return np.broadcast_to(usual, (len(X), usual.size))

    def _leave_one_out(self, user, trained, found):
        """Return the `LeaveOneOut` of the rows of a fit, in their order.

        `trained` are the numbers of those of the `UserRows` that trained, and `found`
        the `LeftOutRows` of these. If these are all that trained, the others are
        predicted as new ones of their weight relative to the mean, or of weight one
        where that is zero.
        """
        X, y, weight = user
        y, scale = checks.as_numbers(y), self._scale
        rows, mean, variance, score = found
        if len(rows) < len(trained):
            order = np.argsort(trained[rows])
            rows = trained[rows[order]]
            mean, variance, score = (part[order] for part in found[1:])
        else:
            rows, rest = np.arange(len(y)), np.delete(np.arange(len(y)), trained)
            shape = len(y), mean.shape[1]
            of_trained, (mean, variance, score) = found[1:], np.empty((3, *shape))
            for all_rows, part in zip((mean, variance, score), of_trained, strict=True):
                all_rows[trained] = part
            if len(rest):
                usual = weight / weight[weight > 0.0].mean()
                usual = np.where(usual > 0.0, usual, 1.0)[rest]
                law = self._law_of_weights(X[rest], usual)
                mean[rest], variance[rest] = law.mean, law.process**2
                targets = scale.standardise(y.reshape(shape)[rest])
                score[rest] = law.normal_scores(targets)
        mean, std = gaussian_law(mean, np.sqrt(variance)).moments(scale)
        mean, std, score = map(self._without_axis, (mean, std, score))
        return LeaveOneOut(mean, std, y[rows] - mean, score, rows)

    def _law_of_weights(self, X, weight):
        """Return the law of observations of some weights at rows of a fit."""
        with warnings.catch_warnings():  # they are not far from themselves
            warnings.simplefilter("ignore", ExtrapolationWarning)
            law = self._observations_at(X, None, None, None)
        own = self._noise_of_rows(None, X) * (1.0 / weight[:, None] - 1.0)
        return law._replace(process=np.sqrt(law.process**2 + own))


def require_coverage(others):
    """Raise TypeError for unknown arguments of `predict_interval`, if there are any.

    Other packages call the coverage by some of these names.
    """
    for name, value in others.items():
        text = f"predict_interval() got an unexpected keyword argument {name!r}"
        if name in ("alpha", "confidence_level", "level"):
            text = (
                f"predict_interval came with {name}={value!r}: expected coverage, the "
                "probability of the interval; use coverage=0.9 for 90 %."
            )
        raise TypeError(text)


class LeaveOneOut(NamedTuple):
    """Rows as predicted without them, each (n_samples,) or (n_samples, n_outputs)."""

    mean: np.ndarray  # of the prediction, in the units of y
    std: np.ndarray  # of an observation of the weight of the row, noise included
    residual: np.ndarray  # y - mean
    z_score: np.ndarray  # y as a standard normal value, under its law without the row
    rows: np.ndarray | None = None  # numbers: of a longer table 40,000, Adam 20,000
