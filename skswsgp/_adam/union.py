"""The active inducing points of a minibatch: the union of the lists of its rows.

This is the training set of SWSGP-U (section 4.5 of the paper). Where the union has more
points than may be active, those stay that are nearest to some row: a point goes by its
best place in a list, then by the number of rows that use it, then by its index. So each
row keeps its nearest, if as many points as rows may be active, and the result does not
depend on the order of the rows.
"""

import numpy as np

from skswsgp._compiled.jit import njit, njit_inner

REPEATED = -1  # key of an entry whose point stands in an earlier list, too
CHOSEN = -1  # place of a point that is active


def union_arrays(n, H, M):
    """Return shape and dtype of each scratch array of `choose_active`, by name."""
    return {
        "uses": ((M,), np.int64),  # number of rows that use a point; 0 between steps
        "place": ((M,), np.int64),  # best place of a point in a list
        "keys": ((n * H,), np.int64),
    }


@njit
def choose_active(active, start, n, uses, place, keys, out):
    """Set out to the active points of n rows from `start`; return how many there are.

    Lists begin with the nearest point. The result increases, and -1 fills the rest of
    `out`, whose length is the largest number of active points.
    """
    H, M, size = active.shape[1], uses.shape[0], 0
    for i in range(n):
        for h in range(H):
            point = active[start + i, h]
            first = uses[point] == 0
            keys[i * H + h] = 0 if first else REPEATED
            place[point] = h if first else min(place[point], h)
            uses[point] += 1
    for entry in range(n * H):
        if keys[entry] != REPEATED:
            point = active[start + entry // H, entry % H]
            keys[entry] = (place[point] * (n + 1) + n - uses[point]) * M + point
            uses[point] = 0
            size += 1
    count = min(size, out.shape[0])
    limit = smallest_limit(keys, n * H, count, H * (n + 1) * M)
    for entry in range(n * H):
        if REPEATED < keys[entry] <= limit:
            place[keys[entry] % M] = CHOSEN
    out[:], at = -1, 0
    for point in range(M):
        if place[point] == CHOSEN:
            out[at], place[point] = point, 0
            at += 1
    return count


@njit_inner
def smallest_limit(keys, n, count, top):
    """Return the least number that `count` of the first n keys do not exceed.

    All keys are below `top`, and those that are not REPEATED differ.
    """
    low, high = -1, top
    while high - low > 1:
        middle, below = (low + high) // 2, 0
        for entry in range(n):
            below += REPEATED < keys[entry] <= middle
        if below < count:
            low = middle
        else:
            high = middle
    return high
