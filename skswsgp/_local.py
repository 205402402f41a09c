"""The local Gaussian process: kernel parameters and predictions from nearest data.

Data rows stand in a `Model` in the place of inducing points: Z the inputs, m the
targets, s their noise variances relative to `noise` (one over their weights).
"""

import math

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.base import clone

from skswsgp import _kriging_cpu as loops
from skswsgp._adam import LOG_NOISE_BOUNDS, make_optimizer, update_parameters
from skswsgp._defaults import default_kernel, feature_spread
from skswsgp._engine_cpu import make_gradients
from skswsgp._jit import launch
from skswsgp._model import ROWS_AT_ONCE, build_model
from skswsgp._neighbors import NeighborSearch, choose_metric
from skswsgp._program import compile_kernel, updated_kernel
from skswsgp._state import Batch, make_work
from skswsgp._training import center_rows, kernel_of

NEIGHBORS = 32  # from which a row is predicted while learning
POOL = 200_000  # rows that take part in learning, at most
POOL_WORK = 4_000_000  # the same times features: a search costs so much
STEPS = 200  # of Adam on the nearest-neighbour likelihood
BATCH = 256  # rows a step
PRIOR_VARIANCE = 1.0  # of the logarithms of the parameters
RATE = 0.1  # of the logarithms of the parameters, at the start
SITE_STEPS = 50  # on sites, which move with the kernel
SETTLE = 16_384  # rows on which the noise is settled
SETTLE_SHIFT = 3.0  # of its logarithm, at most
REFRESH = 25  # steps between two looks at the neighbours
SMOOTHNESS = 1.5, 0.5, 2.5  # of Matern kernels that are tried; the first is the start
LOST = (
    "the nearest-neighbour likelihood left the finite numbers: a covariance matrix "
    "could not be factorised or a parameter overflowed; bound the kernel's parameters "
    "or start from a larger noise_variance."
)
UNUSABLE = (
    "a covariance matrix of neighbours could not be factorised: expected finite kernel "
    "parameters and a positive noise variance; check kernel_ and noise_variance_."
)


