"""From fitted attributes to the model that compiled code reads, and what it says."""

import sys
from contextlib import closing

import numpy as np

from skswsgp._engine import CpuEngine, make_engine
from skswsgp._jit import max_threads
from skswsgp._likelihoods import make_likelihood
from skswsgp._neighbors import NeighborSearch
from skswsgp._program import compile_kernel, updated_kernel
from skswsgp._state import Batch, Model
from skswsgp._training import center_rows, kernel_of

# Relative to the mean of the diagonal of K. Adam moves each m_j on its own, and K^-1
# magnifies the roughness that this leaves: 1e-6 made fits of smooth functions diverge,
# 1e-3 changed no figure of the paper's experiments by more than the seed does.
JITTER = 1e-4
LEAST_JITTER = {"float64": 1e-10, "float32": 1e-4}
INITIAL_SHARE = 0.1  # of the prior covariance, before training
ROWS_AT_ONCE = 8192  # rows of a prediction that are copied together


def build_model(
    attributes, likelihood, dtype, kl_weight=1.0, train_inducing=False, total_weight=1.0
):
    """Return (Model, center of X) from fitted attributes.

    `likelihood` is (name, number of latent functions). X is centred for kernels that
    allow it. Without `jitter_` it is that of Adam.
    """
    name, n_latent = likelihood
    dtype = np.dtype(dtype)
    Z = np.asarray(attributes["inducing_points_"], dtype=np.float64)
    M = len(Z)
    compiled = compile_kernel(attributes["kernel_"], Z.shape[1], dtype)
    center = Z.mean(axis=0) if compiled.stationary else np.zeros(Z.shape[1])
    mean = np.array(attributes["inducing_mean_"], dtype=dtype).reshape(M, n_latent)
    covariance = np.asarray(attributes["inducing_covariance_"])
    full = covariance.ndim > np.ndim(attributes["inducing_mean_"])
    if full:
        factors = np.moveaxis(covariance.reshape(M, M, n_latent), -1, 0)
        L, s = np.array(factors, dtype, order="C"), np.zeros((0, n_latent), dtype)
    else:
        L, s = np.zeros((0, M, M), dtype), np.array(covariance, dtype)
        s = s.reshape(M, n_latent)
    noise = np.atleast_1d(attributes.get("noise_variance_", np.zeros(0)))
    model = Model(
        *compiled.struct,
        *make_likelihood(name, n_latent, dtype),
        np.ascontiguousarray(Z - center, dtype=dtype),
        mean,
        s,
        L,
        noise.astype(dtype),
        float(attributes.get("jitter_", JITTER)),
        float(total_weight),
        float(kl_weight),
        full,
        bool(train_inducing),
    )
    return model, center


def natural_jitter(kernel, Z, noise, dtype):
    """Return the relative jitter for a system that is solved, not stepped through.

    A tenth of the noise, so that it does not stand in for noise where data have none,
    and no more than Adam's, which keeps the system well conditioned.
    """
    variance = np.mean(kernel.diag(Z), dtype=np.float64)
    ratio = 0.1 * np.min(noise) / variance if variance > 0.0 else JITTER
    return float(np.clip(ratio, LEAST_JITTER[dtype], JITTER))


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
        factor = np.sqrt(INITIAL_SHARE) * cholesky(K, jitter)
        return np.repeat(factor[:, :, None], n_latent, axis=2)
    start = attributes | {"inducing_covariance_": np.zeros((M, n_latent))}
    model, _ = build_model(start, ("gaussian", n_latent), dtype)
    variance = np.asarray(attributes["kernel_"].diag(Z), dtype=np.float64)
    H = min(attributes["n_neighbors_"], M - 1)
    if H > 0:
        variance = conditional_variance(model, H, n_jobs, options)
    floor = JITTER * np.asarray(attributes["kernel_"].diag(Z)).mean()
    tiny = np.finfo(dtype).tiny ** 0.5
    share = INITIAL_SHARE * np.maximum(variance, max(floor, tiny))
    return np.repeat(share[:, None], n_latent, axis=1)


def conditional_variance(model, H, n_jobs, options):
    """Return the prior variance of each u_j given its H nearest others, (M,)."""
    engine = CpuEngine(model, H, max_threads(n_jobs, len(model.Z)))
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


def cholesky(K, jitter):
    """Return the lower factor of K + jitter I, with ten times more until it exists."""
    jitter = max(jitter, np.finfo(K.dtype).tiny ** 0.5)
    require_finite(K)
    limit = max(1.0, jitter, np.diag(K).max())
    while jitter <= limit:
        try:
            return np.linalg.cholesky(K + jitter * np.eye(len(K)))
        except np.linalg.LinAlgError:
            jitter *= 10.0
    require_finite(np.nan)


