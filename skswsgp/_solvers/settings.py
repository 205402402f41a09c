"""The user's parameters, as the packages below the estimators read them."""

from typing import NamedTuple

import numpy as np

from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._solvers.tuning import Tuning


class Settings(NamedTuple):
    """Parameters of an estimator and of its solver, with their public meaning."""

    likelihood: str  # a name of LIKELIHOODS; "auto" may stand before targets are known
    n_latent: int  # Q, the number of latent functions; None before targets are known
    solver: type  # the subclass of `Solver` that trains
    is_trial: bool = False  # whether the fit serves a choice, and Ctrl-C ends it
    predictive: str = "auto"
    x_transform: str | None = "auto"
    averages: np.ndarray | None = None  # of targets, which `prior_mean` takes
    likelihood_shape: float | str = "auto"  # "auto" for likelihoods that have none
    kernel: object = None
    learn_map: bool | str = "auto"
    n_inducing: int | str = "auto"
    n_neighbors: int | str = "auto"
    inducing_points: str | np.ndarray = "kmeans"
    covariance: str = "auto"
    neighbor_search: str = "exact"
    learn_kernel: bool = True
    initial_noise: float = 0.1  # 0.1 for likelihoods that have none
    known_noise: np.ndarray | None = None  # (Q,) noise variances, None to learn them
    batch_size: int = 64  # this and what follows: parameters of the solver
    learning_rate: float = 0.02
    max_iter: int = 200
    tol: float = 1e-5
    n_iter_no_change: int = 10
    early_stopping: bool | str = "auto"
    validation_fraction: float = 0.1
    optimize_inducing: bool = False
    n_shared: int | str | None = None
    kl_weight: float | str = "auto"
    forgetting_factor: float = 1.0
    device: str = "cpu"
    n_jobs: int | None = None
    dtype: str = "float64"
    tuning: Tuning = Tuning()

    @property
    def likelihood_record(self):
        """The record of the likelihood."""
        return LIKELIHOODS[self.likelihood]

    @property
    def first_noise(self):
        """The noise variances (n_latent,) of the start."""
        if self.known_noise is not None:
            return self.known_noise
        return np.full(self.n_latent, float(self.initial_noise))

    @property
    def first_shape(self):
        """The shapes (n_latent,) of the likelihood from which a search starts."""
        given = self.likelihood_shape
        usual = self.likelihood_record.usual_shape if given == "auto" else given
        return np.full(self.n_latent, float(usual))

    @property
    def learns_shape(self):
        """Whether the likelihood has a shape that is to be learned."""
        return self.likelihood_shape == "auto" and self.first_shape.any()

    @property
    def search_options(self):
        """The options of a `NeighborSearch`."""
        return {"search": self.neighbor_search}

    def prior_mean(self, variance):
        """Return the prior means (n_latent,) of f for a kernel of some variance."""
        if self.averages is None:
            return np.zeros(self.n_latent)
        return self.likelihood_record.prior_mean(self.averages, variance)

    def count_shared(self, M, H):
        """Return how many points a minibatch may share, None if rows have their own."""
        if self.n_shared is None:
            return None
        if self.n_shared == "auto":
            tuning, nearest = self.tuning, 2 * self.batch_size
            lists = tuning.shared_lists * H
            return min(M, max(tuning.least_shared, lists, nearest))
        if self.n_shared < min(H, M):
            raise ValueError(
                f"n_shared={self.n_shared} with {min(H, M)} neighbours of a row: "
                "expected at least as many shared points as neighbours; raise n_shared "
                "or lower n_neighbors."
            )
        return min(M, self.n_shared)

    def divergence_weight(self, M, H):
        """Return beta, the weight of the divergence of q(u) from its prior.

        "auto" is 1 for the Vecchia prior, whose divergence is that of all inducing
        points, and max(1, M / H) for local divergences, which count H points only. For
        the divergences of unions it is 1, the paper's.
        """
        if self.kl_weight != "auto":
            return float(self.kl_weight)
        local = self.solver.local_divergences and self.n_shared is None
        return max(1.0, M / H) if local else 1.0
