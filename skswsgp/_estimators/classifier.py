"""Classification with a Sparse-within-Sparse Gaussian process."""

from contextlib import contextmanager

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from skswsgp._cluster.predictions import by_blocks
from skswsgp._estimators.base import BaseSWSGP
from skswsgp._estimators.given import learns_streams
from skswsgp._estimators.shared_docs import with_shared_text
from skswsgp._estimators.sklearn_compat import (
    ScoreMixin,
    check_weights,
    set_arguments,
)
from skswsgp._point.likelihood_records import LIKELIHOODS


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
        and only Adam changes it. See "How is it fitted?".
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
    "What is in a fitted model?" says more of each attribute.

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
        self, kernel=None, *, x_transform="auto", learn_map="auto", n_inducing="auto",
        n_neighbors="auto", inducing_points="kmeans", covariance="auto",
        neighbor_search="exact", learn_kernel=True, likelihood="auto",
        class_weight=None, solver="natural", warm_start=False, device="auto",
        n_jobs=None, dtype="float64", random_state=None, verbose=0,
    ):  # fmt: skip
        set_arguments(self, locals())

    @available_if(learns_streams)
    def partial_fit(self, X, y, classes=None, sample_weight=None):
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
        if classes is not None:
            self._validate_params()
            classes = distinct_labels(classes)
            self._require_labels(classes)
        elif hasattr(self, "_stream"):
            classes = self.classes_
        with self._announced(classes):
            return self._partial_fit(X, y, sample_weight)

    @contextmanager
    def _announced(self, classes):
        """Let rows show a part of some `classes` only, within a context."""
        self._announced_classes = classes
        try:
            yield
        finally:
            del self._announced_classes

    def _brings_news(self, stream, y):
        return len(np.setdiff1d(y, stream.y)) > 0  # the first rows of a class

    def _announcing(self, elsewhere):
        classes = distinct_labels(elsewhere.labels(distinct_labels))
        self._require_labels(classes)
        weights = self.class_weight or {}
        dropped = [one for one in classes.tolist() if weights.get(one) == 0.0]
        if dropped:  # as rows of no weight are in memory
            elsewhere.drop(dropped)
            classes = classes[~np.isin(classes, dropped)]
        return self._announced(classes)

    def _require_labels(self, classes):
        """Raise ValueError if `class_weight` names a label that is no class."""
        known = classes.tolist()
        unknown = [one for one in self.class_weight or () if one not in known]
        if unknown:
            raise ValueError(
                f"class_weight has a weight for {unknown[0]!r}: expected labels of "
                f"y, such as {known[0]!r}; leave it out."
            )

    @by_blocks
    def predict_proba(self, X, *, n_neighbors=None):
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

    @by_blocks
    def predict_log_proba(self, X, *, n_neighbors=None):
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

    @by_blocks
    def decision_function(self, X, *, n_neighbors=None):
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

    @by_blocks
    def predict(self, X, *, n_neighbors=None):
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
        record = LIKELIHOODS[self._likelihood_of(vars(self))[0]]
        return record, self._in_units(*moments, vars(self))

    def _weigh_targets(self, X, y, weight, reset):
        if self.class_weight is None:
            return weight
        classes = distinct_labels(y)
        codes = np.searchsorted(classes, y)
        if self.class_weight == "balanced":
            counts = np.bincount(codes, weight)
            present = np.maximum(counts, np.finfo(float).tiny)
            factors = counts.sum() / (np.count_nonzero(counts) * present)
        else:
            if reset and getattr(self, "_announced_classes", None) is None:
                self._require_labels(classes)
            factors = np.array([self.class_weight.get(one, 1.0) for one in classes])
        return check_weights(weight * factors[codes], X, self.dtype)

    def _learn_targets(self, X, rows, y, weight, free):
        announced = getattr(self, "_announced_classes", None)
        return {"classes_": distinct_labels(y) if announced is None else announced}

    def _encode_targets(self, y, attributes, exposure=None):
        present, classes = distinct_labels(y), attributes["classes_"]
        announced = getattr(self, "_announced_classes", None)
        if announced is not None and not np.array_equal(announced, classes):
            raise ValueError(
                f"classes={list(map(str, announced))} differ from the "
                f"{list(map(str, classes))} of the first call: pass the same again."
            )
        require_two(classes)
        unknown = np.setdiff1d(present, classes)
        if len(unknown):
            raise ValueError(
                f"y holds the label {unknown[0]}: expected one of "
                f"{', '.join(map(str, classes))}, the classes of the first fit."
            )
        record = self._record_of(len(classes))
        return record.encode(np.searchsorted(classes, y), len(classes))

    def _record_of(self, n_classes):
        """Return the record of the likelihood for so many classes."""
        name = self.likelihood
        if name == "auto":
            name = "bernoulli" if n_classes == 2 else "softmax"
        record = LIKELIHOODS[name]
        if n_classes > 2 and not record.joint:
            raise ValueError(
                f"likelihood={name!r} with {n_classes} classes: expected two; use "
                "'softmax' or 'auto'."
            )
        return record

    def _likelihood_of(self, attributes):
        n_classes = len(attributes["classes_"])
        record = self._record_of(n_classes)
        self._require_likelihood_of_fit(record.name, attributes)
        return record.name, record.count_latent(n_classes)

    def _latent_units(self, attributes):
        prior_mean = np.asarray(attributes.get("prior_mean_", 0.0), self.dtype)
        return prior_mean, 1.0

    def _has_one_function(self):
        return self._likelihood_of(vars(self))[1] == 1

    def _stratify(self, y, fraction):
        _, counts = np.unique(y, return_counts=True)
        smaller = int(min(fraction, 1.0 - fraction) * len(y))
        return y if counts.min() > 1 and smaller >= len(counts) else None


def distinct_labels(y):
    """Return the sorted distinct labels; raise ValueError if they are no labels."""
    kind = type_of_target(y)
    if kind == "continuous":
        raise ValueError(
            f"Unknown label type: {kind}: y holds numbers such as {np.min(y)!s}, which "
            "are no labels; use SWSGPRegressor for numbers, or np.digitize for classes."
        )
    try:
        check_classification_targets(y)
        return np.unique(y)
    except (TypeError, ValueError):
        types = sorted({type(label).__name__ for label in np.ravel(y)})
        if len(types) == 1:
            raise
    raise ValueError(
        f"labels of the types {', '.join(types)}: expected labels of one type; "
        "convert them, for example with np.asarray(y, dtype=str)."
    )


def require_two(classes):
    """Raise ValueError unless there are two classes or more."""
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only ({classes[0]}): expected two or more."
        )
