"""The first call of a fit: from checked rows to training rows on their scales."""

import math
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import Kernel
from sklearn.model_selection import train_test_split

from skswsgp._kernel_search.kernel_choice import choose_columns
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._rows import statistics
from skswsgp._rows.checks import as_numbers, require_word_of_fit
from skswsgp._rows.column_scale import fit_columns
from skswsgp._rows.data import TrainingRows, memory_budget
from skswsgp._rows.inducing import given_points
from skswsgp._rows.near_copies import unite_near_copies
from skswsgp._rows.support import find_support
from skswsgp._solvers.settings import Settings


class UserRows(NamedTuple):
    """All N rows as the user gave them, validated."""

    X: np.ndarray  # (N, D)
    y: np.ndarray  # (N, ...)
    weight: np.ndarray  # (N,) before weights of classes


class CheckedRows(NamedTuple):
    """Validated rows of which n have positive weight and train."""

    X: np.ndarray  # (N, D)
    y: np.ndarray  # (n, ...) in the units of the user
    weight: np.ndarray  # (n,) times those of classes
    numbers: np.ndarray  # (n,) of these rows of X
    exposure: np.ndarray | None = None  # (n,)
    noise_variance: np.ndarray | None = None  # (n,) in squared units of y
    user: UserRows | None = None
    stand_for: int | None = None  # rows of which these are a sample, None for none

    @classmethod
    def of(cls, X, y, weight, user=None):
        """Return the rows of X (N, D) of which those with positive weight train."""
        numbers = np.flatnonzero(weight)
        return cls(X, y[numbers], weight[numbers], numbers, user=user)

    def by_content(self):
        """Return the rows in an order that depends on what they hold only.

        Those of a large memory map stay, for its pages are read one after the other.
        """
        if self.X.nbytes > memory_budget() and is_in_file(self.X):
            return self
        names = "y", "weight", "exposure", "noise_variance"
        known = {n: getattr(self, n) for n in names if getattr(self, n) is not None}
        columns = [column for found in known.values() for column in sortable(found)]
        order = statistics.order_of_content(self.X, self.numbers, columns)
        known = {name: found[order] for name, found in known.items()}
        return self._replace(numbers=self.numbers[order], **known)

    @property
    def inputs(self):
        """The rows of X that train (n, D)."""
        return self.X[self.numbers]


class Problem(NamedTuple):
    """What a fit is about, before anything of the model is known."""

    settings: Settings
    targets: object  # `RegressionTargets`, or another class of that contract
    data: TrainingRows  # with the weights of the user
    held_out: TrainingRows | None  # rows that decide when to stop
    attributes: dict  # fitted attributes so far, or all of an earlier fit
    noise_is_known: bool
    rng: np.random.RandomState


def encode(rows, targets, settings, rng, *, known=None, held_out=None, noise=None):
    """Return the `Problem` of `CheckedRows`.

    `known` are fitted attributes that stay, among them the scale of the columns, or
    none. `held_out` are `TrainingRows` of the user that decide when to stop, and
    `noise` is the process of the noise, or None.
    """
    attributes = dict(known or targets.attributes())
    encoded = targets.encode(rows.y, rows.exposure).astype(settings.dtype, copy=False)
    ratio, has_noise = None, rows.noise_variance is not None
    if has_noise:
        ratio = statistics.bounded_noise(rows.noise_variance, rows.y, rows.weight)
        usual = np.average(ratio, weights=rows.weight) / targets.scale.factor**2
        attributes["_mean_noise_variance"] = usual
    if noise is not None:
        ratio = noise.training_ratio(rows.inputs)
        attributes["noise_model_"] = noise
    data = TrainingRows(rows.X, encoded, rows.weight, rows.numbers, ratio=ratio)
    data = data._replace(stand_for=rows.stand_for)
    settings = with_targets(settings, targets, data)
    if held_out is None and stops_early(data, settings):
        data, held_out = hold_out(data, targets.stratify, rows.y, settings, rng)
    if held_out is not None and noise is not None:
        held_out = held_out._replace(ratio=noise.variance(held_out.inputs))
    if not known:
        attributes["x_transform_"] = learn_columns(data, settings)
    elif attributes.get("_seen_targets") is not None:
        y = as_numbers(rows.y)
        attributes["_seen_targets"] = attributes["_seen_targets"].beside(y)
    columns = attributes.get("x_transform_")
    sample = data.take(statistics.standing_rows(data.n_rows)).inputs
    attributes["_support"] = find_support(sample, columns)
    if settings.x_transform != "auto":
        before = columns and columns.name
        require_word_of_fit("x_transform", settings.x_transform, before, "scale")
    if columns is not None and not isinstance(settings.inducing_points, str):
        D = data.X.shape[1]
        points = given_points(settings.inducing_points, D, settings.n_inducing)
        settings = settings._replace(inducing_points=columns.forward(points))
    data, held_out = data.scaled(columns), held_out and held_out.scaled(columns)
    return Problem(settings, targets, data, held_out, attributes, has_noise, rng)


