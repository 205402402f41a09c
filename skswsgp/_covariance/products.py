"""Covariances of many pairs of points, and products with matrices of them.

A product evaluates its matrix tile by tile and stores none of it, unless it may keep
the pairs of points. Points lie in tiles (n_tiles, D, TILE), so that the loop over the
points of a tile is contiguous.
"""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.jit import njit, njit_small
from skswsgp._compiled.threads import CHUNKS, microseconds_per_pair, run_in_threads
from skswsgp._covariance.matrix import columns_of
from skswsgp._covariance.program import fill_tile, program_calls

TILE = 256  # points of a tile, whose coordinates and covariances stay in cache


class TiledPoints(NamedTuple):
    """Points in tiles, of which the last is filled up with zeros."""

    tiles: np.ndarray  # (n_tiles, D, TILE)
    n: int  # number of points


class TileWork(NamedTuple):
    """Covariances of a point with a tile, as `fill_tile` uses them."""

    values: np.ndarray  # (n_ops, TILE)
    slopes: np.ndarray
    calls: np.ndarray  # (2,) uint64, see `program_calls`


def tiled(points, size=TILE):
    """Return points (n, D) as `TiledPoints` with so many in a tile."""
    n, D = points.shape
    padded = np.zeros((-(-n // size) * size, D), points.dtype)
    padded[:n] = points
    return TiledPoints(padded.reshape(-1, size, D).transpose(0, 2, 1).copy(), n)


def padded_rows(u, points):
    """Return u (M, Q) as rows, filled up to whole tiles of the points, (Q, M')."""
    n_tiles, _, size = points.tiles.shape
    rows = np.zeros((u.shape[1], n_tiles * size))
    rows[:, : len(u)] = u.T
    return rows


class CovarianceProducts:
    """Covariances k(X, Z) of rows X with points Z (M, D), and their products.

    `kernel` is a `program.Kernel` in float64. Results do not depend on the number of
    threads.
    """

    def __init__(self, kernel, Z, n_threads):
        self.kernel, self.n_threads = kernel, n_threads
        self._columns = columns_of(Z)  # (M, D, 1)
        self.points = tiled(self._columns[:, :, 0])
        self.pairs, self.known = np.empty(0), False

    def keep_pairs(self, most):
        """Let products of all points keep their pairs, if these are `most` at most.

        To read a covariance takes a third to half of the time of its evaluation. Return
        how many pairs are kept.
        """
        n_pairs = self.points.n * (self.points.n - 1) // 2
        self.pairs = np.empty(n_pairs if n_pairs <= most else 0)
        return len(self.pairs)

    def matrix(self, X):
        """Return k(X, Z), (n, M)."""
        out = np.empty((len(X), self.points.n))
        self._run(set_covariances, len(X), columns_of(X), self.points, out)
        return out

    def multiply(self, X, u):
        """Return k(X, Z) u, (n, Q), for u (M, Q)."""
        out = np.zeros((u.shape[1], len(X)))
        u = padded_rows(u, self.points)
        self._run(add_products, len(X), columns_of(X), self.points, u, out)
        return np.ascontiguousarray(out.T)

    def multiply_off_diagonal(self, u):
        """Return (k(Z, Z) - diag k(Z, Z)) u, (M, Q), for u (M, Q).

        Each pair of points is evaluated once, in the first product if pairs are kept.
        """
        u = padded_rows(u, self.points)
        sums = np.zeros((CHUNKS, *u.shape))
        rows = self.points.n / (2 * CHUNKS)  # each of which is paired with all points
        how = self._columns, self.points, u, sums, self.pairs, self.known
        self._run(add_symmetric_products, CHUNKS, *how, rows=rows)
        self.known = len(self.pairs) > 0
        return np.ascontiguousarray(sums.sum(axis=0)[:, : self.points.n].T)

    def _run(self, loop, n, *arguments, rows=1):
        """Run a loop over n rows, or over n chunks of some `rows` each.

        Each thread has its own work arrays.
        """
        D, n_ops = self.points.tiles.shape[1], len(self.kernel.code)
        calls = program_calls(self.kernel)

        def work(first, last, t):
            arrays = TileWork(*np.zeros((2, n_ops, TILE)), calls)
            loop(first, last, self.kernel, arrays, *arguments)

        cost = rows * self.points.n * microseconds_per_pair(D)
        run_in_threads(work, self.n_threads, n, cost=cost)


@njit_small
def dot(values, u, q, first):
    """Return the sum over j of values[j] u[q, first + j]."""
    total = 0.0
    for j in range(len(values)):
        total += values[j] * u[q, first + j]
    return total


@njit_small
def add_pairs(near, before, here, below):
    """Return the dot product of `near` and `before`, and add here * near to `below`.

    One loop for both takes less than half of the time of two that index `u` and sums.
    """
    total = 0.0
    for j in range(len(near)):
        total += near[j] * before[j]
        below[j] += here * near[j]
    return total


@njit
def set_covariances(begin, end, kernel, work, X, points, out):
    """Set rows begin .. end - 1 of out (n, M) to k(X, Z), for X (n, D, 1)."""
    top, values = kernel.code.shape[0] - 1, work.values
    for b in range(points.tiles.shape[0]):
        first = b * TILE
        m = min(TILE, points.n - first)
        for i in range(begin, end):
            fill_tile(kernel, X[i], 1, points.tiles[b], m, work, 0)
            for j in range(m):
                out[i, first + j] = values[top, j]


@njit
def add_products(begin, end, kernel, work, X, points, u, out):
    """Add columns begin .. end - 1 of u k(Z, X) to out (Q, n), for u (Q, M)."""
    top, values = kernel.code.shape[0] - 1, work.values
    for b in range(points.tiles.shape[0]):
        first = b * TILE
        m = min(TILE, points.n - first)
        for i in range(begin, end):
            fill_tile(kernel, X[i], 1, points.tiles[b], m, work, 0)
            for q in range(u.shape[0]):
                out[q, i] += dot(values[top, :m], u, q, first)


@njit
def add_symmetric_products(begin, end, kernel, work, Z, points, u, sums, pairs, known):
    """Add products with k(Z, Z) less its diagonal to sums (CHUNKS, Q, M).

    `pairs` are the rows of its lower triangle, which are read if they are `known`, and
    else set, or an empty array. A chunk takes tiles of rows that are far apart, in turn
    from both ends of a group of CHUNKS, because a tile is paired only with itself and
    with those before it.
    """
    top, values = kernel.code.shape[0] - 1, work.values
    for chunk in range(begin, end):
        for group in range(0, points.tiles.shape[0], CHUNKS):
            turned = group // CHUNKS % 2 == 1
            a = group + (CHUNKS - 1 - chunk if turned else chunk)
            if a >= points.tiles.shape[0]:
                continue
            for b in range(a + 1):
                for i in range(min(TILE, points.n - a * TILE)):
                    m = i if b == a else TILE
                    row, first = a * TILE + i, b * TILE
                    at, end = row * (row - 1) // 2 + first, first + m
                    if known:
                        near = pairs[at : at + m]
                    else:
                        fill_tile(kernel, Z[row], 1, points.tiles[b], m, work, 0)
                        near = values[top, :m]
                        for j in range(m if len(pairs) else 0):
                            pairs[at + j] = near[j]
                    for q in range(u.shape[0]):
                        before, below = u[q, first:end], sums[chunk, q, first:end]
                        sums[chunk, q, row] += add_pairs(near, before, u[q, row], below)
