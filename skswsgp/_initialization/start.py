"""The start of training: kernel, noise, inducing points and q(u).

init="local" learns kernel and noise from the likelihood of rows given their nearest
other rows, before there is any inducing point. Classes are coded as numbers for this.
The natural solver does not train the kernel. For it, the kernel of a classifier is then
refined on the likelihood of the labels, and if inducing points are few, held-out rows
choose between candidate kernels.
"""

from contextlib import suppress
from functools import partial

import numpy as np
from sklearn.base import clone

from skswsgp._compiled.linalg import numpy_cholesky
from skswsgp._compiled.threads import max_threads
from skswsgp._covariance.compile import compile_kernel, length_scales
from skswsgp._engine.select import make_cpu_engine
from skswsgp._initialization.auto import (
    count_inducing,
    count_neighbors,
    default_kernel,
    takes_full_covariance,
)
from skswsgp._initialization.evidence import BOUND_WORK, maximize_bound
from skswsgp._initialization.holdout import (
    CandidateComparison,
    has_few_points,
    learning_part,
)
from skswsgp._initialization.inducing import given_points, initial_inducing_points
from skswsgp._initialization.kernel_choice import (
    learn_kernel,
    smoothnesses,
    with_shared_scales,
)
from skswsgp._initialization.kernel_learning import (
    KernelFit,
    LearningOptions,
    count_few_rows,
    learning_search,
)
from skswsgp._initialization.robust_start import learn_robust_kernel
from skswsgp._initialization.site_refinement import (
    learn_shape,
    refine_kernel,
    refine_map,
)
from skswsgp._initialization.statistics import feature_spread
from skswsgp._linear.columns import mapped
from skswsgp._linear.projection import mean_prior_variance
from skswsgp._neighbors.lists import without_own
from skswsgp._solvers.model import JITTER, build_model, shape_covariance

# A kernel learned from the bound of a part of the rows is tried while all rows are at
# most so many times the part.
MOST_TO_FEW = 2
INITIAL_FRACTION = 0.1  # variance of q(u) before Adam over the prior variance


def initial_attributes(settings, data, spread, rng):
    """Return the fitted attributes of the model before training.

    `spread` (D,) holds the standard deviations of the features.
    """
    D, dtype = data.X.shape[1], settings.dtype
    kernel = default_kernel(spread) if settings.kernel is None else settings.kernel
    compile_kernel(kernel, D, dtype)  # raises an error before any work
    if not isinstance(settings.inducing_points, str):
        points = given_points(settings.inducing_points, D, settings.n_inducing)
        settings = settings._replace(inducing_points=points)
    fit = KernelFit(clone(kernel), settings.first_noise, shape=settings.first_shape)
    if settings.init == "local" and data.n_rows > 1:
        fit = learn_start(settings, data, spread, rng)
        settings = settings._replace(inducing_points=mapped_points(settings, fit))
        data = data.mapped(fit.metric)
        if fit.metric is not None:
            spread = feature_spread(data.X, rng, dtype=dtype)
        D = data.X.shape[1]
        spread = length_scales(fit.kernel, D, otherwise=spread)
    Z = initial_inducing_points(
        data.X,
        count_inducing(settings, data.n_rows, D),
        settings.inducing_points,
        rng,
        spread,
        settings.tuning,
        data.weight_in_X(),
    )
    M = len(Z)
    H = count_neighbors(settings, data.n_rows, M, D)
    start = {
        "kernel_": fit.kernel,
        "metric_": np.eye(D) if fit.metric is None else fit.metric,
        "inducing_points_": Z,
        "inducing_mean_": np.zeros((M, settings.n_latent)),
        "n_inducing_": M,
        "n_neighbors_": H,
        "jitter_": JITTER,
    }
    record, solver = settings.likelihood_record, settings.solver
    full = takes_full_covariance(settings, data.n_rows, M, H)
    if record.usual_shape:
        start["likelihood_shape_"] = fit.shape
    if record.has_noise:
        start["noise_variance_"] = fit.noise
    else:
        start["variance_scale_"] = fit.variance_scale
        variance = mean_prior_variance(fit.kernel, Z)
        start["prior_mean_"] = settings.prior_mean(variance)
    if fit.posterior is not None:  # of the solver that chose the kernel
        mean, S = fit.posterior(Z)
        S = np.maximum(S, np.finfo(dtype).eps)
        moments = {"inducing_mean_": mean, "inducing_covariance_": S}
        return shape_covariance(start | moments, full)
    if solver.finds_optimum and (record.conjugate or not full):
        S = prior_variances(fit.kernel, Z, settings.n_latent, dtype)  # any S will do
    else:
        S = initial_covariance(start, full, settings)
    return start | {"inducing_covariance_": S}


def mapped_points(settings, fit):
    """Return the parameter `inducing_points`, points of the user mapped by a fit."""
    points = settings.inducing_points
    return points if isinstance(points, str) else mapped(points, fit.metric)


def prior_variances(kernel, Z, n_latent, dtype):
    """Return the prior variances of u, positive, for each latent function (M, Q)."""
    variance = np.asarray(kernel.diag(Z), dtype=np.float64)
    variance = np.maximum(variance, np.finfo(dtype).eps)
    return np.repeat(variance[:, None], n_latent, axis=1)


