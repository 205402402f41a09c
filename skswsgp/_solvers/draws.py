"""Draws from q(u), whose precision is sparse where its covariance is large.

Let W = diag(w) be the site precisions of a latent function, divided by the weight of
the divergence, and R the factor of the prior precision, P = R' R. The covariance of
q(u) is (A' W A + P)^-1, and with standard normal e a draw of u - m solves

    (A' W A + P) u = A' W^1/2 e_1 + R' e_2.

Its matrix is almost diagonal where the data determine each inducing value. Where they
do not, the rows have the better system, in which noise bounds the small eigenvalues
from below. With a draw v = P^-1 R' e_2 from the prior the same u is (Matheron's rule)

    u = v + P^-1 A' W^1/2 z,   (I + W^1/2 A P^-1 A' W^1/2) z = e_1 - W^1/2 A v.

The residual of a row is about the error of f there, in deviations of its noise. So it
is compared with the draw of f itself in this unit, W^1/2 A u. The right-hand side is as
much larger as the signal is larger than the noise, and e_1 as there are more rows than
degrees of freedom.
"""

from functools import partial

import numpy as np

from skswsgp._compiled.team import BLOCK
from skswsgp._compiled.threads import one_blas_thread
from skswsgp._covariance.compile import inverse_lengths, updated_kernel
from skswsgp._covariance.program import kernel_of
from skswsgp._linear.block_diagonal import BlockDiagonal, diagonal_blocks
from skswsgp._linear.conjugate_gradients import norms, solve_systems
from skswsgp._linear.locality import find_locality
from skswsgp._linear.nystrom import NystromPreconditioner
from skswsgp._linear.projection import absolute_jitter
from skswsgp._linear.row_matrix import SparseRowMatrix
from skswsgp._linear.site_rows import row_noise
from skswsgp._neighbors.kd_order import tree_order
from skswsgp._rows.data import memory_budget

# Least size of a draw of f at the rows, in deviations of their noise: smaller ones are
# solved for as if they had this size, so that rows of no weight end the search
LEAST_SIZE = 1e-4
BYTES = np.dtype(np.float64).itemsize


def draw_posterior(sites, prior, tuning, n_draws, rng):
    """Return draws (M, n_draws, Q) of a `PosteriorSampler`, or None.

    Sparse matrices in the memory of the host are first copied in orders that use the
    cache, see `locality`.
    """
    model, places = sites.engine.model, slice(None)
    order = tree_order(model.Z * inverse_lengths(kernel_of(model)), BLOCK)
    sites = sites.divided(model.kl_weight)
    if are_sparse(sites, prior):
        places, rows = find_locality(order, prior.rows)
        sites = sites.reordered(places)
        prior = prior.reordered(rows, order, places)
    u = PosteriorSampler(sites, prior, order, tuning).draw(n_draws, rng)
    return None if u is None else u[places]


def are_sparse(sites, prior):
    """Return whether all matrices are sparse ones in the memory of the host."""
    return sites.is_sparse and isinstance(prior.rows, SparseRowMatrix)


