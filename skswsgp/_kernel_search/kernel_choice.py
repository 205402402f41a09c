"""The search for a kernel: evidence, near rows, judging rows.

1. The evidence of all rows, or of a random part of many, is climbed (`climb`). Where
   Adam trains, a kernel is learned from near rows instead.
2. Where rows are left over, learning goes on from there on the density of rows given
   their nearest others, without and with a map of the columns.
3. Rows that neither step has seen judge these kernels, as they predict rows from as
   many neighbours as the model will.
4. If it will use all rows, many of them at once predict the judging rows as well, by
   the kernel of the evidence and by the one that near rows have chosen.
"""

import math
from functools import partial

import numpy as np
from scipy.special import ndtri
from sklearn.base import clone

from skswsgp._covariance.compile import compile_kernel, params_in_units
from skswsgp._kernel_search import climb, holdout
from skswsgp._kernel_search.kernel_learning import (
    RATE,
    KernelFit,
    KernelLearner,
    LearningOptions,
    count_few_rows,
    draw_learning_rows,
    evaluation_work,
)
from skswsgp._rows import column_scale, statistics
from skswsgp._rows.data import with_known_noise
from skswsgp._solvers.auto import default_kernel

# Nats that a scale of X or y has to gain on a few hundred rows, times the root of the
# number of outputs, since differences by chance add up. Gains of 19.6 and more came
# with better predictions on nearly all tables that were tried, gains of 3 to 18 often
# not.
LEAST_EVIDENCE = 19.0
LEVELS = np.arange(0.01, 1.0, 0.02)  # of quantiles, whose losses make a score
LEAST_JUDGES = 100  # rows below which the judgement of single rows would decide


def learn_kernel(
    data, kernel, noise_variance, rng, options, *, n_neighbors=None, learn_map=False,
    smoothness=climb.SMOOTHNESS, coded=None, by="both",
):  # fmt: skip
    """Return the `KernelFit` learned from rows.

    `data` are `TrainingRows` with standardised targets (n, Q) and positive weights. If
    there are many rows, a random part is used. The start is `kernel`, in the units of
    X, and `noise_variance`, a number or (Q,). None starts at the default kernel, and
    compares each nu of `smoothness`. `n_neighbors` is the number of rows
    from which predictions will be made, None for that of learning. Labels and counts
    that are coded as numbers learn nothing from near rows after the evidence, for their
    own likelihood teaches more. `coded` says whether length-scales of the default
    kernel are then "common" to the columns or their "own". `learn_map` is that of the
    estimators. Where a kernel is given, "auto" is False.

    `by` "evidence" leaves out learning from near rows, which suits predictions from
    near rows only. "near" leaves out the evidence: it likes smooth kernels of large
    variance, for which Adam does not find the values of few inducing points.
    """
    data = draw_learning_rows(data, options.tuning, rng)
    X, y, weight, count = statistics.distinct_observations(data)
    spread = statistics.feature_spread(X, rng, dtype=options.dtype)
    start = default_kernel(spread) if kernel is None else kernel
    compile_kernel(start, X.shape[1], options.dtype)  # raises an error before any work
    start = KernelFit(clone(start), np.zeros(y.shape[1]) + noise_variance)
    if len(X) == 1:
        return start
    learner = KernelLearner(X, y, 1.0 / weight[:, None], count, options)
    order = rng.permutation(len(X))
    sizes, tuning = (X.shape[1], y.shape[1]), options.tuning
    most = count_few_rows(*sizes, tuning.evidence_work)
    few, part = len(X) <= most and by != "near", learner
    if not few:
        n_rows = max(1, count_few_rows(*sizes, tuning.part_work))
        part = learner.take(np.sort(order[:n_rows]))
    wide = X.shape[1] > tuning.most_columns and learn_map and kernel is None
    n_judges = min(statistics.MEAN_ROWS, int(statistics.HELD_OUT_FRACTION * len(X)))
    enough = n_judges >= LEAST_JUDGES
    if wide and learn_map is True:  # what is asked for needs no judges
        n_judges, enough = max(1, n_judges), len(X) > 2
    if by == "near":
        fit = learner.learn(start, rng, learner.steps, RATE)
        if learn_map is True and X.shape[1] > 1 and (kernel is not None or not enough):
            fit = learner.turned(fit, 0, learner.steps)
        turned = fit
    elif kernel is None:
        whole = few and not coded and not (wide and enough)
        climber = climb.Climb(part, start, smoothness, rng, coded != "common", whole)
        fit, turned = climber.run(False if wide else learn_map)
    else:
        around = params_in_units(start.kernel, spread, (X != X[0]).any(axis=0))
        fit = turned = climb.climb_given(part, start, around, rng, learn_map)
    if coded or (few and not wide) or by == "evidence" or not enough:
        return turned
    rows, parts = order[:-n_judges], []
    if not few and n_neighbors is not None and n_neighbors >= len(X):  # exact means
        parts = [rows[:n] for n in (len(part.X), max(len(part.X), most))]
    judges = holdout.Judges(learner, order[-n_judges:], n_neighbors, parts)
    search = NearRows(learner, np.sort(rows), judges, kernel is None, rng)
    return search.run(fit, turned, learn_map)


