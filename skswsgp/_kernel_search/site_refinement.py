"""The kernel of a classifier or of counts, refined on its own likelihood.

Labels coded as numbers show which features matter, but not how large the latent
function is, and they are not Gaussian. So q(u) and its sites are computed for the
present kernel, on a part of the rows, each of which is an inducing point. A better
kernel is then learned from the sites as noisy targets, and so on. The result is the
kernel under which held-out rows are likeliest.
"""

import math
from functools import partial
from itertools import takewhile

import numpy as np

from skswsgp._covariance.compile import compile_kernel, free_variance, updated_kernel
from skswsgp._kernel_search.climb import ROUGH, SMOOTHNESS
from skswsgp._kernel_search.evidence import VARIANCE_STEP
from skswsgp._kernel_search.holdout import (
    LEAST_ROUND,
    Holdout,
    gaussian_sites,
    prior_loss_around,
    train,
)
from skswsgp._kernel_search.kernel_learning import KernelLearner, count_learning_rows
from skswsgp._rows.columns import mapped
from skswsgp._rows.inducing import distinct_rows


def refine_kernel(start, learn, data, settings, options, rng):
    """Return the `KernelFit`, of those tried, that suits held-out rows best.

    The first is `start`, learned from coded labels with common length-scales. `learn`
    is a function of the degrees of `smoothness` to compare. It learns a `KernelFit`
    from the same labels, with a length-scale for each column. Fixed parameters do not
    change. Other arguments are those of `Holdout`.
    """
    search = SiteRefinement(start, data, settings, options, rng)
    if search.decisive:
        search.consider(search.solver_of, start)
    if search.best is None:  # too few rows are held out, or it has failed
        return start
    search.choose_shape()
    search.scale(VARIANCE_STEP)
    better = search.climb_smoothness()
    while better or search.start.shared:
        if not better:
            search.start = search.start._replace(shared=False)  # frees length-scales
        better = search.consider(search.relearned)
    if settings.kernel is None and 1 < data.X.shape[1] <= settings.tuning.most_columns:
        nu = search.start.kernel.k2.nu
        search.try_separate(learn(smoothness=sorted({min(nu, ROUGH), nu})))
    if settings.learn_map:
        search.choose_map(start, always=settings.learn_map is True)
    search.scale(math.sqrt(VARIANCE_STEP))
    search.choose_shape()
    return search.fit


def learn_shape(start, data, settings, options, rng):
    """Return the shape (Q,) of the likelihood that suits held-out rows best.

    The kernel is that of a `KernelFit`; other arguments are those of `Holdout`.
    """
    search = SiteRefinement(start, data, settings, options, rng)
    if search.decisive:
        search.consider(search.solver_of, start)
    if search.best is not None:
        search.choose_shape()
    return search.shape


