"""Points in the order of a k-d tree (Bentley, 1975), and boxes around those together.

Inducing points are cut into tiles, rows into groups of BLOCK. A tile whose box is too
far from that of a group is left out without a look at its points.
"""

import numpy as np

from skswsgp._compiled.jit import njit, njit_small
from skswsgp._compiled.team import BLOCK

ROWS_PER_BLOCK = 64  # rows that meet a tile while it is in cache, in groups of BLOCK
GROUPS = ROWS_PER_BLOCK // BLOCK
# Groups meet their nearest tile first, then those within shares of their reach.
NEAREST_LEAVES_FIRST, REACH_FRACTIONS = 1, (0.02, 0.1, 0.3, 0.6, 1.0)
NO_BOUND, INFINITE = np.float32(3e38), np.float32(np.inf)
SAMPLE = 64  # points that tell along which feature a part is widest
MOST_PARTS = 64  # that wait to be halved, more than a tree of 2^31 points has levels


@njit
def widest_feature(points, order, first, last):
    """Return the feature in which a sample of order[first:last] is widest."""
    stride = (last - first + SAMPLE - 1) // SAMPLE
    best, widest = 0, -1.0
    for d in range(points.shape[1]):
        low = high = points[order[first], d]
        for i in range(first, last, stride):
            value = points[order[i], d]
            low, high = min(low, value), max(high, value)
        if high - low > widest:
            best, widest = d, high - low
    return best


@njit
def halve(points, order, first, last, middle, d):
    """Reorder a part: feature d of none before `middle` is larger than of one after."""
    last -= 1
    while first < last:
        pivot = points[order[(first + last) // 2], d]
        i, j = first, last
        while i <= j:
            while points[order[i], d] < pivot:
                i += 1
            while points[order[j], d] > pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            last = j
        elif middle >= i:
            first = i
        else:
            return


@njit
def fill_order(points, size, order, parts):
    """Reorder all points; `parts` is scratch for those that wait to be halved."""
    waiting = 1
    parts[0, 0], parts[0, 1] = 0, order.shape[0]
    while waiting > 0:
        waiting -= 1
        first, last = parts[waiting, 0], parts[waiting, 1]
        leaves = (last - first + size - 1) // size
        if leaves > 1:
            middle = first + leaves // 2 * size
            d = widest_feature(points, order, first, last)
            halve(points, order, first, last, middle, d)
            parts[waiting, 0], parts[waiting, 1] = first, middle
            parts[waiting + 1, 0], parts[waiting + 1, 1] = middle, last
            waiting += 2


def tree_order(points, size):
    """Return the order (n,) of points (n, D), cut into leaves of `size` by halving.

    All leaves but the last are full.
    """
    order = np.arange(len(points), dtype=np.int32)
    fill_order(points, size, order, np.empty((MOST_PARTS, 2), dtype=np.int64))
    return order


# Boxes: what lies between the corners of a tile, or of a group of rows. Their corners
# are rounded outwards and distances are low by at most slack, so that a point within
# `reach` lies in no box that is left out.


@njit
def set_corners(single, corners):
    """Set the lower and upper corners of the boxes of groups."""
    for g in range(GROUPS):
        for d in range(single.shape[1]):
            low = high = single[g * BLOCK, d]
            for r in range(g * BLOCK + 1, (g + 1) * BLOCK):
                low, high = min(low, single[r, d]), max(high, single[r, d])
            corners[0, g, d], corners[1, g, d] = low, high


@njit_small
def squared_gap(low, high, i, least, most, t):
    """Return the squared distance of box i, from low to high, and that of tile t."""
    total = np.float32(0.0)
    for d in range(low.shape[1]):
        gap = max(least[t, d] - high[i, d], low[i, d] - most[t, d])
        gap = max(gap, np.float32(0.0))
        total += gap * gap
    return total


@njit
def measure_boxes(corners, least, most, near):
    """near[t, g] = squared distance of the boxes of a tile and a group."""
    for t in range(near.shape[0]):
        for g in range(GROUPS):
            near[t, g] = squared_gap(corners[0], corners[1], g, least, most, t)


@njit
def find_nearest(near, least):
    """Find the distance of the nearest tile to each group, of those it has not met."""
    for g in range(GROUPS):
        least[g] = NO_BOUND
    for t in range(near.shape[0]):
        for g in range(GROUPS):
            least[g] = min(least[g], near[t, g])


@njit
def choose_groups(single, least, most, t, limit, reach, near, gap, meets):
    """Set meets[g] to whether a row of a group meets tile t; return how many do."""
    count = 0
    for g in range(GROUPS):
        meets[g] = False
        if near[t, g] <= limit[g]:
            near[t, g] = INFINITE
            for r in range(g * BLOCK, (g + 1) * BLOCK):
                gap[r] = squared_gap(single, single, r, least, most, t)
                meets[g] |= gap[r] <= reach[r]
            count += meets[g]
    return count


@njit_small
def farthest(reach, g):
    """Return the largest reach of a row of a group."""
    most = reach[g * BLOCK]
    for lane in range(1, BLOCK):
        most = max(most, reach[g * BLOCK + lane])
    return most


@njit
def set_limits(stage, near, reach, limit):
    """Set up to which distance groups meet tiles in a stage; seeds have stages < 0."""
    if stage < 0:
        find_nearest(near, limit)
        return
    for g in range(GROUPS):
        limit[g] = min(REACH_FRACTIONS[stage] * farthest(reach, g), NO_BOUND)


@njit_small
def count_near(near, t, limit):
    """Return how many groups are to meet a tile."""
    count = np.int32(0)
    for g in range(GROUPS):
        count += np.int32(near[t, g] <= limit[g])
    return count