def model_attributes(model, center, kernel):
    """Return the fitted attributes of a model whose kernel object is `kernel`."""
    covariance = model.s
    if model.full:
        signs = np.sign(np.einsum("qii->qi", model.L))
        covariance = np.moveaxis(np.tril(model.L) * signs[:, None, :], 0, -1)
    attributes = {
        "kernel_": updated_kernel(kernel, model.params),
        "inducing_points_": model.Z + center,
        "inducing_mean_": model.m.copy(),
        "inducing_covariance_": covariance.copy(),
    }
    if len(model.noise):
        attributes["noise_variance_"] = model.noise.copy()
    return squeeze_outputs(attributes)


def shape_covariance(attributes, full):
    """Return the attributes with S as a lower factor if `full`, else its diagonal."""
    S = np.asarray(attributes["inducing_covariance_"])
    if (S.ndim > np.ndim(attributes["inducing_mean_"])) == full:
        return attributes
    if full:
        S = np.einsum("ij,j...->ij...", np.eye(len(S)), np.sqrt(S))
    else:
        S = np.sum(S**2, axis=1)
    return attributes | {"inducing_covariance_": S}


def squeeze_outputs(attributes):
    """Drop the axis of latent functions where there is only one."""
    if attributes["inducing_mean_"].shape[-1] > 1:
        return attributes
    single = {
        name: attributes[name][..., 0]
        for name in ("inducing_mean_", "inducing_covariance_")
    }
    if "noise_variance_" in attributes:
        single["noise_variance_"] = float(attributes["noise_variance_"][0])
    return attributes | single


def make_search(engine, options):
    """Return a function from rows of centred X to their lists of neighbours."""
    if engine.shared:
        return lambda X: np.empty((len(X), 0), dtype=np.int32)
    return NeighborSearch(
        engine.model.Z,
        kernel_of(engine.model),
        n_neighbors=engine.n_active,
        n_threads=engine.n_threads,
        make_scan=engine.make_scan,
        **options,
    ).query


def latent_posterior(model, center, X, H, with_variance, n_jobs, options, device="cpu"):
    """Return mean and variance (or None), each (n, Q), of q(f) at rows of X."""
    means, variances = [], []
    n_threads = max_threads(n_jobs, len(X))
    with closing(make_engine(device, model, H, n_threads, len(X))) as engine:
        search = make_search(engine, options)
        for first in range(0, len(X), ROWS_AT_ONCE):
            rows = X[first : first + ROWS_AT_ONCE]
            block = center_rows(rows, center, model.Z.dtype)
            mu, v = engine.predict(block, search(block), with_variance)
            means.append(mu)
            variances.append(v)
    mu = np.concatenate(means)
    require_finite(mu)
    if not with_variance:
        return mu, None
    v = np.concatenate(variances)
    require_finite(v)
    return mu, v


def bound_of(model, data, H, n_jobs, options, device="cpu"):
    """Return eq. 11, a sum over the rows of the data in nats."""
    total, mass = 0.0, data.weight.sum(dtype=np.float64)
    n_threads = max_threads(n_jobs, data.n_rows)
    with closing(make_engine(device, model, H, n_threads, data.n_rows)) as engine:
        search = make_search(engine, options)
        for index in index_blocks(data.n_rows):
            X, y, weight = data.block(index)
            ell, kl = engine.bound(Batch(X, y, weight, search(X)))
            total += float(np.sum(weight * (ell - kl / mass), dtype=np.float64))
    require_finite(total)
    return total


def mean_log_density(engine, data, neighbors, log_density):
    """Return the weighted mean of log_density(mu, v, y) over the rows of the data.

    `neighbors` keeps the lists of these rows for the engine's model, which is training.
    """
    total = 0.0
    for index in index_blocks(data.n_rows):
        X, y, weight = data.block(index)
        mu, v = engine.predict(X, neighbors.lookup(index, X), with_variance=True)
        require_finite(mu)
        require_finite(v)
        total += np.sum(weight * log_density(mu, v, y), dtype=np.float64)
    return float(total / data.weight.sum(dtype=np.float64))


def mean_variance(kernel, Z):
    """Return the mean prior variance of rows of Z, the unit of jitter; 1 for zero."""
    mean = float(np.mean(kernel.diag(Z), dtype=np.float64))
    require_finite(mean)
    return mean if mean > 0.0 else 1.0


def index_blocks(n_rows, size=None):
    """Return the indices of at most `size` rows after the other, or ROWS_AT_ONCE."""
    size = ROWS_AT_ONCE if size is None else min(size, ROWS_AT_ONCE)
    for first in range(0, n_rows, size):
        yield np.arange(first, min(first + size, n_rows))


def require_finite(values):
    """Raise if a covariance matrix could not be factorised."""
    if not np.all(np.isfinite(values)):
        raise FloatingPointError(
            "a covariance matrix of inducing points could not be factorised: expected "
            "finite kernel parameters and inducing points; check kernel_ and "
            "inducing_points_, or fit again with tighter bounds on the kernel."
        )


def callers_level():
    """Return the stacklevel at which a warning names the line of the user."""
    level, frame = 1, sys._getframe(1)
    inside = ("skswsgp.", "sklearn.", "contextlib")
    while frame is not None and frame.f_globals.get("__name__", "").startswith(inside):
        level, frame = level + 1, frame.f_back
    return level
