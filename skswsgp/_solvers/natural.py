"""q(u) in closed form: sparse linear systems in place of gradient steps.

Given the kernel, the prior of `priors` with precision P, and Gaussian sites
N(f_i; t_i, 1 / w_i), the bound is quadratic in m. Its optimum solves

    (A' W A + beta P) m = A' W t     s_j = beta / (sum_i w_i a_ij^2 + beta P_jj)

A full S is beta (A' W A + beta P)^-1. For the Gaussian likelihood the sites are the
data, w_i = weight_i / noise. For others they are found by natural-gradient steps
(conjugate-computation variational inference, Khan and Lin, AISTATS 2017): w = -2 dE/dv
and w t = dE/dmu + w mu at the present q(f_i), E being the expected log-likelihood.
"""

import copy
import math

import numpy as np
from scipy.linalg.lapack import dtrtri

from skswsgp._compiled import linalg, threads, tiles
from skswsgp._linear.conjugate_gradients import solve_systems
from skswsgp._linear.projection import mean_prior_variance
from skswsgp._neighbors.lists import NeighborTracker, TrackedSearch
from skswsgp._rows.data import center_rows, memory_budget
from skswsgp._rows.statistics import LARGEST_SEED
from skswsgp._solvers.priors import make_vecchia_prior
from skswsgp._solvers.solver import ROUNDS_OF_LABELS, Solver

DAMPING = 0.7  # longest natural-gradient step of the sites; 1 would be undamped
LEAST_STEP = 0.05  # length at which halving stops and the sites stay as they were
MAX_ROUNDS = 2 * ROUNDS_OF_LABELS  # most fits converge in fewer than those
# Degrees of freedom times draws that know a leverage to 5 %: 2 / 0.05^2
FREEDOM_OF_TRACE = 800.0
LOSS_TOLERANCE = 1e-4  # nats a row: change of the loss below which rounds stop
NOT_FINITE = (
    "the natural solver produced NaN or infinity: expected a noise variance and kernel "
    "parameters that suit the units of X and y; bound them, or scale X and y."
)


