"""Kernels learned from the density of rows given their nearest others.

From coarse to fine: one scale for all features first, relative to the spread of each
(or, for many features, in the units of X, as pixels share theirs); then a length-scale
for each feature, if that is better for rows held out; then the smoothness.
"""

import math
import warnings
from contextlib import closing
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import WhiteKernel

from skswsgp._covariance.compile import (
    compile_kernel,
    distance_leaves,
    free_variance,
    params_in_units,
    updated_kernel,
)
from skswsgp._initialization.auto import default_kernel
from skswsgp._initialization.neighbor_likelihood import (
    MAX_LOG_FACTOR,
    PRIOR_VARIANCE,
    NeighborProcess,
    draw_rows,
    neighbor_model,
)
from skswsgp._initialization.statistics import (
    HELD_OUT_FRACTION,
    exceeds_standard_error,
    feature_spread,
    merge_duplicates,
)
from skswsgp._point.adam_step import LOG_NOISE_BOUNDS

MAX_ROWS = 200_000  # rows that take part in learning, at most
MAX_WORK = 4_000_000  # the same times features: a search costs so much
NEIGHBORS = 32  # from which a row is predicted while learning
STEPS = 200  # of Adam, of length-scales and all else
RATE = 0.1  # of the logarithms of the parameters, at the start
COARSE_STEPS = 50  # for one scale of all features
SITE_STEPS = 50  # on sites, which move with the kernel
MAX_HELD_OUT = 2000  # rows that decide between kernels
MAX_WIDE_NEIGHBORS, WIDE_STEPS = 96, 100  # neighbours, at most, in the last steps
EXACT_ROWS, EXACT_WORK = 256, 4e7  # up to which all rows are taken at once
MAX_LBFGS_STEPS = 100  # steps of L-BFGS
MAX_RESCALING_ROWS = 2048  # rows on which variances are calibrated, at most
SMOOTHNESS = 1.5, 0.5, 2.5  # of Matern kernels that are tried; the first is the start


class KernelFit(NamedTuple):
    """A kernel, and how it was found."""

    kernel: object
    noise: np.ndarray  # (Q,) variances
    tied: bool = False  # whether the length-scales kept their ratios
    curve: np.ndarray = np.zeros(0)  # mean log density of rows at each step
    variance_scale: float = 1.0  # of q(f), for classes


