"""Kernels learned from the density of rows given their nearest other rows.

Learning goes from coarse to fine. First all length-scales share one factor, relative to
the spread of each feature or, for many features, in the units of X, as suits the pixels
of an image. Then each feature gets its own length-scale, if held-out rows are likelier
with it. Then the smoothness is chosen.
"""

import math
from contextlib import closing
from typing import NamedTuple

import numpy as np
from sklearn.base import clone

from skswsgp._compiled.threads import one_blas_thread
from skswsgp._covariance.compile import (
    compile_kernel,
    distance_leaves,
    free_variance,
    params_in_units,
    updated_kernel,
)
from skswsgp._initialization.auto import default_kernel
from skswsgp._initialization.marginal_likelihood import LogPosterior, turn_by_evidence
from skswsgp._initialization.metric import ROWS_PER_ENTRY, learns_map, moving_map
from skswsgp._initialization.neighbor_likelihood import (
    MAX_LOG_FACTOR,
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
from skswsgp._linear.columns import mapped
from skswsgp._point.adam_step import LOG_NOISE_BOUNDS
from skswsgp._solvers.tuning import Tuning

RATE = 0.1  # first step of Adam, in logarithms of the parameters
COARSE_STEPS = 50  # steps of Adam for one common factor of all length-scales
SITE_STEPS = 50  # steps of Adam on sites, which are computed anew for each kernel
MAX_WIDE_NEIGHBORS = 96  # neighbours in the last steps: their cost is cubic
LEAST_FEATURES = 20  # features whose distances cost as much as a list of neighbours
WIDE_STEPS = 100  # last steps of Adam, with more neighbours
# The evidence of a part of the rows takes this part of the time that evidence may take
PARTS_IN_EVIDENCE = 5
SMOOTHNESS = 1.5, 0.5, 2.5  # nu of the Matern kernels that are tried, the start first


class LearningOptions(NamedTuple):
    """Threads, precision, neighbour search and device for learning kernels."""

    n_threads: int = 1
    dtype: str = "float64"
    search: str = "auto"  # kind of neighbour search
    device: str = "cpu"  # or "cuda"
    tuning: Tuning = Tuning()


class KernelFit(NamedTuple):
    """A kernel with learned parameters."""

    kernel: object
    noise: np.ndarray  # (Q,) noise variances
    shared: bool = False  # whether the length-scales kept their ratios
    curve: np.ndarray = np.zeros(0)  # mean log density of the rows of each step
    variance_scale: float = 1.0  # factor of the variance of q(f), for classes
    posterior: object = None  # function of X: mean and variance (n, Q) of f, or None
    metric: np.ndarray | None = None  # W (D, D') of X W, or None for the identity

    def count_columns(self, n_features):
        """Return the number of columns of X W, D'."""
        return n_features if self.metric is None else self.metric.shape[1]


class KernelLearner:
    """Learns kernels on the nearest-neighbour likelihood of rows X (N, D), y (N, Q).

    `ratios`, (N, Q) or (N, 1), are the noise variances of the rows relative to the
    noise that is learned. `weight` (N,) says how often a row counts.
    """

    def __init__(self, X, y, ratios, weight, options):
        self.X, self.y, self.options = X, y, options
        self.ratios = np.broadcast_to(ratios, y.shape)
        self.weight = weight.astype(options.dtype)
        tuning = options.tuning
        self.steps, D = tuning.learning_steps, X.shape[1]
        self.judging_rows = count_learning_rows(D, tuning, tuning.judging_fraction)

    def model(self, fit):
        """Return a `Model` of the data with the kernel and noise of a fit."""
        X, dtype = mapped(self.X, fit.metric), self.options.dtype
        return neighbor_model(X, self.y, self.ratios, *fit[:2], dtype)[0]

    def process(self, fit, H=None, device=None):
        """Return the `NeighborProcess` of a fit, which the caller closes."""
        options = self.options
        H = min(H or options.tuning.learning_neighbors, len(self.X) - 1)
        resources = options.n_threads, options.search, device or options.device
        return NeighborProcess(self.model(fit), H, *resources)

    def learn(
        self, start, rng, steps, rate, *, shared=False, rows=None, noise_free=True,
        around=None, H=None, turn=False,
    ):  # fmt: skip
        """Return the `KernelFit` after steps of Adam from a start.

        Other arguments are those of `NeighborProcess.learn`; with `shared`, all
        length-scales keep their ratios, and with `turn`, a map of the columns moves.
        """
        D = start.count_columns(self.X.shape[1])
        compiled = compile_kernel(start.kernel, D, self.options.dtype)
        slots, columns = None, None
        if shared:
            first = distance_leaves(compiled.struct)[0]
            slots = compiled.struct.scale[first] + np.arange(D)
        # steps of a map change the places of rows, which are on the CPU
        with closing(self.process(start, H, "cpu" if turn else None)) as process:
            if turn:
                columns = moving_map(start.kernel, process.model.Z)
            curve = process.learn(
                compiled, self.weight, rng, steps, rate, rows=rows, shared=slots,
                noise_free=noise_free, around=around, columns=columns,
            )  # fmt: skip
        kernel = updated_kernel(start.kernel, process.model.params)
        curve, noise = np.concatenate([start.curve, curve]), process.model.noise
        metric = start.metric
        if turn:
            metric = columns.matrix if metric is None else metric @ columns.matrix
        return KernelFit(kernel, noise.astype(float), shared, curve, metric=metric)

    def log_density(self, fit, rows):
        """Return the log density (n,) of rows given their nearest other rows."""
        with closing(self.process(fit)) as process:
            return process.log_density(rows)

    def fit_noise(self, fit, rng):
        """Return a fit with the noise of `NeighborProcess.fit_noise`."""
        with closing(self.process(fit)) as process:
            n_outputs, tuning = self.y.shape[1], self.options.tuning
            fraction = tuning.noise_fraction / n_outputs  # each factorises its K
            most = count_learning_rows(self.X.shape[1], tuning, fraction)
            process.fit_noise(self.weight, rng, most)
        return fit._replace(noise=process.model.noise.astype(float))

    @property
    def is_small(self):
        """Whether the marginal likelihood of all rows is cheap."""
        size = self.X.shape[1], self.y.shape[1]
        return len(self.X) <= count_few_rows(*size, self.options.tuning)

    @property
    def has_cheap_evidence(self):
        """Whether the evidence for a map of the columns is cheap."""
        (N, D), Q = self.X.shape, self.y.shape[1]
        return evidence_work(N, D, Q) <= self.options.tuning.evidence_work

    def maximize_marginal_likelihood(self, fit, metric="ard"):
        """Return the fit that maximises the marginal likelihood, from a start.

        For few rows it is more accurate than the density given nearest neighbours.
        Logarithms of parameters have the normal prior of `NeighborProcess.learn` around
        the start, which is returned if a covariance matrix cannot be factorised. A map
        of the columns is kept if its evidence is larger, or if `metric` is "full".
        """
        X = self.model(fit).Z.astype(np.float64)  # centred
        data = fit.kernel, fit.noise, X, self.y, self.ratios
        with one_blas_thread():
            posterior = LogPosterior(*data)
            found = posterior.maximize(posterior.moves())
            if found is not None and learns_map(metric, X.shape[1]):
                posterior, found = turn_by_evidence(
                    posterior, found, data, metric == "full"
                )
        if found is None:
            return fit
        kernel, noise = posterior.kernel_at(found), posterior.split(found)[1]
        turned, before = posterior.metric_at(found), fit.metric
        if before is not None:
            turned = before if turned is None else before @ turned
        return fit._replace(kernel=kernel, noise=noise, shared=False, metric=turned)

    def relearn_with_more_neighbors(self, fit, H, rng):
        """Return a fit whose variances suit predictions from H neighbours.

        A kernel learned from few neighbours was not fitted to the distances between
        many. If `rescale_variance` changes it, learning continues with H neighbours, at
        most MAX_WIDE_NEIGHBORS, and the variances are rescaled.
        """
        if self.rescale_variance(fit, H, rng) is fit:
            return fit
        wide = min(H, MAX_WIDE_NEIGHBORS)
        fit = self.learn(fit, rng, WIDE_STEPS, RATE / 2, shared=fit.shared, H=wide)
        return self.rescale_variance(fit, H, rng)

    def rescale_variance(self, fit, H, rng):
        """Rescale kernel and noise variance by the mean square standardised residual.

        A common factor of both changes no mean, so the mean square is the likeliest
        factor. The fit itself is returned if the gain does not exceed its standard
        error, or if the variance of the kernel is fixed.
        """
        variance = free_variance(fit.kernel, fit.count_columns(self.X.shape[1]))
        if variance is None:
            return fit
        slot, bounds = variance
        N = len(self.X)
        rows = draw_rows(np.arange(N), min(N, self.judging_rows), rng)
        with closing(self.process(fit, H)) as process:
            square, weight = process.standardised(rows)[0], self.weight[rows]
        params = process.model.params.astype(np.float64)
        least, most = np.exp(-MAX_LOG_FACTOR), np.exp(MAX_LOG_FACTOR)
        low, high = np.clip(bounds / params[slot], least, most)
        factor = np.average(square.mean(axis=1), weights=weight)
        factor = min(max(factor, low), high)
        gain = 0.5 * np.sum(square * (1.0 - 1.0 / factor) - np.log(factor), axis=1)
        if not exceeds_standard_error(gain, weight):
            return fit
        params[slot] *= factor
        noise = np.clip(factor * fit.noise, *np.exp(LOG_NOISE_BOUNDS))
        return fit._replace(kernel=updated_kernel(fit.kernel, params), noise=noise)

    def coarse_to_fine(self, spread, noise, rng, metric="ard"):
        """Return fits with free and with shared length-scales, the better one first.

        `spread` (D,) holds the standard deviations of the features. A single feature
        has one fit. Unless `metric` is "ard", a map of the columns is learned from the
        better one, and comes first if held-out rows are likelier with it, or if
        `metric` is "full". Where held-out rows are undecided, because the gain hides in
        the noise, the evidence of a part of the rows decides.
        """
        if len(spread) == 1:
            start = KernelFit(start_kernel(spread), noise)
            return [self.learn(start, rng, self.steps, RATE)]
        held_out, rows = self._split(spread, rng)
        seed = rng.randint(2**31 - 1)

        def learn(start, steps, shared):
            draws = np.random.RandomState(seed)
            fit = self.learn(start, draws, steps, RATE, shared=shared, rows=rows)
            return judged(fit)

        def judged(fit):
            return fit, self.log_density(fit, held_out)

        def is_better(candidate, other):
            gain = candidate[1] - other[1]
            return exceeds_standard_error(gain, self.weight[held_out])

        shared = learn(KernelFit(start_kernel(spread), noise), COARSE_STEPS, True)
        if len(spread) > self.options.tuning.many_features:
            varying = varying_features(self.X)
            size = root_mean_square(spread[varying]) if varying.any() else 1.0
            equal = start_kernel(np.full_like(spread, size))
            equal = learn(KernelFit(equal, noise), COARSE_STEPS, True)
            if is_better(equal, shared):
                shared = equal
        free = learn(shared[0], self.steps, False)
        order = (free, shared) if is_better(free, shared) else (shared, free)
        if learns_map(metric, len(spread)):
            best, turned = order[0], judged(self.take(rows).turned(order[0][0], seed))
            if metric == "full" or is_better(turned, best):
                order = turned, *order
            elif not is_better(best, turned) and self.part_favours_a_map(best[0], rng):
                order = turned, *order
        return [fit for fit, _ in order]

    def part_favours_a_map(self, fit, rng):
        """Return whether the evidence of a part of the rows is larger with a map."""
        (N, D), Q = self.X.shape, self.y.shape[1]
        sizes = np.arange(1, N + 1)
        work = evidence_work(sizes, D, Q) * PARTS_IN_EVIDENCE
        n_rows = np.sum(work <= self.options.tuning.evidence_work)
        if n_rows < ROWS_PER_ENTRY:
            return False
        part = self.take(np.sort(rng.permutation(N)[:n_rows]))
        found = part.maximize_marginal_likelihood(fit, metric="auto")
        return found.metric is not None

    def take(self, rows):
        """Return a learner that knows only these rows.

        A map of the columns has so many entries that it could fit held-out targets, if
        these were targets of neighbours while it is learned.
        """
        parts = self.X[rows], self.y[rows], self.ratios[rows], self.weight[rows]
        return KernelLearner(*parts, self.options)

    def turned(self, start, seed):
        """Return the fit after learning a map of the columns, from a start."""
        draws, shared = np.random.RandomState(seed), start.shared
        return self.learn(start, draws, self.steps, RATE / 2, shared=shared, turn=True)

    def _split(self, spread, rng):
        """Return the numbers of held-out rows and of the others.

        The split does not depend on the order of rows and columns, nor on the sign of
        y.
        """
        place = np.sort((self.X - self.X.min(axis=0)) / spread, axis=1)
        rank = np.lexsort([*np.abs(self.y).T, *place.T])
        order = rank[rng.permutation(len(rank))]
        n_held_out = min(self.judging_rows, int(HELD_OUT_FRACTION * len(order)))
        held_out, rows = np.split(order, [n_held_out])
        return np.sort(held_out), np.sort(rows)

    def choose_smoothness(self, fit, rng):
        """Return the best fit among those that differ in the kernel's smoothness."""
        seed = rng.randint(2**31 - 1)  # all candidates learn from the same minibatches
        best, half = None, (self.steps // 2, RATE / 2)
        last = slice(-(self.steps // 8), None)  # steps to compare, whose rate is small
        for nu in SMOOTHNESS:
            start, draws = with_smoothness(fit, nu), np.random.RandomState(seed)
            other = self.learn(start, draws, *half, shared=fit.shared)
            if best is None or exceeds_standard_error((other.curve - best.curve)[last]):
                best = other
        return best


def learn_kernel(
    data, kernel, noise_variance, rng, options, *, fit_all_noise=False,
    n_neighbors=None, exact=False, metric="ard",
):  # fmt: skip
    """Return `KernelFit`s learned from rows given their nearest others, best first.

    `data` are `TrainingRows` with standardised targets (n, Q) and positive weights; a
    weight is how often a row counts, and divides its noise variance. If there are many
    rows, a random part is used. The start is `kernel`, in the units of X, and
    `noise_variance`, a number or (Q,). None starts at the default kernel, with shared
    or free length-scales, and tries each SMOOTHNESS.

    With `fit_all_noise` the noise is fitted again for each kernel, not for the best one
    only. `n_neighbors` is the number of rows from which predictions will be made: the
    last steps use as many neighbours, and variances are then rescaled; None leaves both
    out. With `exact` the marginal likelihood is maximised at the end if rows are few.

    `metric` is that of the estimators. Where a kernel is given, "auto" is "ard".
    """
    most = count_learning_rows(data.X.shape[1], options.tuning)
    if data.n_rows > most:
        data = data.take(np.sort(rng.choice(data.n_rows, most, replace=False)))
    X, y, weight = merge_duplicates(data.inputs, data.y, data.weight)
    spread = feature_spread(X, rng, dtype=options.dtype)
    start = start_kernel(spread) if kernel is None else kernel
    compile_kernel(start, X.shape[1], options.dtype)  # raises an error before any work
    noise = np.zeros(y.shape[1])
    noise += noise_variance
    if len(X) == 1:
        return [KernelFit(clone(start), noise)]
    learner = KernelLearner(X, y, 1.0 / weight[:, None], weight, options)
    if kernel is not None:
        fit = learn_given(learner, KernelFit(start, noise), spread, rng, metric)
        rest = []
    else:
        by_evidence = exact and learner.is_small and learner.has_cheap_evidence
        held_out = "ard" if by_evidence else metric
        best, *rest = learner.coarse_to_fine(spread, noise, rng, held_out)
        best = learner.choose_smoothness(learner.fit_noise(best, rng), rng)
        nu = best.kernel.k2.nu
        rest = [with_smoothness(one, nu) for one in rest]
        fit = learner.fit_noise(best, rng)
    if exact and learner.is_small:
        if fit.metric is None:
            fit = with_shared_scales([fit, *rest])
        by_evidence = learner.has_cheap_evidence and fit.metric is None
        fit = learner.maximize_marginal_likelihood(
            fit, metric if by_evidence else "ard"
        )
        if np.ptp(weight) > 0.0:  # the noise above counts no row of little weight
            fit = learner.fit_noise(fit, rng)
    elif n_neighbors:
        fit = learner.relearn_with_more_neighbors(fit, n_neighbors, rng)
    if fit_all_noise:
        rest = [learner.fit_noise(one, rng) for one in rest]
    return [fit, *rest]


def learn_given(learner, start, spread, rng, metric):
    """Return the fit of the user's kernel, with a map of columns if that is "full"."""
    around = params_in_units(start.kernel, spread, varying_features(learner.X))
    fit = learner.learn(start, rng, learner.steps, RATE, around=around)
    fit = learner.fit_noise(fit, rng)
    if metric == "full" and learns_map(metric, len(spread)):
        fit = learner.learn(fit, rng, learner.steps, RATE / 2, turn=True)
    # The second run has its prior around its own start: with the prior of the first
    # run, errors on held-out rows grow.
    fit = learner.learn(fit, rng, learner.steps // 2, RATE / 2)
    return learner.fit_noise(fit, rng)


def learn_kernel_from_sites(sites, X, weight, start, rng, options, turn=False):
    """Return the fit learned from sites N(f_i; t_i, v_i) of a latent function.

    For given sites, the gradient of their log density by the kernel is that of the
    variational bound, except that the density of a row uses its nearest rows only.
    `sites` are t and v (N, Q), where v is for a row of weight 1. The `KernelFit` says
    where to start, and whether length-scales keep their ratios. With `turn` a map of
    the columns moves as well.
    """
    targets, variance = sites
    learner = KernelLearner(X, targets, variance / weight[:, None], weight, options)
    start = start._replace(noise=np.ones(targets.shape[1]))
    pace = (learner.steps, RATE / 2) if turn else (SITE_STEPS, RATE)
    keep = {"shared": start.shared, "noise_free": False, "turn": turn}
    return learner.learn(start, rng, *pace, **keep)


def count_few_rows(n_features, n_outputs, tuning):
    """Return the largest number of rows whose marginal likelihood is cheap."""
    n = np.arange(1.0, np.cbrt(tuning.exact_work) + 1.0)
    return np.sum(evaluation_work(n, n_features, n_outputs) <= tuning.exact_work)


def evaluation_work(n_rows, n_features, n_outputs):
    """Return the cost of an evaluation of the marginal likelihood, in operations."""
    return n_rows**2 * (n_rows + 4 * n_features) * n_outputs


def evidence_work(n_rows, n_features, n_outputs):
    """Return the cost of the evidence for a map: an evaluation for each entry."""
    entries = n_features * (n_features + 1) / 2
    return evaluation_work(n_rows, n_features, n_outputs) * entries


def learning_search(search):
    """Return the kind of neighbour search for learning, given the user's choice.

    The kernel changes while it is learned, and a graph is too slow to build each time.
    """
    return "auto" if search == "pynndescent" else search


def count_learning_rows(n_features, tuning, fraction=1.0):
    """Return the largest number of rows that take part in learning, or a fraction."""
    affordable = tuning.learning_numbers / max(n_features, LEAST_FEATURES)
    return max(int(fraction * affordable), tuning.least_learning_rows)


def with_shared_scales(fits):
    """Return the fit whose length-scales kept their ratios, or else the first."""
    return next((fit for fit in fits if fit.shared), fits[0])


def root_mean_square(values):
    """Return the root mean square of positive values, which may be very large."""
    most = values.max()
    return most * math.sqrt(np.mean((values / most) ** 2))


def varying_features(X):
    """Return which columns of X are not constant, (D,) bool."""
    return (X != X[0]).any(axis=0)


def start_kernel(spread):
    """Return the default kernel with the first SMOOTHNESS."""
    return default_kernel(spread).set_params(k2__nu=SMOOTHNESS[0])


def with_smoothness(fit, nu):
    """Return a fit of the default kernel with another smoothness."""
    return fit._replace(kernel=clone(fit.kernel).set_params(k2__nu=nu))
