"""Covariances of points with points, and their adjoint, for kernels as data.

A `Kernel` is a list of operations in postfix order, each a few integers. Leaves read
the coordinates, inner operations read the results of earlier ones. An operation is
applied to a whole tile of pairs of points: `fill_tile` gives the covariances of points
of A with points of B, and `pull_tile` takes the derivatives of an objective by these
covariances back to the logarithms of the parameters and to the coordinates.

A tile is one row of numbers, pairs (i, j) in order: a rectangle has j < n, a triangle
(n = TRIANGLE, A is B) has j <= i, where j = i is the same point. Most operations need
not know which. Coordinates are stored with one column a point, (n_features, n_points),
so that the loop over points is contiguous.
"""

import math
from typing import NamedTuple

import numpy as np

from skswsgp._jit import njit, njit_inline, njit_small
from skswsgp._lanes import solo, span, sync, total
from skswsgp._stationary import (
    RATIONAL_QUADRATIC,
    RBF,
    TRIANGLE,
    add_scale_gradient,
    pull_alpha,
    pull_distances,
    pull_scales,
    row_start,
    squared_distances,
    stationary_profile,
    width,
)

# Leaves
CONSTANT, WHITE = 0, 1
# 2 .. 6 are those of _stationary
POLYNOMIAL, ARC_COSINE0, ARC_COSINE1 = 7, 8, 9
# Operations on earlier results
SCALE, SUM, PRODUCT, POWER = 10, 11, 12, 13


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
    """Results of every operation on the pairs of points of tiles.

    Functions that ask for a tile take a `Work` (see _state) as well.
    """

    values: np.ndarray  # (n_ops, pairs); the last operation is the covariance
    slopes: np.ndarray  # (n_ops, pairs) derivative of leaves, see `fill_tile`
    adjoint: np.ndarray  # (n_ops, pairs) derivatives of the objective by `values`


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


# Leaves. `values`, `slopes`, `adjoint` (n_ops, pairs) are indexed in place: a view of a
# row would cost more than the arithmetic on it. `at` is the first pair.


@njit
def inner_products(A, rows, B, n, inv_scale, op, sigma2, values, at):
    """values[op, at + ...] = sigma_0^2 + sum_d A[d, i] B[d, j] / scale_d^2."""
    for i in span(0, rows):
        start, columns = at + row_start(i, n), width(i, n)
        for j in range(columns):
            values[op, start + j] = sigma2
        for d in range(A.shape[0]):
            a = A[d, i] * inv_scale[op, d] ** 2
            for j in range(columns):
                values[op, start + j] += a * B[d, j]
    sync()


@njit_small
def inner_product_self(A, i, inv_scale, op, sigma2):
    """sigma_0^2 + |A[:, i] / scale|^2."""
    product = sigma2
    for d in range(A.shape[0]):
        product += (A[d, i] * inv_scale[op, d]) ** 2
    return product


@njit
def polynomial_profile(degree, op, values, slopes, at, end):
    """Replace s in `values` by s^degree and put its derivative into `slopes`."""
    for p in span(at, end):
        s = values[op, p]
        slopes[op, p] = degree * s ** (degree - 1.0)
        values[op, p] = s**degree
    sync()


@njit
def arc_cosine_profile(order, A, rows, B, n, inv_scale, op, sigma2, values, slopes, at):
    """Replace s in `values` by k and put dk/ds into `slopes` (Cho and Saul, 2009).

    k = 1 - theta/pi (order 0), sqrt(s_xx s_zz) (sin theta + (pi - theta) cos theta)/pi
    (order 1), where cos theta = s_xz / sqrt(s_xx s_zz).
    """
    for i in span(0, rows):
        s_row = inner_product_self(A, i, inv_scale, op, sigma2)
        start = at + row_start(i, n)
        for j in range(width(i, n)):
            p = start + j
            norm = math.sqrt(s_row * inner_product_self(B, j, inv_scale, op, sigma2))
            cosine = values[op, p] / norm if norm > 0.0 else 0.0
            same = n == TRIANGLE and j == i
            cosine = 1.0 if same else min(1.0, max(-1.0, cosine))
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
    sync()


@njit
def white_profile(variance, rows, n, op, values, at):
    """values[op, at + ...] = variance for a point with itself, else 0."""
    for p in span(at, at + row_start(rows, n)):
        values[op, p] = 0.0
    sync()
    if n == TRIANGLE:
        for i in span(0, rows):
            values[op, at + row_start(i + 1, n) - 1] = variance
    sync()


