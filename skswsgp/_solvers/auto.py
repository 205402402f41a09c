"""The values that "auto" and None stand for; some depend on the solver's class."""

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from skswsgp._compiled.threads import CHUNKS, KERNEL_VALUE, machine_memory
from skswsgp._rows.data import memory_budget
from skswsgp._solvers.model import JITTER
from skswsgp._solvers.progress import warn_caller

# Least relative jitter of the natural solver, whose systems are solved to a relative
# residual of 1e-6 in float64 and 1e-3 in float32
LEAST_JITTER = {"float64": 1e-10, "float32": 1e-4}
# Most relative jitter where S is full: its dense systems need no good condition, and
# means are those of an exact Gaussian process within 1e-5, where they were within 3e-2
DENSE_JITTER = 1e-8


def count_inducing(settings, n_rows, n_features):
    """Return M, which may still be cut to the number of distinct rows."""
    if settings.n_inducing != "auto":
        return settings.n_inducing
    return settings.solver.count_inducing(n_rows, n_features, settings.tuning)


def count_neighbors(settings, n_rows, M, n_features):
    """Return H, at most M.

    A number, and "all" where means cannot come from all rows, are taken as they are.
    Few rows use all points, and so do many where few points tell all of f. Where means
    come from all rows, H is that of variances.
    """
    H, tuning = settings.n_neighbors, settings.tuning
    if not isinstance(H, str):
        return min(H, M)
    if takes_few_points(settings, n_rows, M):
        return M
    if tries_exact_means(settings, n_rows, M, n_features):
        # a GPU would factorise a matrix of all points for each row
        few = max(n_rows, M) <= tuning.dense_rows and settings.device != "cuda"
        if few and settings.solver.takes_full_covariance(settings, n_rows, M, M):
            return M
        if settings.likelihood_record.conjugate:
            return min(tuning.variance_neighbors, M)
    if H == "all" and not may_have_exact_means(settings, n_rows, n_features):
        return M
    return min(settings.solver.count_neighbors(n_rows, M, tuning), M)


def takes_few_points(settings, n_rows, M):
    """Return whether M inducing points are a few that each of many rows depends on."""
    few = M <= settings.tuning.dense_rows
    return few and allows_few_points(settings, n_rows)


def allows_few_points(settings, n_rows):
    """Return whether a few points that tell all of f may take the place of many.

    All rows would be points that each of them uses, but these are too many for that.
    """
    free = settings.n_neighbors == "auto" and settings.covariance in ("auto", "full")
    free = free and settings.likelihood_record.conjugate and settings.device != "cuda"
    if not free or not leaves_points_free(settings):
        return False
    most, room = settings.tuning.dense_rows, settings.tuning.full_covariance_bytes
    fits = bytes_of_full_covariance(settings, most, most) <= room
    whole = settings.solver.takes_full_covariance(settings, n_rows, n_rows, n_rows)
    return n_rows > most and fits and not whole


def allows_fewer_points(settings, n_rows, n_features):
    """Return whether rows may have fewer points, if these tell as much.

    Means from all rows would need no points, but these are too many for them.
    """
    record = settings.likelihood_record
    told = record.conjugate or record.least_noise is not None
    if not told or not leaves_points_free(settings):
        return False
    M = count_inducing(settings, n_rows, n_features)
    return exact_work(settings, M, n_features) > settings.tuning.mean_work


def leaves_points_free(settings):
    """Return whether M is that of the solver, which may take fewer points."""
    free = settings.n_inducing == "auto" and settings.n_neighbors != "all"
    free = free and isinstance(settings.inducing_points, str)
    return free and settings.solver.finds_optimum and not settings.solver.takes_steps


def exact_work(settings, M, n_features):
    """Return the cost of a product with the covariance of M points, see `Tuning`."""
    return M**2 * (KERNEL_VALUE + n_features) * settings.n_latent


def may_have_exact_means(settings, n_rows, n_features):
    """Return whether means from all rows can replace those from neighbours."""
    asked = isinstance(settings.n_neighbors, str)
    all_rows = isinstance(settings.inducing_points, str)
    all_rows = all_rows and count_inducing(settings, n_rows, n_features) >= n_rows
    return asked and all_rows and settings.solver.exact_means


def tries_exact_means(settings, n_rows, M, n_features):
    """Return whether means from all rows are asked for, or worth their time.

    A label leaves so much of f unknown that exact means of many labels gain nothing.
    """
    if not may_have_exact_means(settings, n_rows, n_features):
        return False
    told = settings.likelihood_record.least_noise is None
    told = told or M <= settings.tuning.dense_rows
    cheap = exact_work(settings, M, n_features) <= settings.tuning.mean_work
    few = takes_few_points(settings, n_rows, M)
    return settings.n_neighbors == "all" or (told and cheap and not few)


