"""TODO docstring."""

from skswsgp._compiled.jit import njit_small

TRIANGLE = 0  # instead of a number of columns: the lower triangle


@njit_small
def width(i, n):
    """Number of pairs in row i."""
    return i + 1 if n == TRIANGLE else n


@njit_small
def row_start(i, n):
    """Number of pairs before row i; `row_start(n_rows, n)` counts all."""
    return i * (i + 1) // 2 if n == TRIANGLE else i * n
