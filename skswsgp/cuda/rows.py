"""The posterior, the bound and its adjoint, of many rows at once.

Formulas and notation are those of `_point.posterior`, `_point.divergence` and
`_point.bound`, for n rows: a (n, H), alpha (n, H, Q), K^-1 (n, H, H), S (Q n, H, H).
Rows whose covariance matrix has no factor get NaN. Bodies hold what costs O(H) for an
entry, and products of matrices are left to libraries.
"""

import math
from collections import namedtuple

import numpy as np

from skswsgp._compiled.jit import njit_inner
from skswsgp._compiled.linalg import RELATIVE_FLOOR
from skswsgp._covariance.program import kernel_of
from skswsgp._point.likelihoods import expected_log_prob
from skswsgp.cuda.compiler import body
from skswsgp.cuda.covariances import fill_pair, point_vjp
from skswsgp.cuda.factors import Factors, Launches, transposed

SQUARES = 6  # matrices (H, H) of a row in memory at once, beside covariances and S

# q(f) of rows, or of one row, and what `expected_log_prob` sets
Moments = namedtuple("Moments", "mean variance d_mean d_variance d_noise node_values")


@njit_inner
def residual(K, half, b, c):
    """Return k(x, x) - k' a of row b, at least 0, from half[c] = L^-1 k."""
    H = half.shape[1]
    value = K[b, H, H]
    for h in range(H):
        value -= half[c, h, 0] ** 2
    return 0.0 if value < 0.0 else value


@body
def posterior_row(b, K, half, units, least, m, s, active, a, projection, F, f):
    """Set F, and mu and v of eq. 13, F and v at least `least` times the unit of K."""
    H, value = half.shape[1], residual(K, half, b, b)
    floor = least * (units[b] if K[b, H, H] < units[b] else K[b, H, H])
    F[b] = floor if value < floor else value
    for q in range(m.shape[1]):
        mu, v = 0.0, value
        for h in range(H):
            mu += a[b, h, 0] * m[active[b, h], q]
            if s.shape[0]:
                v += a[b, h, 0] ** 2 * s[active[b, h], q]
        for j in range(projection.shape[3]):
            v += projection[q, b, 0, j] ** 2
        f.mean[b, q], f.variance[b, q] = mu, floor if v < floor else v


@body
def expect_row(i, model, y, f, ell):
    """Set ell[i] = E log p(y | f) of row i, and its derivatives in f."""
    ends = f.d_mean[i], f.d_variance[i], f.d_noise[i], f.node_values[i]
    own = Moments(f.mean[i], f.variance[i], *ends)
    ell[i] = expected_log_prob(model, y, i, own)


@body
def divergence_part(i, m, s, active, K_inverse, upper, S, S_upper, alpha, parts):
    """Set alpha = K^-1 m and the part of KL_w of a neighbour. `S` is empty if diagonal.

    KL_w = 1/2 sum_q [tr(K^-1 S) + m' alpha - H + log|K| - log|S|].
    """
    H, Q = active.shape[1], m.shape[1]
    b, h = i // H, i % H
    kl, own = 0.0, active[b, h]
    for q in range(Q):
        total, c = 0.0, q * K_inverse.shape[0] + b
        for g in range(H):
            total += K_inverse[b, g, h] * m[active[b, g], q]
        alpha[b, h, q] = total
        kl += m[own, q] * total - 1.0 - 2.0 * math.log(upper[b, h, h])
        if S.shape[0]:
            kl += 2.0 * math.log(S_upper[c, h, h])
            for g in range(H):
                kl += K_inverse[b, g, h] * S[c, g, h]
        else:
            kl += K_inverse[b, h, h] * s[own, q] - math.log(s[own, q])
    parts[b, h] = 0.5 * kl


@njit_inner
def pull(b, g, f, a, s, active, S):
    """Return entry g of sum_q g_v S_q a of row b."""
    (n, H), total = active.shape, 0.0
    for q in range(f.mean.shape[1]):
        if S.shape[0]:
            for h in range(H):
                total += f.d_variance[b, q] * S[q * n + b, h, g] * a[b, h, 0]
        else:
            total += f.d_variance[b, q] * s[active[b, g], q] * a[b, g, 0]
    return total


