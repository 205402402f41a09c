"""The estimators of the SWSGP paper and of the thesis, with what their fits share.

Adam takes minibatches of 64 rows, with the paper's objective. The papers take 300,000
and 100,000 steps of length .001; here the length falls from .02 along half a cosine,
which needs fewer.
"""

import numpy as np
from _runs import CLASSES
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.baselines import SVGPClassifier, SVGPRegressor
from skswsgp.solvers import Adam

REGRESSION = {"predictive": "gaussian", "y_transform": None}
QUICK = {"solver__max_iter": 2, "n_inducing": 16}
QUICK_SVGP = {"max_iter": 2, "n_inducing": 16}


def swsgp(data, M, H, epochs, *, optimize_inducing=True, batch_size=64, **options):
    """Return the SWSGP-M-H of the paper for a table."""
    solver = Adam(
        batch_size=batch_size, max_iter=epochs, n_iter_no_change=epochs,
        optimize_inducing=optimize_inducing, kl_weight=1.0, early_stopping=False,
    )  # fmt: skip
    plain = {
        "x_transform": None,
        "learn_map": False,
        "learn_kernel": False,
        "covariance": "full",
        "device": "cpu",
    }
    plain |= {"n_inducing": M, "n_neighbors": H, "solver": solver}
    if data in CLASSES:
        return SWSGPClassifier(**plain | options)
    return SWSGPRegressor(**plain | REGRESSION | options)


def svgp(data, M, epochs, **options):
    """Return the SVGP-M of the paper for a table."""
    make = SVGPClassifier if data in CLASSES else SVGPRegressor
    return make(n_inducing=M, max_iter=epochs, device="cpu", **options)


def in_deviations(X, y):
    """Return X in deviations from the mean of each column, and y."""
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def matern(n_features, nu):
    """Return a Matern kernel for columns in deviations, a length-scale for each."""
    return ConstantKernel(1.0) * Matern(np.full(n_features, 2.0), nu=nu)


def rbf(n_features):
    """Return an RBF kernel for columns in deviations, a length-scale for each."""
    return ConstantKernel(1.0) * RBF(np.full(n_features, 2.0))


def image_kernel():
    """Return a Matern 5/2 with one length-scale for all pixels."""
    return ConstantKernel(1.0) * Matern(10.0, nu=2.5)
