"""Kernels of a scaled distance r on tiles of pairs of points, and their adjoints.

A new kernel has a code and a branch in `stationary_profile`; see `program` for the
arguments. Loops over features take four at a time: with few points a row of a tile is
so short that the start of a loop over it costs more than a feature.
"""

import math

from skswsgp._compiled.jit import njit_inner, njit_small
from skswsgp._compiled.special import exponential
from skswsgp._covariance.pairs import pair, pair_range, row_start, width

# Codes of functions of r are FIRST_DISTANCE and above, below FIRST_DOT_PRODUCT; that of
# ExpSineSquared, whose scale is the period, is PERIODIC.
RBF, MATERN12, MATERN32, MATERN52, RATIONAL_QUADRATIC, PERIODIC = range(100, 106)
FIRST_DISTANCE = RBF
FARTHEST = 1e30  # squared distance in periods, far beyond the last digit of a phase


@njit_inner
def squared_distances(A, rows, B, n, inv_scale, op, values, at):
    """Set values[op] to r2 = sum_d ((A[d, i] - B[d, j]) / scale_d)^2."""
    D = A.shape[0]
    for i in range(rows):
        start, columns = at + row_start(i, n), width(i, n)
        for j in range(columns):
            values[op, pair(start, j)] = 0.0
        for d in range(D % 4):
            a, w = A[d, i], inv_scale[op, d]
            for j in range(columns):
                t = (B[d, j] - a) * w
                values[op, pair(start, j)] += t * t
        for d in range(D % 4, D, 4):
            a, b, c, e = A[d, i], A[d + 1, i], A[d + 2, i], A[d + 3, i]
            w, x = inv_scale[op, d], inv_scale[op, d + 1]
            y, z = inv_scale[op, d + 2], inv_scale[op, d + 3]
            for j in range(columns):
                s, t = (B[d, j] - a) * w, (B[d + 1, j] - b) * x
                u, v = (B[d + 2, j] - c) * y, (B[d + 3, j] - e) * z
                values[op, pair(start, j)] += s * s + t * t + u * u + v * v


@njit_small
def clip_distance(r2):
    """Return r2, or 1e10 if it is larger: k is zero there, and infinity gives NaN."""
    return 1e10 if r2 > 1e10 else r2


@njit_inner
def stationary_profile(code, extra, op, values, slopes, at, count):
    """Replace r2 in `values` by k(r2), and set `slopes` to dk/dr2; see `extra_vjp`."""
    if code == RBF:
        for p in pair_range(at, count):
            value = exponential(-0.5 * values[op, p])
            values[op, p] = value
            slopes[op, p] = -0.5 * value
    elif code == MATERN12:
        for p in pair_range(at, count):
            r = math.sqrt(values[op, p])
            value = exponential(-r)
            values[op, p] = value
            slopes[op, p] = -0.5 * value / r if r > 0.0 else 0.0
    elif code == MATERN32:
        for p in pair_range(at, count):
            r = math.sqrt(3.0 * clip_distance(values[op, p]))
            e = exponential(-r)
            values[op, p] = (1.0 + r) * e
            slopes[op, p] = -1.5 * e
    elif code == MATERN52:
        for p in pair_range(at, count):
            r2 = 5.0 * clip_distance(values[op, p])
            r = math.sqrt(r2)
            e = exponential(-r)
            values[op, p] = (1.0 + r + r2 / 3.0) * e
            slopes[op, p] = (-5.0 / 6.0) * (1.0 + r) * e
    elif code == PERIODIC:
        weight = 2.0 / (extra * extra)
        for p in pair_range(at, count):
            r2 = values[op, p]
            r = math.sqrt(FARTHEST if r2 > FARTHEST else r2)
            phase = math.pi * (r - math.floor(r))  # less than half a turn
            sine = math.sin(phase)
            value = exponential(-weight * sine * sine)
            values[op, p] = value
            ratio = sine * math.cos(phase) / r if r > 0.0 else math.pi
            slopes[op, p] = -weight * math.pi * ratio * value
    else:  # RATIONAL_QUADRATIC
        for p in pair_range(at, count):
            base = 1.0 + values[op, p] / (2.0 * extra)
            value = base ** (-extra)
            values[op, p] = value
            slopes[op, p] = -0.5 * value / base


@njit_small
def add_scale_gradient(slot, op, d, amount, d_log):
    """Add `amount` to the derivative by the log parameter of column d, if any."""
    if slot[op, d] >= 0:
        d_log[slot[op, d]] += amount


@njit_inner
def length_scales_vjp(leaf, A, rows, B, n, adjoint, at, d_log):
    """Add to d_log the derivatives by log length-scales, from adjoint[op] by r2.

    `leaf` holds `inv_scale` and `slot` of the kernel, and op.
    """
    inv_scale, slot, op = leaf
    D = A.shape[0]
    for d in range(D % 4):
        first = 0.0
        for i in range(rows):
            a, start = A[d, i], at + row_start(i, n)
            for j in range(width(i, n)):
                t = B[d, j] - a
                first += adjoint[op, pair(start, j)] * t * t
        first = -2.0 * inv_scale[op, d] ** 2 * first
        add_scale_gradient(slot, op, d, first, d_log)
    for d in range(D % 4, D, 4):
        first = second = third = fourth = 0.0
        for i in range(rows):
            a, b, c, e = A[d, i], A[d + 1, i], A[d + 2, i], A[d + 3, i]
            start = at + row_start(i, n)
            for j in range(width(i, n)):
                weight = adjoint[op, pair(start, j)]
                s, t = B[d, j] - a, B[d + 1, j] - b
                u, v = B[d + 2, j] - c, B[d + 3, j] - e
                first += weight * s * s
                second += weight * t * t
                third += weight * u * u
                fourth += weight * v * v
        sums = first, second, third, fourth
        for k in range(4):
            first = -2.0 * inv_scale[op, d + k] ** 2 * sums[k]
            add_scale_gradient(slot, op, d + k, first, d_log)


@njit_inner
def distances_vjp(leaf, A, rows, B, n, adjoint, at, d_A, d_B):
    """Add to d_A and d_B the derivatives by coordinates, from adjoint[op] by r2.

    Those by B are left out where d_B has no columns.
    """
    inv_scale, _, op = leaf
    for d in range(A.shape[0]):
        w = 2.0 * inv_scale[op, d] ** 2
        for i in range(rows):
            a = A[d, i]
            start = at + row_start(i, n)
            by_point = 0.0
            for j in range(width(i, n)):
                by_point += adjoint[op, pair(start, j)] * (B[d, j] - a)
            for j in range(min(width(i, n), d_B.shape[1])):
                d_B[d, j] += w * adjoint[op, pair(start, j)] * (B[d, j] - a)
            d_A[d, i] -= w * by_point


@njit_inner
def extra_vjp(code, extra, op, values, slopes, adjoint, at, count):
    """Return the derivative by `extra`, the parameter besides the length-scales."""
    by_extra = 0.0
    if code == RATIONAL_QUADRATIC:
        for p in pair_range(at, count):
            if slopes[op, p] < 0.0:  # far apart, k and its slope are zero
                base = -0.5 * values[op, p] / slopes[op, p]
                part = 1.0 - 1.0 / base - math.log(base)
                by_extra += adjoint[op, p] * values[op, p] * part
    elif code == PERIODIC:
        for p in pair_range(at, count):
            k = values[op, p]  # its logarithm is -2 (sine / extra)^2
            if k > 0.0:
                by_extra -= adjoint[op, p] * k * math.log(k) * (2.0 / extra)
    return by_extra
