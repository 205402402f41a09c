"""The posterior, the bound and its adjoint, of many rows at once.

Formulas and notation are those of `_point.posterior`, `_point.divergence` and
`_point.bound`, for n rows: a (n, H), m and alpha (n, H, Q), K^-1 (n, H, H). Rows whose
covariance matrix has no factor get NaN.
"""

from typing import NamedTuple

from skswsgp._compiled.linalg import RELATIVE_FLOOR
from skswsgp._point.likelihoods import expected_log_prob
from skswsgp.cuda import covariances, factors
from skswsgp.cuda.compiler import body
from skswsgp.cuda.factors import diagonals, matvec, transposed

SQUARES = 10  # matrices (H, H) of a row in memory at once, beside covariances and S


class Rows(NamedTuple):
    """Rows of data with their neighbours, and what follows from the inputs alone."""

    active: object  # (n, H)
    sets: covariances.PointSets  # of the neighbours, then the row itself
    units: object  # (n,) of jitter
    factors: factors.Factors  # of K
    a: object  # (n, H), K^-1 k
    F: object  # (n,), k(x, x) - k' a, at least 0


class Expectations(NamedTuple):
    """E log p(y | f) of n rows, and its derivatives by mean and variance of q(f)."""

    ell: object  # (n,)
    d_mean: object  # (n, Q)
    d_variance: object  # (n, Q)
    d_noise: object  # (n, number of noise variances), by their logarithms


class Derivatives(NamedTuple):
    """Derivatives of the objective of n rows; those without use are None."""

    d_m: object  # (n, H, Q)
    d_s: object  # (n, H, Q)
    d_S: object  # (n, Q, H, H)
    d_Z: object  # (n, H, D)
    d_log: object  # (P,)
    d_noise: object  # (number of noise variances,)
    sums: object  # (2,), weighted, of E log p(y | f) and of KL


def evaluate(device, model, X, active):
    """Return the covariances and units of jitter of rows X (n, D) with neighbours."""
    xp, (n, H) = device.xp, active.shape
    points = xp.empty((n, X.shape[1], H + 1), X.dtype)
    points[:, :, :H] = transposed(model.Z[active])
    points[:, :, H] = X
    sets = covariances.evaluate(device, model, points)
    return sets, factors.mean_diagonals(xp, sets.K[:, :H, :H])


def conditional(device, model, X, active):
    """Return the `Rows` of inputs X (n, D)."""
    sets, units = evaluate(device, model, X, active)
    K, H = sets.K, active.shape[1]
    found = factors.jittered(device, K[:, :H, :H], units, model.jitter)
    a, square = found.solve(K[:, :H, H])
    F = device.xp.maximum(K[:, H, H] - square, 0.0)
    return Rows(active, sets, units, found, a, F)


def variance_floor(xp, model, rows):
    """Return the least variance (n,): RELATIVE_FLOOR times the jitter of K."""
    units = xp.maximum(rows.sets.K[:, -1, -1], rows.units)
    return RELATIVE_FLOOR * model.jitter * units


def posterior(device, model, rows):
    """Return mu and v (n, Q) of eq. 13, v at least `variance_floor`."""
    xp, a = device.xp, rows.a
    mu = weighted_sum(a, model.m[rows.active])
    if model.full:
        projections = [weighted_sum(a, L[rows.active]) for L in model.L]
        v = xp.stack([(each * each).sum(axis=1) for each in projections], axis=1)
    else:
        v = weighted_sum(a * a, model.s[rows.active])
    floor = variance_floor(xp, model, rows)
    return mu, xp.maximum(rows.F[:, None] + v, floor[:, None])


def weighted_sum(a, values):
    """Return sum_h a_h values_h (n, Q) for values (n, H, Q)."""
    return (a[:, None, :] @ values)[:, 0]


class Moments(NamedTuple):
    """q(f) of one row, and what `expected_log_prob` sets."""

    mean: object  # (Q,)
    variance: object
    d_mean: object
    d_variance: object
    d_noise: object
    node_values: object  # (Q + 2, nodes)


@body
def expect_row(i, model, y, rows, ell):
    """Set ell[i] = E log p(y | f) of row i, and its derivatives in `rows`."""
    own = Moments(
        rows.mean[i], rows.variance[i], rows.d_mean[i], rows.d_variance[i],
        rows.d_noise[i], rows.node_values[i],
    )  # fmt: skip
    ell[i] = expected_log_prob(model, y, i, own)


def expectations(device, model, y, mean, variance):
    """Return the `Expectations` of rows with targets y and moments (n, Q)."""
    xp, (n, Q) = device.xp, mean.shape
    d_mean, d_variance = xp.empty_like(mean), xp.empty_like(mean)
    d_noise = xp.zeros((n, len(model.noise)), mean.dtype)
    node_values = xp.empty((n, Q + 2, model.nodes.shape[1]), mean.dtype)
    ell = xp.empty(n)
    moments = Moments(mean, variance, d_mean, d_variance, d_noise, node_values)
    device.launch(expect_row, n, model, y, moments, ell)
    return Expectations(ell, d_mean, d_variance, d_noise)


class Divergence(NamedTuple):
    """KL_w of n rows, and what its adjoint needs."""

    kl: object  # (n,)
    inverse: object  # K^-1 (n, H, H)
    alpha: object  # K^-1 m (n, H, Q)
    s: object  # variances (n, H, Q), or None
    S: object  # covariances (n, Q, H, H), or None
    S_inverse: object


