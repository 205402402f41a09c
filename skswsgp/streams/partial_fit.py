"""`partial_fit`: the calls of a fit, with rows of a stream and a kernel that may stay.

A kernel that was learned at one chunk has to predict the next chunk better than the
kernel that it replaced, or gives way to it.
"""

import warnings

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from skswsgp._estimators import sklearn_compat as compat
from skswsgp._estimators.base import GivenRows
from skswsgp._estimators.given import solver_for, trial_of
from skswsgp._fit.encode import UserRows
from skswsgp._fit.learn import first_attributes, spread_of_columns, start_at, weigh
from skswsgp._fit.solve import learn_law, solve
from skswsgp._fit.targets import distinct_labels, require_labels
from skswsgp._kernel_search.start import initial_attributes
from skswsgp._rows.checks import usable_weights
from skswsgp._rows.data import OF_STREAM
from skswsgp._rows.statistics import LARGEST_SEED
from skswsgp._rows.table import gaps
from skswsgp._solvers.auto import count_inducing
from skswsgp._solvers.natural import NaturalSolver
from skswsgp.streams.exchange import exchange_points
from skswsgp.streams.past_sites import RowsAndPast
from skswsgp.streams.stream import Stream


def learn_chunk(model, given, classes=None):
    """Let an estimator learn from one more chunk of a stream, and return it.

    `given` are `GivenRows`, and `classes` all labels that any chunk may hold, or None.
    The estimator stays as it was if anything is wrong.
    """
    with compat.unchanged_on_failure(model):
        model._refuse_combinations()
        before = stream_of(model)
        classes = classes_of(model, before, classes)
        rows = checked_chunk(model, given, before is None, classes)
        if before is None:
            stream = new_stream(model, rows)
        else:
            stream = with_chunk(model, before, rows)
        two = stream.learns and stream.known and model.learn_kernel
        rival = with_old_kernel(model, stream, classes) if two else None
        attributes, task = fit_stream(model, stream, classes)
        model._set_fitted(attributes | {"_rival": rival})
        task.end()
    return model


def stream_of(model):
    """Return the `Stream` of an estimator, or None before its first fit."""
    if hasattr(model, "_stream"):
        return model._stream
    if not hasattr(model, "inducing_points_"):
        return None
    kept = getattr(model, "_kept_rows", "rows that it did not keep")
    if isinstance(kept, str):
        raise ValueError(
            f"partial_fit of a model that was fitted with {kept}: expected a new "
            "model, because such a fit keeps no rows; give its rows to partial_fit too."
        )
    gamma = solver_for(model)[1]["forgetting_factor"]
    stream = Stream.of_fit(kept, gamma, vars(model))
    params = kept.begun_with or model.get_params(deep=False)
    return stream._replace(begun_with=parameters_of_stream(params))


def classes_of(model, before, classes):
    """Return all labels that rows of a stream may have, None for those of the first.

    Raises ValueError where `classes` are not those of the first call.
    """
    if classes is None:
        return None if before is None else getattr(model, "classes_", None)
    listed = np.asarray(classes)
    if listed.ndim != 1 or len(listed) < 2 or gaps(listed).any():
        raise ValueError(
            f"classes={classes!r}: expected a list of two or more labels, all that any "
            "chunk may hold; leave it out where the first chunk holds all of them."
        )
    classes = distinct_labels(classes)
    require_labels(model.class_weight, classes)
    if before is not None and not np.array_equal(classes, model.classes_):
        raise ValueError(
            f"classes={list(map(str, classes))} differ from the "
            f"{list(map(str, model.classes_))} of the first call: pass the same again."
        )
    return classes


def checked_chunk(model, given, is_first, classes):
    """Return X, y, weight and exposure of a chunk, validated, rows that count."""
    whole = is_first and classes is None
    rows = model._check_rows(given, reset=is_first, all_classes=whole)
    return rows.inputs, rows.y, rows.user.weight[rows.numbers], rows.exposure


def new_stream(model, chunk):
    """Return the `Stream` of a first chunk."""
    seed = check_random_state(model.random_state).randint(LARGEST_SEED)
    stream = Stream.of(seed, solver_for(model)[1]["forgetting_factor"], *chunk)
    params = model.get_params(deep=False)
    return stream._replace(begun_with=parameters_of_stream(params))


