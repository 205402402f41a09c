"""The local Gaussian process: kernel parameters and predictions from nearest data.

Data rows stand in a `Model` in the place of inducing points: Z the inputs, m the
targets, s their noise variances relative to `noise` (one over their weights).
"""

import numpy as np

from skswsgp import _kriging_cpu as loops
from skswsgp._engine_cpu import make_gradients, make_optimizer, update_parameters
from skswsgp._jit import launch
from skswsgp._neighbors import NeighborSearch
from skswsgp._state import Batch, make_work
from skswsgp._training import kernel_of

STEPS = 200  # of Adam on the nearest-neighbour likelihood
BATCH = 128  # rows a step
RATE = 0.1  # of the logarithms of the parameters, at the start
REFRESH = 25  # steps between two looks at the neighbours


class LocalProcess:
    """Kriging from the H nearest rows of data.

    Parameters
    ----------
    model : Model
        The data; kernel parameters and noise are modified by `learn`.
    n_neighbors : int
        H, less than the number of rows.
    n_threads : int
        Threads of every launch.
    search : str
        Kind of neighbour search.
    """

    def __init__(self, model, n_neighbors, n_threads, search="auto"):
        self.model = model
        self.H = n_neighbors
        self.n_threads = n_threads
        self.search = search
        self.work = make_work(model, n_neighbors, n_threads)

    def learn(self, free, log_bounds, weight, rng):
        """Maximise sum_i weight_i log p(y_i | its H nearest others) on minibatches.

        `free` (P,) and `log_bounds` (P, 2) say what may move, and how far. Returns the
        mean log density of each step.
        """
        model, N = self.model, len(self.model.Z)
        n = min(BATCH, N)
        optimizer = make_optimizer(model, free, log_bounds, np.ones(model.Z.shape[1]))
        grads = make_gradients(model, 1, self.H)
        means = []
        for first in range(0, STEPS, REFRESH):
            rows = draw_rows(N, n * REFRESH, rng)
            batch = Batch(model.Z[rows], model.m[rows], weight[rows], self.others(rows))
            for step in range(first, min(first + REFRESH, STEPS)):
                start = (step - first) * n
                rate = RATE * 0.5 * (1.0 + np.cos(np.pi * step / STEPS))
                with launch(self.n_threads):
                    loops.kriging_gradients(model, batch, start, n, self.work, grads)
                    update_parameters(model, optimizer, grads, rate)
                means.append(grads.sums[0, 0] / batch.weight[start : start + n].sum())
        return np.array(means)

    def others(self, rows):
        """Return the H nearest data of data rows, without themselves."""
        search = self.make_search(self.H + 1)
        lists = search.query(self.model.Z[rows])
        own = lists == rows[:, None]
        own[~own.any(axis=1), self.H] = True  # a row among its own duplicates
        return lists[~own].reshape(len(rows), self.H)

    def make_search(self, n_neighbors):
        model = self.model
        return NeighborSearch(
            model.Z,
            kernel_of(model),
            n_neighbors=n_neighbors,
            search=self.search,
            n_threads=self.n_threads,
        )

    def predict(self, X, active):
        """Return mean and variance of the latent functions at rows of X, (n, Q)."""
        shape = len(X), self.model.m.shape[1]
        mu, v = np.empty((2, *shape), dtype=X.dtype)
        batch = Batch(X, mu[:0], mu[:0, 0], active)
        with launch(self.n_threads):
            loops.kriging_predictions(self.model, batch, self.work, mu, v)
        return mu, v


def draw_rows(n_rows, n_drawn, rng):
    """Return random rows, each as often as any other to within one."""
    rounds = -(-n_drawn // n_rows)
    rows = np.concatenate([rng.permutation(n_rows) for _ in range(rounds)])
    return rows[:n_drawn]


def learn_local(
    X, y, weight, kernel, noise_variance, *, n_threads, dtype, rng, search="auto"
):
    """temporary"""
    from skswsgp._defaults import default_kernel, feature_spread
    from skswsgp._model import build_model
    from skswsgp._program import compile_kernel, updated_kernel

    if len(X) > 200_000:
        rows = np.sort(rng.choice(len(X), 200_000, replace=False))
        X, y, weight = X[rows], y[rows], weight[rows]
    best = None
    kernels = [kernel]
    if kernel is None:
        base = default_kernel(feature_spread(X, rng))
        kernels = []
        for nu in (0.5, 1.5, 2.5):
            k = default_kernel(feature_spread(X, rng))
            k.k2.nu = nu
            kernels.append(k)
    Q = y.shape[1]
    for k in kernels:
        at = dict(
            kernel_=k,
            inducing_points_=X,
            inducing_mean_=y,
            inducing_covariance_=np.repeat(1.0 / weight[:, None], Q, axis=1),
            noise_variance_=np.full(Q, noise_variance),
        )
        model, center = build_model(at, ("gaussian", Q), dtype)
        ck = compile_kernel(k, X.shape[1], dtype)
        lp = LocalProcess(model, min(32, len(X) - 1), n_threads, search)
        curve = lp.learn(ck.free, ck.log_bounds, weight, np.random.RandomState(0))
        score = curve[-50:].mean()
        if best is None or score > best[0]:
            best = score, updated_kernel(k, model.params), model.noise.copy(), -curve
    return best[1:]
