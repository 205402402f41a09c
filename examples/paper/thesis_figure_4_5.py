"""Figure 4.5 of the thesis: SWSGP on banana, 4 neighbours, more inducing points."""

from _boundaries import run_boundaries
from _models import swsgp
from _runs import Cell

CELLS = [
    Cell(
        "banana", f"SWSGP-{M}-4", swsgp("banana", M, 4, 100), {},
        {"solver__max_iter": 2},
    )
    for M in (4, 8, 16, 32, 64)
]  # fmt: skip


if __name__ == "__main__":
    run_boundaries(__file__, __doc__, CELLS, n_columns=len(CELLS))
