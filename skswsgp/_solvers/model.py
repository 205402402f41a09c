"""From fitted attributes to the `Model` that compiled code reads, and back."""

import numpy as np

from skswsgp._covariance.compile import compile_kernel, updated_kernel
from skswsgp._point.likelihood_records import make_likelihood
from skswsgp._point.state import Model

# Jitter of Adam, relative to the mean of the diagonal of K. Adam moves each m_j on its
# own, and K^-1 magnifies the roughness that this leaves: 1e-6 made fits of smooth
# functions diverge, 1e-3 changed the paper's experiments by less than the seed does.
JITTER = 1e-4


def build_model(
    attributes, likelihood, dtype, kl_weight=1.0, train_inducing=False, total_weight=1.0
):
    """Return (Model, center of X) from fitted attributes.

    `likelihood` is (name, number of latent functions). X is centred for stationary
    kernels. Attributes without `_jitter` get JITTER. A factor of S may have fewer
    columns than rows, for predictions only.
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
        factors = np.moveaxis(covariance.reshape(M, -1, n_latent), -1, 0)
        L, s = np.array(factors, dtype, order="C"), np.zeros((0, n_latent), dtype)
    else:
        L, s = np.zeros((0, M, M), dtype), np.array(covariance, dtype)
        s = s.reshape(M, n_latent)
    noise = np.atleast_1d(attributes.get("noise_variance_", np.zeros(0)))
    prior_mean = attributes.get("prior_mean_", 0.0)
    shape = attributes.get("likelihood_shape_", 0.0)
    likelihood = make_likelihood(name, n_latent, dtype, prior_mean, shape)
    points = np.ascontiguousarray(Z - center, dtype=dtype)
    jitter = attributes.get("_jitter", JITTER)
    numbers = map(float, (jitter, total_weight, kl_weight))
    variational = points, mean, s, L, noise.astype(dtype), *numbers
    flags = full, bool(train_inducing)
    return Model(*compiled.struct, *likelihood, *variational, *flags), center


def model_attributes(model, center, kernel):
    """Return the fitted attributes of a model whose kernel object is `kernel`."""
    covariance = model.s
    if model.full:
        signs = np.sign(np.einsum("qii->qi", model.L))
        covariance = np.moveaxis(np.tril(model.L) * signs[:, None, :], 0, -1)
    # The axis of latent functions is left out where there is only one.
    part = 0 if model.m.shape[1] == 1 else slice(None)
    attributes = {
        "kernel_": updated_kernel(kernel, model.params),
        "inducing_points_": model.Z + center,
        "inducing_mean_": model.m[..., part].copy(),
        "inducing_covariance_": covariance[..., part].copy(),
    }
    if len(model.noise):
        noise = np.array(model.noise[part])
        attributes["noise_variance_"] = noise if noise.ndim else float(noise)
    return attributes


def with_factor(attributes, factor):
    """Return the attributes with S = U U' for U (M, k, Q), or with S as it is."""
    if factor is None:
        return attributes
    if np.ndim(attributes["inducing_mean_"]) == 1:
        factor = factor[:, :, 0]
    return attributes | {"inducing_covariance_": factor}


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
