"""Errors between the levels of a grid, which single rows that are left out do not show.

Where the values of a column, or of a sum of columns, have several rows each, a row that
is left out is known from others of its level, and a new row between two levels is not.
So whole levels are left out as well, along the principal directions of the metric of
the kernel. Let e, E and T be root mean squares of errors of rows, of levels, and of
levels whose two neighbours are left out too. The gap around a level is then two steps
of the grid, or four. In gaps of one step errors are between E, if a smaller gap gains
nothing, and E^2 / T, if it gains as much again. The law takes the geometric mean,

    E (E / T)^(1/2),    with E^2 - e^2 for E^2 and T^2 - e^2 for T^2,

for rows halfway between levels, and less towards these. Levels share this mean square
as they share E^2. The law is at least as wide. Where the variance of the process is
larger than for rows left out, it is multiplied by the ratio of E^2 to the variances of
levels left out.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse.csgraph import connected_components

from skswsgp._compiled.linalg import inverse_of_factor
from skswsgp._kernel_search.marginal_likelihood import factorised
from skswsgp._posterior.left_out import LEAST_ERROR

ALIKE = 1.0 - 1e-6  # correlation of f at rows that no column of the kernel tells apart


class Levels(NamedTuple):
    """J directions along which rows have levels, and the errors between these."""

    directions: np.ndarray  # (D, J) of the columns before they are mapped
    values: tuple  # J arrays (k,) of levels, ascending
    squares: tuple  # J arrays (k, Q) of mean squared errors beside a level
    scale: np.ndarray  # (Q,) root mean square of errors of levels over their variances

    def between(self, columns):
        """Return by how much levels add to variances (n, Q) at rows (n, D)."""
        total, along = 0.0, (columns @ self.directions).T
        for x, values, squares in zip(along, self.values, self.squares, strict=True):
            halfway = np.sin(np.pi * np.interp(x, values, np.arange(len(values))))
            each = [np.interp(x, values, square) for square in squares.T]
            total = total + halfway[:, None] ** 2 * np.stack(each, axis=1)
        return total


def find_levels(best, columns, metric, most_work):
    """Return the `Levels` of the rows of a `LogPosterior`, or None without any.

    `metric` (D, D') takes columns (n, D) to units of length-scales. Directions along
    which f changes most come first, and others as long as the systems of all cost
    `most_work` elementary operations. Rows of a level differ by less than a millionth
    of the range of all rows.
    """
    spread = columns.std(axis=0)
    spread[spread == 0.0] = 1.0
    axes = np.linalg.svd(spread[:, None] * metric, full_matrices=False)[0]
    found = []
    for axis in (axes / spread[:, None]).T:
        direction = axis / (np.ptp(columns @ axis) or 1.0)
        values, numbers, sizes = np.unique(
            np.round(columns @ direction, 6), return_inverse=True, return_counts=True
        )
        if not are_levels(sizes):
            continue
        most_work -= np.sum((3.0 * sizes) ** 3)  # of three levels at once
        if most_work < 0.0:
            break
        found.append((direction, values, *squares_between(best, numbers)))
    if not found:
        return None
    directions, values, squares, sums = zip(*found, strict=True)
    scale = np.maximum(np.sqrt(np.divide(*np.sum(sums, axis=0))), LEAST_ERROR)
    return Levels(np.transpose(directions), values, squares, scale)


def are_levels(sizes):
    """Return whether numbers of rows (k,) at equal values are those of a grid.

    Columns of rounded numbers have many lone values, and sums of two columns of a grid
    two: a quarter of the levels at most. A level with most rows would leave too few,
    and of three levels one has both neighbours.
    """
    lone, k = np.sum(sizes == 1), len(sizes)
    return k > 2 and 2 * sizes.max() <= sizes.sum() and 4 * lone <= k


def squares_between(best, numbers):
    """Return mean squared errors (k, Q) halfway between levels, and sums over levels.

    `best` is the `LogPosterior` of the rows at its start, and `numbers` (n,) are those
    of their levels. The outermost levels have the errors of their neighbours, and all
    share with these, for a level may be foretold by luck. The sums (2, Q) are those of
    E^2, and of the variances that levels have without their rows.
    """
    levels = groups_of(numbers)
    out, sums = np.empty((len(levels), best.y.shape[1])), np.empty((2, best.y.shape[1]))
    for q, (P, a) in enumerate(inverses(best)):
        single = [left_out(P, a, one).mean(axis=1) for one in levels[1:-1]]
        alone, variances = np.transpose(single)  # (k - 2,)
        three = zip(levels[2:-2], levels[1:-3], levels[3:-1], strict=True)
        wide = np.array([left_out(P, a, *each)[0].mean() for each in three])
        rows = np.array([np.mean((a / np.diag(P))[one] ** 2) for one in levels])
        gains, wider = alone - rows[1:-1], np.sum(wide - rows[2:-2])
        inner = gains[1:-1].sum()  # of levels with gaps of four steps, if there are any
        share = max(gains.sum(), 0.0) / max(alone.sum(), np.finfo(float).tiny)
        share *= np.sqrt(max(inner, 0.0) / wider) if wider > inner else 1.0
        alone = np.pad(alone, 2, mode="edge")
        out[:, q] = share * np.convolve(alone, np.ones(3) / 3.0, mode="valid")
        sums[:, q] = alone[2:-2].sum(), variances.sum()
    return out, sums


def alike_squares(best):
    """Return mean squares (Q,) of standardised errors of rows left out with their like.

    No column of the kernel tells such rows apart, as where they differ in idle columns.
    They would vouch for each other, which they do not for a new row. Returns None where
    less than half of the rows have their like, and for rows near each other by chance,
    which form chains.
    """
    K = best.kernel(best.X)
    scale = np.sqrt(np.diag(K))
    alike = K > ALIKE * np.outer(scale, scale)
    _, numbers = connected_components(alike)
    sizes, chained = np.bincount(numbers), not alike[numbers[:, None] == numbers].all()
    some = np.sum(sizes > 1) > 2 and 2 * np.sum(sizes == 1) <= len(K)
    if chained or not some:
        return None
    groups, out = groups_of(numbers), []
    for known in inverses(best):
        squares, variances = np.hstack([left_out(*known, one) for one in groups])
        out.append(np.mean(squares / variances))
    return np.array(out)


def groups_of(numbers):
    """Return the rows of each of the groups whose numbers (n,) are given."""
    return [np.flatnonzero(numbers == g) for g in range(numbers.max() + 1)]


def inverses(best):
    """Yield the inverse P (n, n) of the covariance of targets y, and P y, by outputs.

    `best` is a `LogPosterior` at its start.
    """
    for q, C in enumerate(best.covariances(best.start)):
        P = inverse_of_factor(factorised(C)[0].T)
        yield P, P @ best.y[:, q]


def left_out(P, a, rows, *others):
    """Return squared errors and variances (2, k) of rows without these and others.

    Without rows g, their targets have the covariance (P_gg)^-1, and the errors of their
    means are (P_gg)^-1 a_g.
    """
    gone = np.concatenate([rows, *others])
    C = np.linalg.inv(P[np.ix_(gone, gone)])
    return np.stack([(C @ a[gone]) ** 2, np.diag(C)])[:, : len(rows)]