@njit
def combine(code, left, right, exponent, op, extra, values, at, end):
    """Apply an operation on the results of `left` and `right`; CONSTANT has none."""
    if code == CONSTANT:
        for p in span(at, end):
            values[op, p] = extra
    elif code == SCALE:
        for p in span(at, end):
            values[op, p] = extra * values[left, p]
    elif code == SUM:
        for p in span(at, end):
            values[op, p] = values[left, p] + values[right, p]
    elif code == PRODUCT:
        for p in span(at, end):
            values[op, p] = values[left, p] * values[right, p]
    else:  # POWER
        for p in span(at, end):
            values[op, p] = values[left, p] ** exponent
    sync()


@njit_inline
def fill_tile(kernel, A, rows, B, n, values, slopes, at):
    """values[op, at + ...] = each operation for the first points of A and B.

    `slopes` keeps the derivative of each leaf by its squared distance or product.
    """
    scales, end = kernel.inv_scale, at + row_start(rows, n)
    for op in range(kernel.code.shape[0]):
        code, exponent = kernel.code[op], kernel.exponent[op]
        left, right = kernel.left[op], kernel.right[op]
        extra = kernel.params[kernel.extra[op]] if kernel.extra[op] >= 0 else 0.0
        if code == WHITE:
            white_profile(extra, rows, n, op, values, at)
        elif RBF <= code <= RATIONAL_QUADRATIC:
            squared_distances(A, rows, B, n, scales, op, values, at)
            stationary_profile(code, extra, op, values, slopes, at, end)
        elif POLYNOMIAL <= code <= ARC_COSINE1:
            sigma2 = extra * extra
            inner_products(A, rows, B, n, scales, op, sigma2, values, at)
            if code == POLYNOMIAL:
                polynomial_profile(exponent, op, values, slopes, at, end)
            else:
                order = code - ARC_COSINE0
                arc_cosine_profile(
                    order, A, rows, B, n, scales, op, sigma2, values, slopes, at
                )
        else:
            combine(code, left, right, exponent, op, extra, values, at, end)


# Adjoints. Loops with a running total store nothing: whether the compiler runs such a
# loop in vectors, and so the order of the sum, could depend on where arrays lie.


@njit
def sum_adjoint(op, adjoint, at, end):
    """Return the sum of adjoint[op]."""
    amount = 0.0
    for p in span(at, end):
        amount += adjoint[op, p]
    return total(amount)


@njit
def pull_profile(op, slopes, adjoint, at, end):
    """Make adjoint[op], the derivatives by k, those by r2 or s."""
    for p in span(at, end):
        adjoint[op, p] *= slopes[op, p]
    sync()


@njit
def pull_products(leaf, A, rows, B, n, adjoint, at, d_log, d_A, d_B, inputs):
    """Take adjoint[op], the derivatives by s, back to length-scales and coordinates.

    `leaf` holds the inverse length-scales, where their derivatives go (first, number),
    and the operation.
    """
    inv_scale, scale, n_scales, op = leaf
    for i in solo(0, rows):
        start = at + row_start(i, n)
        for d in range(A.shape[0]):
            a = A[d, i]
            w = inv_scale[op, d] ** 2
            by_point = 0.0
            for j in range(width(i, n)):
                by_point += adjoint[op, start + j] * B[d, j]
            if inputs:
                for j in range(width(i, n)):
                    d_B[d, j] += w * adjoint[op, start + j] * a
                d_A[d, i] += w * by_point
            add_scale_gradient(scale, n_scales, d, -2.0 * w * a * by_point, d_log)
    sync()


@njit_small
def pull_self_product(leaf, A, i, weight, d_log, d_A, inputs):
    """Take weight = d objective / d s(x, x) back likewise, x = A[:, i]."""
    inv_scale, scale, n_scales, op = leaf
    for d in range(A.shape[0]):
        pull = 2.0 * weight * A[d, i] * inv_scale[op, d] ** 2
        if inputs:
            d_A[d, i] += pull
        add_scale_gradient(scale, n_scales, d, -pull * A[d, i], d_log)


