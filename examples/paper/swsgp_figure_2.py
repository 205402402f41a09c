"""Figure 2 of the SWSGP paper: posteriors of SVGP and SWSGP in one dimension.

1,000 rows of sin(12 x) + 0.66 cos(25 x) with noise of variance 0.1, as in the thesis
(4.5.2). Kernel, noise and 128 inducing points are the same for both models; SWSGP has
16 neighbours, and q(u) is solved for in closed form.
"""

import numpy as np
from _runs import options_of, save_figure
from report import Table
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp import SWSGPRegressor
from skswsgp.metrics import interval_coverage

NOISE = 0.1  # variance
COLUMNS = {
    "model": "",
    "RMSE of f": ".4f",
    "coverage of y": ".3f",
    "mean std of f": ".4f",
}


def function(x):
    """Return the function without noise."""
    return np.sin(12.0 * x) + 0.66 * np.cos(25.0 * x)


def posterior(n_neighbors, n_inducing):
    """Return the model, which learns q(u) only."""
    kernel = ConstantKernel(0.7) * RBF(0.06)
    return SWSGPRegressor(
        kernel, n_inducing=n_inducing, n_neighbors=n_neighbors, normalize_y=False,
        inducing_points=np.linspace(-2.0, 2.0, n_inducing)[:, None], covariance="full",
        learn_kernel=False, initial_noise=NOISE, predictive="gaussian",
        x_transform=None, y_transform=None, device="cpu", random_state=0,
    )  # fmt: skip


def draw(plt, models, x, y):
    """Draw means and 95 % intervals of both models."""
    figure, axes = plt.subplots(
        2, 1, figsize=(9, 4.4), sharex=True, layout="constrained"
    )
    grid = np.linspace(-2.2, 2.2, 600)
    for ax, (name, model) in zip(axes, models.items(), strict=True):
        mean, variance = model.latent_mean_and_variance(grid[:, None])
        half = 1.96 * np.sqrt(variance)
        ax.plot(x, y, ".", color="0.7", ms=2)
        ax.fill_between(grid, mean - half, mean + half, color="C1", alpha=0.4)
        ax.plot(grid, mean, "C1")
        ax.set_title(name)
    return figure


if __name__ == "__main__":
    options = options_of(__doc__)
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, 1000)
    y = function(x) + np.sqrt(NOISE) * rng.standard_normal(len(x))
    x_new = rng.uniform(-2.0, 2.0, 1000)
    y_new = function(x_new) + np.sqrt(NOISE) * rng.standard_normal(len(x_new))
    M = 32 if options.quick else 128
    models = {f"SVGP-{M}": posterior("all", M), f"SWSGP-{M}-16": posterior(16, M)}
    table = Table("swsgp_figure_2", COLUMNS)
    for name, model in models.items():
        model.fit(x[:, None], y)
        mean, variance = model.latent_mean_and_variance(x_new[:, None])
        rmse = np.sqrt(np.mean((mean - function(x_new)) ** 2))
        ends = model.predict_interval(x_new[:, None])
        coverage = interval_coverage(y_new, *ends)
        table.add(name, rmse, coverage, np.mean(np.sqrt(variance)))
    if options.out:
        path = options.out / "figures" / "swsgp_figure_2.png"
        save_figure(path, draw, models, x=x, y=y)
