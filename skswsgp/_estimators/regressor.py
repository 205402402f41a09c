"""Regression with a Sparse-within-Sparse Gaussian process."""

from numbers import Real

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils._param_validation import Interval, StrOptions

from skswsgp._estimators.base import BaseSWSGP
from skswsgp._estimators.sklearn_compat import as_numbers, check_outputs
from skswsgp._initialization.statistics import mean_and_scale
from skswsgp._point.likelihoods import LIKELIHOODS


class SWSGPRegressor(MultiOutputMixin, RegressorMixin, BaseSWSGP):
    """Gaussian process regression in which each row uses its nearest inducing points.

    A sparse variational Gaussian process keeps M inducing points and pays O(M^3) a
    training step. Here each row uses only its H nearest inducing points, so it costs
    O(H^3), in training and in prediction [1]_.

    Parameters
    ----------
    kernel : kernel object of scikit-learn, default=None
        Covariance of the latent function, in the units of X. Training starts at its
        parameters; those with ``"fixed"`` bounds stay. It may combine
        `ConstantKernel`, `RBF`, `Matern` (nu 0.5, 1.5, 2.5, inf),
        `RationalQuadratic`, `DotProduct`, `WhiteKernel`, `Exponentiation`, sums,
        products, and :class:`skswsgp.kernels.Polynomial` and
        :class:`skswsgp.kernels.ArcCosine`. None is a variance times a Matern kernel
        with one length-scale for each feature. The length-scales start at the spread of
        the features. `init="local"` chooses the smoothness nu, which is 2.5 otherwise.
    n_inducing : int or "auto", default="auto"
        M, the number of inducing points, at most the number of distinct rows. "auto"
        takes all points that `inducing_points` gives. Otherwise it is 256 with
        `solver="adam"`. With "natural" it is the number of rows, up to a limit of
        8,000,000 / n_features, which is at least 100,000 and at most 1,000,000.
    n_neighbors : int or "auto", default="auto"
        H, the number of inducing points that a row uses, at most M. H = M is the
        ordinary sparse variational Gaussian process. "auto" is 16 with
        `solver="adam"`. With "natural" it is (6e10 / n_samples)^(1/3), at least 16 and
        at most 192, so that the time of a fit grows with the number of rows only.
    inducing_points : {"kmeans", "random"} or array-like of shape (n_inducing, \
            n_features), default="kmeans"
        Inducing inputs at the start: centres of k-means (random rows where there are
        more than 20,000), random rows, or the given points, in the units of X.
        Duplicates are removed.
    optimize_inducing : bool, default=False
        Whether inducing inputs are trained too. The natural solver then takes turns
        with epochs of Adam, for six rounds. The best round is kept, as held-out rows or
        else the loss tell.
    covariance : {"auto", "diag", "full"}, default="auto"
        Covariance S of q(u). "diag" makes the variance of the function too small where
        rows are dense. "full" needs M^2 numbers in the fitted model and its pickle.
        With `solver="natural"` it costs O(M^3) and needs `kl="vecchia"`; "auto" is then
        "full" up to 2,048 rows of one output, and "diag" beyond or with trained
        inducing inputs. With "adam" it costs O(M H^2) more work a row; "auto" is then
        "full" while S, its moments and gradients fit in 4 MiB.
    neighbor_metric : {"kernel", "euclidean", "random"}, default="kernel"
        Which inducing points are nearest to a row: those of largest covariance (for
        stationary kernels, of smallest distance in length-scales), those of smallest
        distance in the units of X, or random ones, for comparison.
    neighbor_search : {"auto", "brute", "kd_tree", "pynndescent"}, default="auto"
        How the nearest are found. All searches but "pynndescent" are exact. Lists of
        neighbours are stored if they fit into scikit-learn's `working_memory`.
    kl : {"auto", "vecchia", "local"}, default="auto"
        Prior of the inducing values. In "vecchia" each inducing value depends on its H
        nearest predecessors [2]_. "local" averages over rows the divergences of their H
        inducing points [1]_. "auto" is "vecchia" with `solver="natural"`, and "local"
        with "adam", which cannot use the other.
    kl_weight : float or "auto", default="auto"
        Weight beta of the divergence of q(u) from its prior; 1.0 is the paper's. "auto"
        is 1 with `kl="vecchia"`, and max(1, M / H) with "local", where it makes up for
        the M - H points that the divergence of a row leaves out.
    init : {"local", "default"}, default="local"
        Where kernel parameters and noise start: as given ("default"), or learned first
        from the likelihood of rows given their nearest other rows ("local").
    likelihood : {"gaussian"}, default="gaussian"
        Distribution of y given the latent function.
    noise_variance : float, default=0.1
        Noise variance at the start, on the scale of standardised y.
    normalize_y : bool, default=True
        Whether y is standardised inside.
    solver : {"natural", "adam"}, default="natural"
        How q(u) is found. "natural" solves for q(u) in closed form, with the kernel as
        `init` leaves it. "adam" is stochastic gradient ascent on minibatches, Algorithm
        1 of [1]_, and trains kernel, noise and inducing inputs as well. `partial_fit`
        always takes steps of Adam.
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
        Number of threads. None takes all that Numba may use (`NUMBA_NUM_THREADS`, which
        joblib lowers in its workers); results are the same for any number.
    dtype : {"float64", "float32"}, default="float64"
        Precision of the computations; `predict` returns float64 in both.
    random_state : int, RandomState instance or None, default=None
        Seeds the choice of inducing points and held-out rows, and shuffling.
    verbose : int, default=0
        Prints a line for each epoch or round if positive.

    Attributes
    ----------
    kernel_ : kernel object
        Kernel with the learned parameters, in the units of X.
    noise_variance_ : float or ndarray of shape (n_outputs,)
        Learned noise variance of a row of mean weight, on the scale of standardised y.
    inducing_points_ : ndarray of shape (n_inducing_, n_features)
        Inducing inputs, in the units of X.
    inducing_mean_ : ndarray of shape (n_inducing_,) or (n_inducing_, n_outputs)
        Mean m of q(u), on the scale of standardised y.
    inducing_covariance_ : ndarray
        With a diagonal covariance the variances, of the shape of `inducing_mean_`; with
        a full one the lower factor L of S = L L', of shape (n_inducing_, n_inducing_)
        or (n_inducing_, n_inducing_, n_outputs).
    n_inducing_, n_neighbors_ : int
        M and H used.
    kl_weight_ : float
        Weight beta used.
    jitter_ : float
        Jitter added to the diagonal of K, relative to the mean of the diagonal.
    y_mean_, y_scale_ : float or ndarray of shape (n_outputs,)
        y is standardised as (y - y_mean_) / y_scale_.
    lower_bound_ : float
        Bound on the log likelihood of the training rows, in nats, for standardised y:
        eq. 11, averaged over the last epoch of Adam or after the last natural round.
        With `kl="vecchia"` it is that of [2]_, with the divergence from the Vecchia
        prior.
    loss_curve_ : list of float
        Negative training objective of each epoch or round, a mean over rows.
    best_loss_ : float
        Least of `loss_curve_`.
    validation_scores_ : list of float or None
        Weighted mean log predictive density of the held-out rows after each epoch, in
        the units of y.
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
    SWSGPClassifier : Classification with the same model of latent functions.
    sklearn.gaussian_process.GaussianProcessRegressor : Exact, for thousands of rows.

    Notes
    -----
    `kernel_`, `noise_variance_` and the inducing attributes are the whole model:
    `predict` reads nothing else.

    References
    ----------
    .. [1] G.-L. Tran, D. Milios, P. Michiardi, M. Filippone, "Sparse within Sparse
       Gaussian Processes using Neighbor Information", ICML 2021.
    .. [2] L. Wu, G. Pleiss, J. P. Cunningham, "Variational Nearest Neighbor Gaussian
       Process", ICML 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from skswsgp import SWSGPRegressor
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = SWSGPRegressor(n_inducing=20, random_state=0).fit(X, y)
    >>> mean, std = model.predict([[1.0], [4.0]], return_std=True)
    >>> bool(np.abs(mean - np.sin([1.0, 4.0])).max() < 0.1)
    True
    """

    _parameter_constraints: dict = {  # noqa: RUF012  scikit-learn's own form
        **BaseSWSGP._parameter_constraints,
        "likelihood": [StrOptions({"gaussian"})],
        "noise_variance": [Interval(Real, 0, None, closed="neither")],
        "normalize_y": ["boolean"],
    }
    _target_checks = {"multi_output": True}  # noqa: RUF012

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
        likelihood="gaussian",
        noise_variance=0.1,
        normalize_y=True,
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
        self.noise_variance = noise_variance
        self.normalize_y = normalize_y
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

    def partial_fit(self, X, y, sample_weight=None):
        """Learn from one more chunk of a stream: one epoch at a constant rate.

        The first chunk sets inducing points, the scale of y and the start of the
        kernel. Later chunks continue from there. The divergence is weighed against all
        rows so far.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs of the chunk.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets of the chunk.
        sample_weight : array-like of shape (n_samples,), default=None
            How many observations each row of the chunk counts as.

        Returns
        -------
        self : object
            The estimator.
        """
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X, return_std=False, n_neighbors=None):
        """Predict the mean, and the standard deviation, of new observations.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs.
        return_std : bool, default=False
            Whether to return standard deviations as well.
        n_neighbors : int, default=None
            Number of inducing points that a row uses, if not `n_neighbors_`.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Predictive mean, eq. 13, in the units of y.
        std : ndarray of the same shape
            Standard deviation of an observation whose weight is the mean of the
            training rows, noise included, in the units of y. The variance of the latent
            function is std^2 - noise_variance_ y_scale_^2, which can be far too small
            where S is diagonal: see `covariance`. Only returned if `return_std`.
        """
        mu, v = self._latent(X, return_std, n_neighbors)
        mean = mu * self.y_scale_ + self.y_mean_
        if not return_std:
            return self._shape_of_y(mean)
        std = np.sqrt(v + self.noise_variance_) * self.y_scale_
        return self._shape_of_y(mean), self._shape_of_y(std)

    def _shape_of_y(self, values):
        """Return (n, Q) as (n,) where y was one-dimensional."""
        return values if np.ndim(self.y_mean_) else values[:, 0]

    def _encode_targets(self, y, sample_weight, fitted):
        y = as_numbers(y)
        if "y_mean_" in fitted:
            mean, scale = fitted["y_mean_"], fitted["y_scale_"]
            check_outputs(y, mean)
        elif self.normalize_y:
            mean, scale = mean_and_scale(y, sample_weight)
        else:
            mean, scale = np.zeros(y.shape[1:])[()], np.ones(y.shape[1:])[()]
        targets = ((y - mean) / scale).reshape(len(y), -1)
        return targets, {"y_mean_": mean, "y_scale_": scale}

    def _likelihood_of(self, attributes):
        return self.likelihood, int(np.size(attributes["y_mean_"]))

    def _log_density(self, mu, v, targets, attributes):
        noise, scale = attributes["noise_variance_"], attributes["y_scale_"]
        density = LIKELIHOODS[self.likelihood].log_density(mu, v, targets, noise)
        return density - np.sum(np.log(scale))
