"""Covariances of one point with many, and their adjoint, for kernels as data.

A `Kernel` is a list of operations in postfix order, each a few integers. Leaves read
the coordinates, inner operations read the results of earlier ones. Compiled code works
row by row: `fill_rows` gives the covariances of points of A with points of B, and
`pull_rows` takes the derivatives of an objective by these covariances back to the
logarithms of the parameters and to the coordinates. Coordinates are stored with one
column a point, (n_features, n_points), so that the loop over points is contiguous.
"""

import math
from typing import NamedTuple

import numpy as np

from skswsgp._jit import njit, njit_inline, njit_small

# Leaves
CONSTANT, WHITE = 0, 1
RBF, MATERN12, MATERN32, MATERN52, RATIONAL_QUADRATIC = 2, 3, 4, 5, 6
POLYNOMIAL, ARC_COSINE0, ARC_COSINE1 = 7, 8, 9
# Operations on earlier results
SCALE, SUM, PRODUCT, POWER = 10, 11, 12, 13

TRIANGLE = 0  # instead of a number of columns: the lower triangle


class Kernel(NamedTuple):
    """A kernel as data; the arrays of integers have one entry an operation."""

    code: np.ndarray  # which operation
    left: np.ndarray  # index of the first operand, an earlier operation
    right: np.ndarray  # index of the second operand
    extra: np.ndarray  # index of the parameter besides the length-scales, or -1
    scale: np.ndarray  # index of the first length-scale
    n_scales: np.ndarray  # 0, 1 or n_features length-scales
    exponent: np.ndarray  # exponent of POWER, degree of POLYNOMIAL
    params: np.ndarray  # (P,) parameters, natural scale; they change while training
    inv_scale: np.ndarray  # (n_ops, D) 1 / length-scale; `refresh` follows params


class Tile(NamedTuple):
    """Results of every operation on rows of pairs of points, and scratch.

    Functions that ask for a tile take a `Work` (see _state) as well.
    """

    values: np.ndarray  # (n_ops, rows, columns); the last operation is the covariance
    slopes: np.ndarray  # (n_ops, rows, columns) derivative of leaves, see `fill_rows`
    weights: np.ndarray  # (rows, columns) derivatives by the covariances
    adjoint: np.ndarray  # (n_ops, columns) scratch
    by_scale: np.ndarray  # (n_ops, D, columns) scratch


@njit
def refresh(kernel):
    """Set kernel.inv_scale from kernel.params."""
    for op in range(kernel.inv_scale.shape[0]):
        for d in range(kernel.inv_scale.shape[1]):
            if kernel.n_scales[op] == 0:
                kernel.inv_scale[op, d] = 1.0
            else:
                index = kernel.scale[op] + (d if kernel.n_scales[op] > 1 else 0)
                kernel.inv_scale[op, d] = 1.0 / kernel.params[index]


@njit_small
def exp_negative(x):
    """exp(x) for x <= 0 to 4e-14, in arithmetic that the compiler can vectorise."""
    x = -700.0 if x < -700.0 else x
    exponent = math.floor(x * 1.4426950408889634 + 0.5)
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


# Leaves. `values`, `slopes` (n_ops, rows, columns) are indexed in place: a view of a
# row would cost more than the arithmetic on it.


@njit_small
def squared_distances(A, i, B, n, inv_scale, op, values, row):
    """values[op, row, j] = sum_d ((A[d, i] - B[d, j]) / scale_d)^2."""
    for j in range(n):
        values[op, row, j] = 0.0
    for d in range(A.shape[0]):
        a = A[d, i]
        w = inv_scale[op, d]
        for j in range(n):
            t = (B[d, j] - a) * w
            values[op, row, j] += t * t


@njit_small
def below_limit(r2):
    """At most 1e10, where a covariance is zero: an infinity would make it NaN."""
    return 1e10 if r2 > 1e10 else r2


@njit_small
def stationary_profile(code, alpha, n, op, values, slopes, row):
    """Replace r2 in `values` by k(r2) and put dk/dr2 into `slopes`."""
    if code == RBF:
        for j in range(n):
            value = exp_negative(-0.5 * values[op, row, j])
            values[op, row, j] = value
            slopes[op, row, j] = -0.5 * value
    elif code == MATERN12:
        for j in range(n):
            r = math.sqrt(values[op, row, j])
            value = exp_negative(-r)
            values[op, row, j] = value
            slopes[op, row, j] = -0.5 * value / r if r > 0.0 else 0.0
    elif code == MATERN32:
        for j in range(n):
            r = math.sqrt(3.0 * below_limit(values[op, row, j]))
            e = exp_negative(-r)
            values[op, row, j] = (1.0 + r) * e
            slopes[op, row, j] = -1.5 * e
    elif code == MATERN52:
        for j in range(n):
            r2 = 5.0 * below_limit(values[op, row, j])
            r = math.sqrt(r2)
            e = exp_negative(-r)
            values[op, row, j] = (1.0 + r + r2 / 3.0) * e
            slopes[op, row, j] = (-5.0 / 6.0) * (1.0 + r) * e
    else:  # RATIONAL_QUADRATIC
        for j in range(n):
            base = 1.0 + values[op, row, j] / (2.0 * alpha)
            value = base ** (-alpha)
            values[op, row, j] = value
            slopes[op, row, j] = -0.5 * value / base


