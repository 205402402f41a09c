"""Kernels that the evidence of a part of the rows decides on.

The nearest rows of a row do not show how a function goes on beyond them. Where rows are
many and noise is large, kernels of very different length-scales predict a row equally
well from its nearest rows, and differ in how well all rows predict it. The marginal
likelihood of a few rows, which lie further apart, tells such kernels from each other.
"""

import numpy as np

from skswsgp._initialization.kernel_learning import (
    MAX_WIDE_NEIGHBORS,
    count_few_rows,
    evidence_work,
)
from skswsgp._initialization.statistics import (
    effective_sample_size,
    exceeds_standard_error,
)

# The evidence for a map takes this part of the time that all rows may take
PARTS_IN_EVIDENCE = 5
LEAST_PART = 10  # least number of rows whose evidence is asked
TRIAL_WORK = 0.2  # of the work of the last maximum, for each start
JUDGING_ROWS = 2000  # rows that may refuse a kernel learned from a part
ERRORS = 2.0  # standard errors by which they must be less likely for that


def learn_from_part(learner, fit, starts, H, rng):
    """Return the fit of a part of the rows, or `fit` where rows are less likely so.

    Each of the `starts` is moved to the largest evidence of some hundred rows, and the
    best to that of twice as many. Predictions of rows outside the part from their H
    nearest others must not be worse than those of `fit` by more than two standard
    errors, where the variances of both suit H neighbours.
    """
    N, Q, tuning = *learner.y.shape, learner.options.tuning
    order, D = rng.permutation(N), fit.count_columns(learner.X.shape[1])
    less = tuning._replace(exact_work=TRIAL_WORK * tuning.exact_work)
    few, most = (count_few_rows(D, Q, each) for each in (less, tuning))
    judges = np.sort(order[most:][-JUDGING_ROWS:])
    weight, judged = learner.weight[judges], len(judges) >= LEAST_PART
    if few < LEAST_PART or (judged and effective_sample_size(weight) < LEAST_PART):
        return fit
    part = learner.take(np.sort(order[:few]))
    trials = [part.maximize_marginal_likelihood(start) for start in starts]
    found = max(trials, key=part.log_marginal_likelihood)
    found = learner.take(np.sort(order[:most])).maximize_marginal_likelihood(found)
    try:
        found = learner.fit_noise(found, rng)
    except FloatingPointError:  # of a kernel that suits the part only
        return fit
    if not judged:
        return found  # the part is nearly all of the rows
    nearest = min(H, MAX_WIDE_NEIGHBORS)
    both = [learner.rescale_variance(each, nearest, rng) for each in (fit, found)]
    before, after = (learner.log_density(each, judges, nearest) for each in both)
    worse = exceeds_standard_error(before - after, weight, errors=ERRORS)
    return fit if worse or not np.isfinite(after).all() else found


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
