"""A kernel for few inducing points.

A kernel learned from nearest rows knows details that few inducing points cannot hold;
learned from a part of the rows, whose neighbours are further away, it does not, nor
with scales tied. Rows that no kernel's q(u) has seen tell which one serves best.
"""

import numpy as np

from skswsgp._held import HELD_SHARE, ROWS, HeldOut, warn_of_interrupt
from skswsgp._inducing import initial_inducing_points
from skswsgp._learning import length_scales, pool_size
from skswsgp._model import JITTER, natural_jitter

ROWS_A_POINT = 4  # rows for each inducing point in the part that teaches


def is_few(M, n_rows, n_features, rows_a_point=ROWS_A_POINT):
    """Whether M inducing points are few for so many rows, and for those that judge."""
    most = min(pool_size(n_features), int((1.0 - HELD_SHARE) * ROWS))
    return rows_a_point * M < min(n_rows, most)


def part_for(M, data, rng):
    """Return the part of the data that teaches a kernel for M inducing points."""
    rows = rng.permutation(data.n_rows)[: max(ROWS_A_POINT * M, 200)]
    return data.take(np.sort(rows))


class Judge(HeldOut):
    """Judges kernels by the q(u) of M inducing points, of which a row sees H.

    `points` says how they are chosen, "kmeans" or "random", and `spread` (D,) is that
    of the features, as they stand in for length-scales where a kernel has none.
    """

    def __init__(self, M, H, points, spread, data, *setting):
        super().__init__(ROWS, data, *setting)
        self.M, self.H = M, H
        self.points, self.spread = points, spread

    def solve(self, found):
        """Return a solver that has converged, and the densities of held-out rows."""
        kernel, noise = found[:2]
        rng, kept, D = np.random.RandomState(self.seed), ~self.held, self.X.shape[1]
        scale = length_scales(kernel, D, otherwise=self.spread)
        Z = initial_inducing_points(
            self.X[kept], self.M, self.points, rng, scale, self.weight[kept]
        )
        attributes = {
            "kernel_": kernel,
            "inducing_points_": Z,
            "noise_variance_": noise,
            "jitter_": JITTER,
            "y_scale_": 1.0,
        }
        if self.likelihood[0] == "gaussian":
            dtype = self.options["dtype"]
            attributes["jitter_"] = natural_jitter(kernel, Z, noise, dtype)
        solver = self.solver(attributes, self.H)
        return solver, self.log_densities(solver, attributes)

    def best_of(self, candidates):
        """Return the first of some `Found` unless others are better.

        Better: held-out rows are likelier, beyond chance. One that fails is no better,
        and any that does not is better than a first that fails. For classes it comes
        with the scale that its variances ask for.
        """
        best, solver, density = candidates[0], None, None
        for one in candidates:
            try:
                other, likelier = self.solve(one)
            except FloatingPointError:  # of a kernel that is not needed
                continue
            except KeyboardInterrupt:
                warn_of_interrupt()
                break
            if density is None or self.better(likelier, density):
                best, solver, density = one, other, likelier
        if self.likelihood[0] == "gaussian":
            return best
        scale = 1.0 if solver is None else self.variance_scale(solver)
        return best._replace(variance_scale=scale)
