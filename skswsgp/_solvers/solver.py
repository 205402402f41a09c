"""The interface of a solver, which finds q(u) from an engine and a start."""

from abc import ABC, abstractmethod

import numpy as np

ROUNDS_OF_LABELS = 10  # rounds of natural-gradient steps that labels take, roughly


class Solver(ABC):
    """Rounds that improve the model of an engine.

    A subclass is one way to find q(u). Its class methods return the values of "auto";
    an instance trains one model. The class methods defined here are for solvers that
    find the optimum of q(u) for a given kernel.

    The arguments are an engine, whose model is modified; the rows, as `RowsInMemory`,
    with their center; the kernel object with the parameters of the model; the
    `Settings`; and a source of random numbers. If `takes_steps`, `feature_scale` (D,)
    follows, the unit of a step of each feature of Z. The attribute `engine` holds the
    model as it is now, and `search` is the `TrackedSearch`, which follows the model.
    """

    title = "the natural solver"  # the solver in messages
    unit = "round"  # the word for a call of `advance`
    finds_optimum = True  # whether q(u) is optimal for a kernel learned before
    takes_steps = False  # whether it takes steps of Adam
    local_divergences = False  # whether a row's divergence is that of its points
    draws = False  # whether it can draw from q(u)
    exact_means = False  # whether it can replace the neighbours' means by exact ones
    sites = None  # the `SiteRows` of the rows, or of these and of others
    keeps_best = False  # whether the round of least loss is restored at the end
    usable = True  # whether there is a model to keep when training is interrupted
    solved = True  # whether all linear systems of the last round were solved

    @abstractmethod
    def advance(self, index):
        """Do round `index`, counted from 0; return (loss per row, bound in nats).

        The loss is the negative bound per unit of weight. Raises FloatingPointError if
        the model gets NaN or infinity and no earlier round can be restored.
        """

    @property
    @abstractmethod
    def n_rounds(self):
        """The largest number of rounds, as progress reports print it."""

    @property
    @abstractmethod
    def converged(self):
        """Whether another round would hardly change the model."""

    def ends(self, history):
        """Return whether the round that a `History` has as its last one is the last."""
        return history.stalled or self.converged

    @classmethod
    def count_inducing(cls, n_rows, n_features, tuning):
        """Return M, which may still be cut to the number of distinct rows."""
        numbers = n_features + tuning.least_neighbors  # of a point and of its list
        affordable = tuning.inducing_numbers // numbers
        return min(n_rows, max(affordable, tuning.least_all_inducing))

    @classmethod
    def count_neighbors(cls, n_rows, M, tuning):
        """Return H, before it is cut to M."""
        H = int(np.cbrt(tuning.solver_work / max(n_rows, M)))
        return min(max(H, tuning.least_neighbors), tuning.most_neighbors)

    @classmethod
    def takes_full_covariance(cls, settings, n_rows, M, H):
        """Return whether covariance="auto" means a full S, if that fits in memory.

        A diagonal S understates the variance of f where f changes little between
        neighbouring rows. A full S costs O(M^3), and O(M H) for each row, in each round
        for labels and counts, which take it where each row uses all points. Where all
        rows are inducing points, near ones tell the variance as well.
        """
        work, conjugate = M**3 + n_rows * M * H, settings.likelihood_record.conjugate
        work *= settings.n_latent * (1 if conjugate else ROUNDS_OF_LABELS)
        asked = settings.n_inducing
        all_rows = isinstance(settings.inducing_points, str)
        all_rows = all_rows and (asked == "auto" or asked >= n_rows)
        needed = H == M or (conjugate and not all_rows)
        cheap = work <= settings.tuning.full_work
        few = all_rows and conjugate and H == M <= settings.tuning.dense_rows < n_rows
        return (few or (needed and cheap)) and not settings.optimize_inducing

    @classmethod
    def count_points(cls, n_rows, M, settings):
        """Return the largest number of rows that an engine processes in a fit."""
        return n_rows + M  # each row once, each inducing point once for its prior