@njit_small
def inner_products(A, i, B, n, inv_scale, op, sigma2, values, row):
    """values[op, row, j] = sigma_0^2 + sum_d A[d, i] B[d, j] / scale_d^2."""
    for j in range(n):
        values[op, row, j] = sigma2
    for d in range(A.shape[0]):
        a = A[d, i] * inv_scale[op, d] * inv_scale[op, d]
        for j in range(n):
            values[op, row, j] += a * B[d, j]


@njit_small
def inner_product_self(A, i, inv_scale, op, sigma2):
    """sigma_0^2 + |A[:, i] / scale|^2."""
    total = sigma2
    for d in range(A.shape[0]):
        total += (A[d, i] * inv_scale[op, d]) ** 2
    return total


@njit_small
def arc_cosine_profile(
    code, A, i, B, n, same, inv_scale, op, sigma2, values, slopes, row
):
    """Replace s in `values` by k and put dk/ds into `slopes` (Cho and Saul, 2009).

    k = 1 - theta/pi (order 0), sqrt(s_xx s_zz) (sin theta + (pi - theta) cos theta)/pi
    (order 1), where cos theta = s_xz / sqrt(s_xx s_zz).
    """
    s_row = inner_product_self(A, i, inv_scale, op, sigma2)
    for j in range(n):
        norm = math.sqrt(s_row * inner_product_self(B, j, inv_scale, op, sigma2))
        cosine = values[op, row, j] / norm if norm > 0.0 else 0.0
        cosine = 1.0 if j == same else min(1.0, max(-1.0, cosine))
        angle = math.acos(cosine)
        sine = math.sqrt(1.0 - cosine * cosine)
        if code == ARC_COSINE0:
            values[op, row, j] = 1.0 - angle / math.pi
            steep = sine > 1e-7 and norm > 0.0
            slopes[op, row, j] = 1.0 / (math.pi * sine * norm) if steep else 0.0
        else:
            part = (math.pi - angle) / math.pi
            slopes[op, row, j] = part
            values[op, row, j] = norm * (sine / math.pi + part * cosine)


@njit_inline
def fill_rows(kernel, A, first, last, B, n, tile, row):
    """tile.values[op, row + i, j] = each operation for points A[:, i] and B[:, j].

    i runs from first to last - 1, j to n - 1; with n = TRIANGLE, j runs to i, A is B,
    and j = i is the same point. tile.slopes keeps the derivative of each leaf by its
    squared distance or inner product.
    """
    for i in range(first, last):
        if n == TRIANGLE:
            fill_row(kernel, A, i, B, i + 1, i, tile.values, tile.slopes, row + i)
        else:
            fill_row(kernel, A, i, B, n, -1, tile.values, tile.slopes, row + i)


@njit_inline
def fill_row(kernel, A, i, B, n, same, values, slopes, row):
    """One row of `fill_rows`; `same` is the j that is the same point as i, or -1."""
    scales = kernel.inv_scale
    for op in range(kernel.code.shape[0]):
        code = kernel.code[op]
        extra = kernel.params[kernel.extra[op]] if kernel.extra[op] >= 0 else 0.0
        if code == CONSTANT:
            for j in range(n):
                values[op, row, j] = extra
        elif code == WHITE:
            for j in range(n):
                values[op, row, j] = extra if j == same else 0.0
        elif code <= RATIONAL_QUADRATIC:
            squared_distances(A, i, B, n, scales, op, values, row)
            stationary_profile(code, extra, n, op, values, slopes, row)
        elif code == POLYNOMIAL:
            inner_products(A, i, B, n, scales, op, extra * extra, values, row)
            degree = kernel.exponent[op]
            for j in range(n):
                s = values[op, row, j]
                slopes[op, row, j] = degree * s ** (degree - 1.0)
                values[op, row, j] = s**degree
        elif code <= ARC_COSINE1:
            sigma2 = extra * extra
            inner_products(A, i, B, n, scales, op, sigma2, values, row)
            arc_cosine_profile(
                code, A, i, B, n, same, scales, op, sigma2, values, slopes, row
            )
        else:
            left, right = kernel.left[op], kernel.right[op]
            exponent = kernel.exponent[op]
            combine(code, left, right, exponent, op, extra, n, values, row)


