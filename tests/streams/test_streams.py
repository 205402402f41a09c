"""Streams: `partial_fit` in one pass, rows that leave, points that follow."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared
from sklearn.model_selection import train_test_split
from small_models import natural_model, small_data, state_of

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._fit import solve
from skswsgp.solvers import Adam, Natural

KERNEL = ConstantKernel(1.5) * RBF([1.0, 1.2])
Z = np.random.default_rng(1).uniform(-2, 2, size=(30, 2))
# A process that is known, as a fit with other rows must not change it
KNOWN = {
    "kernel": KERNEL,
    "learn_kernel": False,
    "inducing_points": Z,
    "random_state": 0,
}
KNOWN_NOISE = {"initial_noise": 0.01, "normalize_y": False}


def learn(model, X, y, chunks, **options):
    """Return the model after a pass over the rows in so many chunks."""
    for rows in np.array_split(np.arange(len(X)), chunks):
        model.partial_fit(X[rows], y[rows], **options)
    return model


@pytest.fixture
def few_kept(tune):
    """Let streams keep 60 rows."""
    tune(stream_rows=60)


def classes_of(X, seed=0):
    """Return one of three classes for rows X (n, 2)."""
    noise = np.random.default_rng(seed).normal(size=len(X))
    return np.digitize(np.sin(2 * X[:, 0]) + 0.3 * noise, [-0.5, 0.5])


@pytest.mark.parametrize("chunks", [1, 2])
def test_a_stream_whose_rows_have_doubled_is_a_fit_of_all(in_order, chunks):
    X, y = small_data(80)
    how = {"y_transform": None, "random_state": 0}
    stream = learn(SWSGPRegressor(**how), X, y, chunks)
    fit = SWSGPRegressor(**how).fit(X, y)
    for one, other in zip(
        stream.predict(X, return_std=True), fit.predict(X, return_std=True), strict=True
    ):
        assert_array_equal(one, other)
    labels = classes_of(X)
    stream = SWSGPClassifier(random_state=0)
    stream = learn(stream, X, labels, chunks, classes=[0, 1, 2])
    fit = SWSGPClassifier(random_state=0).fit(X, labels)
    assert_array_equal(stream.predict_proba(X), fit.predict_proba(X))


@pytest.mark.usefixtures("few_kept", "few_steps")
@pytest.mark.parametrize("first, decides", [(40, True), (30, False)])
def test_a_first_chunk_of_more_than_half_of_what_is_kept_decides(first, decides):
    X, y = small_data(100)
    model, found = SWSGPRegressor(predictive="gaussian", random_state=0), set()
    for rows in np.split(np.arange(100), range(first, 100, 10)):
        model.partial_fit(X[rows], y[rows])
        found.add((repr(model.kernel_), float(model.y_mean_)))
    assert len(model._stream.X) == 60
    assert (len(found) == 1) == decides


def test_a_stream_takes_no_logarithm_that_a_fit_takes():
    """Later chunks may hold what has none."""
    X, y = small_data(120)
    y = np.exp(3.0 * y)
    model = SWSGPRegressor(random_state=0)
    assert model.fit(X, y).y_transform_.name == "log"
    assert clone(model).partial_fit(X, y).y_transform_.name == "yeo-johnson"


def test_a_fit_goes_on_as_a_stream(in_order):
    X, y = small_data(120)
    how = {"y_transform": None, "random_state": 0}
    stream = SWSGPRegressor(**how).partial_fit(X[:90], y[:90])
    fit = SWSGPRegressor(**how).fit(X[:90], y[:90])
    kernel = fit.kernel_
    rows = X[90:].copy()
    for model in (stream, fit):
        model.partial_fit(rows, y[90:])
        assert model.kernel_ == kernel
        assert len(model.inducing_points_) == 120
    assert_array_equal(fit.predict(X), stream.predict(X))
    again = fit.predict(X)
    rows[:] = 0.0  # a stream keeps copies
    learn(fit, X[:1], y[:1], 1)
    assert np.abs(fit.predict(X) - again).max() < 0.1


@pytest.mark.matrix
@pytest.mark.usefixtures("few_kept")
@pytest.mark.parametrize("H", [30, 10])
@pytest.mark.parametrize("chunks", [2, 5, 13])
def test_any_order_and_any_cut_is_one_fit(H, chunks, rng):
    X, y = small_data(300)
    how = KNOWN | KNOWN_NOISE | {"n_neighbors": H, "covariance": "full"}
    fit = SWSGPRegressor(**how).fit(X, y)
    order = rng.permutation(300)
    stream = learn(SWSGPRegressor(**how), X[order], y[order], chunks)
    assert len(stream._stream.X) == 60
    assert stream._stream.past.n_rows == 240
    assert_allclose(stream.inducing_mean_, fit.inducing_mean_, rtol=0, atol=1e-10)
    assert_allclose(
        stream.inducing_covariance_, fit.inducing_covariance_, rtol=0, atol=1e-10
    )


@pytest.mark.usefixtures("few_kept")
def test_outputs_share_their_sums_and_have_their_noise():
    X, y = small_data(200)
    Y = np.column_stack([y, np.cos(X[:, 1])])
    how = KNOWN | KNOWN_NOISE | {"n_neighbors": 10, "covariance": "full"}
    stream = learn(SWSGPRegressor(**how), X, Y, 5)
    fit = SWSGPRegressor(**how).fit(X, Y)
    first, second = stream._stream.past.grams
    assert first is second
    assert isinstance(first, np.ndarray)  # 30 points of 10 neighbours have few zeros
    assert_allclose(stream.inducing_mean_, fit.inducing_mean_, rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("few_kept")
def test_single_precision_is_that_of_a_fit():
    X, y = small_data(200)
    how = KNOWN | KNOWN_NOISE | {"n_neighbors": 10, "dtype": "float32"}
    stream = learn(SWSGPRegressor(**how), X, y, 5)
    fit = SWSGPRegressor(**how).fit(X, y)
    assert stream.inducing_mean_.dtype == np.float32
    assert_allclose(stream.inducing_mean_, fit.inducing_mean_, rtol=0, atol=5e-3)
    assert_allclose(stream.inducing_covariance_, fit.inducing_covariance_, atol=1e-5)


@pytest.mark.usefixtures("few_kept")
def test_draws_know_the_rows_that_left():
    X, y = small_data(300)
    points = np.random.default_rng(2).uniform(-2, 2, size=(100, 2))
    how = KNOWN | KNOWN_NOISE | {"n_neighbors": 10, "inducing_points": points}
    squares = np.zeros((2, 100))
    for seed in range(10):
        model = SWSGPRegressor(**how | {"covariance": "draws", "random_state": seed})
        squares[0] += np.mean(clone(model).fit(X, y).posterior_draws_ ** 2, axis=1)
        squares[1] += np.mean(learn(model, X, y, 5).posterior_draws_ ** 2, axis=1)
    assert model._stream.past.n_rows == 200  # as many stay as there are points
    # 640 draws know a variance to 6 %; without noise of earlier rows it is too small
    ratio = squares[1] / squares[0]
    assert abs(ratio.mean() - 1.0) < 0.05
    assert_allclose(ratio, 1.0, atol=0.3)


@pytest.mark.usefixtures("few_kept")
def test_a_weight_falls_by_the_forgetting_factor_for_each_row():
    X, y = small_data(200)
    gamma = 0.98
    how = KNOWN | KNOWN_NOISE | {"n_neighbors": 30, "covariance": "full"}
    solver = Natural(forgetting_factor=gamma)
    stream = learn(SWSGPRegressor(**how, solver=solver), X, y, 8)
    weight = gamma ** np.arange(199, -1, -1.0)
    # `fit` divides weights by their mean, which changes the noise of a row of weight 1
    how["initial_noise"] /= weight.mean()
    twin = SWSGPRegressor(**how).fit(X, y, sample_weight=weight)
    assert stream._stream.past.n_rows > 100
    assert_allclose(stream.inducing_mean_, twin.inducing_mean_, rtol=0, atol=1e-9)
    assert_allclose(
        stream.inducing_covariance_, twin.inducing_covariance_, rtol=0, atol=1e-10
    )


def test_after_a_fit_the_oldest_rows_are_forgotten_first():
    X = np.linspace(0.0, 10.0, 400)[::-1, None]  # old rows are those on the right
    solver = Natural(forgetting_factor=0.95)
    model = SWSGPRegressor(solver=solver, y_transform=None, random_state=0)
    model.fit(X, np.sin(X[:, 0])).partial_fit(X[-1:], np.sin(X[-1:, 0]))
    assert len(model._stream.X) < 300
    assert model._stream.X.max() < 7.0


@pytest.mark.full
def test_a_drifting_function_is_followed_where_rows_are_forgotten():
    rng = np.random.default_rng(0)
    grid, errors = np.linspace(0, 6, 100)[:, None], {}
    for gamma in (1.0, 0.99):
        solver = Natural(forgetting_factor=gamma)
        model = SWSGPRegressor(learn_kernel=False, solver=solver, random_state=0)
        for t in np.arange(12) * 0.25:
            X = rng.uniform(0, 6, size=(100, 1))
            model.partial_fit(X, np.sin(X[:, 0] + t) + 0.1 * rng.normal(size=100))
        f = np.sin(grid[:, 0] + t)
        errors[gamma] = np.sqrt(np.mean((model.predict(grid) - f) ** 2))
    lower, upper = model.predict_interval(grid)  # of the one that forgets
    y = f + 0.1 * rng.normal(size=100)
    assert np.mean((lower <= y) & (y <= upper)) > 0.85
    assert len(model._stream.X) < 700  # what weighs less than a thousandth has left
    assert errors[0.99] < 0.3 < 0.7 < errors[1.0]


def test_points_follow_inputs_that_move(tune):
    tune(stream_rows=200)
    rng = np.random.default_rng(0)
    model = SWSGPRegressor(n_inducing=60, learn_kernel=False, random_state=0)
    for start in range(20):
        X = start + rng.uniform(0, 1, size=(40, 1))
        model.partial_fit(X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=40))
        assert len(model.inducing_points_) <= 60
        assert len(model._stream.X) <= 200
    for begin in (0, 10, 19):  # the first rows are not forgotten
        X = begin + np.linspace(0, 1, 30)[:, None]
        assert np.abs(model.predict(X) - np.sin(2 * X[:, 0])).max() < 0.25


def test_a_chunk_in_one_new_place_takes_few_points(tune):
    tune(stream_rows=100)
    rng = np.random.default_rng(0)
    model = SWSGPRegressor(n_inducing=60, learn_kernel=False, random_state=0)
    starts = [(0, 6)] * 10 + [(20, 21)]
    for low, high in starts:
        X = rng.uniform(low, high, size=(60, 1))
        model.partial_fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=60))
    for low, high in starts[-2:]:
        X = np.linspace(low, high, 50)[:, None]
        assert np.abs(model.predict(X) - np.sin(X[:, 0])).max() < 0.2


def test_the_chunk_from_which_rows_leave_has_points(tune):
    tune(stream_rows=100)
    rng = np.random.default_rng(0)
    model = SWSGPRegressor(learn_kernel=False, random_state=0)
    for low, n in ((0, 60), (5, 50)):
        X = low + rng.uniform(0, 1, size=(n, 1))
        model.partial_fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=n))
    assert model._stream.past.n_rows == 10
    X = np.linspace(5, 6, 30)[:, None]
    assert np.abs(model.predict(X) - np.sin(X[:, 0])).max() < 0.2


def test_announced_classes_outlive_another_kernel(in_order):
    X = np.random.default_rng(0).normal(size=(90, 2))
    y = (X[:, 0] > 0).astype(int)
    y[60:] = np.where(X[60:, 1] > 0.5, 2, y[60:])
    model = SWSGPClassifier(random_state=0)
    model.partial_fit(X[:30], y[:30], classes=[0, 1, 2])
    model.partial_fit(X[30:60], y[30:60])  # doubles the rows
    assert model.classes_.tolist() == [0, 1, 2]
    model.partial_fit(X[60:], y[60:])  # the first rows of a class teach it anew
    fit = SWSGPClassifier(random_state=0).fit(X, y)
    assert_array_equal(model.predict_proba(X), fit.predict_proba(X))


def test_exposures_of_some_chunks():
    X, _ = small_data(90)
    rate, exposure = np.exp(np.sin(2 * X[:, 0])), np.repeat([1.0, 5.0, 1.0], 30)
    y = np.random.default_rng(0).poisson(rate * exposure)
    how = {"likelihood": "poisson", "learn_kernel": False, "random_state": 0}
    some, all_of_them = SWSGPRegressor(**how), SWSGPRegressor(**how)
    fitted = SWSGPRegressor(**how).fit(X[:30], y[:30])
    for rows in np.split(np.arange(90), 3):
        given = exposure[rows]
        all_of_them.partial_fit(X[rows], y[rows], exposure=given)
        some.partial_fit(X[rows], y[rows], exposure=None if given[0] == 1.0 else given)
    assert_array_equal(some.predict(X), all_of_them.predict(X))
    fitted.partial_fit(X[30:60], y[30:60], exposure=exposure[30:60])
    assert_array_equal(fitted._stream.exposure, exposure[:60])


def test_what_is_remembered_does_not_grow():
    rng = np.random.default_rng(0)
    solver = Natural(forgetting_factor=0.9)
    model, sizes = SWSGPRegressor(solver=solver, random_state=0), []
    for _ in range(6):
        X = rng.uniform(-2, 2, size=(40, 1))
        model.partial_fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=40))
        assert model._rival is None or model._rival.get("_rival") is None
        sizes.append(len(model._stream.X))
    assert sizes[-1] == sizes[-2] < 70
    assert model._stream.past is None  # what is forgotten leaves no trace


@pytest.mark.usefixtures("few_kept")
@pytest.mark.parametrize("likelihood", ["gaussian", "poisson", "student_t", "classes"])
def test_rows_that_left_are_remembered(likelihood):
    X, y = small_data(400)
    options, kept = {}, {"n_inducing": 60, "random_state": 0}
    if likelihood == "classes":
        y, model = classes_of(X), SWSGPClassifier(**kept)
        options["classes"] = [0, 1, 2]
    else:
        if likelihood == "poisson":
            y = np.random.default_rng(0).poisson(np.exp(y + 1.0))
        model = SWSGPRegressor(likelihood=likelihood, **kept)
    learn(model, X[:300], y[:300], 6, **options)
    assert model._stream.past.n_rows == 240
    few = type(model)(**model.get_params()).fit(X[:60], y[:60])
    score = model.score(X[300:], y[300:])
    assert score > few.score(X[300:], y[300:])
    assert not hasattr(model, "lower_bound_")  # a part of the rows is known by sums


def test_the_next_chunk_decides_between_two_kernels():
    X, y = small_data(200)
    model = SWSGPRegressor(random_state=0)
    learn(model, X[:100], y[:100], 2)  # the second chunk doubles the rows
    old, new = model._rival["kernel_"], model.kernel_
    assert old != new
    for spoiled in (True, False):
        copy = pickle.loads(pickle.dumps(model))
        state = vars(copy) if spoiled else copy._rival
        state["inducing_mean_"] = -state["inducing_mean_"]
        state.pop("alpha_", None)
        copy.partial_fit(X[100:120], y[100:120])
        assert copy.kernel_ == (old if spoiled else new)
        assert copy._rival is None
        assert copy.score(X, y) > 0.9


@pytest.mark.usefixtures("few_kept")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_stream_that_was_pickled_goes_on_as_before(n_jobs):
    X, y = small_data(200)
    how = {"n_inducing": 40, "n_neighbors": 8, "learn_kernel": False, "random_state": 0}
    whole = learn(SWSGPRegressor(**how), X, y, 5)
    cut = SWSGPRegressor(**how, n_jobs=n_jobs)
    for rows in np.array_split(np.arange(200), 5):
        cut = pickle.loads(pickle.dumps(cut)).partial_fit(X[rows], y[rows])
    for one, other in zip(
        whole.predict(X, return_std=True), cut.predict(X, return_std=True), strict=True
    ):
        assert_array_equal(one, other)


def test_a_failed_chunk_leaves_the_stream_as_it_was(monkeypatch):
    X, y = small_data(80)
    model = natural_model().partial_fit(X[:60], y[:60])
    before = state_of(model)
    for rows, message in (
        ((np.full((3, 2), np.nan), np.zeros(3)), "NaN"),
        ((X[:3, :1], y[:3]), "features"),
    ):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(*rows)
        assert state_of(model) == before

    def fail(*_):
        raise RuntimeError("no engine")

    monkeypatch.setattr(solve, "make_engine", fail)
    with pytest.raises(RuntimeError, match="no engine"):
        model.partial_fit(X[60:], y[60:])
    assert state_of(model) == before


def test_streams_that_are_refused(tune):
    X, y = small_data(60)
    with pytest.raises(AttributeError, match="no attribute 'partial_fit'") as caught:
        SWSGPRegressor(solver=Adam(max_iter=3)).partial_fit(X, y)
    assert "expected 'natural' or Natural() of an" in str(caught.value.__cause__)
    adam = SWSGPRegressor(solver=Adam(max_iter=3), random_state=0).fit(X, y)
    adam.set_params(solver="natural")
    held_out, known = natural_model(), natural_model()
    held_out.set_params(solver=Adam(max_iter=3)).fit(X, y, X_val=X, y_val=y)
    known.fit(X, y, noise_variance=np.ones(60))
    tune(stream_rows=50)
    for model, why in (
        (adam, "steps of Adam"),
        (held_out.set_params(solver="natural"), "steps of Adam and X_val"),
        (known, "given noise"),
        (natural_model().fit(X, y), "more than 50 rows"),
    ):
        match = f"was fitted with {why}: expected .* such a fit keeps no rows; give its"
        with pytest.raises(ValueError, match=match):
            model.partial_fit(X, y)
    for gamma in (0.0, 1.5):
        with pytest.raises(ValueError, match="'forgetting_factor' parameter"):
            SWSGPRegressor(solver=Natural(forgetting_factor=gamma)).partial_fit(X, y)


@pytest.mark.parametrize("begin", ["fit", "partial_fit"])
def test_a_stream_keeps_the_parameters_that_it_was_learned_by(begin):
    X, y = small_data(60)
    model = getattr(natural_model(), begin)(X[:40], y[:40])
    others = {"kernel": RBF(), "dtype": "float32", "learn_map": False}
    others["inducing_points"] = X[:5]
    for name, value in others.items():
        before = getattr(model, name)
        model.set_params(**{name: value})
        match = f"^{name}=.* in a stream that began with {before!r}: expected the same"
        with pytest.raises(ValueError, match=match):
            model.partial_fit(X[40:], y[40:])
        model.set_params(**{name: before})
    model.set_params(n_jobs=1, n_neighbors=4).partial_fit(X[40:], y[40:])


def test_a_stream_keeps_each_of_many_points(rng):
    X, y = small_data(60)
    Z = rng.normal(size=(600, 2))
    model = natural_model(inducing_points=Z.tolist()).partial_fit(X[:40], y[:40])
    model.set_params(inducing_points=Z.copy()).partial_fit(X[40:50], y[40:50])
    Z[300] += 0.1
    match = r"^inducing_points=a table \(600, 2\) in a stream that began with a table "
    with pytest.raises(ValueError, match=match):
        model.set_params(inducing_points=Z).partial_fit(X[50:], y[50:])


def test_a_stream_keeps_the_parameters_of_its_kernel():
    X, y = small_data(60)
    model = natural_model(kernel=RBF(np.ones(2))).partial_fit(X[:40], y[:40])
    for value in (7.0, np.ones(3)):
        model.set_params(kernel__length_scale=value)
        with pytest.raises(ValueError, match=r"^kernel=.*: expected the same"):
            model.partial_fit(X[40:], y[40:])


def test_a_description_lists_what_a_chunk_warned_of():
    X, y = small_data(40)
    kernel = {"kernel": RBF() * ExpSineSquared(3.0, 1e9), "learn_kernel": False}
    model, match = natural_model(**kernel), "ExpSineSquared reads 2 columns"
    with pytest.warns(UserWarning, match=match):
        model.partial_fit(X, y)
    warned = [text for name, text in model.describe().facts if name == "warning"]
    assert [text.startswith(match) for text in warned] == [True]


@pytest.mark.full
def test_intervals_hold_after_one_pass():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(1500, 2))
    f = np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1])
    y = f + 0.2 * rng.normal(size=1500)
    model = learn(SWSGPRegressor(random_state=0), X[:1000], y[:1000], 10)
    assert np.sqrt(np.mean((model.predict(X[1000:]) - f[1000:]) ** 2)) < 0.08
    lower, upper = model.predict_interval(X[1000:])
    held = np.mean((lower <= y[1000:]) & (y[1000:] <= upper))
    assert abs(held - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 500)
    best = norm.logpdf(y[1000:], f[1000:], 0.2).mean()
    assert model.log_predictive_density(X[1000:], y[1000:]).mean() > best - 0.1


@pytest.mark.full
@pytest.mark.parametrize(("name", "most"), [("powerplant", 0.185), ("kin8nm", 0.31)])
def test_one_pass_over_a_table(name, most):
    folder = os.environ.get("SKSWSGP_DATA")
    if folder is None:
        pytest.skip("SKSWSGP_DATA names no folder with the table")
    with np.load(Path(folder, f"{name}.npz")) as file:
        X, y = file["X"], file["y"]
    train, test = train_test_split(np.arange(len(X)), test_size=0.2, random_state=0)
    model = SWSGPRegressor(random_state=0)
    learn(model, X[train], y[train], -(-len(train) // 250))
    error = np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2))
    assert error / y[train].std() < most
    lower, upper = model.predict_interval(X[test])
    assert 0.92 <= np.mean((lower <= y[test]) & (y[test] <= upper)) <= 0.975
