"""Products of 8 x 8 tiles and of sparse rows, and searches among 64 distances.

Each function is written in Python first, for runs without compilation. Otherwise LLVM
instructions for vector registers replace it, in which a row of a tile is one vector.
The compiler by itself would vectorise each sum of products over its terms, and for
short sums the final addition of the partial sums takes as long as the sums.
"""

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.core.errors import TypingError
from numba.extending import intrinsic

EPS32, EPS64 = (float(np.finfo(kind).eps) for kind in (np.float32, np.float64))
BLOCK = 8  # side of the square tiles in which matrices are processed
FUSED = ("contract",)  # LLVM flag: a product and a sum may become one instruction
WIDE = 4 * BLOCK  # columns of a sparse product that share a read of their entry
GROUP = 64  # distances that are compared with a bound at once, one bit each


def set_products(X, i, Y, j, start, stop, out, row, column):
    """Set the tile of out at (row, column) to T, the products of columns of X and Y.

    T[p, q] is the sum over start <= r < stop of X[r, i + p] Y[r, j + q]. The tile may
    be that of Y.
    """
    T = X[start:stop, i : i + BLOCK].T @ Y[start:stop, j : j + BLOCK]
    out[row : row + BLOCK, column : column + BLOCK] = T


def set_negative_products(X, i, Y, j, start, stop, out, row, column):
    """Set the tile of out at (row, column) to -T, T as in `set_products`."""
    set_products(-X, i, Y, j, start, stop, out, row, column)


def subtract_products(X, i, Y, j, start, stop, out, row, column):
    """Subtract T from the tile of out at (row, column), T as in `set_products`."""
    before = out[row : row + BLOCK, column : column + BLOCK].copy()
    set_negative_products(X, i, Y, j, start, stop, out, row, column)
    out[row : row + BLOCK, column : column + BLOCK] += before


def factorise_tile(A, R, k, shift, blocks):
    """Replace the tile T of R at (k, k) by its lower factor, T + shift I = R' R.

    T is the tile of A less the products of later rows; only its lower triangle is read.
    Rows k .. k + 7 of `blocks` (side, 8) take the inverse of the factor. Returns False
    if a pivot is no larger than the rounding of the diagonal of A.
    """
    rounding = 4.0 * (EPS32 if R.itemsize == 4 else EPS64)
    for p in range(k + BLOCK - 1, k - 1, -1):
        pivot = R[p, p] + shift
        enough = pivot > rounding * A[p, p]
        if not enough:
            return False
        root = math.sqrt(pivot)
        for q in range(k, k + BLOCK):
            if q < p:
                R[p, q] /= root
            else:
                R[p, q] = root if q == p else 0.0
        for q in range(k, k + BLOCK):
            for r in range(q, p):
                R[r, q] -= R[p, r] * R[p, q]
    for q in range(BLOCK):
        for p in range(BLOCK):
            value = 1.0 if p == q else 0.0
            for t in range(p):
                value -= R[k + p, k + t] * blocks[k + t, q]
            blocks[k + p, q] = value / R[k + p, k + p]
    return True


class VectorBuilder:
    """Writer of LLVM code for vectors of consecutive entries of C-contiguous arrays."""

    def __init__(self, context, builder, dtype, width=BLOCK):
        self.context, self.builder, self.width = context, builder, width
        self.scalar = context.get_value_type(dtype)
        self.vector = ir.VectorType(self.scalar, width)
        self.size = context.get_abi_sizeof(self.scalar)
        self.zero = ir.Constant(self.vector, None)

    def pointer(self, kind, array, i, j):
        """Return the address of array[i, j]."""
        struct = self.context.make_array(kind)(self.context, self.builder, array)
        columns = self.builder.extract_value(struct.shape, 1)
        index = self.builder.add(self.builder.mul(i, columns), j)
        return self.builder.gep(struct.data, [index])

    def plus(self, i, p):
        """Return i + p for a Python number p."""
        return self.builder.add(i, ir.Constant(i.type, p))

    def load(self, pointer):
        """Return the vector that begins at an address."""
        pointer = self.builder.bitcast(pointer, self.vector.as_pointer())
        return self.builder.load(pointer, align=self.size)

    def store(self, vector, pointer):
        """Write a vector to an address."""
        pointer = self.builder.bitcast(pointer, self.vector.as_pointer())
        self.builder.store(vector, pointer, align=self.size)

    def spread(self, value):
        """Return a vector that holds a number in every entry."""
        undefined = ir.Constant(self.vector, ir.Undefined)
        one = self.builder.insert_element(undefined, value, ir.IntType(32)(0))
        first = ir.Constant(ir.VectorType(ir.IntType(32), self.width), None)
        return self.builder.shuffle_vector(one, undefined, first)

    def entry(self, vector, q):
        """Return entry q of a vector."""
        return self.builder.extract_element(vector, ir.IntType(32)(q))

    def subtract(self, vector, factors, q, other):
        """Return vector - factors[q] other."""
        product = self.builder.fmul(self.spread(self.entry(factors, q)), other, FUSED)
        return self.builder.fsub(vector, product, FUSED)

    def times(self, vector, value):
        """Return value vector."""
        return self.builder.fmul(self.spread(value), vector)


