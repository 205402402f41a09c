"""Compiled loops that find the H nearest of M inducing points by exact distances.

|x - z|^2 = |x|^2 + |z|^2 - 2 x'z: products of tiles, in float32, run at the speed of
matrix products, but lose digits where norms are larger than distances. So each distance
comes with a bound of its error; points that may belong to the H nearest are kept, and
their distances are taken again, from differences and summed in float64.

With u = 2^-24 and N = |x|^2 + |z|^2, products put at most D u N on 2 x'z, the rest of
|z|^2 - 2 x'z another 3 u N, a bound made from it and kept in float32 4 u N. Points in
float64 are rounded on entry, 2 u N more, but their differences are as good as exact;
those in float32 are not, but the squares of differences are wrong by 6 u N (3 u of each
square: the difference counts twice, and the product). In all that is (D + 9) u N or
(D + 13) u N, not more than slack N, slack = SLACK (D + 6) u. The key of a point is
(1 - slack) |z|^2 - 2 x'z, so that its distance is at least the key plus
(1 - slack) |x|^2, and at most the key plus (1 + slack) |x|^2 + 2 slack |z|^2.

A tile holds a leaf of a k-d tree of the inducing points, and the rows that meet it
together are near each other. The tile nearest to some rows comes first and tells how
far their neighbours can be; a tile whose box is further away than that is left out.
"""

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np

from skswsgp._compiled.jit import njit, njit_inline, njit_range, njit_small
from skswsgp._compiled.team import BLOCK
from skswsgp._compiled.threads import run_in_threads
from skswsgp._compiled.tiles import GROUP, keys_below, lowest_bit, set_products
from skswsgp._neighbors.heaps import offer_point, squared_distance, take_heaps
from skswsgp._neighbors.kd_order import (
    GROUPS,
    INFINITE,
    NEAREST_LEAVES_FIRST,
    NO_BOUND,
    REACH_FRACTIONS,
    ROWS_PER_BLOCK,
    choose_groups,
    count_near,
    measure_boxes,
    set_corners,
    set_limits,
    tree_order,
)

LEAF_SIZE = 256  # inducing points in a leaf
PADDING = 16  # of a row of products, so that rows do not share lines of the cache
SLACK, ROUNDING = 2.0, 2.0**-24
UNDERFLOW_MARGIN = 1e-36  # more than what an entry may lose by it
LARGEST = 1e30  # norms beyond which float32 may overflow
MAX_BISECTIONS, HALF = 24, np.float32(0.5)  # in the search for a bound
CANDIDATES_PER_NEIGHBOR = 2
FIRST_SEGMENT = 1024  # of a chain, whose predecessors are found among themselves


class Panels(NamedTuple):
    """Inducing points as products take them, in the order of a k-d tree."""

    values: np.ndarray  # (n, D, BLOCK) float32, zeros after the last point
    low: np.ndarray  # (n_tiles, TILE) float32 (1 - slack) |z|^2, then infinity
    name: np.ndarray  # (n_tiles, TILE) int32 which point
    least: np.ndarray  # (n_tiles, D) float32 lower corner of the box of a tile
    most: np.ndarray  # (n_tiles, D) float32 upper corner
    norm: np.ndarray  # (M,) float32 |z|^2, in the order of the points


class Scratch(NamedTuple):
    """Work arrays, with a leading axis of threads; C is room for more than H points."""

    single: np.ndarray  # (ROWS, D) float32 x
    twice: np.ndarray  # (GROUPS, D, BLOCK) float32 2 x
    square: np.ndarray  # (ROWS,) float32 |x|^2
    corners: np.ndarray  # (2, GROUPS, D) float32 of the boxes of groups
    near: np.ndarray  # (n_tiles, GROUPS) float32 |.|^2 between boxes, or infinity
    limit: np.ndarray  # (GROUPS,) float32 up to which a group meets tiles
    gap: np.ndarray  # (ROWS,) float32 |.|^2 from rows to a box
    meets: np.ndarray  # (GROUPS,) bool whether a row of a group meets a tile
    products: np.ndarray  # (ROWS, TILE + PADDING) float32 2 x'z
    index: np.ndarray  # (ROWS, C) int32 points that may be among the nearest
    key: np.ndarray  # (ROWS, C) float32 their keys
    count: np.ndarray  # (ROWS,) their number
    bound: np.ndarray  # (ROWS,) float32 above which no key matters
    reach: np.ndarray  # (ROWS,) float32 above which no gap matters
    values: np.ndarray  # (C,) float32
    distances: np.ndarray  # (1, H) float64 heap of exact distances
    indices: np.ndarray  # (1, H) int32


