"""Rows held out: they tell which of some kernels serves q(u) best."""

import math
import warnings
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from skswsgp._divergences import divergence_weight
from skswsgp._engine import CpuEngine
from skswsgp._inducing import distinct_rows
from skswsgp._model import build_model, callers_level
from skswsgp._natural import NaturalSolver
from skswsgp._training import Data

ROWS = 20_000  # that q(u) is found on and judged by, at most
HELD_SHARE = 0.2  # of them
LEAST_HELD = 20  # rows, or half of them if these are fewer
LEAST_EFFECTIVE = 8.0  # as many equal weights have the same spread
LEAST_GAIN = 1e-3  # nats a row, for which a variance is scaled
SCALE_SPREAD, SCALE_SHIFT = 0.5, 3.0  # of the logarithm of that scale; its bound


class Prior(NamedTuple):
    """What the natural solver takes of the user's parameters for q(u)."""

    kl: str = "chain"  # or "local"
    kl_weight: object = "auto"  # or a number
    metric: str = "kernel"  # of neighbours, or "euclidean" or "random"


class HeldOut:
    """A part of the training rows, and which of them no q(u) learns from.

    Copies of a row are merged, and rows that share X are held out together: one would
    tell the others' targets. q(u) has a diagonal S here, whatever the estimator says.

    Parameters
    ----------
    most : int
        Rows that take part, at most.
    data : Data
        Training rows.
    likelihood : tuple
        Its name and the number of latent functions.
    log_density : callable
        log_density(mu, v, y, attributes), the density of rows with q(f) = N(mu, v).
    rng : RandomState
        Source of random numbers.
    options : dict
        Threads, precision, kind of search, and device of learning: n_threads, dtype,
        search, device.
    prior : Prior
        Of q(u).

    Attributes
    ----------
    X, y, weight : ndarrays of shapes (n, D), (n, Q) or (n, 1), (n,)
        The rows that take part.
    held : ndarray of shape (n,)
        Which rows are held out.
    decisive : bool
        Whether these are enough to decide between kernels, and others are left.
    """

    def __init__(self, most, data, likelihood, log_density, rng, options, prior):
        part = data.take(np.sort(rng.permutation(data.n_rows)[:most]))
        X = np.asarray(part.X[part.rows], dtype=np.float64)
        self.X, self.y, self.weight = merge_copies(X, part.y, part.weight)
        distinct, group = distinct_rows(self.X)
        M = len(distinct)
        n_held = max(HELD_SHARE * M, min(LEAST_HELD, M // 2))
        self.held = (rng.permutation(M) < n_held)[group]
        self.share = part.n_rows / data.n_rows  # of the rows, that take part
        enough = effective_number(self.weight[self.held]) >= LEAST_EFFECTIVE
        self.decisive = enough and not self.held.all()
        self.seed = rng.randint(2**31 - 1)  # of the order of all chains
        self.likelihood, self.log_density = likelihood, log_density
        self.options, self.prior = options, prior

    def solver(self, attributes, H):
        """Return a solver that does not learn from held-out rows.

        `attributes` are those that `build_model` takes; m and S to start from may be
        missing: then they are the prior's. H points are active, if there are so many.
        """
        (kl, kl_weight, metric), options = self.prior, self.options
        kernel, Z = attributes["kernel_"], attributes["inducing_points_"]
        M = len(Z)
        H = min(H, M)
        variance = np.maximum(kernel.diag(Z), np.finfo(self.y.dtype).eps)
        shape = M, self.likelihood[1]
        start = {
            "inducing_mean_": np.zeros(shape),
            "inducing_covariance_": np.broadcast_to(variance[:, None], shape),
        }
        model, center = build_model(
            start | attributes,
            self.likelihood,
            options["dtype"],
            divergence_weight(kl_weight, kl, M, H),
            total_weight=self.weight.sum(dtype=np.float64),
        )
        solver = NaturalSolver(
            CpuEngine(model, H, options["n_threads"]),
            kernel,
            Data(self.X, self.y, self.weight, center=center),
            {"metric": metric, "search": options["search"]},
            np.random.RandomState(self.seed),
            kl,
        )
        solver.weight = np.where(self.held, 0.0, self.weight)
        return solver

    def log_densities(self, solver, attributes):
        """Let a solver converge; return the log density of the held-out rows."""
        while not solver.converged:
            solver.advance(0)
        held, (mu, v) = self.held, solver.marginals()
        return self.log_density(mu[held], v[held], self.y[held], attributes)

    def variance_scale(self, solver):
        """Return the factor of the variance of q(f) that suits held-out rows best.

        Its logarithm has a normal prior. 1 if no other is better beyond chance; one
        found on a share of the rows must gain the more.
        """
        held, (mu, v) = self.held, solver.marginals()
        mu, v, y, weight = mu[held], v[held], self.y[held], self.weight[held]

        def density(shift):
            return self.log_density(mu, v, y, {"variance_scale_": np.exp(shift)})

        def loss(shift):
            prior = 0.5 * (shift / SCALE_SPREAD) ** 2 / effective_number(weight)
            return prior - np.average(density(shift), weights=weight)

        bounds = -SCALE_SHIFT, SCALE_SHIFT
        shift = minimize_scalar(loss, bounds=bounds, options={"xatol": 0.05}).x
        least = LEAST_GAIN / self.share
        better = self.better(density(shift), density(0.0), least)
        return float(np.exp(shift)) if better else 1.0

    def better(self, density, other, least=0.0):
        """Whether held-out rows are likelier, by `least` and beyond chance."""
        weight = self.weight[self.held]
        return self.decisive and beyond_chance(density - other, weight, least)


def warn_of_interrupt():
    """Say that Ctrl-C ended a search, and not the fit."""
    warnings.warn(
        "the search for a kernel was interrupted: the fit goes on with the best one so "
        "far.",
        stacklevel=callers_level(),
    )


def beyond_chance(gain, weight=None, least=0.0):
    """Whether the mean of gains is above its standard error, and above `least`."""
    weight = np.ones(len(gain)) if weight is None else weight.astype(np.float64)
    n = effective_number(weight)
    if n <= 1.0:  # none, or one
        return False
    mean = np.average(gain, weights=weight)
    spread = np.average((gain - mean) ** 2, weights=weight)
    return bool(mean > max(least, math.sqrt(spread / (n - 1.0))))


def effective_number(weight):
    """Return (sum w)^2 / sum w^2: so many equal weights have the same spread."""
    if not weight.any():
        return 0.0
    weight = weight.astype(np.float64) / weight.max()
    return weight.sum() ** 2 / np.sum(weight**2)


def merge_copies(X, y, weight):
    """Return the rows with copies merged into one, with the sum of their weights.

    A copy would predict its original without error, as if there were no noise. Rows are
    copies if they share X and y and no other y goes with that X: where one does, as in
    tables of few values, equal rows are observations like any others.
    """
    _, group = np.unique(X, axis=0, return_inverse=True)
    _, first, same = np.unique(
        np.column_stack([X, y]), axis=0, return_index=True, return_inverse=True
    )
    group, same = group.ravel(), same.ravel()
    single = np.bincount(group[first])[group] == 1
    label = np.where(single, same, len(X) + np.arange(len(X)))
    _, first, copy_of = np.unique(label, return_index=True, return_inverse=True)
    if len(first) == len(X):
        return X, y, weight
    total = np.bincount(copy_of, weight)
    order = np.argsort(first)
    rows = first[order]
    return X[rows], y[rows], total[order].astype(weight.dtype)
