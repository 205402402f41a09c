"""The variance of f from the nearest inducing points and the sites of rows there.

Rows with precisions W say of the inducing values about what Gaussian sites of the
precisions p = A' W A 1 would say, or where rows are the points, the sums of their own.
Kriging from the nearest points w gives, with C = K_w + diag(1 / (c p_w)),

    v(x) = k(x, x) - k' C^-1 k.

More rows than these say something of f(x) where noise hides a smooth function. So each
near point counts as c of them. The means tell c: given all other rows, let f at row i
have the variance v_i and its noise n_i, and the mean there the error e_i and, given
this row as well, the residual r_i. Then

    r_i / e_i = n_i / (v_i + n_i),

so c is the number for which sum_i e_i^2 / (v_i + n_i) = sum_i r_i e_i / n_i: divided by
n_i, no row counts more for its noise alone. Where e is not known, the mean of r_i / e_i
over rows is one less their mean leverage. Where rows have hardly any noise, rows beyond
the near ones make f(x) better known by themselves. So what even the largest c leaves
too large is scaled, see `exact_variance`.
"""

from contextlib import closing
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from skswsgp._kernel_search.neighbor_likelihood import NeighborProcess, neighbor_model
from skswsgp._neighbors.lists import without_own
from skswsgp._rows.statistics import MEAN_ROWS
from skswsgp._solvers.exact_mean import LEAST_WEIGHT, exact_variance, merge_sites

FACTOR_TOLERANCE = 0.02  # of log c, which is known to some 0.05


class KnownSites(NamedTuple):
    """What a fit knows of the sites at M inducing points, for Q latent functions."""

    precision: np.ndarray  # (M, Q) p
    factor: np.ndarray  # (Q,) c
    scale: np.ndarray  # (Q,) of the variance
    n_near: int  # how many of the nearest points tell a variance


class NearSites:
    """Kriging of f from the nearest of noisy inducing points.

    `model` is a `Model`, `kernel` its kernel object, and `sites` are `KnownSites`. Rows
    are centred as the points are, and in their dtype.
    """

    def __init__(self, model, kernel, sites, n_threads, search, device):
        self.Z, self.kernel, self.sites = model.Z, kernel, sites
        Z, nothing = model.Z.astype(np.float64), np.zeros_like(sites.precision)
        noise = 1.0 / sites.precision, kernel, 1.0 / sites.factor
        data, self.center = neighbor_model(Z, nothing, *noise, np.float64)
        device = "cuda" if device == "cuda" else "cpu"
        self.process = NeighborProcess(data, sites.n_near, n_threads, search, device)

    def close(self):
        """Release the memory of the device."""
        self.process.close()

    @cached_property
    def _search(self):
        return self.process.make_search(min(self.sites.n_near + 1, len(self.Z)))

    def variances(self, X, lists):
        """Return v (n, Q) at rows of X, whose nearest points the lists begin with.

        Lists without entries are searched for.
        """
        rows = self._rows(X)
        if lists.shape[1] == 0:
            lists = self._search.query(rows)
        return self._kriged(rows, lists, self.sites.scale)

    def _kriged(self, rows, lists, scale):
        lists = np.ascontiguousarray(lists[:, : self.sites.n_near])
        engine = self.process.engine
        _, variance = engine.kriging_predictions(rows, lists, with_mean=False)
        if np.all(scale == 1.0):
            return variance
        return exact_variance(variance, self.kernel.diag(rows)[:, None], scale)

    def without_rows(self, X, precision=None, lists=None):
        """Return a function of c and the scale that returns v (n, Q) without each row.

        X (n, D') are rows of data, whose nearest points are searched for unless `lists`
        have enough of them. A point at a row is left out. What other rows say there
        counts if `precision` (n, Q) are those of the rows, which the sites sum.
        """
        if lists is None or lists.shape[1] <= self.sites.n_near:
            lists = self._search.query(self._rows(X))
        # The points were made from rows: the center was subtracted, added and
        # subtracted again. So a point may differ from its row by rounding.
        rounding = 4.0 * np.finfo(np.float32).eps * np.abs(self.Z).max(axis=0)
        own = np.full(len(X), -1)
        for points in lists.T:  # the nearest first
            here = (np.abs(self.Z[points] - X) <= rounding).all(axis=1) & (own < 0)
            own[here] = points[here]
        lists = without_own(lists, own)
        rest = 0.0
        if precision is not None:
            rest = self.sites.precision[own] - precision
            rest[(own < 0)[:, None] | (rest <= LEAST_WEIGHT * precision)] = 0.0

        rows = self._rows(X)

        def variances(factor, scale):
            self.process.model.noise[:] = 1.0 / factor
            v = self._kriged(rows, lists, scale)
            return 1.0 / (1.0 / np.maximum(v, np.finfo(float).tiny) + rest)

        return variances

    def _rows(self, X):
        return np.ascontiguousarray(X.astype(np.float64) - self.center)


