"""The second call of a fit: kernel, noise and inducing points to start from."""

import copy
from typing import NamedTuple

import numpy as np

from skswsgp._kernel_search.kernel_learning import count_learning_rows
from skswsgp._kernel_search.start import initial_attributes
from skswsgp._rows.columns import is_identity
from skswsgp._rows.data import TrainingRows, with_known_noise
from skswsgp._rows.statistics import feature_scale, feature_spread, relative_weights
from skswsgp._solvers import auto
from skswsgp._solvers.model import JITTER, shape_covariance
from skswsgp._solvers.rows import RowsInMemory
from skswsgp._solvers.settings import Settings


class Weighted(NamedTuple):
    """Rows of a problem with the weights that a solver takes."""

    settings: Settings  # which know the noise if rows do
    data: TrainingRows
    held_out: TrainingRows | None
    noise: dict  # fitted attributes of the noise that are known, or none
    factor: float  # by which weights of the user were multiplied


class Start(NamedTuple):
    """Where training starts."""

    settings: Settings
    targets: object  # those of the `Problem`
    rows: RowsInMemory  # in the mapped columns
    held_out: TrainingRows | None
    attributes: dict  # all fitted attributes that a model is built from
    spread: np.ndarray  # (D',) standard deviations of the columns
    knows_sites: bool  # whether variances of f come from the sites at near points
    factor: float  # that of `Weighted`
    rng: np.random.RandomState


def learn(problem, fitted=None):
    """Return the `Start` of a problem, that of `fitted` attributes if there are any."""
    if not fitted:
        auto.require_room(problem.settings, problem.data.n_all, problem.data.X.shape[1])
    scale, weighted = spread_of_columns(problem), weigh(problem)
    found = fitted or first_attributes(weighted, scale, problem.rng)
    return start_at(found, problem, weighted, scale)


def spread_of_columns(problem):
    """Return the `feature_scale` (D,) of the rows of a problem."""
    data, dtype = problem.data, problem.settings.dtype
    return feature_scale(data.X, problem.rng, data.rows, dtype)


def first_attributes(weighted, scale, rng):
    """Return the `initial_attributes` of `Weighted` rows of columns of some scale."""
    spread = np.where(scale > 0.0, scale, 1.0)
    return initial_attributes(weighted.settings, weighted.data, spread, rng)


def weigh(problem, factor=None):
    """Return the `Weighted` rows of a problem.

    The weights divide the noise variance of the settings. `factor` multiplies them
    where an earlier fit has found it. Where rows have a `ratio`, weights are
    precisions, and the noise, which is known or learned, is relative to its harmonic
    mean.
    """
    settings, data, held_out = problem.settings, problem.data, problem.held_out
    data = data._replace(weight=data.weight.astype(settings.dtype))
    known, unit, noise = problem.noise_is_known, None, {}
    if settings.likelihood_record.has_noise:
        if factor is not None:
            data = data._replace(weight=data.weight * factor)
        elif not known:
            # Solvers that take steps may read X by parts, from a memory map.
            whole = settings.learn_kernel or settings.solver.finds_optimum
            D, tuning = data.X.shape[1], settings.tuning
            most = count_learning_rows(D, tuning) if whole else 0
            data = relative_weights(data, most)
        if data.ratio is not None:
            data, unit = with_known_noise(data)
        if "noise_model_" in problem.attributes:
            process = copy.copy(problem.attributes["noise_model_"])
            process.unit_ = unit  # of this fit, whatever the process serves elsewhere
            noise = {"noise_model_": process}
        if known:
            variance = unit / problem.targets.scale.factor**2
            settings = settings._replace(known_noise=np.atleast_1d(variance))
            noise |= {"noise_variance_": variance}
    if held_out is not None and held_out.ratio is not None:
        held_out = held_out._replace(ratio=held_out.ratio / unit)
    factor = float(data.weight.sum() / problem.data.weight.sum())
    return Weighted(settings, data, held_out, noise, factor)


def start_at(found, problem, weighted, scale):
    """Return the `Start` at attributes `found`, for columns of a `scale` (D,)."""
    settings, data, held_out, noise, factor = weighted
    attributes = found | problem.attributes | noise
    attributes |= {"_feature_scale": scale, "likelihood_": settings.likelihood}
    spread, linear_map = np.where(scale > 0.0, scale, 1.0), attributes["linear_map_"]
    if not is_identity(linear_map):
        data = data.mapped(linear_map)
        held_out = held_out and held_out.mapped(linear_map)
        spread = feature_spread(data.X, problem.rng, dtype=settings.dtype)
    attributes, knows_sites = with_covariance(attributes, settings, data)
    return Start(
        settings, problem.targets, RowsInMemory(data), held_out, attributes, spread,
        knows_sites, factor, problem.rng,
    )  # fmt: skip


def with_covariance(attributes, settings, data):
    """Return attributes with S and jitter as the solver takes them.

    The second result is that of `knows_sites`.
    """
    solver, known = settings.solver, False
    if solver.finds_optimum:
        Z = attributes["inducing_points_"]
        M, H = len(Z), attributes["n_neighbors_"]
        full = auto.takes_full_covariance(settings, data.n_all, M, H)
        attributes = shape_covariance(attributes, full)
        known = auto.knows_sites(settings, full)
        if known and settings.covariance == "draws":
            auto.require_room_for_draws(settings.tuning, M, settings.n_latent)
        record = settings.likelihood_record
        if record.conjugate or record.counts:
            dtype = auto.dtype_of_systems(settings, M, H)
            noise = attributes.get("noise_variance_")
            noise = record.unknown_part(data.y) if record.counts else noise
            jitter = auto.natural_jitter(attributes["kernel_"], Z, noise, dtype, full)
            attributes["_jitter"] = jitter
    if solver.takes_steps:
        attributes["_jitter"] = JITTER
    return attributes, known