class LocalProcess:
    """Kriging from the H nearest rows of data.

    Parameters
    ----------
    model : Model
        The data; kernel parameters and noise are modified by `learn`.
    n_neighbors : int
        H, less than the number of rows for `learn`.
    n_threads : int
        Threads of every launch.
    search : str
        Kind of neighbour search.
    """

    def __init__(self, model, n_neighbors, n_threads, search="auto"):
        self.model = model
        self.H = n_neighbors
        self.n_threads = n_threads
        self.search = search
        self.work = make_work(model, n_neighbors, n_threads)

    def learn(
        self, free, log_bounds, weight, rng, steps=STEPS, rate=RATE, noise_free=True
    ):
        """Maximise sum_i weight_i log p(y_i | its H nearest others) on minibatches.

        Logarithms of parameters have a normal prior around where they start, which
        matters where there are few rows for many parameters.
        `free` (P,) and `log_bounds` (P, 2) say what may move, and how far; `rate` falls
        to zero along half a cosine. Returns the mean log density of the rows of each
        step, as it was before the step.
        """
        model, N = self.model, len(self.model.Z)
        n = min(BATCH, N)
        optimizer = make_optimizer(model, free, log_bounds, np.ones(model.Z.shape[1]))
        grads = make_gradients(model, 1, self.H)
        start_params, start_noise = np.log(model.params[free]), np.log(model.noise)
        means = np.empty(steps)
        for step in range(steps):
            start = step % REFRESH * n
            if start == 0:
                rows = draw_rows(N, n * min(REFRESH, steps - step), rng)
                w = weight[rows]
                # The noise of a datum whose weight counts it several times.
                ratios = model.s[rows] * w[:, None]
                targets = np.hstack([model.m[rows], ratios])
                batch = Batch(model.Z[rows], targets, w, self.others(rows))
            decay = 0.5 * (1.0 + math.cos(math.pi * step / steps))
            with launch(self.n_threads):
                loops.kriging_gradients(model, batch, start, n, self.work, grads)
                pull = start_params - np.log(model.params[free])
                grads.d_log[0, free] += pull * n / (N * PRIOR_VARIANCE)
                pull = start_noise - np.log(model.noise)
                grads.d_noise[0] += pull * n / (N * PRIOR_VARIANCE)
                grads.d_noise[0] *= noise_free
                update_parameters(model, optimizer, grads, rate * decay)
            total = grads.sums[0, 0]
            if not np.isfinite(total + model.params.sum() + model.noise.sum()):
                raise FloatingPointError(LOST)
            means[step] = total / w[start : start + n].sum(dtype=np.float64)
        return means

    def settle_noise(self, weight, rng):
        """Multiply the noise variances by what raises the density of many rows most.

        Where rows nearly repeat each other but for y, a few carry most of what can be
        lost by too little noise. Adam, which scales each step by gradients seen so far,
        walks past them; a search on a fixed sample does not.
        """
        model, N = self.model, len(self.model.Z)
        rows = draw_rows(N, min(N, SETTLE), rng)
        X, y, w, active = model.Z[rows], model.m[rows], weight[rows], self.others(rows)
        start, (low, high) = model.noise.copy(), np.exp(LOG_NOISE_BOUNDS)

        def loss(shift):
            model.noise[:] = np.clip(start * np.exp(shift), low, high)
            mu, v = self.predict(X, active)
            v += model.noise
            total = w @ (np.log(v) + (y - mu) ** 2 / v).sum(axis=1, dtype=np.float64)
            total += shift**2 * len(rows) / (N * PRIOR_VARIANCE)
            return total if np.isfinite(total) else np.inf

        found = minimize_scalar(
            loss, bounds=(-SETTLE_SHIFT, SETTLE_SHIFT), options={"xatol": 0.1}
        )
        if not np.isfinite(loss(0.0)):
            raise FloatingPointError(LOST)
        loss(min((0.0, found.x), key=loss))  # it leaves the noise there

    def others(self, rows):
        """Return the H nearest data of data rows, without themselves."""
        rows, place = np.unique(rows, return_inverse=True)  # each is searched once
        lists = self.make_search(self.H + 1).query(self.model.Z[rows])
        own = lists == rows[:, None]
        own[~own.any(axis=1), self.H] = True  # a row among its own duplicates
        return lists[~own].reshape(len(rows), self.H)[place]

    def make_search(self, n_neighbors):
        """Return a search for the data that are nearest under the kernel as it is."""
        kernel = kernel_of(self.model)
        scaled = choose_metric("kernel", kernel).name == "scaled"
        return NeighborSearch(
            self.model.Z,
            kernel,
            n_neighbors=n_neighbors,
            search=self.search if scaled else "auto",
            n_threads=self.n_threads,
        )

    def predict(self, X, active):
        """Return mean and variance of the latent functions at rows of X, (n, Q)."""
        shape = len(X), self.model.m.shape[1]
        mu, v = np.empty((2, *shape), dtype=X.dtype)
        batch = Batch(X, mu[:0], mu[:0, 0], active)
        with launch(self.n_threads):
            loops.kriging_predictions(self.model, batch, self.work, mu, v)
        return mu, v

    def predict_rows(self, X, center):
        """Return the same at rows of X in the units of the user, from their nearest."""
        query = self.make_search(self.H).query
        pairs = []
        for first in range(0, len(X), ROWS_AT_ONCE):
            rows = X[first : first + ROWS_AT_ONCE]
            block = center_rows(rows, center, self.model.Z.dtype)
            pairs.append(self.predict(block, query(block)))
        mu, v = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
        if not np.all(np.isfinite(mu) & np.isfinite(v)):
            raise FloatingPointError(UNUSABLE)
        return mu, v


def local_model(X, y, weight, kernel, noise_variance, dtype):
    """Return (Model, center of X) of data X (N, D), y (N, Q), weight (N,)."""
    attributes = {
        "kernel_": kernel,
        "inducing_points_": X,
        "inducing_mean_": y,
        "inducing_covariance_": np.repeat(1.0 / weight[:, None], y.shape[1], axis=1),
        "noise_variance_": noise_variance,
    }
    return build_model(attributes, ("gaussian", y.shape[1]), dtype)