class PosteriorSampler:
    """Draws of u - m for a model of the natural solver.

    `sites` are the `SiteRows` of n rows with the precisions w above, and `prior` is a
    `VecchiaPrior` of the M inducing values. `order` (M,) are the indices of the
    inducing points, best in an order in which near points lie near each other.
    """

    def __init__(self, sites, prior, order, tuning):
        self.sites, self.prior, self.order = sites, prior, order
        self.tuning, self.nystrom = tuning, None
        self.diagonal = sites.diagonal() + prior.precision[:, None]
        weak = np.median(prior.precision[:, None] / self.diagonal, axis=0)
        ways = [self._solve_inducing, self._solve_rows][: 2 if sites.is_here else 1]
        self.ways = [
            ways[::-1] if each > tuning.weak_data else ways[:] for each in weak
        ]
        self.steps = [tuning.first_cg_steps] * len(weak)

    def draw(self, n_draws, rng):
        """Return draws (M, n_draws, Q), or None where they could not be solved for."""
        (M, Q), n = self.diagonal.shape, self.sites.n_rows
        u = np.empty((M, n_draws, Q))
        # at most eight arrays of M and eight of n numbers for each draw
        size = memory_budget() // (8 * BYTES * (M + n)) // BLOCK * BLOCK
        size, seed = max(BLOCK, size), rng.randint(2**31 - 1)
        numbers = (n + M) * self.sites.engine.n_neighbors * n_draws * Q
        most = min(int(self.tuning.solver_work / numbers), self.tuning.most_cg_steps)
        for q in range(Q):
            for first in range(0, n_draws, size):
                k = min(size, n_draws - first)
                e_1 = self.sites.noise((seed, 0, q, first), k)
                e_2 = np.ascontiguousarray(row_noise((seed, 1, q, first), 0, M, k))
                with one_blas_thread():
                    part = self._solve(q, e_1, e_2, most)
                if part is None:
                    return None
                u[:, first : first + k, q] = part
        return u

    def _solve(self, q, e_1, e_2, most):
        """Return u (M, k) for latent function q, or None.

        Both systems are tried, then the first of them for up to `most` steps. Draws to
        come begin with what was solved.
        """
        slow, ways = [], self.ways[q]
        for way in ways:
            u, left = self._attempt(way, q, e_1, e_2, self.steps[q])
            if len(left) == 0:
                self.ways[q] = [way, *(each for each in ways if each != way)]
                return u
            if u is not None:
                slow.append(way)
        if slow and most > self.steps[q]:
            u, left = self._attempt(slow[0], q, e_1, e_2, most)
            if len(left) == 0:
                self.ways[q], self.steps[q] = slow[:1], most
                return u
        return None

    def _attempt(self, way, q, e_1, e_2, steps):
        """Return u and the systems that are left, or None and all of them."""
        everything = np.arange(e_2.shape[1])
        try:
            u, left = way(q, e_1, e_2, steps)
        except (FloatingPointError, np.linalg.LinAlgError):  # of the preconditioner
            return None, everything
        return (u, left) if np.isfinite(u).all() else (None, everything)

    def _solve_inducing(self, q, e_1, e_2, steps):
        """Solve for u itself; return it and the systems that are left."""
        sites, prior, diagonal = self.sites, self.prior, self.diagonal[:, [q]]
        right = sites.noise_sums(q, e_1) + prior.rows.rmatvec(e_2)

        def multiply(u, _):
            return sites.multiply(u, np.full(u.shape[1], q)) + prior.matvec(u)

        if are_sparse(sites, prior):
            ones, n_threads = np.ones(len(diagonal)), sites.engine.n_threads
            blocks = sites.blocks(q) + diagonal_blocks(prior.rows, ones, n_threads)
            nearly = BlockDiagonal(blocks, len(diagonal)).solve
        else:
            nearly = partial(np.multiply, 1.0 / diagonal)

        def precondition(u, _):
            return nearly(u)

        u, tolerance = np.zeros_like(right), self.tuning.round_tolerance
        return u, solve_systems(
            u, np.arange(u.shape[1]), right, multiply, precondition, tolerance, steps
        )

    def _solve_rows(self, q, e_1, e_2, steps):
        """Solve for the rows' z; return u and the systems that are left."""
        w, rows, prior = self.sites.precision[:, [q]], self.sites.rows, self.prior
        if self.nystrom is None:
            self.nystrom = self._make_nystrom()
        self.nystrom.factorise(w[:, 0])
        root = np.sqrt(w)

        def from_rows(z):  # P^-1 A' W^1/2 z
            return prior.solve(rows.rmatvec(root * z))

        def multiply(z, _):
            image = rows.matvec(from_rows(z))
            image *= root
            image += z
            return image

        def precondition(z, _):
            return self.nystrom.solve(z)

        v = prior.solve(prior.rows.rmatvec(e_2))
        right = e_1 - root * rows.matvec(v)
        z, left, sizes = np.zeros_like(right), np.arange(e_1.shape[1]), norms(e_1)
        least = LEAST_SIZE * sizes
        while len(left):
            tolerance = self.tuning.draw_noise_tolerance * sizes / norms(right)
            left = solve_systems(
                z, left, right, multiply, precondition, tolerance, steps
            )
            u = v + from_rows(z)
            if len(left):
                break
            found = np.maximum(norms(root * rows.matvec(u)), least)
            # The tolerance was too loose for draws that came out much smaller
            left = np.flatnonzero(found < 0.5 * sizes)
            sizes = np.minimum(sizes, found)
        return u, left

    def _make_nystrom(self):
        """Return the preconditioner of the rows' system, within half of the memory."""
        rows, model, n = self.sites.rows, self.sites.engine.model, self.sites.n_rows
        most = min(self.tuning.global_points, memory_budget() // (2 * BYTES * n))
        M = len(self.order)
        m = max(1, min(most, M))
        Z = model.Z[self.order[np.arange(m) * M // m]].astype(np.float64)
        kernel = updated_kernel(rows.kernel, model.params)
        return NystromPreconditioner(
            kernel,
            Z,
            rows.data,
            rows.F,
            absolute_jitter(model, kernel),
            rows.engine.n_threads,
        )
