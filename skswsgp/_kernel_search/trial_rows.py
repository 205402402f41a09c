"""Training rows on which solvers for candidate kernels are tried."""

import numpy as np

from skswsgp._engine.select import make_cpu_engine
from skswsgp._linear.projection import mean_prior_variance
from skswsgp._rows.columns import mapped
from skswsgp._rows.data import TrainingRows
from skswsgp._rows.statistics import distinct_observations
from skswsgp._solvers.model import build_model, shape_covariance
from skswsgp._solvers.natural import NaturalSolver
from skswsgp._solvers.rows import RowsInMemory

LEAST_PRECISION = 1e-4  # least precision of a site, relative to that of the prior


class TrialRows:
    """At most `n_rows` of the training rows, with duplicates merged.

    X is (n, D), y (n, Q) or (n, 1), weight (n,). A solver learns from each row with its
    `solver_weight` (n,), which is its weight unless a subclass holds it out. `fraction`
    is that of the training rows that take part, and `shape` (Q,) that of the
    likelihood.
    """

    def __init__(self, n_rows, data, settings, options, rng):
        part = data.take(np.sort(rng.permutation(data.n_rows)[:n_rows]))
        X = np.asarray(part.inputs, dtype=np.float64)
        rows = distinct_observations(part._replace(X=X, rows=None))
        self.X, self.y, self.weight, self.count = rows
        self.solver_weight = self.weight
        self.fraction = part.n_rows / data.n_all
        self.seed = rng.randint(2**31 - 1)  # draws the order of all Vecchia priors
        self.settings, self.options = settings, options
        self.record = settings.likelihood_record
        self.shape = settings.first_shape

    def solver_for(self, attributes, H, full=False):
        """Return a `NaturalSolver` that learns from rows of positive `solver_weight`.

        `attributes` are those that `build_model` takes, and `linear_map_` or none;
        without m and S the solver starts at the prior. A row uses H inducing points, or
        all M if these are fewer. S is a diagonal, or a matrix if `full`.
        """
        kernel, Z = attributes["kernel_"], attributes["inducing_points_"]
        # a graph is too slow to build for each trial
        settings = self.settings._replace(solver=NaturalSolver, neighbor_search="exact")
        M = len(Z)
        H = min(H, M)
        variance = np.maximum(kernel.diag(Z), np.finfo(self.y.dtype).eps)
        shape = M, settings.n_latent
        start = {
            "inducing_mean_": np.zeros(shape),
            "inducing_covariance_": np.broadcast_to(variance[:, None], shape),
            "prior_mean_": settings.prior_mean(mean_prior_variance(kernel, Z)),
            "likelihood_shape_": self.shape,
        }
        start = shape_covariance(start | attributes, full)
        likelihood = settings.likelihood, settings.n_latent
        beta = settings.divergence_weight(M, H)
        model, center = build_model(start, likelihood, self.options.dtype, beta)
        engine = make_cpu_engine(model, H, self.options.n_threads)
        X = mapped(self.X, attributes.get("linear_map_"))
        rows = RowsInMemory(TrainingRows(X, self.y, self.weight, center=center))
        rng = np.random.RandomState(self.seed)
        solver = NaturalSolver(engine, rows, kernel, settings, rng)
        solver.sites = solver.sites._replace(weight=self.solver_weight)
        return solver


def train(solver):
    """Advance a solver until it has converged; return it."""
    while not solver.converged:
        solver.advance(0)
    return solver


def gaussian_sites(solver):
    """Return means and variances (n, Q) of a solver's sites, weights included.

    Sites that say nothing get a large variance.
    """
    least = LEAST_PRECISION / solver.prior_variance
    precision = np.maximum(solver.sites.precision, least)
    return solver.sites.precision_mean / precision, 1.0 / precision