def parameters_of_stream(params):
    """Return copies of those parameters of an estimator that stay, by name."""
    names = [name for name in OF_STREAM if name in params]
    return {name: clone(params[name], safe=False) for name in names}


def require_parameters_of_stream(model, stream):
    """Raise ValueError where a parameter is not that with which a stream began."""
    for name, before in (stream.begun_with or {}).items():
        now = getattr(model, name)
        points = name == "inducing_points"
        if not (np.array_equal(now, before) if points else repr(now) == repr(before)):
            now, then = map(in_short, (now, before))
            raise ValueError(
                f"{name}={now} in a stream that began with {then}: expected the "
                "same for all chunks; set it back, or begin a stream with a clone."
            )


def in_short(value):
    """Return the words for a parameter in a message."""
    return f"a table {np.shape(value)}" if np.ndim(value) else repr(value)


def with_chunk(model, stream, chunk):
    """Return the `Stream` of a fitted estimator with one more chunk."""
    X, y, weight, exposure = chunk
    targets = model._targets(vars(model))
    model._require_parameters_of_targets(vars(model))
    require_parameters_of_stream(model, stream)
    targets.encode(y, exposure)  # raises what is wrong
    stream = choose_kernel(model, stream, chunk)
    now = {"forgetting_factor": solver_for(model)[1]["forgetting_factor"]}
    if hasattr(model, "classes_") and len(np.setdiff1d(y, stream.y)) > 0:
        now["n_learned"] = 0  # the first rows of a class
    stream = stream._replace(**now).joined(*chunk)
    most = most_points(model)
    longer = len(stream.X) > max(most, model._tuning.stream_rows)
    if not isinstance(model.inducing_points, str) or not (
        stream.past or (longer and not stream.learns)
    ):
        return stream
    worth, usual = stream.worth, stream.usual
    if stream.past is None:  # from now on; free places only are taken
        worth = np.full(len(model.inducing_points_), np.inf)
        usual = stream.factor / np.mean(getattr(model, "noise_variance_", 1.0))
    rows = model._on_scale(X), weight * usual
    posterior = model._posterior()
    points, past = exchange_points(posterior, stream.past, worth, *rows, most)
    return stream._replace(points=points, past=past)


def choose_kernel(model, stream, chunk):
    """Give an estimator its old kernel back where this predicts a chunk better.

    Returns the stream of the kernel that stays.
    """
    if getattr(model, "_rival", None) is None:
        return stream
    rival = trial_of(model)
    vars(rival).update(model._rival)
    if density_of_chunk(rival, *chunk) > density_of_chunk(model, *chunk):
        vars(model).update(model._rival)
        stream = model._stream
    model._rival = None
    return stream


def density_of_chunk(model, X, y, weight, exposure):
    """Return the mean log density of validated rows, from neighbours' means."""
    targets = model._targets(vars(model))
    encoded = targets.encode(y, exposure)
    moments = model._posterior().moments(model._on_scale(X))
    density = targets.log_density(*moments, encoded, vars(model))
    return np.average(density, weights=weight)


