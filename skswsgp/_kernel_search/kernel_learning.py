"""Kernels learned from the density of rows given their nearest other rows."""

from contextlib import closing
from typing import NamedTuple

import numpy as np
from sklearn.base import clone

from skswsgp._covariance.compile import (
    compile_kernel,
    distance_leaves,
    length_scales,
    updated_kernel,
)
from skswsgp._kernel_search.linear_map import leading_map, moving_map
from skswsgp._kernel_search.marginal_likelihood import missing_rows
from skswsgp._kernel_search.neighbor_likelihood import NeighborProcess, neighbor_model
from skswsgp._rows.columns import mapped
from skswsgp._rows.statistics import MEAN_ROWS
from skswsgp._solvers.auto import default_kernel
from skswsgp._solvers.tuning import Tuning

RATE = 0.1  # first step of Adam, in logarithms of the parameters
SITE_STEPS = 50  # steps of Adam on sites, which are computed anew for each kernel
MAX_WIDE_NEIGHBORS = 96  # neighbours of a judging row: their cost is cubic
LEAST_FEATURES = 20  # features whose distances cost as much as a list of neighbours
# Least number of rows for each column of a map to few columns
ROWS_PER_COLUMN_OF_MAP = 5
EIGENVALUES = 20  # operations of the eigenvalues of a matrix (n, n), over n^3


class LearningOptions(NamedTuple):
    """Threads, precision and device for learning kernels."""

    n_threads: int = 1
    dtype: str = "float64"
    device: str = "cpu"  # or "cuda"
    tuning: Tuning = Tuning()
    noise_known: bool = False  # whether the noise keeps its start
    common_noise: bool = False  # whether outputs share it, as indicators of classes do


class KernelFit(NamedTuple):
    """A kernel with learned parameters."""

    kernel: object
    noise: np.ndarray  # (Q,) noise variances
    shared: bool = False  # whether the length-scales kept their ratios
    curve: np.ndarray = np.zeros(0)  # mean log density of the rows of each step
    variance_scale: float = 1.0  # factor of the variance of q(f), for classes
    posterior: object = None  # function of X: mean and variance (n, Q) of f, or None
    linear_map: np.ndarray | None = None  # W (D, D') of X W, or None for the identity
    shape: np.ndarray | None = None  # (Q,) of the likelihood, or None

    def of_smoothness(self, nu):
        """Return the fit with a default kernel of another smoothness."""
        return self._replace(kernel=clone(self.kernel).set_params(k2__nu=nu))

    def count_columns(self, n_features):
        """Return the number of columns of X W, D'."""
        return n_features if self.linear_map is None else self.linear_map.shape[1]