@body
def slope_entry(i, weight, share, f, a, alpha, s, active, K_inverse, S, T, d_m, d_s):
    """Set an entry of T = c/2 sum_q S_q K^-1 - 2 u a', and u = sum_q g_v S_q a.

    u is the last column, and its thread sets derivatives by m and a diagonal S. For a
    full one, T holds sum_q S_q K^-1 already.
    """
    H, Q = active.shape[1], alpha.shape[2]
    b, g, h = i // (H * (H + 1)), i // (H + 1) % H, i % (H + 1)
    w, c, u = weight[b], share * weight[b], weight[b] * pull(b, g, f, a, s, active, S)
    if h < H:
        total = T[b, g, h] if S.shape[0] else 0.0
        for q in range(0 if S.shape[0] else Q):
            total += s[active[b, g], q] * K_inverse[b, g, h]
        T[b, g, h] = 0.5 * c * total - 2.0 * u * a[b, h, 0]
    else:
        T[b, g, h], own = u, a[b, g, 0]
        for q in range(Q):
            d_m[b, g, q] = w * f.d_mean[b, q] * own - c * alpha[b, g, q]
            if not S.shape[0]:
                slope = K_inverse[b, g, g] - 1.0 / s[active[b, g], q]
                d_s[b, g, q] = w * f.d_variance[b, q] * own**2 - 0.5 * c * slope


@njit_inner
def pick(values, b, g, q, last):
    """Return values[b, g, q] of point g of a set, `last` of the row itself."""
    return values[b, g, q] if g < values.shape[1] else last


@njit_inner
def likelihood_slope(b, c, g, h, q, f, a, alpha):
    """Return what the expected log likelihood of f_q adds to `covariance_slope`.

    c is the row of a and alpha, whose last entries are -1 and 0: f(x) - a' f(Z_w) has
    the variance F. In kriging, each c has a column of its own.
    """
    a_g, a_h, own = pick(a, c, g, 0, -1.0), pick(a, c, h, 0, -1.0), q % alpha.shape[2]
    of_mean = a_g * pick(alpha, c, h, own, 0.0) + pick(alpha, c, g, own, 0.0) * a_h
    return f.d_variance[b, q] * a_g * a_h - 0.5 * f.d_mean[b, q] * of_mean


@njit_inner
def covariance_slope(b, g, h, w, c, f, K_inverse, KT, alpha, a):
    """Return the derivative by the covariance of points g and h of the set of row b.

    KT = K^-1 T of `slope_entry`. What the jitter has in the derivative is left out.
    """
    H, Q, low, value = KT.shape[1], alpha.shape[2], min(g, h), 0.0
    for q in range(Q):
        value += w * likelihood_slope(b, b, g, h, q, f, a, alpha)
        value += 0.5 * c * pick(alpha, b, g, q, 0.0) * pick(alpha, b, h, q, 0.0)
    if g < H and h < H:
        return value + 0.5 * (KT[b, g, h] + KT[b, h, g] - c * Q * K_inverse[b, g, h])
    return value + (KT[b, low, H] if low < H else 0.0)


@body
def adjoint_pair(i, weight, share, f, jitter, K_inverse, KT, alpha, a, adjoint):
    """Set the derivative by the covariance of pair i of the points of all sets."""
    H, P, top = KT.shape[1], KT.shape[2], adjoint.shape[0] - 1
    b, g, h = i // (P * P), i // P % P, i % P
    given = weight[b], share * weight[b], f, K_inverse, KT, alpha, a
    adjoint[top, i] = covariance_slope(b, g, h, *given)
    for j in range(H if g == h and g < H else 0):
        adjoint[top, i] += jitter[b] / H * covariance_slope(b, j, j, *given)


