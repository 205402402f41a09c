"""What training starts from: kernel parameters and noise, and how many points.

init="local" learns the kernel on the nearest-neighbour likelihood of the targets before
there is any inducing point; classes are coded as numbers for that, and the natural
solver's kernel is then refined on their own likelihood.
"""

from contextlib import suppress

import numpy as np
from sklearn.base import clone

from skswsgp._compiled.linalg import dense_cholesky
from skswsgp._compiled.threads import max_threads
from skswsgp._covariance.compile import compile_kernel, length_scales
from skswsgp._covariance.program import kernel_of
from skswsgp._engine.select import make_cpu_engine
from skswsgp._initialization.auto import (
    count_inducing,
    count_neighbors,
    default_kernel,
    is_full,
    natural_jitter,
    prior_of,
    search_options,
    solves_full,
)
from skswsgp._initialization.holdout import (
    CandidateComparison,
    PriorSettings,
    has_few_points,
    learning_part,
)
from skswsgp._initialization.inducing import given_points, initial_inducing_points
from skswsgp._initialization.kernel_learning import (
    KernelFit,
    learn_kernel,
    learning_search,
)
from skswsgp._initialization.site_refinement import refine_kernel
from skswsgp._neighbors.search import NeighborSearch
from skswsgp._solvers.model import JITTER, build_model

INITIAL_FRACTION = 0.1  # of the prior covariance, before training


def initial_covariance(attributes, full, dtype, n_jobs, options):
    """Return S of q(u) before training, a share of the prior.

    A full one is INITIAL_SHARE K, as its lower factor (M, M, Q). A diagonal one is that
    share of the variance of each u_j given its H nearest others, (M, Q): the prior
    variances themselves would be wide of the prior where inducing points lie close.
    """
    Z = attributes["inducing_points_"]
    M, n_latent = attributes["inducing_mean_"].shape
    if full:
        K = attributes["kernel_"](Z)
        jitter = JITTER * np.diag(K).mean()
        factor = np.sqrt(INITIAL_FRACTION) * dense_cholesky(K, jitter)
        return np.repeat(factor[:, :, None], n_latent, axis=2)
    start = attributes | {"inducing_covariance_": np.zeros((M, n_latent))}
    model, _ = build_model(start, ("gaussian", n_latent), dtype)
    variance = np.asarray(attributes["kernel_"].diag(Z), dtype=np.float64)
    H = min(attributes["n_neighbors_"], M - 1)
    if H > 0:
        variance = conditional_variance(model, H, n_jobs, options)
    floor = JITTER * np.asarray(attributes["kernel_"].diag(Z)).mean()
    tiny = np.finfo(dtype).tiny ** 0.5
    share = INITIAL_FRACTION * np.maximum(variance, max(floor, tiny))
    return np.repeat(share[:, None], n_latent, axis=1)


def conditional_variance(model, H, n_jobs, options):
    """Return the prior variance of each u_j given its H nearest others, (M,)."""
    engine = make_cpu_engine(model, H, max_threads(n_jobs, len(model.Z)))
    search = NeighborSearch(
        model.Z,
        kernel_of(model),
        n_neighbors=H + 1,
        n_threads=engine.n_threads,
        **options,
    )
    lists = search.query(model.Z).astype(np.int64)
    own = lists == np.arange(len(lists))[:, None]
    own[~own.any(axis=1), H] = True  # where a point is not its own neighbour
    others = lists[~own].reshape(len(lists), H).astype(np.int32)
    _, v = engine.predict(model.Z, others, with_variance=True)
    return v[:, 0].astype(np.float64)


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
    found = KernelFit(kernel, noise)
    if estimator.init == "local" and data.n_rows > 1:
        found = learn_start(estimator, data, likelihood, rng, natural, points, spread)
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


def learn_start(estimator, data, likelihood, rng, natural, points, spread):
    """Return the kernel and noise variances that the data teach, as `Found`.

    For few inducing points a part of the data teaches another, and other rows decide.
    """
    n_threads = max_threads(estimator.n_jobs, data.n_rows)
    search, dtype = learning_search(estimator.neighbor_search), estimator.dtype
    options = {"n_threads": n_threads, "dtype": dtype, "search": search}
    # "auto" leaves it to the CPU: some 10^5 points are too few, see `choose_device`.
    options["device"] = "cuda" if estimator.device == "cuda" else "cpu"
    kl, metric = prior_of(estimator.kl, natural), estimator.neighbor_metric
    prior = PriorSettings(kl, estimator.kl_weight, metric)
    D = data.X.shape[1]
    M = count_inducing(estimator.n_inducing, data.n_rows, D, natural)
    H = count_neighbors(estimator.n_neighbors, M, data.n_rows, natural)
    classes = likelihood[0] != "gaussian"
    free = natural and isinstance(points, str)
    few = free and has_few_points(M, data.n_rows, D)
    all_rows = free and M >= data.n_rows
    setting = likelihood, estimator._log_density, rng, options, prior

    def learn(data):
        """Return what is found, the best first."""
        noise = float(getattr(estimator, "noise_variance", 0.1))
        found = learn_kernels(
            data, estimator.kernel, likelihood, noise, rng,
            fit_all_noise=few and not classes,
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
    scaled = classes and has_few_points(M, data.n_rows, D, rows_a_point=1)
    if not few and not scaled:
        return candidates[0]
    judge = CandidateComparison(M, H, points, spread, data, *setting)
    if not judge.decisive:
        return unscaled
    part = learning_part(M, data, rng)
    if few and part.n_rows < data.n_rows:
        with suppress(FloatingPointError):  # of a kernel that is not needed
            candidates += learn(part)
    return judge.best_of(candidates)


def learn_kernels(data, kernel, likelihood, noise_variance, rng, **options):
    """Return kernels and noise learned on the nearest-neighbour likelihood, best first.

    `likelihood` is (name, number of latent functions), `options` are those of
    `learn_local`; kernel=None leaves the smoothness to the data.
    """
    name, n_latent = likelihood
    targets = data.y
    if name == "softmax":
        targets = (data.y == np.arange(n_latent)).astype(data.y.dtype)
        targets -= targets.mean(axis=0)
    return learn_kernel(
        data.X, targets, data.weight, kernel, noise_variance, rng=rng, rows=data.rows,
        **options,
    )  # fmt: skip
