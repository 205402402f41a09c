"""q(u) in closed form: sparse systems in place of gradient steps.

Given the kernel, the bound with the prior of `_chain`, or that of `_divergences`, and
sites N(f_i; t_i, 1 / w_i) is quadratic in m; its optimum solves

    (A' W A + beta P) m = A' W t     s_j = beta c_j / (sum_i w_i a_ij^2 + beta P_jj)

with P the precision of the prior and c_j the share with which log s_j counts in the
divergence. A full covariance is S = beta (A' W A + beta P)^-1. For the Gaussian
likelihood sites are the data, w_i = weight_i / noise. For others they are found by
natural-gradient steps (conjugate-computation variational inference, Khan and Lin,
AISTATS 2017): w = -2 dE/dv, w t = dE/dmu + w mu at the present q(f_i), E the expected
log-likelihood.
"""

import copy

import numpy as np
from scipy.linalg.lapack import dtrtri

from skswsgp._compiled.linalg import dense_cholesky
from skswsgp._compiled.threads import index_blocks
from skswsgp._linear.conjugate_gradients import solve_systems
from skswsgp._linear.projection import Projection
from skswsgp._neighbors.lists import NeighborTracker, TrackedSearch
from skswsgp._point.likelihoods import record_of
from skswsgp._solvers.data import memory_budget
from skswsgp._solvers.priors import make_local_prior, make_vecchia_prior

DAMPING = 0.7  # of natural-gradient steps, at most
LEAST_STEP = 0.05  # below which sites stay as they were
GROWTH = 1.4  # of a step after one that was good
# Of conjugate gradients, relative to the right-hand side: of a round that others
# follow, or of single precision, and of the only round.
TOLERANCE, LAST_TOLERANCE = 1e-3, 1e-6
FIRST_STEPS = 100  # of conjugate gradients, with one preconditioner
MAX_STEPS = 1000  # with the other
MAX_ROUNDS = 20
LOSS_TOLERANCE = 1e-4  # nats a row
NOT_FINITE = (
    "the natural solver left the finite numbers: expected a noise variance and kernel "
    "parameters that suit the units of X and y; bound them, or scale X and y."
)


