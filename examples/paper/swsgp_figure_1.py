"""Figure 1 of the SWSGP paper: which inducing points are there does not change f.

Left: functions drawn given values at random subsets of 12 inducing points. Right: the
covariance of functions drawn with random subsets, beside that of the prior. The command
prints the largest difference and the error that so many draws have by chance.
"""

import numpy as np
from _runs import options_of, save_figure
from sklearn.gaussian_process.kernels import RBF

KERNEL = RBF(0.5)
Z = np.linspace(-2.0, 2.0, 12)[:, None]
X = np.linspace(-2.5, 2.5, 60)[:, None]
JITTER = 1e-8


def factor(covariance):
    """Return the Cholesky factor of a covariance."""
    return np.linalg.cholesky(covariance + JITTER * np.eye(len(covariance)))


def one_draw(rng):
    """Return the subset w, values u and a function f at X, drawn in this order."""
    w = rng.permutation(len(Z))[: rng.integers(1, len(Z) + 1)]
    u = factor(KERNEL(Z[w])) @ rng.standard_normal(len(w))
    A = np.linalg.solve(KERNEL(Z[w]) + JITTER * np.eye(len(w)), KERNEL(Z[w], X)).T
    rest = KERNEL(X) - A @ KERNEL(Z[w], X)
    mean = A @ u
    return (
        w,
        u,
        mean,
        np.sqrt(np.diag(rest).clip(0.0)),
        mean + factor(rest) @ (rng.standard_normal(len(X))),
    )


def draw(plt, draws, covariance):
    """Draw some functions given their subsets, and both covariances."""
    figure, axes = plt.subplots(1, 4, figsize=(11, 2.6), layout="constrained")
    for ax, (w, u, mean, std, _) in zip(axes[:3], draws, strict=False):
        ax.fill_between(X[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.25)
        ax.plot(X, mean)
        ax.plot(Z[w], u, "ro", ms=4)
        ax.set(ylim=(-3.2, 3.2), title=f"f given {len(w)} of {len(Z)} points")
    middle = len(X) // 2
    axes[3].plot(X, KERNEL(X)[middle], "k", label="prior")
    axes[3].plot(X, covariance[middle], "C1--", label="draws")
    axes[3].set_title(f"covariance with f({X[middle, 0]:.1f})")
    axes[3].legend(fontsize=8)
    return figure


if __name__ == "__main__":
    options = options_of(__doc__)
    n_draws = 500 if options.quick else 20_000
    rng = np.random.default_rng(0)
    draws = [one_draw(rng) for _ in range(n_draws)]
    functions = np.array([f for *_, f in draws])
    covariance = functions.T @ functions / n_draws
    difference = np.abs(covariance - KERNEL(X)).max()
    chance = np.sqrt(2.0 / n_draws)
    print(f"{n_draws} draws: covariances differ by {difference:.4f} at most")
    print(f"standard error of a variance by chance: {chance:.4f}")
    if options.out:
        path = options.out / "figures" / "swsgp_figure_1.png"
        save_figure(path, draw, draws, covariance=covariance)
