"""Compiled loops that find the H nearest of M inducing points by exact distances.

|x - z|^2 = |x|^2 + |z|^2 - 2 x'z: products of tiles, in float32, run at the speed of
matrix products, but lose digits where norms are larger than distances. So each distance
comes with a bound of its error; points that may belong to the H nearest are kept, and
their distances are taken again, from differences and summed in float64.

With u = 2^-24 and N = |x|^2 + |z|^2, the rounding of entries and the products put at
most (D + 2) u N on 2 x'z, the rest of |z|^2 - 2 x'z another 3 u N, and differences in
float32 are wrong by 2 u N: slack N, slack = SLACK (D + 4) u, is twice all of it. The
key of a point is (1 - slack) |z|^2 - 2 x'z, so that its distance is at least the key
plus (1 - slack) |x|^2, and at most the key plus (1 + slack) |x|^2 + 2 slack |z|^2.
"""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from skswsgp._jit import get_thread_id, njit, njit_parallel, njit_small, prange
from skswsgp._nearest import (
    GROUP,
    TILE,
    candidates,
    distance,
    offer_one,
    take_heaps,
)
from skswsgp._tiles import BLOCK, Rows, instead, set_products

ROWS = 64  # rows that meet a tile while it is in cache
PADDING = 16  # of a row of products, so that rows do not share lines of the cache
SLACK, ROUNDING = 2.0, 2.0**-24
UNDERFLOW = 1e-36  # more than what an entry may lose by it
LARGEST = 1e30  # norms beyond which float32 may overflow
NO_BOUND = 3e38
HALVINGS, HALF = 24, np.float32(0.5)  # in the search for a bound
ROOM = 2


class Panels(NamedTuple):
    """Inducing points as products take them."""

    values: np.ndarray  # (n, D, BLOCK) float32, zeros after the last point
    norm: np.ndarray  # (M,) float32 |z|^2
    low: np.ndarray  # (n_tiles, TILE) float32 (1 - slack) |z|^2, then infinity


class Scratch(NamedTuple):
    """Work arrays, with a leading axis of threads; C is room for more than H points."""

    twice: np.ndarray  # (ROWS / BLOCK, D, BLOCK) float32 2 x
    products: np.ndarray  # (ROWS, TILE + PADDING) float32 2 x'z
    square: np.ndarray  # (ROWS,) float32 |x|^2
    index: np.ndarray  # (ROWS, C) int32 points that may be among the nearest
    key: np.ndarray  # (ROWS, C) float32 their keys
    count: np.ndarray  # (ROWS,) their number
    bound: np.ndarray  # (ROWS,) float32 above which no key matters
    values: np.ndarray  # (C,) float32
    distances: np.ndarray  # (1, H) float64 heap of exact distances
    indices: np.ndarray  # (1, H) int32


