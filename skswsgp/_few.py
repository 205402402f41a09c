"""A kernel for few inducing points.

A kernel learned from nearest rows knows details that few inducing points cannot hold;
learned from a part of the rows, whose neighbours are further away, it does not, nor
with scales tied. Rows that no kernel's q(u) has seen tell which one serves best.
"""

import numpy as np

from skswsgp._inducing import initial_inducing_points
from skswsgp._learning import beyond_chance, length_scales, pool_size
from skswsgp._model import JITTER, natural_jitter
from skswsgp._natural import solver_with_judges
from skswsgp._training import Data

ROWS_A_POINT = 4  # rows for each inducing point in the part that teaches
JUDGES = 20_000  # rows that q(u) is found on and judged by, at most
HELD_SHARE = 0.2  # of them


def is_few(M, n_rows, n_features):
    """Whether M inducing points are few for so many rows, and for those that judge."""
    most = min(pool_size(n_features), int((1.0 - HELD_SHARE) * JUDGES))
    return ROWS_A_POINT * M < min(n_rows, most)


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
    rng : RandomState
        Source of random numbers.
    options : dict
        Threads, precision and kind of search, as `solver_with_judges` takes them.
    """

    def __init__(self, data, likelihood, log_density, M, H, rng, options):
        part = data.take(np.sort(rng.permutation(data.n_rows)[:JUDGES]))
        self.X = np.asarray(part.X[part.rows], dtype=np.float64)
        self.y, self.weight = part.y, part.weight
        self.held = rng.permutation(part.n_rows) < HELD_SHARE * part.n_rows
        self.likelihood, self.log_density = likelihood, log_density
        self.M, self.H, self.seed = M, H, rng.randint(2**31 - 1)
        self.options = options

    def densities(self, kernel, noise):
        """Return those of the held-out rows under a kernel."""
        rng, held, D = np.random.RandomState(self.seed), self.held, self.X.shape[1]
        scale = length_scales(kernel, D, otherwise=np.ones(D))
        Z = initial_inducing_points(
            self.X[~held], self.M, "kmeans", rng, scale, self.weight[~held]
        )
        attributes = {
            "kernel_": kernel,
            "inducing_points_": Z,
            "noise_variance_": noise,
            "jitter_": JITTER,
        }
        if self.likelihood[0] == "gaussian":
            dtype = self.options["dtype"]
            attributes["jitter_"] = natural_jitter(kernel, Z, noise, dtype)
        data, seed = Data(self.X, self.y, self.weight), rng.randint(2**31 - 1)
        solver = solver_with_judges(
            attributes, data, held, self.likelihood, self.H, seed, **self.options
        )
        while not solver.converged:
            solver.advance(0)
        mu, v = solver.marginals()
        attributes["y_scale_"] = 1.0
        return self.log_density(mu[held], v[held], self.y[held], attributes)

    def best_of(self, candidates):
        """Return the first of (kernel, noise variances) unless others are better.

        That is, unless held-out rows are likelier under them, beyond chance.
        """
        best, *others = candidates
        density = self.densities(*best)
        for one in others:
            try:
                found = self.densities(*one)
            except FloatingPointError:  # of a kernel that is not needed
                continue
            if beyond_chance(found - density, self.weight[self.held]):
                best, density = one, found
        return best
