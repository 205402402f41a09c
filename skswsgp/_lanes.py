"""The lanes that work on one datum together: threads of a GPU, or the one of a CPU.

Functions of floors 0 and 1 are called by all lanes at once. A loop over `span` is
shared between them, `solo` leaves it to the first, and other loops and scalars are the
same in each. A lane sees what others wrote after `sync`; a function that wrote arrays
ends with it, and so does `total`. On the CPU all this compiles to nothing; `_cuda` says
what it is on a GPU.
"""

from numba.core import config

from skswsgp._jit import njit_inline

BLOCK = 8  # side of the tiles of matrices, see _tiles

STANDS = {}  # functions as they stand in Python, by name; GPUs have these


def instead(alone):
    """Take another function on the CPU, compiled as part of its callers."""

    def replace(function):
        STANDS[function.__name__] = function
        return function if config.DISABLE_JIT else njit_inline(alone)

    return replace


def all_of(first, last):
    """Return all indices."""
    return range(first, last)


def all_tiles(first, last):
    """Return all tiles."""
    return range(first, last, BLOCK)


def same(value):
    """Return the value of the only lane."""
    return value


class Alone:
    """One lane. The simulator of GPUs has more, see `_cuda`."""

    def position(self):
        """Return the number of this lane and that of all."""
        return 0, 1

    def total(self, value):
        """Return the sum over lanes."""
        return value

    def sync(self):
        """Wait for other lanes."""


team = Alone()  # where functions run as they stand in Python


@instead(lambda: (0, 1))
def position():
    """Return the number of this lane and that of all."""
    return team.position()


@instead(all_of)
def span(first, last):
    """Return the indices of this lane among first .. last."""
    lane, lanes = position()
    return range(first + lane, last, lanes)


@instead(all_of)
def solo(first, last):
    """Return all of first .. last in the first lane, nothing in others."""
    lane, _ = position()
    return range(first, last if lane == 0 else first)


# Eight lanes share a tile, one column each; tiles go to such groups of lanes.


@instead(lambda first: range(first, first + BLOCK))
def columns(first):
    """Return the indices of this lane among the columns of a tile from `first`."""
    lane, lanes = position()
    return range(first + lane % BLOCK, first + BLOCK, min(lanes, BLOCK))


@instead(all_tiles)
def tiles(first, last):
    """Return where the tiles of this lane begin in a row of tiles."""
    lane, lanes = position()
    groups = max(1, lanes // BLOCK)
    return range(first + lane // BLOCK * BLOCK, last, groups * BLOCK)


@instead(all_tiles)
def outer_tiles(first, last):
    """Return where the rows of tiles of this lane begin in a square of tiles."""
    lane, lanes = position()
    rows = max(1, lanes // (BLOCK * BLOCK))
    return range(first + lane // (BLOCK * BLOCK) * BLOCK, last, rows * BLOCK)


@instead(all_tiles)
def inner_tiles(first, last):
    """Return where the tiles of this lane begin in one of its rows of a square."""
    lane, lanes = position()
    groups = min(max(1, lanes // BLOCK), BLOCK)
    return range(first + lane // BLOCK % BLOCK * BLOCK, last, groups * BLOCK)


@instead(same)
def once(value):
    """Return the value in the first lane, zero in others: a term of a `total`."""
    lane, _ = position()
    return value if lane == 0 else 0.0


@instead(same)
def total(value):
    """Return the sum over lanes of their values."""
    return team.total(value)


@instead(lambda: None)
def sync():
    """Wait until all lanes are here, and see what they wrote."""
    team.sync()
