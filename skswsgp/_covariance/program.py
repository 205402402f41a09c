"""Evaluation of kernels on tiles of pairs of points, and its adjoint.

A `Kernel` is a list of operations in postfix order. Leaves read the coordinates of the
points, and the other operations combine the results of earlier ones. Each operation
is applied to a whole tile of pairs, numbered as in `pairs`: `fill_tile` computes the
covariances of points of A with points of B, and `tile_vjp` takes the derivatives of an
objective by these covariances back to parameters and coordinates.

Coordinates have one column a point, (n_features, n_points), so that loops over points
are contiguous. The results of operation `op` on `count` pairs of a tile are
values[op, at : at + count], and `slopes` and `adjoint` are laid out alike, all
(n_ops, pairs); a view of a row would cost more than the arithmetic on it.
Adjoints that sum over pairs store nothing in the same loop: the place of an array in
memory could then decide whether the loop is vectorised, and so the order of the sum.

Both are compiled once for each precision, and callers reach them by the addresses in
`calls` of their work arrays, see `program_calls`.
"""

from functools import cache
from typing import NamedTuple

import numba
import numpy as np

from skswsgp._compiled.jit import njit, njit_inline, njit_inner, variant
from skswsgp._compiled.pointers import address_of, by_address
from skswsgp._covariance import dot_product, stationary
from skswsgp._covariance.pairs import TRIANGLE, pair_range, row_start

# Codes below FIRST_DISTANCE are leaves without length-scales, and combinations
CONSTANT, WHITE, SCALE, SUM, PRODUCT, POWER = range(6)
FILL, VJP, CHOLESKY = range(3)  # places of the addresses in `calls`
DOT_PRODUCTS = True  # whether a program knows kernels of a dot product


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


@njit_inner
def white_profile(variance, rows, n, op, values, at):
    """Set values[op] to `variance` for a point with itself, and to 0 for others."""
    for p in pair_range(at, row_start(rows, n)):
        values[op, p] = 0.0
    if n == TRIANGLE:
        for i in range(rows):
            values[op, at + row_start(i + 1, n) - 1] = variance


@njit_inner
def combine(code, left, right, exponent, op, extra, values, at, count):
    """Set values[op] to CONSTANT, or to a combination of values[left] and [right]."""
    if code == CONSTANT:
        for p in pair_range(at, count):
            values[op, p] = extra
    elif code == SCALE:
        for p in pair_range(at, count):
            values[op, p] = extra * values[left, p]
    elif code == SUM:
        for p in pair_range(at, count):
            values[op, p] = values[left, p] + values[right, p]
    elif code == PRODUCT:
        for p in pair_range(at, count):
            values[op, p] = values[left, p] * values[right, p]
    else:  # POWER
        for p in pair_range(at, count):
            values[op, p] = values[left, p] ** exponent


@njit_inline
def only_kernel(model):
    """Return the `Kernel` of a struct that begins with its fields."""
    return Kernel(
        model.code, model.left, model.right, model.extra, model.slot, model.exponent,
        model.params, model.inv_scale,
    )  # fmt: skip


@njit
def fill_program(kernel, A, rows, B, n, values, slopes, at):
    """Do what `fill_tile` says, for the arrays of a `Kernel` and of a tile."""
    scales, count = kernel.inv_scale, row_start(rows, n)
    for op in range(kernel.code.shape[0]):
        code, exponent = kernel.code[op], kernel.exponent[op]
        left, right = kernel.left[op], kernel.right[op]
        extra = kernel.params[kernel.extra[op]] if kernel.extra[op] >= 0 else 0.0
        if code == WHITE:
            white_profile(extra, rows, n, op, values, at)
        elif code < stationary.FIRST_DISTANCE:
            combine(code, left, right, exponent, op, extra, values, at, count)
        elif code < dot_product.FIRST_DOT_PRODUCT:
            stationary.squared_distances(A, rows, B, n, scales, op, values, at)
            stationary.stationary_profile(code, extra, op, values, slopes, at, count)
        elif DOT_PRODUCTS:
            dot_product.fill_dot_products(
                code, exponent, extra, A, rows, B, n, scales, op, values, slopes, at
            )


