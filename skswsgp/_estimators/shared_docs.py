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
    How alike two rows are, in the units of X. Learning starts at its parameters, and
    those with ``"fixed"`` bounds stay. None is a variance times a Matern kernel with a
    length-scale for each column. See "Kernels and seasonality".
x_transform : {"auto", "yeo-johnson", "ranks", "levels"} or None, default="auto"
    Columns as powers or ranks, with columns for the values of those with few, or as
    they are. "auto" chooses. See "Scaling and transforming columns".
learn_map : bool or "auto", default="auto"
    Whether combinations of columns may matter, by a linear map that is learned with the
    kernel. "auto" keeps a map that helps, and is False where `kernel` is given. See
    "Feature importance and linear maps".
n_inducing : int or "auto", default="auto"
    M, the number of inducing points. "auto" is that of `inducing_points` where these
    are given, 256 for Adam, and else that of distinct rows, at least 100,000 if so
    many, or what tells enough of a long table. See "Inducing points and neighbours".
n_neighbors : int, "auto" or "all", default="auto"
    H, how many inducing points a row uses, cut to M. "auto" is 16 for Adam, and else
    suits the table: up to some 36,000 rows, 1,000 of classes, means may come from all
    rows. With "all" they always do, or H is M where not every row is a point.
inducing_points : {"kmeans", "random"} or array-like of shape (n_inducing, \
        n_features), default="kmeans"
    Inducing points at the start: centres of k-means (up to 14,142), random rows, or
    the given ones, in the units of X. Duplicates are removed.
covariance : {"auto", "diag", "draws", "full"}, default="auto"
    What is kept of the uncertainty at inducing points: variances, 64 draws for joint
    predictions, or M^2 numbers. "auto" takes what suits size and likelihood. With
    "diag" the function's own intervals are too narrow where rows are dense.
neighbor_search : {"exact", "approximate"}, default="exact"
    "approximate" is for kernels of one scaled distance, and for more than some 500,000
    inducing points of more than 32 columns. See "Nearest-neighbour search".""",
    "training_parameters": """\
solver : {"natural", "adam"} or object of `skswsgp.solvers`, default="natural"
    "natural" solves in closed form, and "adam" takes the steps of [1]_ on minibatches.
    Objects, as ``Adam(max_iter=20)``, hold their parameters. See "Fitting and solvers".
warm_start : bool, default=False
    Whether `fit` keeps map, kernel, noise, inducing points and H of the fitted model.
device : {"auto", "cpu", "cuda"}, default="auto"
    "cuda" is an NVIDIA GPU, for which the extra `cuda12` or `cuda13` is needed. "auto"
    takes an idle one for work of some ten minutes. See "GPUs and CUDA".
n_jobs : int, default=None
    Number of threads, with the same results. None takes all that Numba may use.
dtype : {"float64", "float32"}, default="float64"
    Precision of computations. The `predict` of a regressor returns float64 in both.
random_state : int, RandomState instance or None, default=None
    Seeds the choice of inducing points and held-out rows, and shuffling.
verbose : int, default=0
    If positive, prints stages of a fit and their times; above 1, also each round.""",
    "how_streams_learn": """\
The first chunk is learned as by `fit`, and a model of `fit` goes on alike if it has at
most 10,000 rows. Kernel and scales are learned again whenever rows have doubled. Of a
longer stream a random sample of rows is kept, and sums over the others. See "Streams
and online learning", also for how to forget.""",
    "attributes": """\
kernel_ : kernel object
    The kernel with learned parameters, a function of rows of X @ linear_map_.
x_transform_ : object or None
    The scale of columns. Its `forward(X)`, (n_samples, n_read), is X in what follows.
linear_map_ : ndarray of shape (n_read, n_columns)
    The map of the columns, the identity with `learn_map=False`.
feature_importances_, feature_importances_std_ : ndarray of shape (n_features,)
    Relevance of each column of X, of sum 1, and its standard error over rows.
inducing_points_ : ndarray of shape (n_inducing, n_columns)
    Inducing points, in the units of X @ linear_map_.
inducing_mean_ : ndarray of shape (n_inducing,) or (n_inducing, n_latent)
    Means of the latent functions there, for regression on the scale of standardised y.
inducing_covariance_ : ndarray of shape (n_inducing[, n_inducing][, n_latent])
    Their variances or, for a full covariance, its lower Cholesky factor.
posterior_draws_ : ndarray of shape (n_inducing, 64[, n_latent])
    Draws around the means for joint predictions, if `covariance="draws"`.
alpha_ : ndarray of shape (n_inducing,) or (n_inducing, n_latent)
    Weights of means from all rows, k(x, Z) alpha, where means are such.
site_precision_, site_factor_, local_variance_scale_ : float or ndarray
    How near points tell variances of f. See "Attributes of a fitted model".
n_neighbors_, n_iter_ : int
    H as used, and epochs or rounds run.
lower_bound_ : float
    Bound on the log likelihood of the training rows, in nats.
loss_curve_, validation_scores_ : list of float
    Mean loss, and log density of held-out rows or None, after each epoch or round.
n_features_in_, feature_names_in_ : int, ndarray of shape (n_features_in_,)
    Number of features, and their names where X had any.""",
    "references": """\
.. [1] G.-L. Tran, D. Milios, P. Michiardi, M. Filippone, "Sparse within Sparse
   Gaussian Processes using Neighbor Information", ICML 2021.""",
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
nearest to x_n, whatever `kl_weight` was in training. See "Saving and loading models".

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