@njit_small
def combine(code, left, right, exponent, op, extra, n, values, row):
    """Apply an operation on the results of `left` and `right`."""
    if code == SCALE:
        for j in range(n):
            values[op, row, j] = extra * values[left, row, j]
    elif code == SUM:
        for j in range(n):
            values[op, row, j] = values[left, row, j] + values[right, row, j]
    elif code == PRODUCT:
        for j in range(n):
            values[op, row, j] = values[left, row, j] * values[right, row, j]
    else:  # POWER
        for j in range(n):
            values[op, row, j] = values[left, row, j] ** exponent


@njit_small
def add_scale_gradient(scale, n_scales, d, amount, d_log):
    """Add a derivative by log length-scale d, the first being number `scale`."""
    if n_scales > 0:
        d_log[scale + (d if n_scales > 1 else 0)] += amount


@njit_small
def pull_distances(inv_scale, op, A, i, B, n, weight, by_scale, d_A, d_B, inputs):
    """Take weight[op] = d objective / d r2 back to length-scales and coordinates.

    by_scale collects the sum over j column by column, because short loops without a
    running total are vectorised and those with one are not.
    """
    for d in range(A.shape[0]):
        a = A[d, i]
        w = inv_scale[op, d]
        for j in range(n):
            t = (B[d, j] - a) * w
            by_scale[op, d, j] += weight[op, j] * t * t
        if inputs:
            by_point = 0.0
            for j in range(n):
                pull = 2.0 * w * w * weight[op, j] * (B[d, j] - a)
                by_point += pull
                d_B[d, j] += pull
            d_A[d, i] -= by_point


@njit_inline
def clear_scales(kernel, tile, n):
    """Set the sums of `pull_distances` to zero."""
    for op in range(kernel.code.shape[0]):
        if RBF <= kernel.code[op] <= RATIONAL_QUADRATIC:
            for d in range(kernel.inv_scale.shape[1]):
                for j in range(n):
                    tile.by_scale[op, d, j] = 0.0


@njit_inline
def add_scales(kernel, tile, n, d_log):
    """Add the sums of `pull_distances` to the derivatives by log length-scales."""
    for op in range(kernel.code.shape[0]):
        if RBF <= kernel.code[op] <= RATIONAL_QUADRATIC:
            for d in range(kernel.inv_scale.shape[1]):
                total = 0.0
                for j in range(n):
                    total += tile.by_scale[op, d, j]
                scale, n_scales = kernel.scale[op], kernel.n_scales[op]
                add_scale_gradient(scale, n_scales, d, -2.0 * total, d_log)


@njit_small
def pull_products(inv_scale, scale, n_scales, op, A, i, B, n, weight, d_log, d_A, d_B):
    """Take weight[op] = d objective / d s back to length-scales and coordinates."""
    for d in range(A.shape[0]):
        a = A[d, i]
        w = inv_scale[op, d] ** 2
        by_point = 0.0
        for j in range(n):
            by_point += weight[op, j] * B[d, j]
            d_B[d, j] += w * weight[op, j] * a
        d_A[d, i] += w * by_point
        add_scale_gradient(scale, n_scales, d, -2.0 * w * a * by_point, d_log)


@njit_small
def pull_self_product(inv_scale, scale, n_scales, op, A, i, weight, d_log, d_A):
    """Take weight = d objective / d s(x, x) back likewise, x = A[:, i]."""
    for d in range(A.shape[0]):
        pull = 2.0 * weight * A[d, i] * inv_scale[op, d] ** 2
        d_A[d, i] += pull
        add_scale_gradient(scale, n_scales, d, -pull * A[d, i], d_log)


@njit
def pull_norms(order, sigma2, scaling, A, i, B, n, tile, d_log, d_A, d_B):
    """Adjoint of an arc-cosine leaf with respect to s(x, x) and s(z, z).

    k is homogeneous of degree `order` in the norm of either point, so by Euler's
    theorem dk/ds_xx = (order k - s_xz dk/ds_xz) / (2 s_xx). `tile` holds rows of
    values, slopes and adjoints, `scaling` the length-scales and where their derivatives
    go. Returns the derivative by sigma_0^2.
    """
    inv_scale, scale, n_scales, op = scaling
    values, slopes, adjoint = tile
    s_row = inner_product_self(A, i, inv_scale, op, sigma2)
    by_row = 0.0
    by_sigma = 0.0
    for j in range(n):
        product = sigma2
        for d in range(A.shape[0]):
            product += A[d, i] * B[d, j] * inv_scale[op, d] ** 2
        pull = 0.5 * adjoint[j] * (order * values[j] - product * slopes[j])
        s_column = inner_product_self(B, j, inv_scale, op, sigma2)
        by_column = pull / s_column if s_column > 0.0 else 0.0
        pull_self_product(inv_scale, scale, n_scales, op, B, j, by_column, d_log, d_B)
        by_sigma += by_column
        by_row += pull
    by_row = by_row / s_row if s_row > 0.0 else 0.0
    pull_self_product(inv_scale, scale, n_scales, op, A, i, by_row, d_log, d_A)
    return by_sigma + by_row