@njit_inner
def sum_adjoint(op, adjoint, at, count):
    """Return the sum of adjoint[op]."""
    amount = 0.0
    for p in pair_range(at, count):
        amount += adjoint[op, p]
    return amount


@njit_inner
def profile_vjp(op, slopes, adjoint, at, count):
    """Turn adjoint[op] from derivatives by k to derivatives by r2 or s."""
    for p in pair_range(at, count):
        adjoint[op, p] *= slopes[op, p]


@njit_inner
def white_vjp(rows, n, op, adjoint, at):
    """Return the derivative by the variance of WHITE."""
    amount = 0.0
    if n == TRIANGLE:
        for i in range(rows):
            amount += adjoint[op, at + row_start(i + 1, n) - 1]
    return amount


@njit_inner
def combine_vjp(code, left, right, exponent, op, extra, values, adjoint, at, count):
    """Set adjoint[left] and [right] from adjoint[op]; return d / d log `extra`."""
    amount = 0.0
    if code == SCALE:
        for p in pair_range(at, count):
            amount += adjoint[op, p] * values[op, p]
        for p in pair_range(at, count):
            adjoint[left, p] = extra * adjoint[op, p]
    elif code == SUM:
        for p in pair_range(at, count):
            adjoint[left, p] = adjoint[op, p]
            adjoint[right, p] = adjoint[op, p]
    elif code == PRODUCT:
        for p in pair_range(at, count):
            adjoint[left, p] = adjoint[op, p] * values[right, p]
            adjoint[right, p] = adjoint[op, p] * values[left, p]
    else:  # POWER
        for p in pair_range(at, count):
            base = values[left, p]  # 0 for distant points, where a root has no slope
            known = base != 0.0 or exponent >= 1.0
            slope = exponent * base ** (exponent - 1.0) if known else 0.0
            adjoint[left, p] = adjoint[op, p] * slope
    return amount


@njit
def vjp_program(
    kernel, A, rows, B, n, values, slopes, adjoint, at, d_log, d_A, d_B, inputs
):
    """Do what `tile_vjp` says, for the arrays of a `Kernel` and of a tile."""
    scales, count = kernel.inv_scale, row_start(rows, n)
    for op in range(kernel.code.shape[0] - 1, -1, -1):
        code, slot, power = kernel.code[op], kernel.extra[op], kernel.exponent[op]
        leaf = scales, kernel.slot, op
        left, right = kernel.left[op], kernel.right[op]
        extra = kernel.params[slot] if slot >= 0 else 0.0
        by_log = 0.0
        if code == CONSTANT:
            by_log = extra * sum_adjoint(op, adjoint, at, count)
        elif code == WHITE:
            by_log = extra * white_vjp(rows, n, op, adjoint, at)
        elif code < stationary.FIRST_DISTANCE:
            by_log = combine_vjp(
                code, left, right, power, op, extra, values, adjoint, at, count
            )
        elif code < dot_product.FIRST_DOT_PRODUCT:
            if slot >= 0:
                by_log = extra * stationary.extra_vjp(
                    code, extra, op, values, slopes, adjoint, at, count
                )
            profile_vjp(op, slopes, adjoint, at, count)
            stationary.length_scales_vjp(leaf, A, rows, B, n, adjoint, at, d_log)
            if inputs:
                stationary.distances_vjp(leaf, A, rows, B, n, adjoint, at, d_A, d_B)
        elif DOT_PRODUCTS:
            own = values, slopes, adjoint
            by_log = dot_product.norms_vjp(
                code, extra, leaf, A, rows, B, n, own, at, d_log, d_A, d_B, inputs
            )
            profile_vjp(op, slopes, adjoint, at, count)
            by_log += sum_adjoint(op, adjoint, at, count)
            by_log *= 2.0 * extra * extra
            dot_product.inner_products_vjp(
                leaf, A, rows, B, n, adjoint, at, d_log, d_A, d_B, inputs
            )
        if slot >= 0:
            d_log[slot] += by_log