class NaturalSolver:
    """Rounds of natural-gradient steps for the m and s of the engine's model.

    Parameters
    ----------
    engine : CpuEngine
        Its model's m and s, or L, are modified.
    kernel : kernel object
        The kernel with the parameters of that model.
    data : Data
        Training rows.
    options : dict
        Of the neighbour search.
    rng : RandomState
        Draws the order of the chain.
    kl : {"vecchia", "local"}
        The prior.
    """

    keeps_best = False  # no round is worse than the one before, but by the tolerance

    def __init__(self, engine, kernel, data, options, rng, kl="vecchia"):
        self.engine, self.data = engine, data
        self.search = TrackedSearch(engine, data.n_rows, options)
        self.order = rng.permutation(len(engine.model.Z))
        lookup = NeighborTracker(self.search, data.n_rows, memory_budget()).lookup
        self.rows = Projection(engine, kernel, data, lookup, memory_budget())
        if kl == "vecchia":
            metric = options["metric"] if options["metric"] != "random" else "kernel"
            self.prior = make_vecchia_prior(engine, kernel, metric, self.order)
        else:
            self.prior = make_local_prior(engine, data, lookup)
        self.chained = kl == "vecchia"
        self.conjugate = record_of(engine.model).conjugate
        once = self.conjugate and engine.model.Z.dtype == np.float64
        self.accuracy = LAST_TOLERANCE if once else TOLERANCE
        shape = data.n_rows, engine.model.m.shape[1]
        self.site_precision, self.site_precision_mean = np.zeros(
            (2, *shape)
        )  # w and w t
        self.plan = "round", 1 if self.conjugate else MAX_ROUNDS
        self.losses, self.tolerance = [], LOSS_TOLERANCE
        self.step = DAMPING
        self.weight = data.weight
        self.solved = True  # whether conjugate gradients came to an end
        self.prior_first = False

    @property
    def usable(self):
        """Whether there is a model yet."""
        return bool(self.losses)

    @property
    def converged(self):
        """Whether another round would hardly change the bound."""
        if len(self.losses) < 2:
            return self.conjugate and bool(self.losses)
        last, before = self.losses[-1], self.losses[-2]
        return len(self.losses) >= MAX_ROUNDS or abs(before - last) < self.tolerance

    @np.errstate(all="ignore")  # what comes of it is looked at
    def advance(self, epoch):
        """Update the sites, then m and s; return (loss per row, bound in nats).

        A step that makes the bound worse, or no number, is halved; where none helps all
        stays as it was. Only the first round may raise FloatingPointError.
        """
        _, d_mu, d_v, mu = self._expectations()
        precision = np.maximum(-2.0 * d_v, 0.0) * self.weight[:, None]
        shift = d_mu * self.weight[:, None] + precision * mu
        if self.losses:
            loss = self._step_towards(precision, shift)
        else:
            self.site_precision[:], self.site_precision_mean[:] = precision, shift
            loss, self.bound, self.solved = self._solve_all()
        self.losses.append(loss)
        return loss, self.bound

    def _step_towards(self, *sites):
        """Take the longest step that makes the bound no worse; return the loss."""
        model, step = self.engine.model, self.step
        state = (
            self.site_precision,
            self.site_precision_mean,
            model.m,
            model.L if model.full else model.s,
        )
        before = [array.copy() for array in state]
        while True:
            kept = False
            try:
                for site, old, new in zip(state, before, sites, strict=False):
                    site[:] = old + step * (new - old)
                loss, bound, solved = self._solve_all()
                kept = loss <= self.losses[-1] + self.tolerance
            except FloatingPointError:
                pass
            finally:  # of an interrupt, too
                for array, old in zip(() if kept else state, before, strict=False):
                    array[:] = old
            if kept:
                self.bound, self.solved = bound, solved
                self.step = min(DAMPING, GROWTH * step)
                return loss
            if step <= LEAST_STEP:
                return self.losses[-1]
            step *= 0.5

    def _solve_all(self):
        """Set m and s, or L, to the optimum for the sites.

        Returns the loss, the bound and whether conjugate gradients came to an end.
        """
        model, weight = self.engine.model, self.weight
        solved = self._solve_full() if model.full else self._solve()
        ell = float(weight @ self._expectations()[0])
        S = model.L if model.full else model.s
        kl = self.prior.divergence(model.m.astype(np.float64), S.astype(np.float64))
        loss = -(ell - model.kl_weight * kl) / model.total_weight
        if not np.isfinite(loss):
            raise FloatingPointError(NOT_FINITE)
        return loss, ell - kl, solved

    def marginals(self):
        """Return mean and variance of q(f_i), eq. 13, (n, Q)."""
        model, rows = self.engine.model, self.rows
        if model.full:
            V = [rows.quadratic_forms(L) for L in model.L.astype(np.float64)]
            V = np.stack(V, axis=1)
        else:
            V = rows.squared_matvec(model.s.astype(np.float64))
        return rows.matvec(model.m.astype(np.float64)), rows.F[:, None] + V

    def scaled(self, slot, factor):
        """Return a solver for `factor` times a kernel whose variance is params[slot].

        It goes on from the sites of this one, which stays as it is.
        """
        other = copy.copy(self)
        other.engine = copy.copy(self.engine)
        model = self.engine.model
        params, m, s = model.params.copy(), model.m.copy(), model.s.copy()
        params[slot] *= factor
        L = model.L.copy()
        other.engine.model = model._replace(params=params, m=m, s=s, L=L)
        other.prior, other.rows = self.prior.scaled(factor), self.rows.scaled(factor)
        other.site_precision, other.site_precision_mean = (
            self.site_precision.copy(),
            self.site_precision_mean.copy(),
        )
        other.losses, other.step = [], DAMPING
        return other

    def _solve(self):
        """Set m and s to the optimum for the sites; return whether all came to an end.

        The diagonal is a good preconditioner where data say much of each point, the
        prior where they say little; that which served last comes first.
        """
        model, prior, rows = self.engine.model, self.prior, self.rows
        beta, w = model.kl_weight, self.site_precision
        diagonal = rows.squared_rmatvec(w) + beta * prior.precision[:, None]  # (M, Q)
        seen = prior.share > 0.0  # all, with the chain; data say nothing of others
        diagonal[~seen] = 1.0

        def multiply(u, which):
            return rows.normal_matvec(w[:, which], u) + beta * prior.matvec(u)

        def divide(u, which):
            return u / diagonal[:, which]

        m, right = model.m.astype(np.float64), rows.rmatvec(self.site_precision_mean)
        left = np.arange(m.shape[1])

        def divide_by_prior(u, which):
            return prior.solve(u)

        for steps in (FIRST_STEPS, MAX_STEPS):
            inverse = divide_by_prior if self.prior_first else divide
            left = solve_systems(
                m, left, right, multiply, inverse, self.accuracy, steps
            )
            if len(left) == 0:
                break
            self.prior_first = self.chained and not self.prior_first
        model.m[:] = m
        model.s[seen] = (beta * prior.share[:, None] / diagonal)[seen]
        return len(left) == 0

    def _solve_full(self):
        """The same with S = beta B^-1 = L L', B the matrix of a system.

        With the upper factor U of B = U U', L is sqrt(beta) U^-T.
        """
        model = self.engine.model
        beta, right = model.kl_weight, self.rows.rmatvec(self.site_precision_mean)
        prior = beta * self.prior.dense_precision()
        for q, w in enumerate(self.site_precision.T):
            B = self.rows.weighted_gram(w) + prior
            rounding = np.finfo(np.float64).eps * np.diag(B).mean()
            U = dense_cholesky(B[::-1, ::-1], rounding)[::-1, ::-1]
            L = np.sqrt(beta) * dtrtri(U.T, lower=True)[0]
            model.L[q], model.m[:, q] = L, L @ (L.T @ right[:, q]) / beta
        return True

    def _expectations(self):
        """Return E log p(y | f) (n,), its derivatives by mu and v, and mu, (n, Q)."""
        mu, v = self.marginals()
        ell = np.empty(len(mu))
        d_mu, d_v = np.empty((2, *mu.shape))
        for index in index_blocks(self.data.n_rows):
            ell[index], d_mu[index], d_v[index] = self.engine.variational_expectations(
                self.data.y[index], mu[index], v[index]
            )
        return ell, d_mu, d_v, mu
