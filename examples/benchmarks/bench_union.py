"""What does training by unions of neighbours (SWSGP-U) gain for joint predictions?

M inducing points and a full S, trained by Adam on minibatches of 64 rows, in which each
row uses its own neighbours ("points"), all rows share --active points ("union"), or
every row uses all points ("all", the SVGP). Test rows are predicted one by one, and in
groups of near rows or of random rows, as in Figure 5 of the paper: each row from its
own neighbours ("own"), or all rows of a group from the union of their h nearest
inducing points. Means and densities are those of standardised y, densities in nats a
row. "error" is the root mean square error of the covariances in a group, relative to
those of the full Gaussian process on all training rows with the same model's kernel.
Numbers are means over --seeds splits of the rows.
"""

import time

import numpy as np
from datasets import load, split
from report import Table, arguments, lines
from scipy.linalg import cho_solve, cholesky, solve_triangular
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from skswsgp import SWSGPRegressor
from skswsgp.solvers import Adam

ROWS = {"trained by": "", "seconds": ",.0f", "RMSE": ".4f", "NLL": ".4f"}
GROUPS = {
    "trained by": "",
    "predicted from": "",
    "groups": "",
    "size": "d",
    "RMSE": ".4f",
    "NLL": ".4f",
    "error": ".3f",
}
SIZES = 4, 16, 64  # rows of a group
NEIGHBORS = 4, 16, 64  # inducing points of a row that go to the union of a group


class FullProcess:
    """The Gaussian process on all training rows, with kernel and noise of a model."""

    def __init__(self, model, X, y, X_new):
        kernel, X, X_new = (
            model.kernel_,
            X @ model.linear_map_,
            X_new @ model.linear_map_,
        )
        K = kernel(X)
        K.flat[:: len(K) + 1] += model.noise_variance_
        factor = cholesky(K, lower=True, overwrite_a=True, check_finite=False)
        cross = kernel(X, X_new)
        self.mean = cross.T @ cho_solve((factor, True), y)
        half = solve_triangular(factor, cross, lower=True, check_finite=False)
        self.covariance = kernel(X_new) - half.T @ half


class GroupPrediction:
    """Joint predictions of rows from the union of their h nearest inducing points."""

    def __init__(self, model, X):
        Z = model.inducing_points_
        self.kernel, self.Z, self.X = model.kernel_, Z, X @ model.linear_map_
        self.model, self.cross = model, self.kernel(self.X, Z)
        self.order = np.argsort(-self.cross, axis=1, kind="stable")

    def __call__(self, rows, h):
        """Return mean and covariance of the function at these rows."""
        active, model = np.unique(self.order[rows, :h]), self.model
        K = self.kernel(self.Z[active])
        K.flat[:: len(K) + 1] += model._jitter * np.mean(np.diag(K))
        k = self.cross[np.ix_(rows, active)]
        A = np.linalg.solve(K, k.T).T
        root = A @ model.inducing_covariance_[active]
        covariance = self.kernel(self.X[rows]) - A @ k.T + root @ root.T
        return A @ model.inducing_mean_[active], covariance


def near_groups(X, size, rng):
    """Return groups of a random row and the nearest rows that have no group yet."""
    free, groups = rng.permutation(len(X)), []
    while len(free) >= size:
        distance = np.sum((X[free] - X[free[0]]) ** 2, axis=1)
        order = np.argsort(distance, kind="stable")
        groups.append(free[order[:size]])
        free = free[np.sort(order[size:])]
    return groups