def learn_local(
    X, y, weight, kernel, noise_variance, n_threads, dtype, rng, search="auto"
):
    """Learn kernel and noise variances from the density of rows given their nearest.

    Parameters
    ----------
    X : array of shape (N, D)
        Inputs, in any units; a random part of many rows is used.
    y : array of shape (N, Q)
        Targets, standardised.
    weight : array of shape (N,)
        Positive weights: how often a row counts; its noise variance is divided by it.
    kernel : kernel object or None
        Where to start; None starts at the default kernel and tries each SMOOTHNESS.
    noise_variance : float or array of shape (Q,)
        Where to start.
    n_threads, dtype, rng, search
        Threads of every launch, precision, source of random numbers, kind of search.

    Returns
    -------
    kernel : kernel object
        With the learned parameters, in the units of X.
    noise_variance : ndarray of shape (Q,)
        The learned noise variances.
    curve : ndarray of shape (n_steps,)
        Mean log density of the rows of each step, as it was before the step; empty if
        there is one row only, from which nothing can be learned.
    """
    pool = min(POOL, max(POOL_WORK // X.shape[1], NEIGHBORS**2))
    if len(X) > pool:
        rows = np.sort(rng.choice(len(X), pool, replace=False))
        X, y, weight = X[rows], y[rows], weight[rows]
    X, y, weight = merge_copies(X, y, weight)
    noise = np.zeros(y.shape[1])
    noise += noise_variance

    def learn(kernel, noise, rng, steps, rate, settle):
        model, _ = local_model(X, y, weight, kernel, noise, dtype)
        compiled = compile_kernel(kernel, X.shape[1], model.Z.dtype)
        process = LocalProcess(model, min(NEIGHBORS, len(X) - 1), n_threads, search)
        w = weight.astype(model.Z.dtype)
        curve = process.learn(compiled.free, compiled.log_bounds, w, rng, steps, rate)
        if settle:
            process.settle_noise(w, rng)
        return updated_kernel(kernel, model.params), model.noise.astype(float), curve

    def variant(nu):
        return clone(start).set_params(k2__nu=nu)

    start = kernel
    if kernel is None:
        start = default_kernel(feature_spread(X, rng))
        start = variant(SMOOTHNESS[0])
    compile_kernel(start, X.shape[1], dtype)  # refuse it before any work
    if len(X) == 1:
        return clone(start), noise, np.zeros(0)
    start, noise, curve = learn(start, noise, rng, STEPS, RATE, True)
    variants = [start] if kernel is not None else map(variant, SMOOTHNESS)
    # All go on from there for as long, and see the same rows.
    seed = rng.randint(2**31 - 1)
    tries = [
        learn(one, noise, np.random.RandomState(seed), STEPS // 2, RATE / 2, False)
        for one in variants
    ]
    best, noise, rest = tries[0]
    for found in tries[1:]:
        if is_better(found[2], rest):
            best, noise, rest = found
    best, noise, _ = learn(best, noise, rng, 0, 0.0, True)
    return best, noise, np.concatenate([curve, rest])


def learn_from_sites(sites, X, weight, kernel, n_threads, dtype, rng, search="auto"):
    """Learn a kernel from what sites N(f_i; t_i, v_i) say of a latent function.

    Given the sites, the gradient of their nearest-neighbour likelihood by the kernel is
    that of the variational bound, whose sites they are (up to its neighbours).

    Parameters
    ----------
    sites : tuple of arrays of shape (N, Q)
        t and v, the latter of a site without its weight.
    X : array of shape (N, D)
        Inputs.
    weight : array of shape (N,)
        Positive weights: how often a row counts.
    kernel : kernel object
        Where to start.
    n_threads, dtype, rng, search
        As in `learn_local`.

    Returns
    -------
    kernel : kernel object
        After SITE_STEPS steps.
    """
    targets, variance = sites
    attributes = {
        "kernel_": kernel,
        "inducing_points_": X,
        "inducing_mean_": targets,
        "inducing_covariance_": variance / weight[:, None],
        "noise_variance_": np.ones(targets.shape[1]),
    }
    model, _ = build_model(attributes, ("gaussian", targets.shape[1]), dtype)
    compiled = compile_kernel(kernel, X.shape[1], model.Z.dtype)
    process = LocalProcess(model, min(NEIGHBORS, len(X) - 1), n_threads, search)
    w = weight.astype(model.Z.dtype)
    bounds = compiled.free, compiled.log_bounds
    process.learn(*bounds, w, rng, SITE_STEPS, RATE, noise_free=False)
    return updated_kernel(kernel, model.params)


def merge_copies(X, y, weight):
    """Return the rows with copies merged into one, with the sum of their weights.

    A copy would predict its original without error, as if there were no noise. Rows are
    copies if they share X and y and no other y goes with that X: where one does, as in
    tables of few values, equal rows are observations like any others.
    """
    _, group = np.unique(X, axis=0, return_inverse=True)
    _, first, same = np.unique(
        np.column_stack([X, y]), axis=0, return_index=True, return_inverse=True
    )
    group, same = group.ravel(), same.ravel()
    single = np.bincount(group[first])[group] == 1
    label = np.where(single, same, len(X) + np.arange(len(X)))
    _, first, copy_of = np.unique(label, return_index=True, return_inverse=True)
    if len(first) == len(X):
        return X, y, weight
    total = np.bincount(copy_of, weight)
    order = np.argsort(first)
    rows = first[order]
    return X[rows], y[rows], total[order].astype(weight.dtype)


def is_better(curve, other):
    """Whether a curve ends higher than another, beyond chance.

    Both are densities of the same rows; the last quarter has a small learning rate.
    """
    gain = (curve - other)[3 * len(curve) // 4 :]
    return gain.mean() > gain.std() / math.sqrt(len(gain))


def draw_rows(n_rows, n_drawn, rng):
    """Return random rows, each as often as any other to within one."""
    rounds = -(-n_drawn // n_rows)
    rows = np.concatenate([rng.permutation(n_rows) for _ in range(rounds)])
    return rows[:n_drawn]