def takes_full_covariance(settings, n_rows, M, H):
    """Return whether S is a full matrix; raise ValueError where it would not fit."""
    size = bytes_of_full_covariance(settings, M, H)
    limit = settings.tuning.full_covariance_bytes
    if settings.covariance == "draws":
        return M <= settings.tuning.n_draws  # which costs less and is exact
    if settings.covariance == "auto":
        cheap = settings.solver.takes_full_covariance(settings, n_rows, M, H)
        return cheap and size <= limit
    if settings.covariance == "full" and size > limit:
        raise ValueError(
            f"covariance='full' with {M} inducing points and {settings.n_latent} "
            f"latent functions takes {size / 2**30:.1f} GiB: expected at most "
            f"{limit / 2**30:.1f} GiB; use covariance='diag'."
        )
    return settings.covariance == "full"


def bytes_of_full_covariance(settings, M, H):
    """Return the bytes of a full S, and for Adam of its moments and gradients."""
    shared = (M if H >= M else settings.count_shared(M, H)) or 0
    if not settings.solver.takes_steps:
        shared = 0
    itemsize = np.dtype(settings.dtype).itemsize
    return (4 * M**2 + CHUNKS * shared**2) * itemsize * settings.n_latent


def knows_sites(settings, full):
    """Return whether variances of f come from near points and the sites there.

    Otherwise they come from S, which is `full` or asked for as a diagonal.
    """
    asked = settings.covariance in ("auto", "draws")
    has_noise = settings.likelihood_record.has_noise
    return asked and has_noise and settings.solver.draws and not full


def require_room(settings, n_rows, n_features):
    """Raise ValueError where points and their neighbours would not fit into memory.

    A point has its coordinates, and twice a list with weights: in the prior, and in
    what that is made from.
    """
    M = min(count_inducing(settings, n_rows, n_features), n_rows)
    room = machine_memory()
    H = count_neighbors(settings, n_rows, M, n_features)
    size = (24 * (H + 1) + 8 * n_features) * M
    if settings.solver.finds_optimum and H < M and size > room:
        raise ValueError(
            f"{M:,} inducing points for {n_rows:,} rows, with n_neighbors={H}, take "
            f"{size / 2**30:.1f} GiB: expected at most {room / 2**30:.1f} GiB, the "
            f"memory of this machine; use n_inducing={int(M * room / size / 2)}."
        )


def warn_of_blocks(settings, n_rows, M, H):
    """Warn if lists and weights of rows exceed scikit-learn's working memory.

    Many rows that all depend on few points need neither.
    """
    size, room = 8 * n_rows * H, memory_budget()
    if size <= room or takes_few_points(settings, n_rows, M):
        return
    warn_caller(
        f"the neighbors and weights of {n_rows:,} rows, with n_neighbors={H}, take "
        f"{size / 2**30:.1f} GiB: expected at most {room / 2**30:.1f} GiB, so they "
        "are computed anew for each product; use a smaller n_neighbors, or "
        f"sklearn.set_config(working_memory={size // 2**20 + 1}).",
    )


def require_room_for_draws(tuning, M, n_latent):
    """Raise ValueError where draws of M inducing values would not fit."""
    n_draws = tuning.n_draws
    size, limit = 8 * M * n_draws * n_latent, tuning.full_covariance_bytes
    if size > limit:
        raise ValueError(
            f"{n_draws} draws of {M} inducing points and {n_latent} latent functions "
            f"take {size / 2**30:.1f} GiB: expected at most {limit / 2**30:.1f} GiB; "
            "use a smaller n_inducing, or predictions of single rows without draws."
        )


def dtype_of_systems(settings, M, H):
    """Return the dtype of the natural solver's systems: dense ones are in float64."""
    return "float64" if H == M and settings.device != "cuda" else settings.dtype


def natural_jitter(kernel, Z, noise, dtype, full=False):
    """Return the relative jitter for the systems of the natural solver.

    It is a tenth of the noise, so that jitter does not replace noise where data have
    none, but at most that of Adam, which is enough for well-conditioned systems. Where
    S is `full`, it is at most DENSE_JITTER.
    """
    variance = np.mean(kernel.diag(Z), dtype=np.float64)
    ratio = 0.1 * np.min(noise) / variance if variance > 0.0 else JITTER
    ratio = min(ratio, DENSE_JITTER if full else JITTER)
    return float(max(ratio, LEAST_JITTER[dtype]))


def default_kernel(spread):
    """Return a variance times a Matern 5/2 kernel with one length-scale per feature."""
    lengths = spread * np.sqrt(len(spread))
    bounds = np.stack([1e-3 * lengths, 1e4 * lengths], axis=1)
    if len(spread) == 1:
        lengths, bounds = float(lengths[0]), tuple(bounds[0])
    return ConstantKernel(1.0, (1e-3, 1e3)) * Matern(lengths, bounds, nu=2.5)
