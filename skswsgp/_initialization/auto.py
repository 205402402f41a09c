"""TODO docstring."""

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from skswsgp._compiled.threads import CHUNKS
from skswsgp._solvers.model import JITTER

LEAST_JITTER = {"float64": 1e-10, "float32": 1e-4}
FULL_COVARIANCE_BYTES = 2**30  # S, Adam's moments and gradients, more if K is shared
AUTO_COVARIANCE_BYTES = 2**22  # up to this "auto" takes the full covariance for Adam
FULL_ROWS = 2048  # and for the natural solver, in regression; fewer for more outputs
ALL_INDUCING = 100_000, 1_000_000  # rows up to which each one is an inducing point:
INDUCING_NUMBERS = 8_000_000  # as many as hold so many numbers, between these two
SOLVER_WORK = 6e10  # H^3 a row: the H that "auto" takes for so much work in all
NEIGHBOR_RANGE = 16, 192


def natural_jitter(kernel, Z, noise, dtype):
    """Return the relative jitter for a system that is solved, not stepped through.

    A tenth of the noise, so that it does not stand in for noise where data have none,
    and no more than Adam's, which keeps the system well conditioned.
    """
    variance = np.mean(kernel.diag(Z), dtype=np.float64)
    ratio = 0.1 * np.min(noise) / variance if variance > 0.0 else JITTER
    return float(np.clip(ratio, LEAST_JITTER[dtype], JITTER))


def divergence_weight(kl_weight, kl, M, H):
    """Return beta: a number; "auto" is max(1, M / H), with the whole chain 1."""
    if kl_weight != "auto":
        return float(kl_weight)
    return 1.0 if kl == "vecchia" else max(1.0, M / H)


def search_options(estimator):
    """Return what a `NeighborSearch` takes of the user's parameters."""
    return {
        "metric": estimator.neighbor_metric,
        "search": estimator.neighbor_search,
    }


def prior_of(kl, natural):
    """Return the kind of prior that a solver takes, "vecchia" or "local"."""
    if kl == "auto":
        return "vecchia" if natural else "local"
    return kl


def solves_full(estimator, name, n_rows, M, n_latent):
    """Whether the natural solver is to find all of S.

    Its diagonal understates the variance of the function where rows are dense for how
    fast it changes; on 2,000 rows all of S takes up to twice as long.
    """
    if estimator.covariance != "auto":
        return estimator.covariance == "full"
    plain = estimator.kl != "local" and not estimator.optimize_inducing
    few = max(n_rows, M) ** 2 * n_latent <= FULL_ROWS**2
    return name == "gaussian" and plain and few


def is_full(covariance, M, H, n_latent, dtype):
    """Decide between a full and a diagonal covariance of q(u)."""
    copies = 4 if H < M else 4 + CHUNKS
    size = copies * np.dtype(dtype).itemsize * M * M * n_latent
    if covariance == "full" and size > FULL_COVARIANCE_BYTES:
        raise ValueError(
            f"covariance='full' with {M} inducing points and {n_latent} latent "
            f"functions takes {size / 2**30:.1f} GiB: expected at most "
            f"{FULL_COVARIANCE_BYTES / 2**30:.1f} GiB; use covariance='diag'."
        )
    if covariance == "auto":
        return size <= AUTO_COVARIANCE_BYTES
    return covariance == "full"


def count_inducing(n_inducing, n_rows, n_features, natural):
    """Return M, still to be cut to the number of distinct rows."""
    if n_inducing != "auto":
        return n_inducing
    least, most = ALL_INDUCING
    affordable = min(max(INDUCING_NUMBERS // n_features, least), most)
    return min(n_rows, affordable) if natural else 256


def count_neighbors(n_neighbors, M, n_rows, natural):
    """Return H."""
    if n_neighbors == "auto":
        n_neighbors = 16
        if natural:
            H = int(np.cbrt(SOLVER_WORK / max(n_rows, M)))
            n_neighbors = min(max(H, NEIGHBOR_RANGE[0]), NEIGHBOR_RANGE[1])
    return min(n_neighbors, M)


def default_kernel(spread):
    """Return a variance times a Matern 5/2 kernel with one length-scale a feature."""
    lengths = spread * np.sqrt(len(spread))
    bounds = np.stack([1e-3 * lengths, 1e3 * lengths], axis=1)
    if len(spread) == 1:
        lengths, bounds = float(lengths[0]), tuple(bounds[0])
    return ConstantKernel(1.0, (1e-3, 1e3)) * Matern(lengths, bounds, nu=2.5)
