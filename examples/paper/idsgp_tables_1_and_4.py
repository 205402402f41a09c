"""Tables 1 and 4 of the IDSGP paper: density and error of four sparse processes.

Two of the paper's eight tables are here. VSGP is SOLVE-GP without its second group of
points, so that both have q(u) in closed form and a kernel that is learned before; the
paper trains all of them by Adam. IDSGP has the arguments of the paper.
"""

from _models import QUICK, in_deviations, matern, swsgp
from _runs import Cell, run

from skswsgp.baselines import IDSGPRegressor, SOLVEGPRegressor

PAPER = {  # RMSE and MNLL, with standard errors over five splits
    "kin40k": {
        "VSGP-1024": ((0.198, 0.002), (-0.047, 0.003)),
        "SOLVE-1024-1024": ((0.157, 0.001), (-0.415, 0.006)),
        "SWSGP-1024-50": ((0.215, 0.002), (-0.110, 0.007)),
        "IDSGP-15": ((0.050, 0.002), (-1.461, 0.019)),
    },
    "protein": {
        "VSGP-1024": ((4.161, 0.011), (2.848, 0.002)),
        "SOLVE-1024-1024": ((4.062, 0.011), (2.818, 0.003)),
        "SWSGP-1024-50": ((4.133, 0.008), (2.835, 0.002)),
        "IDSGP-15": ((3.756, 0.019), (2.775, 0.007)),
    },
}
N_FEATURES = {"kin40k": 8, "protein": 9}


def cell(data, model, numbers):
    """Return the cell of a table and a model of the paper."""
    options = {"kernel": matern(N_FEATURES[data], 1.5), "batch_size": 100}
    estimator, quick = {
        "VSGP-1024": (
            SOLVEGPRegressor(n_orthogonal=0), {"n_inducing": 16},
        ),
        "SOLVE-1024-1024": (
            SOLVEGPRegressor(), {"n_inducing": 16, "n_orthogonal": 16},
        ),
        "SWSGP-1024-50": (
            swsgp(data, 1024, 50, 10, **options), QUICK | {"n_neighbors": 4},
        ),
        "IDSGP-15": (
            IDSGPRegressor(batch_size=100, max_iter=100), {"max_iter": 2},
        ),
    }[model]  # fmt: skip
    paper = dict(zip(("RMSE", "MNLL"), numbers, strict=True))
    return Cell(data, model, estimator, paper, quick, in_deviations)


CELLS = [cell(data, *row) for data, rows in PAPER.items() for row in rows.items()]


if __name__ == "__main__":
    run(__file__, __doc__, CELLS, ("RMSE", "MNLL"), folds=5)
