"""q(u) in closed form: sparse systems in place of gradient steps.

Given the kernel, the bound with the prior of `_chain` and sites N(f_i; t_i, 1 / w_i)
is quadratic in m; its optimum solves

    (A' W A + beta R' R) m = A' W t        s_j = beta / (sum_i w_i a_ij^2 + beta P_jj)

with P = R' R. For the Gaussian likelihood sites are the data, w_i = weight_i / noise.
For others they are found by natural-gradient steps (conjugate-computation variational
inference, Khan and Lin, AISTATS 2017): w = -2 dE/dv, w t = dE/dmu + w mu at the present
q(f_i), E the expected log-likelihood.
"""

import copy
from functools import cached_property

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix
from scipy.sparse.linalg import LinearOperator, cg, splu

from skswsgp._chain import make_chain, regress_on_inducing
from skswsgp._likelihoods import GAUSSIAN
from skswsgp._model import index_blocks
from skswsgp._training import LOST, MovingSearch

DAMPING = 0.7  # of natural-gradient steps
TOLERANCE = 1e-3  # of conjugate gradients, relative to the right-hand side
FIRST_ITERATIONS = 100  # of conjugate gradients, with one preconditioner
MAX_ITERATIONS = 1000  # with the other
MAX_ROUNDS = 20
LOSS_TOLERANCE = 1e-4  # nats a row


class NaturalSolver:
    """Rounds of natural-gradient steps for the m and s of the engine's model.

    Parameters
    ----------
    engine : CpuEngine
        Its model's m and s are modified.
    kernel : kernel object
        The kernel with the parameters of that model.
    data : Data
        Training rows.
    options : dict
        Of the neighbour search.
    rng : RandomState
        Draws the order of the chain.
    """

    def __init__(self, engine, kernel, data, options, rng):
        self.engine, self.data = engine, data
        self.search = MovingSearch(engine, data.n_rows, options)
        self.order = rng.permutation(len(engine.model.Z))
        metric = options["metric"] if options["metric"] != "random" else "kernel"
        self.chain = make_chain(engine, kernel, metric, self.order)
        self.A, self.F = regress_on_inducing(engine, kernel, data, self.search.search)
        A = self.A
        self.A_squared = csr_matrix((A.data**2, A.indices, A.indptr), shape=A.shape)
        self.conjugate = engine.model.family == GAUSSIAN
        shape = data.n_rows, engine.model.m.shape[1]
        self.precision, self.shift = np.zeros((2, *shape))  # w and w t
        self.plan = "round", 1 if self.conjugate else MAX_ROUNDS
        self.losses, self.tolerance = [], LOSS_TOLERANCE
        self.weight = data.weight
        self.solved = True  # whether conjugate gradients came to an end
        self.prior_first = False

    @property
    def converged(self):
        """Whether another round would hardly change the bound."""
        if len(self.losses) < 2:
            return self.conjugate and bool(self.losses)
        last, before = self.losses[-1], self.losses[-2]
        return len(self.losses) >= MAX_ROUNDS or abs(before - last) < self.tolerance

    def advance(self, epoch):
        """Update the sites, then m and s; return (loss per row, bound in nats)."""
        model, weight = self.engine.model, self.weight
        _, d_mu, d_v, mu = self._expectations()
        precision = np.maximum(-2.0 * d_v, 0.0) * weight[:, None]
        shift = d_mu * weight[:, None] + precision * mu
        step = DAMPING if self.losses and not self.conjugate else 1.0
        self.precision += step * (precision - self.precision)
        self.shift += step * (shift - self.shift)
        self.solved = all([self._solve(q) for q in range(model.m.shape[1])])
        ell = float(weight @ self._expectations()[0])
        kl = self.chain.divergence(
            model.m.astype(np.float64), model.s.astype(np.float64)
        )
        loss = -(ell - model.kl_weight * kl) / model.total_weight
        if not np.isfinite(loss):
            raise FloatingPointError(LOST)
        self.losses.append(loss)
        return loss, ell - kl

    def marginals(self):
        """Return mean and variance of q(f_i), eq. 13, (n, Q)."""
        model = self.engine.model
        v = self.F[:, None] + self.A_squared @ model.s.astype(np.float64)
        return self.A @ model.m.astype(np.float64), v

    def scaled(self, slot, factor):
        """Return a solver for `factor` times a kernel whose variance is params[slot].

        It goes on from the sites of this one, which stays as it is.
        """
        other = copy.copy(self)
        other.engine = copy.copy(self.engine)
        model = self.engine.model
        params, m, s = model.params.copy(), model.m.copy(), model.s.copy()
        params[slot] *= factor
        other.engine.model = model._replace(params=params, m=m, s=s)
        other.chain, other.F = self.chain.scaled(factor), factor * self.F
        other.precision, other.shift = self.precision.copy(), self.shift.copy()
        other.losses = []
        return other

    def _solve(self, q):
        """Set m and s of one latent function to the optimum for its sites.

        The diagonal is a good preconditioner where data say much of each point, the
        prior where they say little; that which served last comes first. Returns whether
        conjugate gradients converged.
        """
        model, R = self.engine.model, self.chain.factor
        beta, w = model.kl_weight, self.precision[:, q]
        diagonal = self.A_squared.T @ w + beta * self.chain.precision
        system = self._operator(
            lambda u: self.A.T @ (w * (self.A @ u)) + beta * (R.T @ (R @ u))
        )

        def divide(u):
            return u / diagonal

        m, right = model.m[:, q].astype(np.float64), self.A.T @ self.shift[:, q]
        for iterations in (FIRST_ITERATIONS, MAX_ITERATIONS):
            product = self._multiply_by_prior if self.prior_first else divide
            m, failed = cg(
                system,
                right,
                x0=m,
                rtol=TOLERANCE,
                maxiter=iterations,
                M=self._operator(product),
            )
            if not failed:
                break
            self.prior_first = not self.prior_first
        model.m[:, q] = m
        model.s[:, q] = beta / diagonal
        return not failed

    def _operator(self, product):
        M = len(self.order)
        return LinearOperator((M, M), lambda u: product(u.ravel()), dtype=np.float64)

    @cached_property
    def _root(self):
        """R of the first chain, columns in its order, ready for solves."""
        R = csc_matrix(self.chain.factor[:, self.order])
        return splu(R, permc_spec="NATURAL", diag_pivot_thresh=0.0)

    def _multiply_by_prior(self, u):
        """Return (R' R)^-1 u, times the factor by which the variance has changed."""
        out = np.empty_like(u)
        out[self.order] = self._root.solve(self._root.solve(u[self.order], "T"))
        return out

    def _expectations(self):
        """Return E log p(y | f) (n,), its derivatives by mu and v, and mu, (n, Q)."""
        mu, v = self.marginals()
        ell = np.empty(len(mu))
        d_mu, d_v = np.empty((2, *mu.shape))
        for index in index_blocks(self.data.n_rows):
            ell[index], d_mu[index], d_v[index] = self.engine.expect(
                self.data.y[index], mu[index], v[index]
            )
        return ell, d_mu, d_v, mu
