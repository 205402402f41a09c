"""Figure 4.3 of the thesis: SWSGP on banana, 64 inducing points, more neighbours."""

from _boundaries import run_boundaries
from _models import swsgp
from _runs import Cell

CELLS = [
    Cell(
        "banana", f"SWSGP-64-{H}", swsgp("banana", 64, H, 100), {},
        {"solver__max_iter": 2},
    )
    for H in (4, 8, 16, 32, 64)
]  # fmt: skip


if __name__ == "__main__":
    run_boundaries(__file__, __doc__, CELLS, n_columns=len(CELLS))
