"""What training starts from: kernel parameters and noise, and how many points.

init="local" learns the kernel on the nearest-neighbour likelihood of the targets before
there is any inducing point; classes are coded as numbers for that, and the natural
solver's kernel is then refined on their own likelihood.
"""

from contextlib import suppress

import numpy as np
from sklearn.base import clone

from skswsgp._defaults import default_kernel
from skswsgp._engine_cpu import CHUNKS
from skswsgp._few import Judge, is_few, part_for
from skswsgp._held import Prior
from skswsgp._inducing import given_points, initial_inducing_points
from skswsgp._jit import max_threads
from skswsgp._learning import Found, learn_local, learning_search, length_scales
from skswsgp._model import JITTER, initial_covariance, natural_jitter
from skswsgp._program import compile_kernel
from skswsgp._refine import refine_kernel

FULL_COVARIANCE_BYTES = 2**30  # S, Adam's moments and gradients, more if K is shared
AUTO_COVARIANCE_BYTES = 2**22  # up to this "auto" takes the full covariance for Adam
FULL_ROWS = 2048  # and for the natural solver, in regression; fewer for more outputs
ALL_INDUCING = 100_000, 1_000_000  # rows up to which each one is an inducing point:
INDUCING_NUMBERS = 8_000_000  # as many as hold so many numbers, between these two
SOLVER_WORK = 6e10  # H^3 a row: the H that "auto" takes for so much work in all
NEIGHBOR_RANGE = 16, 192


def initial_attributes(estimator, data, likelihood, spread, rng, natural):
    """Return the attributes of the model as it is before training.

    `estimator` holds the user's parameters, `likelihood` is (name, number of latent
    functions), `natural` says that the natural solver follows.
    """
    D = data.X.shape[1]
    name, n_latent = likelihood
    kernel = default_kernel(spread) if estimator.kernel is None else estimator.kernel
    # Refuse a kernel or inducing points before any work
    compile_kernel(kernel, D, estimator.dtype)
    points = estimator.inducing_points
    if not isinstance(points, str):
        points = given_points(points, D, estimator.n_inducing)
    kernel = clone(kernel)
    noise = np.full(n_latent, float(getattr(estimator, "noise_variance", 0.1)))
    found = Found(kernel, noise)
    if estimator.init == "local" and data.n_rows > 1:
        found = learned_start(estimator, data, likelihood, rng, natural, points, spread)
        kernel, noise = found[:2]
        spread = length_scales(kernel, D, otherwise=spread)
    Z = initial_inducing_points(
        data.X,
        count_inducing(estimator.n_inducing, data.n_rows, D, natural),
        points,
        rng,
        spread,
        data.weight_in_X(),
    )
    M = len(Z)
    H = count_neighbors(estimator.n_neighbors, M, data.n_rows, natural)
    start = {
        "kernel_": kernel,
        "inducing_points_": Z,
        "inducing_mean_": np.zeros((M, n_latent)),
        "n_inducing_": M,
        "n_neighbors_": H,
        "jitter_": JITTER,
    }
    if name == "gaussian":
        start["noise_variance_"] = noise
        if natural:
            start["jitter_"] = natural_jitter(kernel, Z, noise, estimator.dtype)
    else:
        start["variance_scale_"] = found.variance_scale
    full = is_full(estimator.covariance, M, H, n_latent, estimator.dtype)
    if natural:
        full = solves_full(estimator, name, data.n_rows, M, n_latent)
    if natural and (name == "gaussian" or not full):  # it solves for q(u)
        variance = np.asarray(kernel.diag(Z), dtype=np.float64)
        variance = np.maximum(variance, np.finfo(estimator.dtype).eps)
        start["inducing_covariance_"] = np.repeat(variance[:, None], n_latent, axis=1)
    else:
        start["inducing_covariance_"] = initial_covariance(
            start, full, estimator.dtype, estimator.n_jobs, search_options(estimator)
        )
    return start


def learned_start(estimator, data, likelihood, rng, natural, points, spread):
    """Return the kernel and noise variances that the data teach, as `Found`.

    For few inducing points a part of the data teaches another, and other rows decide.
    """
    n_threads = max_threads(estimator.n_jobs, data.n_rows)
    search, dtype = learning_search(estimator.neighbor_search), estimator.dtype
    options = {"n_threads": n_threads, "dtype": dtype, "search": search}
    # "auto" leaves it to the CPU: some 10^5 points are too few, see `choose_device`.
    options["device"] = "cuda" if estimator.device == "cuda" else "cpu"
    kl, metric = prior_of(estimator.kl, natural), estimator.neighbor_metric
    prior = Prior(kl, estimator.kl_weight, metric)
    D = data.X.shape[1]
    M = count_inducing(estimator.n_inducing, data.n_rows, D, natural)
    H = count_neighbors(estimator.n_neighbors, M, data.n_rows, natural)
    classes = likelihood[0] != "gaussian"
    free = natural and isinstance(points, str)
    few = free and is_few(M, data.n_rows, D)
    all_rows = free and M >= data.n_rows
    setting = likelihood, estimator._log_density, rng, options, prior

    def learn(data):
        """Return what is found, the best first."""
        noise = float(getattr(estimator, "noise_variance", 0.1))
        found = local_kernels(
            data, estimator.kernel, likelihood, noise, rng,
            settle_all=few and not classes,
            n_neighbors=H if all_rows and not classes and metric == "kernel" else None,
            exact=not classes,
            **options,
        )  # fmt: skip
        return [refine_kernel(found, data, *setting)] if natural and classes else found

    candidates = learn(data)
    unscaled = candidates[0]._replace(variance_scale=1.0)
    if not free:
        return unscaled
    # So far variances are scaled for all rows of a part as inducing points.
    scaled = classes and is_few(M, data.n_rows, D, rows_a_point=1)
    if not few and not scaled:
        return candidates[0]
    judge = Judge(M, H, points, spread, data, *setting)
    if not judge.decisive:
        return unscaled
    part = part_for(M, data, rng)
    if few and part.n_rows < data.n_rows:
        with suppress(FloatingPointError):  # of a kernel that is not needed
            candidates += learn(part)
    return judge.best_of(candidates)


def search_options(estimator):
    """Return what a `NeighborSearch` takes of the user's parameters."""
    return {
        "metric": estimator.neighbor_metric,
        "search": estimator.neighbor_search,
    }


def prior_of(kl, natural):
    """Return the kind of prior that a solver takes, "chain" or "local"."""
    if kl == "auto":
        return "chain" if natural else "local"
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


def local_kernels(data, kernel, likelihood, noise_variance, rng, **options):
    """Return kernels and noise learned on the nearest-neighbour likelihood, best first.

    `likelihood` is (name, number of latent functions), `options` are those of
    `learn_local`; kernel=None leaves the smoothness to the data.
    """
    name, n_latent = likelihood
    targets = data.y
    if name == "softmax":
        targets = (data.y == np.arange(n_latent)).astype(data.y.dtype)
        targets -= targets.mean(axis=0)
    return learn_local(
        data.X, targets, data.weight, kernel, noise_variance, rng=rng, rows=data.rows,
        **options,
    )  # fmt: skip