def divergence(device, model, rows):
    """Return the `Divergence` of rows."""
    xp, (n, H) = device.xp, rows.active.shape
    inverse, m = rows.factors.inverses(), model.m[rows.active]
    alpha, Q = inverse @ m, m.shape[2]
    kl = Q * (rows.factors.log_determinants(xp) - H) + (m * alpha).sum(axis=(1, 2))
    if not model.full:
        s = model.s[rows.active]
        kl += (diagonals(inverse)[:, :, None] * s - xp.log(s)).sum(axis=(1, 2))
        return Divergence(0.5 * kl, inverse, alpha, s, None, None)
    L = xp.stack([factor[rows.active] for factor in model.L], axis=1)
    S = (L @ L.transpose(0, 1, 3, 2)).reshape(n * Q, H, H)
    units, least = factors.mean_diagonals(xp, S), RELATIVE_FLOOR * model.jitter
    found = factors.jittered(device, S, units, least)
    kl += (inverse[:, None] * S.reshape(n, Q, H, H)).sum(axis=(1, 2, 3))
    kl -= found.log_determinants(xp).reshape(n, Q).sum(axis=1)
    S, S_inverse = (A.reshape(n, Q, H, H) for A in (S, found.inverses()))
    return Divergence(0.5 * kl, inverse, alpha, None, S, S_inverse)


def divergence_vjp(c, given):
    """Return the derivatives of -c KL by m, by s or S, and by K, for c (n,)."""
    inverse, alpha, s, Q = given.inverse, given.alpha, given.s, given.alpha.shape[2]
    wide = c[:, None, None]
    d_m = -wide * alpha
    if s is not None:
        d_S = -0.5 * wide * (diagonals(inverse)[:, :, None] - 1.0 / s)
        product = s.sum(axis=2)[:, :, None] * inverse
    else:
        d_S = -0.5 * wide[:, None] * (inverse[:, None] - given.S_inverse)
        product = given.S.sum(axis=1) @ inverse
    sandwich = inverse @ product + alpha @ transposed(alpha)
    return d_m, d_S, -0.5 * wide * (Q * inverse - sandwich)


def bound(device, model, X, y, active):
    """Return the `Rows`, `Expectations` and `Divergence` of rows of data."""
    rows = conditional(device, model, X, active)
    expected = expectations(device, model, y, *posterior(device, model, rows))
    return rows, expected, divergence(device, model, rows)


def bound_vjp(device, model, weight, terms):
    """Return the `Derivatives` of sum_i weight_i (E log p_i - beta / W KL_i).

    `terms` are those of `bound`, and weight is (n,).
    """
    rows, expected, given = terms
    a, alpha, H = rows.a, given.alpha, rows.active.shape[1]
    share = weight * (model.kl_weight / model.total_weight)
    d_m, d_S, d_K = divergence_vjp(share, given)
    g_mean = weight[:, None] * expected.d_mean
    g_variance = weight[:, None] * expected.d_variance
    g = g_variance.sum(axis=1)[:, None]  # by k(x, x)
    d_m += a[:, :, None] * g_mean[:, None]
    if model.full:
        Sa = (given.S @ a[:, None, :, None])[:, :, :, 0]  # (n, Q, H)
        by_a = (g_variance[:, :, None] * Sa).sum(axis=1)
        outer = a[:, :, None] * a[:, None, :]
        d_S += g_variance[:, :, None, None] * outer[:, None]
    else:
        by_a = (given.s * g_variance[:, None]).sum(axis=2) * a
        d_S += (a * a)[:, :, None] * g_variance[:, None]
    r = 0.5 * (g * a - matvec(alpha, g_mean)) - matvec(given.inverse, by_a)
    half = a[:, :, None] * r[:, None]
    d_K += half + transposed(half)
    diagonals(d_K)[...] += rows.factors.jitter[:, None] * mean_trace(d_K)
    d_log, d_points = covariances.vjp(
        device, model, rows.sets, bordered(device.xp, d_K, -2.0 * r - g * a, g),
        model.train_inducing,
    )  # fmt: skip
    d_Z = transposed(d_points)[:, :H] if model.train_inducing else None
    d_noise = weight @ expected.d_noise
    sums = device.xp.stack([weight @ expected.ell, weight @ given.kl])
    by_s, by_S = (None, d_S) if model.full else (d_S, None)
    return Derivatives(d_m, by_s, by_S, d_Z, d_log, d_noise, sums)


def mean_trace(A):
    """Return the mean of the diagonal of each A, as a column (n, 1)."""
    return diagonals(A).mean(axis=1)[:, None]


def bordered(xp, d_K, d_k, g):
    """Return derivatives (n, H + 1, H + 1) from those by K, by k and by k(x, x)."""
    n, H, _ = d_K.shape
    out = xp.empty((n, H + 1, H + 1), d_K.dtype)
    out[:, :H, :H] = d_K
    out[:, :H, H] = out[:, H, :H] = 0.5 * d_k
    out[:, H, H] = g[:, 0]
    return out


def bytes_of_row(model, H):
    """Return the bytes that a row with H neighbours takes on the device."""
    n_ops, (M, Q), full = len(model.code), model.m.shape, model.full
    squares = 3 * n_ops + SQUARES + (3 * Q if full else 0)
    numbers = squares * (H + 1) ** 2 + (2 * H * Q * M if full else 0)
    numbers += (Q + 2) * model.nodes.shape[1]
    numbers += 6 * model.Z.shape[1] * (H + 1)  # points, and derivatives by them
    return numbers * model.Z.itemsize + 8 * len(model.params) * (H + 1)


def most_rows(device, model, H):
    """Return how many rows with H neighbours may be on the device at once."""
    return max(1, device.budget("rows") // bytes_of_row(model, H))
