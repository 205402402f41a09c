"""Inverses of the blocks on the diagonal of A' diag(w) A + R' R, as a preconditioner.

A block holds columns that follow each other. Where these are near points, they depend
on each other more than on the rest (block Jacobi: Saad, Iterative methods, 2003).
"""

import numpy as np

from skswsgp._compiled.jit import njit_range
from skswsgp._compiled.team import BLOCK
from skswsgp._compiled.threads import run_in_threads

SIDE = 2 * BLOCK  # columns of a block; 64 saved a tenth of the steps, and took longer


def diagonal_blocks(A, w, n_threads):
    """Return the blocks (n_blocks, SIDE, SIDE) on the diagonal of A' diag(w) A.

    A (n, M) is a `SparseRowMatrix` and w (n,). The last block is filled with zeros.
    """
    n_blocks = -(-A.n_columns // SIDE)
    blocks = np.zeros((n_blocks, SIDE, SIDE))
    latest = np.full((n_threads, n_blocks), -1)
    before = np.empty((n_threads, A.lists.shape[1]), np.int64)
    run_in_threads(
        add_blocks,
        n_threads,
        n_blocks,
        A.lists,
        A.weights,
        np.ascontiguousarray(w),
        latest,
        before,
        blocks,
    )
    return blocks


class BlockDiagonal:
    """The inverse of the blocks on the diagonal of a matrix (M, M).

    `blocks` are a sum of `diagonal_blocks`, and are modified. They are small, so
    callers set `one_blas_thread`.
    """

    def __init__(self, blocks, M):
        self.n_blocks = len(blocks)
        empty = np.arange(M, self.n_blocks * SIDE) % SIDE
        blocks[-1, empty, empty] = 1.0
        self.inverse = np.linalg.inv(blocks)

    def solve(self, u):
        """Return the product of the inverse with u (M, k)."""
        M, k = u.shape
        if M % SIDE:
            u = np.concatenate([u, np.zeros((self.n_blocks * SIDE - M, k))])
        product = self.inverse @ u.reshape(self.n_blocks, SIDE, k)
        return product.reshape(-1, k)[:M]


@njit_range
def add_blocks(first, last, t, lists, weights, w, latest, before, blocks):
    """Add to blocks[first:last] (n_blocks, SIDE, SIDE) those of A' diag(w) A.

    latest[t] (n_blocks,) is the last entry of a row in each block, -1 between rows, and
    before[t] (H,) is the entry before each of the same block: both are scratch.
    """
    H, side = lists.shape[1], np.uint64(SIDE)
    for i in range(lists.shape[0]):
        for h in range(H):
            block = np.uint64(lists[i, h]) // side
            if first <= block < last:
                before[t, h], latest[t, block] = latest[t, block], h
        for g in range(H):
            block, p = np.uint64(lists[i, g]) // side, np.uint64(lists[i, g]) % side
            if first <= block < last:
                factor, h = w[i] * weights[i, g], latest[t, block]
                while h >= 0:
                    q = np.uint64(lists[i, h]) % side
                    blocks[block, p, q] += factor * weights[i, h]
                    h = before[t, h]
        for h in range(H):
            block = np.uint64(lists[i, h]) // side
            if first <= block < last:
                latest[t, block] = -1
