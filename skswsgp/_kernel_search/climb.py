"""The default kernel of largest evidence, climbed from few rows to many.

The evidence of a few hundred rows takes milliseconds. It tells common from separate
length-scales, and degrees of smoothness from each other. The climb on
all rows starts from the optimum on few, and ends after some steps. What few rows leave
undecided is compared on all, as is a map of the columns, whose many entries few rows
cannot know.
"""

import math
from typing import NamedTuple

import numpy as np
from sklearn.base import clone

from skswsgp._compiled.threads import one_blas_thread
from skswsgp._covariance.compile import distance_leaves
from skswsgp._kernel_search.kernel_learning import (
    KernelLearner,
    evaluation_work,
    evidence_work,
)
from skswsgp._kernel_search.linear_map import ROWS_PER_PARAMETER
from skswsgp._kernel_search.marginal_likelihood import LogPosterior
from skswsgp._kernel_search.waves import quarter_waves

# Rows of the first climbs, of which an evaluation takes about a millisecond, and rows
# that decide between forms that fewer leave undecided. Length-scales of many columns
# need more rows to begin with (`first_rows`).
FIRST_ROWS = 250
NEXT_ROWS = 2 * FIRST_ROWS, 4 * FIRST_ROWS
# Steps of L-BFGS on the first rows, for a map of the columns, which starts at the
# identity, and of BFGS on more rows, from the optimum of few and their second
# derivatives, which the steps on 500 and 1,000 rows have corrected. Another smoothness
# on the first rows takes half of the first.
FIRST_STEPS, MAP_STEPS, LAST_STEPS = 50, 40, 3
NEXT_STEPS = FIRST_STEPS // 2
# Prior standard deviations of the logarithms of length-scales, of the kernel variance
# and of the noise variance. On few rows the prior holds length-scales that these do not
# know, lest they are lost: a column of an endless length-scale has no gradient. In the
# end it is nearly flat, since columns that do not matter have endless length-scales.
# With few rows for each column all are narrower, down to the least width: many columns
# would fit the noise by chance.
WIDTHS = 2.0, 3.0, 4.0
LAST_WIDTHS = 30.0, 5.0, 4.0
LEAST_WIDTH = 0.5
# Added to the logarithms of length-scales where a climb begins anew. `SHORTER` is added
# once and twice for a user's kernel, and `SHORT` where columns share a length-scale and
# few rows may take for noise what moves quickly.
SHORTER, SHORT = -1.2, -3.5
SMOOTHNESS = 0.5, 1.5, 2.5, math.inf  # nu of the Matern kernels that are compared
# Systems with infinitely smooth kernels are ill-conditioned, so a rougher kernel is
# climbed first. It is the smoothest one for Adam, and where inducing points are few.
ROUGH = SMOOTHNESS[2]
UNDECIDED = 3.0  # nats: a difference of evidence that more rows may reverse
ENOUGH = 2e-4  # nats a row that a step gains, or it is the last: no density shows fewer


class Form(NamedTuple):
    """What a climb keeps: one form of the default kernel and of its priors."""

    nu: float  # smoothness of the Matern kernel
    shared: bool = True  # whether length-scales keep their ratios


class Candidate(NamedTuple):
    """A form at the largest posterior density of its parameters."""

    form: Form
    posterior: LogPosterior  # of some of the rows, whose start is that point
    value: float  # log density there
    curvatures: np.ndarray  # (k,) of the posterior over those of the prior, of few rows
    hessian: np.ndarray | None  # (n, n) of the loss of few rows without the prior
    n_few: int  # number of few rows

    @property
    def evidence(self):
        """Laplace's log evidence."""
        return self.value + self.log_volume(len(self.posterior.X))

    def log_volume(self, n_rows):
        """Return the log volume for a number of rows, by which curvatures grow."""
        growth = max(n_rows / self.n_few, 1.0)
        return -0.5 * np.log(np.maximum(growth * self.curvatures, 1.0)).sum()

    @property
    def gain_by_chance(self):
        """By how much the parameters fit few rows better than the prior, in nats.

        It is half a nat for each parameter that the rows know better than the prior.
        """
        return 0.5 * np.sum(1.0 - 1.0 / self.curvatures)


