"""The user's parameters, as the packages below the estimators read them."""

from typing import NamedTuple

import numpy as np

from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._solvers.tuning import Tuning


class Settings(NamedTuple):
    """Parameters of an estimator, with their public meaning but for the comments."""

    likelihood: str  # a name of LIKELIHOODS
    n_latent: int  # Q, the number of latent functions
    solver: type  # the subclass of `Solver` that trains
    averages: np.ndarray | None = None  # of targets, which `prior_mean` takes
    likelihood_shape: float | str = "auto"  # "auto" for likelihoods that have none
    kernel: object = None
    metric: str = "auto"
    n_inducing: int | str = "auto"
    n_neighbors: int | str = "auto"
    inducing_points: str | np.ndarray = "kmeans"
    optimize_inducing: bool = False
    covariance: str = "auto"
    neighbor_search: str = "exact"
    neighborhood: str = "points"
    n_active: int | str = "auto"
    kl_weight: float | str = "auto"
    init: str = "local"
    noise_variance: float = 0.1  # 0.1 for likelihoods that have none
    known_noise: np.ndarray | None = None  # (Q,) noise variances, None to learn them
    batch_size: int = 64
    learning_rate: float = 0.02
    max_iter: int = 200  # 1 for a chunk of a stream
    decay: bool = True  # whether the learning rate falls: not for a stream
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
        return np.full(self.n_latent, float(self.noise_variance))

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

    def count_active(self, M, H):
        """Return how many points a minibatch may share, None if rows have their own."""
        if self.neighborhood == "points":
            return None
        if self.n_active == "auto":
            tuning, nearest = self.tuning, 2 * self.batch_size
            lists = tuning.active_lists * H
            return min(M, max(tuning.least_active, lists, nearest))
        if self.n_active < min(H, M):
            raise ValueError(
                f"n_active={self.n_active} with {min(H, M)} neighbours of a row: "
                "expected at least as many active points as neighbours; raise n_active "
                "or lower n_neighbors."
            )
        return min(M, self.n_active)

    def divergence_weight(self, M, H):
        """Return beta, the weight of the divergence of q(u) from its prior.

        "auto" is 1 for the Vecchia prior, whose divergence is that of all inducing
        points, and max(1, M / H) for local divergences, which count H points only. For
        the divergences of unions it is 1, the paper's.
        """
        if self.kl_weight != "auto":
            return float(self.kl_weight)
        local = self.solver.local_divergences and self.neighborhood == "points"
        return max(1.0, M / H) if local else 1.0