def choose_columns(data, settings):
    """Return the scale of the columns of largest evidence, or None as they are.

    `data` are `TrainingRows`. Columns for values are added to the best scale.
    """
    D, Q, tuning = data.X.shape[1], settings.n_latent, settings.tuning
    record = settings.likelihood_record
    n_factors = 1 if record.joint else Q  # outputs of common noise share a factor
    work = climb.FIRST_STEPS * evaluation_work(climb.FIRST_ROWS, D, n_factors)
    if work > tuning.evidence_work:
        return None
    data = drawn_rows(data)
    data = data if data.ratio is None else with_known_noise(data)[0]
    X, most = data.X, tuning.most_columns

    def evidence(columns, n_rows=climb.FIRST_ROWS, smoothness=(climb.ROUGH,)):
        few = in_memory(data.take(np.arange(min(n_rows, data.n_rows))))
        few = few._replace(y=record.regression_targets(few.y, Q)).scaled(columns)
        best = best_of_few(few, settings, smoothness)
        return -np.inf if best is None else best.evidence

    names = column_scale.INCREASING
    scales = [column_scale.fit_columns(name, X, data.weight) for name in names]
    scales = [columns for columns in scales if column_scale.changes_columns(columns, X)]
    best = clearly_best([None, *scales], evidence, Q)
    if D >= most:
        return best
    levels = column_scale.level_columns(np.asarray(X, dtype=np.float64), most, best)
    if not levels.places:
        return best
    n_scales = levels.n_columns(D) if record.has_noise else 1
    n_rows = climb.first_rows(data.n_rows, n_scales, Q, tuning)
    # levels must not win for want of a kernel that is smooth enough for the columns
    of_values = partial(evidence, n_rows=n_rows, smoothness=(climb.ROUGH, math.inf))
    return clearly_best([best, levels], of_values, Q)


def choose_targets(data, settings, scales):
    """Return the one of some `TargetScale` on which targets are clearly likelier.

    `data` are `TrainingRows` with y (n, Q) in the units of the user. The first scale
    leaves y as it is, and the second takes powers. The first is kept where these are
    nearly linear, and where most targets share their value with others, so that they
    have no density. A density may also gain by a few values near zero, so a scale must
    not make predictions of rows left out worse in the units of y. Of copies of a row
    one counts, for a transformation does not take the mean of targets to the mean of
    others.
    """
    plain, Q = scales[0], settings.n_latent
    work = evaluation_work(climb.FIRST_ROWS, data.X.shape[1], Q)
    varies = np.ptp(data.y, axis=0) > statistics.ROUNDING * np.abs(data.y).max(axis=0)
    if work > settings.tuning.evidence_work or not varies.all():
        return plain
    few = drawn_rows(data)
    few = in_memory(few.take(statistics.first_of_each(few.X)[0][: climb.FIRST_ROWS]))
    if any(2 * len(np.unique(column)) <= few.n_rows for column in few.y.T):
        return plain
    plain_y, powers = (scale.standardise(few.y) for scale in scales[:2])
    if np.all(column_scale.correlations(plain_y, powers) > column_scale.HARDLY_CHANGED):
        return plain
    most = np.inf

    def evidence(scale):
        nonlocal most
        best = best_of_few(few._replace(y=scale.standardise(few.y)), settings)
        score = np.inf if best is None else left_out_score(best, scale, plain)
        if score >= most or best is None:
            return -np.inf
        most = score if scale is plain else most
        slopes = np.broadcast_to(scale.log_slope(few.y), few.y.shape)
        return best.evidence + slopes.sum()

    return clearly_best(scales, evidence, Q)


def left_out_score(candidate, scale, plain):
    """Return the mean ranked probability score of rows given all others.

    It is twice the mean pinball loss over LEVELS, of targets on a scale that are taken
    back to y, in the units of the scale `plain`: deviations of y. A row counts by one
    of them at most, so that a few large targets do not decide.
    """
    mean, variance = candidate.posterior.leave_one_out()
    y = plain.standardise(scale.restore(candidate.posterior.y))
    score = np.zeros_like(y)
    for level in LEVELS:
        t = mean + np.sqrt(variance) * ndtri(level)
        error = y - plain.standardise(scale.restore(t))
        score += np.maximum(level * error, (level - 1.0) * error)
    return np.minimum(2.0 * score / len(LEVELS), 1.0).mean()


def drawn_rows(data):
    """Return the `standing_rows`, in memory, of mean weight one."""
    data = data.take(statistics.standing_rows(data.n_rows))
    return statistics.relative_weights(in_memory(data), data.n_rows)


def in_memory(data):
    """Return `TrainingRows` whose X holds no other rows."""
    return data._replace(X=data.inputs, rows=None)