def random_groups(X, size, rng):
    """Return random groups of rows."""
    order = rng.permutation(len(X))
    return order[: len(X) // size * size].reshape(-1, size)


def negative_log_density(y, mean, covariance, noise):
    """Return -log N(y | mean, covariance + noise I) in nats a row."""
    factor = np.linalg.cholesky(covariance + noise * np.eye(len(y)))
    z = np.linalg.solve(factor, y - mean)
    log_det = 2.0 * np.sum(np.log(np.diag(factor)))
    return 0.5 * (z @ z + log_det + len(y) * np.log(2.0 * np.pi)) / len(y)


def score(groups, predict, y, noise, exact):
    """Return RMSE, joint density and error of covariances, means over groups."""
    square = density = error = truth = 0.0
    for rows in groups:
        mean, covariance = predict(rows)
        square += np.mean((y[rows] - mean) ** 2)
        density += negative_log_density(y[rows], mean, covariance, noise)
        expected = exact.covariance[np.ix_(rows, rows)]
        error += np.sum((covariance - expected) ** 2)
        truth += np.sum(expected**2)
    n = len(groups)
    return np.sqrt(square / n), density / n, np.sqrt(error / truth)


def group_scores(model, X, y, exact):
    """Return `score` by (predicted from, groups, size), for groups of all sizes."""
    noise, joint = model.noise_variance_, GroupPrediction(model, X)
    mean, covariance = model.predict(X, return_cov=True)
    mean = (mean - model.y_mean_) / model.y_scale_
    covariance = covariance / model.y_scale_**2 - noise * np.eye(len(X))
    spread = (X @ model.linear_map_) / np.std(X @ model.linear_map_, axis=0)
    ways = {"own": lambda rows: (mean[rows], covariance[np.ix_(rows, rows)])}
    for h in NEIGHBORS:
        ways[f"union of {h}"] = lambda rows, h=h: joint(rows, h)
    ways["full process"] = lambda rows: (
        exact.mean[rows],
        exact.covariance[np.ix_(rows, rows)],
    )
    found = {}
    for name, make in (("near", near_groups), ("random", random_groups)):
        for size in SIZES:
            groups = make(spread, size, np.random.RandomState(0))
            for way, predict in ways.items():
                found[way, name, size] = score(groups, predict, y, noise, exact)
    return found


def one_seed(case, seed, options):
    """Return the numbers of ROWS of a case, and its `group_scores`, for a split."""
    X, y = load(options.data)
    train, test = split(len(X), seed)
    train = train[: options.rows]
    common = {
        "learn_map": False,
        "predictive": "gaussian",
        "n_inducing": options.inducing,
        "n_neighbors": options.neighbors,
        "covariance": "full",
        "n_jobs": options.threads,
        "device": "cpu",
        "random_state": seed,
    }
    solver = Adam(
        kl_weight=options.kl_weight, max_iter=options.epochs, early_stopping=False,
        n_iter_no_change=options.epochs,
    )  # fmt: skip
    shared = clone(solver).set_params(n_shared=options.active)
    cases = {
        "points": {"solver": solver},
        "union": {"solver": shared},
        "all": {"solver": solver, "n_neighbors": options.inducing},
    }
    started = time.perf_counter()
    model = SWSGPRegressor(**common | cases[case]).fit(X[train], y[train])
    seconds = time.perf_counter() - started
    mean, density = model.predict(X[test]), model.log_predictive_density
    rmse = np.sqrt(np.mean((mean - y[test]) ** 2)) / model.y_scale_
    nll = -np.mean(density(X[test], y[test])) - np.log(model.y_scale_)
    targets = (y - model.y_mean_) / model.y_scale_
    exact = FullProcess(model, X[train], targets[train], X[test])
    return (seconds, rmse, nll), group_scores(model, X[test], targets[test], exact)


def main(options):
    fits, groups = Table("union_rows", ROWS), Table("union_groups", GROUPS)
    for case in options.cases:
        found = [one_seed(case, seed, options) for seed in range(options.seeds)]
        fits.add(case, *np.mean([rows for rows, _ in found], axis=0))
        for key in found[0][1]:
            groups.add(case, *key, *np.mean([scores[key] for _, scores in found], 0))
    fits.save(options.out, lines, panel="trained by", x="RMSE", ys=["NLL"])
    axes = {"panel": "predicted from", "x": "size", "ys": ["NLL"]}
    groups.save(options.out, lines, **axes)


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--data", default="powerplant")
    parser.add_argument("--rows", type=int, help="for training (default: 80 %%)")
    parser.add_argument("--inducing", type=int, default=512)
    parser.add_argument("--neighbors", type=int, default=16)
    parser.add_argument("--active", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1, help="splits and starts")
    parser.add_argument("--kl-weight", type=float, default=1.0)
    every = ["points", "union", "all"]
    parser.add_argument("--cases", nargs="+", choices=every, default=every)
    chosen = parser.parse_args()
    with threadpool_limits(chosen.threads):
        main(chosen)
