"""Kernel parameters and predictions from the nearest rows of data.

Rows of data take the place of inducing points in a `Model`: Z holds their inputs, m
their targets, and s their noise variances relative to `noise`, one over their weights.
"""

import numpy as np

from skswsgp._covariance.program import kernel_of
from skswsgp._engine.select import make_kriging_engine
from skswsgp._neighbors.lists import without_own
from skswsgp._neighbors.search import choose_metric
from skswsgp._point.adam_step import make_optimizer, update_parameters
from skswsgp._point.state import Batch
from skswsgp._solvers.model import build_model
from skswsgp._solvers.progress import half_cosine

BATCH_SIZE = 256  # rows in a step of Adam
REFRESH = 25  # steps of Adam between two searches for neighbours
NOT_FINITE = (
    "the nearest-neighbour likelihood produced NaN or infinity: a covariance matrix "
    "could not be factorised or a parameter overflowed; bound the kernel's parameters, "
    "start from a larger initial_noise, or scale X and y."
)


class NeighborProcess:
    """Kriging from the H nearest rows of data.

    `model` holds the data; `learn` modifies its kernel parameters and noise. H is
    `n_neighbors`, for `learn` less than the number of rows. `search` is the kind of
    neighbour search, and `device` "cpu" or "cuda".
    """

    def __init__(self, model, n_neighbors, n_threads, search="exact", device="cpu"):
        self.model, self.H, self.search = model, n_neighbors, search
        self.engine = make_kriging_engine(device, model, n_neighbors, n_threads)

    def close(self):
        """Release the memory of the device."""
        self.engine.close()

    def learn(
        self, compiled, weight, rng, steps, rate, rows=None, shared=None,
        noise_free=True, columns=None,
    ):  # fmt: skip
        """Maximise sum_i weight_i log p(y_i | its H nearest others) on minibatches.

        Logarithms of parameters have a normal prior, which matters where there are few
        rows for many parameters. Returns the mean log density of the rows of each step
        of Adam, before the step; `rate`, of the first step, falls along half a cosine.

        `compiled` is the `CompiledKernel`, which says what may move, and how far.
        `weight` (N,) says how often a row counts. The sum takes `rows`, or all if None;
        others are neighbours only. Logarithms of the kernel parameters `shared` move by
        a common amount. The noise moves if `noise_free`. The medians of the priors are
        the start. `columns` is a `MovingMap` of the rows of data that moves too, or
        None.
        """
        model, free = self.model, compiled.free
        rows = np.arange(len(model.Z)) if rows is None else rows
        N = len(rows)
        n = min(BATCH_SIZE, N)
        unit = np.ones(model.Z.shape[1])
        optimizer = make_optimizer(model, free, compiled.log_bounds, unit)
        middle, start_noise = np.log(model.params[free]), np.log(model.noise)
        means = np.empty(steps)
        for step in range(steps):
            start = step % REFRESH * n
            if start == 0:
                drawn = draw_rows(rows, n * min(REFRESH, steps - step), rng)
                batch = self._load(drawn, weight[drawn], n, columns)
            if columns is not None:
                here = slice(start, start + n)
                used = np.union1d(batch.active[here], drawn[here])
                columns.place(model.Z, used)
                batch.X[here] = model.Z[drawn[here]]
            grads = self.engine.kriging_gradients(start)
            pull = middle - np.log(model.params[free])
            grads.d_log[0, free] += pull * n / N
            if shared is not None:
                grads.d_log[0, shared] = grads.d_log[0, shared].mean()
            pull = start_noise - np.log(model.noise)
            grads.d_noise[0] += pull * n / N
            grads.d_noise[0] *= noise_free
            now = rate * half_cosine(step, steps)
            update_parameters(model, optimizer, grads, now)
            if columns is not None:
                columns.step(self.engine.map_gradient, n / N, now)
            total = grads.sums[0, 0]
            if not np.isfinite(total + model.params.sum() + model.noise.sum()):
                raise FloatingPointError(NOT_FINITE)
            of_step = batch.weight[start : start + n]
            means[step] = total / of_step.sum(dtype=np.float64)
        return means

    def _load(self, drawn, weight, n, columns):
        """Return the `Batch` of rows of so many steps, of n rows each, and load it.

        Rows are placed anew where `columns`, a `MovingMap`, have moved.
        """
        model = self.model
        if columns is not None:
            columns.place(model.Z, np.arange(len(model.Z)))
        # A row of weight w counts w times, each time with its noise times w.
        ratios = model.s[drawn] * weight[:, None]
        targets = np.hstack([model.m[drawn], ratios])
        batch = Batch(model.Z[drawn], targets, weight, self.others(drawn))
        if columns is None:
            self.engine.load_kriging(batch, n)
        else:
            before = columns.points, columns.points[drawn]
            self.engine.load_mapped_kriging(batch, n, before)
        return batch

    def standardised(self, rows, weight):
        """Return (y - mu)^2 / v of data rows given their H nearest others, and v.

        `weight` (n,) says how often these rows count. The noise in v is that of one of
        so many observations, whereas that of neighbours is the noise of their mean.
        """
        mu, v = self.engine.kriging_predictions(self.model.Z[rows], self.others(rows))
        v = v.astype(np.float64) + self.noise_of(rows, weight)
        return (self.model.m[rows] - mu) ** 2 / v, v

    def noise_of(self, rows, weight):
        """Return the noise variances (n, Q) of an observation at each of some rows."""
        return self.model.noise * self.model.s[rows] * weight[:, None]

    def others(self, rows):
        """Return the lists (n, H) of the nearest other rows of data."""
        rows, place = np.unique(rows, return_inverse=True)  # one search for each row
        lists = self.make_search(self.H + 1).query(self.model.Z[rows])
        return without_own(lists, rows)[place]

    def make_search(self, n_neighbors):
        """Return a search for the nearest rows of data under the present kernel."""
        scaled = choose_metric(kernel_of(self.model)).name == "scaled"
        search = self.search if scaled else "exact"
        return self.engine.make_search({"n_neighbors": n_neighbors, "search": search})


def neighbor_model(X, y, ratios, kernel, noise_variance, dtype):
    """Return (Model, center of X) of data X (N, D), y (N, Q).

    The noise variances are noise_variance, (Q,) or a number for all outputs, times
    ratios, (N, Q) or (N, 1).
    """
    attributes = {
        "kernel_": kernel,
        "inducing_points_": X,
        "inducing_mean_": y,
        "inducing_covariance_": np.broadcast_to(ratios, y.shape),
        "noise_variance_": np.broadcast_to(noise_variance, y.shape[1]),
    }
    return build_model(attributes, ("gaussian", y.shape[1]), dtype)


def draw_rows(rows, n_drawn, rng):
    """Draw from `rows` at random; the counts of two rows differ by at most one."""
    rounds = -(-n_drawn // len(rows))
    drawn = np.concatenate([rng.permutation(rows) for _ in range(rounds)])
    return drawn[:n_drawn]
