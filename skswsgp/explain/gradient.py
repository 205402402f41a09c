"""Derivatives of the latent functions by the columns of X, and their relevance."""

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from skswsgp._compiled.linalg import require_finite
from skswsgp._compiled.threads import max_threads, one_blas_thread
from skswsgp._covariance import dot_product, stationary
from skswsgp._covariance.compile import inverse_lengths
from skswsgp._covariance.program import in_float64, kernel_of
from skswsgp._engine.cpu import CpuEngine
from skswsgp._kernel_search.marginal_likelihood import DIFFERENCE
from skswsgp._linear.projection import absolute_jitter
from skswsgp._rows.statistics import MEAN_ROWS
from skswsgp.explain.slopes import covariance_slopes

ROUGH = stationary.MATERN12, dot_product.ARC_COSINE0  # kernels of kinked functions


def slopes_and_variances(posterior, X, with_variance, by_columns=None):
    """Return the mean and the variance (or None) of slopes at rows of a table.

    They are those of the latent functions by the columns of X, each (n, Q, D).
    `by_columns(slopes)` returns slopes by other columns, of which X is a function.
    """
    if with_variance:
        require_derivative(posterior.model)
        factor = 1.0 if posterior.sites else posterior.variance_factor(X)
    rows, W = posterior.rows(X), posterior.linear_map
    slopes, lists = mean_slopes(posterior, rows)
    if by_columns is not None:
        slopes = by_columns(slopes)
    if not with_variance:
        return slopes, None
    covariances = slope_covariances(posterior, rows, lists)  # (n, Q, E, E)
    if by_columns is None:
        half = np.einsum("de,nqef->nqdf", W, covariances)
        variances = np.einsum("nqdf,df->nqd", half, W)
    else:
        half = np.swapaxes(by_columns(covariances @ W.T), 2, 3)  # (n, Q, D, E)
        variances = np.diagonal(by_columns(half @ W.T), axis1=2, axis2=3)
    variances = np.maximum(variances, 0.0)
    return slopes, np.broadcast_to(factor, slopes.shape[:2])[:, :, None] * variances


def mean_slopes(posterior, rows):
    """Return the slopes (n, Q, D) of the latent means, and the neighbours (n, H).

    They are those by the columns of X at `rows` (n, D'), which are mapped and centred.
    The neighbours of a row count as fixed.
    """
    model = posterior.model
    jitter = absolute_jitter(model, posterior.kernel)
    noise = np.full(model.m.shape[1], jitter, model.Z.dtype)
    # Kriging from points with noise of the jitter is the mean of q(f), k' K_w^-1 m_w
    model = model._replace(noise=noise, s=np.ones_like(model.m), full=False)
    n_threads = max_threads(posterior.n_jobs, len(rows))
    engine = CpuEngine(model, posterior.n_neighbors, n_threads)
    lists = engine.make_search(posterior.search_options).query(rows)
    if posterior.alpha is None:
        slopes = engine.kriging_slopes(rows, lists)
    else:
        kernel, Z = in_float64(kernel_of(model)), model.Z.astype(np.float64)
        slopes = covariance_slopes(kernel, rows, Z, posterior.alpha, n_threads)
    require_finite(slopes)
    return slopes @ posterior.linear_map.T, lists


def slope_covariances(posterior, X, lists):
    """Return the covariances (n, Q, D', D') of slopes by mapped, centred columns of X.

    With b_d = K_w^-1 dk/dx_d they are b_d' S_w b_e + d2k/dx_d dx'_e - b_d' dk/dx_e, in
    float64. Where near sites tell variances, their noise is in K_w, and S_w is zero.
    Derivatives of the kernel are difference quotients of points DIFFERENCE on either
    side, whose error is some 1e-6 from the square of this step, and 1e-10 from
    rounding.
    """
    model, kernel = posterior.model, posterior.kernel
    (n, D), Q = X.shape, model.m.shape[1]
    rate = inverse_lengths(kernel_of(model))
    # 0 in columns that do not matter
    h = DIFFERENCE / np.where(rate > 0.0, rate, np.inf)
    shifts = np.concatenate([np.diag(h), -np.diag(h)])
    sides = np.concatenate([np.diag(rate), -np.diag(rate)])  # (2 D, D)
    sides /= 2.0 * DIFFERENCE
    Z = model.Z.astype(np.float64)
    noise, known = np.full((len(Z), 1), absolute_jitter(model, kernel)), posterior.sites
    if known is not None:
        noise, lists = 1.0 / (known.factor * known.precision), lists[:, : known.n_near]
    out, factors, everywhere = np.empty((n, Q, D, D)), {}, lists.shape[1] == len(Z)
    with one_blas_thread():
        for i, w in enumerate(lists):
            if everywhere:  # in one order, so that K has one factor
                w = np.arange(len(Z))
            around, points = X[i] + shifts, Z[w]
            dk = kernel(points, around) @ sides  # (H, D)
            prior = sides.T @ kernel(around, around.copy()) @ sides
            for q in range(Q):
                if q < noise.shape[1]:
                    if q not in factors or not everywhere:
                        C = kernel(points) + np.diag(noise[w, q])
                        factors[q] = cho_factor(C, lower=True)
                    b = cho_solve(factors[q], dk)
                    rest = prior - dk.T @ b
                if known is not None:
                    root = 0.0 * b
                elif model.full:
                    root = model.L[q][w].T @ b
                else:
                    root = np.sqrt(model.s[w, q, None].astype(np.float64)) * b
                out[i, q] = rest + root.T @ root
    require_finite(out)
    return out


def slopes_at_points(posterior):
    """Return the slopes (n, Q, D) of the latent means at n of the inducing points."""
    Z, M = posterior.model.Z, len(posterior.model.Z)
    places = np.unique(np.linspace(0, M - 1, min(M, MEAN_ROWS)).astype(int))
    return mean_slopes(posterior, Z[places])[0]


def require_derivative(model):
    """Raise ValueError for a kernel whose functions have no derivative."""
    if np.isin(model.code, ROUGH).any():
        raise ValueError(
            "functions of Matern(nu=0.5) and ArcCosine(order=0) have no derivative, so "
            "its variance is infinite: expected another kernel, or return_std=False."
        )