def initial_covariance(attributes, full, settings):
    """Return S of q(u) before training, a fraction of the prior covariance.

    A full S is INITIAL_FRACTION K, returned as its lower factor (M, M, Q). A diagonal S
    (M, Q) is that fraction of the variance of each u_j given its H nearest others: the
    prior variances themselves would be too large where inducing points lie close.
    """
    Z, kernel = attributes["inducing_points_"], attributes["kernel_"]
    M, n_latent = attributes["inducing_mean_"].shape
    if full:
        K = kernel(Z)
        jitter = JITTER * np.diag(K).mean()
        factor = np.sqrt(INITIAL_FRACTION) * numpy_cholesky(K, jitter)
        return np.repeat(factor[:, :, None], n_latent, axis=2)
    variance = np.asarray(kernel.diag(Z), dtype=np.float64)
    floor = JITTER * np.asarray(kernel.diag(Z)).mean()
    H = min(attributes["n_neighbors_"], M - 1)
    if H > 0:
        start = attributes | {"inducing_covariance_": np.zeros((M, n_latent))}
        model, _ = build_model(start, ("gaussian", n_latent), settings.dtype)
        engine = make_cpu_engine(model, H, max_threads(settings.n_jobs, M))
        search = engine.make_search(settings.search_options | {"n_neighbors": H + 1})
        others = without_own(search.query(model.Z), np.arange(M))
        _, v = engine.predict(model.Z, others, with_variance=True)
        variance = v[:, 0].astype(np.float64)
    tiny = np.finfo(settings.dtype).tiny ** 0.5
    variance = INITIAL_FRACTION * np.maximum(variance, max(floor, tiny))
    return np.repeat(variance[:, None], n_latent, axis=1)


def learn_start(settings, data, spread, rng):
    """Return the `KernelFit` learned from the data.

    If inducing points are few for the number of rows, a second kernel is learned from a
    part of the rows, whose neighbours are further away, and held-out rows choose. The
    variance scale of a classifier is chosen for the number of inducing points.
    """
    D = data.X.shape[1]
    M = count_inducing(settings, data.n_rows, D)
    H = count_neighbors(settings, data.n_rows, M, D)
    chosen = settings.solver.finds_optimum and isinstance(settings.inducing_points, str)
    sizes = M, data.n_rows, D, settings.tuning
    few = chosen and has_few_points(*sizes)
    n_threads = max_threads(settings.n_jobs, data.n_rows)
    # "auto" is the CPU here: some 100,000 rows are too few for a GPU to pay off.
    device = "cuda" if settings.device == "cuda" else "cpu"
    search = learning_search(settings.neighbor_search), device
    known = settings.known_noise is not None
    how = n_threads, settings.dtype, *search, settings.tuning, known
    options = LearningOptions(*how)
    record = settings.likelihood_record
    # If predictions know as much as the H nearest rows, the last steps of learning use
    # as many.
    nearest = record.has_noise and settings.neighbor_metric == "kernel"
    n_neighbors = H if chosen and not few and nearest else None
    learning = settings, options, rng, n_neighbors, few
    fits = learn_candidates(data, *learning)
    unscaled = fits[0]._replace(variance_scale=1.0)
    if not chosen:
        return unscaled
    # Site refinement chose its scale with an inducing point at each row of a part.
    rescaled = not record.has_noise and has_few_points(*sizes, rows_per_point=1)
    if not few and not rescaled:
        return fits[0]
    comparison = CandidateComparison(M, H, spread, data, settings, options, rng)
    if not comparison.decisive:
        return unscaled
    part = learning_part(M, data, rng)
    if few and part.n_rows < data.n_rows:
        with suppress(FloatingPointError):  # other candidates remain
            fits += learn_candidates(part, *learning)
    return comparison.best_of(fits)


def learn_candidates(data, settings, options, rng, n_neighbors, few):
    """Return each `KernelFit` learned from some rows, the best first.

    The smoothness is learned as well if the user gives no kernel.
    """
    record = settings.likelihood_record
    targets = record.regression_targets(data.y, settings.n_latent)
    refined = not record.has_noise and settings.solver.finds_optimum
    learn = partial(
        learn_kernel, kernel=settings.kernel, rng=rng, options=options,
        noise_variance=settings.first_noise, n_neighbors=n_neighbors,
        fit_all_noise=few and record.has_noise, exact=record.has_noise,
        metric="ard" if refined else settings.metric,
    )  # fmt: skip
    rows = data._replace(y=targets)
    if record.has_noise and not record.conjugate:
        fits = learn_robust_kernel(learn, rows, settings, options, rng)
    else:
        fits = [one._replace(shape=settings.first_shape) for one in learn(rows)]
    if not refined:
        if settings.learns_shape and not record.has_noise:
            shape = learn_shape(fits[0], data, settings, options, rng)
            fits = [one._replace(shape=shape) for one in fits]
        mapped_fits = [fit for fit in fits if fit.metric is not None]
        return mapped_fits if mapped_fits and settings.metric == "full" else fits
    # other priors allow no full S, and a map that is asked for needs no better kernel
    if settings.kl == "vecchia" and settings.metric != "full":
        n_latent, tuning = settings.n_latent, settings.tuning
        most = count_few_rows(data.X.shape[1], BOUND_WORK * n_latent, tuning)
        if data.n_rows <= MOST_TO_FEW * most:
            labels = with_shared_scales(fits)
            starts = smoothnesses(labels) if settings.kernel is None else ([labels], 0)
            first = maximize_bound(*starts, most, data, settings, options, rng)
            if data.n_rows <= most:
                return [refine_map(first, labels, data, settings, options, rng)]
            fits = [first, *fits]
    return [refine_kernel(fits, data, settings, options, rng)]