class KernelLearner:
    """Learns kernels on the nearest-neighbour likelihood of rows X (N, D), y (N, Q).

    `ratios`, (N, Q) or (N, 1), are the noise variances of the rows relative to the
    noise that is learned. `weight` (N,) says how often a row counts. A row is predicted
    from `n_neighbors` others, or as `Tuning` says if it is None.
    """

    def __init__(self, X, y, ratios, weight, options, n_neighbors=None):
        self.X, self.y, self.options = X, y, options
        self.n_neighbors = n_neighbors or options.tuning.learning_neighbors
        self.ratios = np.broadcast_to(ratios, y.shape)
        self.weight = weight.astype(options.dtype)
        self.steps = options.tuning.learning_steps

    def model(self, fit):
        """Return a `Model` of the data with the kernel and noise of a fit."""
        X, dtype = mapped(self.X, fit.linear_map), self.options.dtype
        return neighbor_model(X, self.y, self.ratios, *fit[:2], dtype)[0]

    def process(self, fit, H=None, device=None):
        """Return the `NeighborProcess` of a fit, which the caller closes."""
        H = min(H or self.n_neighbors, len(self.X) - 1)
        device, n_threads = device or self.options.device, self.options.n_threads
        return NeighborProcess(self.model(fit), H, n_threads, device=device)

    def learn(
        self, start, rng, steps, rate, *, shared=False, rows=None, noise_free=True,
        turn=False,
    ):  # fmt: skip
        """Return the `KernelFit` after steps of Adam from a start.

        Other arguments are those of `NeighborProcess.learn`; with `shared`, all
        length-scales keep their ratios, and with `turn`, a map of the columns moves.
        """
        D = start.count_columns(self.X.shape[1])
        compiled = compile_kernel(start.kernel, D, self.options.dtype)
        slots, columns = None, None
        if shared:
            first = distance_leaves(compiled.struct)[0]
            slots = compiled.struct.slot[first]
        # steps of a map change the places of rows, which are on the CPU
        noise_free = noise_free and not self.options.noise_known
        with closing(self.process(start, device="cpu" if turn else None)) as process:
            if turn:
                columns = moving_map(start.kernel, process.model.Z)
            curve = process.learn(
                compiled, self.weight, rng, steps, rate, rows=rows, shared=slots,
                noise_free=noise_free, columns=columns,
            )  # fmt: skip
        kernel = updated_kernel(start.kernel, process.model.params)
        curve, noise = np.concatenate([start.curve, curve]), process.model.noise
        noise = noise.astype(float)
        W = start.linear_map
        if turn:
            W = columns.matrix if W is None else W @ columns.matrix
        learned = {"kernel": kernel, "noise": noise, "curve": curve, "linear_map": W}
        return start._replace(**learned, shared=shared)

    def all_rows(self, fit):
        """Return the arguments of `LogPosterior`.

        Rows whose noise is learned count together as their effective sample size, so
        that the noise of each is larger by their number over that size.
        """
        X = self.model(fit).Z.astype(np.float64)  # centred
        sizes = len(X) - missing_rows(self.ratios)
        unit = 1.0 if self.options.noise_known else len(X) / sizes
        return fit.kernel, fit.noise, X, self.y, self.ratios * unit

    def take(self, rows):
        """Return a learner that knows only these rows."""
        return KernelLearner(
            self.X[rows], self.y[rows], self.ratios[rows], self.weight[rows],
            self.options, self.n_neighbors,
        )  # fmt: skip

    def learn_from_sites(self, start, rng, turn=False):
        """Return the fit for targets whose noise is known, as that of sites is.

        With `turn` a map of the columns moves as well.
        """
        pace = (self.steps // 2, RATE / 2) if turn else (SITE_STEPS, RATE)
        keep = {"shared": start.shared, "noise_free": False, "turn": turn}
        return self.learn(start, rng, *pace, **keep)

    def mapped_to_few(self, fit, rng):
        """Return a fit of the default kernel for few columns, yet to be learned.

        The columns are mapped to the `leading_map` of a fit. All length-scales are
        equal, and shorter than one because fewer terms make a squared distance.
        """
        n_columns = max(2, len(self.X) // ROWS_PER_COLUMN_OF_MAP)
        n_columns = min(n_columns, self.options.tuning.most_columns)
        with closing(self.process(fit)) as process:
            rows = rng.permutation(len(self.X))[:MEAN_ROWS]
            Z = process.model.Z[np.sort(rows)]
            nearest = process.make_search(process.H).query(Z)
            slopes = process.engine.kriging_slopes(Z, nearest)
        lengths = length_scales(fit.kernel, Z.shape[1], otherwise=np.ones(Z.shape[1]))
        W = leading_map(slopes, lengths, n_columns)
        if fit.linear_map is not None:
            W = fit.linear_map @ W
        variance, nu = fit.kernel.k1.constant_value, fit.kernel.k2.nu
        kernel = default_kernel(np.full(n_columns, 1.0 / np.sqrt(Z.shape[1])))
        kernel.set_params(k1__constant_value=variance, k2__nu=nu)
        return fit._replace(kernel=kernel, linear_map=W, shared=True)

    def turned(self, start, seed, steps):
        """Return the fit after so many steps of a map of the columns, from a start."""
        draws, shared = np.random.RandomState(seed), start.shared
        return self.learn(start, draws, steps, RATE / 2, shared=shared, turn=True)


def count_few_rows(n_features, n_outputs, work):
    """Return for how many rows a marginal likelihood takes so much work at most."""
    n = np.arange(1.0, np.cbrt(work) + 1.0)
    return np.sum(evaluation_work(n, n_features, n_outputs) <= work)


def evaluation_work(n_rows, n_features, n_outputs):
    """Return the cost of an evaluation of the marginal likelihood, in operations."""
    return n_rows**2 * (n_rows + 4 * n_features) * n_outputs


def evidence_work(n_rows, n_features, n_outputs):
    """Return the cost of the evidence for a map, in operations.

    It takes an evaluation for each entry, and the eigenvalues of a matrix of entries.
    """
    entries = n_features * (n_features + 1) / 2
    evaluations = evaluation_work(n_rows, n_features, n_outputs) * entries
    return evaluations + EIGENVALUES * entries**3


def draw_learning_rows(data, tuning, rng):
    """Return the `TrainingRows`, or as many random ones as take part in learning."""
    most = count_learning_rows(data.X.shape[1], tuning)
    if data.n_rows <= most:
        return data
    return data.take(np.sort(rng.choice(data.n_rows, most, replace=False)))


def count_learning_rows(n_features, tuning):
    """Return the largest number of rows that take part in learning."""
    affordable = tuning.learning_numbers / max(n_features, LEAST_FEATURES)
    return max(int(affordable), tuning.least_learning_rows)
