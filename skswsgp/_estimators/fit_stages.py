"""The stages of a fit: the problem, the start, the solution.

`BaseSWSGP._fit` goes through them in this order.
"""

import copy
import math
from contextlib import closing
from typing import NamedTuple

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from skswsgp._cluster.rows_elsewhere import Recipe
from skswsgp._compiled.threads import max_threads
from skswsgp._engine.select import make_engine
from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.given import require_word_of_fit
from skswsgp._kernel_search.kernel_choice import choose_columns
from skswsgp._kernel_search.kernel_learning import count_learning_rows
from skswsgp._kernel_search.start import initial_attributes
from skswsgp._point.likelihood_records import LIKELIHOODS
from skswsgp._rows.column_scale import fit_columns
from skswsgp._rows.columns import is_identity
from skswsgp._rows.data import TrainingRows, with_known_noise
from skswsgp._rows.inducing import given_points
from skswsgp._rows.near_copies import unite_near_copies
from skswsgp._rows.statistics import (
    SAMPLE_ROWS,
    bounded_noise,
    feature_scale,
    feature_spread,
    relative_weights,
)
from skswsgp._solvers.auto import (
    count_inducing,
    natural_jitter,
    takes_draws,
    takes_full_covariance,
    tries_exact_means,
)
from skswsgp._solvers.exact_mean import ExactFit
from skswsgp._solvers.model import JITTER, build_model, shape_covariance
from skswsgp._solvers.settings import Settings


class GivenRows(NamedTuple):
    """What the user gives of each row, not validated yet."""

    X: object
    y: object
    sample_weight: object = None
    exposure: object = None
    noise_variance: object = None
    elsewhere: object = None  # the `RowsElsewhere` of which these are a sample
    stream: object = None  # the `Stream` of which these are the rows, validated


class Problem(NamedTuple):
    """What a fit is about, before anything of the model is known."""

    settings: Settings
    data: TrainingRows  # with the weights of the user
    held_out: TrainingRows | None  # rows that decide when to stop
    attributes: (
        dict  # fitted attributes that the targets need, or all of an earlier fit
    )
    noise_is_known: bool
    stream: object  # the `Stream` of which these are rows, or None
    rng: np.random.RandomState


class Start(NamedTuple):
    """Where training starts."""

    settings: Settings
    data: TrainingRows  # in the mapped columns, weights as the solver takes them
    held_out: TrainingRows | None
    attributes: dict  # all fitted attributes that a model is built from
    spread: np.ndarray  # (D',) standard deviations of the columns
    total_weight: float  # of all rows so far
    draws: bool  # whether S comes from draws
    stream: object  # the `Stream` of the rows, as of the last fit, or None
    factor: float  # by which weights of the user were multiplied
    rng: np.random.RandomState