@body
def factor_slope(i, weight, share, f, K_inverse, S_inverse, a, S):
    """Set an entry of 2 d/dS_q = 2 g_v a a' - c (K^-1 - S_q^-1)."""
    H = S.shape[1]
    c, g, h = i // (H * H), i // H % H, i % H
    b, q = c % a.shape[0], c // a.shape[0]
    value = 2.0 * f.d_variance[b, q] * a[b, g, 0] * a[b, h, 0]
    value -= share * (K_inverse[b, g, h] - S_inverse[c, g, h])
    S[c, g, h] = weight[b] * value


class Work(Launches):
    """Memory for n rows of a `Batch` and all that follows from them, run by run."""

    def __init__(self, engine, n, columns=0):
        model, H = engine.send_model(), engine.n_neighbors
        given = {"model": model, "kernel": kernel_of(model), "n": n, "H": H}
        super().__init__(engine.device, model.Z.dtype, **model._asdict(), **given)
        D, tile = model.Z.shape[1], (len(model.code), n * (H + 1) ** 2)
        self.allocate(X=(n, D), y=(n, columns), points=(n, D, H + 1))
        self.allocate(values=tile, slopes=tile)
        self.allocate(np.float64, weight=n)
        self.allocate(np.int32, active=(n, H))
        self.K = self.values[-1].reshape(n, H + 1, H + 1)
        self.add(fill_pair, self.K.size)
        add_moments(self, n, model)

    def add_vjp(self, moving):
        """Add derivatives by log parameters and if `moving` by points to `run`.

        They follow from `adjoint`, whose last operation has those by covariances. Sums
        over rows are `d_params` (1, P) and `totals`, of the `table`.
        """
        (n, D, P), xp = self.points.shape, self.device.xp
        self.allocate(d_points=(n, P, D if moving else 0))
        k, width = len(self.params), self.table.shape[1]
        sizes = {"d_log": (n * P, k), "d_params": (1, k), "totals": (1, width)}
        self.allocate(np.float64, **sizes)
        self.add(point_vjp, n * P)
        self.call(self.d_log.sum, 0, out=self.d_params[0])
        self.call(xp.matmul, self.weight[None], self.table, out=self.totals)


def add_moments(work, n, model):
    """Allocate `f` of n rows, whose fields are attributes as well, and a `table`.

    A row of the table has E log p(y | f), KL_w, and derivatives by log noise variances.
    """
    size = n, model.m.shape[1]
    work.allocate(np.float64, table=(n, 2 + len(model.noise)))
    work.allocate(mean=size, variance=size, d_mean=size, d_variance=size)
    work.allocate(node_values=(n, size[1] + 2, model.nodes.shape[1]))
    columns = work.table[:, 0], work.table[:, 1], work.table[:, 2:]
    work.ell, work.kl, work.d_noise = columns
    work.f = Moments(*(getattr(work, name) for name in Moments._fields))


class Rows(Work):
    """Rows of data with their neighbours, and the posterior of f.

    Attributes
    ----------
    a, F : arrays (n, H, 1), (n,)
        K^-1 k, and k(x, x) - k' a, at least RELATIVE_FLOOR times the jitter of K.
    mean, variance : arrays (n, Q)
        mu and v of eq. 13.
    """

    def __init__(self, engine, n, columns=0):
        super().__init__(engine, n, columns)
        K, H, Q, xp = self.K, self.H, self.m.shape[1], self.device.xp
        given = self.device, K[:, :H, :H], self.jitter, K[:, :H, H:]
        self.factors = found = Factors(*given, note=engine.note_jitter)
        self.launches.append(found.find)
        self.half, self.units, self.upper = found.half, found.units, found.upper
        self.least, self.jitter = RELATIVE_FLOOR * self.jitter, found.jitter
        self.a, size = found.solution, self.L.shape[2] if self.full else 0
        self.allocate(L_rows=(Q, n, H, size), projection=(Q, n, 1, size), F=n)
        if self.full:
            self.call(xp.take, self.L, self.active, 1, out=self.L_rows)
            self.call(xp.matmul, transposed(self.a), self.L_rows, out=self.projection)
        self.add(posterior_row, n)


