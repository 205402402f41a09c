"""The lanes that work on one datum together: threads of a GPU, or the one of a CPU.

Functions of floors 0 and 1 are called by all lanes at once. A loop over `span` is
shared between them, `solo` leaves it to the first, and other loops and scalars are the
same in each. A lane sees what others wrote after `sync`; a function that wrote arrays
ends with it, and so does `total`. On the CPU all this compiles to nothing; `_cuda` says
what it is on a GPU.
"""

from numba.core import config

from skswsgp._compiled.jit import njit_inline

BLOCK = 8  # side of the tiles of matrices, see _tiles
PYTHON_VERSIONS = {}  # functions as they stand in Python, by name; GPUs have these


def cpu_override(alone):
    """Take another function on the CPU, compiled as part of its callers."""

    def replace(function):
        PYTHON_VERSIONS[function.__name__] = function
        return function if config.DISABLE_JIT else njit_inline(alone)

    return replace


def whole_range(first, last):
    """Return all indices."""
    return range(first, last)


def all_tiles(first, last):
    """Return all tiles."""
    return range(first, last, BLOCK)


def identity(value):
    """Return the value of the only lane."""
    return value


class SingleThread:
    """One lane. The simulator of GPUs has more, see `_cuda`."""

    def rank(self):
        """Return the number of this lane and that of all."""
        return 0, 1

    def sum(self, value):
        """Return the sum over lanes."""
        return value

    def barrier(self):
        """Wait for other lanes."""


backend = SingleThread()  # where functions run as they stand in Python


@cpu_override(lambda: (0, 1))
def team_rank():
    """Return the number of this lane and that of all."""
    return backend.rank()


@cpu_override(whole_range)
def team_range(first, last):
    """Return the indices of this lane among first .. last."""
    lane, lanes = team_rank()
    return range(first + lane, last, lanes)


@cpu_override(whole_range)
def single(first, last):
    """Return all of first .. last in the first lane, nothing in others."""
    lane, _ = team_rank()
    return range(first, last if lane == 0 else first)


# Eight lanes share a tile, one column each; tiles go to such groups of lanes.


@cpu_override(lambda first: range(first, first + BLOCK))
def team_columns(first):
    """Return the indices of this lane among the columns of a tile from `first`."""
    lane, lanes = team_rank()
    return range(first + lane % BLOCK, first + BLOCK, min(lanes, BLOCK))


@cpu_override(all_tiles)
def team_tiles(first, last):
    """Return where the tiles of this lane begin in a row of tiles."""
    lane, lanes = team_rank()
    groups = max(1, lanes // BLOCK)
    return range(first + lane // BLOCK * BLOCK, last, groups * BLOCK)


@cpu_override(all_tiles)
def team_outer_tiles(first, last):
    """Return where the rows of tiles of this lane begin in a square of tiles."""
    lane, lanes = team_rank()
    rows = max(1, lanes // (BLOCK * BLOCK))
    return range(first + lane // (BLOCK * BLOCK) * BLOCK, last, rows * BLOCK)


@cpu_override(all_tiles)
def team_inner_tiles(first, last):
    """Return where the tiles of this lane begin in one of its rows of a square."""
    lane, lanes = team_rank()
    groups = min(max(1, lanes // BLOCK), BLOCK)
    return range(first + lane // BLOCK % BLOCK * BLOCK, last, groups * BLOCK)


@cpu_override(identity)
def once(value):
    """Return the value in the first lane, zero in others: a term of a `total`."""
    lane, _ = team_rank()
    return value if lane == 0 else 0.0


@cpu_override(identity)
def team_sum(value):
    """Return the sum over lanes of their values."""
    return backend.sum(value)


@cpu_override(lambda: None)
def barrier():
    """Wait until all lanes are here, and see what they wrote."""
    backend.barrier()