def clearly_best(scales, evidence, n_outputs):
    """Return the scale of largest evidence of those clearly better than the first.

    Each scale changes more than the one before it, and needs more than rows may
    reverse. An evidence of minus infinity is that of a scale that must not be taken.
    """
    best, *others = scales
    first = most = evidence(best) if others else math.inf
    for scale in others if np.isfinite(first) else []:
        value = evidence(scale)
        clear = value > first + LEAST_EVIDENCE * math.sqrt(n_outputs)
        if clear and (best is scales[0] or value > most + climb.UNDECIDED):
            best, most = scale, value
    return best


def best_of_few(data, settings, smoothness=(climb.ROUGH,)):
    """Return the `Candidate` of a default kernel of largest evidence of rows, or None.

    Each nu of `smoothness` is tried. For labels, and for many columns, all
    length-scales share one factor.
    """
    X, y, weight, count = statistics.distinct_observations(data)
    if len(X) == 1:
        return None
    record, rng = settings.likelihood_record, np.random.RandomState(0)
    options = LearningOptions(tuning=settings.tuning, common_noise=record.joint)
    separate = record.has_noise
    separate = separate and X.shape[1] <= settings.tuning.most_columns
    learner = KernelLearner(X, y, 1.0 / weight[:, None], count, options)
    start = default_kernel(statistics.feature_spread(X, rng))
    start = KernelFit(start, np.zeros(y.shape[1]) + settings.first_noise)
    climber = climb.Climb(learner, start, smoothness, rng, separate, first=len(X))
    try:
        return climber.best_of_few()
    except (FloatingPointError, np.linalg.LinAlgError):
        return None


class NearRows:
    """Learning from rows given their nearest others, judged by rows held out.

    `rows` are the numbers of the rows of a `KernelLearner` that learn. The kernel is
    the default one, whose smoothness was `chosen`, or that of the user.
    """

    def __init__(self, learner, rows, judges, chosen, rng):
        self.learner, self.rows, self.judges = learner, rows, judges
        self.chosen = chosen
        # A map of the columns has so many entries that it could fit the targets of the
        # judging rows, if these were targets of neighbours while it is learned.
        self.part = learner.take(rows)
        # all fits learn from the same minibatches
        self.seed = rng.randint(statistics.LARGEST_SEED)

    def run(self, fit, turned, learn_map):
        """Return the best fit: of the evidence, of near rows, or with a map of these.

        `fit` has the largest evidence without a map, and `turned` with one, or is the
        same. `learn_map` is that of the estimators.
        """
        best = self.learned(fit, turned, learn_map)
        without = turned.linear_map is None and self.learner.X.shape[1] > 1
        if learn_map is True and without:  # a map is asked for, and `best` has one
            return best
        return self.judges.better_given_parts(best, turned)

    def learned(self, fit, turned, learn_map):
        """Return the best fit as rows near to the judging ones tell; see `run`."""
        best = self.judges.better(fit, self.near(fit))
        if self.too_smooth(best):
            best = self.near(best.of_smoothness(climb.ROUGH))
        D, most = self.learner.X.shape[1], self.learner.options.tuning.most_columns
        if not learn_map or D == 1 or not self.chosen:
            return best  # a map of a user's kernel is asked for, or there is none
        if D > most:
            return self.reduced(best, always=learn_map is True)
        try:
            mapped = self.part.turned(best, self.seed, self.part.steps)
        except FloatingPointError:  # of a map that suits no rows
            mapped = turned
        if learn_map is True:
            return mapped
        return self.judges.better(best, mapped, favoured=turned is not fit)

    def too_smooth(self, fit):
        """Return whether a kernel is infinitely smooth where near rows are not noisy.

        The evidence of a part takes more for noise than near rows will, which gain
        little by such a kernel unless noise is the larger share of what they do not
        know of a row.
        """
        smooth = self.chosen and math.isinf(fit.kernel.k2.nu)
        return smooth and self.judges.say(fit)[2] <= holdout.NOISY

    def near(self, fit):
        """Return a fit after learning from near rows."""
        draws, steps = np.random.RandomState(self.seed), self.learner.steps
        try:
            return self.learner.learn(fit, draws, steps, RATE / 2, rows=self.rows)
        except FloatingPointError:
            return fit

    def reduced(self, best, always):
        """Return a fit of a wide table mapped to few columns, while it is better.

        The columns of the first map are taken `always` if that is asked for.
        """
        while True:
            draws = np.random.RandomState(self.seed)
            try:
                start = self.part.mapped_to_few(best, draws)
                steps = self.learner.steps
                fit = self.part.learn(start, draws, steps, RATE, shared=True)
            except FloatingPointError:
                if always:
                    raise
                return best
            if not always and self.judges.better(best, fit) is best:
                return best
            best, always = fit, False


def smoothnesses(fit):
    """Return fits of the default kernel, rough to smooth, and the place of a fit."""
    fits = [fit.of_smoothness(nu) for nu in climb.SMOOTHNESS]
    return fits, climb.SMOOTHNESS.index(fit.kernel.k2.nu)
