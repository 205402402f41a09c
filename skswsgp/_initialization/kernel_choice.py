"""A kernel for regression: what held-out rows choose, from coarse to fine.

First all length-scales share one factor, relative to the spread of each feature or, for
many features, in the units of X, as suits the pixels of an image. Then each feature
gets its own length-scale, then the columns are mapped. Each of these steps is kept if
held-out rows are likelier with it, or for a map if the evidence of a part of the rows
is larger. Then the smoothness is chosen.
"""

import math

import numpy as np
from sklearn.base import clone

from skswsgp._covariance.compile import compile_kernel, params_in_units
from skswsgp._initialization.auto import default_kernel
from skswsgp._initialization.kernel_learning import (
    RATE,
    KernelFit,
    KernelLearner,
    draw_learning_rows,
)
from skswsgp._initialization.part_evidence import (
    climb_evidence,
    is_infinitely_smooth,
    learn_from_part,
    part_favours_a_map,
)
from skswsgp._initialization.statistics import (
    HELD_OUT_FRACTION,
    LEAST_EFFECTIVE,
    distinct_observations,
    effective_sample_size,
    exceeds_standard_error,
    feature_spread,
    varying_features,
)

COARSE_STEPS = 50  # steps of Adam for one common factor of all length-scales
SMOOTHNESS = 1.5, 0.5, 2.5  # nu of the Matern kernels that are tried, the start first
MAX_REDUCTIONS = 3  # largest number of maps of a wide table, one after the other


def learn_kernel(
    data, kernel, noise_variance, rng, options, *, fit_all_noise=False,
    n_neighbors=None, exact=False, metric="ard",
):  # fmt: skip
    """Return `KernelFit`s learned from rows given their nearest others, best first.

    `data` are `TrainingRows` with standardised targets (n, Q) and positive weights. If
    there are many rows, a random part is used. The start is `kernel`, in the units of
    X, and `noise_variance`, a number or (Q,). None starts at the default kernel, with
    shared or free length-scales, and tries each SMOOTHNESS.

    With `fit_all_noise` the noise is fitted again for each kernel, not for the best one
    only. `n_neighbors` is the number of rows from which predictions will be made: the
    last steps use as many neighbours, and variances are rescaled; None leaves this out.
    With `exact` the marginal likelihood is maximised at the end if rows are few, and
    with `n_neighbors` as well that of a part of more rows may change their kernel
    before the last steps. It chooses the smoothness then, which may be infinite, unlike
    that from nearest rows.

    `metric` is that of the estimators. Where a kernel is given, "auto" is "ard".
    """
    data = draw_learning_rows(data, options.tuning, rng)
    X, y, weight, count = distinct_observations(data)
    spread = feature_spread(X, rng, dtype=options.dtype)
    start = start_kernel(spread) if kernel is None else kernel
    compile_kernel(start, X.shape[1], options.dtype)  # raises an error before any work
    noise = np.zeros(y.shape[1])
    noise += noise_variance
    if len(X) == 1:
        return [KernelFit(clone(start), noise)]
    learner = KernelLearner(X, y, 1.0 / weight[:, None], count, options)
    by_evidence = exact and learner.is_small and learner.has_cheap_evidence
    if kernel is not None:
        fit = learn_given(learner, KernelFit(start, noise), spread, rng, metric)
        rest = []
    else:
        held_out = "ard" if by_evidence else metric
        best, *rest = coarse_to_fine(learner, spread, noise, rng, held_out, n_neighbors)
        best = choose_smoothness(learner, learner.fit_noise(best, rng), rng)
        nu = best.kernel.k2.nu
        rest = [with_smoothness(one, nu) for one in rest]
        fit = learner.fit_noise(best, rng)
    if exact and learner.is_small and fit.metric is None:
        turns = metric if by_evidence else "ard"
        shared = with_shared_scales([fit, *rest])
        # Several outputs have several maxima, of which some take an output for noise.
        # So another start is that of nearest rows, with their smoothness.
        others = [] if fit is shared or y.shape[1] == 1 else [fit]
        if kernel is None and n_neighbors:
            steps = smoothnesses(shared)
            best, *_ = climb_evidence(learner, *steps, rng.permutation(len(X)))
            shared = with_smoothness(shared, best.kernel.k2.nu)
        fit, *others = [
            learner.maximize_marginal_likelihood(one, turns, widen_rng=rng)
            for one in (shared, *others)
        ]
        if others:
            fit = max(fit, *others, key=learner.log_marginal_likelihood)
        if np.ptp(weight) > 0.0:  # the noise above counts no row of little weight
            fit = learner.fit_noise(fit, rng)
    elif n_neighbors:
        if exact:
            steps = smoothnesses(fit) if kernel is None else ([fit], 0)
            fit = learn_from_part(learner, fit, *steps, n_neighbors, rng)
        if kernel is None and is_infinitely_smooth(fit):
            fit = learner.rescale_variance(fit, n_neighbors, rng)
        else:
            fit = learner.relearn_with_more_neighbors(fit, n_neighbors, rng)
    if fit_all_noise:
        rest = [learner.fit_noise(one, rng) for one in rest]
    return [fit, *rest]


