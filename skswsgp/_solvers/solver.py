"""The contract of a solver: how q(u) is found, given an engine and where to start."""

from abc import ABC, abstractmethod

import numpy as np


class Solver(ABC):
    """Rounds that improve the model of an engine.

    A subclass is one way to find q(u). Its class answers what "auto" means for it; an
    instance trains one model. The methods of this class are the answers of solvers that
    find the optimum of q(u) for a given kernel.

    Parameters
    ----------
    engine : Engine
        Its model is modified.
    data : TrainingRows
        The training rows, with their center.
    kernel : kernel object
        The kernel with the parameters of the engine's model.
    settings : Settings
        The user's parameters.
    rng : RandomState
        Source of random numbers.

    Attributes
    ----------
    search : TrackedSearch
        The search for neighbours, which follows the model.
    """

    unit = "round"  # the word for a call of `advance`
    priors = ("vecchia", "local")  # values of `kl` that it can use; "auto" is the first
    finds_optimum = True  # of q(u) for the kernel at hand, which is then learned before
    takes_steps = False  # of Adam, for which the engine must be prepared
    keeps_best = False  # whether the round of least loss counts, instead of the last

    @abstractmethod
    def advance(self, index):
        """Do round `index`, counted from 0; return (loss per row, bound in nats).

        The loss is the negative bound per unit of weight. Raises FloatingPointError
        where the model leaves the finite numbers and no earlier round can be kept.
        """

    @property
    @abstractmethod
    def n_rounds(self):
        """The largest number of rounds."""

    @property
    @abstractmethod
    def converged(self):
        """Whether another round would hardly change the model."""

    @property
    def usable(self):
        """Whether there is a model to keep when training is interrupted."""
        return True

    @property
    def solved(self):
        """Whether all linear systems of the last round were solved."""
        return True

    # --- what "auto" means ----------------------------------------------------------

    @classmethod
    def count_inducing(cls, n_rows, n_features, tuning):
        """Return M, which may still be cut to the number of distinct rows."""
        affordable = tuning.inducing_numbers // n_features
        affordable = max(affordable, tuning.least_all_inducing)
        return min(n_rows, affordable, tuning.most_all_inducing)

    @classmethod
    def count_neighbors(cls, n_rows, M, tuning):
        """Return H, before it is cut to M."""
        H = int(np.cbrt(tuning.solver_work / max(n_rows, M)))
        return min(max(H, tuning.least_neighbors), tuning.most_neighbors)

    @classmethod
    def takes_full_covariance(cls, settings, n_rows, M, H):
        """Return whether covariance="auto" is all of S.

        A diagonal understates the variance of the function where rows are dense for how
        fast it changes. All of S costs O(M^3).
        """
        few = max(n_rows, M) ** 2 * settings.n_latent <= settings.tuning.full_rows**2
        plain = settings.kl != "local" and not settings.optimize_inducing
        return settings.likelihood_record.conjugate and plain and few

    @classmethod
    def holdout_above(cls, tuning):
        """Return the rows above which early_stopping="auto" holds some of them out."""
        return np.inf

    @classmethod
    def count_points(cls, n_rows, M, settings):
        """Return how many rows an engine is asked about in a fit, at most."""
        return n_rows + M  # each row once, each inducing point once for its prior
