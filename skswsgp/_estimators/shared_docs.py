"""What docstrings of the estimators and of their methods have in common."""

import inspect
from string import Template


def with_shared_text(cls, texts=None):
    """Fill in texts, those of this module, where docstrings of a class name them."""
    methods = list(filter(inspect.isfunction, vars(cls).values()))
    for one in vars(cls).values():  # methods that are there for some solvers only
        if inspect.isfunction(getattr(one, "fn", None)):
            methods += [one, one.fn]
    for one in (cls, *methods):
        if "$" in (one.__doc__ or ""):
            text = Template(inspect.cleandoc(one.__doc__))
            one.__doc__ = text.safe_substitute(texts or SHARED)
    return cls


SHARED = {
    "model_parameters": """\
kernel : kernel object of scikit-learn, default=None
    Covariance of the latent function, in the units of X. Training starts at its
    parameters; those with ``"fixed"`` bounds stay. It may combine
    `ConstantKernel`, `RBF`, `Matern` (nu 0.5, 1.5, 2.5, inf),
    `RationalQuadratic`, `ExpSineSquared`, `DotProduct`, `WhiteKernel`,
    `Exponentiation`, sums, products, and :class:`skswsgp.kernels.Polynomial` and
    :class:`skswsgp.kernels.ArcCosine`, and on chosen columns any of these with
    :class:`skswsgp.kernels.OnColumns`. None is a variance times a Matern kernel
    with one length-scale for each feature. The length-scales start at the spread of
    the features. `learn_kernel=True` chooses the smoothness nu with the natural
    solver; it is 2.5 otherwise.
x_transform : {"auto", "yeo-johnson", "ranks"} or None, default="auto"
    Scale of the columns of X on which the kernel reads them, an increasing function of
    each. "yeo-johnson" is a power that makes a column nearest to a Gaussian one, and
    "ranks" is the share of training rows whose value is smaller. Both are linear beyond
    the range of training rows. "auto" takes the one under which a few hundred rows
    have the largest evidence, if it is larger by 19 nats than that of X as it is, and
    ranks only if theirs is larger by 3 nats than that of powers; where
    `kernel` or `inducing_points` are given, with `learn_kernel=False`, and where
    columns or outputs are too many, X stays as it is. A `kernel` has the units of the
    columns on their scale.
learn_map : bool or "auto", default="auto"
    Whether a linear map of the columns is learned together with the kernel, so that
    combinations of columns may matter: the kernel reads ``X @ linear_map_``. With False
    it reads the columns of X, with the length-scales that it has. True always learns a
    map, and maps more than 64 columns to at most 64. "auto" keeps a map where the
    evidence of some hundred rows is larger with it, or where held-out training rows are
    likelier by more than chance; with Adam it needs 500 rows. A map is learned only
    with `learn_kernel=True`. If `kernel` is given, "auto" is False.
n_inducing : int or "auto", default="auto"
    M, the number of inducing points, at most the number of distinct rows. With "auto"
    it is the number of points where `inducing_points` gives some. Otherwise the natural
    solver makes every row an inducing point, up to some 100,000 rows of many columns
    and 1,000,000 rows of few, and Adam takes 256.
n_neighbors : int, "auto" or "all", default="auto"
    H, the number of inducing points that a row uses, at most M. A model with H = M is
    the ordinary sparse variational Gaussian process. With "auto" the natural solver
    lets up to 1,000 rows use all points. A regression of up to some 36,000 rows takes
    its means from all rows, see `alpha_`, and its variances from 64 neighbours, unless
    held-out rows are predicted worse by means from all rows. Classes do so too, with
    more neighbours. Longer tables take between 192 and 16 neighbours, the fewer the
    more rows there are. Adam takes 16. With "all" every inducing point has a say: the
    natural solver takes means from all rows where every row is an inducing point, and H
    is M elsewhere.
inducing_points : {"kmeans", "random"} or array-like of shape (n_inducing, \
        n_features), default="kmeans"
    Inducing inputs at the start: centres of k-means (random rows where there are
    more than 14,142), random rows, or the given points, in the units of X.
    Duplicates are removed.
covariance : {"auto", "diag", "draws", "full"}, default="auto"
    How the covariance S of q(u) is kept. A "full" matrix is exact, and holds M^2
    numbers in the fitted model and its pickle. "diag" keeps the diagonal only, which
    makes the variance of the function too small where rows are dense. "draws" estimates
    S from 64 draws of q(u), for the natural solver only. With "auto" the natural solver
    takes a full matrix for up to 1,000 rows, and for regressions of some 2,900 rows;
    longer regressions take draws while these fit in 1 GiB, and longer tables of classes
    take the diagonal, as do trained inducing inputs. Adam takes a full matrix of a few
    hundred inducing points, and the diagonal of more.
neighbor_search : {"exact", "approximate"}, default="exact"
    How the nearest inducing points of a row are found, those of largest covariance (for
    stationary kernels, of smallest distance in length-scales). "exact" finds all of
    them. "approximate" finds most of them by a graph of PyNNDescent, for kernels that
    decrease with one scaled distance; it is for more than some 500,000 inducing points
    of more than 32 features. Lists of neighbours are stored if they fit into
    scikit-learn's `working_memory`.""",
    "training_parameters": """\
solver : {"natural", "adam"} or object of `skswsgp.solvers`, default="natural"
    How q(u) is found. "natural" solves for q(u) in closed form, with the kernel as it
    was learned before. "adam" is stochastic gradient ascent on minibatches, Algorithm 1
    of [1]_, which trains the kernel as well. The objects
    :class:`skswsgp.solvers.Natural` and :class:`skswsgp.solvers.Adam` hold their
    parameters, among them whether inducing inputs are trained too, and by how much a
    stream forgets. `partial_fit` takes "natural" only.
warm_start : bool, default=False
    Whether `fit` starts from the fitted model. Its map of the columns, kernel, noise,
    shape of the likelihood, inducing points and H then stay.
device : {"auto", "cpu", "cuda"}, default="auto"
    Where the model is trained and evaluated. "cuda" is an NVIDIA GPU and needs the
    extra `cuda12` or `cuda13`. Some parts stay on the CPU: steps of Adam with
    `n_shared`, for which "cuda" is refused, steps of a map of the columns, derivatives
    of predictions, and with `solver="natural"` solves with the Vecchia prior, systems
    of a full S, the preconditioner of exact means, and trials of kernels on held-out
    rows. "auto" is the CPU, or an idle GPU for work that would take one core about ten
    minutes; exact means do not count. A fitted model can be used on either device.
n_jobs : int, default=None
    Number of threads. None takes all that Numba may use (`NUMBA_NUM_THREADS`, which
    joblib lowers in its workers), and one in a task of dask; results are the same for
    any number.
dtype : {"float64", "float32"}, default="float64"
    Precision of the computations and of `predict_proba`. The `predict` of a
    regressor returns float64 in both.
random_state : int, RandomState instance or None, default=None
    Seeds the choice of inducing points and held-out rows, and shuffling.
verbose : int, default=0
    If positive, prints a line for each stage of a fit, when it begins and how long it
    took; above 1, also one for each epoch or round.""",
    "how_streams_learn": """\
The first chunk is learned as by `fit`, and a model of `fit` goes on alike if it has at
most 10,000 rows, of which it keeps copies for this. While a stream has no more rows
than that, or than `n_inducing`, all are kept. The kernel, the scales and the map of the
columns are learned again whenever rows have doubled, or bring a class for the first
time. In between, new rows change q(u) and the law of observations. A new kernel stays
if the next chunk is likelier with it than with the one before.

Of a longer stream, a random sample of rows is kept. The others are remembered by the
sums A' W A and A' W t over rows, whose size is that of the inducing points. There are
at most `n_inducing` points, or 10,000 with "auto", and new rows take the places of
points that know less. With ``solver=Natural(forgetting_factor=0.999)`` the weight of
earlier rows falls for each new row.""",
    "attributes": """\
x_transform_ : object or None
    The scale of the columns, or None for X as it is: `x_transform_.name`, and
    `x_transform_.forward(X)`, which stands for X in what follows.
kernel_ : kernel object
    Kernel with the learned parameters, a function of rows of X @ linear_map_.
linear_map_ : ndarray of shape (n_features, n_columns)
    Linear map of the columns of X, the identity with `learn_map=False`. Column j of
    X @ linear_map_ is a multiple of column j of X plus multiples of others, in the
    units of column j. Of more than 64 features, a learned map makes 64 columns without
    units, or a fifth as many as there are rows to learn from.
feature_importances_ : ndarray of shape (n_features,)
    Relevance of each column of X, of sum 1: the mean square of the slope of the latent
    functions by the column, in units of the robust standard deviation of the column,
    both on the scale of `x_transform_`.
    It is computed when it is read.
feature_importances_std_ : ndarray of shape (n_features,)
    Standard errors of `feature_importances_` over rows.
inducing_points_ : ndarray of shape (n_inducing, n_columns)
    Inducing inputs, rows in the units of X @ linear_map_.
inducing_mean_ : ndarray of shape (n_inducing,) or (n_inducing, n_latent)
    Mean m of q(u), in regression on the scale of standardised y. n_latent is the
    number of outputs or, for more than two of them, of classes.
inducing_covariance_ : ndarray
    With a diagonal covariance the variances, of the shape of `inducing_mean_`; with
    a full one the lower factor L of S = L L', of shape (n_inducing, n_inducing)
    or (n_inducing, n_inducing, n_latent).
posterior_draws_ : ndarray of shape (n_inducing, 64[, n_latent])
    Draws of u - m from q(u), whose mean squares are variances. Predictions take S from
    them; `inducing_covariance_` is then diagonal. Only where S is known from draws.
alpha_ : ndarray of shape (n_inducing,) or (n_inducing, n_latent)
    Weights of the exact means, k(x, Z) alpha, which solve (K + noise) alpha = y for
    standardised y, or for the sites that stand for labels. Predictions then use m for
    covariances only. Only where means are exact.
local_variance_scale_ : float or ndarray of shape (n_outputs,)
    Factor by which means from all rows make small variances smaller than the neighbours
    alone do. Variances far from the data stay those of the prior, because the factor
    divides the precision that data add. Held-out rows choose it. Only with `alpha_`,
    for regression.
n_neighbors_ : int
    H as used.
lower_bound_ : float
    Bound on the log likelihood of the training rows, in nats, in regression for
    standardised y: eq. 11, averaged over the last epoch of Adam or after the last
    natural round; for the natural solver with the divergence from the prior of [2]_.
loss_curve_ : list of float
    Negative training objective of each epoch or round, a mean over rows.
validation_scores_ : list of float or None
    Weighted mean log predictive density of the held-out rows after each epoch, in
    the units of y, or log probability of their labels.
n_iter_ : int
    Epochs run.
n_features_in_ : int
    Number of features.
feature_names_in_ : ndarray of shape (n_features_in_,)
    Names of the features, where X had any.""",
    "references": """\
.. [1] G.-L. Tran, D. Milios, P. Michiardi, M. Filippone, "Sparse within Sparse
   Gaussian Processes using Neighbor Information", ICML 2021.
.. [2] L. Wu, G. Pleiss, J. P. Cunningham, "Variational Nearest Neighbor Gaussian
   Process", ICML 2022.""",
    "n_neighbors": """\
n_neighbors : int or "all", default=None
    Number of inducing points that a row uses, if not as in `fit`.""",
    "prediction_parameters": """\
n_neighbors : int or "all", default=None
    Number of inducing points that a row uses, if not as in `fit`.
exposure : array-like of shape (n_samples,), default=None
    By how much the rates of counts are multiplied, 1 by default.
noise_variance : array-like of shape (n_samples,), default=None
    Noise variances of the rows, in squared units of y, where they are known;
    by default those of `noise_std`.""",
    "rows_of_bound": """\
sum_n [E_q log p(y_n | f_n) - KL(q(u_w) || p(u_w)) / N] with w the inducing points
nearest to x_n. The divergence has the weight 1 of the paper, whatever `kl_weight` was
in training.

Parameters
----------
X : array-like of shape (n_samples, n_features)
    Inputs.
y : array-like of shape (n_samples,) or (n_samples, n_outputs)
    Targets.
sample_weight : array-like of shape (n_samples,), default=None
    Weight of each row.""",
    "outcome_of_fit": """\
Returns
-------
self : object
    The fitted estimator.

Raises
------
ValueError
    If a parameter or the data cannot be used; the estimator stays as it was.
FloatingPointError
    If training produces NaN or infinity, with `solver="natural"` in the first
    round. A later round that does leaves the model at its best.""",
}