def program_types(real):
    """Return the types of the arguments of `fill_program` and `vjp_program`."""
    size, ints, reals = numba.int64, numba.int64[::1], real[::1]
    table, points = numba.int64[:, ::1], real[:, ::1]
    fields = ints, ints, ints, ints, table, reals, reals, points
    given = numba.types.NamedTuple(fields, Kernel), points, size, points, size
    derivatives = numba.float64[::1], points, points, numba.boolean
    return (
        (*given, points, points, size),
        (*given, points, points, points, size, *derivatives),
    )


REALS = numba.float32, numba.float64
FILL_TYPES, VJP_TYPES = zip(*map(program_types, REALS), strict=True)


call_fill = by_address(fill_program, FILL_TYPES)


call_vjp = by_address(vjp_program, VJP_TYPES)


@njit_inline
def fill_tile(kernel, A, rows, B, n, tile, at):
    """Set the values of each operation, for the first `rows` points of A and of B.

    The last operation is the covariance. `slopes` takes the derivatives of leaves by r2
    or s. n is as in `pairs`, and pairs are numbered from `at` on.
    """
    given = A, rows, B, n, tile.values, tile.slopes, at
    call_fill(tile.calls[FILL], (only_kernel(kernel), *given))


@njit_inline
def tile_vjp(kernel, A, rows, B, n, tile, at, d_log, d_A, d_B, inputs):
    """Add the derivatives of an objective, from tile.adjoint[-1] by the covariances.

    Derivatives by log parameters are added to d_log, (P,), and if `inputs` is true
    those by A and B to d_A and d_B, which may be one array. Those by B are left out
    where d_B has no columns. Overwrites tile.adjoint.
    """
    given = A, rows, B, n, tile.values, tile.slopes, tile.adjoint, at
    ends = d_log, d_A, d_B, inputs
    call_vjp(tile.calls[VJP], (only_kernel(kernel), *given, *ends))


PROGRAMS = {
    True: (fill_program, vjp_program),
    False: (
        variant(fill_program, "fill_of_distance", DOT_PRODUCTS=False),
        variant(vjp_program, "vjp_of_distance", DOT_PRODUCTS=False),
    ),
}


@cache
def program_address(dtype, dot_products, which):
    """Return the address of a program, compiled if need be, for a dtype by name."""
    kinds = program_types(numba.from_dtype(np.dtype(dtype)))
    return address_of(PROGRAMS[dot_products][which], *kinds[which])


def address_for(kernel, which):
    """Return the address of a program for the operations and precision of a kernel.

    Kernels of a dot product have programs of their own, so that others need not wait
    until these are compiled.
    """
    products = bool((kernel.code >= dot_product.FIRST_DOT_PRODUCT).any())
    return program_address(kernel.params.dtype.name, products, which)


def program_calls(kernel):
    """Return the `calls` (2,) of a tile, for `fill_tile`; see `allow_vjp`."""
    return np.array([address_for(kernel, FILL), 0], dtype=np.uint64)


def allow_vjp(calls, kernel):
    """Add the address for `tile_vjp` to the `calls` of a tile, or of several."""
    calls[..., VJP] = address_for(kernel, VJP)


def in_float64(kernel):
    """Return a copy of a `Kernel` whose numbers are in float64."""
    return Kernel(
        *(a.astype(np.float64 if a.dtype.kind == "f" else a.dtype) for a in kernel)
    )


def kernel_of(model):
    """Return the `Kernel` whose arrays are the first fields of a model."""
    return Kernel(*model[: len(Kernel._fields)])
