"""Kernels of a scaled dot product s on tiles of pairs of points, and their adjoints.

s(x, z) = sigma_0^2 + sum_d x_d z_d / length_scale_d^2; see `program` for the arguments.
"""

import math

from skswsgp._compiled.jit import njit_inner, njit_small
from skswsgp._covariance.pairs import TRIANGLE, pair, pair_range, row_start, width
from skswsgp._covariance.stationary import add_scale_gradient

# Codes of functions of s are FIRST_DOT_PRODUCT and above.
POLYNOMIAL, ARC_COSINE0, ARC_COSINE1 = range(200, 203)
FIRST_DOT_PRODUCT = POLYNOMIAL


@njit_inner
def inner_products(A, rows, B, n, inv_scale, op, sigma2, values, at):
    """Set values[op] to s = sigma2 + sum_d A[d, i] B[d, j] / scale_d^2."""
    for i in range(rows):
        start, columns = at + row_start(i, n), width(i, n)
        for j in range(columns):
            values[op, pair(start, j)] = sigma2
        for d in range(A.shape[0]):
            a = A[d, i] * inv_scale[op, d] ** 2
            for j in range(columns):
                values[op, pair(start, j)] += a * B[d, j]


@njit_small
def inner_product_self(A, i, inv_scale, op, sigma2):
    """Return s(x, x) = sigma2 + |x / scale|^2 of the point x = A[:, i]."""
    product = sigma2
    for d in range(A.shape[0]):
        product += (A[d, i] * inv_scale[op, d]) ** 2
    return product


@njit_inner
def polynomial_profile(degree, op, values, slopes, at, count):
    """Replace s in `values` by s^degree, and set `slopes` to its derivative."""
    for p in pair_range(at, count):
        s = values[op, p]
        slopes[op, p] = degree * s ** (degree - 1.0)
        values[op, p] = s**degree


@njit_inner
def arc_cosine_profile(order, A, rows, B, n, inv_scale, op, sigma2, values, slopes, at):
    """Replace s in `values` by k, and set `slopes` to dk/ds (Cho and Saul, 2009).

    With cos theta = s_xz / sqrt(s_xx s_zz), k is 1 - theta / pi for order 0 and
    sqrt(s_xx s_zz) (sin theta + (pi - theta) cos theta) / pi for order 1.
    """
    for i in range(rows):
        s_row = inner_product_self(A, i, inv_scale, op, sigma2)
        start = at + row_start(i, n)
        for j in range(width(i, n)):
            p = pair(start, j)
            norm = math.sqrt(s_row * inner_product_self(B, j, inv_scale, op, sigma2))
            cosine = values[op, p] / norm if norm > 0.0 else 0.0
            if cosine > 1.0 or (n == TRIANGLE and j == i):
                cosine = 1.0
            elif cosine < -1.0:  # a comparison keeps NaN, which `min` of a GPU loses
                cosine = -1.0
            angle = math.acos(cosine)
            sine = math.sqrt(1.0 - cosine * cosine)
            if order == 0:
                values[op, p] = 1.0 - angle / math.pi
                steep = sine > 1e-7 and norm > 0.0
                slopes[op, p] = 1.0 / (math.pi * sine * norm) if steep else 0.0
            else:
                part = (math.pi - angle) / math.pi
                slopes[op, p] = part
                values[op, p] = norm * (sine / math.pi + part * cosine)


@njit_inner
def fill_dot_products(
    code, degree, extra, A, rows, B, n, inv_scale, op, values, slopes, at
):
    """Set values[op] to k, and slopes[op] to dk/ds; `extra` is sigma_0."""
    sigma2 = extra * extra
    inner_products(A, rows, B, n, inv_scale, op, sigma2, values, at)
    if code == POLYNOMIAL:
        polynomial_profile(degree, op, values, slopes, at, row_start(rows, n))
    else:
        order = code - ARC_COSINE0
        arc_cosine_profile(
            order, A, rows, B, n, inv_scale, op, sigma2, values, slopes, at
        )


@njit_inner
def inner_products_vjp(leaf, A, rows, B, n, adjoint, at, d_log, d_A, d_B, inputs):
    """Add the derivatives by log length-scales and, if `inputs`, by coordinates."""
    inv_scale, slot, op = leaf
    for i in range(rows):
        start = at + row_start(i, n)
        for d in range(A.shape[0]):
            a = A[d, i]
            w = inv_scale[op, d] ** 2
            by_point = 0.0
            for j in range(width(i, n)):
                by_point += adjoint[op, pair(start, j)] * B[d, j]
            if inputs:
                for j in range(min(width(i, n), d_B.shape[1])):
                    d_B[d, j] += w * adjoint[op, pair(start, j)] * a
                d_A[d, i] += w * by_point
            add_scale_gradient(slot, op, d, -2.0 * w * a * by_point, d_log)


@njit_small
def self_product_vjp(leaf, A, i, weight, d_log, d_A, inputs):
    """Add the derivatives of weight s(x, x) by log length-scales and by x = A[:, i]."""
    inv_scale, slot, op = leaf
    for d in range(A.shape[0]):
        by_coordinate = 2.0 * weight * A[d, i] * inv_scale[op, d] ** 2
        if inputs:
            d_A[d, i] += by_coordinate
        add_scale_gradient(slot, op, d, -by_coordinate * A[d, i], d_log)


@njit_inner
def norms_vjp(code, extra, leaf, A, rows, B, n, tile, at, d_log, d_A, d_B, inputs):
    """Add the derivatives that come by s(x, x) and s(z, z), of arc-cosine kernels.

    Their k is homogeneous of degree `order` in the norm of either point, so by Euler's
    theorem dk/ds_xx = (order k - s_xz dk/ds_xz) / (2 s_xx). `tile` holds values, slopes
    and adjoint. Returns the derivative by sigma_0^2.
    """
    inv_scale, _, op = leaf
    values, slopes, adjoint = tile
    inputs_of_B = inputs and d_B.shape[1] > 0
    order, sigma2 = code - ARC_COSINE0, extra * extra
    by_sigma2 = 0.0
    if code == POLYNOMIAL:
        return by_sigma2
    for i in range(rows):
        s_row = inner_product_self(A, i, inv_scale, op, sigma2)
        by_row = 0.0
        for j in range(width(i, n)):
            p = pair(at + row_start(i, n), j)
            product = sigma2
            for d in range(A.shape[0]):
                product += A[d, i] * B[d, j] * inv_scale[op, d] ** 2
            gap = order * values[op, p] - product * slopes[op, p]
            by_log = 0.5 * adjoint[op, p] * gap
            s_column = inner_product_self(B, j, inv_scale, op, sigma2)
            by_column = by_log / s_column if s_column > 0.0 else 0.0
            self_product_vjp(leaf, B, j, by_column, d_log, d_B, inputs_of_B)
            by_sigma2 += by_column
            by_row += by_log
        by_row = by_row / s_row if s_row > 0.0 else 0.0
        self_product_vjp(leaf, A, i, by_row, d_log, d_A, inputs)
        by_sigma2 += by_row
    return by_sigma2