@njit_small
def pull_combination(code, left, right, exponent, op, extra, n, adjoint, values, row):
    """Adjoint of `combine` for the operands; returns the one by log `extra`."""
    total = 0.0
    if code == SCALE:
        for j in range(n):
            total += adjoint[op, j] * values[op, row, j]
            adjoint[left, j] = extra * adjoint[op, j]
    elif code == SUM:
        for j in range(n):
            adjoint[left, j] = adjoint[op, j]
            adjoint[right, j] = adjoint[op, j]
    elif code == PRODUCT:
        for j in range(n):
            adjoint[left, j] = adjoint[op, j] * values[right, row, j]
            adjoint[right, j] = adjoint[op, j] * values[left, row, j]
    else:  # POWER
        for j in range(n):
            slope = exponent * values[left, row, j] ** (exponent - 1.0)
            adjoint[left, j] = adjoint[op, j] * slope
    return total


@njit_inline
def pull_rows(kernel, A, first, last, B, n, tile, row, d_log, d_A, d_B, inputs):
    """Adjoint of `fill_rows` for the derivatives in tile.weights.

    Derivatives are added to `d_log` (by the logarithms of the parameters) and, when
    `inputs` is true, to `d_A` and `d_B` (shaped like A and B; they may be one array).
    """
    top = kernel.code.shape[0] - 1
    width = last if n == TRIANGLE else n
    clear_scales(kernel, tile, width)
    for i in range(first, last):
        columns = i + 1 if n == TRIANGLE else n
        same = i if n == TRIANGLE else -1
        for j in range(columns):
            tile.adjoint[top, j] = tile.weights[row + i, j]
        pull_row(kernel, A, i, B, columns, same, tile, row + i, d_log, d_A, d_B, inputs)
    add_scales(kernel, tile, width, d_log)


@njit_inline
def pull_row(kernel, A, i, B, n, same, tile, row, d_log, d_A, d_B, inputs):
    """Adjoint of `fill_row` for the derivatives in the last row of tile.adjoint."""
    adjoint, slopes, scales = tile.adjoint, tile.slopes, kernel.inv_scale
    for op in range(kernel.code.shape[0] - 1, -1, -1):
        code, at = kernel.code[op], kernel.extra[op]
        first, count = kernel.scale[op], kernel.n_scales[op]
        extra = kernel.params[at] if at >= 0 else 0.0
        total = 0.0
        if code == CONSTANT:
            for j in range(n):
                total += adjoint[op, j]
            d_log[at] += extra * total
        elif code == WHITE:
            if same >= 0:
                d_log[at] += extra * adjoint[op, same]
        elif code <= RATIONAL_QUADRATIC:
            if code == RATIONAL_QUADRATIC:
                for j in range(n):
                    value = tile.values[op, row, j]
                    if slopes[op, row, j] < 0.0:  # far apart both are zero
                        base = -0.5 * value / slopes[op, row, j]
                        part = 1.0 - 1.0 / base - math.log(base)
                        total += adjoint[op, j] * value * part
                d_log[at] += extra * total
            for j in range(n):
                adjoint[op, j] *= slopes[op, row, j]
            sums = tile.by_scale
            pull_distances(scales, op, A, i, B, n, adjoint, sums, d_A, d_B, inputs)
        elif code <= ARC_COSINE1:
            sigma2 = extra * extra
            if code != POLYNOMIAL:
                order = code - ARC_COSINE0
                own = tile.values[op, row], slopes[op, row], adjoint[op]
                scaling = scales, first, count, op
                total += pull_norms(
                    order, sigma2, scaling, A, i, B, n, own, d_log, d_A, d_B
                )
            for j in range(n):
                adjoint[op, j] *= slopes[op, row, j]
                total += adjoint[op, j]
            d_log[at] += 2.0 * sigma2 * total
            pull_products(
                scales, first, count, op, A, i, B, n, adjoint, d_log, d_A, d_B
            )
        else:
            left, right = kernel.left[op], kernel.right[op]
            e, values = kernel.exponent[op], tile.values
            total = pull_combination(
                code, left, right, e, op, extra, n, adjoint, values, row
            )
            if code == SCALE:
                d_log[at] += total
