"""From a trained model to its rows as predicted without them, and to the law."""

from typing import NamedTuple

import numpy as np

from skswsgp._compiled.threads import index_blocks, one_blas_thread
from skswsgp._covariance.compile import length_scales
from skswsgp._kernel_search.climb import FIRST_ROWS
from skswsgp._kernel_search.kernel_learning import count_few_rows, evidence_work
from skswsgp._kernel_search.marginal_likelihood import LogPosterior
from skswsgp._law import fit_law
from skswsgp._law.levels import alike_squares, find_levels
from skswsgp._point.state import Model
from skswsgp._posterior import left_out
from skswsgp._posterior.kernel_uncertainty import left_out_squares
from skswsgp._posterior.prediction import nearest_points, with_points
from skswsgp._rows.columns import is_identity
from skswsgp._rows.data import TrainingRows
from skswsgp._rows.inducing import distinct_rows
from skswsgp._rows.statistics import SAMPLE_ROWS, feature_spread, width_of_next
from skswsgp._solvers.model import build_model

# Of more rows some are left out: rows without themselves cost as much as predictions,
# and where there is hardly any noise each of up to 36,000 tells of its own place.
MOST_LEFT_OUT = 2 * SAMPLE_ROWS


class LeftOutRows(NamedTuple):
    """Rows that train as predicted by the model without them, standardised, (n, Q)."""

    rows: np.ndarray  # (n,) their numbers
    mean: np.ndarray
    variance: np.ndarray  # of an observation of the weight of the row
    score: np.ndarray  # y as a standard normal value, under the law without the row


class NearestPoints(NamedTuple):
    """The inducing points nearest to rows, from lists that a fit has, or a search."""

    data: TrainingRows
    sites: object  # `SiteRows` of these rows, or None
    model: Model
    center: np.ndarray  # that of the model
    n_jobs: int | None
    Z: np.ndarray  # (M, D) the points

    @classmethod
    def of_fit(cls, data, sites, trained, settings):
        """Return the inducing points of trained attributes."""
        likelihood = settings.likelihood, settings.n_latent
        model = build_model(trained, likelihood, settings.dtype)
        Z = trained["inducing_points_"]
        return cls(data, sites, *model, settings.n_jobs, Z)

    def among(self, Z):
        """Return a search among other points (M, D)."""
        model = with_points(self.model, Z, self.center)
        return self._replace(sites=None, model=model, Z=Z)

    def of(self, rows, k):
        """Return the k points nearest to rows of some numbers, the nearest first."""
        known = self.known(rows, k)
        if known is not None and known.shape[1] == k:
            return known
        X = self.data.take(rows).inputs
        return nearest_points(self.model, X, self.center, k, self.n_jobs)

    def known(self, rows, most=None):
        """Return the nearest points that sites of rows of some numbers have in lists.

        There are H, or at most so many, and none where rows use all points. The result
        is None without sites.
        """
        if self.sites is None:
            return None
        parts = []
        for part in index_blocks(len(rows)):
            X, _, _ = self.data.block(rows[part])
            parts.append(self.sites.rows.lookup(rows[part], X)[:, :most])
        return np.concatenate(parts)

    def of_points(self, k):
        """Return the k points nearest to each, itself among them."""
        model = self.model
        return nearest_points(model, model.Z, 0.0 * self.center, k, self.n_jobs)


def leave_out_rows(data, group, sites, trained, settings, rng):
    """Return the `PredictiveLaw` or None, and the `LeftOutRows` of a fit.

    `group` (n,) are the inducing points of the rows, or None. `sites` are the
    `SiteRows` of the rows, or None where other rows have sites as well. `trained` are
    the fitted attributes. There is no law for one row, and for the parameter
    `predictive` "gaussian". Copies of a row count as one, as they do for the noise.

    Of many rows a sample is left out and teaches the law, and where `sites` know all
    rows, these tell how large residuals are around it. Where each row uses all points,
    of which none is a row, the law looks at the places of the sample in their stead.
    """
    Z, chosen = trained["inducing_points_"], np.arange(data.n_rows)
    dense = group is None and trained["n_neighbors_"] == len(Z)
    if dense:
        sites = None  # which know no lists of near points
    most = MOST_LEFT_OUT if dense or sites is not None else SAMPLE_ROWS
    if data.n_rows > most:
        chosen = np.sort(rng.permutation(data.n_rows)[:most])
        if sites is None:
            data, group = data.take(chosen), None
    every = np.arange(data.n_rows) if sites is None else chosen
    merged, first, place = left_out.merge_rows(data, group)
    sample, place = np.unique(place[every], return_inverse=True)
    group = None if group is None else group[first]
    nearest = NearestPoints.of_fit(data, sites, trained, settings)
    rows = left_out.noise_of_rows(merged, trained), trained["_kl_weight"], sample
    rows = left_out.RowsLeftOut(merged, *rows, nearest.known(first[sample]))
    points = None if group is None else left_out.merge_points(rows, group, Z)
    # values at points contain the jitter of K, and predictions do not
    mean = sites.expected.mean[first] if sites and sites.rows.at is None else None
    residuals = left_out.leave_one_out(rows, points, trained, settings, mean)
    found = residuals.at(sample)
    law, score = None, found.standardised
    lone = merged.n_rows < 2 or (points is not None and len(Z) < 2)
    if settings.predictive != "gaussian" and not lone:
        if dense:
            places, group = distinct_rows(merged.inputs.astype(np.float64))
            points = left_out.merge_points(rows, group, places)
            nearest = nearest.among(places)
        scales = scales_of_distances(trained, rng)
        among = merged, first, nearest, scales, group, sample
        around = fit_law.find_neighborhoods(*among)
        known = residuals, points, around, merged, sample
        law, score = law_of_residuals(*known, trained, settings, rng)
        law = law.with_points(nearest.Z) if dense else law
    # The residual of merged copies has the noise of their mean, a copy all of its own.
    noise = left_out.noise_of_rows(data.take(every), trained)
    variance = found.variance[place] + (noise - rows.noise[sample][place])
    return law, LeftOutRows(chosen, found.mean[place], variance, score[place])


