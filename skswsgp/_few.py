"""A kernel for few inducing points.

A kernel learned from nearest rows knows details that few inducing points cannot hold;
learned from a part of the rows, whose neighbours are further away, it does not, nor
with scales tied. Rows that no kernel's q(u) has seen tell which one serves best.
"""

import numpy as np

from skswsgp._engine import CpuEngine
from skswsgp._inducing import initial_inducing_points
from skswsgp._learning import beyond_chance, length_scales
from skswsgp._model import build_model
from skswsgp._natural import NaturalSolver
from skswsgp._training import Data

ROWS_A_POINT = 4  # rows for each inducing point in the part that teaches
JUDGES = 20_000  # rows that q(u) is found on and judged by, at most
HELD_SHARE = 0.2  # of them


def is_few(M, n_rows):
    """Whether M inducing points are few for so many rows."""
    return ROWS_A_POINT * M < n_rows


def part_for(M, data, rng):
    """Return the part of the data that teaches a kernel for M inducing points."""
    rows = rng.permutation(data.n_rows)[: max(ROWS_A_POINT * M, 200)]
    return data.take(np.sort(rows))


class Judge:
    """Finds q(u) on some rows, and the density of others under it.

    Parameters
    ----------
    data : Data
        Training rows.
    likelihood : tuple
        Its name and the number of latent functions.
    log_density : callable
        log_density(mu, v, y, attributes) of rows with q(f) = N(mu, v).
    M, H : int
        Inducing points, and those that a row sees.
    rng, n_threads, dtype, search
        Source of random numbers, threads, precision, kind of neighbour search.
    """

    def __init__(
        self, data, likelihood, log_density, M, H, rng, *, n_threads, dtype, search
    ):
        part = data.take(np.sort(rng.permutation(data.n_rows)[:JUDGES]))
        self.X = np.asarray(part.X[part.rows], dtype=np.float64)
        self.y, self.weight = part.y, part.weight
        self.held = rng.permutation(part.n_rows) < HELD_SHARE * part.n_rows
        self.likelihood, self.log_density = likelihood, log_density
        self.M, self.H, self.seed = M, H, rng.randint(2**31 - 1)
        self.n_threads, self.dtype, self.search = n_threads, dtype, search

    def densities(self, kernel, noise):
        """Return those of the held-out rows under a kernel."""
        rng, Q = np.random.RandomState(self.seed), self.likelihood[1]
        kept, D = ~self.held, self.X.shape[1]
        scale = length_scales(kernel, D, otherwise=np.ones(D))
        Z = initial_inducing_points(
            self.X[kept], self.M, "kmeans", rng, scale, self.weight[kept]
        )
        attributes = {
            "kernel_": kernel,
            "inducing_points_": Z,
            "inducing_mean_": np.zeros((len(Z), Q)),
            "inducing_covariance_": np.ones((len(Z), Q)),
            "noise_variance_": noise,
        }
        weight = np.where(self.held, 0.0, self.weight)
        model, center = build_model(
            attributes, self.likelihood, self.dtype, total_weight=weight.sum()
        )
        engine = CpuEngine(model, min(self.H, len(Z)), self.n_threads)
        data = Data(self.X, self.y, self.weight, center=center)
        search = {"metric": "kernel", "search": self.search}
        solver = NaturalSolver(engine, kernel, data, search, rng)
        solver.weight = weight
        while not solver.converged:
            solver.advance(0)
        mu, v = solver.marginals()
        attributes["y_scale_"] = 1.0
        held = self.held
        return self.log_density(mu[held], v[held], self.y[held], attributes)

    def best_of(self, candidates):
        """Return the first of (kernel, noise variances) unless others are better.

        That is, unless held-out rows are likelier under them, beyond chance.
        """
        best, *others = candidates
        density = self.densities(*best)
        for one in others:
            found = self.densities(*one)
            if beyond_chance(found - density, self.weight[self.held]):
                best, density = one, found
        return best
