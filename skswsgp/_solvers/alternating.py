"""Inducing inputs trained between exact solves for q(u)."""

import numpy as np

from skswsgp._covariance.compile import updated_kernel
from skswsgp._solvers.adam import AdamSolver
from skswsgp._solvers.natural import NaturalSolver
from skswsgp._solvers.progress import Schedule, steps_per_epoch

ROUNDS = 6
EPOCHS = 2  # of Adam between two solves


def count_points(n_rows, solve):
    """Return the points of all rounds, of which a solve takes so many."""
    return ROUNDS * solve + EPOCHS * (ROUNDS - 1) * n_rows


class AlternatingSolver:
    """Rounds of epochs of Adam, then the optimum of q(u) by the natural solver.

    Adam moves inducing inputs, kernel parameters and noise on the bound with the local
    divergences; its m and S are where the natural solver starts.

    Parameters
    ----------
    engine : CpuEngine
        Ready for training; its model is modified.
    kernel : kernel object
        The kernel with the parameters of that model.
    data : Data
        Training rows.
    options : dict
        Of the neighbour search.
    rng : RandomState
        Draws minibatches and the order of the chain, which is that of all rounds.
    kl : {"vecchia", "local"}
        The prior of the natural solver.
    batch_size, learning_rate
        Of Adam, whose rate falls over all rounds.
    adam_weight : float
        kl_weight of Adam's steps.
    """

    plan = "round", ROUNDS
    keeps_best = True  # by the loss, where no rows are held out

    def __init__(
        self, engine, kernel, data, options, rng, kl, batch_size, learning_rate,
        adam_weight,
    ):  # fmt: skip
        self.engine, self.kernel = engine, kernel
        self.arguments = data, options, kl
        self.seed = rng.randint(2**31 - 1)  # of the order of the chain
        n_steps = steps_per_epoch(data.n_rows, batch_size)
        epochs = EPOCHS * (ROUNDS - 1)
        schedule = Schedule(learning_rate, epochs, n_steps, True)
        self.adam = AdamSolver(engine, data, options, schedule, rng)
        self.search = self.adam.search  # it follows the inducing inputs
        self.weights = engine.model.kl_weight, adam_weight
        self.rounds, self.natural = 0, None

    @property
    def solved(self):
        """Whether conjugate gradients came to an end in the last round."""
        return self.natural is None or self.natural.solved

    @property
    def usable(self):
        """Whether there is a model yet."""
        return self.rounds > 0

    @property
    def converged(self):
        """Whether all rounds are done."""
        return self.rounds >= ROUNDS

    def advance(self, epoch):
        """Run a round; return (loss per row, bound in nats) of its last solve."""
        engine, (weight, adam_weight) = self.engine, self.weights
        if self.rounds > 0:
            engine.model = engine.model._replace(kl_weight=adam_weight)
            try:
                for step in range(EPOCHS):
                    self.adam.advance(EPOCHS * (self.rounds - 1) + step)
            finally:
                engine.model = engine.model._replace(kl_weight=weight)
        kernel = updated_kernel(self.kernel, engine.model.params)
        data, options, kl = self.arguments
        rng = np.random.RandomState(self.seed)
        self.natural = None  # before the next takes room
        self.natural = NaturalSolver(engine, kernel, data, options, rng, kl)
        while not self.natural.converged:
            loss, bound = self.natural.advance(epoch)
        self.rounds += 1
        return loss, bound