class KernelLearner:
    """Learns on the nearest-neighbour likelihood of the same rows.

    Parameters
    ----------
    X, y : arrays of shapes (N, D), (N, Q)
        Inputs and targets.
    ratios : array of shape (N, Q) or (N, 1)
        Noise variances of the rows, relative to the noise that is learned.
    weight : array of shape (N,)
        How often a row counts.
    n_threads, dtype, search, device
        Threads of every launch, precision, kind of neighbour search, "cpu" or "cuda".
    """

    def __init__(
        self, X, y, ratios, weight, n_threads, dtype, search, device="cpu"
    ):  # fmt: skip
        self.X, self.y, self.dtype = X, y, dtype
        self.ratios = np.broadcast_to(ratios, y.shape)
        self.weight = weight.astype(dtype)
        self.n_threads, self.search, self.device = n_threads, search, device

    def model(self, found):
        """Return the data under a kernel and its noise."""
        return neighbor_model(self.X, self.y, self.ratios, *found[:2], self.dtype)[0]

    def process(self, found, H=NEIGHBORS):
        """Return the local process under a kernel and its noise; close it."""
        H, options = min(H, len(self.X) - 1), (self.n_threads, self.search, self.device)
        return NeighborProcess(self.model(found), H, *options)

    def learn(
        self, start, rng, steps, rate, tied=False, rows=None, noise_free=True,
        around=None, H=NEIGHBORS,
    ):  # fmt: skip
        """Return what steps of Adam on `rows` (all, if None) make of a start."""
        compiled = compile_kernel(start.kernel, self.X.shape[1], self.dtype)
        slots = None
        if tied:
            first = distance_leaves(compiled.struct)[0]
            slots = compiled.struct.scale[first] + np.arange(self.X.shape[1])
        with closing(self.process(start, H)) as process:
            curve = process.learn(
                compiled, self.weight, rng, steps, rate, rows, slots, noise_free, around
            )
        kernel = updated_kernel(start.kernel, process.model.params)
        curve = np.concatenate([start.curve, curve])
        return KernelFit(kernel, process.model.noise.astype(float), tied, curve)

    def log_density(self, found, rows):
        """Return the log density of rows given their nearest others."""
        with closing(self.process(found)) as process:
            return process.log_density(rows)

    def maximize_marginal_likelihood(self, found):
        """Return the same with the parameters of largest marginal likelihood.

        It takes all rows at once, so it knows few rows better than their nearest can
        tell. Logarithms have the prior of `LocalProcess.learn`, around `found`, which
        is returned if its covariance matrix cannot be factorised.
        """
        centred = self.model(found).Z.astype(np.float64)
        noise = found.noise[0] * self.ratios[0, 0]
        low, high = np.exp(LOG_NOISE_BOUNDS)
        white = WhiteKernel(np.clip(noise, low, high), (low, high))

        def climb(objective, theta, bounds):
            def penalised(trial):
                loss, slope = objective(trial)
                pull = (trial - theta) / PRIOR_VARIANCE
                return loss + 0.5 * pull @ (trial - theta), slope + pull

            options = {"maxiter": MAX_LBFGS_STEPS}
            most = minimize(
                penalised, theta, jac=True, bounds=bounds, method="L-BFGS-B",
                options=options,
            )  # fmt: skip
            return most.x, most.fun

        process = GaussianProcessRegressor(found.kernel + white, optimizer=climb)
        with warnings.catch_warnings():  # of parameters at a bound
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                process.fit(centred, self.y[:, 0])
            except np.linalg.LinAlgError:
                return found
        kernel, white = process.kernel_.k1, process.kernel_.k2
        noise = np.array([white.noise_level / self.ratios[0, 0]])
        return found._replace(kernel=kernel, noise=noise, tied=False)

    @property
    def few(self):
        """Whether the marginal likelihood of all rows is cheap; weights are equal."""
        (N, Q), D = self.y.shape, self.X.shape[1]
        equal = Q == 1 and (self.ratios == self.ratios[0]).all()
        return equal and N <= EXACT_ROWS and N * N * (N + 4 * D) <= EXACT_WORK

    def fit_noise(self, found, rng):
        """Return the same with the noise that suits many rows best."""
        with closing(self.process(found)) as process:
            process.fit_noise(self.weight, rng)
        return found._replace(noise=process.model.noise.astype(float))

    def relearn_with_more_neighbors(self, found, H, rng):
        """Return what suits rows given their H nearest others.

        A kernel that was learned from few neighbours has never seen the distances
        between many: the folds of a sheet, for example, that come close to each other.
        Where its variances do not suit H, it learns on with as many, at most WIDE.
        """
        if self.rescale_variance(found, H, rng) is found:
            return found
        wide = min(H, MAX_WIDE_NEIGHBORS)
        found = self.learn(found, rng, WIDE_STEPS, RATE / 2, found.tied, H=wide)
        return self.rescale_variance(found, H, rng)

    def rescale_variance(self, found, H, rng):
        """Return the same with variances that suit rows given their H nearest others.

        A factor of both changes no mean, so the likeliest one is the mean square of
        standardised residuals. It is taken if it is better beyond chance.
        """
        variance = free_variance(found.kernel, self.X.shape[1])
        if variance is None:
            return found
        slot, bounds = variance
        N = len(self.X)
        rows = draw_rows(np.arange(N), min(N, MAX_RESCALING_ROWS), rng)
        with closing(self.process(found, H)) as process:
            square, weight = process.standardised(rows)[0], self.weight[rows]
        params = process.model.params.astype(np.float64)
        least, most = np.exp(-MAX_LOG_FACTOR), np.exp(MAX_LOG_FACTOR)
        low, high = np.clip(bounds / params[slot], least, most)
        factor = np.average(square.mean(axis=1), weights=weight)
        factor = min(max(factor, low), high)
        gain = 0.5 * np.sum(square * (1.0 - 1.0 / factor) - np.log(factor), axis=1)
        if not exceeds_standard_error(gain, weight):
            return found
        params[slot] *= factor
        noise = np.clip(factor * found.noise, *np.exp(LOG_NOISE_BOUNDS))
        return found._replace(kernel=updated_kernel(found.kernel, params), noise=noise)

    def coarse_to_fine(self, spread, noise, rng):
        """Return a kernel with free scales and one with tied ones, the better first.

        `spread` (D,) is that of the features; for a single one there is one kernel.
        """
        if len(spread) == 1:
            return [
                self.learn(KernelFit(start_kernel(spread), noise), rng, STEPS, RATE)
            ]
        # The same rows decide in whatever order rows and columns come, and for -y.
        place = np.sort((self.X - self.X.min(axis=0)) / spread, axis=1)
        rank = np.lexsort([*np.abs(self.y).T, *place.T])
        order = rank[rng.permutation(len(rank))]
        held, rows = np.split(
            order, [min(MAX_HELD_OUT, int(HELD_OUT_FRACTION * len(order)))]
        )
        held, rows = np.sort(held), np.sort(rows)
        seed = rng.randint(2**31 - 1)

        def learn(start, steps, tied):
            draws = np.random.RandomState(seed)
            found = self.learn(start, draws, steps, RATE, tied, rows)
            return found, self.log_density(found, held)

        weight = self.weight[held]
        tied = learn(KernelFit(start_kernel(spread), noise), COARSE_STEPS, True)
        if len(spread) > NEIGHBORS:  # more scales than a row's neighbours can tell
            varying = varying_features(self.X)
            size = root_mean_square(spread[varying]) if varying.any() else 1.0
            equal = start_kernel(np.full_like(spread, size))
            equal = learn(KernelFit(equal, noise), COARSE_STEPS, True)
            if exceeds_standard_error(equal[1] - tied[1], weight):
                tied = equal
        free = learn(tied[0], STEPS, False)
        order = (
            (free, tied)
            if exceeds_standard_error(free[1] - tied[1], weight)
            else (tied, free)
        )
        return [found for found, _ in order]

    def choose_smoothness(self, found, rng):
        """Return the best of kernels that differ in it, and go on from `found`."""
        seed = rng.randint(2**31 - 1)  # all see the same rows
        tries = [
            self.learn(
                found._replace(kernel=with_smoothness(found.kernel, nu)),
                np.random.RandomState(seed),
                STEPS // 2,
                RATE / 2,
                found.tied,
            )
            for nu in SMOOTHNESS
        ]
        best = tries[0]
        for one in tries[1:]:
            gain = (one.curve - best.curve)[-(STEPS // 8) :]  # at a small rate
            if exceeds_standard_error(gain):
                best = one
        return best


def learn_kernel(
    X, y, weight, kernel, noise_variance, n_threads, dtype, rng, search="auto",
    rows=None, fit_all_noise=False, n_neighbors=None, exact=False, device="cpu",
):  # fmt: skip
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
        Where to start; None starts at the default kernel, with its scales tied or
        free, and tries each SMOOTHNESS.
    noise_variance : float or array of shape (Q,)
        Where to start.
    n_threads, dtype, rng, search
        Threads of every launch, precision, source of random numbers, kind of search.
    rows : array of shape (N,), default=None
        Which rows of a larger X, that is not copied, y and weight belong to.
    fit_all_noise : bool, default=False
        Whether the noise of all that are found suits their smoothness, or the best's.
    n_neighbors : int, default=None
        From how many rows predictions will be made: the last steps see as many, at most
        WIDE, and then variances are calibrated; None for NEIGHBORS and neither.
    exact : bool, default=False
        Whether few rows are asked for their marginal likelihood in the end.
    device : {"cpu", "cuda"}, default="cpu"
        Where densities and neighbours are found.

    Returns
    -------
    found : list of Found
        Kernels with the learned parameters, in the units of X, and their noise; the
        best first.
    """
    pool = count_learning_rows(X.shape[1])
    if len(y) > pool:
        drawn = np.sort(rng.choice(len(y), pool, replace=False))
        rows = drawn if rows is None else rows[drawn]
        y, weight = y[drawn], weight[drawn]
    X = X if rows is None else X[rows]
    X, y, weight = merge_duplicates(X, y, weight)
    spread = feature_spread(X, rng)
    start = start_kernel(spread) if kernel is None else kernel
    compile_kernel(start, X.shape[1], dtype)  # refuse it before any work
    noise = np.zeros(y.shape[1])
    noise += noise_variance
    if len(X) == 1:
        return [KernelFit(clone(start), noise)]
    ratios = 1.0 / weight[:, None]
    learner = KernelLearner(X, y, ratios, weight, n_threads, dtype, search, device)
    if kernel is not None:
        around = params_in_units(start, spread, varying_features(X))
        found = learner.learn(KernelFit(start, noise), rng, STEPS, RATE, around=around)
        found = learner.fit_noise(found, rng)
        # Its prior is around where the first leg ended: around the start, errors grow.
        found = learner.learn(found, rng, STEPS // 2, RATE / 2)
        found = learner.fit_noise(found, rng)
        if exact and learner.few:
            return [learner.maximize_marginal_likelihood(found)]
        return [
            learner.relearn_with_more_neighbors(found, n_neighbors, rng)
            if n_neighbors
            else found
        ]
    best, *rest = learner.coarse_to_fine(spread, noise, rng)
    best = learner.choose_smoothness(learner.fit_noise(best, rng), rng)
    nu = best.kernel.k2.nu
    rest = [one._replace(kernel=with_smoothness(one.kernel, nu)) for one in rest]
    best = learner.fit_noise(best, rng)
    if exact and learner.few:
        tied = next((one for one in (best, *rest) if one.tied), best)
        best = learner.maximize_marginal_likelihood(
            tied._replace(kernel=with_smoothness(tied.kernel, nu))
        )
    elif n_neighbors:
        best = learner.relearn_with_more_neighbors(best, n_neighbors, rng)
    return [
        best,
        *(learner.fit_noise(one, rng) if fit_all_noise else one for one in rest),
    ]


def learn_kernel_from_sites(
    sites, X, weight, start, n_threads, dtype, rng, search="auto", device="cpu"
):  # fmt: skip
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
    start : Found
        Where to start, and whether scales are tied.
    n_threads, dtype, rng, search, device
        As in `learn_local`.

    Returns
    -------
    kernel : kernel object
        After SITE_STEPS steps.
    """
    targets, variance = sites
    ratios = variance / weight[:, None]
    learner = KernelLearner(
        X, targets, ratios, weight, n_threads, dtype, search, device
    )
    start = start._replace(noise=np.ones(targets.shape[1]))
    found = learner.learn(
        start, rng, SITE_STEPS, RATE, tied=start.tied, noise_free=False
    )
    return found.kernel


def learning_search(search):
    """Return the kind of search while kernels are learned, for the user's word.

    Kernels change all the time then, and no graph is made for each.
    """
    return "auto" if search == "pynndescent" else search


def count_learning_rows(n_features):
    """Return how many rows take part in learning, at most."""
    return min(MAX_ROWS, max(MAX_WORK // n_features, NEIGHBORS**2))


def root_mean_square(values):
    """Return the root of the mean square of positive values, however large."""
    most = values.max()
    return most * math.sqrt(np.mean((values / most) ** 2))


def varying_features(X):
    """Return which columns of X are not constant, (D,) bool."""
    return (X != X[0]).any(axis=0)


def start_kernel(spread):
    """Return the default kernel with the SMOOTHNESS to start from."""
    return with_smoothness(default_kernel(spread), SMOOTHNESS[0])


def with_smoothness(kernel, nu):
    """Return a default kernel with another smoothness."""
    return clone(kernel).set_params(k2__nu=nu)