def with_old_kernel(model, stream, classes):
    """Return the attributes of a fit to more rows that keeps the kernel."""
    trial, stream = trial_of(model), stream._replace(n_learned=stream.n_seen)
    fitted = {k: v for k, v in vars(model).items() if "callback" not in k}
    fitted = {k: v for k, v in fitted.items() if k not in model.get_params(deep=False)}
    vars(trial).update(fitted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attributes, task = fit_stream(trial, stream, classes, is_trial=True)
        task.end()
    return attributes


def fit_stream(model, stream, classes, is_trial=False):
    """Fit the rows of a `Stream`; return fitted attributes and the `FitTask`.

    The caller ends the task when the estimator has the attributes.
    """
    kept = stream.kept or {}
    given = GivenRows(stream.X, stream.y, stream.weight, stream.exposure)
    task = compat.FitTask(model, given)
    with task.stage("scales of columns and targets"):
        settings = stream_settings(model, stream, is_trial)
        rows = rows_of(model, stream)
        # later chunks may hold what a logarithm does not take
        how = {"free": ("yeo-johnson",), "classes": classes}
        targets = model._targets_of_fit(rows, settings, kept, **how)
        problem = model._problem(rows, targets, settings, kept)
    with task.stage("kernel"):
        start = learn_stream(problem, stream, model)
    with solve(start, task) as solution:
        judged, recent = solution, stream.recent(solution.data)
        if recent is not solution.data:
            judged = solution._replace(data=recent, group=None, sites=None)
        law = learn_law(judged, task)
        attributes = solution.attributes | law
        after = stream.learned(start.factor, attributes)
        most = max(most_points(model), settings.tuning.stream_rows)
        past = getattr(start.rows, "past", None)
        Z = attributes["inducing_points_"]
        after = after.without_old_rows(most, solution.solver, past, Z)
    attributes.pop("leave_one_out_", None)  # not of all rows
    if after.past is not None:
        attributes.pop("lower_bound_")  # which lacks what earlier rows add
    return attributes | {"_stream": after}, task


def rows_of(model, stream):
    """Return the `CheckedRows` of a stream, those of no weight in X only."""
    weight = usable_weights(stream.weight, model.dtype)
    rows = model._weighed(UserRows(stream.X, stream.y, weight), all_classes=False)
    exposure = stream.exposure
    exposure = None if exposure is None else exposure[rows.numbers]
    return rows._replace(exposure=exposure)


def stream_settings(model, stream, is_trial):
    """Return the `Settings` of a fit to a stream, which bound the work of a chunk."""
    settings = model._settings(is_trial)
    tuning = settings.tuning
    tuning = tuning._replace(most_neighbors=tuning.variance_neighbors)
    settings = settings._replace(tuning=tuning)
    if not stream.learns:
        settings = settings._replace(solver=NaturalSolver)  # inducing inputs stay
    if isinstance(model.inducing_points, str):
        settings = settings._replace(n_inducing=most_points(model))
    if stream.past is not None and isinstance(model.n_neighbors, str):
        # means from all rows need the rows
        M, H = most_points(model), tuning.variance_neighbors
        n_neighbors = H if model.n_neighbors == "auto" else M
        settings = settings._replace(n_neighbors=n_neighbors)
    return settings


def most_points(model):
    """Return how many inducing points a stream takes."""
    if not isinstance(model.inducing_points, str):
        return len(model.inducing_points)
    usual = model._tuning.stream_rows
    return usual if model.n_inducing == "auto" else model.n_inducing


def learn_stream(problem, stream, model):
    """Return the `Start` of a fit to a stream, see `learn`."""
    scale = spread_of_columns(problem)
    weighted = weigh(problem, factor=None if stream.learns else stream.factor)
    data, factor = weighted.data, weighted.factor
    data = data._replace(weight=data.weight * stream.fading)
    weighted = weighted._replace(data=data)
    if stream.kept:
        found = continued(problem, weighted, scale, stream, model)
    else:
        found = first_attributes(weighted, scale, problem.rng)
    start = start_at(found, problem, weighted, scale)
    if stream.past is None:
        return start
    past = stream.past.scaled(factor / stream.factor)
    return start._replace(rows=RowsAndPast(start.rows, past))


def continued(problem, weighted, scale, stream, model):
    """Return the attributes of a start from a stream as it was.

    All rows are inducing points while they may be. Later points stay as they are.
    """
    settings, attributes = weighted.settings, problem.attributes
    data = weighted.data.mapped(attributes["linear_map_"])
    points, D = settings.inducing_points, data.X.shape[1]
    most = count_inducing(settings, data.n_all, D)
    if stream.points is not None:
        points = stream.points
    elif most < data.n_all or not isinstance(points, str):
        points = model.inducing_points_
    settings = settings._replace(
        kernel=stream.known["kernel_"],
        learn_kernel=settings.learn_kernel and stream.learns,
        learn_map=False,
        n_inducing=most if isinstance(points, str) else "auto",
        inducing_points=points,
    )
    spread = np.where(scale > 0.0, scale, 1.0)
    return initial_attributes(settings, data, spread, problem.rng)