def _products(load, negative):
    """Return the intrinsic that computes +T or -T, and adds it to `out` with `load`."""

    @intrinsic
    def products(typingctx, X, i, Y, j, start, stop, out, row, column):
        def generate(context, builder, signature, args):
            x_kind, _, y_kind, *_, kind, _, _ = signature.args
            x, i, y, j, start, stop, result, row, column = args
            rows = VectorBuilder(context, builder, kind.dtype)
            targets, sums = [], []
            for p in range(BLOCK):
                at = rows.pointer(kind, result, rows.plus(row, p), column)
                first = rows.load(at) if load else rows.zero
                targets.append(at)
                sums.append(cgutils.alloca_once_value(builder, first))
            one = ir.Constant(start.type, 1)
            with cgutils.for_range_slice(builder, start, stop, one) as (r, _):
                right = rows.load(rows.pointer(y_kind, y, r, j))
                left = rows.pointer(x_kind, x, r, i)
                for p in range(BLOCK):
                    entry = builder.load(builder.gep(left, [ir.IntType(64)(p)]))
                    product = builder.fmul(rows.spread(entry), right, FUSED)
                    combine = builder.fsub if negative else builder.fadd
                    total = combine(builder.load(sums[p]), product, FUSED)
                    builder.store(total, sums[p])
            for target, total in zip(targets, sums, strict=True):
                rows.store(builder.load(total), target)
            return context.get_dummy_value()

        index = types.intp
        signature = types.void(X, index, Y, index, index, index, out, index, index)
        return signature, generate

    return products


@intrinsic
def _factorise_tile(typingctx, A, R, k, shift, blocks):
    """Factorise a tile, see `factorise_tile`."""

    def generate(context, builder, signature, args):
        given, kind, _, _, blocks_kind = signature.args
        matrix, array, k, shift, inverses = args
        rows = VectorBuilder(context, builder, kind.dtype)
        root = builder.module.declare_intrinsic("llvm.sqrt", [rows.scalar])
        zero, one = ir.Constant(k.type, 0), ir.Constant(rows.scalar, 1.0)
        rounding = ir.Constant(rows.scalar, 4.0 * np.finfo(str(kind.dtype)).eps)
        index = range(BLOCK)
        targets = [rows.pointer(kind, array, rows.plus(k, p), k) for p in index]
        factor = [rows.load(target) for target in targets]
        scale = [None] * BLOCK
        found = ir.IntType(1)(1)
        for p in reversed(index):
            pivot = builder.fadd(rows.entry(factor[p], p), shift)
            at = rows.plus(k, p)
            diagonal = builder.load(rows.pointer(given, matrix, at, at))
            least = builder.fmul(rounding, diagonal)
            found = builder.and_(found, builder.fcmp_ordered(">", pivot, least))
            pivot = builder.call(root, [pivot])
            scale[p] = builder.fdiv(one, pivot)
            factor[p] = rows.times(factor[p], scale[p])
            for r in range(p):
                factor[r] = rows.subtract(factor[r], factor[p], r, factor[p])
            factor[p] = builder.insert_element(factor[p], pivot, ir.IntType(32)(p))
            lower = ir.VectorType(ir.IntType(1), BLOCK)([int(q <= p) for q in index])
            rows.store(builder.select(lower, factor[p], rows.zero), targets[p])
        inverse = []
        for p in index:
            row = ir.Constant(rows.vector, [float(q == p) for q in index])
            for t in range(p):
                row = rows.subtract(row, factor[p], t, inverse[t])
            inverse.append(rows.times(row, scale[p]))
            at = rows.pointer(blocks_kind, inverses, rows.plus(k, p), zero)
            rows.store(inverse[p], at)
        return found

    return types.boolean(A, R, types.intp, R.dtype, blocks), generate


def keys_below(low, t, products, r, j, bound):
    """Return 64 bits: bit p is low[t, j + p] - products[r, j + p] <= bound."""
    bits = np.uint64(0)
    for p in range(GROUP):
        if low[t, j + p] - products[r, j + p] <= bound:
            bits |= np.uint64(1) << np.uint64(p)
    return bits


def lowest_bit(bits):
    """Return the position of the lowest bit that is set; some bit must be."""
    position = 0
    while not (bits >> np.uint64(position)) & np.uint64(1):
        position += 1
    return position


