"""Compiled loops that find the H nearest of M inducing points by exact distances.

|x - z|^2 = |x|^2 + |z|^2 - 2 x'z is evaluated in float32 by products of 8 x 8 tiles,
with a bound of the error. Points that may belong to the H nearest become candidates,
and their distances are computed again from differences and summed in float64, so the
lists are exact. The bound is derived in doc/developer/numerics.md. It is slack times
|x|^2 + |z|^2, and the key of a point is (1 - slack) |z|^2 - 2 x'z, so that

    key + (1 - slack) |x|^2 <= |x - z|^2 <= key + (1 + slack) |x|^2 + 2 slack |z|^2.

Inducing points lie in the leaves of a k-d tree, and rows that are near each other form
groups. The leaf nearest to a group comes first and limits how far the neighbours of its
rows can be; a leaf whose bounding box is farther away is left out.
"""

import math
from collections import namedtuple
from functools import cached_property
from typing import NamedTuple

import numpy as np

from skswsgp._compiled.jit import njit, njit_inline, njit_inner, njit_small
from skswsgp._compiled.threads import microseconds_per_pair, run_in_threads
from skswsgp._compiled.tiles import BLOCK, GROUP, keys_below, lowest_bit, set_products
from skswsgp._covariance.products import TILE
from skswsgp._neighbors import kd_order
from skswsgp._neighbors.heaps import offer_point, squared_distance, take_heaps
from skswsgp._neighbors.kd_order import NO_BOUND, ROW_GROUPS, ROWS_PER_BLOCK, tree_order

LEAF_SIZE = TILE  # inducing points in a leaf
PADDING = 16  # columns after a row of products, so that rows share no cache lines
BITS = np.finfo(np.float32).nmant + 1  # of the digits of float32
ROUNDING = 2.0**-BITS  # unit roundoff of float32
SLACK = 2.0  # units of (D + 6) ROUNDING in the error bound
UNDERFLOW_MARGIN = 1e-36  # squared distance, above the loss of a key by underflow
MAX_NORM = 1e30  # |x|^2 beyond which float32 may overflow
HALF = np.float32(0.5)
CANDIDATES_PER_NEIGHBOR = 2  # capacity for candidates of a row, in units of H
# Inducing points whose predecessors are all found by brute force
FIRST_SEGMENT = 4 * LEAF_SIZE


class Panels(NamedTuple):
    """Inducing points as matrix products take them, in the order of a k-d tree."""

    values: np.ndarray  # (n, D, BLOCK) float32, zeros after the last point
    base_key: np.ndarray  # (n_leaves, LEAF_SIZE) float32 (1 - slack) |z|^2, then inf
    point: np.ndarray  # (n_leaves, LEAF_SIZE) int32 index of the inducing point
    lower: np.ndarray  # (n_leaves, D) float32 lower corner of a leaf's bounding box
    upper: np.ndarray  # (n_leaves, D) float32 upper corner
    norm: np.ndarray  # (M,) float32 |z|^2, in the order of the inducing points


class ScanTask(NamedTuple):
    """Rows whose neighbours are to be found, and the points to choose from."""

    points: np.ndarray  # (n, D) scaled rows
    order: np.ndarray  # (n,) int32 order in which rows form blocks
    inducing: np.ndarray  # (M, D) scaled inducing points
    offset: int  # row i chooses from the points before offset + i, or from all if < 0
    slack: float  # error bound relative to |x|^2 + |z|^2
    panels: Panels


def scratch_arrays(n_leaves, D, H):
    """Return the work arrays of one thread by name."""
    C = CANDIDATES_PER_NEIGHBOR * H + 2 * GROUP
    R, single = ROWS_PER_BLOCK, np.float32
    return {
        "x": np.empty((R, D), single),
        "twice_x": np.empty((ROW_GROUPS, D, BLOCK), single),
        "x_norm": np.empty(R, single),  # |x|^2
        "corners": np.empty((2, ROW_GROUPS, D), single),  # bounding boxes of groups
        # Squared distance between boxes, infinite once the leaf was visited
        "box_gap": np.empty((n_leaves, ROW_GROUPS), single),
        "limit": np.empty(ROW_GROUPS, single),  # box_gap up to which leaves are visited
        "row_gap": np.empty(R, single),  # squared distance of rows to a leaf's box
        "visits": np.empty(ROW_GROUPS, np.bool_),  # whether a group visits a leaf
        "products": np.empty((R, LEAF_SIZE + PADDING), single),  # 2 x'z
        "candidates": np.empty((R, C), np.int32),
        "keys": np.empty((R, C), single),  # keys of the candidates
        "count": np.empty(R, np.int64),  # number of candidates
        "bound": np.empty(R, single),  # key above which a point is no neighbour
        "reach": np.empty(R, single),  # row_gap above which a leaf holds no neighbour
        "values": np.empty(C, single),
        "distances": np.empty((1, H), np.float64),  # heap of exact distances
        "indices": np.empty((1, H), np.int32),
    }