class Expectations(Launches):
    """E log p(y | f), `ell`, and its derivatives for n rows of given moments of f."""

    def __init__(self, engine, n, columns):
        model = engine.send_model()
        super().__init__(engine.device, model.Z.dtype, model=model, n=n)
        self.allocate(y=(n, columns))
        add_moments(self, n, model)
        self.add(expect_row, n)


class Bound(Rows):
    """Rows, E log p(y | f) in `ell`, and KL_w in `kl`."""

    def __init__(self, engine, n, columns):
        super().__init__(engine, n, columns)
        self.add(expect_row, n)
        Q, H, xp = self.m.shape[1], self.H, self.device.xp
        many, upper, rows = n * Q if self.full else 0, self.upper, self.L_rows
        self.allocate(K_inverse=(n, H, H), S=(many, H, H), alpha=(n, H, Q))
        self.allocate(np.float64, parts=(n, H))
        self.call(xp.matmul, upper, self.factors.lower, out=self.K_inverse)
        self.S_factors = Factors(self.device, self.S, self.least)
        self.S_upper = self.S_factors.upper
        if many:
            S = self.S.reshape(Q, n, H, H)
            self.call(xp.matmul, rows, rows.transpose(0, 1, 3, 2), out=S)
            self.launches.append(self.S_factors.find)
        self.add(divergence_part, n * H)
        self.call(self.parts.sum, 1, out=self.kl)


class Slopes(Bound):
    """Derivatives of sum_i weight_i (E log p_i - beta / W KL_i).

    Those of each row by its neighbours are `d_m` and, for a diagonal S, `d_s`
    (n, H, Q), `d_L` (Q, n, H, M) by their rows of L_q, and `d_points` by Z and X. What
    has no use is empty. `d_params` (1, P) and `totals` have sums over rows.
    """

    def __init__(self, engine, n, columns):
        super().__init__(engine, n, columns)
        Q, H, xp, many = self.m.shape[1], self.H, self.device.xp, len(self.S)
        self.share = float(self.kl_weight / self.total_weight)
        # Arrays in memory that is not used any more
        S_sum, self.S_inverse = self.upper, self.S_factors.L
        self.allocate(T=(n, H, H + 1), KT=(n, H, H + 1), adjoint=self.values.shape)
        width = 0 if many else Q  # columns of derivatives by a diagonal S
        self.allocate(d_m=(n, H, Q), d_s=(n, H, width), d_L=self.L_rows.shape)
        if many:
            S = self.S.reshape(Q, n, H, H)
            self.call(S.sum, 0, out=S_sum)
            self.call(xp.matmul, S_sum, self.K_inverse, out=self.T[:, :, :H])
        self.add(slope_entry, self.T.size)
        self.call(xp.matmul, self.K_inverse, self.T, out=self.KT)
        self.add(adjoint_pair, self.K.size)
        self.add_vjp(self.train_inducing)
        if many:
            lower = self.S_factors.lower
            self.call(xp.matmul, self.S_upper, lower, out=self.S_inverse)
            self.add(factor_slope, self.S.size)
            self.call(xp.matmul, S, self.L_rows, out=self.d_L)


def bytes_of_row(model, H):
    """Return the bytes that a row with H neighbours takes on the device."""
    n_ops, (M, Q), full = len(model.code), model.m.shape, model.full
    squares = 3 * n_ops + max(SQUARES, 3 * Q) + (3 * Q if full else 0)
    numbers = squares * (H + 1) ** 2 + (2 * H * Q * M if full else 0)
    # Nodes, and points and derivatives by them
    numbers += (Q + 2) * model.nodes.shape[1] + 6 * model.Z.shape[1] * (H + 1)
    return numbers * model.Z.itemsize + 8 * len(model.params) * (H + 1)


def most_rows(device, model, H):
    """Return how many rows with H neighbours may be on the device at once."""
    return max(1, device.budget("rows") // bytes_of_row(model, H))
