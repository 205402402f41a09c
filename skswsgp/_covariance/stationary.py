"""Kernels of a scaled distance on tiles of pairs of points, and their adjoint.

The layout of tiles is told in _covariance. Loops take four features at a time, since a
tile of few points has rows so short that starting on one costs more than a feature.
"""

import math

from skswsgp._compiled.jit import njit, njit_small
from skswsgp._compiled.special import exponential
from skswsgp._compiled.team import barrier, single, team_range, team_sum
from skswsgp._covariance.pairs import row_start, width

RBF, MATERN12, MATERN32, MATERN52, RATIONAL_QUADRATIC = 2, 3, 4, 5, 6


@njit
def squared_distances(A, rows, B, n, inv_scale, op, values, at):
    """values[op, at + ...] = sum_d ((A[d, i] - B[d, j]) / scale_d)^2."""
    D = A.shape[0]
    for i in team_range(0, rows):
        start, columns = at + row_start(i, n), width(i, n)
        for j in range(columns):
            values[op, start + j] = 0.0
        for d in range(D % 4):
            a, w = A[d, i], inv_scale[op, d]
            for j in range(columns):
                t = (B[d, j] - a) * w
                values[op, start + j] += t * t
        for d in range(D % 4, D, 4):
            a, b, c, e = A[d, i], A[d + 1, i], A[d + 2, i], A[d + 3, i]
            w, x = inv_scale[op, d], inv_scale[op, d + 1]
            y, z = inv_scale[op, d + 2], inv_scale[op, d + 3]
            for j in range(columns):
                s, t = (B[d, j] - a) * w, (B[d + 1, j] - b) * x
                u, v = (B[d + 2, j] - c) * y, (B[d + 3, j] - e) * z
                values[op, start + j] += s * s + t * t + u * u + v * v
    barrier()


@njit_small
def clip_distance(r2):
    """At most 1e10, where a covariance is zero: an infinity would make it NaN."""
    return 1e10 if r2 > 1e10 else r2


@njit
def stationary_profile(code, alpha, op, values, slopes, at, end):
    """Replace r2 in `values` by k(r2) and put dk/dr2 into `slopes`."""
    if code == RBF:
        for p in team_range(at, end):
            value = exponential(-0.5 * values[op, p])
            values[op, p] = value
            slopes[op, p] = -0.5 * value
    elif code == MATERN12:
        for p in team_range(at, end):
            r = math.sqrt(values[op, p])
            value = exponential(-r)
            values[op, p] = value
            slopes[op, p] = -0.5 * value / r if r > 0.0 else 0.0
    elif code == MATERN32:
        for p in team_range(at, end):
            r = math.sqrt(3.0 * clip_distance(values[op, p]))
            e = exponential(-r)
            values[op, p] = (1.0 + r) * e
            slopes[op, p] = -1.5 * e
    elif code == MATERN52:
        for p in team_range(at, end):
            r2 = 5.0 * clip_distance(values[op, p])
            r = math.sqrt(r2)
            e = exponential(-r)
            values[op, p] = (1.0 + r + r2 / 3.0) * e
            slopes[op, p] = (-5.0 / 6.0) * (1.0 + r) * e
    else:  # RATIONAL_QUADRATIC
        for p in team_range(at, end):
            base = 1.0 + values[op, p] / (2.0 * alpha)
            value = base ** (-alpha)
            values[op, p] = value
            slopes[op, p] = -0.5 * value / base
    barrier()


# Adjoints. Loops with a running total store nothing: see _covariance.


@njit_small
def add_scale_gradient(scale, n_scales, d, amount, d_log):
    """Add a derivative by log length-scale d, the first being number `scale`."""
    slot = scale + (d if n_scales > 1 else 0)
    for at in single(slot, slot + min(n_scales, 1)):
        d_log[at] += amount


@njit
def length_scales_vjp(
    inv_scale, scale, n_scales, op, A, rows, B, n, adjoint, at, d_log
):
    """Take adjoint[op], the derivatives by r2, back to length-scales."""
    D = A.shape[0]
    for d in range(D % 4):
        first = 0.0
        for i in team_range(0, rows):
            a, start = A[d, i], at + row_start(i, n)
            for j in range(width(i, n)):
                t = B[d, j] - a
                first += adjoint[op, start + j] * t * t
        first = -2.0 * inv_scale[op, d] ** 2 * team_sum(first)
        add_scale_gradient(scale, n_scales, d, first, d_log)
    for d in range(D % 4, D, 4):
        first = second = third = fourth = 0.0
        for i in team_range(0, rows):
            a, b, c, e = A[d, i], A[d + 1, i], A[d + 2, i], A[d + 3, i]
            start = at + row_start(i, n)
            for j in range(width(i, n)):
                pull = adjoint[op, start + j]
                s, t = B[d, j] - a, B[d + 1, j] - b
                u, v = B[d + 2, j] - c, B[d + 3, j] - e
                first += pull * s * s
                second += pull * t * t
                third += pull * u * u
                fourth += pull * v * v
        first = -2.0 * inv_scale[op, d] ** 2 * team_sum(first)
        second = -2.0 * inv_scale[op, d + 1] ** 2 * team_sum(second)
        third = -2.0 * inv_scale[op, d + 2] ** 2 * team_sum(third)
        fourth = -2.0 * inv_scale[op, d + 3] ** 2 * team_sum(fourth)
        add_scale_gradient(scale, n_scales, d, first, d_log)
        add_scale_gradient(scale, n_scales, d + 1, second, d_log)
        add_scale_gradient(scale, n_scales, d + 2, third, d_log)
        add_scale_gradient(scale, n_scales, d + 3, fourth, d_log)
    barrier()


@njit
def distances_vjp(inv_scale, op, A, rows, B, n, adjoint, at, d_A, d_B):
    """Take adjoint[op], the derivatives by r2, back to coordinates."""
    for d in team_range(0, A.shape[0]):
        w = 2.0 * inv_scale[op, d] ** 2
        for i in range(rows):
            a = A[d, i]
            start = at + row_start(i, n)
            by_point = 0.0
            for j in range(width(i, n)):
                by_point += adjoint[op, start + j] * (B[d, j] - a)
            for j in range(width(i, n)):
                d_B[d, j] += w * adjoint[op, start + j] * (B[d, j] - a)
            d_A[d, i] -= w * by_point
    barrier()


@njit
def alpha_vjp(op, values, slopes, adjoint, at, end):
    """Return the derivative by the exponent of RATIONAL_QUADRATIC."""
    by_alpha = 0.0
    for p in team_range(at, end):
        if slopes[op, p] < 0.0:  # far apart both are zero
            base = -0.5 * values[op, p] / slopes[op, p]
            part = 1.0 - 1.0 / base - math.log(base)
            by_alpha += adjoint[op, p] * values[op, p] * part
    return team_sum(by_alpha)
