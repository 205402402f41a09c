"""Derivatives of the latent functions by the columns of X."""

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from skswsgp._compiled.linalg import require_finite
from skswsgp._compiled.threads import max_threads, one_blas_thread
from skswsgp._covariance import dot_product, stationary
from skswsgp._covariance.compile import inverse_lengths
from skswsgp._covariance.program import kernel_of
from skswsgp._engine.cpu import CpuEngine
from skswsgp._linear.projection import absolute_jitter
from skswsgp._posterior.prediction import exact_products

# Half the distance of the points of a difference quotient, in length-scales. Its error
# is some 1e-6 from the square of the step, and 1e-10 from rounding.
STEP = 1e-3
ROUGH = stationary.MATERN12, dot_product.ARC_COSINE0  # kernels of kinked functions


def mean_slopes(model, kernel, X, n_neighbors, evaluation, alpha=None):
    """Return the derivatives of the latent means by X (n, Q, D), and the neighbours.

    X (n, D) is mapped and centred. The neighbours (n, H) of a row count as fixed. With
    `alpha` (M, Q) the means are exact, see `ExactMean`.
    """
    jitter = absolute_jitter(model, kernel)
    noise = np.full(model.m.shape[1], jitter, model.Z.dtype)
    # Kriging from points with noise of the jitter is the mean of q(f), k' K_w^-1 m_w
    model = model._replace(noise=noise, s=np.ones_like(model.m), full=False)
    n_threads = max_threads(evaluation.n_jobs, len(X))
    engine = CpuEngine(model, n_neighbors, n_threads)
    lists = engine.make_search(evaluation.search_options).query(X)
    if alpha is None:
        slopes = engine.kriging_slopes(X, lists)
    else:
        slopes = exact_products(engine).slopes(X, alpha)
    require_finite(slopes)
    return slopes, lists


def slope_covariances(model, kernel, X, lists):
    """Return the covariances (n, Q, D, D) of the derivatives of the latent functions.

    With b_d = K_w^-1 dk/dx_d they are b_d' S_w b_e + d2k/dx_d dx'_e - b_d' dk/dx_e, in
    float64. Derivatives of the kernel are difference quotients.
    """
    (n, D), Q = X.shape, model.m.shape[1]
    rate = inverse_lengths(kernel_of(model))
    h = STEP / np.where(rate > 0.0, rate, np.inf)  # 0 in columns that do not matter
    shifts = np.concatenate([np.diag(h), -np.diag(h)])
    sides = np.concatenate([np.diag(rate), -np.diag(rate)]) / (2.0 * STEP)  # (2 D, D)
    Z = model.Z.astype(np.float64)
    jitter = absolute_jitter(model, kernel)
    out = np.empty((n, Q, D, D))
    with one_blas_thread():
        factor = None
        for i, w in enumerate(lists):
            if lists.shape[1] == len(Z):  # in one order, so that K has one factor
                w = np.arange(len(Z))
            around, points = X[i] + shifts, Z[w]
            if factor is None or lists.shape[1] < len(Z):
                C = kernel(points) + jitter * np.eye(len(w))
                factor = cho_factor(C, lower=True)
            dk = kernel(points, around) @ sides  # (H, D)
            b = cho_solve(factor, dk)
            rest = sides.T @ kernel(around, around.copy()) @ sides - dk.T @ b
            for q in range(Q):
                root = model.L[q][w].T @ b if model.full else b * root_of(model, w, q)
                out[i, q] = rest + root.T @ root
    require_finite(out)
    return out


def root_of(model, w, q):
    """Return the deviations (H, 1) of inducing values w for a diagonal S."""
    return np.sqrt(model.s[w, q].astype(np.float64))[:, None]


def require_derivative(model):
    """Raise ValueError for a kernel whose functions have no derivative."""
    if np.isin(model.code, ROUGH).any():
        raise ValueError(
            "functions of Matern(nu=0.5) and ArcCosine(order=0) have no derivative, so "
            "its variance is infinite: expected another kernel, or return_std=False."
        )