class SiteRefinement(Holdout):
    """A search for the kernel under which held-out rows are likeliest.

    `best` is the solver of the best kernel so far, or None, `start` its `KernelFit`
    before the variance was scaled, and `density` the log density of the held-out rows
    under this kernel. The other distinct rows are the inducing points Z, and `at` says
    at which of them each of the others lies.
    """

    def __init__(self, start, data, settings, options, rng):
        tuning = settings.tuning
        n_rows = count_learning_rows(data.X.shape[1], tuning)
        n_rows = min(n_rows, tuning.holdout_rows // 2)  # there are some thirty trials
        super().__init__(n_rows, data, settings, options, rng)
        self.Z, self.at = distinct_rows(self.X[self.kept])
        self.start, self.rng = start, rng
        if start.shape is not None:
            self.shape = start.shape
        self.best, self.density = None, None

    @property
    def kernel(self):
        """The best kernel so far."""
        if self.best is None:
            return self.start.kernel
        return updated_kernel(self.start.kernel, self.best.engine.model.params)

    @property
    def fit(self):
        """The best `KernelFit` so far, with its variance scale."""
        if self.best is None:
            return self.start
        scale, posterior = self.variance_scale(self.best), self.best.predict
        found = {"kernel": self.kernel, "shape": self.shape}
        return self.start._replace(**found, variance_scale=scale, posterior=posterior)

    def solver_of(self, fit):
        """Return a solver for the kernel and the map of a `KernelFit`.

        It starts from the q(u) of the best solver.
        """
        attributes = {"kernel_": fit.kernel, "linear_map_": fit.linear_map}
        attributes["inducing_points_"] = mapped(self.Z, fit.linear_map)
        if self.best is not None:
            attributes["inducing_mean_"] = self.best.engine.model.m
            attributes["inducing_covariance_"] = self.best.engine.model.s
        H = self.settings.tuning.site_neighbors
        solver = self.solver_for(attributes, H, self.at)
        solver.tolerance, solver.fit = LEAST_ROUND, fit
        return solver

    def consider(self, make, *arguments, cost=0.0, always=False):
        """Store make(*arguments), a solver, if held-out rows are likeliest under it.

        They must gain `cost` nats and more than by chance, unless a solver is stored
        `always`. A solver that fails is not stored. Returns whether it was stored.
        """
        try:
            solver = make(*arguments)
            density = self.log_density(solver)
        except FloatingPointError:
            return False
        if not always and self.best is not None:
            if not self.is_better(density, self.density, cost):
                return False
        self.best, self.density, self.start = solver, density, solver.fit
        return True

    def scale(self, factor):
        """Multiply or divide the kernel variance by a factor while rows are likelier.

        The logarithm of the variance has a normal prior: few rows that are all
        predicted well favour ever larger variances.
        """
        n_columns = self.start.count_columns(self.X.shape[1])
        found = free_variance(self.start.kernel, n_columns)
        if found is None:
            return
        (slot, bounds), usual = found, self.record.usual_variance
        for step in (factor, 1.0 / factor):
            before = self.best
            while True:
                now = self.best.engine.model.params[slot]
                if not bounds[0] <= step * now <= bounds[1]:
                    break
                cost = prior_loss_around(step * now, usual)
                cost -= prior_loss_around(now, usual)
                if not self.consider(self.best.scaled, slot, step, cost=cost):
                    break
            if self.best is not before:
                break

    def choose_shape(self):
        """Learn the shape of a likelihood that has one, if it is to be learned.

        That under which held-out rows are likeliest is found for the present q(f), and
        q(f) for that shape, which is kept. Both go on while held-out rows gain: where
        the shape is far from its start, q(f) is too uncertain to tell it at once.
        """
        always = self.settings.learns_shape
        while self.settings.learns_shape:
            before, self.shape = self.shape, self.likeliest_shape(self.best)
            fit = self.start._replace(kernel=self.kernel)
            if not self.consider(self.solver_of, fit, always=always):
                self.shape = before
                return
            always = False

    def climb_smoothness(self):
        """Learn the kernel from the best sites; return whether one is better.

        The smoothness of the default kernel is climbed from that of the start.
        """
        before = self.best
        self.consider(self.relearned)
        if self.settings.kernel is None:
            first = SMOOTHNESS.index(self.start.kernel.k2.nu)
            is_better = partial(self.consider, self.relearned)
            rougher = list(takewhile(is_better, SMOOTHNESS[:first][::-1]))
            if not rougher:
                list(takewhile(is_better, SMOOTHNESS[first + 1 :]))
        return self.best is not before

    def try_separate(self, fit):
        """Search from a `KernelFit` of separate length-scales; keep it if it is better.

        Where few of the columns matter, q(f) with common length-scales follows single
        labels, and so do kernels learned from its sites. Coded labels need no q(f), but
        do not tell how large and how smooth it is, so the search learns that first.
        """
        before = self.best, self.density, self.start
        if not fit.shared and self.consider(self.solver_of, fit, always=True):
            self.scale(VARIANCE_STEP)
            self.consider(self.relearned)
            if not self.is_better(self.density, before[1]):
                self.best, self.density, self.start = before

    def relearned(self, nu=None):
        """Return a solver for a kernel learned from the best sites.

        It is a Matern kernel of the smoothness `nu`, or of the present one if None.
        """
        learner, start = self.site_learner()
        if nu is not None:
            start = start.of_smoothness(nu)
        return self.solver_of(learner.learn_from_sites(start, self.rng))

    def choose_map(self, start, always):
        """Learn maps of the columns, each kept if held-out rows are likelier with it.

        The columns of a wide table are first mapped to few. For other tables the first
        map is learned by regression of the labels, from a start. Later maps are learned
        from sites. The first map is kept in any case if `always`.
        """
        D, most = self.X.shape[1], self.settings.tuning.most_columns
        if D > most and self.settings.kernel is None:
            if not self.consider(self.reduced, always=always):
                return
        elif D > 1:
            self.consider(self.turned_by_labels, start, always=always)
        while self.consider(self.turned):
            pass

    def turned_by_labels(self, start):
        """Return a solver for a map of the columns learned by regression of labels.

        It takes half of a regression's steps, as maps from sites do: what a map gains
        is decided by held-out labels, and sites go on from the first one.
        """
        targets = self.record.regression_targets(self.y, self.settings.n_latent)
        weight = self.weight[self.kept]
        rows = self.X[self.kept], targets[self.kept], 1.0 / weight[:, None], weight
        learner = KernelLearner(*rows, self.options)
        fit = learner.turned(start, self.seed, learner.steps // 2)
        found = free_variance(fit.kernel, fit.linear_map.shape[1])
        if found is not None:
            # labels do not show how large f is, but the best q(u) does
            slot, _ = found
            compiled = compile_kernel(fit.kernel, fit.linear_map.shape[1], float)
            params = compiled.struct.params
            params[slot] = self.best.engine.model.params[slot]
            fit = fit._replace(kernel=updated_kernel(fit.kernel, params))
        return self.solver_of(fit)

    def reduced(self):
        """Return a solver for a map to few columns, by slopes of the best q(f).

        The kernel is learned from sites for the new columns: those for the old ones
        belong to another q(f).
        """
        learner, start = self.site_learner()
        solver = self.solver_of(learner.mapped_to_few(start, self.rng))
        learner, start = self.site_learner(train(solver))
        return self.solver_of(learner.learn_from_sites(start, self.rng))

    def turned(self):
        """Return a solver for a map of the columns learned from the best sites."""
        learner, start = self.site_learner()
        return self.solver_of(learner.learn_from_sites(start, self.rng, turn=True))

    def site_learner(self, solver=None):
        """Return a `KernelLearner` of sites, and the `KernelFit` from which it starts.

        The sites are those of a solver, or of the best one.

        For given sites N(f_i; t_i, v_i), the gradient of their log density by the
        kernel is that of the variational bound, except that the density of a row uses
        its nearest rows only.
        """
        start = self.start if solver is None else solver.fit
        solver = self.best if solver is None else solver
        sites = gaussian_sites(solver)
        kernel = updated_kernel(start.kernel, solver.engine.model.params)
        start = start._replace(kernel=kernel, noise=np.ones(sites[0].shape[1]))
        rows = self.X[self.kept], *sites, self.weight[self.kept]
        H = self.settings.tuning.site_neighbors
        return KernelLearner(*rows, self.options, n_neighbors=H), start