def allocate_scratch(n_threads, n_tiles, D, H):
    """Allocate a Scratch."""
    C = CANDIDATES_PER_NEIGHBOR * H + 2 * GROUP
    shapes = {
        "single": ((ROWS_PER_BLOCK, D), np.float32),
        "twice": ((GROUPS, D, BLOCK), np.float32),
        "square": ((ROWS_PER_BLOCK,), np.float32),
        "corners": ((2, GROUPS, D), np.float32),
        "near": ((n_tiles, GROUPS), np.float32),
        "limit": ((GROUPS,), np.float32),
        "gap": ((ROWS_PER_BLOCK,), np.float32),
        "meets": ((GROUPS,), np.bool_),
        "products": ((ROWS_PER_BLOCK, LEAF_SIZE + PADDING), np.float32),
        "index": ((ROWS_PER_BLOCK, C), np.int32),
        "key": ((ROWS_PER_BLOCK, C), np.float32),
        "count": ((ROWS_PER_BLOCK,), np.int64),
        "bound": ((ROWS_PER_BLOCK,), np.float32),
        "reach": ((ROWS_PER_BLOCK,), np.float32),
        "values": ((C,), np.float32),
        "distances": ((1, H), np.float64),
        "indices": ((1, H), np.int32),
    }
    return Scratch(**{k: np.empty((n_threads, *s), t) for k, (s, t) in shapes.items()})


@njit_inline
def scratch_view(works, t):
    """Return the work arrays of thread t."""
    return Scratch(
        works.single[t],
        works.twice[t],
        works.square[t],
        works.corners[t],
        works.near[t],
        works.limit[t],
        works.gap[t],
        works.meets[t],
        works.products[t],
        works.index[t],
        works.key[t],
        works.count[t],
        works.bound[t],
        works.reach[t],
        works.values[t],
        works.distances[t],
        works.indices[t],
    )


def slack_of(D):
    """Return the bound of errors relative to |x|^2 + |z|^2."""
    return SLACK * (D + 6) * ROUNDING


