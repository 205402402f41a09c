"""Points in the order of a k-d tree (Bentley, 1975), and the boxes around them.

Inducing points lie in leaves, rows in groups of BLOCK. The search of a group skips a
leaf whose bounding box is too far away.

Corners of boxes are rounded outwards and their distances are low by at most the slack
of the search, so a point within the reach of a row lies in no box that is left out.
"""

import numpy as np

from skswsgp._compiled.jit import njit, njit_inner, njit_small
from skswsgp._compiled.tiles import BLOCK

ROWS_PER_BLOCK = 64  # rows that visit a leaf while it is in cache
ROW_GROUPS = ROWS_PER_BLOCK // BLOCK  # groups of rows in a block
REACH_FRACTIONS = (0.02, 0.1, 0.3, 0.6, 1.0)  # fractions of a group's reach
NO_BOUND, INFINITE = np.float32(3e38), np.float32(np.inf)
SAMPLE_SIZE = 64  # points of a part that choose the feature along which it is halved


@njit_inner
def widest_feature(points, order, first, last):
    """Return the feature with the widest range in a sample of order[first:last]."""
    stride = (last - first + SAMPLE_SIZE - 1) // SAMPLE_SIZE
    best, widest = 0, -1.0
    for d in range(points.shape[1]):
        low = high = points[order[first], d]
        for i in range(first, last, stride):
            value = points[order[i], d]
            low, high = min(low, value), max(high, value)
        if high - low > widest:
            best, widest = d, high - low
    return best


@njit_inner
def partition(points, order, first, last, middle, d):
    """Reorder by quickselect: feature d is never larger before `middle` than after."""
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
    """Reorder `order` (n,) into leaves of `size`, with scratch `parts`."""
    waiting = 1
    parts[0, 0], parts[0, 1] = 0, order.shape[0]
    while waiting > 0:
        waiting -= 1
        first, last = parts[waiting, 0], parts[waiting, 1]
        leaves = (last - first + size - 1) // size
        if leaves > 1:
            middle = first + leaves // 2 * size
            d = widest_feature(points, order, first, last)
            partition(points, order, first, last, middle, d)
            parts[waiting, 0], parts[waiting, 1] = first, middle
            parts[waiting + 1, 0], parts[waiting + 1, 1] = middle, last
            waiting += 2


def tree_order(points, size):
    """Return the order (n,) of points (n, D) in leaves of `size`, all full but one."""
    order = np.arange(len(points), dtype=np.int32)
    most = len(order).bit_length() + 1  # parts wait to be halved, one a level
    fill_order(points, size, order, np.empty((most, 2), dtype=np.int64))
    return order


@njit_inner
def set_corners(x, corners):
    """Set corners (2, ROW_GROUPS, D) to the bounding boxes of groups of rows."""
    for g in range(corners.shape[1]):
        for d in range(x.shape[1]):
            low = high = x[g * BLOCK, d]
            for r in range(g * BLOCK + 1, (g + 1) * BLOCK):
                low, high = min(low, x[r, d]), max(high, x[r, d])
            corners[0, g, d], corners[1, g, d] = low, high


@njit_small
def squared_gap(low, high, i, lower, upper, leaf):
    """Return the squared distance between the box low[i], high[i] and a leaf's box."""
    total = np.float32(0.0)
    for d in range(low.shape[1]):
        gap = max(lower[leaf, d] - high[i, d], low[i, d] - upper[leaf, d])
        gap = max(gap, np.float32(0.0))
        total += gap * gap
    return total


@njit_inner
def measure_boxes(corners, lower, upper, box_gap):
    """Set box_gap[leaf, g] to the squared distance of the boxes of leaf and group."""
    for leaf in range(box_gap.shape[0]):
        for g in range(box_gap.shape[1]):
            gap = squared_gap(corners[0], corners[1], g, lower, upper, leaf)
            box_gap[leaf, g] = gap


@njit_inner
def choose_groups(x, lower, upper, leaf, limit, reach, box_gap, row_gap, visits):
    """Set visits[g] to whether a row of group g visits a leaf; return how many do.

    Sets row_gap of the rows of groups within the limit, and marks the leaf as visited
    by these groups: their box_gap becomes infinite.
    """
    count, size = 0, x.shape[0] // visits.shape[0]  # not a constant: no loop unrolls
    for g in range(visits.shape[0]):
        visits[g] = False
        if box_gap[leaf, g] <= limit[g]:
            box_gap[leaf, g] = INFINITE
            for r in range(g * size, (g + 1) * size):
                row_gap[r] = squared_gap(x, x, r, lower, upper, leaf)
                visits[g] |= row_gap[r] <= reach[r]
            count += visits[g]
    return count


@njit_inner
def set_limits(stage, box_gap, reach, limit):
    """Set limit[g] to the box_gap up to which group g visits leaves in a stage.

    Stages below 0 visit the nearest leaf; later ones a fraction of the largest reach of
    the group's rows.
    """
    for g in range(limit.shape[0]):
        if stage < 0:
            limit[g] = NO_BOUND
            for leaf in range(box_gap.shape[0]):
                limit[g] = min(limit[g], box_gap[leaf, g])
        else:
            farthest = reach[g * BLOCK]
            for r in range(g * BLOCK + 1, (g + 1) * BLOCK):
                farthest = max(farthest, reach[r])
            limit[g] = min(REACH_FRACTIONS[stage] * farthest, NO_BOUND)


@njit_small
def count_near(box_gap, leaf, limit):
    """Return how many groups have a leaf within their limit."""
    count = np.int32(0)
    for g in range(ROW_GROUPS):
        count += np.int32(box_gap[leaf, g] <= limit[g])
    return count
