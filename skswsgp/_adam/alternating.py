"""Inducing inputs that are trained by Adam between exact solves for q(u)."""

import numpy as np

from skswsgp._adam.solver import AdamSolver
from skswsgp._covariance.compile import updated_kernel
from skswsgp._rows.statistics import LARGEST_SEED
from skswsgp._solvers.natural import NaturalSolver
from skswsgp._solvers.solver import Solver

SOLVES = 6  # solves for q(u); later ones gained nothing on the data of the benchmarks
EPOCHS = 2  # epochs of Adam between two solves


class AlternatingSolver(Solver):
    """Rounds of a few epochs of Adam, then the optimum of q(u) by the natural solver.

    Adam moves inducing inputs, kernel parameters and noise on the bound with local
    divergences. Its m and S are where the natural solver starts. The learning rate
    falls over all rounds.
    """

    title = "Natural(optimize_inducing=True)"
    takes_steps = True
    keeps_best = True  # by the loss, where no rows are held out
    n_rounds = SOLVES

    def __init__(self, engine, rows, kernel, settings, rng, feature_scale):
        self.engine, self.rows, self.kernel = engine, rows, kernel
        self.settings = settings
        self.seed = rng.randint(LARGEST_SEED)  # fixes the order of the Vecchia prior
        epochs = EPOCHS * (SOLVES - 1)
        steps = settings._replace(solver=AdamSolver, max_iter=epochs, kl_weight="auto")
        self.adam = AdamSolver(engine, rows, kernel, steps, rng, feature_scale)
        self.search = self.adam.search  # it follows the inducing inputs
        M, H = len(engine.model.Z), engine.n_neighbors
        self.adam_weight = settings.kl_weight * steps.divergence_weight(M, H)
        self.rounds, self.natural = 0, None

    @property
    def solved(self):
        return self.natural is None or self.natural.solved

    @property
    def usable(self):
        return self.rounds > 0

    @property
    def converged(self):
        return self.rounds >= SOLVES

    def advance(self, index):
        if self.rounds > 0:
            self._take_steps()
        engine, settings = self.engine, self.settings
        kernel = updated_kernel(self.kernel, engine.model.params)
        rng = np.random.RandomState(self.seed)
        self.natural = None  # frees its memory before the next one is made
        self.natural = NaturalSolver(engine, self.rows, kernel, settings, rng)
        while not self.natural.converged:
            loss, bound = self.natural.advance(index)
        self.rounds += 1
        return loss, bound

    def _take_steps(self):
        """Run the epochs of Adam of a round with the weight of local divergences."""
        engine, weight = self.engine, self.engine.model.kl_weight
        engine.model = engine.model._replace(kl_weight=self.adam_weight)
        try:
            for step in range(EPOCHS):
                self.adam.advance(EPOCHS * (self.rounds - 1) + step)
        finally:
            engine.model = engine.model._replace(kl_weight=weight)

    @classmethod
    def count_points(cls, n_rows, M, settings):
        solve = super().count_points(n_rows, M, settings)
        return SOLVES * solve + EPOCHS * (SOLVES - 1) * n_rows