def fit_factor(variances, noise, errors, residuals, most):
    """Return c and the scale, each (Q,), for rows whose noise, e and r are (n, Q).

    `variances(c, scale)` are v (n, Q) given the other rows. c is at most `most`, and
    the scale is 1 unless c is, and at least 1 / `most`.
    """
    Q, top = noise.shape[1], np.log(max(most, 1.0))
    totals, factor, scale = np.sum(residuals * errors, axis=0), np.ones(Q), np.ones(Q)

    def excess(log_factor, q):
        """Return the left side of the equation less the right one.

        Up to `top` the argument is log c. What is beyond is minus the log of the scale.
        """
        c, beyond = np.exp(min(log_factor, top)), max(log_factor - top, 0.0)
        v = variances(c, np.exp(-beyond))[:, q]
        kept = noise[:, q] / (v + noise[:, q])
        return np.sum(errors[:, q] ** 2 * kept) - totals[q]

    for q in range(Q):
        found = 2.0 * top
        if excess(0.0, q) >= 0.0:
            found = 0.0
        elif excess(found, q) > 0.0:
            found = brentq(excess, 0.0, found, (q,), xtol=FACTOR_TOLERANCE)
        factor[q] = np.exp(min(found, top))
        scale[q] = np.exp(min(top - found, 0.0))
    return factor, scale


def learn_near_sites(solver, data, group, held_out, settings, kernel, rng):
    """Return the fitted attributes of `KnownSites`.

    `solver` is a `NaturalSolver` after its last round, with `TrainingRows` data of
    which `group` (n,) are the points, or None. `held_out` is the `HeldOut` of exact
    means, or None for means from neighbours.
    """
    engine, sites, tuning = solver.engine, solver.sites, settings.tuning
    model, beta = engine.model, engine.model.kl_weight
    (M, Q), H = model.m.shape, engine.n_neighbors
    if group is None:
        precision = sites.multiply(np.ones((M, Q)), np.arange(Q)) / beta
    else:
        precision = 1.0 / merge_sites(*[sites.precision / beta] * 2, group, M)[1]
    most = precision.max(axis=0)
    least = LEAST_WEIGHT * np.where(most > 0.0, most, 1.0)
    precision = np.maximum(precision, least)
    n_near = min(tuning.variance_neighbors, H, M - 1)
    if held_out is None:
        leverage, known = solver.leverage(rng), precision
        rows = rng.permutation(data.n_rows)[:MEAN_ROWS]
        X, _, weight = data.block(rows)
        if settings.likelihood_record.conjugate:
            unit = 1.0 / (beta * model.noise.astype(np.float64))
        else:  # what a site knows on average
            unit = precision.sum(axis=0) / sites.total_weight()
        own = np.maximum(weight[:, None] * unit, least)
        errors = np.ones((len(rows), Q))
        if leverage is None:
            leverage = np.ones(Q)
        residuals = (1.0 - leverage) * errors
    else:
        points, errors, residuals = held_out
        X, own, known = model.Z[points], precision[points], precision.copy()
        known[points] = least
        errors, residuals = errors * np.sqrt(own), residuals * np.sqrt(own)
    sites = KnownSites(known, np.ones(Q), np.ones(Q), n_near)
    how = engine.n_threads, settings.neighbor_search, settings.device
    with closing(NearSites(model, kernel, sites, *how)) as near:
        summed = group is not None and held_out is None
        v = near.without_rows(X, own if summed else None)
        factor, scale = fit_factor(v, 1.0 / own, errors, residuals, M / n_near)
    found = {"site_precision_": precision, "site_factor_": factor}
    found["local_variance_scale_"] = scale
    part = 0 if Q == 1 else slice(None)
    return {name: values[..., part] for name, values in found.items()}


def known_sites(attributes, n_near):
    """Return the `KnownSites` of fitted attributes, or None if there are none."""
    if "site_precision_" not in attributes:
        return None
    M, factor = len(attributes["site_precision_"]), attributes["site_factor_"]
    return KnownSites(
        attributes["site_precision_"].reshape(M, -1),
        np.atleast_1d(factor),
        np.atleast_1d(attributes["local_variance_scale_"]),
        n_near,
    )
