"""What docstrings of the baselines have in common."""

from functools import partial

from skswsgp._estimators import shared_docs

SHARED = {
    "chain_model": """\
n_inducing : int, default=100
    Number of inducing points, centres of k-means at the start, cut to that of
    distinct rows.
prior : {"normal", "dpp", "uniform"}, default="normal"
    Prior of inducing points on standardised columns: independent standard normal,
    determinantal, which keeps them apart, or flat. The last two have no finite
    integral, so that points may wander off.
objective : {"fitc", "vfe"}, default="fitc"
    Likelihood of a row: the expectation of its density given the inducing values,
    or the exponential of the expected logarithm, a lower bound.""",
    "chain_steps": """\
adam_steps : int, default=1000
    Steps of Adam from the start to the first step of a chain.
burn_in : int, default=10000
    Steps of a chain before its first sample, in which sizes of steps are learned.
n_samples : int, default=128
    Number of samples of a chain. Predictions cost as much as those of so many
    sparse processes.
spacing : int, default=50
    Steps between two samples.
n_chains : int, default=1
    Number of chains, one after the other from the same point.
step_size : float, default=0.01
    Size of the steps of Adam and of chains.
friction : float, default=0.05
    Share of its momentum that a chain loses in a step.
batch_size : int, default=500
    Rows of a minibatch. If there are no more, each step takes all.""",
    "chain_notes": """\
Notes
-----
The paper takes 210,000 steps where the default takes 17,400, and its prior of
kernel parameters is around 1 for length-scales and 0.05 for the variance, which is
``kernel=0.05 * RBF([1.0, ...])`` on standardised columns. Bounds of kernel
parameters other than ``"fixed"`` are not read: the prior, log-normal of deviation 1
around the parameters of `kernel`, takes their place. An interruption by Ctrl-C
keeps the samples so far.

References
----------
.. [1] S. Rossi, M. Heinonen, E. V. Bonilla, Z. Shen, M. Filippone, "Sparse Gaussian
   Processes Revisited: Bayesian Approaches to Inducing-Variable Approximations",
   AISTATS 2021.""",
    "network_training": """\
batch_size : int or "auto", default="auto"
    Rows of a minibatch. "auto" is a fiftieth of the rows, between 10 and 100.
learning_rate : float, default=0.01
    Learning rate of the first step of Adam, which falls along half a cosine.
max_iter : int, default=100
    Number of epochs. There are n_samples / batch_size * max_iter steps, of which a
    network needs some thousands.
early_stopping : bool or "auto", default="auto"
    Whether a tenth of the rows is held out to decide which epoch is kept; "auto"
    does so with more than 10,000 rows. The last one is kept otherwise. All epochs
    are run in any case, because the learning rate falls until the last.
n_jobs : int, default=None
    Number of threads; the results are the same for any number.
random_state : int, RandomState instance or None, default=None
    Seeds the weights of the network, held-out rows, and shuffling.
verbose : int, default=0
    Prints a line for each epoch if positive.""",
    "network_layers": """\
coefs_ : list of ndarray of shape (n_in, n_out)
    Weights of the layers of the network.
intercepts_ : list of ndarray of shape (n_out,)
    Intercepts of the layers.
kernel_ : kernel object
    Learned kernel, in the units of X.""",
    "network_notes": """\
Notes
-----
The objective is eq. 5 of [1]_, in which the divergence of the q(u) of a row counts
once for all rows. The paper has a constant learning rate. Rows have no joint
distribution, because each has points of its own. Far from training rows the
variance need not be that of the prior until the kernel itself has fallen to zero.
The network reads columns less their mean over their deviation, so that units do not
matter. `ExpSineSquared` is not for it: the network reads no phase, and learns each
period anew.

References
----------
.. [1] B. Jafrasteh, C. Villacampa-Calvo, D. Hernandez-Lobato, "Input Dependent
   Sparse Gaussian Processes", ICML 2022.""",
    "orthogonal_points": """\
inducing_points_, orthogonal_points_ : ndarrays of shape (n_points, n_features)
    The points of the two groups.
inducing_mean_ : ndarray of shape (n_points,) or (n_points, n_latent)
    Means of the whitened values of all points, those of the first group first.
inducing_covariance_ : ndarray of shape (n_points, n_points[, n_latent])
    Lower factors of their covariances, zero between the groups.
prior_mean_ : ndarray of shape (n_latent,)
    Prior means of the latent functions.""",
    "svgp_points": """\
n_inducing : int or "auto", default="auto"
    M, the number of inducing points, cut to the number of distinct rows. "auto" is
    the number of points where `inducing_points` gives some, and 256 otherwise.
inducing_points : {"kmeans", "random"} or array-like of shape (n_inducing, \
        n_features), default="kmeans"
    Inducing inputs at the start.
optimize_inducing : bool, default=True
    Whether inducing inputs are trained too.
covariance : {"full", "diag"}, default="full"
    Whether q(u) has a full covariance, or a diagonal one.""",
    "svgp_training": """\
batch_size : int, default=64
    Rows of a minibatch.
learning_rate : float, default=0.02
    Learning rate of the first step of Adam, which falls along half a cosine.
max_iter : int, default=200
    Largest number of epochs.
early_stopping : bool, default=False
    Whether a tenth of the rows is held out to decide when to stop.""",
    "svgp_computing": """\
n_jobs : int, default=None
    Number of threads; the results are the same for any number.
dtype : {"float64", "float32"}, default="float64"
    Precision of the computations.
random_state : int, RandomState instance or None, default=None
    Seeds the choice of inducing points and held-out rows, and shuffling.
verbose : int, default=0
    Prints a line for each epoch if positive.""",
    "features": """\
n_features_in_ : int
    Number of features.
feature_names_in_ : ndarray of shape (n_features_in_,)
    Names of the features, where X had any.""",
}

with_shared_text = partial(shared_docs.with_shared_text, texts=SHARED)
