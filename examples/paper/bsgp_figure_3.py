"""Figure 3 of the BSGP paper: priors of inducing inputs, and what is sampled.

M = 50, one of the paper's three numbers of inducing points, and RBF kernels with a
length-scale a column. Left in the paper are three priors, right an ablation: values u,
kernel and inducing inputs Z are optimised, or sampled. The figure has no numbers in the
text, so that only its orders can be compared. Rows "Adam" are point estimates, where
chains start (1,000 steps) and after as many steps as a chain has (17,400). "VFE" is the
objective of Figures 4 and 6. "long" is a chain of the paper's length for the airline
table, 210,000 steps with 200 samples 1,000 steps apart, and as many steps of Adam.
"R-hat" is the largest of kernel parameters and noise. That of f, the function at 300
test rows, which the paper has, comes with its deviation over rows.
"""

import numpy as np
from _models import QUICK_SVGP, in_deviations, rbf, svgp
from _runs import Cell, run

from skswsgp.baselines import BSGPRegressor
from skswsgp.baselines.sampler import split_r_hat

SVGP_EPOCHS = {"kin8nm": 100, "powerplant": 85, "protein": 20}  # 10,000 steps and more
N_FEATURES = {"kin8nm": 8, "powerplant": 4, "protein": 9}
WITH_NOISE = "inducing_values", "kernel", "noise"
MODELS = {
    "Adam, 1,000": BSGPRegressor(n_inducing=50, sample=()),
    "Adam, 17,400": BSGPRegressor(n_inducing=50, sample=(), adam_steps=17_400),
    "u": BSGPRegressor(n_inducing=50, sample=("inducing_values",)),
    "u, kernel": BSGPRegressor(n_inducing=50, sample=WITH_NOISE),
    "u, kernel, Z": BSGPRegressor(n_inducing=50),
    "uniform prior": BSGPRegressor(n_inducing=50, prior="uniform"),
    "DPP prior": BSGPRegressor(n_inducing=50, prior="dpp"),
    "VFE": BSGPRegressor(n_inducing=50, objective="vfe"),
}
LONG = {
    "Adam, long": BSGPRegressor(n_inducing=50, sample=(), adam_steps=210_000),
    "u, kernel, Z, long": BSGPRegressor(n_inducing=50, n_samples=200, spacing=1000),
}
QUICK = {"n_inducing": 16, "adam_steps": 20, "burn_in": 20, "n_samples": 8}
QUICK |= {"spacing": 2}


def agreement(model, seconds, X, X_test):
    """Return the split R-hat of the function at test rows, its mean and deviation."""
    means = [mean[:, 0] for mean, _ in model._sampled(X_test[:300])]
    if len(means) == 1:  # a point estimate
        return {}
    found = split_r_hat(np.stack(means), model.n_chains)
    return {"R-hat of f": found.mean(), "R-hat of f ±": found.std()}


def cells(data):
    """Return the cells of a table."""
    kernel = rbf(N_FEATURES[data])
    svgp_50 = svgp(data, 50, SVGP_EPOCHS[data], kernel=kernel)
    models = {"SVGP": svgp_50} | MODELS | LONG
    return [
        Cell(
            data, name, model, {}, QUICK_SVGP if name == "SVGP" else QUICK,
            in_deviations, also=None if name == "SVGP" else agreement,
        )
        for name, model in models.items()
    ]  # fmt: skip


CELLS = [cell for data in N_FEATURES for cell in cells(data)]


if __name__ == "__main__":
    run(__file__, __doc__, CELLS, ("RMSE", "MNLL", "R-hat", "R-hat of f"), folds=1)
