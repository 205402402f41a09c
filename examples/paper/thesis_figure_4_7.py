"""Figure 4.7 of the thesis: four kernels on banana, SVGP and SWSGP.

M = 32 and H = 8. The neighbours are those of the largest kernel values for stationary
kernels, and the nearest in the kernel's length-scales for the others. The thesis also
draws neighbours at random, which this package has not.
"""

from _boundaries import run_boundaries
from _models import QUICK, QUICK_SVGP, svgp, swsgp
from _runs import Cell
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp.kernels import ArcCosine, Polynomial

KERNELS = {
    "RBF": RBF(1.0),
    "arc-cosine 0": ArcCosine(0),
    "arc-cosine 1": ArcCosine(1),
    "polynomial 3": Polynomial(3),
}
MODELS = {
    "SVGP": lambda kernel: (svgp("banana", 32, 100, kernel=kernel), {}, QUICK_SVGP),
    "SWSGP": lambda kernel: (swsgp("banana", 32, 8, 100, kernel=kernel), {}, QUICK),
}
CELLS = [
    Cell("banana", f"{name}, {model}", *make(ConstantKernel(1.0) * kernel))
    for name, kernel in KERNELS.items()
    for model, make in MODELS.items()
]


if __name__ == "__main__":
    run_boundaries(__file__, __doc__, CELLS, n_columns=4)
