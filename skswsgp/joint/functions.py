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
from scipy.sparse import csr_matrix, issparse, vstack

from skswsgp._compiled.linalg import require_finite
from skswsgp._compiled.threads import ROWS_AT_ONCE, index_blocks, row_blocks
from skswsgp._covariance.program import kernel_of
from skswsgp._linear.all_points import ROWS_IN_CACHE
from skswsgp._linear.projection import absolute_jitter
from skswsgp._rows.data import TrainingRows, memory_budget
from skswsgp._rows.statistics import LARGEST_SEED
from skswsgp._rows.support import at_known_levels
from skswsgp._solvers.natural import NaturalSolver, factor_of_inverse
from skswsgp._solvers.rows import RowsInMemory
from skswsgp.joint import posterior_draws
from skswsgp.joint.random_features import random_features, require_features

N_FEATURES = 1024  # random features of a draw, as correlations within 1 / sqrt(1024)
# Draws that share features: the error of correlations that the features make, up to 0.3
# among dense rows, is then about that of the number of draws, for any number
DRAWS_AT_ONCE = 16
FEATURES_AT_ONCE = 64  # columns of a product with A


def draw_functions(posterior, X, n_samples, rng):
    """Return means (n, Q) and deviations from them (n, Q, n_samples) at rows of X.

    In a draw, all rows of new levels are at the same known one, whose distance from the
    mean over levels is made as large as that of a level that is not known.
    """
    draws = FunctionDraws(posterior.model, n_samples, rng)
    new = at_known_levels(X, posterior.categories)
    if new is None:
        return draw_at_known_levels(posterior, X, draws)
    # Features at inducing points are found once for the rows at all levels
    rows = np.concatenate([X, *new.versions])
    ends = len(X) + len(new.rows) * np.arange(len(new.versions))
    both = draw_at_known_levels(posterior, rows, draws)
    (mean, *means), (deviation, *found) = (np.split(part, ends) for part in both)
    root, share = np.sqrt(new.factor), np.sqrt(new.shares(means))[:, :, None]
    for j, (center, values) in enumerate(zip(means, found, strict=True)):
        own = slice(j, None, len(found))
        values += (root * (center - np.mean(means, axis=0)))[:, :, None]
        kept = np.sqrt(1.0 - share**2) * deviation[new.rows, :, own]
        deviation[new.rows, :, own] = share * values[:, :, own] + kept
    new.put(mean, None, [(center, None) for center in means])
    return mean, deviation


def draw_at_known_levels(posterior, X, draws):
    """Return `draw_functions` of `FunctionDraws` for rows of known levels."""
    means, deviations, model = [], [], posterior.model
    with posterior.projector(memory_budget()) as project:
        # Features at inducing points cost as much as those at so many rows
        for block in row_blocks(len(X), max(ROWS_AT_ONCE, len(model.Z))):
            rows = project(X[block])
            means.append(rows.matvec(model.m.astype(np.float64)))
            deviations.append(draws.at(rows))
    mean, deviation = np.concatenate(means), np.concatenate(deviations)
    if posterior.alpha is not None:
        mean = posterior.exact_mean(X)
    root = np.sqrt(posterior.variance_factor(X))
    deviation *= np.broadcast_to(root, mean.shape)[:, :, None]
    return mean, deviation


def latent_covariance(posterior, X):
    """Return the covariances (n, n, Q) of the latent functions at rows of X.

    For rows of new levels they are the mean over known levels, at one for all of them,
    and what the means of these go together by.
    """
    new = at_known_levels(X, posterior.categories)
    if new is None:
        return covariance_at_known_levels(posterior, X)
    out, means = 0.0, []
    for Z in new.versions:
        whole = X.copy()
        whole[new.rows] = Z
        out = out + covariance_at_known_levels(posterior, whole) / len(new.versions)
        means.append(posterior.moments(Z, with_variance=False)[0])
    apart = np.sqrt(new.factor) * (means - np.mean(means, axis=0))  # (L, r, Q)
    between = np.einsum("lrq,lsq->rsq", apart, apart) / len(means)
    out[np.ix_(new.rows, new.rows)] += between
    return out