def is_in_file(X):
    """Return whether an array is a memory map, or part of one."""
    base = getattr(X, "base", None)
    return isinstance(X, np.memmap) or (base is not None and is_in_file(base))


def sortable(values):
    """Return columns (n,) of numbers by which rows of values (n, ...) are sorted.

    There are none for targets that have no order, which are refused later.
    """
    with suppress(TypeError, ValueError):
        if values.dtype.kind not in "fiub":
            values = np.unique(values, return_inverse=True)[1]
        return [*np.asarray(values, dtype=np.float64).reshape(len(values), -1).T]
    return []


def with_targets(settings, targets, data):
    """Return the `Settings` that know the targets of `TrainingRows`."""
    likelihood, n_latent = targets.likelihood, targets.n_latent
    averages = LIKELIHOODS[likelihood].averages(data.y, data.weight, n_latent)
    known = {"likelihood": likelihood, "n_latent": n_latent, "averages": averages}
    return settings._replace(**known)


def unite_copies(rows, targets, settings):
    """Return `CheckedRows` with `unite_near_copies`, unless X may be in a file."""
    whole = settings.learn_kernel or settings.solver.finds_optimum
    if not (whole and LIKELIHOODS[targets.likelihood].has_noise):
        return rows
    some, rng = rows.inputs, np.random.RandomState(0)
    spread = statistics.feature_spread(some, rng, dtype=settings.dtype)
    united = unite_near_copies(some, targets.encode(rows.y, rows.exposure), spread)
    if united is some:
        return rows
    X = rows.X.copy()
    X[rows.numbers] = united
    return rows._replace(X=X)


def stops_early(data, settings):
    """Return whether held-out rows decide when a fit stops."""
    if settings.early_stopping == "auto":
        many = data.n_rows > settings.tuning.holdout_above
        return settings.solver.takes_steps and many
    return settings.early_stopping


def hold_out(data, stratify, y, settings, rng):
    """Return the data to train on, and those held out.

    `stratify` is a method of the targets for the rows' targets y, and for the fraction
    that is held out.
    """
    fraction = settings.validation_fraction
    n_held_out = math.ceil(fraction * len(y))
    if n_held_out == len(y):
        raise ValueError(
            f"early_stopping={settings.early_stopping!r} with validation_fraction="
            f"{fraction} holds out all of {len(y)} rows: expected some to train "
            "on; lower validation_fraction, or use early_stopping=False."
        )
    options = {"random_state": rng, "stratify": stratify(y, fraction)}
    parts = train_test_split(np.arange(len(y)), test_size=n_held_out, **options)
    return [data.take(np.sort(part)) for part in parts]


def learn_columns(data, settings):
    """Return the scale of the columns, or None as they are.

    With a kernel that is no function of differences the columns lose their medians, so
    that it does not matter where they have their origin.
    """
    name, kernel = settings.x_transform, settings.kernel
    if name is None:
        return None
    free = settings.learn_kernel and isinstance(settings.inducing_points, str)
    moves = isinstance(kernel, Kernel) and not kernel.is_stationary()  # with an origin
    name = "centered" if name == "auto" and free and moves else name
    if name != "auto":
        few = data.take(statistics.standing_rows(data.n_rows))
        return fit_columns(name, few.inputs, few.weight, settings.tuning.most_columns)
    known = kernel is not None or not free or data.n_rows < 2
    return None if known else choose_columns(data, settings)
