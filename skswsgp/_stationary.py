"""Kernels of a scaled distance on tiles of pairs of points, and their adjoint.

The layout of tiles is told in _covariance. Loops take four features at a time, since a
tile of few points has rows so short that starting on one costs more than a feature.
"""

import math

import numpy as np

from skswsgp._jit import njit, njit_small
from skswsgp._lanes import solo, span, sync, total

RBF, MATERN12, MATERN32, MATERN52, RATIONAL_QUADRATIC = 2, 3, 4, 5, 6

TRIANGLE = 0  # instead of a number of columns: the lower triangle


@njit_small
def width(i, n):
    """Number of pairs in row i."""
    return i + 1 if n == TRIANGLE else n


@njit_small
def row_start(i, n):
    """Number of pairs before row i; `row_start(n_rows, n)` counts all."""
    return i * (i + 1) // 2 if n == TRIANGLE else i * n


@njit_small
def exponential(x):
    """exp(x) for x < 700 to 4e-14, in arithmetic that the compiler can vectorise."""
    x = -700.0 if x < -700.0 else x
    known = x == x  # no integer stands for NaN
    exponent = math.floor(x * 1.4426950408889634 + 0.5) if known else 0.0
    r = x - exponent * 0.6931471803691238 - exponent * 1.9082149292705877e-10
    p = 1.0 / 39916800.0  # Taylor series to order 11 on |r| <= log(2) / 2
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * np.int64((np.int64(exponent) + 1023) << 52).view(np.float64)


@njit
def squared_distances(A, rows, B, n, inv_scale, op, values, at):
    """values[op, at + ...] = sum_d ((A[d, i] - B[d, j]) / scale_d)^2."""
    D = A.shape[0]
    for i in span(0, rows):
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
    sync()


@njit_small
def below_limit(r2):
    """At most 1e10, where a covariance is zero: an infinity would make it NaN."""
    return 1e10 if r2 > 1e10 else r2


@njit
def stationary_profile(code, alpha, op, values, slopes, at, end):
    """Replace r2 in `values` by k(r2) and put dk/dr2 into `slopes`."""
    if code == RBF:
        for p in span(at, end):
            value = exponential(-0.5 * values[op, p])
            values[op, p] = value
            slopes[op, p] = -0.5 * value
    elif code == MATERN12:
        for p in span(at, end):
            r = math.sqrt(values[op, p])
            value = exponential(-r)
            values[op, p] = value
            slopes[op, p] = -0.5 * value / r if r > 0.0 else 0.0
    elif code == MATERN32:
        for p in span(at, end):
            r = math.sqrt(3.0 * below_limit(values[op, p]))
            e = exponential(-r)
            values[op, p] = (1.0 + r) * e
            slopes[op, p] = -1.5 * e
    elif code == MATERN52:
        for p in span(at, end):
            r2 = 5.0 * below_limit(values[op, p])
            r = math.sqrt(r2)
            e = exponential(-r)
            values[op, p] = (1.0 + r + r2 / 3.0) * e
            slopes[op, p] = (-5.0 / 6.0) * (1.0 + r) * e
    else:  # RATIONAL_QUADRATIC
        for p in span(at, end):
            base = 1.0 + values[op, p] / (2.0 * alpha)
            value = base ** (-alpha)
            values[op, p] = value
            slopes[op, p] = -0.5 * value / base
    sync()


# Adjoints. Loops with a running total store nothing: see _covariance.


@njit_small
def add_scale_gradient(scale, n_scales, d, amount, d_log):
    """Add a derivative by log length-scale d, the first being number `scale`."""
    slot = scale + (d if n_scales > 1 else 0)
    for at in solo(slot, slot + min(n_scales, 1)):
        d_log[at] += amount


@njit
def pull_scales(inv_scale, scale, n_scales, op, A, rows, B, n, adjoint, at, d_log):
    """Take adjoint[op], the derivatives by r2, back to length-scales."""
    D = A.shape[0]
    for d in range(D % 4):
        first = 0.0
        for i in span(0, rows):
            a, start = A[d, i], at + row_start(i, n)
            for j in range(width(i, n)):
                t = B[d, j] - a
                first += adjoint[op, start + j] * t * t
        first = -2.0 * inv_scale[op, d] ** 2 * total(first)
        add_scale_gradient(scale, n_scales, d, first, d_log)
    for d in range(D % 4, D, 4):
        first = second = third = fourth = 0.0
        for i in span(0, rows):
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
        first = -2.0 * inv_scale[op, d] ** 2 * total(first)
        second = -2.0 * inv_scale[op, d + 1] ** 2 * total(second)
        third = -2.0 * inv_scale[op, d + 2] ** 2 * total(third)
        fourth = -2.0 * inv_scale[op, d + 3] ** 2 * total(fourth)
        add_scale_gradient(scale, n_scales, d, first, d_log)
        add_scale_gradient(scale, n_scales, d + 1, second, d_log)
        add_scale_gradient(scale, n_scales, d + 2, third, d_log)
        add_scale_gradient(scale, n_scales, d + 3, fourth, d_log)
    sync()


@njit
def pull_distances(inv_scale, op, A, rows, B, n, adjoint, at, d_A, d_B):
    """Take adjoint[op], the derivatives by r2, back to coordinates."""
    for d in span(0, A.shape[0]):
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
    sync()


@njit
def pull_alpha(op, values, slopes, adjoint, at, end):
    """Return the derivative by the exponent of RATIONAL_QUADRATIC."""
    by_alpha = 0.0
    for p in span(at, end):
        if slopes[op, p] < 0.0:  # far apart both are zero
            base = -0.5 * values[op, p] / slopes[op, p]
            part = 1.0 - 1.0 / base - math.log(base)
            by_alpha += adjoint[op, p] * values[op, p] * part
    return total(by_alpha)
