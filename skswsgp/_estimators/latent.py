"""What a fitted estimator knows of its latent functions, at any rows."""

from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.hints import Floats, Neighbors, PerRow, Result, Seed
from skswsgp._estimators.shared_docs import with_shared_text
from skswsgp._posterior import extrapolation
from skswsgp._posterior.near_sites import known_sites
from skswsgp._posterior.prediction import Posterior
from skswsgp._rows.support import EVERYWHERE
from skswsgp._solvers.model import build_model, with_factor


@with_shared_text
class LatentFunctionsMixin:
    """Predictions of latent functions, one row at a time and jointly."""

    def latent_mean_and_variance(
        self, X: ArrayLike, *, n_neighbors: Neighbors = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predict mean and variance of the latent functions, without noise.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        $n_neighbors

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_latent)
            Mean of q(f), eq. 13. For regression in the units of y, or on the scale of
            `y_transform_`, or for counts the logarithm of their rate, one function for
            each output; for classes before the link, one function for two classes and
            else one for each class.
        variance : ndarray of the same shape
            Variance of q(f), too small for some `covariance`.
        """
        mean, variance = self._latent(X, True, n_neighbors)
        mean, variance = self._in_units(mean, variance)
        return self._without_axis(mean), self._without_axis(variance)

    def sample_f(
        self, X: ArrayLike, n_samples: int = 1, random_state: Seed = 0, *,
        n_neighbors: Neighbors = None,
    ) -> Floats:  # fmt: skip
        """Draw latent functions from q(f), and evaluate them at rows of X.

        Calls with the same `random_state`, an integer, evaluate the same functions, at
        any rows. See "Joint predictions, covariances and samples".

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
            Inputs.
        n_samples : int, default=1
            Number of functions.
        random_state : int, RandomState instance or None, default=0
            Which functions are drawn.
        $n_neighbors

        Returns
        -------
        values : ndarray of shape (n_samples_X, n_samples) or \
                (n_samples_X, n_latent, n_samples)
            Values of the functions, in the units of `latent_mean_and_variance`, whose
            mean and variance they have.

        Raises
        ------
        ValueError
            If the kernel holds a WhiteKernel or a power that is no integer.
        """
        from skswsgp.joint import sample_functions

        n_samples = count("n_samples", n_samples)
        return sample_functions(self, X, n_samples, random_state, n_neighbors)

    def is_novel(self, X: ArrayLike) -> np.ndarray:
        """Tell which rows are of a kind that training rows have not shown.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.

        Returns
        -------
        novel : ndarray of shape (n_samples,), bool
            Whether a row is of a level of a one-hot or ordinal encoded category that
            training never had, lies further outside the training range of a column than
            that range is wide, or lies where the model knows next to nothing, with more
            than 95 % of the prior variance of all latent functions. See "New categories
            and extrapolation".
        """
        from skswsgp.explain import novel_rows

        return novel_rows(self, X)

    def predict_gradient(
        self, X: ArrayLike, return_std: bool = False, *, n_neighbors: Neighbors = None
    ) -> Result:
        """Predict the derivatives of the latent functions by the columns of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Whether to return standard deviations as well, which take some
            milliseconds a row.
        $n_neighbors

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
        from skswsgp.explain import gradient_and_std

        X = self._checked(X)
        slopes, std = gradient_and_std(self, X, return_std, n_neighbors)
        slopes = self._without_axis(slopes)
        return (slopes, self._without_axis(std)) if return_std else slopes

    @property
    def feature_importances_(self) -> Floats:
        """Relevance of each column of X.

        Mean square of the slope of the latent functions' means by the column, in units
        of the column's robust standard deviation, over at most 2,000 inducing points.
        See "Feature importance and linear maps".

        Returns
        -------
        importances : ndarray of shape (n_features,)
            Relevances, of sum 1, or zeros for a constant function.
        """
        square = self._squared_slopes().mean(axis=0)
        return square / max(square.sum(), np.finfo(float).tiny)

    @property
    def feature_importances_std_(self) -> Floats:
        """Standard errors of `feature_importances_` over rows.

        Returns
        -------
        errors : ndarray of shape (n_features,)
            Standard errors.
        """
        square = self._squared_slopes()
        total = max(square.mean(axis=0).sum(), np.finfo(float).tiny)
        return square.std(axis=0) / np.sqrt(len(square)) / total

    def describe(self, n_directions: int = 5) -> str:
        """Say in words what was learned, and which columns matter.

        Parameters
        ----------
        n_directions : int, default=5
            Largest number of directions.

        Returns
        -------
        text : str
            What is known of y, the inducing points, the kernel by names of columns,
            the noise and the law of observations, how many training rows intervals hold
            that do not know them, and what the fit warned of. Then a line for each
            direction of the columns, the most important first: how many length-scales a
            step of one spread along it is, and its columns with the largest shares; see
            "Feature importance and linear maps". Notebooks show it as HTML.
        """
        from skswsgp.explain import describe

        check_is_fitted(self, "inducing_points_")
        return describe(self, n_directions)

    def lower_bound(
        self, X: ArrayLike, y: ArrayLike, sample_weight: PerRow = None
    ) -> float:
        """Return the bound of eq. 11 on given data.

        $rows_of_bound

        Returns
        -------
        bound : float
            Sum over the rows, in nats; for regression of the density of standardised y.
        """
        data = self._training_rows(X, y, sample_weight)
        return self._posterior().bound(data)

    def _get_doc_link(self):
        from skswsgp.explain import page_of

        return page_of(self)

    def _squared_slopes(self):
        """Return the squared slopes (n, D) of the latent functions' means."""
        from skswsgp.explain import squared_slopes

        check_is_fitted(self, "inducing_points_")
        return squared_slopes(self)

    def _in_units(self, mean, variance):
        """Return mean and variance of q(f), each (n, Q), in the reported units."""
        offset, factor = self._targets(vars(self)).units(vars(self))
        return offset + factor * mean, factor**2 * variance

    def _without_axis(self, values):
        """Return (n, Q, ...) without its second axis where there is one function."""
        return values[:, 0] if self._targets(vars(self)).is_single else values

    def _latent(self, X, with_variance=True, n_neighbors=None):
        """Return mean and variance (or None), each (n, Q), of q(f) at rows of X."""
        posterior, X = self._posterior_and_rows(X, n_neighbors)
        return self._moments(posterior, X, with_variance)

    def _moments(self, posterior, X, with_variance=True, seen=None):
        """Return mean and variance (or None), each (n, Q), of q(f) at validated rows.

        `seen` is a `NearestSeen` that the lists of neighbours are shown to, or None.
        """
        mean, variance = posterior.moments(X, with_variance, seen)
        if with_variance:
            self._warn_of_unknown_rows(posterior, X, variance)
        return mean, variance

    def _warn_of_unknown_rows(self, posterior, X, variance):
        """Warn if q(f) is nearly the prior at most rows of X, but not elsewhere."""
        share = extrapolation.share_of_unknown_rows(posterior, X, variance)
        if share:
            extrapolation.warn_of_extrapolation(share, len(X))

    def _checked(self, X):
        """Return validated rows for a prediction."""
        check_is_fitted(self, "inducing_points_")
        self._validate_params()  # `set_params` may have changed some since `fit`
        return compat.validate(self, X, reset=False)

    def _posterior_and_rows(self, X, n_neighbors, joint=False):
        """Return the `Posterior`, and validated X on its scale; see `_posterior`."""
        X = self._on_scale(self._checked(X))
        return self._posterior(n_neighbors, joint), X

    def _on_scale(self, X):
        """Return validated rows with columns as the kernel reads them."""
        return X if self._columns is None else self._columns.forward(X)

    @property
    def _columns(self):
        """The scale of the columns that the kernel reads, or None for X as it is."""
        return getattr(self, "x_transform_", None)

    def _posterior(self, n_neighbors=None, joint=False):
        """Return the `Posterior`, with all of S where it is for `joint` predictions.

        `n_neighbors` is the argument of a prediction.
        """
        attributes = vars(self)
        if joint or not hasattr(self, "site_precision_"):
            attributes = with_factor(attributes, self._factor_of_covariance())
        targets = self._targets(attributes)
        likelihood = targets.likelihood, targets.n_latent
        model, center = build_model(attributes, likelihood, self.dtype)
        M, alpha = len(model.Z), None
        if n_neighbors in (None, "all") and hasattr(self, "alpha_"):
            alpha = self.alpha_.reshape(M, -1)
        sites = known_sites(vars(self), self._tuning.variance_neighbors)
        scale = getattr(self, "variance_scale_", 1.0)
        scale = None if scale == 1.0 else scale
        if n_neighbors is None or alpha is not None:
            H = self.n_neighbors_
        elif n_neighbors == "all":
            H = M
        else:
            otherwise = ", 'all', or None for what was used in fit"
            H = count("n_neighbors", n_neighbors, otherwise)
        return Posterior(
            model, self.kernel_, self.linear_map_, center, min(H, M), self.device,
            self.n_jobs, {"search": self.neighbor_search}, alpha, scale, sites,
            getattr(self, "_support", EVERYWHERE).categories,
        )  # fmt: skip

    def _factor_of_covariance(self):
        """Return a factor (M, k, Q) of S, or None where the model has S as it is.

        Where sites tell variances, the first call makes it, which may take long.
        """
        draws = getattr(self, "posterior_draws_", None)
        if draws is not None:
            return draws.reshape(*draws.shape[:2], -1) / np.sqrt(draws.shape[1])
        if not hasattr(self, "site_precision_"):
            return None
        factor = getattr(self, "_covariance_factor", None)
        if factor is None:
            from skswsgp.joint import factor_from_sites

            factor = self._covariance_factor = factor_from_sites(self)
        return factor


def count(name, value, otherwise=""):
    """Return an argument that must be a positive integer; raise ValueError if not."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r}: expected a positive integer{otherwise}.")
    return int(value)
