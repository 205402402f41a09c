"""Figure 4.3 of the thesis: SWSGP on banana, 64 inducing points, more neighbours."""

from _boundaries import boundaries
from _models import swsgp
from _runs import Cell, rows_of, run

CELLS = [
    Cell(
        "banana", f"SWSGP-64-{H}", swsgp("banana", 64, H, 100), {},
        {"solver__max_iter": 2},
    )
    for H in (4, 8, 16, 32, 64)
]  # fmt: skip


def draw(plt, rows, scores, fit):
    """Draw a panel a number of neighbours."""
    return boundaries(plt, CELLS, rows, fit, rows_of, len(CELLS))


if __name__ == "__main__":
    run(__file__, __doc__, CELLS, ("error", "MNLL"), folds=3, draw=draw)
