"""What a fitted estimator knows of its latent functions, at any rows."""

from contextlib import contextmanager
from numbers import Integral

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skswsgp._compiled.threads import ROWS_AT_ONCE, row_blocks
from skswsgp._estimators import sklearn_compat as compat
from skswsgp._linear.projection import Projection
from skswsgp._posterior import gradient, joint, prediction
from skswsgp._posterior.extrapolation import (
    share_of_unknown_rows,
    warn_of_extrapolation,
)
from skswsgp._posterior.relevance import squared_slopes
from skswsgp._rows.columns import mapped
from skswsgp._rows.data import TrainingRows, center_rows, memory_budget
from skswsgp._solvers.exact_mean import exact_variance
from skswsgp._solvers.model import build_model, with_draws


class LatentFunctionsMixin:
    """Predictions of latent functions, one row at a time and jointly."""

    def latent_mean_and_variance(self, X, *, n_neighbors=None):
        """Predict mean and variance of the latent functions, without noise.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        n_neighbors : int or "all", default=None
            Number of inducing points that a row uses, if not as in `fit`.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_latent)
            Mean of q(f), eq. 13, or given all rows where there is `alpha_`. For
            regression in the units of y, or of the transformed y where there is a
            `y_transform`, or for counts the logarithm of their rate, one function for
            each output; for classes on the scale before the link
            function, one function for two classes and else one for each class.
        variance : ndarray of the same shape
            Variance of q(f). It can be far too small where S is diagonal: see
            `covariance`.
        """
        mean, variance = self._latent(X, True, n_neighbors)
        mean, variance = self._in_units(mean, variance, vars(self))
        return self._without_axis(mean), self._without_axis(variance)

    def sample_f(self, X, n_samples=1, random_state=0, *, n_neighbors=None):
        """Draw latent functions from q(f), and evaluate them at rows of X.

        A draw is one function: calls with the same `random_state`, an integer, evaluate
        the same functions, at any rows, whatever other rows come along and however many
        functions are drawn.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
            Inputs.
        n_samples : int, default=1
            Number of functions.
        random_state : int, RandomState instance or None, default=0
            Which functions are drawn.
        n_neighbors : int or "all", default=None
            Number of inducing points that a row uses, if not as in `fit`.

        Returns
        -------
        values : ndarray of shape (n_samples_X, n_samples) or \
                (n_samples_X, n_latent, n_samples)
            Values of the functions, in the units of `latent_mean_and_variance`, whose
            mean and variance they have. Sixteen functions share the random features
            that join what the inducing values leave open, whose correlations are within
            0.03 far from the data, and within some 0.3 where this rest is a small part
            of the prior variance. More functions average this error out.

        Raises
        ------
        ValueError
            If the kernel holds a WhiteKernel or a power that is no integer.

        Notes
        -----
        Pathwise conditioning [1]_ on the H inducing points nearest to each row.

        References
        ----------
        .. [1] J. Wilson et al., "Efficiently Sampling Functions from Gaussian Process
           Posteriors", ICML 2020.
        """
        n_samples = count("n_samples", n_samples)
        rng, means, deviations = check_random_state(random_state), [], []
        model, X, center, H = self._model_and_rows(X, n_neighbors, draws=True)
        draws = joint.FunctionDraws(model, n_samples, rng)
        with self._projector(model, center, H, memory_budget()) as project:
            # Features at inducing points cost as much as those at so many rows
            for block in row_blocks(len(X), max(ROWS_AT_ONCE, len(model.Z))):
                rows = project(X[block])
                means.append(rows.matvec(model.m.astype(np.float64)))
                deviations.append(draws.at(rows))
        mean, values = np.concatenate(means), np.concatenate(deviations)
        offset, factor = self._latent_units(vars(self))
        alpha = self._alpha(n_neighbors)
        if alpha is not None:
            mean = self._exact_mean(model, X, center, alpha)
        square = self._variance_factor(alpha, model, X, center, H)
        root = factor * np.sqrt(square)
        values *= np.broadcast_to(root, mean.shape)[:, :, None]
        values += (offset + factor * mean)[:, :, None]
        return self._without_axis(values)

    def predict_gradient(self, X, return_std=False, *, n_neighbors=None):
        """Predict the derivatives of the latent functions by the columns of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Whether to return standard deviations as well, which take some
            milliseconds a row.
        n_neighbors : int or "all", default=None
            Number of inducing points that a row uses, if not as in `fit`.

        Returns
        -------
        gradient : ndarray of shape (n_samples, n_features) or \
                (n_samples, n_latent, n_features)
            Derivatives of the mean of `latent_mean_and_variance`, while the neighbours
            of a row stay the same.
        std : ndarray of the same shape
            Standard deviations of the derivatives of the latent functions. Only
            returned if `return_std`.

        Raises
        ------
        ValueError
            If `return_std` and the kernel is so rough that functions have none.
        """
        model, X, center, H = self._model_and_rows(X, n_neighbors, draws=True)
        alpha = self._alpha(n_neighbors)
        if return_std:
            gradient.require_derivative(model)
            local = self._variance_factor(alpha, model, X, center, H)
        X = center_rows(mapped(X, self.linear_map_), center, model.Z.dtype)
        slopes, lists = gradient.mean_slopes(
            model, self.kernel_, X, H, self._evaluation, alpha
        )
        _, factor = self._latent_units(vars(self))
        slopes = np.reshape(factor, (-1, 1)) * (slopes @ self.linear_map_.T)
        if not return_std:
            return self._without_axis(slopes)
        covariances = gradient.slope_covariances(model, self.kernel_, X, lists)
        half = np.einsum("de,nqef->nqdf", self.linear_map_, covariances)
        variances = np.einsum("nqdf,df->nqd", half, self.linear_map_)
        square = np.broadcast_to(factor**2 * local, slopes.shape[:2])[:, :, None]
        std = np.sqrt(square * np.maximum(variances, 0.0))
        return self._without_axis(slopes), self._without_axis(std)

    @property
    def feature_importances_(self):
        """Relevance of each column of X.

        Mean square of the slope of the latent functions' means by the column, in units
        of the robust standard deviation of the column, over at most 2,000 inducing
        points. Where the map `linear_map_` mixes columns, the slope is still that by a
        column of X.

        Returns
        -------
        importances : ndarray of shape (n_features,)
            Relevances, of sum 1, or zeros for a constant function.
        """
        square = self._squared_slopes().mean(axis=0)
        return square / max(square.sum(), np.finfo(float).tiny)

    @property
    def feature_importances_std_(self):
        """Standard errors of `feature_importances_` over rows.

        Returns
        -------
        errors : ndarray of shape (n_features,)
            Standard errors.
        """
        square = self._squared_slopes()
        total = max(square.mean(axis=0).sum(), np.finfo(float).tiny)
        return square.std(axis=0) / np.sqrt(len(square)) / total

    def lower_bound(self, X, y, sample_weight=None):
        """Return the bound of eq. 11 on given data.

        sum_n [E_q log p(y_n | f_n) - KL(q(u_w) || p(u_w)) / N] with w the inducing
        points nearest to x_n. The divergence has the weight 1 of the paper, whatever
        `kl_weight` was in training.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row.

        Returns
        -------
        bound : float
            Sum over the rows, in nats; for regression of the density of standardised y.
        """
        return self._lower_bound(self._training_rows(X, y, sample_weight))

    def _lower_bound(self, data):
        """Return the bound of eq. 11 on `TrainingRows`, not mapped yet."""
        data = data.mapped(self.linear_map_)
        model, center = self._fitted_model()
        data = data._replace(center=center)
        H = min(self.n_neighbors_, len(model.Z))
        return prediction.bound_of(model, data, H, self._evaluation)

    def _squared_slopes(self):
        """Return the squared slopes (n, D) of the latent functions' means."""
        check_is_fitted(self, "inducing_points_")
        model, _ = self._fitted_model()
        H = min(self.n_neighbors_, len(model.Z))
        return squared_slopes(
            model,
            self.kernel_,
            self.linear_map_,
            self._feature_scale,
            H,
            self._evaluation,
            self._alpha(None),
        )

    def _fitted_model(self, draws=False):
        """Return (Model, center of X), with S from draws if these are wanted."""
        attributes = with_draws(vars(self)) if draws else vars(self)
        return build_model(attributes, self._likelihood_of(attributes), self.dtype)

    def _latent_covariance(self, X, n_neighbors=None):
        """Return the covariance (n, n, Q) of q(f) at rows of X.

        Raises ValueError where it would not fit in memory.
        """
        model, X, center, H = self._model_and_rows(X, n_neighbors, draws=True)
        n, Q = len(X), model.m.shape[1]
        size, limit = 8 * n**2 * Q, self._tuning.full_covariance_bytes
        if size > limit:
            raise ValueError(
                f"return_cov=True for {n} rows and {Q} latent functions takes "
                f"{size / 2**30:.1f} GiB: expected at most {limit / 2**30:.1f} GiB; "
                "pass fewer rows, or use return_std=True or sample_f."
            )
        with self._projector(model, center, H, 0) as project:
            covariance = joint.latent_covariance(project(X))
        if self._local_scale(self._alpha(n_neighbors)) is not None:
            variance = np.einsum("iiq->iq", covariance)
            root = np.sqrt(self._exact_factor(X, variance))
            covariance *= root[:, None] * root
        return covariance

    @contextmanager
    def _projector(self, model, center, H, memory):
        """Yield a function that returns the `Projection` of rows of X."""
        with self._evaluation.engine(model, H, len(model.Z)) as engine:
            search = self._evaluation.search(engine)

            def lookup(_, block):
                return search(block)

            def project(X):
                zeros = np.zeros((len(X), 1), model.Z.dtype)
                X = mapped(X, self.linear_map_)
                data = TrainingRows(X, zeros, zeros[:, 0], center=center)
                return Projection(engine, self.kernel_, data, lookup, memory)

            yield project

    def _in_units(self, mean, variance, attributes):
        """Return mean and variance of q(f), each (n, Q), in the reported units."""
        offset, factor = self._latent_units(attributes)
        return offset + factor * mean, factor**2 * variance

    def _without_axis(self, values):
        """Return (n, Q, ...) without its second axis where there is one function."""
        return values[:, 0] if self._has_one_function() else values

    def _model_and_rows(self, X, n_neighbors, draws):
        """Return the `Model`, validated X, the center of the model, and H."""
        check_is_fitted(self, "inducing_points_")
        self._validate_params()  # `set_params` may have changed some since `fit`
        X = compat.validate(self, X, reset=False)
        model, center = self._fitted_model(draws)
        return model, X, center, self._active_count(n_neighbors, len(model.Z))

    def _latent(self, X, with_variance, n_neighbors=None, seen=None):
        """Return mean and variance (or None), each (n, Q), of q(f) at rows of X.

        `seen` is a `NearestSeen` or None.
        """
        model, X, center, H = self._model_and_rows(X, n_neighbors, with_variance)
        alpha = self._alpha(n_neighbors)
        mean = variance = None
        if with_variance or alpha is None:
            mean, variance = prediction.latent_posterior(
                model,
                X,
                self.linear_map_,
                center,
                H,
                with_variance,
                self._evaluation,
                seen,
            )
        if with_variance:
            self._warn_of_unknown_rows(model, X, variance, H)
        if with_variance and self._local_scale(alpha) is not None:
            variance *= self._exact_factor(X, variance)
        if alpha is None:
            return mean, variance
        return self._exact_mean(model, X, center, alpha), variance

    def _warn_of_unknown_rows(self, model, X, variance, H):
        """Warn if q(f) is nearly the prior at most rows of X, but not elsewhere."""
        share = share_of_unknown_rows(
            model,
            self.kernel_,
            mapped(X, self.linear_map_),
            variance,
            H,
            self._evaluation,
        )
        if share:
            warn_of_extrapolation(share, len(X))

    def _alpha(self, n_neighbors):
        """Return alpha (M, Q) where means come from all rows, or None.

        `n_neighbors` is the argument of a prediction.
        """
        if not hasattr(self, "alpha_") or n_neighbors not in (None, "all"):
            return None
        return self.alpha_.reshape(len(self.alpha_), -1)

    def _exact_mean(self, model, X, center, alpha):
        """Return the exact means (n, Q) of the latent functions at rows of X."""
        return prediction.exact_mean(
            model, X, self.linear_map_, center, alpha, self._evaluation
        )

    def _variance_factor(self, alpha, model, X, center, H):
        """Return the factors, 1.0 or (n, Q), of local variances for a `_alpha`."""
        if self._local_scale(alpha) is None:
            return 1.0
        _, v = prediction.latent_posterior(
            model, X, self.linear_map_, center, H, True, self._evaluation
        )
        return self._exact_factor(X, v)

    def _local_scale(self, alpha):
        """Return the scale of local variances for a `_alpha`, or None for no scale."""
        if hasattr(self, "variance_scale_"):
            return None if self.variance_scale_ == 1.0 else self.variance_scale_
        # neither sites nor few rows, whose variances are exact, have a scale
        return None if alpha is None else getattr(self, "local_variance_scale_", None)

    def _exact_factor(self, X, variance):
        """Return by what their scale multiplies local variances (n, Q) at rows of X."""
        prior = self.kernel_.diag(mapped(X, self.linear_map_))[:, None]
        scale = self._local_scale(self._alpha("all"))
        exact = exact_variance(variance, prior, scale)
        return exact / np.maximum(variance, np.finfo(float).tiny)

    @property
    def _evaluation(self):
        """How a fitted model is evaluated."""
        options = {"search": self.neighbor_search}
        return prediction.Evaluation(self.device, self.n_jobs, options)

    def _active_count(self, n_neighbors, M):
        if n_neighbors is None or self._alpha(n_neighbors) is not None:
            return min(self.n_neighbors_, M)
        if n_neighbors == "all":
            return M
        otherwise = ", 'all', or None for what was used in fit"
        return min(count("n_neighbors", n_neighbors, otherwise), M)


def count(name, value, otherwise=""):
    """Return an argument that must be a positive integer; raise ValueError if not."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r}: expected a positive integer{otherwise}.")
    return int(value)
