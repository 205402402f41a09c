"""Simple kriging of many rows at once from noisy neighbours; see `_point.kriging`."""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.linalg import RELATIVE_FLOOR
from skswsgp._compiled.special import gaussian_log_density
from skswsgp.cuda import covariances, factors, rows
from skswsgp.cuda.factors import diagonals, transposed


class Kriged(NamedTuple):
    """Kriging of one output at n rows."""

    a: object  # (n, H), C^-1 k
    alpha: object  # (n, H), C^-1 m
    mean: object  # (n,)
    F: object  # (n,), k(x, x) - k' a, at least 0
    jitter: object  # (n,)


def krige(device, model, sets, units, active, q):
    """Return the `Kriged` rows of output q, from what `rows.evaluate` returned."""
    K, H = sets.K, active.shape[1]
    C = K[:, :H, :H].copy()
    # The unit of jitter excludes the noise, which is large for a small weight
    diagonals(C)[...] += model.noise[q] * model.s[active, q]
    found = factors.jittered(device, C, units, RELATIVE_FLOOR * model.jitter)
    a, square = found.solve(K[:, :H, H])
    m = model.m[active, q]
    F = device.xp.maximum(K[:, H, H] - square, 0.0)
    return Kriged(a, found.solve(m)[0], (a * m).sum(axis=1), F, found.jitter)


def log_density_vjp(device, model, X, y, active, weight):
    """Return derivatives of sum_i weight_i log p(y_i | m_w), and this sum itself.

    They are those by log kernel parameters (P,) and by log noise variances (Q,).
    """
    xp, (n, H), Q = device.xp, active.shape, model.m.shape[1]
    sets, units = rows.evaluate(device, model, X, active)
    d_K, d_k = xp.zeros((n, H, H), X.dtype), xp.zeros((n, H), X.dtype)
    g, d_noise, total = xp.zeros((n, 1), X.dtype), [], 0.0
    for q in range(Q):
        found = krige(device, model, sets, units, active, q)
        own = model.noise[q] * y[:, Q + q]
        variance, residual = found.F + own, y[:, q] - found.mean
        square = residual * residual / variance
        density = gaussian_log_density(square, xp.log(variance))
        total += weight @ density.astype(np.float64)
        slope = weight * 0.5 * (square - 1.0) / variance  # by F
        g_F, g_mean = slope[:, None], (weight * residual / variance)[:, None]
        r = 0.5 * (g_F * found.a - g_mean * found.alpha)
        half = found.a[:, :, None] * r[:, None]
        d_C = half + transposed(half)
        by_noise = (diagonals(d_C) * model.s[active, q]).sum() * model.noise[q]
        d_noise.append(by_noise + (slope * own).sum())
        d_K += d_C
        d_k -= 2.0 * r + g_F * found.a
        g += g_F
    border = rows.bordered(xp, d_K, d_k, g)
    d_log, _ = covariances.vjp(device, model, sets, border, False)
    return d_log, xp.stack(d_noise), total


def mean_slopes(device, model, X, active):
    """Return the derivatives of the mean by the rows of X, (n, Q, D)."""
    xp, (n, H), slopes = device.xp, active.shape, []
    sets, units = rows.evaluate(device, model, X, active)
    for q in range(model.m.shape[1]):
        found = krige(device, model, sets, units, active, q)
        none = xp.zeros((n, H, H), X.dtype), xp.zeros((n, 1), X.dtype)
        border = rows.bordered(xp, none[0], found.alpha, none[1])
        _, d_points = covariances.vjp(device, model, sets, border, True)
        lost = xp.isnan(found.jitter)[:, None]
        slopes.append(xp.where(lost, np.nan, d_points[:, :, H]))
    return xp.stack(slopes, axis=1)


def predictions(device, model, X, active):
    """Return mean and variance of f at rows of X, each (n, Q), and jitters (Q, n)."""
    sets, units = rows.evaluate(device, model, X, active)
    outputs = range(model.m.shape[1])
    found = [krige(device, model, sets, units, active, q) for q in outputs]
    mean = device.xp.stack([each.mean for each in found], axis=1)
    F = device.xp.stack([each.F for each in found], axis=1)
    return mean, F, device.xp.stack([each.jitter for each in found])
