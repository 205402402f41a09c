"""Places that were measured several times, with coordinates that differ a little.

Exact copies of a row count as one row. Copies whose coordinates were rounded or shifted
would not, and a model would learn from them how well a row is known from its copies.
"""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from skswsgp._rows.statistics import first_of_each

MOST_COPIES = 64  # rows of one y, beyond which it is a level of y and no mark
SAMPLE = 500  # rows that tell whether any number has copies


def unite_near_copies(X, y, spread):
    """Return X (n, D) in which near copies of a row have the coordinates of one.

    Rows of the same y are near copies if each of them is nearer to all others than any
    row of another y is to one of them. Where at least half of the distinct rows have
    such copies, rows without themselves would be predicted from their copies, which new
    places do not have; where fewer have, new rows have copies as often, and X stays.
    Distances are in units of `spread` (D,). A y that more rows share than there are
    other y, or more than `MOST_COPIES`, is a level of y and no mark of a copy.
    """
    _, count = labels_of(y)
    if 2 * np.sum(count == 1) > len(y):
        return X  # as at most half of the distinct rows can share their y
    first, group = first_of_each(np.column_stack([X, y]))
    label, count = labels_of(y[first])
    if 2 * count[shared_labels(count)].sum() < len(first):
        return X
    points = np.asarray(X[first], dtype=np.float64)
    order = np.lexsort(np.column_stack([points, y[first]]).T)  # not that of the rows
    found = near_copies(points[order] / spread, label[order])
    if found is None:
        return X
    rank = np.empty(len(order), dtype=int)
    rank[order] = np.arange(len(order))
    _, leader, place = np.unique(found, return_index=True, return_inverse=True)
    return X[first[order]][leader[place.ravel()][rank[group]]]


def labels_of(y):
    """Return the label (n,) of the y of each row, and how many rows have each label."""
    first, label = first_of_each(y)
    return label, np.bincount(label, minlength=len(first))


def shared_labels(count):
    """Return which labels of so many rows may be the mark of copies."""
    return (count > 1) & (count <= min(MOST_COPIES, len(count)))


def near_copies(points, label):
    """Return the place (n,) of each of the distinct rows, or None for places of one.

    It is None as well where less than half of the rows have copies. `label` (n,) are
    those of their y.
    """
    count, n = np.bincount(label), len(points)
    shared = shared_labels(count)
    k = min(count[shared].max() + 1, n)  # one of them has another y
    tree, few = cKDTree(points), np.arange(0, n, -(-n // SAMPLE))
    lists = tree.query(points[few], k=k)[1][:, 1:]
    copied = (label[lists] == label[few, None]).any(axis=1) & shared[label[few]]
    if 4 * copied.sum() < len(few):
        return None  # far from half of all rows have any
    first, second = pairs_of_labels(label, shared)
    apart = np.linalg.norm(points[first] - points[second], axis=1)
    rows = np.unique(np.r_[first, second])
    distance, lists = tree.query(points[rows], k=k)
    distance[label[lists] == label[rows, None]] = np.inf
    others = np.full(n, np.inf)
    others[rows] = distance.min(axis=1)  # to the nearest row of another y
    close = apart < np.minimum(others[first], others[second])
    edges = np.ones(close.sum(), dtype=bool), (first[close], second[close])
    graph = csr_array(edges, shape=(n, n))
    n_places, place = connected_components(graph, directed=False)
    same = place[first] == place[second]
    diameter, margin = np.zeros(n_places), np.full(n_places, np.inf)
    np.maximum.at(diameter, place[first[same]], apart[same])
    np.minimum.at(margin, place[rows], others[rows])
    size = np.bincount(place)
    united = (diameter < margin) & (size > 1)
    if 2 * size[united].sum() < n:
        return None
    return np.where(united[place], place, n_places + np.arange(n))


def pairs_of_labels(label, chosen):
    """Return the pairs of rows that share a `chosen` label, two arrays (p,)."""
    rows = np.flatnonzero(chosen[label])
    rows = rows[np.argsort(label[rows], kind="stable")]
    first, second = [rows[:0]], [rows[:0]]
    for step in range(1, min(MOST_COPIES, len(rows))):
        same = label[rows[:-step]] == label[rows[step:]]
        first.append(rows[:-step][same])
        second.append(rows[step:][same])
    return np.concatenate(first), np.concatenate(second)