class TrainingRowsMixin:
    """From X, y and weights to `TrainingRows`."""

    def _validate_training(self, X, y, sample_weight, reset, checked=False):
        """Return validated X, y and weights, and the numbers of their rows of X.

        Rows of weight zero are left out; None stands for all rows of X. X and y may be
        `checked` before.
        """
        if not checked:
            X, y = compat.validate(self, X, y, reset=reset, **self._target_checks)
        weight = compat.check_weights(sample_weight, X, self.dtype)
        weight = self._weigh_targets(X, y, weight, reset)
        if weight.all():
            return X, y, weight, None
        rows = np.flatnonzero(weight)
        return X, y[rows], weight[rows], rows

    def _weigh_targets(self, X, y, weight, reset):
        """Return the weights (n,) of rows times those of their classes, if any.

        `reset` says whether a fit begins with these rows, which hold all classes then.
        """
        return weight

    def _training_rows(self, X, y, sample_weight, exposure=None):
        """Return validated `TrainingRows` for a fitted model, not mapped yet."""
        check_is_fitted(self, "inducing_points_")
        self._validate_params()
        X, y, weight, rows = self._validate_training(X, y, sample_weight, reset=False)
        exposure = compat.check_row_values("exposure", exposure, len(X), rows)
        targets = self._encode_targets(y, vars(self), exposure)
        targets = targets.astype(self.dtype, copy=False)
        data = TrainingRows(X, targets, weight.astype(self.dtype), rows)
        return data.scaled(self._columns)

    def _validation_data(self, X_val, y_val, attributes, settings):
        """Return the user's validation data, or None."""
        if X_val is None and y_val is None:
            return None
        if X_val is None or y_val is None:
            missing = "X_val" if X_val is None else "y_val"
            raise ValueError(f"{missing} is missing: X_val and y_val go together.")
        if not settings.early_stopping:
            raise ValueError(
                "X_val and y_val came with early_stopping=False: expected 'auto' or "
                "True, for they only serve to decide when to stop."
            )
        checks = {"reset": False} | self._target_checks
        X_val, y_val = compat.validate(self, X_val, y_val, **checks)
        targets = self._encode_targets(y_val, attributes)
        weight = np.ones(len(X_val), dtype=self.dtype)
        return TrainingRows(X_val, targets.astype(self.dtype, copy=False), weight)

    def _stops_early(self, data, settings):
        """Return whether held-out rows decide when a fit stops."""
        if settings.early_stopping == "auto":
            many = data.n_rows > self._tuning.holdout_above
            here = data.elsewhere is None  # blocks would train on rows of a sample
            return settings.solver.takes_steps and many and here
        return settings.early_stopping

    def _hold_out(self, data, y, settings, rng):
        """Return the data to train on, and those held out."""
        fraction = settings.validation_fraction
        n_held_out = math.ceil(fraction * len(y))
        if n_held_out == len(y):
            raise ValueError(
                f"early_stopping={settings.early_stopping!r} with validation_fraction="
                f"{fraction} holds out all of {len(y)} rows: expected some to train "
                "on; lower validation_fraction, or use early_stopping=False."
            )
        stratify = self._stratify(y, fraction)
        options = {"random_state": rng, "stratify": stratify}
        parts = train_test_split(np.arange(len(y)), test_size=n_held_out, **options)
        return [data.take(np.sort(part)) for part in parts]

    def _stratify(self, y, fraction):
        return None

    def _without_near_copies(self, X, rows, targets, attributes, solver):
        """Return X with `unite_near_copies`, unless it may be in a file."""
        likelihood, _ = self._likelihood_of(attributes)
        whole = self.learn_kernel or solver.finds_optimum
        if not (whole and LIKELIHOODS[likelihood].has_noise):
            return X
        some = X if rows is None else X[rows]
        spread = feature_spread(some, np.random.RandomState(0), dtype=self.dtype)
        united = unite_near_copies(some, targets, spread)
        if united is some:
            return X
        out = X.copy()
        out[slice(None) if rows is None else rows] = united
        return out


