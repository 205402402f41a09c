"""The start of training: kernel, noise, inducing points and q(u).

learn_kernel=True learns kernel and noise from the evidence of some rows and from the
likelihood of rows given their nearest other rows, before there is any inducing point.
For Adam it is the latter only. Classes are coded as numbers for this.
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
from skswsgp._kernel_search import holdout, point_choice
from skswsgp._kernel_search.climb import SMOOTHNESS
from skswsgp._kernel_search.evidence import BOUND_WORK, maximize_bound
from skswsgp._kernel_search.kernel_choice import learn_kernel, smoothnesses
from skswsgp._kernel_search.kernel_learning import (
    KernelFit,
    LearningOptions,
    count_few_rows,
)
from skswsgp._kernel_search.site_refinement import learn_shape, refine_kernel
from skswsgp._linear.projection import mean_prior_variance
from skswsgp._rows.columns import mapped
from skswsgp._rows.inducing import given_points, initial_inducing_points
from skswsgp._rows.statistics import feature_spread
from skswsgp._solvers import auto
from skswsgp._solvers.model import JITTER, shape_covariance

INITIAL_FRACTION = 0.1  # variance of q(u) before Adam over the prior variance


def initial_attributes(settings, data, spread, rng):
    """Return the fitted attributes of the model before training.

    `spread` (D,) holds the standard deviations of the features.
    """
    D, dtype = data.X.shape[1], settings.dtype
    kernel = auto.default_kernel(spread) if settings.kernel is None else settings.kernel
    compile_kernel(kernel, D, dtype)  # raises an error before any work
    if not isinstance(settings.inducing_points, str):
        points = given_points(settings.inducing_points, D, settings.n_inducing)
        settings = settings._replace(inducing_points=points)
    fit = KernelFit(clone(kernel), settings.first_noise, shape=settings.first_shape)
    if settings.learn_kernel and data.n_rows > 1:
        fit = learn_start(settings, data, spread, rng)
        if not isinstance(settings.inducing_points, str):  # points of the user
            points = mapped(settings.inducing_points, fit.linear_map)
            settings = settings._replace(inducing_points=points)
        data = data.mapped(fit.linear_map)
        if fit.linear_map is not None:
            spread = feature_spread(data.X, rng, dtype=dtype)
        D = data.X.shape[1]
        spread = length_scales(fit.kernel, D, otherwise=spread)
    Z, H, fit = choose_points(fit, data, spread, settings, rng)
    start = {
        "kernel_": fit.kernel,
        "linear_map_": np.eye(D) if fit.linear_map is None else fit.linear_map,
        "inducing_points_": Z,
        "inducing_mean_": np.zeros((len(Z), settings.n_latent)),
        "n_neighbors_": H,
        "_jitter": JITTER,
    }
    record = settings.likelihood_record
    if record.usual_shape:
        start["likelihood_shape_"] = fit.shape
    if record.has_noise:
        start["noise_variance_"] = fit.noise
    else:
        start["variance_scale_"] = fit.variance_scale
        variance = mean_prior_variance(fit.kernel, Z)
        start["prior_mean_"] = settings.prior_mean(variance)
    full = auto.takes_full_covariance(settings, data.n_all, len(Z), H)
    return start | first_moments(start, fit, full, settings)


def choose_points(fit, data, spread, settings, rng):
    """Return the inducing points (M, D), H, and the `KernelFit` for them.

    The columns are scaled by their `spread` (D,).
    """
    Z, H, D = None, None, data.X.shape[1]
    if auto.allows_few_points(settings, data.n_all):
        Z, fit = point_choice.find_few_points(fit, data, settings)
    if Z is None:
        n_inducing, H = point_choice.count_near_points(fit, data, settings)
        method, tuning = settings.inducing_points, settings.tuning
        how = method, rng, spread, tuning, data.weight, data.rows
        Z = initial_inducing_points(data.X, n_inducing, *how)
    H = H or auto.count_neighbors(settings, data.n_all, len(Z), D)
    return Z, min(H, len(Z)), fit


def first_moments(start, fit, full, settings):
    """Return the attributes of q(u) before training, with a `full` S or a diagonal."""
    if fit.posterior is not None:  # of the solver that chose the kernel
        mean, S = fit.posterior(start["inducing_points_"])
        S = np.maximum(S, np.finfo(settings.dtype).eps)
        moments = {"inducing_mean_": mean, "inducing_covariance_": S}
        return shape_covariance(start | moments, full)
    finds_optimum = settings.solver.finds_optimum
    if finds_optimum and (settings.likelihood_record.conjugate or not full):
        S = fit.kernel.diag(start["inducing_points_"])  # any S will do
        S = np.maximum(S, np.finfo(settings.dtype).eps)
        S = np.repeat(S[:, None], settings.n_latent, axis=1)
    else:
        S = initial_covariance(start, full, settings)
    return {"inducing_covariance_": S}


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
        how = [H], settings, np.arange(M)
        variance = point_choice.left_by_near(kernel, Z, Z, *how)[0]
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
    M = auto.count_inducing(settings, data.n_all, D)
    H = auto.count_neighbors(settings, data.n_all, M, D)
    chosen = settings.solver.finds_optimum and isinstance(settings.inducing_points, str)
    few = chosen and holdout.has_few_points(M, data.n_all, D, settings.tuning)
    n_threads = max_threads(settings.n_jobs, data.n_rows)
    # "auto" is the CPU here: some 100,000 rows are too few for a GPU to pay off.
    device = "cuda" if settings.device == "cuda" else "cpu"
    record, known = settings.likelihood_record, settings.known_noise is not None
    how = n_threads, settings.dtype, device, settings.tuning, known, record.joint
    options = LearningOptions(*how)
    by = "evidence" if few else "both" if settings.solver.finds_optimum else "near"
    exact = auto.tries_exact_means(settings, data.n_all, M, D)
    n_neighbors = (M if exact else H) if chosen and record.has_noise else None
    learn = partial(
        learn_fit, settings=settings, options=options, rng=rng,
        n_neighbors=n_neighbors, by=by,
    )  # fmt: skip
    fit = learn(data)
    unscaled = fit._replace(variance_scale=1.0)
    if not chosen:
        return unscaled
    # Site refinement chose its scale with an inducing point at each row of a part.
    rescaled = not record.has_noise and holdout.has_few_points(
        M, data.n_all, D, settings.tuning, rows_per_point=1
    )
    if not few and not rescaled:
        return fit
    comparison = holdout.CandidateComparison(M, H, spread, data, settings, options, rng)
    if not comparison.decisive:
        return unscaled
    part, fits = holdout.learning_part(M, data, rng), [fit]
    if few and part.n_rows < data.n_rows:
        with suppress(FloatingPointError):  # the other candidate remains
            fits.append(learn(part))
    return comparison.best_of(fits)


def learn_fit(data, settings, options, rng, n_neighbors, by):
    """Return the `KernelFit` learned from some rows by their likelihood.

    Other arguments are those of `learn_kernel`.
    """
    record, solver = settings.likelihood_record, settings.solver
    refined = not record.has_noise and solver.finds_optimum
    targets = record.regression_targets(data.y, settings.n_latent)
    plain = solver.takes_steps or (n_neighbors is None and not refined)
    learn = partial(
        learn_kernel, kernel=settings.kernel, rng=rng, options=options,
        noise_variance=settings.first_noise, n_neighbors=n_neighbors,
        learn_map=False if refined else settings.learn_map, by=by,
        coded="common" if refined else None,
        smoothness=SMOOTHNESS[:-1] if plain or by == "evidence" else SMOOTHNESS,
    )  # fmt: skip
    rows = data._replace(y=targets)
    if record.has_noise and not record.conjugate:
        from skswsgp.noise import learn_robust_kernel

        return learn_robust_kernel(learn, rows, settings, options, rng)
    if refined:
        return refined_fit(partial(learn, rows), data, settings, options, rng)
    fit = learn(rows)._replace(shape=settings.first_shape)
    if settings.learns_shape and not record.has_noise:
        return fit._replace(shape=learn_shape(fit, data, settings, options, rng))
    return fit


def refined_fit(learn, data, settings, options, rng):
    """Return a `KernelFit` of coded labels or counts, refined on their likelihood.

    `learn` is `learn_kernel` for the coded ones. Both searches begin with common
    length-scales: few rows decide by the bound, and more by rows held out.
    """
    fit = learn()._replace(shape=settings.first_shape)
    how = data, settings, options, rng
    work = BOUND_WORK * settings.n_latent
    most = count_few_rows(data.X.shape[1], work, settings.tuning.part_work)
    # a map that is asked for needs no better kernel
    if settings.learn_map is not True and data.n_rows <= most:
        fits = smoothnesses(fit) if settings.kernel is None else ([fit], 0)
        return maximize_bound(*fits, most, *how)
    return refine_kernel(fit, partial(learn, coded="own"), *how)