def measured(form, posterior, value, moves):
    """Return the `Candidate` of few rows at the start of their posterior."""
    parts = posterior.second_derivatives(moves)
    return Candidate(form, posterior, value, *parts, len(posterior.X))


class Climb:
    """A search for the kernel of largest evidence of the rows of a `KernelLearner`.

    `start` is the `KernelFit` at the medians of the priors, with a default kernel, and
    `smoothness` are the nu that are compared, in ascending order. Columns may have
    length-scales of their own if `separate`. Few rows for their columns may tell that
    there is noise alone if they are the `whole` of a regression's rows. The first
    climbs take `first` rows, or as many as the columns need.
    """

    def __init__(
        self, learner, start, smoothness, rng, separate=True, whole=False, first=None
    ):
        self.learner, self.start, self.smoothness = learner, start, smoothness
        self.separate = separate
        self.noise_free = not learner.options.noise_known
        self.middle = max(nu for nu in smoothness if nu <= ROUGH)  # is climbed first
        N, D = learner.X.shape
        order = rng.permutation(N)
        n_scales, Q = D if separate else 1, learner.y.shape[1]
        first = first or first_rows(N, n_scales, Q, learner.options.tuning)
        sizes = [first, *(n for n in NEXT_ROWS if n > first)]
        sizes = [n for n in sizes if n < N]
        self.few, *self.more = [
            *(learner.take(np.sort(order[:n])) for n in sizes), learner
        ]  # fmt: skip
        self.share = min(1.0, N / (ROWS_PER_PARAMETER * D))  # of the rows that D need
        self.may_be_noise = whole and not self.more and self.share < 1.0

    def run(self, learn_map=False):
        """Return the `KernelFit` of largest evidence, without a map and in all.

        `learn_map` is that of the estimators. Both are the same where no map is better.
        """
        with one_blas_thread():
            candidates = self.few_rows()
            may_be_noise = self.may_be_noise and learn_map is not True
            noise = self.noise_alone(candidates) if may_be_noise else None
            apart = self.apart(candidates[0])
            *more, last = self.more or [self.few]
            if len(last.X) <= NEXT_ROWS[-1]:
                more.append(last)
            for rows in more:
                moved = undecided([self.moved_on(one, rows) for one in candidates])
                others = self.with_waves(moved[0]) + self.freed(moved[0])
                form = moved[0].form._replace(shared=rows.X.shape[1] == 1)
                others += [self.climbed_anew(moved[0], form, at) for at in apart]
                candidates = undecided(moved + others)
            best = turned = candidates[0]
            if learn_map and self.learner.X.shape[1] > 1:
                turned = self.turned(best, always=learn_map is True)
            if noise is not None and turned is best:  # nor does a map show more
                best = turned = noise
            if len(last.X) > NEXT_ROWS[-1]:
                mapped = turned is not best
                best = self.moved_on(best, last)
                turned = self.moved_on(turned, last) if mapped else best
        plain = self.fit(best)
        return plain, plain if turned is best else self.fit(turned)

    def best_of_few(self):
        """Return the candidate of the largest evidence of few rows, without waves."""
        with one_blas_thread():
            return max(self.few_rows(waves=False), key=lambda one: one.evidence)

    def few_rows(self, waves=True):
        """Return candidates of few rows, the best first, then those close behind.

        Separate length-scales are among them in any case, if they are affordable.
        """
        shared = self.climbed(Form(self.middle), None, FIRST_STEPS)
        found, free = [shared], Form(self.middle, shared=False)
        if self.frees_length_scales and self.few.X.shape[1] > 1:
            # A climb from common length-scales may take an output for noise, and one
            # from the start of many columns ends at a lower maximum.
            own = self.climbed(free, None, FIRST_STEPS)
            again = self.climbed(free, shared, NEXT_STEPS, measure=False)
            if again.value > own.value + UNDECIDED:
                moves = again.posterior.moves(noise=self.noise_free)
                own = measured(free, again.posterior, again.value, moves)
            found.append(own)
        best, *others = sorted(found, key=lambda one: one.evidence, reverse=True)
        found = [best] + [
            self.climbed(best.form._replace(nu=nu), best, NEXT_STEPS, measure=False)
            for nu in self.smoothness if nu != self.middle
        ]  # fmt: skip
        found = undecided(found + (self.with_waves(best) if waves else []))
        found += others[:1] if best.form.shared else []
        if self.more and not self.frees_length_scales:
            # Waves would show what moves quickly, and are not looked for here. The
            # candidate has the density of `shared` until more rows move it on.
            posterior = self.posterior(shared.form)
            posterior.start = posterior.start + SHORT * length_scales(posterior)
            found.append(shared._replace(posterior=posterior, hessian=None))
        return found

    @property
    def frees_length_scales(self):
        """Whether columns have length-scales of their own, few enough for a volume.

        Outputs that share their noise share a factor, and cost as much as one.
        """
        n, D = self.few.X.shape
        Q = 1 if self.few.options.common_noise else self.few.y.shape[1]
        work = evaluation_work(n, D, Q) * D
        return self.separate and work <= self.learner.options.tuning.evidence_work

    def with_waves(self, candidate):
        """Return candidates that see waves along columns, none without waves.

        Rows easily take for noise what moves with a column, or with two, by a wave
        only. The columns have endless length-scales then, which nothing shortens again.
        So the climb begins anew where a wave would have made the targets likelier, with
        a quarter of the wave as length-scale of its column. If that finds more
        evidence, and does not lengthen the columns again, each smoothness is tried:
        what was noise does not tell how smooth a wave is.
        """
        posterior, n = candidate.posterior, len(candidate.posterior.X)
        if not self.frees_length_scales or np.isinf(candidate.value):
            return []
        n_before = NEXT_ROWS[0] if n > NEXT_ROWS[0] else 0
        lengths = quarter_waves(posterior, n_before, pairs=n <= NEXT_ROWS[-1])
        seen = np.isfinite(lengths)
        if not seen.any():
            return []
        slots = np.flatnonzero(length_scales(posterior))[seen]
        start = self.posterior(candidate.form).start.copy()
        start[slots] = np.minimum(start[slots], np.log(lengths[seen]))
        shorter = start[slots] < posterior.start[slots]
        middle = 0.5 * (start + posterior.start)[slots]
        found, before = [], candidate.form.nu
        for nu in sorted(self.smoothness, key=lambda nu: nu != before):
            form = Form(nu, shared=len(seen) == 1)
            found.append(self.climbed_anew(candidate, form, start))
            start = found[0].posterior.start
            gone = shorter & (start[slots] >= middle)  # back to where the climb began
            if gone.all() or found[0].evidence < candidate.evidence:
                break
        return undecided(found)

    def freed(self, candidate):
        """Return a list of the candidate with separate length-scales, or an empty one.

        It is empty where the candidate has such, where columns have none of their own,
        and on the few rows of the first climbs, which have tried them. More rows may
        tell columns apart that few do not.
        """
        posterior, form = candidate.posterior, candidate.form._replace(shared=False)
        more = len(posterior.X) > len(self.few.X) and posterior.X.shape[1] > 1
        if form == candidate.form or not (more and self.frees_length_scales):
            return []
        return [self.climbed_anew(candidate, form, posterior.start)]

    def climbed_anew(self, candidate, form, start):
        """Return a `Candidate` of a form, for the rows and the priors of another one.

        It is climbed from the point `start`. Few rows tell its volume where it ends.
        """
        few, rows = self.posterior(form), candidate.posterior
        posterior = few.given(rows.X, rows.y, rows.ratios)
        posterior.variances, posterior.start = rows.variances, start
        if form.nu > candidate.form.nu:
            self.shorten(posterior)
        value, moves, _ = self.ascend(posterior, form, FIRST_STEPS)
        few.start = posterior.start
        return measured(form, few, value, moves)._replace(posterior=posterior)

    def noise_alone(self, candidates):
        """Return a candidate of noise alone, or None if any of others is likelier.

        Few rows of many columns fit noise by chance. The variance of the function is at
        its lower bound here, and its length-scales are the medians of their priors.
        """
        form, n = candidates[0].form, len(self.start.noise)
        posterior = self.posterior(form)
        constants = np.flatnonzero(~length_scales(posterior)[:-n])
        posterior.start[constants] = posterior.bounds[constants, 0]
        posterior.medians = posterior.start
        size = len(posterior.start)
        moves = np.eye(size)[:, size - n * self.noise_free :]
        posterior.start, value, _ = posterior.maximize(moves, FIRST_STEPS)
        noise = measured(form, posterior, value, moves)
        likeliest = max(one.evidence for one in candidates)
        return noise if noise.evidence > likeliest else None

    def apart(self, candidate):
        """Return a list of a point from which to climb more rows, or an empty one.

        Few rows may take one of several outputs for noise that moves with other columns
        than the rest. So each that seems to be noise by half is climbed by itself, and
        the point has the shorter of both length-scales, and its noise.
        """
        few, posterior, Q = self.few, candidate.posterior, len(self.start.noise)
        noisy = np.flatnonzero(2.0 * np.exp(posterior.start[-Q:]) > few.y.var(axis=0))
        alike = Q == 1 or few.options.common_noise or not self.frees_length_scales
        if alike or not (self.more and len(noisy)):
            return []
        start = posterior.start.copy()
        lengths = np.flatnonzero(length_scales(posterior))
        for q in noisy:
            y, ratios = few.y[:, [q]], few.ratios[:, [q]]
            one = KernelLearner(few.X, y, ratios, few.weight, few.options)
            alone = self.start._replace(noise=self.start.noise[[q]])
            climb = Climb(one, alone, (self.middle,), np.random.RandomState(0))
            point = climb.best_of_few().posterior.start
            start[lengths] = np.minimum(start[lengths], point[lengths])
            start[q - Q] = point[-1]
        return [start.clip(*posterior.bounds.T)]

    def climbed(self, form, before, steps, measure=True):
        """Return the `Candidate` of few rows, from the point of another or the start.

        Its second derivatives are those of the other one unless they are measured.
        """
        posterior = self.posterior(form)
        if before is not None:
            posterior.start = before.posterior.start
            if form.nu > before.form.nu:
                self.shorten(posterior)
        value, moves, _ = self.ascend(posterior, form, steps)
        if measure:
            return measured(form, posterior, value, moves)
        return before._replace(form=form, posterior=posterior, value=value)

    def shorten(self, posterior):
        """Halve length-scales of the start of a posterior while its density grows.

        A smoother kernel of the same length-scales varies so little that the first
        step of a climb from there would end far off.
        """
        shorter = math.log(0.5) * length_scales(posterior)
        point, before = posterior.start, -np.inf
        while (now := posterior.density(point)) > before:
            posterior.start, before = point, now
            point = np.clip(point + shorter, *posterior.bounds.T)

    def ascend(self, posterior, form, steps, hessian=None):
        """Move a posterior to its largest density; return that, moves and the Hessian.

        `hessian` holds the second derivatives of few rows without the prior, and comes
        back as the climb has found it. Without it a step may gain little far from the
        top, so it is the last if few rows would not show its gain.
        """
        moves = posterior.moves(shared=form.shared, noise=self.noise_free)
        enough = ENOUGH * len((self.few if hessian is None else posterior).X)
        growth = len(posterior.X) / len(self.few.X)
        prior = np.diag(posterior.prior_loss(posterior.start)[2] @ moves**2)
        start = None if hessian is None else growth * hessian + prior
        posterior.start, value, end = posterior.maximize(moves, steps, start, enough)
        return value, moves, None if end is None else (end - prior) / growth

    def posterior(self, form):
        """Return the `LogPosterior` of a form, given few rows."""
        kernel = clone(self.start.kernel).set_params(k2__nu=form.nu)
        start = self.start._replace(kernel=kernel)
        posterior = LogPosterior(*self.few.all_rows(start))
        posterior.variances[:] = self.prior_variances(posterior, WIDTHS)
        posterior.common_noise = self.learner.options.common_noise
        # more rows than these need no help to find that there is no noise
        posterior.heavy = len(self.learner.X) <= FIRST_ROWS
        return posterior

    def prior_variances(self, posterior, widths):
        """Return the variances (P + Q,) of priors of these standard deviations.

        The share of the rows that so many columns need narrows that of the variance,
        which tells whether there is a function, and its square narrows the others.
        """
        lengths, n = length_scales(posterior), len(self.start.noise)
        share = self.share ** np.array([2, 1, 2])
        length, constant, noise = LEAST_WIDTH + share * (np.array(widths) - LEAST_WIDTH)
        out = np.where(lengths, length, constant)
        out[-n:] = noise
        return out**2

    def turned(self, plain, always):
        """Return the candidate with a map of the columns if its evidence is larger.

        It is taken `always` if that is asked for. Few rows learn the map first. All
        rows go on from there if a larger evidence is then to be expected: what a map
        gains grows with the number of rows, but for what it gains by chance.
        """
        (n, D), Q = self.few.X.shape, self.learner.y.shape[1]
        N, form = len(plain.posterior.X), plain.form
        cheap = evidence_work(n, D, Q) <= self.learner.options.tuning.evidence_work
        if not (cheap or always):
            return plain
        posterior = self.with_map(plain)
        value, moves, _ = self.ascend(posterior, form, MAP_STEPS)
        turned = Candidate(form, posterior, value, np.ones(0), None, n)
        if not always:
            turned = measured(form, posterior, value, moves)
            before = self.climbed(form, plain, NEXT_STEPS, measure=False)
            chance = turned.gain_by_chance - before.gain_by_chance
            gain = (value - before.value - chance) * max(N / n, 1.0) + chance
            if gain + turned.log_volume(N) <= before.log_volume(N):
                return plain
        rows = next(one for one in (self.few, *self.more) if len(one.X) == N)
        turned = self.moved_on(turned, rows, MAP_STEPS if always else LAST_STEPS)
        return turned if always or turned.evidence > plain.evidence else plain

    def moved_on(self, candidate, learner, steps=LAST_STEPS):
        """Return a candidate after some steps on other rows, those of a learner.

        Second derivatives grow with the number of rows. Each climb corrects those of
        few rows, and the next one starts from the corrected ones. Without them L-BFGS
        takes four times as many steps. Rows that decide between forms have more steps
        at least, which few climbs need.
        """
        before, form = candidate.posterior, candidate.form
        rows = learner.all_rows(self.start._replace(kernel=before.kernel))
        posterior = before.given(*rows[2:])
        variances = self.prior_variances(posterior, LAST_WIDTHS)
        posterior.variances = before.variances.copy()
        posterior.variances[: len(variances)] = variances
        if len(learner.X) <= NEXT_ROWS[-1]:
            steps = max(steps, NEXT_STEPS)
        if candidate.hessian is None:
            steps = max(steps, 4 * LAST_STEPS)
        value, _, hessian = self.ascend(posterior, form, steps, candidate.hessian)
        return candidate._replace(posterior=posterior, value=value, hessian=hessian)

    def with_map(self, plain):
        """Return the posterior of few rows with a map, at the point of a candidate.

        The prior of the map is that for all rows.
        """
        posterior = plain.posterior
        fit = fit_at(posterior, self.start, self.noise_free)
        turned = LogPosterior(*self.few.all_rows(fit), turn=True)
        turned.heavy, turned.common_noise = posterior.heavy, posterior.common_noise
        n = turned.n_logs
        turned.medians[:n] = posterior.medians
        turned.variances[:n] = posterior.variances
        turned.variances[n:] = turned.columns.variance_for(len(self.learner.X))
        return turned

    def fit(self, best):
        """Return the `KernelFit` of a candidate."""
        fit = fit_at(best.posterior, self.start, self.noise_free)
        return fit._replace(shared=best.form.shared)


