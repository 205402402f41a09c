"""A team is the threads that work on one datum: a block on a GPU, one thread on a CPU.

All threads of a team call the formulas of `_compiled`, `_covariance` and `_point`. They
share the loops over `team_range` and the tile loops, only the first runs a loop over
`single`, and every other statement runs in each thread. A thread sees what others wrote
after `barrier` or `team_sum`; a function that wrote arrays ends with one of them. On
the CPU all this compiles to nothing; `cuda.compiler` has the versions for GPUs.
"""

import numpy as np
from numba.core import config

from skswsgp._compiled.jit import njit_inline

BLOCK = 8  # side of the square tiles in which matrices are processed, see `tiles`
PYTHON_VERSIONS = {}  # uncompiled functions by name; GPU versions are made from these


def cpu_override(single_thread_version):
    """Return a decorator that compiles a function for one thread into the callers."""

    def replace(function):
        PYTHON_VERSIONS[function.__name__] = function
        return function if config.DISABLE_JIT else njit_inline(single_thread_version)

    return replace


class SingleThread:
    """A team of one thread; the simulator of GPUs replaces it by a larger one."""

    def rank(self):
        """Return the number of this thread in its team, and the size of the team."""
        return 0, 1

    def sum(self, value):
        """Return the sum of a value over the team."""
        return value

    def barrier(self):
        """Wait for the other threads of the team."""


backend = SingleThread()  # the team of functions that run uncompiled


@cpu_override(lambda: (0, 1))
def team_rank():
    """Return the number of this thread in its team, and the size of the team."""
    return backend.rank()


@cpu_override(lambda first, last: range(first, last))
def team_range(first, last):
    """Return this thread's share of the indices first <= i < last."""
    rank, size = team_rank()
    return range(first + rank, last, size)


@cpu_override(lambda at, count: range(np.uint64(at), np.uint64(at + count)))
def team_pairs(at, count):
    """Return this thread's share of the indices at <= p < at + count.

    A CPU takes them without a sign: a signed index may count from the end, and loops
    that ask for that are not vectorised.
    """
    rank, size = team_rank()
    return range(at + rank, at + count, size)


@cpu_override(lambda first, last: range(first, last))
def single(first, last):
    """Return all indices first <= i < last in the first thread, none in others."""
    rank, _ = team_rank()
    return range(first, last if rank == 0 else first)


# Eight threads process a tile, one column each. A larger team is cut into such groups
# of eight, and each group takes its share of the tiles.


@cpu_override(lambda first: range(first, first + BLOCK))
def team_columns(first):
    """Return this thread's share of the columns of a tile that begins at `first`."""
    rank, size = team_rank()
    return range(first + rank % BLOCK, first + BLOCK, min(size, BLOCK))


@cpu_override(lambda first, last: range(first, last, BLOCK))
def team_tiles(first, last):
    """Return where the tiles of this thread begin in a row of tiles."""
    rank, size = team_rank()
    groups = max(1, size // BLOCK)
    return range(first + rank // BLOCK * BLOCK, last, groups * BLOCK)


@cpu_override(lambda first, last: range(first, last, BLOCK))
def team_outer_tiles(first, last):
    """Return where the rows of tiles of this thread begin in a square of tiles."""
    rank, size = team_rank()
    rows = max(1, size // (BLOCK * BLOCK))
    return range(first + rank // (BLOCK * BLOCK) * BLOCK, last, rows * BLOCK)


@cpu_override(lambda first, last: range(first, last, BLOCK))
def team_inner_tiles(first, last):
    """Return where the tiles of this thread begin in one of its rows of a square."""
    rank, size = team_rank()
    groups = min(max(1, size // BLOCK), BLOCK)
    return range(first + rank // BLOCK % BLOCK * BLOCK, last, groups * BLOCK)


@cpu_override(lambda value: value)
def once(value):
    """Return the value in the first thread, 0 in others, as a term of a `team_sum`."""
    rank, _ = team_rank()
    return value if rank == 0 else 0.0


@cpu_override(lambda value: value)
def team_sum(value):
    """Return the sum over the team of the threads' values."""
    return backend.sum(value)


@cpu_override(lambda: None)
def barrier():
    """Wait for all threads of the team; each then sees what the others wrote."""
    backend.barrier()
