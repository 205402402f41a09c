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

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.jit import njit, njit_inline
from skswsgp._compiled.team import barrier, single, team_range, team_sum
from skswsgp._covariance.dot_product import (
    ARC_COSINE0,
    ARC_COSINE1,
    POLYNOMIAL,
    arc_cosine_profile,
    inner_products,
    inner_products_vjp,
    norms_vjp,
    polynomial_profile,
)
from skswsgp._covariance.pairs import TRIANGLE, row_start
from skswsgp._covariance.stationary import (
    RATIONAL_QUADRATIC,
    RBF,
    alpha_vjp,
    distances_vjp,
    length_scales_vjp,
    squared_distances,
    stationary_profile,
)

# Leaves
CONSTANT, WHITE = 0, 1
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
def refresh_scales(kernel):
    """Set kernel.inv_scale from kernel.params."""
    for op in range(kernel.inv_scale.shape[0]):
        for d in range(kernel.inv_scale.shape[1]):
            if kernel.n_scales[op] == 0:
                kernel.inv_scale[op, d] = 1.0
            else:
                index = kernel.scale[op] + (d if kernel.n_scales[op] > 1 else 0)
                kernel.inv_scale[op, d] = 1.0 / kernel.params[index]


@njit
def white_profile(variance, rows, n, op, values, at):
    """values[op, at + ...] = variance for a point with itself, else 0."""
    for p in team_range(at, at + row_start(rows, n)):
        values[op, p] = 0.0
    barrier()
    if n == TRIANGLE:
        for i in team_range(0, rows):
            values[op, at + row_start(i + 1, n) - 1] = variance
    barrier()


@njit
def combine(code, left, right, exponent, op, extra, values, at, end):
    """Apply an operation on the results of `left` and `right`; CONSTANT has none."""
    if code == CONSTANT:
        for p in team_range(at, end):
            values[op, p] = extra
    elif code == SCALE:
        for p in team_range(at, end):
            values[op, p] = extra * values[left, p]
    elif code == SUM:
        for p in team_range(at, end):
            values[op, p] = values[left, p] + values[right, p]
    elif code == PRODUCT:
        for p in team_range(at, end):
            values[op, p] = values[left, p] * values[right, p]
    else:  # POWER
        for p in team_range(at, end):
            values[op, p] = values[left, p] ** exponent
    barrier()


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
    for p in team_range(at, end):
        amount += adjoint[op, p]
    return team_sum(amount)


@njit
def profile_vjp(op, slopes, adjoint, at, end):
    """Make adjoint[op], the derivatives by k, those by r2 or s."""
    for p in team_range(at, end):
        adjoint[op, p] *= slopes[op, p]
    barrier()


@njit
def white_vjp(rows, n, op, adjoint, at):
    """Return the derivative by the variance of WHITE."""
    amount = 0.0
    if n == TRIANGLE:
        for i in team_range(0, rows):
            amount += adjoint[op, at + row_start(i + 1, n) - 1]
    return team_sum(amount)


@njit
def combine_vjp(code, left, right, exponent, op, extra, values, adjoint, at, end):
    """Adjoint of `combine` for the operands; returns the one by log `extra`."""
    amount = 0.0
    if code == SCALE:
        for p in team_range(at, end):
            amount += adjoint[op, p] * values[op, p]
        for p in team_range(at, end):
            adjoint[left, p] = extra * adjoint[op, p]
    elif code == SUM:
        for p in team_range(at, end):
            adjoint[left, p] = adjoint[op, p]
            adjoint[right, p] = adjoint[op, p]
    elif code == PRODUCT:
        for p in team_range(at, end):
            adjoint[left, p] = adjoint[op, p] * values[right, p]
            adjoint[right, p] = adjoint[op, p] * values[left, p]
    else:  # POWER
        for p in team_range(at, end):
            base = values[left, p]  # zero far away: a root has no slope there
            slope = (
                exponent * base ** (exponent - 1.0)
                if base != 0.0 or exponent >= 1.0
                else 0.0
            )
            adjoint[left, p] = adjoint[op, p] * slope
    barrier()
    return team_sum(amount)


@njit_inline
def tile_vjp(kernel, A, rows, B, n, tile, at, d_log, d_A, d_B, inputs):
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
            by_log = extra * white_vjp(rows, n, op, adjoint, at)
        elif code <= RATIONAL_QUADRATIC:
            if code == RATIONAL_QUADRATIC:
                by_log = extra * alpha_vjp(op, values, slopes, adjoint, at, end)
            profile_vjp(op, slopes, adjoint, at, end)
            length_scales_vjp(
                scales, first, count, op, A, rows, B, n, adjoint, at, d_log
            )
            if inputs:
                distances_vjp(scales, op, A, rows, B, n, adjoint, at, d_A, d_B)
        elif code <= ARC_COSINE1:
            sigma2, leaf = extra * extra, (scales, first, count, op)
            if code != POLYNOMIAL:
                order, own = code - ARC_COSINE0, (values, slopes, adjoint)
                by_log = norms_vjp(
                    order, sigma2, leaf, A, rows, B, n, own, at, d_log, d_A, d_B, inputs
                )
            profile_vjp(op, slopes, adjoint, at, end)
            by_log = 2.0 * sigma2 * (by_log + sum_adjoint(op, adjoint, at, end))
            inner_products_vjp(
                leaf, A, rows, B, n, adjoint, at, d_log, d_A, d_B, inputs
            )
        else:
            by_log = combine_vjp(
                code, left, right, power, op, extra, values, adjoint, at, end
            )
        if slot >= 0:
            for at_slot in single(slot, slot + 1):
                d_log[at_slot] += by_log


def kernel_of(model):
    """Return the part of a model that is its kernel."""
    return Kernel(*model[: len(Kernel._fields)])