@intrinsic
def _keys_below(typingctx, low, t, products, r, j, bound):
    """Compare GROUP distances in vector registers, see `keys_below`."""

    def generate(context, builder, signature, args):
        low_kind, _, kind, *_ = signature.args
        lower, t, table, r, j, most = args
        group = VectorBuilder(context, builder, kind.dtype, GROUP)
        first = group.load(group.pointer(low_kind, lower, t, j))
        key = builder.fsub(first, group.load(group.pointer(kind, table, r, j)))
        below = builder.fcmp_ordered("<=", key, group.spread(most))
        return builder.bitcast(below, ir.IntType(GROUP))

    index = types.intp
    return types.uint64(low, index, products, index, index, low.dtype), generate


@intrinsic
def _lowest_bit(typingctx, bits):
    """Count the zero bits below the lowest bit by one instruction."""

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def gather_columns(lists, weights, squares, i, stop, u, column, sums, t, first):
    """Set sums[t, first + q] = sum_h weights[i, h] u[lists[i, h], column + q].

    0 <= h < stop, and 0 <= q < 8. Weights are squared if `squares`.
    """
    for q in range(BLOCK):
        sums[t, first + q] = 0.0
        for h in range(stop):
            weight = weights[i, h] ** 2 if squares else weights[i, h]
            sums[t, first + q] += weight * u[lists[i, h], column + q]


def scatter_columns(lists, weights, squares, i, stop, out, column, values, t, first):
    """Add weights[i, h] values[t, first + q] to out[lists[i, h], column + q]."""
    for h in range(stop):
        weight = weights[i, h] ** 2 if squares else weights[i, h]
        for q in range(BLOCK):
            out[lists[i, h], column + q] += weight * values[t, first + q]


def gather_wide(lists, weights, squares, i, stop, u, column, sums, t, first):
    """Do as `gather_columns` for 0 <= q < WIDE."""
    for q in range(0, WIDE, BLOCK):
        gather_columns(
            lists, weights, squares, i, stop, u, column + q, sums, t, first + q
        )


def scatter_wide(lists, weights, squares, i, stop, out, column, values, t, first):
    """Do as `scatter_columns` for 0 <= q < WIDE."""
    for q in range(0, WIDE, BLOCK):
        scatter_columns(
            lists, weights, squares, i, stop, out, column + q, values, t, first + q
        )


def _sparse_row(gather, width):
    """Return the intrinsic of `gather_columns` or `scatter_columns` for a width."""

    @intrinsic
    def sparse_row(
        typingctx, lists, weights, squares, i, stop, matrix, column, block, t, first
    ):
        def generate(context, builder, signature, args):
            list_kind, weight_kind, *_, kind, _, block_kind, _, _ = signature.args
            columns, entries, squares, i, stop, array, column, vectors, t, place = args
            rows = VectorBuilder(context, builder, kind.dtype, width)
            zero, one = ir.Constant(i.type, 0), ir.Constant(i.type, 1)
            columns = rows.pointer(list_kind, columns, i, zero)
            entries = rows.pointer(weight_kind, entries, i, zero)
            at = rows.pointer(block_kind, vectors, t, place)
            first = rows.zero if gather else rows.load(at)
            vector = cgutils.alloca_once_value(builder, first)
            with cgutils.for_range_slice(builder, zero, stop, one) as (h, _):
                j = builder.zext(builder.load(builder.gep(columns, [h])), i.type)
                weight = builder.load(builder.gep(entries, [h]))
                if weight.type != rows.scalar:
                    weight = builder.fpext(weight, rows.scalar)
                square = builder.fmul(weight, weight)
                weight = builder.select(squares, square, weight)
                place = rows.pointer(kind, array, j, column)
                old, other = builder.load(vector), rows.load(place)
                if not gather:
                    old, other = other, old
                product = builder.fmul(rows.spread(weight), other, FUSED)
                total = builder.fadd(old, product, FUSED)
                if gather:
                    builder.store(total, vector)
                else:
                    rows.store(total, place)
            if gather:
                rows.store(builder.load(vector), at)
            return context.get_dummy_value()

        if matrix.dtype != block.dtype:
            raise TypingError(f"sums of {matrix.dtype} do not go to {block.dtype}")
        index, flag = types.intp, types.boolean
        places = index, index, matrix, index, block, index, index
        return types.void(lists, weights, flag, *places), generate

    return sparse_row


# What replaces the functions above on the CPU, unless compilation is disabled
INSTRUCTIONS = {
    "set_products": _products(load=False, negative=False),
    "set_negative_products": _products(load=False, negative=True),
    "subtract_products": _products(load=True, negative=True),
    "factorise_tile": _factorise_tile,
    "keys_below": _keys_below,
    "lowest_bit": _lowest_bit,
    "gather_columns": _sparse_row(gather=True, width=BLOCK),
    "scatter_columns": _sparse_row(gather=False, width=BLOCK),
    "gather_wide": _sparse_row(gather=True, width=WIDE),
    "scatter_wide": _sparse_row(gather=False, width=WIDE),
}
if not config.DISABLE_JIT:
    globals().update(INSTRUCTIONS)