def covariance_at_known_levels(posterior, X):
    """Return the `latent_covariance` of rows of known levels."""
    with posterior.projector(0) as project:
        covariance = local_covariance(project(X))
    variance = np.einsum("iiq->iq", covariance)
    root = np.sqrt(posterior.variance_factor(X, variance))
    if np.ndim(root):
        covariance *= root[:, None] * root
    return covariance


def covariance_factor(posterior, settings):
    """Return a factor (M, k, Q) of S from the sites of a posterior, or None.

    It is a lower triangular one where this is cheap, and else of `n_draws` draws from
    q(u). None stands for draws that could not be solved for.
    """
    model, tuning, rng = posterior.model, settings.tuning, np.random.RandomState(0)
    (M, Q), origin = model.m.shape, np.zeros(model.Z.shape[1])
    each = model.Z, model.m, np.ones(M, model.Z.dtype)
    data = TrainingRows(*each, center=origin, at=np.arange(M))
    with posterior.engine(2 * M) as engine:
        kernel, rows = posterior.kernel, RowsInMemory(data)
        solver = NaturalSolver(engine, rows, kernel, settings, rng)
        solver.sites = solver.sites._replace(precision=posterior.sites.precision)
        if Q * (M**3 + M**2 * posterior.n_neighbors) <= tuning.full_work:
            prior = solver.prior.dense_precision()
            grams = [solver.sites.gram(q) for q in range(Q)]
            return np.stack([factor_of_inverse(A + prior) for A in grams], axis=2)
        u = posterior_draws.draw(solver, tuning.n_draws, rng)
    return None if u is None else u / np.sqrt(tuning.n_draws)


def local_covariance(rows):
    """Return the covariances (n, n, Q) of the latent functions given neighbours.

    They are A S A' + K_** - A K_Z* - K_*Z A' + A (K_ZZ + jitter I) A', for `rows` the
    `Projection` of n rows. All but the first part is scaled to the variances F of the
    engine, whose jitter may differ from row to row. The peak of memory is some five
    times an (n, n) array.
    """
    model, n = rows.engine.model, rows.shape[0]
    A, used = weight_matrix(rows)
    rest = rest_covariance(rows, A, model.Z[used].astype(np.float64))
    out = np.empty((n, n, model.m.shape[1]))
    for q in range(out.shape[2]):
        if model.full:
            root = A @ model.L[q][used].astype(np.float64)
        else:
            deviation = np.sqrt(model.s[used, q].astype(np.float64))
            root = A.multiply(deviation).tocsr() if issparse(A) else A * deviation
        known = root @ root.T
        out[:, :, q] = known.toarray() if issparse(known) else known
        out[:, :, q] += rest
    require_finite(out)
    return out


def weight_matrix(rows):
    """Return the columns of A that some row uses, and their numbers.

    A is an array where every inducing point is a neighbour, else sparse.
    """
    parts = []
    for index in index_blocks(rows.shape[0]):
        part, _ = rows.compute_rows(index)
        if hasattr(part, "A"):
            parts.append(part.A)
            continue
        n, H = part.lists.shape
        places = part.lists.ravel(), np.arange(0, n * H + 1, H)
        shape = n, rows.shape[1]
        parts.append(csr_matrix((part.weights.ravel(), *places), shape=shape))
    if not issparse(parts[0]):
        return np.concatenate(parts), np.arange(rows.shape[1])
    A = vstack(parts).tocsc()
    used = np.flatnonzero(np.diff(A.indptr))
    return A[:, used].tocsr(), used