class FitStagesMixin:
    """From what the user gives to the attributes of a fitted model."""

    def _problem(self, given, validation, solver, fitted, noise_model):
        """Return the `Problem` of a fit; `solver` is what `solver_for` returns.

        `validation` is (X_val, y_val), `fitted` the attributes from which the fit
        starts, if any, and `noise_model` a process of the noise that is known, or None.
        """
        rng = check_random_state(self.random_state)
        stream = given.stream
        known = {} if stream is None else stream.kept
        reset, X, y, weight = not (fitted or known), *given[:3]
        checked = stream is not None
        X, y, weight, rows = self._validate_training(X, y, weight, reset, checked)
        exposure, noise = (
            compat.check_row_values(name, getattr(given, name), len(X), rows)
            for name in ("exposure", "noise_variance")
        )
        # later chunks and validation rows may hold what a logarithm does not take
        free = stream is None and noise is None and validation[1] is None
        # and so may rows that are not in the sample
        free = free and (given.elsewhere is None or given.elsewhere.n_rows <= len(X))
        attributes = fitted or known or self._learn_targets(X, rows, y, weight, free)
        attributes = dict(attributes)
        targets = self._encode_targets(y, attributes, exposure)
        ratio = None
        if noise is not None:
            ratio = bounded_noise(noise, y, weight)
            usual = np.average(ratio, weights=weight) / attributes["y_scale_"] ** 2
            attributes["_mean_noise_variance"] = usual
        X = self._without_near_copies(X, rows, targets, attributes, solver[0])
        noise_model = noise_model or fitted.get("noise_model_")
        if noise_model is None:
            noise_model = self._learn_noise_model(X, rows, y, weight, attributes)
        if noise_model is not None:
            ratio = noise_model.training_ratio(X if rows is None else X[rows])
            # a copy, for its unit belongs to this fit
            attributes["noise_model_"] = copy.copy(noise_model)
        targets = targets.astype(self.dtype, copy=False)
        more = {"ratio": ratio, "elsewhere": given.elsewhere}
        data = TrainingRows(X, targets, weight, rows, **more)
        settings = self._settings(attributes, data, solver, stream)
        held_out = self._validation_data(*validation, attributes, settings)
        if held_out is None and self._stops_early(data, settings):
            data, held_out = self._hold_out(data, y, settings, rng)
        if held_out is not None and noise_model is not None:
            noise_there = noise_model.variance(held_out.inputs)
            held_out = held_out._replace(ratio=noise_there)
        if reset:
            attributes["x_transform_"] = self._learn_columns(data, settings)
        columns = attributes.get("x_transform_")
        if self.x_transform != "auto":
            before = columns and columns.name
            require_word_of_fit("x_transform", self.x_transform, before, "scale")
        if columns is not None and not isinstance(settings.inducing_points, str):
            D = data.X.shape[1]
            points = given_points(settings.inducing_points, D, settings.n_inducing)
            settings = settings._replace(inducing_points=columns.forward(points))
        data, held_out = data.scaled(columns), held_out and held_out.scaled(columns)
        has_noise = noise is not None
        return Problem(settings, data, held_out, attributes, has_noise, stream, rng)

    def _learn_columns(self, data, settings):
        """Return the scale of the columns, or None as they are."""
        if self.x_transform is None:
            return None
        if self.x_transform != "auto":
            order = np.random.RandomState(0).permutation(data.n_rows)
            few = data.take(order[:SAMPLE_ROWS])
            most = settings.tuning.most_columns
            return fit_columns(self.x_transform, few.inputs, few.weight, most)
        chosen = self.kernel is not None or not isinstance(self.inducing_points, str)
        if chosen or not self.learn_kernel or data.n_rows < 2:
            return None
        return choose_columns(data, settings)

    def _start(self, problem, fitted):
        """Return the `Start` of a fit, that of `fitted` attributes if there are any."""
        settings, data, held_out, attributes, *_, rng = problem
        solver = settings.solver
        scale = feature_scale(data.X, rng, data.rows, self.dtype)
        stream = problem.stream
        spread = np.where(scale > 0.0, scale, 1.0)
        data = data._replace(weight=data.weight.astype(self.dtype))
        settings, data, noise, unit = self._noise_of_start(problem, settings, data)
        if held_out is not None and held_out.ratio is not None:
            held_out = held_out._replace(ratio=held_out.ratio / unit)
        factor = float(data.weight.sum() / problem.data.weight.sum())
        if stream is not None:
            past = stream.past and stream.past.scaled(factor / stream.factor)
            data = data._replace(weight=data.weight * stream.fading, past=past)
        found = fitted
        if stream is not None and stream.kept:
            found = self._continued(problem, settings, data, spread)
        elif not fitted:
            found = initial_attributes(settings, data, spread, rng)
        attributes = found | attributes | noise
        attributes |= {"_feature_scale": scale, "likelihood_": settings.likelihood}
        if data.elsewhere is not None:
            large = "inducing_points_", "inducing_mean_", "inducing_covariance_"
            needed = {k: v for k, v in attributes.items() if k not in large}
            recipe = Recipe(self._encoder(), needed, factor, settings)
            data = data._replace(elsewhere=data.elsewhere.with_recipe(recipe))
        linear_map = attributes["linear_map_"]
        if not is_identity(linear_map):
            data = data.mapped(linear_map)
            held_out = held_out and held_out.mapped(linear_map)
            spread = feature_spread(data.X, rng, dtype=self.dtype)
        draws = False
        if solver.finds_optimum:
            M, H = len(attributes["inducing_points_"]), attributes["n_neighbors_"]
            full = takes_full_covariance(settings, data.n_all, M, H)
            attributes = shape_covariance(attributes, full)
            draws = takes_draws(settings, M, full)
            if settings.likelihood_record.conjugate:
                names = "kernel_", "inducing_points_", "noise_variance_"
                given = (attributes[name] for name in names)
                D = attributes["inducing_points_"].shape[1]
                dense = H == M and tries_exact_means(settings, data.n_all, M, D)
                dtype = "float64" if dense else self.dtype  # of the systems
                attributes["_jitter"] = natural_jitter(*given, dtype, full)
        if solver.takes_steps:
            attributes["_jitter"] = JITTER
        total = data.weight.sum(dtype=np.float64)
        if data.past is not None:
            total += data.past.weight
        return Start(
            settings,
            data,
            held_out,
            attributes,
            spread,
            total,
            draws,
            stream,
            factor,
            rng,
        )

    def _continued(self, problem, settings, data, spread):
        """Return the attributes of a start from the stream as it was.

        All rows are inducing points while they may be. Later points stay as they are.
        """
        stream, attributes = problem.stream, problem.attributes
        data = data.mapped(attributes["linear_map_"])
        points, D = settings.inducing_points, data.X.shape[1]
        most = count_inducing(settings, data.n_all, D)
        if stream.points is not None:
            points = stream.points
        elif most < data.n_all or not isinstance(points, str):
            points = self.inducing_points_
        settings = settings._replace(
            kernel=stream.known["kernel_"],
            learn_kernel=settings.learn_kernel and stream.learns,
            learn_map=False,
            n_inducing="auto",
            inducing_points=points,
        )
        return initial_attributes(settings, data, spread, problem.rng)

    def _encoder(self):
        """Return an estimator that validates and encodes rows as this one does."""
        other = type(self)(**self.get_params(deep=False))
        kept = "n_features_in_", "feature_names_in_", "_announced_classes"
        vars(other).update({k: v for k, v in vars(self).items() if k in kept})
        return other

    def _noise_of_start(self, problem, settings, data):
        """Return settings, data and attributes that know the noise, and its unit.

        The weights of the data divide the noise variance of `settings` then. Where rows
        have a `ratio`, weights are precisions, and the unit is the harmonic mean of the
        noise, which is known or learned; otherwise it is None.
        """
        known, unit = problem.noise_is_known, None
        if not settings.likelihood_record.has_noise:
            return settings, data, {}, unit
        if problem.stream is not None and not problem.stream.learns:
            data = data._replace(weight=data.weight * problem.stream.factor)
        elif not known:
            # Adam alone reads X by parts, which may be a memory map.
            whole = self.learn_kernel or settings.solver.finds_optimum
            most = count_learning_rows(data.X.shape[1], self._tuning) if whole else 0
            data = relative_weights(data, most)
        if data.ratio is not None:
            data, unit = with_known_noise(data)
        if "noise_model_" in problem.attributes:
            problem.attributes["noise_model_"].unit_ = unit
        if not known:
            return settings, data, {}, unit
        noise = unit / problem.attributes["y_scale_"] ** 2
        settings = settings._replace(known_noise=np.atleast_1d(noise))
        return settings, data, {"noise_variance_": noise}, unit

    def _solve(self, start, task):
        """Return the fitted attributes."""
        settings, data, held_out, attributes, *_, rng = start
        solver_class = settings.solver
        M, H = len(attributes["inducing_points_"]), attributes["n_neighbors_"]
        likelihood = settings.likelihood, settings.n_latent
        weight = settings.divergence_weight(M, H)
        model, center = build_model(
            attributes,
            likelihood,
            self.dtype,
            weight,
            settings.optimize_inducing,
            start.total_weight,
        )
        data = data._replace(center=center)
        held_out = held_out and held_out._replace(center=center)
        points = solver_class.count_points(data.n_all, M, settings)
        n_threads, steps = max_threads(self.n_jobs, data.n_rows), {}
        if solver_class.takes_steps:
            steps["feature_scale"] = start.spread
        with closing(make_engine(self.device, model, H, n_threads, points)) as engine:
            kernel = attributes["kernel_"]
            solver = solver_class(engine, data, kernel, settings, rng, **steps)
            with task.stage("inducing variables", settings.max_iter):
                trained = self._train(
                    solver, data, held_out, attributes, settings, task
                )
            if start.draws and solver.usable:
                with task.stage("posterior draws"):
                    trained |= self._draw(solver, settings, rng)
            exact = ExactFit()
            D = attributes["inducing_points_"].shape[1]
            if solver.usable and tries_exact_means(settings, data.n_all, M, D):
                with task.stage("exact means"):
                    exact = self._solve_exact_mean(solver, data, trained, settings, rng)
                    source = "all rows" if exact.attributes else "the neighbors"
                    task.lines.say(f" from {source},")
            trained |= exact.attributes
            known = trained | exact.comparison
            if start.stream is not None:
                data = start.stream.recent(data)
            with task.stage("predictive law"):
                trained |= self._leave_out_rows(solver, data, known, settings, rng)
            if start.stream is not None:
                trained["_stream"] = self._stream_after(start, solver, trained)
                if trained["_stream"].past is not None:
                    trained.pop("lower_bound_")  # which lacks what earlier rows add
            return trained

    def _stream_after(self, start, solver, trained):
        """Return the `Stream` after a fit, without rows that are not kept."""
        most = max(self._most_points_of_stream(), start.settings.tuning.stream_rows)
        stream = start.stream.learned(start.factor, trained)
        Z = trained["inducing_points_"]
        return stream.without_old_rows(most, solver, start.data, Z)

    def _most_points_of_stream(self):
        """Return how many inducing points a stream takes."""
        if not isinstance(self.inducing_points, str):
            return len(self.inducing_points)
        usual = self._tuning.stream_rows
        return usual if self.n_inducing == "auto" else self.n_inducing
