"""Table 1 of the SWSGP paper: milliseconds of a step and of a prediction.

t1 is that of a step of Adam with 64 rows, the search for neighbours included, and t2
that of a prediction of one row, as a mean over blocks of rows. Odd and even digits of
mnist have a Matern 5/2 kernel with one length-scale and a diagonal covariance of q(u).
The SVGP on mnist takes 100 steps, for its time alone.
"""

import math

from _models import QUICK, QUICK_SVGP, image_kernel, svgp, swsgp
from _runs import Cell, run
from report import clock

EPOCHS = 40
IMAGES = {"kernel": image_kernel(), "covariance": "diag"}


def odd_or_even(X, y):
    """Return pixels between 0 and 1, and whether a digit is odd."""
    return X / 255.0, y % 2


def times(model, seconds, X, X_test):
    """Return milliseconds of a step, and of a prediction of a row."""
    n_steps = math.ceil(len(X) / 64) * model.n_iter_
    rows = X_test[:1024]
    model.predict_proba(rows)
    now = clock(1)
    started = now()
    model.predict_proba(rows)
    return {"t1": 1e3 * seconds / n_steps, "t2": 1e3 * (now() - started) / len(rows)}


def cell(data, model, estimator, paper, quick, **options):
    """Return a cell with the paper's t1, t2, error and MNLL."""
    names = "t1", "t2", "error", "MNLL"
    numbers = dict(zip(names, paper, strict=True))
    return Cell(data, model, estimator, numbers, quick, also=times, **options)


CELLS = [
    cell(
        "eeg", "SVGP-256M", svgp("eeg", 256, EPOCHS),
        (21.42, 1.43, 0.17, 0.34), QUICK_SVGP,
    ),
    cell(
        "eeg", "SWSGP-256M-4H", swsgp("eeg", 256, 4, EPOCHS),
        (26.18, 0.56, 0.18, 0.36), QUICK,
    ),
    cell(
        "mnist", "SVGP-1024M", svgp("mnist", 1024, 1, **IMAGES),
        (516.0, 21.6, 0.02, 0.066), QUICK_SVGP, prepare=odd_or_even, rows=(6400, 2000),
    ),
    cell(
        "mnist", "SWSGP-1024M-4H", swsgp("mnist", 1024, 4, 15, **IMAGES),
        (233.0, 1.77, 0.016, 0.05), QUICK, prepare=odd_or_even,
    ),
]  # fmt: skip


if __name__ == "__main__":
    run(__file__, __doc__, CELLS, ("t1", "t2", "error", "MNLL"), folds=1)