def first_rows(n_rows, n_columns, n_outputs, tuning):
    """Return how many of some rows the first climbs take.

    Columns with length-scales of their own need ten rows each, if these are affordable.
    """
    n = min(max(FIRST_ROWS, ROWS_PER_PARAMETER * n_columns), NEXT_ROWS[0])
    work = evaluation_work(min(n, n_rows), n_columns, n_outputs) * n_columns
    return n if work <= tuning.evidence_work else FIRST_ROWS


def climb_given(learner, start, around, rng, learn_map=False):
    """Return the `KernelFit` of the user's kernel that has the largest evidence.

    `start` is the fit of the kernel as it was given, and `around` (P,) are the medians
    of the priors of its parameters. Few rows choose between climbs from the start and
    from shorter length-scales. A map of the columns is learned if `learn_map` is True.
    """
    noise_free = not learner.options.noise_known
    few = learner
    if len(learner.X) > NEXT_ROWS[0]:
        order = rng.permutation(len(learner.X))
        few = learner.take(np.sort(order[: NEXT_ROWS[0]]))
    with one_blas_thread():
        posterior = LogPosterior(*few.all_rows(start))
        posterior.common_noise = learner.options.common_noise
        free = posterior.compiled.free
        posterior.medians[: free.sum()] = np.log(around[free])
        moves, found = posterior.moves(noise=noise_free), []
        first, lengths = posterior.start, length_scales(posterior)
        for times in range(3):
            point = first + times * SHORTER * lengths
            posterior.start = point.clip(*posterior.bounds.T)
            found.append(posterior.maximize(moves, FIRST_STEPS))
        posterior.start, *_ = max(found, key=lambda one: one[1])
        if few is not learner:
            posterior = posterior.given(*learner.all_rows(start)[2:])
            posterior.start, *_ = posterior.maximize(moves, NEXT_STEPS)
        if learn_map is True and learner.X.shape[1] > 1:
            fit, medians = fit_at(posterior, start, noise_free), posterior.medians
            posterior = LogPosterior(*learner.all_rows(fit), turn=True)
            posterior.common_noise = learner.options.common_noise
            posterior.medians[: posterior.n_logs] = medians
            moves = posterior.moves(noise=noise_free)
            posterior.start, *_ = posterior.maximize(moves, MAP_STEPS)
    return fit_at(posterior, start, noise_free)


def length_scales(posterior):
    """Return which entries (P + Q,) of a point of a posterior are length-scales."""
    free, struct = posterior.compiled.free, posterior.compiled.struct
    lengths = np.isin(np.flatnonzero(free), struct.slot[distance_leaves(struct)])
    return np.append(lengths, np.zeros(posterior.y.shape[1], dtype=bool))


def fit_at(posterior, before, noise_free):
    """Return a `KernelFit` with the parameters at the start of a posterior."""
    point = posterior.start
    noise = posterior.split(point)[1] if noise_free else before.noise
    kernel, linear_map = posterior.kernel_at(point), posterior.map_at(point)
    return before._replace(kernel=kernel, noise=noise, linear_map=linear_map)


def undecided(candidates):
    """Return candidates of nearly the largest evidence, the best first.

    Of those of one form that have climbed to one density, the first is kept.
    """
    order, found = sorted(candidates, key=lambda one: one.evidence, reverse=True), []
    for one in order:
        twin = any(
            one.form == other.form
            and abs(one.value - other.value) < ENOUGH * len(one.posterior.X)
            for other in found
        )
        if one.evidence >= order[0].evidence - UNDECIDED and not twin:
            found.append(one)
    return found
