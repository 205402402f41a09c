"""Kernels that the evidence of a part of the rows decides on.

The nearest rows of a row do not show how a function goes on beyond them. Where rows are
many and noise is large, kernels of very different length-scales predict a row equally
well from its nearest rows, and differ in how well all rows predict it. The marginal
likelihood of a few rows, which lie further apart, tells such kernels from each other.
"""

import math

import numpy as np

from skswsgp._initialization.kernel_learning import (
    LEAST_PART,
    MAX_WIDE_NEIGHBORS,
    count_few_rows,
    evidence_work,
)
from skswsgp._initialization.statistics import (
    climbed,
    effective_sample_size,
    exceeds_standard_error,
)

# The evidence for a map takes this part of the time that all rows may take
PARTS_IN_EVIDENCE = 5
TRIAL_WORK = 0.2  # of the work of the last maximum, for each start
JUDGING_ROWS = 2000  # rows that may refuse a kernel learned from a part
NOISY = 0.5  # share of noise in a predictive variance above which noise dominates
ERRORS = 3.0  # standard errors by which rows must prefer a kernel to have a say
MOST_LOSS = 1.0  # nats that rows may lose on average, however much their losses differ


def learn_from_part(learner, fit, starts, first, H, rng):
    """Return the fit of a part of the rows, or `fit` where rows are less likely so.

    The `starts` are climbed from the `first` to the largest evidence of some hundred
    rows, and the best of them moves on to that of twice as many. Rows outside the part,
    predicted from their H nearest others, may refuse it (`Judges.refuse`). Before that,
    rows from which no start has learned may prefer a rougher kernel to an infinitely
    smooth one (`Judges.smoother_or`).
    """
    N, Q, tuning = *learner.y.shape, learner.options.tuning
    order, D = rng.permutation(N), fit.count_columns(learner.X.shape[1])
    most = count_few_rows(D, Q, tuning)
    judges = Judges(learner, order[most:], H, rng)
    if most < LEAST_PART or (judges.are_enough and not judges.are_heavy):
        return fit
    trials = climb_evidence(learner, starts, first, order)
    try:
        found = trials[0]
        unseen = Judges(learner, order[count_trial_rows(learner, fit) :], H, rng)
        if unseen.are_heavy and len(trials) > 1 and is_infinitely_smooth(found):
            found = unseen.smoother_or(*trials[:2])
        part = learner.take(np.sort(order[:most]))
        found = part.maximize_marginal_likelihood(found)
        found = learner.fit_noise(found, rng)
    except FloatingPointError:  # of a kernel that suits the part only
        return fit
    # without judges the part is nearly all of the rows
    return fit if judges.are_enough and judges.refuse(found, fit) else found


def climb_evidence(learner, starts, first, order):
    """Return starts at their largest evidence of a part of the rows, the best first.

    The part holds the first rows of a random `order`. The `starts` stand in an order
    along which the evidence is taken to rise and fall once. It is climbed from the
    place `first`, so some of the starts may be missing.
    """
    few = count_trial_rows(learner, starts[0])
    part = learner if few >= len(order) else learner.take(np.sort(order[:few]))
    fits = {}

    def evidence(place):
        fits[place] = part.maximize_marginal_likelihood(starts[place])
        return part.log_marginal_likelihood(fits[place])

    _, seen = climbed(evidence, len(starts), first)
    return [fits[place] for place in sorted(seen, key=seen.get, reverse=True)]


def count_trial_rows(learner, fit):
    """Return how many rows compare starts by their evidence, at most.

    A fraction TRIAL_WORK of the work of a marginal likelihood allows so many.
    """
    Q, tuning = learner.y.shape[1], learner.options.tuning
    less = tuning._replace(exact_work=TRIAL_WORK * tuning.exact_work)
    return max(
        count_few_rows(fit.count_columns(learner.X.shape[1]), Q, less), LEAST_PART
    )


class Judges:
    """Some rows outside a part, each predicted from its H nearest others."""

    def __init__(self, learner, outside, H, rng):
        self.learner, self.rng = learner, rng
        self.rows = np.sort(outside[-JUDGING_ROWS:])
        self.H = min(H, MAX_WIDE_NEIGHBORS)
        self.weight = learner.weight[self.rows]
        self.are_enough = len(self.rows) >= LEAST_PART

    @property
    def are_heavy(self):
        """Whether as many rows as decide anything have some weight."""
        return effective_sample_size(self.weight) >= LEAST_PART

    def suited(self, fit):
        """Return a fit whose variances suit H neighbours."""
        return self.learner.rescale_variance(fit, self.H, self.rng)

    def log_density(self, fit):
        """Return the log density (n,) of the rows."""
        return self.learner.log_density(fit, self.rows, self.H)

    def refuse(self, found, fit):
        """Return whether rows are less likely under the kernel that was found.

        They must be so by three standard errors. Where a few of them lose nearly all,
        the error is as large as the mean loss, which may be at most MOST_LOSS.
        """
        after = self.log_density(self.suited(found))
        loss = self.log_density(self.suited(fit)) - after
        if not np.isfinite(after).all():
            return True
        worse = exceeds_standard_error(loss, self.weight, errors=ERRORS)
        return worse or np.average(loss, weights=self.weight) > MOST_LOSS

    def smoother_or(self, smooth, rough):
        """Return an infinitely smooth kernel, or a rough one of less evidence.

        The smooth one stays if rows are likelier under it by three standard errors, or
        if noise is the larger part of what their neighbours do not know of them: the
        evidence sees further then. Elsewhere it gains little, and systems with it are
        ill-conditioned.
        """
        with_noise = [self.learner.fit_noise(fit, self.rng) for fit in (smooth, rough)]
        fit, other = map(self.suited, with_noise)
        share = self.learner.noise_share(fit, self.rows, self.H)
        if np.average(share, weights=self.weight) > NOISY:
            return smooth
        gain = self.log_density(fit) - self.log_density(other)
        gains = exceeds_standard_error(gain, self.weight, errors=ERRORS)
        return smooth if gains else rough


def is_infinitely_smooth(fit):
    """Return whether a fit of the default kernel has one for its smoothness."""
    return math.isinf(fit.kernel.k2.nu)


def part_favours_a_map(learner, fit, rng):
    """Return whether the evidence of a part of the rows is larger with a map."""
    N, Q, tuning = len(learner.X), learner.y.shape[1], learner.options.tuning
    n_columns = fit.count_columns(learner.X.shape[1])
    work = evidence_work(np.arange(1, N + 1), n_columns, Q) * PARTS_IN_EVIDENCE
    n_rows = np.sum(work <= tuning.evidence_work)
    if n_rows < LEAST_PART:
        return False
    part = learner.take(np.sort(rng.permutation(N)[:n_rows]))
    found = part.maximize_marginal_likelihood(fit, metric="auto")
    return found.metric is not fit.metric
