"""Classification with a Sparse-within-Sparse Gaussian process."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils._param_validation import StrOptions

from skswsgp._estimators.base import BaseSWSGP, GivenRows
from skswsgp._estimators.given import streams_only
from skswsgp._estimators.hints import Floats, Neighbors, PerRow, Seed, Solver
from skswsgp._estimators.shared_docs import with_shared_text
from skswsgp._estimators.sklearn_compat import ScoreMixin, set_arguments, with_callbacks
from skswsgp._fit import targets


@with_shared_text
class SWSGPClassifier(ScoreMixin, ClassifierMixin, BaseSWSGP):
    """Gaussian process classification where each row uses its nearest inducing points.

    A Gaussian process judges a row by rows that are like it, as a kernel says. Two
    classes have one latent function, which a link turns into probabilities, and more
    classes have one each and a softmax. M inducing points stand for the table, and each
    row uses the H nearest of them, so it costs O(H^3) [1]_. The defaults suit most
    tables. Titles in quotes are pages of the user guide, in the folder doc/user_guide.

    Parameters
    ----------
    $model_parameters
    learn_kernel : bool, default=True
        Whether the kernel is learned from rows first. If not, it starts as it is given,
        and only Adam changes it. See "Fitting and solvers".
    likelihood : {"auto", "bernoulli", "logit", "softmax"}, default="auto"
        Link: "bernoulli" (probit) or "logit" for two classes, "softmax" for any number.
        "auto" is the probit for two classes. With the logit a label that contradicts
        the function costs less, and latent functions are log odds.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes by label, which multiply `sample_weight` in training.
        Labels that a dict leaves out have weight 1. "balanced" gives all classes the
        same sum of weights, and rows a mean weight as without it. Probabilities are
        then those of a population in which the classes have these shares.
    $training_parameters

    Attributes
    ----------
    classes_, likelihood_ : ndarray of shape (n_classes,), str
        The labels, and the likelihood of the fit.
    $attributes
    prior_mean_ : ndarray of shape (n_latent,)
        Means of the latent functions far from the data, which give classes their shares
        in the training data.
    variance_scale_ : float
        Factor of small variances of the latent functions in predictions.

    See Also
    --------
    SWSGPRegressor : Regression with the same model of latent functions.

    Notes
    -----
    "Attributes of a fitted model" says more of each attribute.

    References
    ----------
    $references

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skswsgp import SWSGPClassifier
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> model = SWSGPClassifier(n_inducing=30, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        **BaseSWSGP._parameter_constraints,
        "likelihood": [StrOptions({"auto", "bernoulli", "logit", "softmax"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }
    _target_checks = {}  # noqa: RUF012

    def __init__(
        self, kernel: Kernel | None = None, *, x_transform: str | None = "auto",
        learn_map: bool | str = "auto", n_inducing: int | str = "auto",
        n_neighbors: int | str = "auto", inducing_points: ArrayLike = "kmeans",
        covariance: str = "auto", neighbor_search: str = "exact",
        learn_kernel: bool = True, likelihood: str = "auto",
        class_weight: dict | str | None = None, solver: Solver = "natural",
        warm_start: bool = False, device: str = "auto", n_jobs: int | None = None,
        dtype: str = "float64", random_state: Seed = None, verbose: int = 0,
    ):  # fmt: skip
        set_arguments(self, locals())

    @streams_only
    @with_callbacks
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None,
        sample_weight: PerRow = None,
    ) -> Self:  # fmt: skip
        """Learn from one more chunk of a stream, in one pass.

        $how_streams_learn

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs of the chunk.
        y : array-like of shape (n_samples,)
            Labels of the chunk.
        classes : array-like of shape (n_classes,), default=None
            All labels that any chunk may hold. None in the first call means that the
            first chunk holds all of them.
        sample_weight : array-like of shape (n_samples,), default=None
            How many observations each row of the chunk counts as.

        Returns
        -------
        self : object
            The estimator.

        Raises
        ------
        ValueError
            After a fit that kept no rows.
        AttributeError
            With the solver Adam.
        """
        if self.class_weight == "balanced":
            raise ValueError(
                "partial_fit with class_weight='balanced': expected None or a dict, "
                "for a chunk does not know the shares of all classes."
            )
        self._validate_params()
        from skswsgp.streams import learn_chunk

        return learn_chunk(self, GivenRows(X, y, sample_weight), classes)

    def predict_proba(self, X: ArrayLike, *, n_neighbors: Neighbors = None) -> Floats:
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        $n_neighbors

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Probabilities, columns in the order of `classes_`.
        """
        record, moments = self._record_and_moments(X, n_neighbors)
        return record.probabilities(*moments)

    def predict_log_proba(
        self, X: ArrayLike, *, n_neighbors: Neighbors = None
    ) -> Floats:
        """Predict the logarithm of the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        $n_neighbors

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
            Logarithms of `predict_proba`, all finite: probabilities that round to zero
            have their own under the probit and the softmax, and that of the smallest
            normal number under the logit.
        """
        record, moments = self._record_and_moments(X, n_neighbors)
        return record.log_probabilities(*moments)

    def decision_function(
        self, X: ArrayLike, *, n_neighbors: Neighbors = None
    ) -> Floats:
        """Predict log odds of two classes, or log probabilities of more.

        They put rows in the order of their probabilities, as the mean of the latent
        function does not where its variance varies, and `predict` takes the class of
        the largest, or the second class where log odds are positive.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        $n_neighbors

        Returns
        -------
        decision : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Log odds of the second of two classes, or logarithms of `predict_proba`.
        """
        logs = self.predict_log_proba(X, n_neighbors=n_neighbors)
        return logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs

    def predict(self, X: ArrayLike, *, n_neighbors: Neighbors = None) -> np.ndarray:
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        $n_neighbors

        Returns
        -------
        label : ndarray of shape (n_samples,)
            Labels.
        """
        best = self.predict_proba(X, n_neighbors=n_neighbors).argmax(axis=1)
        return self.classes_[best]

    def _record_and_moments(self, X, n_neighbors):
        """Return the record of the likelihood, and moments (n, Q) of f at rows."""
        moments = self._latent(X, n_neighbors=n_neighbors)
        return self._targets(vars(self)).record, self._in_units(*moments)

    def _weigh_targets(self, y, weight, all_classes):
        if isinstance(self.class_weight, dict) and all_classes:
            targets.require_labels(self.class_weight, targets.distinct_labels(y))
        return targets.weigh_classes(self.class_weight, y, weight, self.dtype)

    def _learn_targets(self, rows, settings, *, free, classes=None):
        classes = targets.distinct_labels(rows.y) if classes is None else classes
        return self._targets({"classes_": classes})

    def _targets(self, attributes):
        classes = attributes["classes_"]
        targets.require_two(classes)
        name = targets.link_of(self.likelihood, len(classes))
        self._require_likelihood_of_fit(name, attributes)
        return targets.ClassTargets(name, classes, self.dtype)
