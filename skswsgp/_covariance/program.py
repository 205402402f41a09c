"""Evaluation of kernels on tiles of pairs of points, and its adjoint.

A `Kernel` is a list of operations in postfix order. Leaves read the coordinates of the
points, and the other operations combine the results of earlier ones. Each operation
is applied to a whole tile of pairs, numbered as in `pairs`: `fill_tile` computes the
covariances of points of A with points of B, and `tile_vjp` takes the derivatives of an
objective by these covariances back to parameters and coordinates.

Coordinates have one column a point, (n_features, n_points), so that loops over points
are contiguous. The results of operation `op` on a tile are values[op, at:end], and
`slopes` and `adjoint` are laid out alike, all (n_ops, pairs); a view of a row would
cost more than the arithmetic on it. Adjoints that sum over pairs store nothing in the
same loop: the place of an array in memory could then decide whether the loop is
vectorised, and so the order of the sum.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.jit import njit, njit_inline
from skswsgp._compiled.team import barrier, single, team_range, team_sum
from skswsgp._covariance import dot_product, stationary
from skswsgp._covariance.pairs import TRIANGLE, row_start

# Codes below FIRST_DISTANCE are leaves without length-scales, and combinations
CONSTANT, WHITE, SCALE, SUM, PRODUCT, POWER = range(6)


class Kernel(NamedTuple):
    """A kernel as data; an array of n_ops entries has one for each operation."""

    code: np.ndarray  # (n_ops,) which operation
    left: np.ndarray  # (n_ops,) index of the first operand, an earlier operation
    right: np.ndarray  # (n_ops,) index of the second operand
    extra: np.ndarray  # (n_ops,) index of the parameter besides length-scales, or -1
    slot: np.ndarray  # (n_ops, D) index of the parameter that divides a column, or -1
    exponent: np.ndarray  # (n_ops,) exponent of POWER, degree of POLYNOMIAL
    params: np.ndarray  # (P,) parameters, natural scale; they change while training
    inv_scale: np.ndarray  # (n_ops, D) factor of a column, see `refresh_scales`


@njit
def refresh_scales(kernel):
    """Set kernel.inv_scale from kernel.params, after these have changed.

    The factor of a column without a parameter stays: 1, or 0 for one that is not read.
    """
    for op in range(kernel.inv_scale.shape[0]):
        for d in range(kernel.inv_scale.shape[1]):
            index = kernel.slot[op, d]
            if index >= 0:
                kernel.inv_scale[op, d] = 1.0 / kernel.params[index]


@njit
def white_profile(variance, rows, n, op, values, at):
    """Set values[op] to `variance` for a point with itself, and to 0 for others."""
    for p in team_range(at, at + row_start(rows, n)):
        values[op, p] = 0.0
    barrier()
    if n == TRIANGLE:
        for i in team_range(0, rows):
            values[op, at + row_start(i + 1, n) - 1] = variance
    barrier()


@njit
def combine(code, left, right, exponent, op, extra, values, at, end):
    """Set values[op] to CONSTANT, or to a combination of values[left] and [right]."""
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
    """Set values[op, at:end] of each operation, for the first points of A and of B.

    The last operation is the covariance. `slopes` takes the derivatives of leaves by r2
    or s. `rows` is the number of points of A; n is as in `pairs`.
    """
    scales, end = kernel.inv_scale, at + row_start(rows, n)
    for op in range(kernel.code.shape[0]):
        code, exponent = kernel.code[op], kernel.exponent[op]
        left, right = kernel.left[op], kernel.right[op]
        extra = kernel.params[kernel.extra[op]] if kernel.extra[op] >= 0 else 0.0
        if code == WHITE:
            white_profile(extra, rows, n, op, values, at)
        elif code < stationary.FIRST_DISTANCE:
            combine(code, left, right, exponent, op, extra, values, at, end)
        elif code < dot_product.FIRST_DOT_PRODUCT:
            stationary.squared_distances(A, rows, B, n, scales, op, values, at)
            stationary.stationary_profile(code, extra, op, values, slopes, at, end)
        else:
            sigma2 = extra * extra
            dot_product.inner_products(A, rows, B, n, scales, op, sigma2, values, at)
            if code == dot_product.POLYNOMIAL:
                dot_product.polynomial_profile(exponent, op, values, slopes, at, end)
            else:
                order = code - dot_product.ARC_COSINE0
                dot_product.arc_cosine_profile(
                    order, A, rows, B, n, scales, op, sigma2, values, slopes, at
                )


@njit
def sum_adjoint(op, adjoint, at, end):
    """Return the sum of adjoint[op]."""
    amount = 0.0
    for p in team_range(at, end):
        amount += adjoint[op, p]
    return team_sum(amount)


@njit
def profile_vjp(op, slopes, adjoint, at, end):
    """Turn adjoint[op] from derivatives by k to derivatives by r2 or s."""
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
    """Set adjoint[left] and [right] from adjoint[op]; return d / d log `extra`."""
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
            base = values[left, p]  # 0 for distant points, where a root has no slope
            known = base != 0.0 or exponent >= 1.0
            slope = exponent * base ** (exponent - 1.0) if known else 0.0
            adjoint[left, p] = adjoint[op, p] * slope
    barrier()
    return team_sum(amount)


@njit_inline
def tile_vjp(kernel, A, rows, B, n, tile, at, d_log, d_A, d_B, inputs):
    """Add the derivatives of an objective, from tile.adjoint[-1] by the covariances.

    Derivatives by log parameters are added to d_log, (P,), and if `inputs` is true
    those by A and B to d_A and d_B, which may be one array. Overwrites tile.adjoint.
    """
    values, slopes, adjoint = tile.values, tile.slopes, tile.adjoint
    scales, end = kernel.inv_scale, at + row_start(rows, n)
    for op in range(kernel.code.shape[0] - 1, -1, -1):
        code, slot, power = kernel.code[op], kernel.extra[op], kernel.exponent[op]
        leaf = scales, kernel.slot, op
        left, right = kernel.left[op], kernel.right[op]
        extra = kernel.params[slot] if slot >= 0 else 0.0
        by_log = 0.0
        if code == CONSTANT:
            by_log = extra * sum_adjoint(op, adjoint, at, end)
        elif code == WHITE:
            by_log = extra * white_vjp(rows, n, op, adjoint, at)
        elif code < stationary.FIRST_DISTANCE:
            by_log = combine_vjp(
                code, left, right, power, op, extra, values, adjoint, at, end
            )
        elif code < dot_product.FIRST_DOT_PRODUCT:
            if slot >= 0:
                by_log = extra * stationary.extra_vjp(
                    code, extra, op, values, slopes, adjoint, at, end
                )
            profile_vjp(op, slopes, adjoint, at, end)
            stationary.length_scales_vjp(leaf, A, rows, B, n, adjoint, at, d_log)
            if inputs:
                stationary.distances_vjp(leaf, A, rows, B, n, adjoint, at, d_A, d_B)
        else:
            sigma2 = extra * extra
            if code != dot_product.POLYNOMIAL:
                order, own = code - dot_product.ARC_COSINE0, (values, slopes, adjoint)
                by_log = dot_product.norms_vjp(
                    order, sigma2, leaf, A, rows, B, n, own, at, d_log, d_A, d_B, inputs
                )
            profile_vjp(op, slopes, adjoint, at, end)
            by_log = 2.0 * sigma2 * (by_log + sum_adjoint(op, adjoint, at, end))
            dot_product.inner_products_vjp(
                leaf, A, rows, B, n, adjoint, at, d_log, d_A, d_B, inputs
            )
        if slot >= 0:
            for at_slot in single(slot, slot + 1):
                d_log[at_slot] += by_log


def in_float64(kernel):
    """Return a copy of a `Kernel` whose numbers are in float64."""
    return Kernel(
        *(a.astype(np.float64 if a.dtype.kind == "f" else a.dtype) for a in kernel)
    )


def kernel_of(model):
    """Return the `Kernel` whose arrays are the first fields of a model."""
    return Kernel(*model[: len(Kernel._fields)])
