"""Joint predictions: covariances of the latent functions, and draws of functions.

With the rows a_i = K_w^-1 k_i of A, each from the H neighbours w of its row (eq. 13),
the latent function at rows X is

    f = A (m + u) + r,   u ~ N(0, S),   r = g(X) - A g(Z),   g ~ GP(0, k),

where g(Z) takes noise of the variance of the jitter. So the law of one row is that of
eq. 13, and rows are joined by S and by the prior of what the inducing values leave. A
draw is a function that can be evaluated anywhere (pathwise conditioning: Wilson et al.,
ICML 2020), and g is made of random features of the kernel.
"""

import numpy as np
from scipy.sparse import csr_matrix, vstack

from skswsgp._compiled.linalg import require_finite
from skswsgp._compiled.threads import index_blocks, row_blocks
from skswsgp._covariance.program import kernel_of
from skswsgp._covariance.random_features import random_features, require_features
from skswsgp._linear.projection import mean_prior_variance

POINTS_AT_ONCE = 512  # columns of covariances that are held at a time
N_FEATURES = 1024  # random features of a draw, as correlations within 1 / sqrt(1024)
FEATURES_AT_ONCE = 64  # columns of a product with A


def covariance_factor(model):
    """Return a function that multiplies columns e by L_q, S_q = L_q L_q', and columns.

    The columns (c,) are those of L, which is lower, or diagonal, or from draws.
    """
    if model.full:
        return lambda q, e: model.L[q].astype(np.float64) @ e, model.L.shape[2]
    deviation = np.sqrt(model.s.astype(np.float64))
    return lambda q, e: deviation[:, [q]] * e, len(deviation)


def latent_covariance(rows):
    """Return the covariances (n, n, Q) of the latent functions at rows.

    They are A S A' + K_** - A K_Z* - K_*Z A' + A (K_ZZ + jitter I) A', for `rows` the
    `Projection` of n rows.
    """
    model, kernel, n = rows.engine.model, rows.kernel, rows.shape[0]
    X = rows.data.block(np.arange(n))[0].astype(np.float64)
    A = vstack([rows_as_csr(rows, block) for block in row_blocks(n)]).tocsc()
    used = np.flatnonzero(np.diff(A.indptr))  # inducing points of some row
    A, Z = A[:, used], model.Z[used].astype(np.float64)
    jitter = model.jitter * mean_prior_variance(kernel, model.Z.astype(np.float64))
    rest = kernel(X) + jitter * (A @ A.T).toarray()
    for block in row_blocks(n, POINTS_AT_ONCE):
        cross = A @ kernel(Z, X[block])
        rest[:, block] -= cross
        rest[block] -= cross.T
    for block in row_blocks(len(used), POINTS_AT_ONCE):
        rest += (A[:, block] @ (A @ kernel(Z, Z[block])).T).T
    covariances = []
    for q in range(model.m.shape[1]):
        if model.full:
            root = A @ model.L[q][used].astype(np.float64)
            known = root @ root.T
        else:
            root = A.multiply(np.sqrt(model.s[used, q].astype(np.float64)))
            known = (root @ root.T).toarray()
        covariances.append(rest + known)
    out = np.stack(covariances, axis=2)
    require_finite(out)
    return 0.5 * (out + out.transpose(1, 0, 2))


def rows_as_csr(rows, block):
    """Return rows of A as a sparse matrix of SciPy."""
    part, _ = rows.compute_rows(np.arange(block.start, block.stop))
    if hasattr(part, "A"):
        return csr_matrix(part.A)
    n, H = part.lists.shape
    places = part.lists.ravel(), np.arange(0, n * H + 1, H)
    return csr_matrix((part.weights.ravel(), *places), shape=(n, rows.shape[1]))


def sample_functions(rows, n_samples, rng):
    """Return deviations from the mean (n, Q, n_samples) of draws of functions at rows.

    `rows` is the `Projection` of n rows. What `rng` draws does not depend on the rows.
    """
    model, n = rows.engine.model, rows.shape[0]
    Q = model.m.shape[1]
    require_features(kernel_of(model))
    Z = model.Z.astype(np.float64)
    times_factor, n_columns = covariance_factor(model)
    e = rng.standard_normal((Q, n_columns, n_samples))
    u = np.concatenate([times_factor(q, e[q]) for q in range(Q)], axis=1)
    known = rows.matvec(u)
    # The features give the correlations of r, and F (n,) its variances.
    rest, square = np.zeros((n, Q * n_samples)), np.zeros((n, 1))
    for _ in range(0, N_FEATURES, FEATURES_AT_ONCE):
        seed = rng.randint(2**31 - 1)
        at_points = features_at(model, Z, seed)
        part = features_of_rows(rows, seed) - rows.matvec(at_points)
        square += np.sum(part**2, axis=1, keepdims=True)
        rest += part @ rng.standard_normal((FEATURES_AT_ONCE, Q * n_samples))
    rest *= np.sqrt(rows.F[:, None] / np.maximum(square, np.finfo(float).tiny))
    out = known + rest
    require_finite(out)
    return out.reshape(n, Q, n_samples)


def features_at(model, X, seed):
    """Return FEATURES_AT_ONCE random features of the kernel at rows of X."""
    rng = np.random.RandomState(seed)
    return random_features(kernel_of(model), X, FEATURES_AT_ONCE, rng)


def features_of_rows(rows, seed):
    """Return `features_at` the rows of a `Projection`, block by block."""
    blocks = (rows.data.block(index)[0] for index in index_blocks(rows.shape[0]))
    return np.concatenate([features_at(rows.engine.model, X, seed) for X in blocks])