def make_scratch(n_threads, D, H):
    """Allocate a Scratch."""
    C = ROOM * H + 2 * GROUP
    shapes = {
        "twice": ((ROWS // BLOCK, D, BLOCK), np.float32),
        "products": ((ROWS, TILE + PADDING), np.float32),
        "square": ((ROWS,), np.float32),
        "index": ((ROWS, C), np.int32),
        "key": ((ROWS, C), np.float32),
        "count": ((ROWS,), np.int64),
        "bound": ((ROWS,), np.float32),
        "values": ((C,), np.float32),
        "distances": ((1, H), np.float64),
        "indices": ((1, H), np.int32),
    }
    return Scratch(**{k: np.empty((n_threads, *s), t) for k, (s, t) in shapes.items()})


def slack_of(D):
    """Return the bound of errors relative to |x|^2 + |z|^2."""
    return SLACK * (D + 4) * ROUNDING


def make_panels(points):
    """Return the Panels of points (M, D), empty ones if float32 cannot hold them."""
    M, D = points.shape
    with np.errstate(over="ignore"):
        norm = np.einsum("ij,ij->i", points, points, dtype=np.float64)
    if not norm.max() < LARGEST:
        M, norm, points = 0, norm[:0], points[:0]
    n_tiles = -(-M // TILE)
    padded = np.zeros((n_tiles * TILE, D), dtype=np.float32)
    low = np.full(n_tiles * TILE, np.inf, dtype=np.float32)
    padded[:M], low[:M] = points, (1.0 - slack_of(D)) * norm
    values = np.ascontiguousarray(padded.reshape(-1, BLOCK, D).transpose(0, 2, 1))
    return Panels(values, norm.astype(np.float32), low.reshape(-1, TILE))


@njit
def pack_rows(points, first, n_rows, twice, square):
    """twice (ROWS / BLOCK, D, BLOCK) = 2 x, square (ROWS,) = |x|^2, or zero."""
    D = points.shape[1]
    for r in range(ROWS):
        group, lane = divmod(r, BLOCK)
        total = 0.0
        for d in range(D):
            x = points[first + r, d] if r < n_rows else 0.0
            twice[group, d, lane] = 2.0 * x
            total += x * x
        square[r] = total


@njit
def fill_products(twice, n_rows, panels, t, products):
    """products[r, j] = 2 x_r' z_j, z_j a point of tile t."""
    D, side = panels.shape[1], TILE // BLOCK
    for p in range(side):
        panel = panels[t * side + p]
        for g in range((n_rows + BLOCK - 1) // BLOCK):
            set_products(twice[g], 0, panel, 0, 0, D, products, g * BLOCK, p * BLOCK)


class Group(Rows):
    """Code for GROUP entries of an array at once."""

    def __init__(self, context, builder, dtype):
        super().__init__(context, builder, dtype)
        self.vector = ir.VectorType(self.scalar, GROUP)

    def spread(self, value):
        """Return a group that holds a number everywhere."""
        undefined = ir.Constant(self.vector, ir.Undefined)
        lane = self.builder.insert_element(undefined, value, ir.IntType(32)(0))
        first = ir.Constant(ir.VectorType(ir.IntType(32), GROUP), None)
        return self.builder.shuffle_vector(lane, undefined, first)


# Selection: row r of a block has count[r] points, index[r] and key[r], in which the H
# nearest so far are; what has a key above bound[r] is none of them.


def keys_below(low, t, products, r, j, bound):
    """Bits p of the result say whether low[t, j + p] - products[r, j + p] <= bound."""
    bits = np.uint64(0)
    for p in range(GROUP):
        if low[t, j + p] - products[r, j + p] <= bound:
            bits |= np.uint64(1) << np.uint64(p)
    return bits


def lowest_bit(bits):
    """Return the position of the lowest bit that is set, of one that is."""
    at = 0
    while not (bits >> np.uint64(at)) & np.uint64(1):
        at += 1
    return at


@intrinsic
def _keys_below(typingctx, low, t, products, r, j, bound):
    """The same in vector registers."""

    def generate(context, builder, signature, args):
        low_kind, _, kind, *_ = signature.args
        lower, t, table, r, j, most = args
        group = Group(context, builder, kind.dtype)
        first = group.load(group.pointer(low_kind, lower, t, j))
        key = builder.fsub(first, group.load(group.pointer(kind, table, r, j)))
        below = builder.fcmp_ordered("<=", key, group.spread(most))
        return builder.bitcast(below, ir.IntType(GROUP))

    index = types.intp
    return types.uint64(low, index, products, index, index, low.dtype), generate


@intrinsic
def _lowest_bit(typingctx, bits):
    """The same in one instruction."""

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


keys_below = instead(keys_below, _keys_below)
lowest_bit = instead(lowest_bit, _lowest_bit)


@njit_small
def count_up_to(values, n, bound):
    """Return how many of n values are at most the bound."""
    count = np.int32(0)
    for c in range(n):
        count += np.int32(values[np.uint64(c)] <= bound)
    return count


@njit
def bound_of_smallest(values, n, H, low, high):
    """Return a number that at least H of n values do not exceed, and few more.

    It is between low and high; the latter is one such number, or NO_BOUND.
    """
    if high >= NO_BOUND:
        high = values[0]
        for c in range(1, n):
            high = max(high, values[c])
    for _ in range(HALVINGS):
        middle = low + HALF * (high - low)
        count = count_up_to(values, n, middle)
        if count < H:
            low = middle
        else:
            high = middle
            if count <= H + H // 8:
                break
    return high


@njit
def sift(r, H, norm, slack, square, index, key, count, bound, values):
    """Lower the bound of a row by the points it has, and drop those above."""
    n = count[r]
    for c in range(n):
        values[c] = key[r, c] + 2.0 * slack * norm[index[r, c]]
    least = bound_of_smallest(values, n, H, -square[r], bound[r])
    bound[r] = least + 2.0 * slack * square[r] + UNDERFLOW
    kept = 0
    for c in range(n):
        k, j = key[r, c], index[r, c]
        key[r, kept], index[r, kept] = k, j
        kept += k <= bound[r]
    count[r] = kept


@njit
def offer_kept(points, row, inducing, index, r, n, distances, indices):
    """Put the H nearest of the n points that a row has into a heap."""
    for c in range(n):
        j = index[r, c]
        offer_one(distance(points, row, inducing, j), j, c, distances, indices, 0)


@njit
def sift_exactly(
    points, row, inducing, r, norm, slack, square, index, key, count, bound,
    distances, indices,
):  # fmt: skip
    """The same where keys cannot tell H points from others: by exact distances."""
    H = distances.shape[1]
    offer_kept(points, row, inducing, index, r, count[r], distances, indices)
    bound[r] = distances[0, 0] - (1.0 - slack) * square[r] + UNDERFLOW
    for k in range(H):
        j = indices[0, k]
        index[r, k] = j
        key[r, k] = distances[0, k] - square[r] - slack * norm[j]
    count[r] = H


@njit_small
def add_near(low, products, t, r, start, bits, index, key, count):
    """Add the points of a group that have their bit set to those of row r."""
    at = count[r]
    while bits != 0:
        j = start + lowest_bit(bits)
        bits &= bits - np.uint64(1)
        key[r, at] = low[t, j] - products[r, j]
        index[r, at] = t * TILE + j
        at += 1
    count[r] = at


@njit_small
def scan_tile(
    points, row, inducing, t, r, n, norm, low, slack, products, square, index, key,
    count, bound, values, distances, indices,
):  # fmt: skip
    """Add those of n points of tile t that may be among the H nearest of a row."""
    H, most = distances.shape[1], key.shape[1] - GROUP
    for start in range(0, n, GROUP):
        bits = keys_below(low, t, products, r, start, bound[r])
        if n - start < GROUP:
            bits &= (np.uint64(1) << np.uint64(n - start)) - np.uint64(1)
        if bits == 0:
            continue
        if count[r] > most:
            sift(r, H, norm, slack, square, index, key, count, bound, values)
        if count[r] > most:
            sift_exactly(
                points, row, inducing, r, norm, slack, square, index, key, count,
                bound, distances, indices,
            )  # fmt: skip
        add_near(low, products, t, r, start, bits, index, key, count)


@njit
def offer_all(points, row, inducing, n, distances, indices):
    """Put the H nearest of the first n points into a heap."""
    for j in range(n):
        offer_one(distance(points, row, inducing, j), j, j, distances, indices, 0)


@njit
def scan_block(
    points, inducing, before, block, panels, norm, low, slack, twice, products, square,
    index, key, count, bound, values, distances, indices, lists,
):  # fmt: skip
    """Fill the lists of one block of rows."""
    M, H = inducing.shape[0], lists.shape[1]
    first = block * ROWS
    n_rows = min(ROWS, points.shape[0] - first)
    pack_rows(points, first, n_rows, twice, square)
    for r in range(n_rows):
        count[r] = 0
        bound[r] = NO_BOUND if square[r] < LARGEST else -NO_BOUND
    for t in range(low.shape[0]):
        if candidates(first + n_rows - 1, M, t, before) <= 0:
            break
        fill_products(twice, n_rows, panels, t, products)
        for r in range(n_rows):
            n = candidates(first + r, M, t, before)
            scan_tile(
                points, first + r, inducing, t, r, n, norm, low, slack, products,
                square, index, key, count, bound, values, distances, indices,
            )  # fmt: skip
    for r in range(n_rows):
        row = first + r
        if count[r] >= H:
            sift(r, H, norm, slack, square, index, key, count, bound, values)
            n = count[r]
            offer_kept(points, row, inducing, index, r, n, distances, indices)
        else:  # what float32 cannot hold, and the first rows of a chain
            n = row if before else M
            offer_all(points, row, inducing, n, distances, indices)
        take_heaps(distances, indices, row, row + 1, lists)


@njit_parallel
def scan(points, inducing, before, panels, slack, works, lists):
    """Fill the lists (n, H) of all rows of points (n, D).

    With `before`, rows are the inducing points themselves, and choose from those before
    them: the lists of the first H are not to be used.
    """
    for b in prange((points.shape[0] + ROWS - 1) // ROWS):
        t = get_thread_id()
        scan_block(
            points, inducing, before, np.int64(b), panels.values, panels.norm,
            panels.low, slack, works.twice[t], works.products[t], works.square[t],
            works.index[t], works.key[t], works.count[t], works.bound[t],
            works.values[t], works.distances[t], works.indices[t], lists,
        )  # fmt: skip
