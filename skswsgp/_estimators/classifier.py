"""Classification with a Sparse-within-Sparse Gaussian process."""

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets

from skswsgp._estimators.base import BaseSWSGP
from skswsgp._point.likelihoods import LIKELIHOODS


class SWSGPClassifier(ClassifierMixin, BaseSWSGP):
    """Gaussian process classification where each row uses its nearest inducing points.

    Two classes have one latent function and a probit link, p(y = 1 | f) = Phi(f), whose
    predictive probability Phi(mu / sqrt(1 + v)) is exact for q(f) = N(mu, v). More
    classes have one latent function each and a softmax; all share the kernel, the
    inducing inputs and the neighbours [1]_.

    Parameters
    ----------
    kernel : kernel object of scikit-learn, default=None
        See :class:`SWSGPRegressor`.
    n_inducing : int or "auto", default="auto"
        M, the number of inducing points; see :class:`SWSGPRegressor`.
    n_neighbors : int or "auto", default="auto"
        H, the number of inducing points that a row uses; see :class:`SWSGPRegressor`.
    inducing_points : {"kmeans", "random"} or array-like of shape (n_inducing, \
            n_features), default="kmeans"
        Inducing inputs at the start.
    optimize_inducing : bool, default=False
        Whether inducing inputs are trained too; see :class:`SWSGPRegressor`.
    covariance : {"auto", "diag", "full"}, default="auto"
        Covariance S of q(u); see :class:`SWSGPRegressor`. Here "auto" is always "diag"
        with `solver="natural"`.
    neighbor_metric : {"kernel", "euclidean", "random"}, default="kernel"
        Which inducing points are nearest.
    neighbor_search : {"auto", "brute", "kd_tree", "pynndescent"}, default="auto"
        How they are found.
    kl : {"auto", "vecchia", "local"}, default="auto"
        Prior of the inducing values; see :class:`SWSGPRegressor`.
    kl_weight : float or "auto", default="auto"
        Weight beta of the divergence of q(u) from its prior; 1.0 is the paper's.
    init : {"local", "default"}, default="local"
        Where kernel parameters start: as given ("default"), or learned first by
        regression of the classes, coded as numbers ("local"). For `solver="natural"`
        the kernel is then refined on the Gaussian sites of its own posterior. The
        kernel that predicts held-out rows best is kept, and the fit uses all rows.
    likelihood : {"auto", "bernoulli", "softmax"}, default="auto"
        "auto" is "bernoulli" (probit) for two classes, "softmax" for more.
    solver : {"natural", "adam"}, default="natural"
        How q(u) is found: "natural" takes natural-gradient steps that are solved in
        closed form, with the kernel as it is after `init` [2]_; "adam" is stochastic
        gradient ascent on minibatches, Algorithm 1 of [1]_, which trains kernel and
        inducing inputs as well. `partial_fit` always takes steps of Adam.
    batch_size : int, default=64
        Rows a step.
    learning_rate : float, default=0.02
        Step of Adam at the start; it falls along half a cosine to a hundredth over
        `max_iter` epochs.
    max_iter : int, default=200
        Largest number of epochs of Adam. The learning rate falls over as many epochs,
        so a fit normally ends there, without a `ConvergenceWarning`. The natural solver
        needs a few rounds at most.
    tol : float, default=1e-5
        An epoch that improves the best loss, or the best validation score, by less
        than this counts as no change.
    n_iter_no_change : int, default=10
        Training stops after this many epochs without change.
    early_stopping : bool or "auto", default="auto"
        Whether to hold out rows, to stop when their predictive density no longer rises,
        and to keep the best epoch. "auto" does so for more than 10,000 rows with
        `solver="adam"`, and for more than 1,000 with "natural" where inducing inputs
        are trained.
    validation_fraction : float, default=0.1
        Fraction of the rows that early stopping holds out.
    warm_start : bool, default=False
        Whether `fit` starts from the fitted model. Its kernel, inducing points and H
        then stay.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where the model is trained and evaluated. "cuda" is an NVIDIA GPU and needs the
        extra `cuda12` or `cuda13`. With `solver="natural"` some parts stay on the CPU:
        solves with the Vecchia prior, systems of a full S and of `kl="local"`, and
        trials of kernels on held-out rows. "auto" is the CPU, or an idle GPU for work
        that would take one core about ten minutes. A fitted model can be used on either
        device.
    n_jobs : int, default=None
        Number of threads; None takes all that Numba may use.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the computations, and of `predict_proba`.
    random_state : int, RandomState instance or None, default=None
        Seeds the choice of inducing points and held-out rows, and shuffling.
    verbose : int, default=0
        Prints a line for each epoch or round if positive.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    kernel_ : kernel object
        Kernel with the learned parameters, in the units of X.
    inducing_points_ : ndarray of shape (n_inducing_, n_features)
        Inducing inputs, in the units of X.
    inducing_mean_ : ndarray of shape (n_inducing_,) or (n_inducing_, n_classes)
        Mean m of q(u).
    inducing_covariance_ : ndarray
        With a diagonal covariance the variances, of the shape of `inducing_mean_`; with
        a full one the lower factor L of S = L L', of shape (n_inducing_, n_inducing_)
        or (n_inducing_, n_inducing_, n_classes).
    variance_scale_ : float
        Factor of the variance of q(f) in predictions, because a diagonal S makes it too
        small or too large. With `init="local"` and the natural solver it makes held-out
        rows likeliest; otherwise it is 1. Means do not depend on it.
    n_inducing_, n_neighbors_ : int
        M and H used.
    kl_weight_ : float
        Weight beta used.
    jitter_ : float
        Jitter added to the diagonal of K, relative to the mean of the diagonal.
    lower_bound_ : float
        Bound on the log likelihood of the training rows, in nats: eq. 11, averaged over
        the last epoch of Adam or after the last natural round. With `kl="vecchia"` the
        divergence is that from the Vecchia prior.
    loss_curve_ : list of float
        Negative training objective of each epoch or round, a mean over rows.
    best_loss_ : float
        Least of `loss_curve_`.
    validation_scores_ : list of float or None
        Weighted mean log probability of the held-out labels after each epoch.
    n_iter_ : int
        Epochs run.
    n_samples_seen_ : float
        Sum of the weights of all training rows.
    neighbor_recall_ : float
        Fraction of the exact neighbours that the search finds, on a sample of rows.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had any.

    See Also
    --------
    SWSGPRegressor : Regression with the same model of latent functions.

    References
    ----------
    .. [1] G.-L. Tran, D. Milios, P. Michiardi, M. Filippone, "Sparse within Sparse
       Gaussian Processes using Neighbor Information", ICML 2021.
    .. [2] M. E. Khan, W. Lin, "Conjugate-Computation Variational Inference", AISTATS
       2017; with the prior of L. Wu, G. Pleiss, J. P. Cunningham, "Variational Nearest
       Neighbor Gaussian Process", ICML 2022.

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
        "likelihood": [StrOptions({"auto", "bernoulli", "softmax"})],
    }
    _target_checks = {}  # noqa: RUF012

    def __init__(
        self,
        kernel=None,
        *,
        n_inducing="auto",
        n_neighbors="auto",
        inducing_points="kmeans",
        optimize_inducing=False,
        covariance="auto",
        neighbor_metric="kernel",
        neighbor_search="auto",
        kl="auto",
        kl_weight="auto",
        init="local",
        likelihood="auto",
        solver="natural",
        batch_size=64,
        learning_rate=0.02,
        max_iter=200,
        tol=1e-5,
        n_iter_no_change=10,
        early_stopping="auto",
        validation_fraction=0.1,
        warm_start=False,
        device="auto",
        n_jobs=None,
        dtype="float64",
        random_state=None,
        verbose=0,
    ):
        self.kernel = kernel
        self.n_inducing = n_inducing
        self.n_neighbors = n_neighbors
        self.inducing_points = inducing_points
        self.optimize_inducing = optimize_inducing
        self.covariance = covariance
        self.neighbor_metric = neighbor_metric
        self.neighbor_search = neighbor_search
        self.kl = kl
        self.kl_weight = kl_weight
        self.init = init
        self.likelihood = likelihood
        self.solver = solver
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.warm_start = warm_start
        self.device = device
        self.n_jobs = n_jobs
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Learn from one more chunk of a stream: one epoch at a constant rate.

        The first chunk sets inducing points and the start of the kernel. Later chunks
        continue from there.

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
        """
        self._announced_classes = None if classes is None else distinct_labels(classes)
        try:
            return self._partial_fit(X, y, sample_weight)
        finally:
            del self._announced_classes

    def predict_proba(self, X, n_neighbors=None):
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        n_neighbors : int, default=None
            Number of inducing points that a row uses, if not `n_neighbors_`.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Probabilities, columns in the order of `classes_`.
        """
        mu, v = self._latent(X, True, n_neighbors)
        record = self._record_of(len(self.classes_))
        return record.probabilities(mu, scaled_variance(v, vars(self)))

    def predict(self, X, n_neighbors=None):
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        n_neighbors : int, default=None
            Number of inducing points that a row uses, if not `n_neighbors_`.

        Returns
        -------
        label : ndarray of shape (n_samples,)
            Labels.
        """
        best = self.predict_proba(X, n_neighbors).argmax(axis=1)
        return self.classes_[best]

    def _encode_targets(self, y, sample_weight, fitted):
        present = distinct_labels(y)
        announced = getattr(self, "_announced_classes", None)
        classes = fitted.get("classes_", announced)
        if classes is None:
            classes = present
        if announced is not None and not np.array_equal(announced, classes):
            raise ValueError(
                f"classes={list(map(str, announced))} differ from the "
                f"{list(map(str, classes))} of the first call: pass the same again."
            )
        if len(classes) < 2:
            raise ValueError(
                f"y holds one class only ({classes[0]}): expected two or more."
            )
        unknown = np.setdiff1d(present, classes)
        if len(unknown):
            raise ValueError(
                f"y holds the label {unknown[0]}: expected one of "
                f"{', '.join(map(str, classes))}, the classes of the first fit."
            )
        labels = np.searchsorted(classes, y)
        attributes = {"classes_": classes}
        record = self._record_of(len(classes))
        return record.encode(labels, len(classes)), attributes

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
        return record.name, record.count_latent(n_classes)

    def _log_density(self, mu, v, targets, attributes):
        record = self._record_of(max(2, mu.shape[1]))
        return record.log_density(mu, scaled_variance(v, attributes), targets)

    def _stratify(self, y, fraction):
        _, counts = np.unique(y, return_counts=True)
        smaller = int(min(fraction, 1.0 - fraction) * len(y))
        return y if counts.min() > 1 and smaller >= len(counts) else None


def distinct_labels(y):
    """Return the sorted distinct labels; raise ValueError if they have no order."""
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


def scaled_variance(v, attributes):
    """Return variances multiplied by `variance_scale_`, if there is one."""
    return attributes.get("variance_scale_", 1.0) * v