def learn_given(learner, start, spread, rng, metric):
    """Return the fit of the user's kernel, with a map of columns if that is "full"."""
    around = params_in_units(start.kernel, spread, varying_features(learner.X))
    fit = learner.learn(start, rng, learner.steps, RATE, around=around)
    fit = learner.fit_noise(fit, rng)
    if metric == "full" and len(spread) > 1:
        held_out, rows = split_rows(learner, spread, rng)
        fit = learner.take(rows).learn(fit, rng, learner.steps, RATE / 2, turn=True)
        fit = fit._replace(unseen=held_out)
    # The second run has its prior around its own start: with the prior of the first
    # run, errors on held-out rows grow.
    fit = learner.learn(fit, rng, learner.steps // 2, RATE / 2)
    return learner.fit_noise(fit, rng)


def coarse_to_fine(learner, spread, noise, rng, metric="ard", n_neighbors=None):
    """Return fits with free and with shared length-scales, the better one first.

    `spread` (D,) holds the standard deviations of the features. A single feature has
    one fit. Unless `metric` is "ard", a map of the columns is learned from the better
    one, and comes first if held-out rows are likelier with it, or if `metric` is
    "full". `n_neighbors` is the number of rows from which predictions will be made.
    """
    if len(spread) == 1:
        start = KernelFit(start_kernel(spread), noise)
        return [learner.learn(start, rng, learner.steps, RATE)]
    choice = HeldOutChoice(learner, spread, rng)
    choice.choose_length_scales(spread, noise)
    if metric == "full" or (metric == "auto" and choice.decides_on_maps):
        choice.reduce_columns(n_neighbors, always=metric == "full")
        if choice.count_columns() <= learner.options.tuning.most_columns:
            choice.turn_columns(rng, always=metric == "full")
    return [fit for fit, _ in choice.order]


class HeldOutChoice:
    """A choice between the fits of a `KernelLearner` by the density of held-out rows.

    `order` lists pairs of a fit and of the log density of the held-out rows under it,
    the best pair first.
    """

    def __init__(self, learner, spread, rng):
        self.learner = learner
        self.held_out, self.rows = split_rows(learner, spread, rng)
        # A map of the columns has so many entries that it could fit held-out targets,
        # if these were targets of neighbours while it is learned.
        self.part = learner.take(self.rows)
        self.seed = rng.randint(2**31 - 1)  # all fits learn from the same minibatches
        self.order = []

    def judged(self, fit, H=None):
        """Return a fit and the log density of the held-out rows, from H neighbours."""
        return fit, self.learner.log_density(fit, self.held_out, H)

    def learn(self, start, steps, shared):
        """Return a fit learned from the rows that are not held out, judged."""
        draws = np.random.RandomState(self.seed)
        keep = {"shared": shared, "rows": self.rows}
        return self.judged(self.learner.learn(start, draws, steps, RATE, **keep))

    def is_better(self, pair, other):
        """Return whether held-out rows are likelier, beyond the standard error."""
        weight = self.learner.weight[self.held_out]
        return exceeds_standard_error(pair[1] - other[1], weight)

    @property
    def decides_on_maps(self):
        """Whether held-out rows are enough to judge a map of many entries."""
        weight = self.learner.weight[self.held_out]
        return effective_sample_size(weight) >= LEAST_EFFECTIVE

    def count_columns(self):
        """Return the number of columns of the best fit."""
        return self.order[0][0].count_columns(self.learner.X.shape[1])

    def choose_length_scales(self, spread, noise):
        """Learn a common factor of all length-scales, then each on its own."""
        start = KernelFit(start_kernel(spread), noise)
        shared = self.learn(start, COARSE_STEPS, True)
        if len(spread) > self.learner.options.tuning.many_features:
            varying = varying_features(self.learner.X)
            size = root_mean_square(spread[varying]) if varying.any() else 1.0
            equal = KernelFit(start_kernel(np.full_like(spread, size)), noise)
            equal = self.learn(equal, COARSE_STEPS, True)
            if self.is_better(equal, shared):
                shared = equal
        free = self.learn(shared[0], self.learner.steps, False)
        free_is_better = self.is_better(free, shared)
        self.order = [free, shared] if free_is_better else [shared, free]

    def reduce_columns(self, H, always):
        """Map the columns of a wide table to few, while held-out rows are likelier.

        They are predicted from H rows, as many as in the end: in many columns the
        nearest few rows are far away, so a map gains more on few than on many.
        """
        if self.count_columns() <= self.learner.options.tuning.most_columns:
            return
        best = self.judged(self.order[0][0], H)
        for _ in range(MAX_REDUCTIONS):
            reduced = self.attempt(always, self._reduced, best[0])
            reduced = reduced and self.judged(reduced, H)
            if reduced is None or not (always or self.is_better(reduced, best)):
                break
            best, always = reduced, False
            self.order.insert(0, self.judged(best[0]))

    def attempt(self, always, make, *arguments):
        """Return make(*arguments), or None if that fails and is not wanted `always`."""
        try:
            return make(*arguments)
        except FloatingPointError:
            if always:
                raise
            return None

    def _reduced(self, start):
        """Return the fit after mapping the columns to few, from a start."""
        draws = np.random.RandomState(self.seed)
        start = self.part.mapped_to_few(start, draws)
        fit = self.part.learn(start, draws, self.learner.steps, RATE, shared=True)
        return fit._replace(unseen=self.held_out)

    def turn_columns(self, rng, always):
        """Learn a map of the columns, which is kept if held-out rows are likelier.

        Where they are undecided, because the gain hides in the noise, the evidence of a
        part of the rows decides.
        """
        best = self.order[0]
        turned = self.attempt(always, self.part.turned, best[0], self.seed)
        if turned is None:
            return
        turned = self.judged(turned._replace(unseen=self.held_out))
        keeps = always or self.is_better(turned, best)
        undecided = not keeps and not self.is_better(best, turned)
        if keeps or (undecided and part_favours_a_map(self.learner, best[0], rng)):
            self.order.insert(0, turned)


def split_rows(learner, spread, rng):
    """Return the numbers of held-out rows and of the others.

    The split does not depend on the order of rows and columns, nor on the sign of y.
    """
    X = learner.X
    place = np.sort((X - X.min(axis=0)) / spread, axis=1)
    rank = np.lexsort([*np.abs(learner.y).T, *place.T])
    order = rank[rng.permutation(len(rank))]
    n_held_out = min(learner.judging_rows, int(HELD_OUT_FRACTION * len(order)))
    held_out, rows = np.split(order, [n_held_out])
    return np.sort(held_out), np.sort(rows)


def choose_smoothness(learner, fit, rng):
    """Return the best fit among those that differ in the kernel's smoothness."""
    seed = rng.randint(2**31 - 1)  # all candidates learn from the same minibatches
    best, half = None, (learner.steps // 2, RATE / 2)
    last = slice(-(learner.steps // 8), None)  # steps to compare, whose rate is small
    for nu in SMOOTHNESS:
        start, draws = with_smoothness(fit, nu), np.random.RandomState(seed)
        other = learner.learn(start, draws, *half, shared=fit.shared)
        if best is None or exceeds_standard_error((other.curve - best.curve)[last]):
            best = other
    return best


def with_shared_scales(fits):
    """Return the fit whose length-scales kept their ratios, or else the first."""
    return next((fit for fit in fits if fit.shared), fits[0])


def root_mean_square(values):
    """Return the root mean square of positive values, which may be very large."""
    most = values.max()
    return most * math.sqrt(np.mean((values / most) ** 2))


def start_kernel(spread):
    """Return the default kernel with the first SMOOTHNESS."""
    return default_kernel(spread).set_params(k2__nu=SMOOTHNESS[0])


def with_smoothness(fit, nu):
    """Return a fit of the default kernel with another smoothness."""
    return fit._replace(kernel=clone(fit.kernel).set_params(k2__nu=nu))


def smoothnesses(fit):
    """Return fits of the default kernel, rough to smooth, and the place of a fit."""
    values = sorted((*SMOOTHNESS, math.inf))
    return [with_smoothness(fit, nu) for nu in values], values.index(fit.kernel.k2.nu)