def rest_covariance(rows, A, Z):
    """Return the covariance (n, n) of r, for A (n, m) of the inducing points Z."""
    kernel, n, model = rows.kernel, rows.shape[0], rows.engine.model
    X = rows.data.block(np.arange(n))[0].astype(np.float64)
    jitter = absolute_jitter(model, kernel)
    rest = kernel(X)
    for block in row_blocks(n, ROWS_IN_CACHE):
        cross = A @ kernel(Z, X[block])
        rest[:, block] -= cross
        rest[block] -= cross.T
    for block in row_blocks(len(Z), ROWS_IN_CACHE):
        K, places = kernel(Z, Z[block]), np.arange(block.start, block.stop)
        K[places, places - block.start] = kernel.diag(Z[block]) + jitter
        rest += (A[:, block] @ (A @ K).T).T
    rest += rest.T.copy()
    scale = np.sqrt(rows.F / np.maximum(np.diag(rest), np.finfo(float).tiny))
    rest *= np.outer(scale, scale)
    return rest


class FunctionDraws:
    """Draws of functions from q(f), the same for the same state of `rng`.

    What a draw is depends neither on the rows nor on the number of draws.
    """

    def __init__(self, model, n_samples, rng):
        require_features(kernel_of(model))
        self.model, Q = model, model.m.shape[1]
        n_groups = N_FEATURES // FEATURES_AT_ONCE
        base, n_parts = rng.randint(LARGEST_SEED), -(-n_samples // DRAWS_AT_ONCE)
        # Seeds (n_groups,) of the features of every DRAWS_AT_ONCE draws
        self.seeds = [
            np.random.RandomState([base, part]).randint(LARGEST_SEED, size=n_groups)
            for part in range(n_parts)
        ]
        streams = map(np.random.RandomState, rng.randint(LARGEST_SEED, size=n_samples))
        n_columns = model.L.shape[2] if model.full else len(model.Z)
        self.u = np.empty((len(model.Z), Q, n_samples))
        # Coefficients of the features
        self.c = np.empty((n_groups, FEATURES_AT_ONCE, Q, n_samples))
        deviation = np.sqrt(model.s.astype(np.float64))
        for s, stream in enumerate(streams):
            e = stream.standard_normal((n_columns, Q))
            for q in range(Q):
                times = model.L[q].__matmul__ if model.full else deviation[:, q].__mul__
                self.u[:, q, s] = times(e[:, q])
            self.c[..., s] = stream.standard_normal(self.c.shape[:-1])

    def at(self, rows):
        """Return deviations from the mean (n, Q, n_samples) at rows of a `Projection`.

        The features give the correlations of r, and F (n,) its variances.
        """
        (n, _), shape = rows.shape, self.u.shape[1:]
        values = rows.matvec(self.u.reshape(len(self.u), -1)).reshape(n, *shape)
        for part, seeds in enumerate(self.seeds):
            draws = slice(part * DRAWS_AT_ONCE, (part + 1) * DRAWS_AT_ONCE)
            values[..., draws] += self._rest(rows, seeds, self.c[..., draws])
        require_finite(values)
        return values

    def _rest(self, rows, seeds, coefficients):
        """Return r (n, Q, k) of k draws that share the features of these seeds."""
        (n, _), shape = rows.shape, coefficients.shape[2:]
        rest, square = np.zeros((n, np.prod(shape))), np.zeros((n, 1))
        Z = self.model.Z.astype(np.float64)
        for seed, c in zip(seeds, coefficients, strict=True):
            blocks = (rows.data.block(index)[0] for index in index_blocks(n))
            part = np.concatenate([self._features(X, seed) for X in blocks])
            part -= rows.matvec(self._features(Z, seed))
            square += np.sum(part**2, axis=1, keepdims=True)
            rest += part @ c.reshape(FEATURES_AT_ONCE, -1)
        rest *= np.sqrt(rows.F[:, None] / np.maximum(square, np.finfo(float).tiny))
        return rest.reshape(n, *shape)

    def _features(self, X, seed):
        """Return a group of random features at rows of X."""
        rng, kernel = np.random.RandomState(seed), kernel_of(self.model)
        return random_features(kernel, X, FEATURES_AT_ONCE, rng)