Scratch = namedtuple("Scratch", scratch_arrays(1, 1, 1))


def relative_slack(D):
    """Return the error bound relative to |x|^2 + |z|^2."""
    return SLACK * (D + 6) * ROUNDING


def make_panels(points):
    """Return the Panels of points (M, D), empty ones if float32 cannot hold them."""
    M, D = points.shape
    with np.errstate(over="ignore"):
        norm = np.einsum("ij,ij->i", points, points, dtype=np.float64)
    if not norm.max() < MAX_NORM:
        M, norm, points = 0, norm[:0], points[:0]
    n_leaves = -(-M // LEAF_SIZE)
    order = tree_order(points, LEAF_SIZE)
    padded = np.zeros((n_leaves * LEAF_SIZE, D), dtype=np.float32)
    base_key = np.full(n_leaves * LEAF_SIZE, np.inf, dtype=np.float32)
    point = np.zeros(n_leaves * LEAF_SIZE, dtype=np.int32)
    padded[:M], base_key[:M] = points[order], (1.0 - relative_slack(D)) * norm[order]
    point[:M] = order
    values = padded.reshape(-1, BLOCK, D).transpose(0, 2, 1).copy()
    padded[M:] = padded[M - 1 : M]
    leaves = padded.reshape(-1, LEAF_SIZE, D)
    return Panels(
        values=values,
        base_key=base_key.reshape(-1, LEAF_SIZE),
        point=point.reshape(-1, LEAF_SIZE),
        lower=np.nextafter(leaves.min(axis=1), -kd_order.INFINITE),
        upper=np.nextafter(leaves.max(axis=1), kd_order.INFINITE),
        norm=norm.astype(np.float32),
    )


@njit_inner
def pack_rows(points, order, first, n_rows, x, twice_x, x_norm):
    """Set x (R, D), twice_x (ROW_GROUPS, D, BLOCK) = 2 x and x_norm (R,) = |x|^2.

    A block with fewer than R = ROWS_PER_BLOCK rows is filled up with its last row.
    """
    for r in range(ROWS_PER_BLOCK):
        group, column = divmod(r, BLOCK)
        row = order[first + min(r, n_rows - 1)]
        total = 0.0
        for d in range(points.shape[1]):
            value = points[row, d]
            x[r, d] = value
            twice_x[group, d, column] = 2.0 * value
            total += value * value
        x_norm[r] = total


@njit_inner
def fill_products(twice_x, visits, panels, leaf, products):
    """Set products[r, j] = 2 x_r' z_j for points of a leaf and groups that visit it."""
    D, side = panels.shape[1], LEAF_SIZE // BLOCK
    for p in range(side):
        panel = panels[leaf * side + p]
        for g in range(ROW_GROUPS):
            if visits[g]:
                row, column = g * BLOCK, p * BLOCK
                set_products(twice_x[g], 0, panel, 0, 0, D, products, row, column)


@njit_small
def reach_of_bound(bound, x_norm, slack):
    """Return the squared distance to a box beyond which it holds no neighbour.

    The squared distance of a neighbour is at most bound + |x|^2, and x is rounded by
    ROUNDING |x|.
    """
    if bound >= NO_BOUND:
        return NO_BOUND
    reach = math.sqrt(max(bound + x_norm, 0.0)) + 2.0 * ROUNDING * math.sqrt(x_norm)
    return min(reach * reach * (1.0 + slack) + UNDERFLOW_MARGIN, NO_BOUND)


@njit_inner
def bound_of_smallest(values, n, H, low, high):
    """Return a number that at least H of n values do not exceed, and few more.

    The number is found by bisection between `low` and `high`, which is the previous
    bound or NO_BOUND. A previous bound that came from exact distances may exceed fewer
    than H values; then it is returned unchanged.
    """
    if high >= NO_BOUND:
        high = values[0]
        for c in range(1, n):
            high = max(high, values[c])
    for _ in range(BITS):
        middle = low + HALF * (high - low)
        count = np.int32(0)
        for c in range(n):
            count += np.int32(values[np.uint64(c)] <= middle)
        if count < H:
            low = middle
        else:
            high = middle
            if count <= H + H // 8:
                break
    return high


@njit_inner
def tighten_bound(r, H, norm, slack, x_norm, candidates, keys, count, bound, values):
    """Lower the bound of row r by its candidates, and drop candidates above it.

    Modifies row r of candidates, keys, count and bound; `values` is scratch.
    """
    n = count[r]
    for c in range(n):
        values[c] = keys[r, c] + 2.0 * slack * norm[candidates[r, c]]
    smallest = bound_of_smallest(values, n, H, -x_norm[r], bound[r])
    bound[r] = smallest + 2.0 * slack * x_norm[r] + UNDERFLOW_MARGIN
    stored = 0
    for c in range(n):
        key, j = keys[r, c], candidates[r, c]
        keys[r, stored], candidates[r, stored] = key, j
        stored += key <= bound[r]
    count[r] = stored


@njit_inner
def offer_candidates(points, row, inducing, candidates, r, n, distances, indices):
    """Put the H nearest of the n candidates of a row into a heap."""
    for c in range(n):
        j = candidates[r, c]
        key = squared_distance(points, row, inducing, j)
        offer_point(key, j, c, distances, indices, 0)


@njit_inline
def tighten_bound_exactly(task, work, r, row):
    """Reduce the candidates of a row to the H nearest, by exact distances.

    It serves rows with so many points at nearly equal distances that keys cannot
    separate H candidates from the others.
    """
    slack, distances, n = task.slack, work.distances, work.count[r]
    offer_candidates(
        task.points, row, task.inducing, work.candidates, r, n, distances, work.indices
    )
    work.bound[r] = distances[0, 0] - (1.0 - slack) * work.x_norm[r] + UNDERFLOW_MARGIN
    for k in range(distances.shape[1]):
        j = work.indices[0, k]
        work.candidates[r, k] = j
        work.keys[r, k] = distances[0, k] - work.x_norm[r] - slack * task.panels.norm[j]
    work.count[r] = distances.shape[1]


@njit_inline
def add_candidates(panels, work, leaf, r, start, bits, before):
    """Add the points of a leaf whose bits are set to the candidates of row r.

    Bit p stands for point start + p; points with an index >= `before` are left out.
    """
    n = work.count[r]
    while bits != 0:
        j = start + lowest_bit(bits)
        bits &= bits - np.uint64(1)
        work.keys[r, n] = panels.base_key[leaf, j] - work.products[r, j]
        work.candidates[r, n] = panels.point[leaf, j]
        n += panels.point[leaf, j] < before
    work.count[r] = n


@njit_inline
def visit_leaf(task, work, leaf, r, row, before):
    """Add the points of a leaf that may be among the H nearest to those of a row."""
    panels, slack, x_norm = task.panels, task.slack, work.x_norm
    keys, count, bound = work.keys, work.count, work.bound
    rows = x_norm, work.candidates, keys, count, bound, work.values
    H, room = work.distances.shape[1], keys.shape[1] - GROUP
    for start in range(0, LEAF_SIZE, GROUP):
        bits = keys_below(panels.base_key, leaf, work.products, r, start, bound[r])
        if bits == 0:
            continue
        if count[r] > room:
            tighten_bound(r, H, panels.norm, slack, *rows)
        if count[r] > room:
            tighten_bound_exactly(task, work, r, row)
        add_candidates(panels, work, leaf, r, start, bits, before)
    if count[r] >= (H if bound[r] >= NO_BOUND else 2 * H):
        tighten_bound(r, H, panels.norm, slack, *rows)
        work.reach[r] = reach_of_bound(bound[r], x_norm[r], slack)


@njit_inline
def finish_row(task, work, r, row, before, lists):
    """Set the list of a row to its H nearest candidates."""
    points, inducing, H = task.points, task.inducing, lists.shape[1]
    candidates, count = work.candidates, work.count
    heap = work.distances, work.indices
    if count[r] >= H:
        bounds = task.panels.norm, task.slack, work.x_norm
        known = candidates, work.keys, count, work.bound, work.values
        tighten_bound(r, H, *bounds, *known)
        offer_candidates(points, row, inducing, candidates, r, count[r], *heap)
    else:  # float32 cannot hold the row, or fewer than H points come before it
        for j in range(before):
            key = squared_distance(points, row, inducing, j)
            offer_point(key, j, j, *heap, 0)
    take_heaps(*heap, row, row + 1, lists)


@njit_inline
def points_before(task, row):
    """Return how many of the first inducing points a row chooses from."""
    return task.offset + row if task.offset >= 0 else task.inducing.shape[0]


@njit_inline
def scan_block(task, work, block, lists):
    """Fill the lists of one block of rows."""
    panels, n_leaves = task.panels, work.box_gap.shape[0]
    nearest_first = 1 + 2 * lists.shape[1] // LEAF_SIZE
    first = block * ROWS_PER_BLOCK
    n_rows = min(ROWS_PER_BLOCK, task.order.shape[0] - first)
    pack_rows(task.points, task.order, first, n_rows, work.x, work.twice_x, work.x_norm)
    for r in range(ROWS_PER_BLOCK):
        fits = r < n_rows and work.x_norm[r] < MAX_NORM
        work.count[r] = 0
        work.bound[r] = NO_BOUND if fits else -NO_BOUND
        work.reach[r] = NO_BOUND if fits else -1.0
    kd_order.set_corners(work.x, work.corners)
    kd_order.measure_boxes(work.corners, panels.lower, panels.upper, work.box_gap)
    for stage in range(nearest_first + len(kd_order.REACH_FRACTIONS)):
        kd_order.set_limits(stage - nearest_first, work.box_gap, work.reach, work.limit)
        for leaf in range(n_leaves):
            if kd_order.count_near(work.box_gap, leaf, work.limit) == 0:
                continue
            boxes = work.x, panels.lower, panels.upper, leaf, work.limit, work.reach
            gaps = work.box_gap, work.row_gap, work.visits
            if kd_order.choose_groups(*boxes, *gaps) == 0:
                continue
            fill_products(work.twice_x, work.visits, panels.values, leaf, work.products)
            for r in range(n_rows):
                if work.visits[r // BLOCK] and work.row_gap[r] <= work.reach[r]:
                    row = np.int64(task.order[first + r])
                    before = points_before(task, row)
                    visit_leaf(task, work, leaf, r, row, before)
    for r in range(n_rows):
        row = np.int64(task.order[first + r])
        finish_row(task, work, r, row, points_before(task, row), lists)


@njit
def scan_blocks(first, last, task, work, lists):
    """Fill the lists of blocks of rows from first to last."""
    for block in range(first, last):
        scan_block(task, work, block, lists)


class DistanceScan:
    """Exact search for the H nearest of scaled points (M, D); it skips far leaves."""

    def __init__(self, points, n_neighbors, n_threads):
        self.points = points
        self.n_neighbors, self.n_threads = n_neighbors, n_threads

    def find(self, points):
        """Return the lists (n, H) of scaled points, nearest first, ties by index."""
        lists = np.empty((len(points), self.n_neighbors), dtype=np.int32)
        self._scan(points, self._panels, lists)
        return lists

    def predecessors(self):
        """Return the lists (M, H) of each point; see `NeighborSearch.predecessors`."""
        M = len(self.points)
        lists = np.empty((M, self.n_neighbors), dtype=np.int32)
        start, stop = 0, FIRST_SEGMENT
        # Segments double, so that at least half of the points searched come before a
        # row, but for the rows of the first segment.
        while start < M:
            panels = make_panels(self.points[:stop])
            self._scan(self.points[start:stop], panels, lists[start:stop], start)
            start, stop = stop, 2 * stop
        return lists

    def _scan(self, points, panels, lists, offset=-1):
        """Fill the lists of scaled points; see ScanTask for `offset`."""
        D = points.shape[1]
        order, slack = tree_order(points, BLOCK), relative_slack(D)
        task = ScanTask(points, order, self.points, offset, slack, panels)
        size = len(panels.base_key), D, self.n_neighbors
        works = [Scratch(**scratch_arrays(*size)) for _ in range(self.n_threads)]

        def work(first, last, t):
            scan_blocks(first, last, task, works[t], lists)

        cost = ROWS_PER_BLOCK * len(self.points) * microseconds_per_pair(D)
        n_blocks = -(-len(order) // ROWS_PER_BLOCK)
        run_in_threads(work, self.n_threads, n_blocks, cost=cost)

    @cached_property
    def _panels(self):
        return make_panels(self.points)