def make_panels(points):
    """Return the Panels of points (M, D), empty ones if float32 cannot hold them."""
    M, D = points.shape
    with np.errstate(over="ignore"):
        norm = np.einsum("ij,ij->i", points, points, dtype=np.float64)
    if not norm.max() < LARGEST:
        M, norm, points = 0, norm[:0], points[:0]
    n_tiles = -(-M // LEAF_SIZE)
    order = tree_order(points, LEAF_SIZE)
    padded = np.zeros((n_tiles * LEAF_SIZE, D), dtype=np.float32)
    low = np.full(n_tiles * LEAF_SIZE, np.inf, dtype=np.float32)
    name = np.zeros(n_tiles * LEAF_SIZE, dtype=np.int32)
    padded[:M], low[:M] = points[order], (1.0 - slack_of(D)) * norm[order]
    name[:M] = order
    values = padded.reshape(-1, BLOCK, D).transpose(0, 2, 1).copy()
    padded[M:] = padded[M - 1 : M]
    leaves = padded.reshape(-1, LEAF_SIZE, D)
    return Panels(
        values=values,
        low=low.reshape(-1, LEAF_SIZE),
        name=name.reshape(-1, LEAF_SIZE),
        least=np.nextafter(leaves.min(axis=1), -INFINITE),
        most=np.nextafter(leaves.max(axis=1), INFINITE),
        norm=norm.astype(np.float32),
    )


@njit
def pack_rows(points, rows, first, n_rows, single, twice, square):
    """Set single (ROWS, D) = x, twice (GROUPS, D, BLOCK) = 2 x, square (ROWS,) = |x|^2.

    The last of n_rows rows stands for those after it as well.
    """
    for r in range(ROWS_PER_BLOCK):
        group, lane = divmod(r, BLOCK)
        row = rows[first + min(r, n_rows - 1)]
        total = 0.0
        for d in range(points.shape[1]):
            x = points[row, d]
            single[r, d] = x
            twice[group, d, lane] = 2.0 * x
            total += x * x
        square[r] = total


@njit
def fill_products(twice, meets, panels, t, products):
    """products[r, j] = 2 x_r' z_j for points of tile t and groups that meet it."""
    D, side = panels.shape[1], LEAF_SIZE // BLOCK
    for p in range(side):
        panel = panels[t * side + p]
        for g in range(GROUPS):
            if meets[g]:
                row, column = g * BLOCK, p * BLOCK
                set_products(twice[g], 0, panel, 0, 0, D, products, row, column)


@njit_small
def reach_of(bound, square, slack):
    """Return the squared distance to a box beyond which no key is below the bound.

    A key of distance d is at most d - (1 - slack) |x|^2, x is rounded by u |x|.
    """
    if bound >= NO_BOUND:
        return NO_BOUND
    reach = math.sqrt(max(bound + square, 0.0)) + 2.0 * ROUNDING * math.sqrt(square)
    return min(reach * reach * (1.0 + slack) + UNDERFLOW_MARGIN, NO_BOUND)


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

    It is between low and high, the bound before, or NO_BOUND. Where that one comes from
    exact distances, fewer than H values may be below it: then it comes back.
    """
    if high >= NO_BOUND:
        high = values[0]
        for c in range(1, n):
            high = max(high, values[c])
    for _ in range(MAX_BISECTIONS):
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
def tighten_bound(r, H, norm, slack, square, index, key, count, bound, values):
    """Lower the bound of a row by the points it has, and drop those above."""
    n = count[r]
    for c in range(n):
        values[c] = key[r, c] + 2.0 * slack * norm[index[r, c]]
    least = bound_of_smallest(values, n, H, -square[r], bound[r])
    bound[r] = least + 2.0 * slack * square[r] + UNDERFLOW_MARGIN
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
        offer_point(
            squared_distance(points, row, inducing, j), j, c, distances, indices, 0
        )


@njit
def tighten_bound_exactly(
    points, row, inducing, r, norm, slack, square, index, key, count, bound,
    distances, indices,
):  # fmt: skip
    """The same where keys cannot tell H points from others: by exact distances."""
    H = distances.shape[1]
    offer_kept(points, row, inducing, index, r, count[r], distances, indices)
    bound[r] = distances[0, 0] - (1.0 - slack) * square[r] + UNDERFLOW_MARGIN
    for k in range(H):
        j = indices[0, k]
        index[r, k] = j
        key[r, k] = distances[0, k] - square[r] - slack * norm[j]
    count[r] = H


@njit_small
def add_near(low, products, name, t, r, start, bits, before, index, key, count):
    """Add the points of a group that have their bit set to those of row r.

    Only those whose number is less than `before`.
    """
    at = count[r]
    while bits != 0:
        j = start + lowest_bit(bits)
        bits &= bits - np.uint64(1)
        key[r, at] = low[t, j] - products[r, j]
        index[r, at] = name[t, j]
        at += name[t, j] < before
    count[r] = at


@njit_inline
def visit_tile(points, row, inducing, before, t, r, slack, panels, work):
    """Add those points of tile t that may be among the H nearest of a row."""
    key, index, count, bound = work.key, work.index, work.count, work.bound
    norm, low, products = panels.norm, panels.low, work.products
    H, most = work.distances.shape[1], key.shape[1] - GROUP
    for start in range(0, LEAF_SIZE, GROUP):
        bits = keys_below(low, t, products, r, start, bound[r])
        if bits == 0:
            continue
        if count[r] > most:
            tighten_bound(
                r, H, norm, slack, work.square, index, key, count, bound, work.values
            )
        if count[r] > most:
            tighten_bound_exactly(
                points, row, inducing, r, norm, slack, work.square, index, key, count,
                bound, work.distances, work.indices,
            )  # fmt: skip
        add_near(
            low, products, panels.name, t, r, start, bits, before, index, key,
            count,
        )  # fmt: skip
    if count[r] >= (H if bound[r] >= NO_BOUND else 2 * H):
        tighten_bound(
            r, H, norm, slack, work.square, index, key, count, bound, work.values
        )
        work.reach[r] = reach_of(bound[r], work.square[r], slack)


@njit
def offer_all(points, row, inducing, n, distances, indices):
    """Put the H nearest of the first n points into a heap."""
    for j in range(n):
        offer_point(
            squared_distance(points, row, inducing, j), j, j, distances, indices, 0
        )


@njit
def scan_block(points, rows, inducing, offset, block, slack, panels, work, lists):
    """Fill the lists of one block of rows."""
    H, n_tiles = lists.shape[1], work.near.shape[0]
    seeds = NEAREST_LEAVES_FIRST + 2 * H // LEAF_SIZE
    first = block * ROWS_PER_BLOCK
    n_rows = min(ROWS_PER_BLOCK, rows.shape[0] - first)
    pack_rows(points, rows, first, n_rows, work.single, work.twice, work.square)
    for r in range(ROWS_PER_BLOCK):
        fits = r < n_rows and work.square[r] < LARGEST
        work.count[r] = 0
        work.bound[r] = NO_BOUND if fits else -NO_BOUND
        work.reach[r] = NO_BOUND if fits else -1.0
    set_corners(work.single, work.corners)
    measure_boxes(work.corners, panels.least, panels.most, work.near)
    for stage in range(seeds + len(REACH_FRACTIONS)):
        set_limits(stage - seeds, work.near, work.reach, work.limit)
        for t in range(n_tiles):
            if count_near(work.near, t, work.limit) == 0:
                continue
            if choose_groups(
                work.single, panels.least, panels.most, t, work.limit, work.reach,
                work.near, work.gap, work.meets,
            ) == 0:  # fmt: skip
                continue
            fill_products(work.twice, work.meets, panels.values, t, work.products)
            for r in range(n_rows):
                if work.meets[r // BLOCK] and work.gap[r] <= work.reach[r]:
                    row = rows[first + r]
                    before = offset + row if offset >= 0 else inducing.shape[0]
                    visit_tile(points, row, inducing, before, t, r, slack, panels, work)
    for r in range(n_rows):
        row = np.int64(rows[first + r])
        if work.count[r] >= H:
            tighten_bound(
                r, H, panels.norm, slack, work.square, work.index, work.key, work.count,
                work.bound, work.values,
            )  # fmt: skip
            n = work.count[r]
            offer_kept(
                points, row, inducing, work.index, r, n, work.distances, work.indices
            )
        else:  # what float32 cannot hold, and the first rows of a chain
            n = offset + row if offset >= 0 else inducing.shape[0]
            offer_all(points, row, inducing, n, work.distances, work.indices)
        take_heaps(work.distances, work.indices, row, row + 1, lists)


@njit_range
def scan_blocks(
    first, last, t, points, rows, inducing, offset, panels, slack, works, lists
):
    """Fill the lists of blocks of rows from first to last."""
    work = scratch_view(works, t)
    for block in range(first, last):
        scan_block(points, rows, inducing, offset, block, slack, panels, work, lists)


def scan_all(points, rows, inducing, offset, panels, slack, works, lists):
    """Fill the lists (n, H) of all points (n, D), in blocks of the order `rows` (n,).

    With an offset >= 0, row i chooses from the inducing points before offset + i, and
    its list is not to be used where these are fewer than H. There are as many threads
    as work arrays.
    """
    arguments = points, rows, inducing, offset, panels, slack, works, lists
    run_in_threads(
        scan_blocks, len(works.count), -(-len(rows) // ROWS_PER_BLOCK), *arguments
    )


class DistanceScan:
    """All points, but for tiles that are too far away: exact.

    Parameters
    ----------
    points : ndarray of shape (M, D)
        Scaled inducing points.
    n_neighbors : int
        H.
    n_threads : int
        Threads of every launch.
    """

    def __init__(self, points, n_neighbors, n_threads):
        self.points = points
        self.n_neighbors, self.n_threads = n_neighbors, n_threads

    def find(self, points):
        """Return the lists (n, H) of scaled points, nearest first, ties by index."""
        lists = np.empty((len(points), self.n_neighbors), dtype=np.int32)
        self._scan(points, self._panels, lists)
        return lists

    def predecessors(self):
        """Return the lists (M, H) of each inducing point among those before it."""
        M = len(self.points)
        lists = np.empty((M, self.n_neighbors), dtype=np.int32)
        start, stop = 0, FIRST_SEGMENT
        # But for the first part, at least half of the points come before a row.
        while start < M:
            panels = make_panels(self.points[:stop])
            self._scan(self.points[start:stop], panels, lists[start:stop], start)
            start, stop = stop, 2 * stop
        return lists

    def _scan(self, points, panels, lists, offset=-1):
        """Fill the lists of scaled points; those of a chain start at an offset."""
        D, n_tiles = points.shape[1], len(panels.low)
        works = allocate_scratch(self.n_threads, n_tiles, D, self.n_neighbors)
        rows, slack = tree_order(points, BLOCK), slack_of(D)
        scan_all(points, rows, self.points, offset, panels, slack, works, lists)

    @cached_property
    def _panels(self):
        return make_panels(self.points)