@njit
def pull_norms(order, sigma2, leaf, A, rows, B, n, tile, at, d_log, d_A, d_B, inputs):
    """Adjoint of an arc-cosine leaf with respect to s(x, x) and s(z, z).

    k is homogeneous of degree `order` in the norm of either point, so by Euler's
    theorem dk/ds_xx = (order k - s_xz dk/ds_xz) / (2 s_xx). `tile` holds the three
    arrays of a Tile. Returns the derivative by sigma_0^2.
    """
    inv_scale, _, _, op = leaf
    values, slopes, adjoint = tile
    by_sigma2 = 0.0
    for i in solo(0, rows):
        s_row = inner_product_self(A, i, inv_scale, op, sigma2)
        by_row = 0.0
        for j in range(width(i, n)):
            p = at + row_start(i, n) + j
            product = sigma2
            for d in range(A.shape[0]):
                product += A[d, i] * B[d, j] * inv_scale[op, d] ** 2
            gap = order * values[op, p] - product * slopes[op, p]
            pull = 0.5 * adjoint[op, p] * gap
            s_column = inner_product_self(B, j, inv_scale, op, sigma2)
            by_column = pull / s_column if s_column > 0.0 else 0.0
            pull_self_product(leaf, B, j, by_column, d_log, d_B, inputs)
            by_sigma2 += by_column
            by_row += pull
        by_row = by_row / s_row if s_row > 0.0 else 0.0
        pull_self_product(leaf, A, i, by_row, d_log, d_A, inputs)
        by_sigma2 += by_row
    return total(by_sigma2)


@njit
def pull_white(rows, n, op, adjoint, at):
    """Return the derivative by the variance of WHITE."""
    amount = 0.0
    if n == TRIANGLE:
        for i in span(0, rows):
            amount += adjoint[op, at + row_start(i + 1, n) - 1]
    return total(amount)


@njit
def pull_combination(code, left, right, exponent, op, extra, values, adjoint, at, end):
    """Adjoint of `combine` for the operands; returns the one by log `extra`."""
    amount = 0.0
    if code == SCALE:
        for p in span(at, end):
            amount += adjoint[op, p] * values[op, p]
        for p in span(at, end):
            adjoint[left, p] = extra * adjoint[op, p]
    elif code == SUM:
        for p in span(at, end):
            adjoint[left, p] = adjoint[op, p]
            adjoint[right, p] = adjoint[op, p]
    elif code == PRODUCT:
        for p in span(at, end):
            adjoint[left, p] = adjoint[op, p] * values[right, p]
            adjoint[right, p] = adjoint[op, p] * values[left, p]
    else:  # POWER
        for p in span(at, end):
            base = values[left, p]  # zero far away: a root has no slope there
            slope = (
                exponent * base ** (exponent - 1.0)
                if base != 0.0 or exponent >= 1.0
                else 0.0
            )
            adjoint[left, p] = adjoint[op, p] * slope
    sync()
    return total(amount)


@njit_inline
def pull_tile(kernel, A, rows, B, n, tile, at, d_log, d_A, d_B, inputs):
    """Adjoint of `fill_tile` for the derivatives in tile.adjoint[-1].

    Derivatives are added to `d_log` (by the logarithms of the parameters) and, when
    `inputs` is true, to `d_A` and `d_B` (shaped like A and B; they may be one array).
    The adjoints are overwritten.
    """
    values, slopes, adjoint = tile.values, tile.slopes, tile.adjoint
    scales, end = kernel.inv_scale, at + row_start(rows, n)
    for op in range(kernel.code.shape[0] - 1, -1, -1):
        code, slot, power = kernel.code[op], kernel.extra[op], kernel.exponent[op]
        first, count = kernel.scale[op], kernel.n_scales[op]
        left, right = kernel.left[op], kernel.right[op]
        extra = kernel.params[slot] if slot >= 0 else 0.0
        by_log = 0.0
        if code == CONSTANT:
            by_log = extra * sum_adjoint(op, adjoint, at, end)
        elif code == WHITE:
            by_log = extra * pull_white(rows, n, op, adjoint, at)
        elif code <= RATIONAL_QUADRATIC:
            if code == RATIONAL_QUADRATIC:
                by_log = extra * pull_alpha(op, values, slopes, adjoint, at, end)
            pull_profile(op, slopes, adjoint, at, end)
            pull_scales(scales, first, count, op, A, rows, B, n, adjoint, at, d_log)
            if inputs:
                pull_distances(scales, op, A, rows, B, n, adjoint, at, d_A, d_B)
        elif code <= ARC_COSINE1:
            sigma2, leaf = extra * extra, (scales, first, count, op)
            if code != POLYNOMIAL:
                order, own = code - ARC_COSINE0, (values, slopes, adjoint)
                by_log = pull_norms(
                    order, sigma2, leaf, A, rows, B, n, own, at, d_log, d_A, d_B, inputs
                )
            pull_profile(op, slopes, adjoint, at, end)
            by_log = 2.0 * sigma2 * (by_log + sum_adjoint(op, adjoint, at, end))
            pull_products(leaf, A, rows, B, n, adjoint, at, d_log, d_A, d_B, inputs)
        else:
            by_log = pull_combination(
                code, left, right, power, op, extra, values, adjoint, at, end
            )
        if slot >= 0:
            for at_slot in solo(slot, slot + 1):
                d_log[at_slot] += by_log