def scales_of_distances(trained, rng):
    """Return the length-scales (D',) of the mapped columns, or their spread."""
    Z = trained["inducing_points_"]
    scales = length_scales(trained["kernel_"], Z.shape[1], otherwise=np.inf)
    if np.isinf(scales).all():  # no part of the kernel is a function of distance
        scales = feature_spread(Z, rng)
    return scales


def law_of_residuals(residuals, points, around, data, sample, trained, settings, rng):
    """Return the `PredictiveLaw` of merged rows, and normal scores of some (k, Q).

    The residuals of the rows are known, `points` are those of `leave_one_out`, and
    `sample` (k,) are numbers of the rows that are left out.
    """
    judged = residuals.at(sample) if around is None else residuals
    columns, y = data.take(sample).columns, data.y[sample]
    law, observations = fit_law.fit_law(judged, around, columns)
    widening, levels, vouch = widening_of_few(law, data, trained, settings, rng)
    law = law.widened(widening)._replace(levels=levels)
    observations = observations._replace(factor=observations.factor * widening)
    score = observations.normal_scores(y)
    if points is None or around is None or vouch:
        return law, score
    errors = np.empty_like(points.targets)
    errors[points.group] = data.y - residuals.mean
    near = (points.targets, errors), around, rng
    return fit_law.add_near_targets(law, observations, y, *near), score


def widening_of_few(law, data, trained, settings, rng):
    """Return factors (Q,) of deviations for a kernel learned from few merged rows.

    A law that was learned from errors grows as these do when rows are taken out of the
    kernel's parameters. Otherwise deviations grow to these errors, or stay as they are.
    Either way they grow by `width_of_next`, for so few rows tell neither the mean nor
    the variance of y, unless the noise is known. Returned as well are the `Levels` of
    the rows or None, and whether rows that are alike vouch for each other.
    """
    X, y, Q = data.inputs.astype(np.float64), data.y, data.y.shape[1]
    few = len(X) <= count_few_rows(X.shape[1], Q, settings.tuning.part_work)
    optimal = settings.learn_kernel and not settings.solver.takes_steps
    if not optimal or not few:  # parameters are no optimum, or hardly know a row
        return np.ones(Q), None, False
    noise = np.broadcast_to(trained["noise_variance_"], Q).astype(np.float64)
    ratios = np.broadcast_to(1.0 / data.weight[:, None], y.shape)
    work = evidence_work(min(len(X), FIRST_ROWS), X.shape[1], Q)
    dear = work > settings.tuning.part_work  # the second derivatives by a map
    turn = not (dear or is_identity(trained["linear_map_"]))
    best = LogPosterior(trained["kernel_"], noise, X, y, ratios, turn=turn)
    how = settings.known_noise is not None, settings.kernel is None
    scales = length_scales(best.kernel, X.shape[1], otherwise=np.inf)
    metric, most = trained["linear_map_"] / scales, settings.tuning.part_work
    # rows of no level of a block have the variance of one that is drawn
    categories = trained["_support"].categories
    blocks = [one for one in categories if one.order is None]
    with one_blas_thread():
        squares = left_out_squares(best, rng, *how)
        unknown = 1.0 if settings.known_noise is not None else width_of_next(len(X))
        if squares is None:
            return np.full(Q, unknown), None, False
        alike = None if blocks else alike_squares(best)
        known = data.columns, metric, most  # new levels of a category are drawn
        levels = None if categories else find_levels(best, *known)
    before, after = np.maximum(squares, np.finfo(float).tiny)  # y may be constant
    after = after if alike is None else np.maximum(after, alike)
    usual = np.where(law.is_learned, before, np.minimum(after, 1.0))
    return unknown * np.sqrt(after / usual), levels, alike is not None