class NaturalSolver(Solver):
    """Rounds of natural-gradient steps for the m and S of the engine's model.

    `rng` draws the order of the Vecchia prior, and `sites` are those of all rows.
    """

    draws = True
    exact_means = True

    def __init__(self, engine, rows, kernel, settings, rng):
        self.engine, self.data, self.settings = engine, rows.sample, settings
        self.tuning = settings.tuning
        self.prior_variance = mean_prior_variance(kernel, engine.model.Z)
        options = settings.search_options
        self.search = TrackedSearch(engine, self.data.n_rows, options)
        order = rng.permutation(len(engine.model.Z))
        self.sites = rows.sites(engine, kernel, settings, self.search)
        total = float(self.sites.total_weight())
        if total != engine.model.total_weight:  # a GPU would get the model anew
            engine.model = engine.model._replace(total_weight=total)
        self.prior = make_vecchia_prior(engine, kernel, order, self.data.watch)
        self.order = order
        record = settings.likelihood_record
        self.conjugate = record.conjugate
        # large counts would hide what small ones leave of a residual
        if not (record.has_noise or record.counts):
            self.accuracy = self.tuning.round_tolerance
        elif engine.model.Z.dtype == np.float32:
            self.accuracy = self.tuning.float32_tolerance
        else:
            self.accuracy = self.tuning.final_tolerance
        self.losses, self.tolerance = [], LOSS_TOLERANCE
        self.step = DAMPING
        self.prior_first = None  # the first solve decides

    @property
    def n_rounds(self):
        return 1 if self.conjugate else MAX_ROUNDS  # the former is in closed form

    @property
    def usable(self):
        return bool(self.losses)

    @property
    def converged(self):
        if len(self.losses) < 2:
            return self.conjugate and bool(self.losses)
        last, before = self.losses[-1], self.losses[-2]
        return len(self.losses) >= MAX_ROUNDS or abs(before - last) < self.tolerance

    @np.errstate(all="ignore")  # results are checked
    def advance(self, index):
        """Update the sites, then m and S; return (loss per row, bound in nats).

        A step of the sites that makes the bound worse, or NaN, is halved. Where no step
        helps, the model stays as it was. Only the first round may raise
        FloatingPointError.
        """
        if self.losses:
            loss = self._take_step()
        else:
            sites = self.sites.first(*self._moments())
            loss, self.bound, self.solved = self._solve_all(sites)
        self.losses.append(loss)
        return loss, self.bound

    def _take_step(self):
        """Take the longest step that makes the bound no worse; return the loss."""
        step = self.step
        moments = self._moments()
        before = [array.copy() for array in moments]
        while True:
            kept, sites = False, self.sites
            try:
                loss, bound, solved = self._solve_all(sites.stepped(step))
                kept = loss <= self.losses[-1] + self.tolerance
            except FloatingPointError:
                pass
            finally:  # also where Ctrl-C interrupts
                if not kept:
                    self.sites = sites
                    for array, old in zip(moments, before, strict=True):
                        array[:] = old
            if kept:
                self.bound, self.solved = bound, solved
                self.step = min(DAMPING, 2.0 * step)
                return loss
            if step <= LEAST_STEP:
                return self.losses[-1]
            step *= 0.5

    def _moments(self):
        """Return the arrays m and S of the model, see `SiteRows.marginals`."""
        model = self.engine.model
        return model.m, model.L if model.full else model.s

    def _solve_all(self, sites):
        """Set m and S to the optimum for the sites, which are kept.

        Returns the loss, the bound and whether conjugate gradients converged.
        """
        model, self.sites = self.engine.model, sites
        solved = self._solve_full() if model.full else self._solve()
        m, S = self._moments()
        self.sites = sites.expecting(m, S)
        ell = self.sites.log_likelihood()
        kl = self.prior.divergence(m.astype(np.float64), S.astype(np.float64))
        loss = -(ell - model.kl_weight * kl) / model.total_weight
        if not np.isfinite(loss):
            raise FloatingPointError(NOT_FINITE)
        return loss, ell - kl, solved

    def predict(self, X):
        """Return mean and variance of q(f) at rows of X (n, D), each (n, Q)."""
        find = NeighborTracker(self.search, len(X), memory_budget()).lookup
        parts = []
        for index in threads.index_blocks(len(X)):
            block = center_rows(X[index], self.data.center, self.engine.model.Z.dtype)
            parts.append(self.engine.predict(block, find(index, block), True))
        return tuple(map(np.concatenate, zip(*parts, strict=True)))

    def scaled(self, slot, factor):
        """Return a solver whose kernel variance, params[slot], is times `factor`.

        The prior means of the latent functions follow. The new solver starts from
        the q(u) of this one, which does not change.
        """
        other = copy.copy(self)
        other.engine = copy.copy(self.engine)
        model = self.engine.model
        params, m, s = model.params.copy(), model.m.copy(), model.s.copy()
        params[slot] *= factor
        L = model.L.copy()
        other.prior_variance = factor * self.prior_variance
        prior_mean = self.settings.prior_mean(other.prior_variance).astype(m.dtype)
        other.engine.model = model._replace(
            params=params, m=m, s=s, L=L, prior_mean=prior_mean
        )
        other.prior, other.sites = self.prior.scaled(factor), self.sites.scaled(factor)
        other.losses, other.step = [], DAMPING
        return other

    def _solve(self):
        """Set m and a diagonal S to the optimum; return whether m converged."""
        model = self.engine.model
        m = model.m.astype(np.float64)
        left, diagonal = self.solve_for(m, self.sites.right(), np.arange(m.shape[1]))
        model.m[:] = m
        model.s[:] = model.kl_weight / diagonal
        return len(left) == 0

    def solve_for(self, x, right, functions, tolerance=None):
        """Solve B x = right from x on, where B = A' W A + beta P.

        Column j belongs to the latent function functions[j]. Returns the columns that
        are left, and the diagonals of B (M, Q). These are a good preconditioner if the
        data determine each point, the prior if they do not. The preconditioner that was
        used last comes first, and in the first solve the prior does if most points
        depend on it almost alone.
        """
        prior, sites, beta = self.prior, self.sites, self.engine.model.kl_weight
        prior_diagonal = beta * prior.precision[:, None]
        diagonal = sites.diagonal() + prior_diagonal  # (M, Q)
        if self.prior_first is None:
            fraction = np.median(prior_diagonal / diagonal)
            self.prior_first = bool(fraction > self.tuning.weak_data)

        def matvec(u, which):
            return sites.multiply(u, functions[which]) + beta * prior.matvec(u)

        def precondition(u, which):
            if self.prior_first:
                return prior.rows.solve(u)
            return u / diagonal[:, functions[which]]

        left, accuracy = np.arange(x.shape[1]), tolerance or self.accuracy
        for steps in (self.tuning.first_cg_steps, self.tuning.most_cg_steps):
            left = solve_systems(x, left, right, matvec, precondition, accuracy, steps)
            if len(left) == 0:
                break
            self.prior_first = not self.prior_first
        return left, diagonal

    @np.errstate(all="ignore")  # results are checked
    def leverage(self, rng):
        """Return by how much means of f at rows move with their targets (Q,), or None.

        It is the mean over rows of the diagonal of W^1/2 A B^-1 A' W^1/2, by the trace
        estimator of Hutchinson: e' (...) e / e' e for standard normal e, of which so
        many are drawn that the standard error is some 5 %, one block at most. None
        stands for systems that were not solved.
        """
        (M, Q), sites, n_draws = self.engine.model.m.shape, self.sites, 1
        seed, leverage = rng.randint(LARGEST_SEED), np.empty(Q)
        while True:
            for q in range(Q):
                noise = sites.noise((seed, 0, q, 0), n_draws)
                right, which = sites.noise_sums(q, noise), np.full(n_draws, q)
                u = np.zeros((M, n_draws))
                left, _ = self.solve_for(u, right, which, self.tuning.round_tolerance)
                if len(left) or not np.isfinite(u).all():
                    return None
                leverage[q] = np.sum(right * u) / np.sum(sites.noise_squares(noise))
            freedom = np.maximum(leverage, 0.0).min() * sites.n_rows
            most = math.ceil(min(tiles.BLOCK, FREEDOM_OF_TRACE / max(freedom, 1.0)))
            if most <= n_draws:
                return leverage
            n_draws = most

    def _solve_full(self):
        """Set m and a full S = beta B^-1 = L L', where B = A' W A + beta P."""
        model = self.engine.model
        beta, right = model.kl_weight, self.sites.right()
        prior = beta * self.prior.dense_precision()
        for q in range(right.shape[1]):
            L = np.sqrt(beta) * factor_of_inverse(self.sites.gram(q) + prior)
            model.L[q], model.m[:, q] = L, L @ (L.T @ right[:, q]) / beta
        return True


def factor_of_inverse(B):
    """Return the lower factor L of B^-1 = L L', which is U^-T for B = U U'.

    U is upper triangular.
    """
    rounding = np.finfo(np.float64).eps * np.diag(B).mean()
    U = linalg.numpy_cholesky(B[::-1, ::-1], rounding)[::-1, ::-1]
    return dtrtri(U.T, lower=True)[0]
